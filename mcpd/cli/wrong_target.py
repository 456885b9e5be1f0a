"""What is wrong with a TARGET that names no server, and what to write instead. Loaded on the way to an error only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from inspect import isfunction
from types import ModuleType

from mcpd.cli.hints import LIBRARIES
from mcpd.client.targets.grammar import UnknownTarget, install_hint, near_target


def why_not(target: str, place: str, attribute: str) -> UnknownTarget:
    """What is wrong with a target that is neither a Python file nor a module with an object."""
    return UnknownTarget(_why_not(target, place, attribute))


def _why_not(target: str, place: str, attribute: str) -> str:
    if os.path.isdir(place):
        return f"{place} is a folder, which has no objects; write {place} alone, or name a file in it"
    if os.path.exists(place):
        return no_file(place)
    if "://" in target:
        return f"{target} is the address of a server that runs already; name a file or a folder to serve"
    if target in ("stdio", "ws", "http"):
        return f"{target}: no such file; for the transport write --{target}"
    if place.endswith(".py") and place.startswith("~"):
        return f"{place}: no such file; only a shell knows ~: write {os.path.expanduser(place)}"
    if not os.path.dirname(place) and shutil.which(place):
        return (
            f"{place} is a command, and mcpd serve does not serve commands yet, except those of Python packages "
            f"installed beside mcpd; mcpd list -- {place} … and mcpd install HOST -- {place} … take any command"
        )
    near = near_target(place, attribute)
    if near:
        return f"{place if place.endswith('.py') else target}: no such file{near}"
    if place.endswith(".py"):
        # A host starts its servers in a folder of its own.
        return f"{place}: no such file" + ("" if os.path.isabs(place) else f" in {os.getcwd()}; write its whole path")
    if not attribute and "." in place and all(part.isidentifier() for part in place.split(".")):
        return f"{target}: no such file; for a module name the object too, as {target}:server"
    return f"{target}: no file, folder or module has this name{install_hint(target)}"


def no_file(path: str) -> str:
    """What is said of a file that Python does not load."""
    return f"{path} is not a Python file; name a file that ends with .py, or a folder"


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
    if isfunction(getattr(module, "main", None)):
        return "there is no server in it, only main(); let main() return the server, and write :main after the name"
    return 'there is no server in it; make one with server = mcpd.Server("name")'
