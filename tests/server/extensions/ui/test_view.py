"""`View`: what can be said of a bundled page, and how mistakes are told."""

from __future__ import annotations

from typing import Any

import pytest

from mcpd import Server, View
from mcpd.errors import RegistrationError
from mcpd.server.extensions.ui.view import view_of


def show() -> list[dict[str, int]]:
    """Shows."""
    return []


def test_a_kind_alone_is_a_view_without_options() -> None:
    assert view_of("table") == View("table")
    assert view_of("table") != View("table", rows="items")
    assert repr(View("chart", kind="bar", y="sales")) == "View('chart', kind='bar', y=['sales'])"
    assert len({View("chart", y=["a"]), View("chart", y="a"), View("chart")}) == 2


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("tabel", {}, "did you mean 'table'?"),
        ("chart", {"knid": "bar"}, "did you mean 'kind'?"),
        ("chart", {"kind": "lines"}, "there are bar, line, area; did you mean 'line'?"),
        ("chart", {"stacked": "yes"}, "use True or False"),
        ("chart", {"y": []}, "use a list of texts"),
        ("chart", {"y": ["a", "a"]}, "twice"),
        ("chart", {"y": [f"c{number}" for number in range(9)]}, "at most 8"),
        ("table", {"columns": "name"}, "use a list, such as ['name']"),
        ("table", {"x": "month"}, "use title, columns, rows"),
        ("form", {"submit": ""}, "use a text"),
        ("markdown", {"title": 5}, "use a text"),
    ],
)
def test_mistakes_are_told_when_it_is_made(kind: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(RegistrationError) as caught:
        View(kind, **options)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"view": "tabel"}, "tool show: view 'tabel'"),
        ({"view": 5}, "tool show: view=5: use a kind"),
        ({"view": "table", "ui": "mine"}, "not both"),
        ({"view": "table", "meta": {"ui": {"resourceUri": "ui://x/y"}}}, "not both"),
        ({"view": "form", "visibility": ["model"]}, 'needs "app"'),
        ({"view": View("markdown", images=["javascript:x"])}, "images"),
    ],
)
def test_mistakes_are_told_when_a_tool_is_registered(options: dict[str, Any], told: str) -> None:
    server = Server("views")
    with pytest.raises(RegistrationError) as caught:
        server.add_tool(show, **options)
    assert told in str(caught.value)
    assert not list(server.catalog.tools)
