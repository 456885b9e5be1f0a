"""Annotations that are evaluated when they are asked for: those of Python 3.14 on, and texts in every Python."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from mcpd import Server
from mcpd.client import Client
from mcpd.errors import RegistrationError
from mcpd.server.functions.annotations import written_annotations

IS_LATE = sys.version_info >= (3, 14)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An empty one, of which classes can be found."""
    made = ModuleType("late_annotations")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def run(module: ModuleType, text: str) -> None:
    """Run a file, the annotations of which may be evaluated late."""
    if not IS_LATE:
        text = "from __future__ import annotations\n" + text
    exec(compile(text, "late.py", "exec", dont_inherit=True), vars(module))


RECORDS = """
class Node:
    name: str
    below: Node | None

    def __init__(self, name, below=None):
        self.name, self.below = name, below

class Odd:
    number: int
    other: NotThere

    def __init__(self):
        self.number = 1

def node() -> Node:
    return Node("a", Node("b"))

def odd() -> Odd:
    return Odd()
"""


async def test_plain_classes_are_records_of_what_they_annotate(module: ModuleType) -> None:
    """One that names itself has a schema; one that names what is not there is sent as it is."""
    run(module, RECORDS)
    server = Server("late")
    server.tool(module.node)
    server.tool(module.odd)
    async with Client(server) as client:
        assert (await client.call_tool("node", {})).structured_content == {
            "name": "a",
            "below": {"name": "b", "below": None},
        }
        assert (await client.call_tool("odd", {})).structured_content == {"number": 1}


FAULTY = [
    ("async def tool(a: NotThere) -> str: ...", "function 'tool', parameter 'a': its annotation names 'NotThere'"),
    ("async def tool() -> NotThere: ...", "function 'tool', return annotation names 'NotThere'"),
    ("async def tool(a: NotThere, b: 1 + 'x') -> str: ...", "names 'NotThere', which is not defined there"),
    ("async def tool(a: 1 + 'x') -> str: ...", "function 'tool': an annotation cannot be evaluated: unsupported"),
    (
        "def number(a: NotThere) -> int: ...\nasync def tool(b: Annotated[int, Depends(number)]) -> str: ...",
        "dependency number, parameter 'a': its annotation names 'NotThere'",
    ),
    (
        "def number(a: 1 + 'x') -> int: ...\nasync def tool(b: Annotated[int, Depends(number)]) -> str: ...",
        "dependency number: an annotation cannot be evaluated: unsupported",
    ),
    (
        "@dataclass\nclass Odd:\n    a: NotThere\nasync def tool(a: Odd) -> str: ...",
        "parameter 'a': the name 'NotThere' in its definition is not defined",
    ),
]


@pytest.mark.parametrize(("text", "says"), FAULTY, ids=[text for text, _ in FAULTY])
def test_what_cannot_be_evaluated_is_named(module: ModuleType, text: str, says: str) -> None:
    run(module, f"from dataclasses import dataclass\nfrom typing import Annotated\nfrom mcpd import Depends\n{text}")
    with pytest.raises(RegistrationError) as caught:
        Server("late").tool(module.tool)
    assert says in str(caught.value)


@pytest.mark.parametrize("hint", ["NotThere", "list[NotThere]"])
def test_what_is_written_is_told_though_it_is_not_there(module: ModuleType, hint: str) -> None:
    run(module, f"class Base:\n    below: int\nclass Kind(Base):\n    a: int\n    b: {hint}\ndef f(a: {hint}): ...")
    found: Any = written_annotations(module.Kind)
    assert [*found] == ["a", "b"]
    assert [*written_annotations(module.f)] == ["a"]
    assert written_annotations(object) == {}


def test_annotations_that_fail_are_none_at_most(module: ModuleType) -> None:
    run(module, "class Kind:\n    a: int\n    b: 1 + 'x'")
    assert [*written_annotations(module.Kind)] == ([] if IS_LATE else ["a", "b"])
