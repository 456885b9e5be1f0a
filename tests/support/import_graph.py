"""Which module of a package imports which, read from the source: at run time, wherever in a file, or for types only."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.source_code import parsed

__all__ = ["circles", "import_graph"]


def import_graph(package: Path, *, for_types: bool = False) -> dict[str, set[str]]:
    """Each module by its dotted name, with those that it imports, at its top or inside a function.

    `for_types` adds what is imported under `if TYPE_CHECKING:`. The top of the package is left out: it gives names
    on from everywhere, and nothing is loaded through it.
    """
    modules: dict[str, Path] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    del modules[package.name]
    return {
        name: {target for target, typed in _imports(name, path, modules) if for_types or not typed}
        for name, path in modules.items()
    }


def _imports(name: str, path: Path, modules: Mapping[str, Path]) -> Iterator[tuple[str, bool]]:
    """The modules of the package that a file imports, and whether that is for types only."""
    home = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    stack: list[tuple[ast.AST, bool]] = [(parsed(path), False)]
    while stack:
        node, typed = stack.pop()
        if isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            stack += [(child, True) for child in node.body] + [(child, typed) for child in node.orelse]
            continue
        stack += [(child, typed) for child in ast.iter_child_nodes(node)]
        wanted: list[str] = []
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = home[: len(home) - node.level + 1] if node.level else []
            source = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            wanted = [inner if (inner := f"{source}.{alias.name}") in modules else source for alias in node.names]
        for target in wanted:
            if target in modules and target != name:
                yield target, typed


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The modules that import each other, directly or by way of others: each circle sorted. (Tarjan's algorithm.)"""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        path.append(name)
        for target in sorted(graph[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in path:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            at = path.index(name)
            if len(path) - at > 1:
                found.append(sorted(path[at:]))
            del path[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return sorted(found)
