"""Targets that are programs: without a server to be picked up, they make one in their `main()` and run it there.

`mcpd serve` runs that, with the arguments that stand behind the target, and serves what calls `run()` in it. Loaded
only for targets that import another library, and for `mcpd check`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import runpy
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError
from ..printable import printable
from .user_code import Loading, guarded

if TYPE_CHECKING:
    from ..compat.program import Wanted
    from ..server import Server

__all__ = ["Looker", "call", "look_into", "run_main"]


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


def call(function: Callable[..., Any], place: str, loading: Loading) -> Any:
    """What a function of a target gives, which may be one that serves, and a coroutine function."""
    _say_arguments(place, loading)

    def run() -> Any:
        given = function()
        return asyncio.run(given) if inspect.iscoroutine(given) else given

    return loading.to_its_end(run)


def run_main(module: ModuleType, place: str, loading: Loading) -> bool:
    """Run the program that a module is; False if it is none, or one that serves nothing.

    That is its `main()`, the command that its distribution installs, or what `python -m` or `python FILE` runs.
    """
    main = getattr(module, "main", None)
    if callable(main) and _needs_nothing(main):
        guarded(place, lambda: call(main, place, loading), "main")
    elif hasattr(module, "__path__"):
        command = _command_of(module.__name__)
        if command is not None:
            guarded(place, lambda: call(command, place, loading), "main")
        else:
            name = f"{module.__name__}.__main__"
            if find_spec(name) is None:
                return False
            as_main: Callable[[], Any] = lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)  # noqa: E731
            guarded(place, lambda: call(as_main, place, loading), "__main__")
    elif os.path.isfile(place):
        guarded(place, lambda: call(lambda: runpy.run_path(place, run_name="__main__"), place, loading), "__main__")

    return loading.has_served


def _needs_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True


def _command_of(package: str) -> Callable[[], Any] | None:
    """The function behind a command that comes with a package."""
    from importlib.metadata import entry_points

    for command in entry_points(group="console_scripts"):
        if command.module.partition(".")[0] == package.partition(".")[0]:
            try:
                found: Callable[[], Any] = command.load()
            except AttributeError as error:
                raise ConfigurationError(f"{package}: its command {command.name} cannot be loaded: {error}") from error
            return found
    return None


def _say_arguments(place: str, loading: Loading) -> None:
    if loading.program is not None:
        loading.program.take_words()
    loading.say_arguments(place)
