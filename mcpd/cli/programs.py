"""Targets that are programs: without a server to be picked up, they make one in their `main()` and run it there.

`mcpd serve` runs that, with the arguments that stand behind the target, and serves what calls `run()` in it. Loaded
only for targets that import another library, and for `mcpd check`.
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

from mcpd.cli.libraries import LIBRARIES
from mcpd.cli.user_code import Loading, guarded, is_server
from mcpd.client.targets.grammar import installed_commands
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.compat.program import Wanted
    from mcpd.server import Server


class Looker:
    """Serves nothing: what calls `run()` is kept for `mcpd check`, and its program ends there."""

    def __init__(self) -> None:
        self.has_served = False
        self.found: Server | None = None

    def run(self, server: Server, wanted: Wanted) -> None:
        """Keep it, and end the program."""
        self.has_served = True
        self.found = server
        raise _Found

    async def serve(self, server: Server, wanted: Wanted) -> None:
        """Keep it, and end the program."""
        self.run(server, wanted)

    def take_words(self) -> None:
        """They are arguments of the command here."""


class _Found(SystemExit):
    """Ends a program whose server was found."""


def look_into(server: Server) -> None:
    """Let a server of another library say what it offers: its lists are functions, and no entries of our own.

    Raises ConfigurationError if they fail: they are asked without a client, and without what the lifespan gives.
    """
    offered: Callable[[], Any] | None = getattr(server, "offered", None)
    if offered is None:
        return
    try:
        entries = asyncio.run(offered())
    except Exception as error:
        said = f"{type(error).__name__}: {printable(error)}"
        raise ConfigurationError(f"{server.name}: what it lists cannot be seen without serving it: {said}") from error
    server.replace("its own library", entries)


def is_program(module: ModuleType, loading: Loading) -> bool:
    """Whether a module may be a program that serves with another library, which it may import in `main()` only."""
    if loading.program is None:
        return False
    return loading.watch.has_seen or bool(module.__package__) or _names_library(module.__file__)


def program_of(module: ModuleType, place: str) -> tuple[Callable[[], Any], str] | None:
    """The program that a module is, and what it is called; None if it is none.

    That is its `main()`, the command that its distribution installs, or what `python -m` or `python FILE` runs.
    Raises ConfigurationError for several commands.
    """
    main = getattr(module, "main", None)
    if callable(main) and _needs_nothing(main):
        return main, "main"
    if not hasattr(module, "__path__"):
        is_file = os.path.isfile(place)
        return (lambda: runpy.run_path(place, run_name="__main__") and None, "__main__") if is_file else None
    command = find_command(module.__name__)
    if command is not None:
        return _function_of(command, place), command.attr
    name = f"{module.__name__}.__main__"
    if find_spec(name) is None:
        return None
    return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True) and None, "__main__"


def find_command(name: str) -> EntryPoint | None:
    """The installed command of that name, else that of the distribution or package of that name which serves.

    Raises ConfigurationError if several of them may.
    """
    found = installed_commands(name)
    if len(found) > 1:
        found = [each for each in found if _names_library(_file_of(each.module))] or found
    if len(found) > 1:
        names = ", ".join(sorted(each.name for each in found))
        raise ConfigurationError(f"{name} has several commands: {names}; name the one that serves")
    return found[0] if found else None


def run_command(command: EntryPoint, place: str, loading: Loading) -> Any:
    """Run an installed command: the server that it returns, None if it has served one. Raises ConfigurationError."""
    if loading.program is None:
        raise ConfigurationError(f"{place} is a program, which serves with its own library; leave out --no-compat")
    return run(_function_of(command, place), command.attr, place, loading)


def run(program: Callable[[], Any], name: str, place: str, loading: Loading) -> Any:
    """Run a program: the server that it returns, None if it has served one. Raises ConfigurationError."""
    if loading.program is not None:
        take_words = loading.program.take_words
        loading.watch.when_seen = take_words
        if loading.watch.has_seen:
            take_words()

    def to_its_end() -> Any:
        given = program()
        return asyncio.run(given) if inspect.iscoroutine(given) else given

    found = guarded(place, lambda: loading.to_its_end(to_its_end), name)
    if loading.has_served:
        return None
    if not is_server(found):
        raise ConfigurationError(f"{place}: {name}() ended, and neither served nor returned a server")
    return found


def _needs_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def _function_of(command: EntryPoint, place: str) -> Callable[[], Any]:
    found: Callable[[], Any] = guarded(place, command.load)
    return found


def _file_of(module: str) -> str | None:
    """The file of a module, found without importing it."""
    search: Sequence[str] | None = None
    spec = None
    for at in range(module.count(".") + 1):
        spec = PathFinder.find_spec(".".join(module.split(".")[: at + 1]), search)
        if spec is None:
            return None
        search = spec.submodule_search_locations
    return None if spec is None else spec.origin


def _names_library(path: str | None) -> bool:
    """Whether a file imports one of the libraries, wherever in it."""
    try:
        with open(path or "", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return False
    return re.search(rf"^\s*(?:from|import)\s+(?:{'|'.join(LIBRARIES)})\b", text, re.MULTILINE) is not None
