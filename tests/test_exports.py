"""Public names: each module lists its own (the linter has them sorted); the package's top is what it says."""

from __future__ import annotations

import ast
import importlib
import inspect
import pydoc
import re
import sys
import types
from pathlib import Path

import msgspec
import pytest
from support.public_api import FILE, public_api
from support.source_code import parsed

import mcpd
import mcpd.types
from mcpd.moved import MOVED, moved
from mcpd.protocol.types.interaction import (
    PromptReference,
    ResourceTemplateReference,
    ToolResultContent,
    ToolUseContent,
)

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = sorted((REPOSITORY / "mcpd").rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_each_module_has_a_docstring() -> None:
    docstring = re.compile(r'(#.*\n|\n)*r?"""[^"\s]|\s*$')
    assert [name_of(path) for path in FILES if not docstring.match(path.read_text(encoding="utf-8"))] == []


def test_each_name_that_a_module_lists_exists_once_and_has_a_docstring() -> None:
    """The public modules list their names; in all others a name is public if it has no underscore before it."""
    for path in FILES:
        if path.name == "__main__.py":
            continue
        module = importlib.import_module(name_of(path))
        names = getattr(module, "__all__", [])
        assert len(names) == len(set(names))
        for name in names:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                assert value.__doc__, f"{name_of(path)}.{name} is public and has no docstring"


def test_the_top_of_the_package_is_what_it_says() -> None:
    for name in mcpd.__all__:
        assert getattr(mcpd, name) is not None
    assert {"Context", "Server", "ToolError", "__version__"} <= set(mcpd.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mcpd.nothing  # type: ignore[attr-defined]


def test_the_names_at_the_top_are_the_same_for_people_and_for_type_checkers() -> None:
    """Loaded by attribute access, listed for `dir`, imported for type checkers: three lists that have to agree."""
    tree = parsed(Path(mcpd.__file__))
    guarded, lazy = [node for node in tree.body if isinstance(node, ast.If)]
    assert ast.unparse(guarded.test) == "TYPE_CHECKING"
    # To a type checker, a module with a visible `__getattr__` has every name there is.
    assert ast.unparse(lazy.test) == "not TYPE_CHECKING"
    assert not [node for node in tree.body if getattr(node, "name", "") == "__getattr__"]
    typed = {
        alias.asname: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert typed == mcpd._HOMES
    assert set(typed) | {"__version__"} == set(mcpd.__all__)
    assert set(mcpd.__all__) <= set(dir(mcpd))


NAMES = [name for name in mcpd.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", NAMES)
def test_help_and_signatures_of_every_public_name(name: str) -> None:
    value = getattr(mcpd, name)
    assert value.__doc__ if inspect.isclass(value) else True
    assert pydoc.render_doc(value)
    members = [getattr(value, member) for member in dir(value) if not member.startswith("_")]
    for one in [value, *members]:
        if isinstance(one, types.GenericAlias):
            continue  # the type of a function, which has no signature of its own
        if callable(one) and getattr(one, "__module__", None) is not None and not inspect.isbuiltin(one):
            assert str(inspect.signature(one))


def test_all_types_are_in_one_module() -> None:
    """What the structs are made of is left out, and so is what only versions before 2026-07-28 write."""
    internal = {"AnyValue", "MISSING", "META", "NO_JSON", "Wire"}
    internal |= {"LegacyTask", "LegacyCreateTaskResult", "ListTasksParams", "ListTasksResult", "TaskRequest"}
    structs = {
        name
        for path in FILES
        if path.parent == REPOSITORY / "mcpd" / "protocol" / "types"
        for name, value in vars(importlib.import_module(name_of(path))).items()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct
    }
    assert not {name for name in structs if not name.startswith("_")} - internal - set(vars(mcpd.types))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mcpd.types.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_old_names_of_modules_still_work(old: str, new: str) -> None:
    """With a warning, and as the same module: not one that is loaded a second time."""
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=re.escape(f"{old} is now {new}; the old name stops working")):
        module = importlib.import_module(old)
    assert module is importlib.import_module(new)


def test_a_module_of_a_package_that_moved_still_works() -> None:
    assert moved("mcpd.host" + ".view.state") == "mcpd.apps.host.view.state"
    assert moved("mcpd.errors") is None
    with pytest.warns(DeprecationWarning, match="mcpd.http"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("mcpd.http" + ".nothing")


def test_help_of_the_package() -> None:
    text = pydoc.render_doc(mcpd)
    assert "Server" in text
    assert "ToolError" in text


def test_what_client_code_needs_is_exported() -> None:
    """By the imports of the official SDK's client examples: content, results, what callbacks take and give, errors."""
    names = """
        TextContent ImageContent AudioContent EmbeddedResource ResourceLink CallToolResult ElicitResult ElicitFormParams
        ElicitUrlParams CreateMessageParams CreateMessageResult Root LogMessageParams TextResourceContents
        BlobResourceContents RemoteError
    """
    for name in names.split():
        assert inspect.isclass(getattr(mcpd, name)), name


def test_content_has_a_type_to_look_at() -> None:
    """As in every other SDK: `if block.type == "text"`. It is the class's, and not a byte more on the wire."""
    blocks = [
        mcpd.text("a"), mcpd.image(b"", "image/png"), mcpd.audio(b"", "audio/wav"), mcpd.embedded("a:b", "c"),
        mcpd.link("a:b", "c"), ToolUseContent(id="1", name="n", input={}),
        ToolResultContent(tool_use_id="1", content=[]), PromptReference(name="p"),
        ResourceTemplateReference(uri="a:{b}"),
    ]  # fmt: skip
    for block in blocks:
        assert msgspec.json.decode(msgspec.json.encode(block))["type"] == block.type
        assert "type" not in block.__struct_fields__
        with pytest.raises(AttributeError):
            block.type = "other"  # type: ignore[misc]


# --------------------------------------------------------------------------- what is public stays as it is


def test_the_public_names_and_signatures_are_those_in_the_file() -> None:
    """After a change that is meant: `python tests/support/public_api.py`, and the difference is there to be read."""
    assert public_api() == FILE.read_text(encoding="utf-8"), "python tests/support/public_api.py writes the file anew"


def test_the_file_has_what_it_says() -> None:
    text = FILE.read_text(encoding="utf-8")
    for line in (
        "class Server(",
        "class Client(ServerLink, ServerDetails, ToolCalls)\n",
        "class TestClient(Client)",
        "class Annotations(",
        "def text(",
    ):
        assert line in text
    assert set(re.findall(r"Unpack\[(\w+)\]", text)) <= set(re.findall(r"^class (\w+)", text, re.MULTILINE))
    # A signature that changes changes the text.
    assert "    async def call_tool(self, name: str, arguments: Mapping[str, Any] | Raw | None=None, *, " in text
    assert "def wait_closed" not in text
