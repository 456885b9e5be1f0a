"""The head of a Markdown file: what people write there, as YAML reads it; all else is a mistake with its line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpd.sources.front_matter import FrontMatterError, split


def head(text: str) -> dict[str, Any]:
    return split(f"---\n{text}\n---\nbody")[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("# nothing\n", {}),
        ("title: Plan a bed", {"title": "Plan a bed"}),
        ("title: Plan a bed  # as we do", {"title": "Plan a bed"}),
        ("title: C# and a#b", {"title": "C# and a#b"}),
        ('title: "a: \\"b\\" \\u00e4\\n"', {"title": 'a: "b" ä\n'}),
        ("title: 'it''s: so'", {"title": "it's: so"}),
        ("url: http://x.example/a?b", {"url": "http://x.example/a?b"}),
        ("a: true\nb: False\nc: 3\nd: -2.5\ne: ~\nf:\ng: 007", {"a": True, "b": False, "c": 3, "d": -2.5, "e": None,
                                                               "f": None, "g": "007"}),
        ("a:\n  b: 1\n  c:\n    d: x\ne: 2", {"a": {"b": 1, "c": {"d": "x"}}, "e": 2}),
        ("a:\n  - x\n  - y z\nb: 1", {"a": ["x", "y z"], "b": 1}),
        ("a:\n- x\n- y\nb: 1", {"a": ["x", "y"], "b": 1}),
        ("a:\n  - name: x\n    text: y\n  - name: z", {"a": [{"name": "x", "text": "y"}, {"name": "z"}]}),
        ("a: [x, 'y, z', 3, [true]]", {"a": ["x", "y, z", 3, [True]]}),
        ("a: []", {"a": []}),
        ("a: |\n  one\n    two\n\n  three\nb: 1", {"a": "one\n  two\n\nthree\n", "b": 1}),
        ("a: >-\n  one\n  two\n\n  three", {"a": "one two\nthree"}),
        ('"quoted key": 1', {"quoted key": 1}),
        ("a: one - two", {"a": "one - two"}),
        ("a: one\n  two # three\nb: 1", {"a": "one two", "b": 1}),
        ("a: one\n  two\n\n  three\n\nb:\n  - x\n    y\n  - z", {"a": "one two\nthree", "b": ["x y", "z"]}),
        ("a: {b: 1, 'c d': [x, y], e: {f: }}", {"a": {"b": 1, "c d": ["x", "y"], "e": {"f": None}}}),
        ("a: {}", {"a": {}}),
        ("a: |+\n  one\n\nb: >-\n  one\n    two\n    three\n  four\n\n\n  five\n", {
            "a": "one\n\n", "b": "one\n  two\n  three\nfour\n\nfive"}),
        ("a: 0x1F\nb: 0o17\nc: 1e3\nd: .5\ne: 1.\nf: 1.2.3\ng: 2026-01-01\nh: .\ni: TRUE", {
            "a": 31, "b": 15, "c": 1000.0, "d": 0.5, "e": 1.0, "f": "1.2.3", "g": "2026-01-01", "h": ".", "i": True}),
    ],
)  # fmt: skip
def test_what_is_read(text: str, found: dict[str, Any]) -> None:
    assert head(text) == found


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("title", 2, "'title' is no key with a value"),
        ("a: 1\na: 2", 3, "has a key that is there already"),
        ("a: 1\n  b: 2", 3, "is not indented like"),
        ("a:\n    b: 1\n  c: 2", 4, "is not indented like"),
        ("a:\n\tb: 1", 3, "begins with a tab"),
        ("a: {b: 1", 2, "has no } at its end"),
        ("a: {b}", 2, "is no table in braces"),
        ("a: {b: 1, b: 2}", 2, "has a key that is there already"),
        ("a: one\n  two: three", 3, "a text with a colon needs quotes"),
        ("a: &b c", 2, "has a sign that means something else"),
        ("a: *b", 2, "has a sign that means something else"),
        ("a: b: c", 2, "has a colon in its text"),
        ('a: "b', 2, "has a quote that does not end"),
        ('a: "b" c', 2, "has something behind its value"),
        ("a: [b", 2, "has no ] at its end"),
        ("a: ['b' 'c']", 2, "needs a comma"),
        ('a: "\\q"', 2, "write \\\\ for a backslash"),
        ("a:\n  - b\n  c: 1", 4, "mixes a list with keys"),
        ("- a", 2, "is no key with a value"),
        ("a: " + "[" * 30, 2, "nested more than"),
        ("\n".join(" " * depth + "a:" for depth in range(30)), 23, "nested more than"),
    ],
)
def test_what_is_a_mistake(text: str, line: int, said: str) -> None:
    with pytest.raises(FrontMatterError) as caught:
        head(text)
    assert said in str(caught.value)
    assert caught.value.line == line


def test_where_the_text_begins() -> None:
    assert split("no head\n---\n") == ({}, "no head\n---\n", 1)
    assert split("---\na: 1\n---\nbody\n---\n") == ({"a": 1}, "body\n---\n", 4)
    assert split('+++\na = 1\n[b]\nc = "d"\n+++\nbody') == ({"a": 1, "b": {"c": "d"}}, "body", 6)
    with pytest.raises(FrontMatterError, match="never ends"):
        split("---\na: 1\n")
    with pytest.raises(FrontMatterError) as caught:
        split("+++\na = 1\nb =\n+++\n")
    assert caught.value.line == 3


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found, _, line = split(f"---\n{text}\n---\n")
    except FrontMatterError as error:
        line, found = error.line, {}
    assert isinstance(found, dict)
    assert 1 <= line <= text.count("\n") + 4


_SCALARS = st.one_of(
    st.booleans(), st.integers(-999, 999), st.text(st.characters(codec="ascii", categories=["L"]), min_size=1)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.dictionaries(st.text("abcdefgh", min_size=1, max_size=4), inner, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=4), _VALUES, min_size=1, max_size=4))
def test_what_was_written_is_read(value: dict[str, Any]) -> None:
    """Tables and lists in each other, as YAML's block style has them."""
    assert head("\n".join(_written(value, 0))) == value


def _written(value: Any, indent: int) -> list[str]:
    lines = []
    pairs = value.items() if isinstance(value, dict) else [(None, item) for item in value]
    for key, item in pairs:
        mark = " " * indent + ("-" if key is None else f"{key}:")
        if isinstance(item, (dict, list)):
            lines += [mark, *_written(item, indent + 2)]
        else:
            lines.append(f"{mark} {_plain(item)}")
    return lines


def _plain(item: Any) -> str:
    if isinstance(item, str):
        return f'"{item}"'
    return str(item).lower() if isinstance(item, bool) else str(item)
