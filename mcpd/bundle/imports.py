"""What Python files import, read from their text: the modules beside them, and the packages that they need.

Nothing is run. A package is looked for among those that are installed here, which is where its distribution and version
are known.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable
from importlib.metadata import packages_distributions

_SUFFIX = ".py"


def imported_names(path: str) -> set[str]:
    """The full names of all modules that a file imports, anywhere in it; "" stands before those relative to it.

    A file that cannot be read or parsed imports nothing.
    """
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return set()

    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found.add(base)
            found |= {f"{base}{'' if base.endswith('.') else '.'}{alias.name}" for alias in node.names}

    return found


def local_files(path: str) -> list[str]:
    """A file and the modules in its folder that it imports, and those that they import; packages with all their files.

    Gives absolute paths; of a package the folder.
    """
    folder = os.path.dirname(path)
    found = {path}
    waiting = [path]
    while waiting:
        for name in imported_names(waiting.pop()):
            top = name.lstrip(".").partition(".")[0]
            for place in (os.path.join(folder, top + _SUFFIX), os.path.join(folder, top)):
                if not top or place in found:
                    continue
                if place.endswith(_SUFFIX) and os.path.isfile(place):
                    found.add(place)
                    waiting.append(place)
                elif not place.endswith(_SUFFIX) and _is_package(place):
                    found.add(place)
                    waiting += _python_files(place)

    return sorted(found)


def distributions_of(files: Iterable[str], local: Iterable[str] = ()) -> dict[str, list[str]]:
    """The packages that these files import, each with the distributions it is in; none for one that is not installed.

    Left out are Python's own, and `local`: the names of modules that are there beside them.
    """
    known = packages_distributions()
    ours = {*local, *sys.stdlib_module_names, "mcpd"}
    tops = {name.partition(".")[0] for file in files for name in imported_names(file) if not name.startswith(".")}
    return {top: sorted(set(known.get(top, ()))) for top in sorted(tops - ours - {""})}


def _is_package(folder: str) -> bool:
    """Whether a folder holds Python files, with or without an `__init__.py`."""
    try:
        return any(name.endswith(_SUFFIX) for name in os.listdir(folder))
    except OSError:
        return False


def _python_files(folder: str) -> list[str]:
    return [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names if name.endswith(_SUFFIX)]
