"""Targets that are programs: their `main()` makes a server with another MCP library and runs it.

`mcpd serve` runs the program with the arguments after `--`, and serves the server whose `run()` it calls. This module
is loaded only for targets that import another library, and for `mcpd check`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import runpy
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from mcpd.client.targets.grammar import installed_commands
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from .loading import LIBRARIES, Loading, guarded, is_server

if TYPE_CHECKING:
    from mcpd.server import Server
    from mcpd.server.settings import Settings


class ServerCatcher:
    """Keeps the server whose `run()` a program calls instead of serving it, and ends the program there."""

    def __init__(self) -> None:
        self.has_served = False
        self.found: Server | None = None

    def run(self, server: Server, settings: Settings) -> None:
        """Keep the server and end the program."""
        self.has_served = True
        self.found = server
        raise SystemExit

    async def serve(self, server: Server, settings: Settings) -> None:
        self.run(server, settings)

    def take_words(self) -> None:
        """Do nothing: the words were passed to the program already."""


def list_offers(server: Server) -> None:
    """Let a server of another library list its tools, resources and prompts, which its own functions return.

    Mounted servers are started for that. Raises ConfigurationError if a list cannot be read.
    """
    if "mcpd/mounts" in server.extensions:
        from mcpd.sources.mounts.mounted import mounts_of

        asyncio.run(mounts_of(server).list_once())
    # These functions run without a client and without the lifespan.
    find_entries: Callable[[], Any] | None = getattr(server, "find_entries", None)
    if find_entries is None:
        return
    try:
        entries = asyncio.run(find_entries())
    except Exception as error:
        text = f"{type(error).__name__}: {printable(error)}"
        raise ConfigurationError(f"{server.name}: its lists cannot be read without serving it: {text}") from error
    server.replace("its own library", entries)


def is_program(module: ModuleType, loading: Loading) -> bool:
    """Whether a module may be a program for another library, which it may import in `main()` only."""
    if loading.loaded_by is None:
        return False
    return loading.watch.has_seen or bool(module.__package__) or _names_library(module.__file__)


def program_of(module: ModuleType, place: str) -> tuple[Callable[[], Any], str] | None:
    """The function that runs a module as a program, and its name; None if it is not a program.

    This is `main()`, the command that the distribution installs, or the code that `python -m` or `python FILE` runs.
    Raises ConfigurationError if there are several commands.
    """
    main = getattr(module, "main", None)
    if callable(main) and _needs_nothing(main):
        return main, "main"
    if not hasattr(module, "__path__"):
        is_file = os.path.isfile(place)
        return (lambda: runpy.run_path(place, run_name="__main__") and None, "__main__") if is_file else None
    command = find_command(module.__name__)
    if command is not None:
        return guarded(place, command.load), command.attr
    name = f"{module.__name__}.__main__"
    if find_spec(name) is None:
        return None
    return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True) and None, "__main__"


def find_command(name: str) -> EntryPoint | None:
    """The installed command of that name, otherwise the command of the distribution or package of that name.

    Raises ConfigurationError if there are several.
    """
    found = installed_commands(name)
    if len(found) > 1:
        found = [each for each in found if _names_library(file_of(each.module))] or found
    if len(found) > 1:
        names = ", ".join(sorted(each.name for each in found))
        raise ConfigurationError(f"{name} has several commands: {names}; name one of them")
    return found[0] if found else None


def run_command(command: EntryPoint, place: str, loading: Loading) -> Any:
    """Run an installed command; returns its server, None if it has served. Raises ConfigurationError."""
    if loading.loaded_by is None:
        raise ConfigurationError(f"{place} is a program that serves with its own library; leave out --no-compat")
    return run(guarded(place, command.load), command.attr, place, loading)


def run(program: Callable[[], Any], name: str, place: str, loading: Loading) -> Any:
    """Run a program; returns its server, None if it has served. Raises ConfigurationError."""
    if loading.loaded_by is not None:
        take_words = loading.loaded_by.take_words
        loading.watch.when_seen = take_words
        if loading.watch.has_seen:
            take_words()

    def run_program() -> Any:
        result = program()
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    found = guarded(place, lambda: loading.run(run_program), name)
    if loading.has_served:
        return None
    if not is_server(found):
        raise ConfigurationError(f"{place}: {name}() has neither served nor returned a server")
    return found


def _needs_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def file_of(module: str, search: Sequence[str] | None = None) -> str | None:
    """The file of a module, which is not imported; None if `search` (by default `sys.path`) has no such module."""
    spec = None
    for at in range(module.count(".") + 1):
        spec = PathFinder.find_spec(".".join(module.split(".")[: at + 1]), search)
        if spec is None:
            return None
        search = spec.submodule_search_locations
    return None if spec is None else spec.origin


def _names_library(path: str | None) -> bool:
    try:
        with open(path or "", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return False
    return re.search(rf"^\s*(?:from|import)\s+(?:{'|'.join(LIBRARIES)})\b", text, re.MULTILINE) is not None
