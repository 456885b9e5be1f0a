"""Which functions of a file are tools, and what `mcpd.tool` says more of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.folders import opened, problems
from support.wires import MODERN, memory_wire

# From Python 3.14 on annotations are evaluated when they are asked for, by us and not by the file.
UNEVALUATED = "function 'f': an annotation cannot be evaluated: " if sys.version_info >= (3, 14) else "TypeError: "

FILE = '''
import contextlib, functools, math
from dataclasses import dataclass
from json import dumps
from math import *
from _shared import imported
import mcpd
from mcpd import Context

@dataclass
class Point:
    x: int

class Calls:
    def __call__(self, a: int) -> int:
        return a

calls = Calls()
part = functools.partial(math.pow, 2)
short = lambda: 1

def third(a: int, ctx: Context) -> int:
    return a

def second() -> str:
    """No parameters."""
    return "second"

alias = second

def _private(a: int) -> int:
    return a

@functools.lru_cache
def cached(a: int) -> int:
    return a

@contextlib.contextmanager
def opened(a: int):
    yield a

@contextlib.asynccontextmanager
async def opened_later(a: int):
    yield a

def logged(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

@logged
def decorated(a: int) -> int:
    return a + 1

@mcpd.tool(title="First", name="first", annotations={"readOnlyHint": True}, tags={"x"})
def _first(a, b: int = 3):
    """Marked: whatever it is called."""
    return f"{a}{b}"

@mcpd.tool
async def marked(a: str) -> str:
    return a
'''


async def test_which_ones(tmp_path: Path) -> None:
    server = opened(tmp_path, {"tools/a.py": FILE, "tools/_shared.py": "def imported(a: int) -> int:\n    return a\n"})
    async with memory_wire(server, MODERN) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        assert list(tools) == ["third", "second", "cached", "decorated", "first", "marked"]
        assert (tools["first"]["title"], tools["first"]["annotations"]) == ("First", {"readOnlyHint": True})
        assert await wire.text("first", a="x") == "x3"
        assert await wire.text("decorated", a=1) == "2"
        assert await wire.text("cached", a=1) == "1"
        assert await wire.text("marked", a="m") == "m"
    assert [line.partition(" write")[0] for line in problems(server)] == [
        "tools/a.py, line 46: logged: function has no type, so it is not a tool;"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@mcpd.tool(titel='x')\ndef f(a: int) -> int:\n    return a\n", "line 2: tool: unknown option 'titel'; "),
        ("@mcpd.tool(name='a b')\ndef f(a: int) -> int:\n    return a\n", "line 2: tool name 'a b': use 1 to 128"),
        ("def f(a: 'Nowhere') -> int:\n    return a\n", "line 2: function 'f', parameter 'a': its annotation names"),
        (
            "def f(a: int, /) -> int:\n    return a\n",
            "line 2: function 'f', parameter 'a': arguments are passed by name",
        ),
        ("def f(*a: int) -> int:\n    return a\n", "line 2: function 'f', parameter 'a': arguments are passed by name"),
        ("def f(a: 1 + 'x') -> int:\n    return a\n", f"line 2: {UNEVALUATED}unsupported operand"),
    ],
)
def test_one_that_cannot_be_served_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    server = opened(
        tmp_path, {"tools/a.py": f"import mcpd\n{text}", "tools/b.py": "def fine() -> str:\n    return ''\n"}
    )
    (found,) = problems(server)
    assert found.startswith(f"tools/a.py, {said}")
    assert [entry.key for entry in server.catalog.tools] == ["fine"]


async def test_only_what_is_exported(tmp_path: Path) -> None:
    text = "__all__ = ['a']\ndef a() -> str:\n    return ''\ndef b() -> str:\n    return ''\n"
    server = opened(tmp_path, {"tools/a.py": text})
    assert [entry.key for entry in server.catalog.tools] == ["a"]


async def test_a_dependency_needs_no_type(tmp_path: Path) -> None:
    text = "from mcpd import Depends\ndef bed() -> str:\n    return 'north'\n"
    text += "def where(bed=Depends(bed)) -> str:\n    return bed\n"
    server = opened(tmp_path, {"tools/a.py": text})
    assert problems(server) == []
    async with memory_wire(server, MODERN) as wire:
        assert await wire.text("where") == "north"


@pytest.mark.parametrize(
    "docstring",
    [
        "Water it.\n\n    Args:\n        bed: Its name.\n",
        "Water it.\n\n    Parameters\n    ----------\n    bed : str\n        Its name.\n",
        "Water it.\n\n    :param bed: Its name.\n    :return: nothing\n",
    ],
    ids=["Google", "NumPy", "Sphinx"],
)
async def test_descriptions_by_the_docstring(tmp_path: Path, docstring: str) -> None:
    text = f'def water(bed: str) -> None:\n    """{docstring}    """\n'
    async with memory_wire(opened(tmp_path, {"tools/a.py": text}), MODERN) as wire:
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert tool["description"].startswith("Water it.")
        assert tool["inputSchema"]["properties"]["bed"]["description"] == "Its name."
