"""Runs code of the user, which is a target; what it raises becomes one line (`user_errors`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from mcpd.errors import ConfigurationError
from mcpd.server import Server

if TYPE_CHECKING:
    from mcpd.cli.libraries import Watch
    from mcpd.cli.loaded_by import LoadedBy

T = TypeVar("T")


class Loading:
    """How one target is loaded."""

    __slots__ = ("arguments", "program", "watch")

    def __init__(self, watch: Watch, program: LoadedBy | None, arguments: Sequence[str]) -> None:
        self.watch = watch
        self.program = program
        self.arguments = arguments

    def say_arguments(self, place: str) -> None:
        """From now on the target finds its own arguments in `sys.argv`."""
        sys.argv = [place, *self.arguments]

    def to_its_end(self, step: Callable[[], T]) -> T | None:
        """Run code of the target; None if it ended the process after it had served, as `sys.exit(0)` does."""
        try:
            return step()
        except SystemExit as error:
            if self.has_served and not error.code:
                return None
            raise

    @property
    def has_served(self) -> bool:
        """Whether the target called `run()`, and was served there."""
        return self.program is not None and self.program.has_served


def is_server(found: Any) -> bool:
    """Whether it is a server, of ours or of a library whose servers `mcpd.compat` runs."""
    return isinstance(found, Server) or hasattr(type(found), "__mcpd_server__")


def guarded(name: str, step: Callable[[], T], function: str = "") -> T:
    """Run code of the user: import what `name` is, or call a `function` in it.

    Whatever it raises becomes a ConfigurationError that says where.
    """
    serve: Any = Server.run
    # Serving belongs to whoever loads: a file that serves itself when it is imported would never come back.
    Server.run = _refuse_in_function if function else _refuse_to_run  # type: ignore[method-assign,assignment]

    try:
        return step()
    except ConfigurationError:
        raise
    except (Exception, SystemExit) as error:
        from mcpd.cli.user_errors import names_nothing, told
        from mcpd.client.targets.grammar import UnknownTarget

        kind = UnknownTarget if names_nothing(error, name, function) else ConfigurationError
        raise kind(told(error, name, function)) from error
    finally:
        if serve not in (
            _refuse_to_run,
            _refuse_in_function,
        ):  # else an import that was given up has it, and puts it back
            Server.run = serve  # type: ignore[method-assign]


def _refuse_to_run(server: Server, **_: Any) -> NoReturn:
    raise ConfigurationError(
        f"the file of server {server.name!r} calls run() while it is imported; "
        'put that call under `if __name__ == "__main__":`'
    )


def _refuse_in_function(server: Server, **_: Any) -> NoReturn:
    raise ConfigurationError(f"the function calls run() of server {server.name!r}; let it return the server instead")
