"""What is wrong with a TARGET that names no server, and what to write instead. Loaded on the way to an error only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from types import ModuleType

from .hints import LIBRARIES
from .user_errors import FORMS

__all__ = ["have", "no_file", "why_not"]


def why_not(target: str, place: str) -> str:
    """What is wrong with a target that is neither a Python file nor a module with an object."""
    if os.path.isdir(place):
        return f"{place} is a folder, which has no objects; write {place} alone, or name a file in it"
    if os.path.exists(place):
        return no_file(place)
    if "://" in target:
        return f"{target} is the address of a server that runs already; {FORMS}"
    if target in ("stdio", "ws", "http"):
        return f"{target}: no such file; for the transport write --{target}"

    if place.endswith(".py"):
        if place.startswith("~"):
            return f"{place}: no such file; only a shell knows ~: write {os.path.expanduser(place)}"
        folder = os.path.dirname(place)
        near = get_close_matches(os.path.basename(place), _python_files(folder), 1)
        if near:
            return f"{place}: no such file; did you mean {os.path.join(folder, near[0])}?"
        if os.path.isabs(place):
            return f"{place}: no such file"
        # A host starts its servers in a folder of its own.
        return f"{place}: no such file in {os.getcwd()}; write its whole path"

    if os.path.isfile(f"{place}.py"):
        return f"{target}: no such file; did you mean {place}.py?"
    if all(part.isidentifier() for part in place.split(".")):
        return f"{target}: no such file; for a module name the object too, as {target}:server"

    return f"{target}: no such file; {FORMS}"


def _python_files(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder or ".") if name.endswith(".py")]
    except OSError:
        return []


def no_file(path: str) -> str:
    """What is said of a file that Python does not load."""
    return f"{path} is no Python file; {FORMS}"


def have(module: ModuleType, servers: Iterable[str]) -> str:
    """What a module has instead of the one server that was looked for; `servers` are the names of all it has."""
    names = sorted(servers)
    if names:
        return f"the servers in it are {', '.join(names)}"
    for name, value in vars(module).items():
        library = LIBRARIES.get(type(value).__module__.partition(".")[0])
        if library is not None and hasattr(value, "run"):
            return (
                f"{name} is a server of {library} itself, which is not served: leave out --no-compat, "
                'or make one of ours with server = mcpd.Server("name")'
            )
    return 'there is no server in it; make one with server = mcpd.Server("name")'
