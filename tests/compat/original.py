"""Runs a server with the library that it was written for, over stdio: `original.py TARGET [ARGUMENT…]`.

TARGET is a file, a module, or module:object. A server object that can run itself is run; else the program is.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import runpy
import sys
from importlib import import_module
from typing import Any

# By name: which of the libraries is installed here is not the same everywhere.
KINDS = ("FastMCP", "MCPServer", "Server")


def server_in(names: dict[str, Any]) -> Any:
    """The server object among these names, if there is one."""
    for name in ("mcp", "server", "app", *names):
        found = names.get(name)
        if type(found).__name__ in KINDS and (hasattr(found, "tool") or hasattr(found, "middleware")):
            return found
    return None


def run(server: Any) -> None:
    """Serve it over stdio."""
    if hasattr(server, "tool"):
        server.run("stdio")
        return
    import anyio
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)


def main(target: str, *arguments: str) -> None:
    sys.argv = [target, *arguments]
    place, _, attribute = target.partition(":")
    if place.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        names = runpy.run_path(place)
        server = server_in(names)
    else:
        sys.path.insert(0, os.getcwd())
        names = vars(import_module(place))
        server = names[attribute] if attribute else server_in(names)
    if callable(server):
        server()
    elif server is not None:
        run(server)
    elif not place.endswith(".py") and callable(names.get("main")):
        names["main"]()
    elif place.endswith(".py"):
        runpy.run_path(place, run_name="__main__")
    elif importlib.util.find_spec(f"{place}.__main__"):
        runpy.run_module(place, run_name="__main__", alter_sys=True)
    else:
        commands = importlib.metadata.entry_points(group="console_scripts")
        next(each for each in commands if each.module.partition(".")[0] == place).load()()


if __name__ == "__main__":
    main(*sys.argv[1:])
