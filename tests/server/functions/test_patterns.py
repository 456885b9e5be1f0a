"""Patterns of Python as JavaScript compiles them; tests/clients asks a JavaScript engine itself."""

from __future__ import annotations

import pytest

from mcpd.server.functions.plain_schema import portable


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (r"^[a-z]+$", r"^[a-z]+$"),
        (r"\A\d{3}\Z", r"^\d{3}$"),
        (r"(?P<a>x)\1", r"(x)\1"),
        (r"[\w\-\.]+\@x\_", r"[\w\-\.]+@x_"),
        (r"a*?b{2,3}?", r"a*?b{2,3}?"),
        (r"(?:a|b)(?=c)(?!d)(?<=c)(?<!e)", r"(?:a|b)(?=c)(?!d)(?<=c)(?<!e)"),
        (r"[.^$]\\x41", r"[.^$]\\x41"),
        (r"(?i)a", None),
        (r"a++", None),
        (r"a{2}+", None),
        (r"(?>a)", None),
        (r"(?P=a)", None),
        (r"(?#c)", None),
        (r"a{,3}", None),
        (r"{", None),
        (r"[]a]", None),
        (r"[^]a]", None),
        (r"[\b]", None),
        ("a\\", None),
    ],
)
def test_it_means_the_same_or_is_left_out(pattern: str, written: str | None) -> None:
    assert portable(pattern) == written
