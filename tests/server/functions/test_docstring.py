"""Docstrings in the layouts people use."""

from __future__ import annotations

from inspect import cleandoc

import pytest
from hypothesis import given, strategies as st

from mcpd.server.functions.docstring import Docstring, parse

GOOGLE = """Forecast for a city.

    Uses the nearest station.

    Args:
        city: City name,
            as the post writes it.
        days (int, optional): Days ahead: 1 to 14.
        unit (Literal["c", "f"]): Celsius or Fahrenheit.

            More about units.
        **options: Anything else.

    Returns:
        One entry for each day.

    Raises:
        ToolError: There is no such city.
    """

NUMPY = """Forecast for a city.

    Uses the nearest station.

    Parameters
    ----------
    city : str
        City name,
        as the post writes it.
    days, hours : int, optional
        How far ahead.
    bare
        Without a type.

    Returns
    -------
    list
        One entry for each day.

    Raises
    ------
    ToolError
        There is no such city.
    """

REST = """Forecast for a city.

    Uses the nearest station.

    :param city: City name,
        as the post writes it.
    :type city: str
    :param int days: Days ahead.
    :returns: One entry for each day.
    :rtype: list
    :raises ToolError: There is no such city.
    """


def test_google() -> None:
    found = parse(cleandoc(GOOGLE))
    assert found.parameters == {
        "city": "City name, as the post writes it.",
        "days": "Days ahead: 1 to 14.",
        "unit": "Celsius or Fahrenheit.\n\nMore about units.",
        "options": "Anything else.",
    }
    assert found.description == (
        "Forecast for a city.\n\nUses the nearest station.\n\nReturns:\n    One entry for each day."
    )
    assert found.title == "Forecast for a city"


def test_numpy() -> None:
    found = parse(cleandoc(NUMPY))
    assert found.parameters == {
        "city": "City name, as the post writes it.",
        "days": "How far ahead.",
        "hours": "How far ahead.",
        "bare": "Without a type.",
    }
    assert found.description == (
        "Forecast for a city.\n\nUses the nearest station.\n\nReturns\n-------\nlist\n    One entry for each day."
    )


def test_rest() -> None:
    found = parse(cleandoc(REST))
    assert found.parameters == {"city": "City name, as the post writes it.", "days": "Days ahead."}
    assert found.description == (
        "Forecast for a city.\n\nUses the nearest station.\n\nReturns: One entry for each day."
    )


@pytest.mark.parametrize(
    ("text", "description", "parameters"),
    [
        (None, "", {}),
        ("", "", {}),
        ("  \n ", "", {}),
        ("One line.", "One line.", {}),
        ("Args:\n    a: A.", "", {"a": "A."}),
        ("Text.\n\nArgs:\n    a: A.\nAfter.", "Text.\n\nAfter.", {"a": "A."}),
        ("Text.\n\nArgs:\n\n    a: A.\n\n    b: B.", "Text.", {"a": "A.", "b": "B."}),
        ("Text.\n\nKeyword Args:\n  a: A.\n  b:\n    B.", "Text.", {"a": "A.", "b": "B."}),
        ("Text.\n\nArgs:\n    what no colon follows", "Text.\n\nArgs:\n    what no colon follows", {}),
        ("Text.\n\nArgs:\n    One, in SQL.\n    a: A.\n", "Text.\n\nArgs:\n    One, in SQL.", {"a": "A."}),
        ("Text.\n\nArguments:\n  a     - A, b\n  b - B\n", "Text.", {"a": "A, b", "b": "B"}),
        ("Text.\n\nArgs:\n    - a: A\n    * b (bool): B\n      - c: C\n", "Text.", {"a": "A", "b": "B - c: C"}),
        ("Text.\n\nArgs:\n    a -- A\n    `b`: B\n    **c** (str): C\n", "Text.", {"a": "A", "b": "B", "c": "C"}),
        ("Text.\n\nArgs:\nnothing is indented", "Text.\n\nArgs:\nnothing is indented", {}),
        ("Text.\n\nNote:\n    Kept.", "Text.\n\nNote:\n    Kept.", {}),
        ("Text.\n\n    indented: example", "Text.\n\n    indented: example", {}),
        ("Heading\n-------\nText.", "Heading\n-------\nText.", {}),
        ("Parameters\n----------\na\n    A.\n\nb : int", "", {"a": "A.", "b": ""}),
        ("Text.\n:param a:", "Text.", {"a": ""}),
        ("Text.\n:param *args: A.\n:keyword b: B.", "Text.", {"args": "A.", "b": "B."}),
        ("Text.\n:role:`x` stays", "Text.\n:role:`x` stays", {}),
        ("a\n\n\n\n\nb", "a\n\nb", {}),
    ],
)
def test_odd_ones(text: str | None, description: str, parameters: dict[str, str]) -> None:
    assert parse(text) == Docstring(description, parameters)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Forecast for a city.\n\nMore.", "Forecast for a city"),
        ("Forecast for a city", "Forecast for a city"),
        ("A sentence that goes on\nover two lines.", None),
        ("x" * 61, None),
        ("", None),
    ],
)
def test_title(text: str, title: str | None) -> None:
    assert parse(text).title == title


PIECES = st.sampled_from(
    ["a", ":", "-", "---", " ", "    ", "\n", "*", "(", ")", "Args:\n", "Parameters\n", ":param ", "x: "]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_text_can_be_parsed(text: str) -> None:
    found = parse(text)
    assert found.description == found.description.strip()
