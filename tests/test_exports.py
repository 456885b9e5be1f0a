"""Public names: each module lists its own (the linter has them sorted); the package's top is what it says."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import mcpd

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = sorted((REPOSITORY / "mcpd").rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_each_module_has_a_charter_and_lists_its_names(path: Path) -> None:
    """style.md 4 and 5: documented means public, and each module opens with what lives in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not tree.body:
        return  # an empty __init__.py only makes a folder a package
    assert ast.get_docstring(tree), "no docstring"
    if path.name == "__main__.py":
        return
    module = importlib.import_module(name_of(path))
    names = getattr(module, "__all__", None)
    if names is None:
        # A package that only says what its folder is for has no names of its own.
        assert all(isinstance(node, ast.Expr | ast.ImportFrom) for node in tree.body), "no __all__"
        return
    assert len(names) == len(set(names))
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__doc__, f"{name} is public and has no docstring"


def test_no_public_definition_is_left_out() -> None:
    """What has no underscore before its name is in `__all__`, or was meant to have one."""
    forgotten = []
    for path in FILES:
        if path.name in ("__init__.py", "__main__.py"):
            continue
        listed = importlib.import_module(name_of(path)).__all__
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_definition = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if is_definition and not node.name.startswith("_") and node.name not in listed:
                forgotten.append(f"{name_of(path)}.{node.name}")
    assert not forgotten, ", ".join(forgotten)


def test_the_top_of_the_package_is_what_it_says() -> None:
    for name in mcpd.__all__:
        assert getattr(mcpd, name) is not None
    assert {"Context", "Server", "ToolError", "__version__"} <= set(mcpd.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mcpd.nothing  # type: ignore[attr-defined]


def test_the_names_at_the_top_are_the_same_for_people_and_for_type_checkers() -> None:
    """Loaded by attribute access, listed for `dir`, imported for type checkers: three lists that have to agree."""
    tree = ast.parse(Path(mcpd.__file__).read_text(encoding="utf-8"))
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {
        alias.asname: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert typed == mcpd._HOMES
    assert set(typed) | {"__version__"} == set(mcpd.__all__)
    assert set(mcpd.__all__) <= set(dir(mcpd))
