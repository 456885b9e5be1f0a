"""Runs a server with the MCP library that it was written for, over stdio: `own_library.py PATHS TARGET [ARGUMENT…]`.

`library` starts this file with the Python that has the library. mcpd need not be installed there, so nothing of mcpd is
imported. TARGET is a file, a module, `file.py:object` or `module:object`. A server object is run, otherwise a program:
`main()`, the command or the main module of a package, or the file itself. PATHS are folders of modules, as in PATH.

Text that the server prints goes to stderr. It serves on stdio, whichever transport it chooses.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import io
import os
import runpy
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any

# The classes whose `run` programs call, in every version of the libraries.
_CLASSES = {
    "fastmcp.server.server": "FastMCP",
    "mcp.server.fastmcp.server": "FastMCP",
    "mcp.server.mcpserver.server": "MCPServer",
}


class _Stdout(io.TextIOWrapper):
    """Writes text to stderr. The libraries send messages by `buffer` or `fileno`, which are the real stdout's."""

    buffer: Any = None

    def fileno(self) -> int:
        return int(self.buffer.fileno())


def _claim_stdout() -> None:
    wire = os.dup(1)
    os.dup2(2, 1)  # for child processes of the server
    sys.stdout = _Stdout(io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True)
    sys.stdout.buffer = io.BufferedWriter(io.FileIO(wire, "w"))


class _StdioOnly:
    """A finder that makes servers run on stdio. It waits for the import because servers set variables before it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        spec: Any = PathFinder.find_spec(name, path) if name in _CLASSES else None
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                for method in ("run_http_async", "run_sse_async", "run_streamable_http_async"):
                    setattr(getattr(module, _CLASSES[name]), method, _serve)

            spec.loader.exec_module = exec_module
        return spec


def _is_server(found: Any) -> bool:
    kinds = [kind for kind in type(found).__mro__ if kind.__name__ in ("FastMCP", "MCPServer", "Server")]
    return any(kind.__module__.partition(".")[0] in ("fastmcp", "mcp") for kind in kinds)


def _load(place: str) -> Any:
    if not place.endswith(".py"):
        return import_module(place)
    sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
    name = os.path.splitext(os.path.basename(place))[0]
    is_free = "." not in name and name not in sys.modules and name not in sys.stdlib_module_names
    spec: Any = importlib.util.spec_from_file_location(name if is_free else f"mcpd_{name}", place)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pick(module: Any, place: str) -> Any:
    servers = {name: value for name, value in vars(module).items() if _is_server(value)}
    name = next((name for name in ("server", "mcp", "app") if name in servers), "")
    if not name and len({id(value) for value in servers.values()}) > 1:
        sys.exit(f"{place}: its servers are {', '.join(servers)}; name one, for example {place}:{min(servers)}")
    return servers[name or min(servers)] if servers else _program(module, place)


def _program(module: Any, place: str) -> Any:
    main: Any = getattr(module, "main", None)
    try:
        inspect.signature(main).bind()
    except (TypeError, ValueError):  # it is missing, or has required parameters
        if place.endswith(".py"):
            return lambda: runpy.run_path(place, run_name="__main__") and None
        for command in entry_points(group="console_scripts"):
            if command.module.partition(".")[0] == place:
                return command.load()
        return lambda: runpy.run_module(f"{place}.__main__", run_name="__main__", alter_sys=True) and None
    return main


async def _serve(server: Any, *_: Any, **__: Any) -> None:
    if hasattr(server, "run_stdio_async"):
        has_banner = "show_banner" in inspect.signature(server.run_stdio_async).parameters
        await server.run_stdio_async(**{"show_banner": False} if has_banner else {})
        return
    async with import_module("mcp.server.stdio").stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main(paths: str, target: str, *arguments: str) -> None:
    """Run the server until its stdin ends."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.getcwd(), *(path for path in sys.path if path != here)]
    sys.path += [path for path in paths.split(os.pathsep) if path and path not in sys.path]
    sys.meta_path.insert(0, _StdioOnly())
    _claim_stdout()
    place, _, attribute = target.partition(":")
    sys.argv = [place, *arguments]
    module = _load(place)
    found = attrgetter(attribute)(module) if attribute else _pick(module, place)
    if not _is_server(found):
        found = found()
        if inspect.iscoroutine(found):
            found = asyncio.run(found)
    if _is_server(found):
        asyncio.run(_serve(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
