"""What changed between two states of a server, in words, and what of it breaks callers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, strategies as st

from mcpd import Server, ToolAnnotations
from mcpd.errors import ConfigurationError
from mcpd.sources.demo import make_server
from mcpd.testing.approval import check_lock, compare, offerings, write_lock
from mcpd.testing.schema_changes import compare_schemas

INT, TEXT, NUMBER, NULL = ({"type": kind} for kind in ("integer", "string", "number", "null"))


def members(required: tuple[str, ...] = (), /, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


CASES: list[tuple[Any, Any, list[str], list[str]]] = [
    # old, new, what breaks callers where it is arguments, and where it is results; `-` is a change that breaks nobody
    (members(b=INT), members(("b",), b=INT), ["argument b is now required"], ["- result b is always there now"]),
    (members(("b",), b=INT), members(b=INT), ["- argument b is no longer required"], ["result b may be missing now"]),
    (members(b=INT), members(), ["argument b was removed"], ["result b was removed"]),
    (members(), members(b=INT), ["- argument b is new"], ["- result b is new"]),
    (members(), members(("b",), b=INT), ["argument b is new and required"], ["- result b is new"]),
    (members(b=INT), members(b=TEXT), ["argument b was integer, is string now"],
     ["result b was integer, is string now"]),
    (members(b=INT), members(b=NUMBER), ["- argument b was integer, is number now"],
     ["result b was integer, is number now"]),
    (members(b=INT), members(b={"anyOf": [INT, NULL]}), ["- argument b may be null too"], ["result b may be null too"]),
    (members(b={"type": ["integer", "null"]}), members(b=INT), ["argument b may no longer be null"],
     ["- result b may no longer be null"]),
    (members(b={"type": ["integer", "null"]}), members(b={"anyOf": [NULL, INT]}), [], []),
    (members(b={"enum": ["x", "y"]}), members(b={"enum": ["y", "z"]}),
     ['argument b may no longer be "x"', '- argument b may be "z" too'],
     ['- result b may no longer be "x"', 'result b may be "z" too']),
    (members(b=TEXT), members(b={**TEXT, "enum": ["x"]}), ['argument b may only be "x" now'],
     ['- result b may only be "x" now']),
    (members(b={**INT, "minimum": 1}), members(b={**INT, "minimum": 5}), ["minimum of argument b was 1, is 5 now"],
     ["- minimum of result b was 1, is 5 now"]),
    (members(b={**INT, "maximum": 5}), members(b={**INT, "maximum": 9}), ["- maximum of argument b was 5, is 9 now"],
     ["maximum of result b was 5, is 9 now"]),
    (members(b=TEXT), members(b={**TEXT, "pattern": "^a"}), ['pattern of argument b is "^a" now'],
     ['- pattern of result b is "^a" now']),
    (members(b=TEXT), members(b={**TEXT, "description": "B"}), ["- the description of argument b changed"],
     ["- the description of result b changed"]),
    (members(b={**INT, "default": 1}), members(b={**INT, "default": 2}), ["- the default of argument b is 2 now"],
     ["- the default of result b is 2 now"]),
    (members(b={"type": "array", "items": members(c=INT)}), members(b={"type": "array", "items": members(c=TEXT)}),
     ["argument b[].c was integer, is string now"], ["result b[].c was integer, is string now"]),
    ({**members(), "additionalProperties": False}, members(), ["- the arguments may have other members too"],
     ["the result may have other members too"]),
    ({"type": "object", "additionalProperties": INT}, {"type": "object", "additionalProperties": TEXT},
     ["argument * was integer, is string now"], ["result * was integer, is string now"]),
    ({"$ref": "#/$defs/A", "$defs": {"A": members(c=INT)}},
     {"$ref": "#/$defs/B", "$defs": {"B": members(("c",), c=INT)}},
     ["argument c is now required"], ["- result c is always there now"]),
    ({"prefixItems": [INT]}, {"prefixItems": [TEXT, INT]},
     ["the arguments had 1 places, has 2 now", "argument [0] was integer, is string now"],
     ["the result had 1 places, has 2 now", "result [0] was integer, is string now"]),
    (members(b={"not": INT}), members(b={"not": TEXT}),
     ['not of argument b was {"type":"integer"}, is {"type":"string"} now'],
     ['not of result b was {"type":"integer"}, is {"type":"string"} now']),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "of_input", "of_output"), CASES)
def test_each_change_of_a_schema_is_said(old: Any, new: Any, of_input: list[str], of_output: list[str]) -> None:
    for is_input, wanted in ((True, of_input), (False, of_output)):
        found = compare_schemas(old, new, is_input=is_input)
        assert [text if is_breaking else f"- {text}" for text, is_breaking in found] == wanted
    assert compare_schemas(old, old, is_input=True) == compare_schemas(new, new, is_input=False) == []


def test_a_reference_with_words_beside_it_ends_too() -> None:
    def tree(kind: Any) -> Any:
        again = {"$ref": "#/$defs/Node", "description": "again"}
        return {
            "$ref": "#/$defs/Node",
            "$defs": {"Node": members(value=kind, left=again, right={"anyOf": [again, NULL]})},
        }

    assert compare_schemas(tree(INT), tree(INT), is_input=True) == []
    assert ("argument value was integer, is string now", True) in compare_schemas(tree(INT), tree(TEXT), is_input=True)


def test_schemas_that_hold_themselves_are_compared_to_their_end() -> None:
    def tree(kind: Any) -> Any:
        node = members(("value",), value=kind, children={"type": "array", "items": {"$ref": "#/$defs/Node"}})
        return {"$ref": "#/$defs/Node", "$defs": {"Node": node}}

    assert compare_schemas(tree(INT), tree(INT), is_input=True) == []
    assert compare_schemas(tree(INT), tree(TEXT), is_input=True) == [
        ("argument value was integer, is string now", True)
    ]
    assert compare_schemas({"$ref": "#"}, {"$ref": "#/none"}, is_input=True) == []


DOUBLED = {f"at{n}": {"anyOf": [{"$ref": f"#/$defs/at{n + 1}"}] * 2} for n in range(60)}


@pytest.mark.parametrize(
    "odd",
    [
        {"anyOf": [{"$ref": "#"}]},
        {"$ref": "#/$defs/at0", "$defs": DOUBLED},
        {"type": "object", "required": [{}]},
        {"type": "object", "required": 5},
        {"type": "object", "properties": 5},
        members(a={"type": "integer", "minimum": "x"}),
        members(a={"type": "array", "prefixItems": 5}),
    ],
    ids=range(7),
)
@pytest.mark.parametrize("is_input", [True, False])
def test_a_schema_that_cannot_be_followed_is_said_to_be_another_one(odd: Any, is_input: bool) -> None:
    plain = members(a={"type": "integer", "minimum": 1}) if "minimum" in str(odd) else members(a={"type": "array"})
    subject = "the arguments" if is_input else "the result"
    said = [(f"the schema of {subject} changed, and one of the two is too complex to compare", True)]
    assert compare_schemas(odd, plain, is_input=is_input) == said
    assert compare_schemas(plain, odd, is_input=is_input) == said
    assert compare_schemas(odd, json.loads(json.dumps(odd)), is_input=is_input) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
KEYWORDS = ("type", "properties", "items", "enum", "anyOf", "additionalProperties", "required", "default", "minimum")
schemas = st.recursive(
    st.sampled_from([INT, TEXT, NUMBER, NULL, {}, True, False]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", ["string", "null"]]),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), unique=True),
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "enum": st.lists(json_values, min_size=1, max_size=3),
            "additionalProperties": inner,
            "default": json_values,
        },
    ),
    max_leaves=8,
)


@given(schemas, schemas)
def test_no_change_is_no_change_and_what_breaks_none_in_one_way_is_found_in_both(old: Any, new: Any) -> None:
    assert compare_schemas(old, json.loads(json.dumps(old)), is_input=True) == []
    one, other = (compare_schemas(old, new, is_input=is_input) for is_input in (True, False))
    assert len(one) == len(other)


# ------------------------------------------------------------------------------------- of a server


@dataclass
class Bed:
    name: str
    size: int = 3


@dataclass
class WiderBed:
    name: str
    size: int | None = 3
    more: list[str] = field(default_factory=list)


def before(server: Server) -> None:
    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int = 2, kind: Literal["x", "y"] = "x") -> Bed:
        """Add."""
        return Bed("a")

    @server.tool
    def old() -> str: ...

    @server.prompt
    def greet(name: str) -> str: ...

    @server.resource("text://a", mime_type="text/plain")
    def text() -> str: ...


def after(server: Server) -> None:
    @server.tool(annotations=ToolAnnotations(read_only_hint=False))
    def add(a: float, b: int, kind: Literal["y"] = "y", c: Annotated[int, msgspec.Meta(ge=1)] = 1) -> WiderBed:
        """Adds."""
        return WiderBed("a")

    @server.tool
    def new() -> str: ...

    @server.prompt
    def greet(name: str, title: str) -> str: ...

    @server.resource("text://a", mime_type="text/markdown")
    def text() -> str: ...


def made(register: Callable[[Server], None], **options: Any) -> Server:
    server = Server("garden", **options)
    register(server)
    return server


BREAKING = {
    "tool add: argument b is now required",
    'tool add: argument kind may no longer be "x"',
    "tool add: result size may be null too",
    "tool old: removed",
    "prompt greet: argument title is new and required",
    'resource text://a: mimeType was "text/plain", is "text/markdown" now',
}
HARMLESS = {
    "server: instructions changed",
    "tool add: argument a was integer, is number now",
    "tool add: the default of argument b was removed",
    'tool add: the default of argument kind is "y" now',
    "tool add: argument c is new",
    "tool add: result more is new",
    "tool add: description changed",
    "tool add: annotations.readOnlyHint was true, is false now",
    "tool new: added",
}


def test_what_changed_in_a_server_is_said_in_words() -> None:
    old, new = made(before, instructions="Dig."), made(after, instructions="Plant.")
    changes = compare(offerings(old), offerings(new))
    assert {str(change) for change in changes if change.is_breaking} == BREAKING
    assert {str(change) for change in changes if not change.is_breaking} == HARMLESS
    assert [change.is_breaking for change in changes] == [True] * len(BREAKING) + [False] * len(HARMLESS)


def test_a_file_is_written_read_and_stable(tmp_path: Path) -> None:
    path = tmp_path / "garden.lock.json"
    assert check_lock(made(before), path) is None
    assert write_lock(made(before, version="1.0"), path) == []
    text = path.read_text()
    assert check_lock(made(before, version="2.0"), path) == []
    write_lock(made(before, version="2.0"), path)
    assert path.read_text() == text
    assert list(json.loads(text)["tools"]) == ["add", "old"]
    assert text.endswith("}\n")
    assert "version" not in json.loads(text)["server"]
    changes = check_lock(made(after), path)
    assert changes is not None
    assert {str(change) for change in changes if change.is_breaking} == BREAKING
    assert write_lock(made(after), path) == changes
    assert check_lock(made(after), path) == []


def test_the_starter_is_what_it_was_when_it_is_made_again(tmp_path: Path) -> None:
    write_lock(make_server(), tmp_path / "a.json")
    assert check_lock(make_server(), tmp_path / "a.json") == []


def test_a_device_without_an_end_is_no_approval_file() -> None:
    with pytest.raises(ConfigurationError, match="/dev/zero is not an approval file of mcpd"):
        check_lock(make_server(), "/dev/zero")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not an approval file of mcpd; write it again"),
        ("[]", "is not an approval file of mcpd; write it again"),
        ('{"mcpdLock": 1, "server": 5}', "is not an approval file of mcpd; write it again"),
        ('{"mcpdLock": 2}', "was written by a newer mcpd; write it again"),
    ],
)
def test_what_is_no_such_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        check_lock(made(before), path)
    write_lock(made(before), path)
    assert check_lock(made(before), path) == []
    with pytest.raises(ConfigurationError, match="cannot be written: "):
        write_lock(made(before), tmp_path / "no" / "such")
    with pytest.raises(ConfigurationError, match="cannot be read: "):
        check_lock(made(before), tmp_path)
