"""The public names with their signatures, as text: `python tests/support/public_api.py` writes tests/public_api.txt.

Read from the source, as it is written there, so that it is the same on every Python.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script it is not among the tests' packages

from support.source_code import parsed

MODULES = (
    "mcpd",
    "mcpd.sync",
    "mcpd.client.blocking",
    "mcpd.client.tool_function",
    "mcpd.testing",
    "mcpd.types",
)
OPTIONS = (
    "mcpd.server.registry.options:Described",
    "mcpd.server.registry.options:DescribedPrompt",
    "mcpd.server.registry.options:DescribedResource",
    "mcpd.server.registry.options:DescribedTool",
    "mcpd.server.extensions.options:AppOptions",
    "mcpd.server.extensions.options:AppToolOptions",
    "mcpd.server.extensions.options:AppsServerOptions",
    "mcpd.server.extensions.ui.view:ViewOptions",
    "mcpd.server.extensions.ui.view:TableOptions",
    "mcpd.server.extensions.ui.view:ChartOptions",
    "mcpd.server.extensions.ui.view:MarkdownOptions",
    "mcpd.server.extensions.ui.view:ImageOptions",
    "mcpd.server.extensions.ui.view:FormOptions",
    "mcpd.server.extensions.options:BuiltInOptions",
    "mcpd.server.extensions.options:BuiltInServeOptions",
    "mcpd.server.extensions.options:BuiltInToolOptions",
    "mcpd.server.options:ToolOptions",
    "mcpd.server.options:EmitOptions",
    "mcpd.server.options:EventOptions",
    "mcpd.server.options:MountOptions",
    "mcpd.server.options:RunOptions",
    "mcpd.server.options:OpenApiOptions",
    "mcpd.server.context.questions:SamplingOptions",
)
TESTS = Path(__file__).resolve().parent.parent
FILE = TESTS / "public_api.txt"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


_UNSEEN = ("overload", "collects")
"""Decorators that leave a signature as it is."""


def public_api() -> str:
    """All of it, a line for each name, field, method and overload."""
    lines: list[str] = []
    seen: dict[int, str] = {}
    for name_of_module in MODULES:
        module = importlib.import_module(name_of_module)
        lines.append(f"# {name_of_module}")
        for name in _public(module):
            value = getattr(module, name)
            if id(value) in seen:
                lines.append(f"{name}: see {seen[id(value)]}")
                continue
            if inspect.isclass(value) or inspect.isfunction(value):
                seen[id(value)] = f"{name_of_module}.{name}"
            lines.extend(_describe(name, value))
        lines.append("")
    lines.append("# what **options may be")
    for place in OPTIONS:
        home, _, name = place.partition(":")
        lines.extend(_describe(name, getattr(importlib.import_module(home), name)))
    return "\n".join(lines) + "\n"


def _public(module: ModuleType) -> list[str]:
    listed = getattr(module, "__all__", None)
    return (
        sorted(name for name in vars(module) if name[0] not in "_@" and name != "annotations")
        if listed is None
        else listed
    )


def _describe(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value) and (node := _node(value)) is not None:
        yield f"class {name}({', '.join(map(ast.unparse, node.bases))})".replace("()", "")
        for line in _members(value):
            yield f"    {line}"
    elif inspect.isfunction(value):
        yield from _signatures([node for node in _body(value) if getattr(node, "name", "") == value.__name__])
    else:
        yield _assignment(name, value)


def _assignment(name: str, value: Any) -> str:
    """The line that makes a constant or an alias, in the module that does; the version is another one each time."""
    for home, module in sorted(sys.modules.items()):
        if home.startswith("mcpd.") and module.__dict__.get(name) is value and module.__file__:
            for node in _module(module.__file__).body:
                target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
                if isinstance(target, ast.Name) and target.id == name:
                    return ast.unparse(node)
    return f"{name}: {type(value).__name__}"


def _body(value: Any) -> list[ast.stmt]:
    return _module(inspect.getsourcefile(inspect.unwrap(value)) or "").body


@lru_cache
def _module(path: str) -> ast.Module:
    return parsed(Path(path))


def _node(cls: type) -> ast.ClassDef | None:
    """None for a type that was made by a call."""
    found = [node for node in _flat(_body(cls)) if isinstance(node, ast.ClassDef) and node.name == cls.__name__]
    return found[0] if found else None


def _members(cls: type) -> list[str]:
    """What the class has and what its bases have that are not public themselves: fields in order, methods by name."""
    fields: dict[str, list[str]] = {}
    methods: dict[str, list[str]] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] == "mcpd" and (base is cls or not _is_public(base)):
            node = _node(base)
            assert node is not None
            own_fields, own_methods = _own_members(node)
            fields.update(own_fields)
            methods.update(own_methods | _derived(base))
    return [line for lines in [*fields.values(), *(methods[name] for name in sorted(methods))] for line in lines]


def _derived(cls: type) -> dict[str, list[str]]:
    """The methods that blocking clients derive from awaited ones: with the signatures of these."""
    found = {}
    for name, value in vars(cls).items():
        source = getattr(value, "__wrapped__", None)
        if inspect.isfunction(source) and source.__module__.startswith("mcpd.client."):
            owner, _, method = source.__qualname__.rpartition(".")
            node = _node(getattr(sys.modules[source.__module__], owner))
            assert node is not None
            found[name] = [line.removeprefix("async ") for line in _own_members(node)[1][method]]
    return found


def _is_public(cls: type) -> bool:
    modules = (importlib.import_module(name) for name in MODULES)
    return any(cls.__name__ in _public(module) and getattr(module, cls.__name__) is cls for module in modules)


def _own_members(node: ast.ClassDef) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    fields: dict[str, list[str]] = {}
    functions: dict[str, list[ast.stmt]] = {}
    for statement in _flat(node.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if not statement.target.id.startswith("_"):
                fields[statement.target.id] = [ast.unparse(statement)]
        elif isinstance(statement, _Function) and (
            not statement.name.startswith("_") or statement.name in ("__init__", "__call__", "__aenter__")
        ):
            functions.setdefault(statement.name, []).append(statement)
    return fields, {name: list(_signatures(nodes)) for name, nodes in functions.items()}


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Also what is said to type checkers only."""
    for statement in body:
        if isinstance(statement, ast.If):
            if ast.unparse(statement.test) == "TYPE_CHECKING":
                yield from statement.body
        else:
            yield statement


def _signatures(nodes: list[ast.stmt]) -> Iterator[str]:
    functions = [node for node in nodes if isinstance(node, _Function)]
    overloads = [node for node in functions if "overload" in map(ast.unparse, node.decorator_list)]
    for node in overloads or functions:
        marks = "".join(f"@{ast.unparse(mark)} " for mark in node.decorator_list if ast.unparse(mark) not in _UNSEEN)
        kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
        yield f"{kind} {node.name}({ast.unparse(node.args)}){returns}{' ' * bool(marks)}{marks}".rstrip()


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS.parent))
    FILE.write_text(public_api(), encoding="utf-8")
