"""Definitions where they are used."""

from __future__ import annotations

from typing import Any

from mcpd.protocol.schemas import subschemas
from mcpd.server.functions.plain_schema import MAX_NODES, inlined


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def record(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


def size(node: Any) -> int:
    return 1 + sum(map(size, subschemas(node)))


def test_what_stands_beside_a_reference_comes_first() -> None:
    schema = inlined(record(a={**ref("A"), "description": "mine"}), {"A": {"type": "string", "description": "its"}})
    assert schema == record(a={"type": "string", "description": "mine"})


def test_what_contains_itself_stays() -> None:
    definitions = {"Tree": record(leaf=ref("Leaf"), trees={"type": "array", "items": ref("Tree")}), "Leaf": record()}
    schema = inlined(record(a=ref("Tree"), b=ref("Leaf")), definitions)
    tree = record(leaf=record(), trees={"type": "array", "items": ref("Tree")})
    assert schema == {**record(a=ref("Tree"), b=record()), "$defs": {"Tree": tree}}


def test_of_two_that_contain_each_other_one_stays() -> None:
    schema = inlined(record(a=ref("A")), {"A": record(b=ref("B")), "B": record(a=ref("A"))})
    assert schema == {**record(a=ref("A")), "$defs": {"A": record(b=record(a=ref("A")))}}


def test_each_stands_after_those_that_it_needs() -> None:
    definitions = {
        "A": record(a=ref("A"), b=ref("B")),
        "B": record(b=ref("B"), c=ref("C")),
        "C": record(c=ref("C")),
    }
    assert list(inlined(record(a=ref("A")), definitions)["$defs"]) == ["C", "B", "A"]


def test_names_are_plain_words() -> None:
    definitions = {"a.b-A[int]": record(a=ref("a.b-A[int]")), "a_b_A_int": record(a=ref("a_b_A_int"))}
    schema = inlined(record(a=ref("a.b-A[int]"), b=ref("a_b_A_int")), definitions)
    assert schema["$defs"] == {"a_b_A_int": record(a=ref("a_b_A_int")), "a_b_A_int_2": record(a=ref("a_b_A_int_2"))}


def test_it_does_not_grow_beyond_measure() -> None:
    """Thirty levels, each with two of the next: a billion parts if each stood where it is used."""
    definitions = {f"L{level}": record(a=ref(f"L{level + 1}"), b=ref(f"L{level + 1}")) for level in range(30)}
    definitions["L30"] = record(end={"type": "string"})
    schema = inlined(record(a=ref("L0")), definitions)
    assert size(schema) < MAX_NODES
    assert "L0" not in schema["$defs"]
    names = [int(name[1:]) for name in schema["$defs"]]
    assert len(names) > 5
    assert names == sorted(names, reverse=True)


def test_what_is_no_schema_is_left_alone() -> None:
    root = {"default": ref("A"), "x-own": {"items": ref("A")}, "enum": [ref("A")]}
    assert inlined(root, {"A": record()}) == root
