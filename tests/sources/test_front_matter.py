"""Front matter: YAML 1.2 and TOML, read the same for prompts, skills and documents; mistakes carry their line."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mcpd.sources.front_matter import FrontMatterError, read_front_matter, split_page


def head(text: str) -> dict[str, Any]:
    return read_front_matter(f"---\n{text}\n---\nbody")[0]


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
        ("a: yes\nb: no\nc: 1:30\nd: .inf\ne: 1e999\n3: f", {
            "a": "yes", "b": "no", "c": "1:30", "d": ".inf", "e": "1e999", "3": "f"}),
        ('a: "one\n  two"\nb: \'three\n\n  four\'', {"a": "one two", "b": "three\nfour"}),
        ("a: [\n  x,  # first\n  y,\n]\nb: {c: 1,\n  d: 2}", {"a": ["x", "y"], "b": {"c": 1, "d": 2}}),
        ("a: >-\n  one\n   two\n  three # four", {"a": "one\n two\nthree # four"}),
        ("a: {b}", {"a": {"b": None}}),
        # What Claude Code and Copilot read as text, though it is not YAML.
        ("description: Use when: the user asks\nmodel: x", {"description": "Use when: the user asks", "model": "x"}),
        ("argument-hint: [file] [line]\ntools: [a, b]", {"argument-hint": "[file] [line]", "tools": ["a", "b"]}),
        ("tools: *", {"tools": "*"}),
        ("by: @me and `you`\nc: 50%", {"by": "@me and `you`", "c": "50%"}),
    ],
)  # fmt: skip
def test_what_is_read(text: str, found: dict[str, Any]) -> None:
    assert head(text) == found


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("title", 2, "is not a list of keys with values"),
        ("- a", 2, "is not a list of keys with values"),
        ("a: 1\na: 2", 3, "has the key 'a' twice"),
        ("a: {b: 1, b: 2}", 2, "has the key 'b' twice"),
        ("a: 1\n  b: 2", 3, "not valid YAML"),
        ("a:\n    b: 1\n  c: 2", 4, "not valid YAML"),
        ("a:\n\tb: 1", 3, "not valid YAML"),
        ("a:\n  b: {c", 3, "not valid YAML"),
        ("a: one\n  two: three", 3, "not valid YAML"),
        ('a: "b', 2, "not valid YAML"),
        ('a: "b" c', 2, "not valid YAML"),
        ('a: "\\q"', 2, "not valid YAML"),
        ("a:\n  - b\n  c: 1", 4, "not valid YAML"),
        ("a:\n  b: &c d", 3, "anchors and aliases"),
        ("a:\n  b: *c", 3, "anchors and aliases"),
        ("a:\n  b: !!str 3", 3, "the tag tag:yaml.org,2002:str is not supported"),
        ("a:\n  ? [b]\n  : c", 3, "has a key that is not a string"),
        ("a:\n  " + "[" * 30 + "]" * 30, 3, "nested more than"),
        ("\n".join(" " * depth + "a:" for depth in range(30)), 23, "nested more than"),
    ],
)
def test_what_is_a_mistake(text: str, line: int, said: str) -> None:
    with pytest.raises(FrontMatterError) as caught:
        head(text)
    assert said in str(caught.value)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "front", "body"),
    [
        ("---\ntitle: A\n---\nText", {"title": "A"}, "Text"),
        ("---\ntitle: A\n...\nText\n---\n", {"title": "A"}, "Text\n---\n"),
        ("+++\ndate = 2026-01-01\n+++\nText", {"date": "2026-01-01"}, "Text"),
        ("---\ntitle: &a A\n---\nText", {}, "Text"),
        ("---\na: {b: &c d}\n  e\n---\nText", {}, "Text"),
        ("---\n# a comment\ntitle: A\n---\nText", {"title": "A"}, "Text"),
        ("---\n---\nText", {}, "Text"),
        ("---\n\nA rule, then text.\n\n---\n\nMore", {}, None),
        ("---\nA rule, then text.\n", {}, None),
        ("---- \nfour: dashes\n---\n", {}, None),
        ("--- title: no\n---\n", {}, None),
    ],
)
def test_a_page_loses_nothing_but_its_front_matter(text: str, front: dict[str, Any], body: str | None) -> None:
    assert split_page(text) == (front, text if body is None else body)


def test_without_pyyaml_the_install_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(FrontMatterError, match=r"requires PyYAML: pip install 'mcpd-server\[yaml\]'"):
        head("a: 1")
    assert split_page("---\na: 1\n---\nText") == ({}, "Text")


def test_where_the_text_begins() -> None:
    assert read_front_matter("no head\n---\n") == ({}, "no head\n---\n", 1)
    assert read_front_matter("---\na: 1\n---\nbody\n---\n") == ({"a": 1}, "body\n---\n", 4)
    assert read_front_matter('+++\na = 1\n[b]\nc = "d"\n+++\nbody') == ({"a": 1, "b": {"c": "d"}}, "body", 6)
    with pytest.raises(FrontMatterError, match="never ends"):
        read_front_matter("---\na: 1\n")
    with pytest.raises(FrontMatterError) as caught:
        read_front_matter("+++\na = 1\nb =\n+++\n")
    assert caught.value.line == 3


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found, _, line = read_front_matter(f"---\n{text}\n---\n")
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
