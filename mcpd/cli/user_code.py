"""Runs code of the user, which is a target, and turns what it raises into one line: where it was, and what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ..errors import ConfigurationError, McpdError
from ..printable import printable
from ..server import Server

if TYPE_CHECKING:
    from .libraries import Watch
    from .loaded_by import LoadedBy

__all__ = ["FORMS", "Loading", "guarded"]

T = TypeVar("T")

FORMS = "give file.py, file.py:object or package.module:object"


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


def guarded(name: str, step: Callable[[], T], function: str = "") -> T:
    """Run code of the user: import what `name` is, or call a `function` in it.

    Whatever it raises becomes a ConfigurationError that says where.
    """
    serve = Server.run
    # Serving belongs to whoever loads: a file that serves itself when it is imported would never come back.
    Server.run = _refuse_to_run  # type: ignore[method-assign,assignment]

    failed = f"{name}: {function}() failed" if function else f"{name} cannot be imported"
    try:
        return step()
    except ConfigurationError:
        raise
    except McpdError as error:
        raise ConfigurationError(f"{name}: {error}{_where(name, error)}") from error
    except SystemExit as error:
        when = f"in {function}()" if function else "while it was imported"
        raise ConfigurationError(f"{name} ended by itself {when} (exit {error.code})") from error
    except ImportError as error:
        if type(error).__module__ == "mcpd.compat.missing":
            own = "; if it is a server of mcpd's own that uses that library, say --no-compat"
            raise ConfigurationError(f"{failed}{_where(name, error)}: {error}{own}") from error
        if not isinstance(error, ModuleNotFoundError):
            what = str(error).removesuffix(f" ({error.path})")  # which __init__.py that was helps nobody
            raise ConfigurationError(
                f"{failed}: {type(error).__name__}: {what}{_where(name, error)}{_hint(error)}"
            ) from error
        missing = error.name or ""
        if not function and (name == missing or name.startswith(f"{missing}.")):
            raise ConfigurationError(
                f"no module {missing!r}, neither in {os.getcwd()} nor installed; {FORMS}"
            ) from error
        instead = _hint(error) or f"; install it where mcpd runs: {sys.executable} -m pip install …"
        raise ConfigurationError(f"{failed}: no module {missing!r}{_where(name, error)}{instead}") from error
    except Exception as error:
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        text = f"{type(error).__name__}: {what}" if what else type(error).__name__
        raise ConfigurationError(f"{failed}: {text}{_where(name, error)}{_hint(error)}{_source(error)}") from error
    finally:
        Server.run = serve  # type: ignore[method-assign]


def _hint(error: Exception) -> str:
    from .hints import hint  # on the way to an error only

    return hint(error)


def _refuse_to_run(server: Server, **_: Any) -> NoReturn:
    raise ConfigurationError(
        f"the file of server {server.name!r} calls run() while it is imported; "
        'put that call under `if __name__ == "__main__":`'
    )


def _where(name: str, error: BaseException) -> str:
    """` (line 12)`: the innermost line of the user's own code; with the file, if it is not the one that was named."""
    folder = os.path.dirname(os.path.abspath(name)) if os.path.isfile(name) else os.getcwd()
    found: tuple[str, int] | None = None
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if _is_own(path, folder):
            found = path, trace.tb_lineno
        trace = trace.tb_next

    if isinstance(error, SyntaxError) and error.lineno and os.path.isfile(error.filename or ""):
        found = error.filename or "", error.lineno
    if found is None:
        return ""

    path, line = found
    if os.path.isfile(name) and os.path.samefile(path, name):
        return f" (line {line})"

    path = os.path.abspath(path)
    return f" ({path.removeprefix(os.getcwd() + os.sep)}, line {line})"


def _source(error: BaseException) -> str:
    """The line that Python could not read, and a mark below the place in it, on lines of their own."""
    if not isinstance(error, SyntaxError) or not error.text:
        return ""
    line = error.text.rstrip("\r\n")
    shown = line.lstrip()
    # An offset counts from 1, in the line as it stands in the file.
    at = min(max((error.offset or 1) - 1 - (len(line) - len(shown)), 0), len(shown))
    return f"\n    {printable(shown)}\n    {' ' * at}^" if shown.isprintable() else f"\n    {printable(shown)}"


def _is_own(path: str, folder: str) -> bool:
    """Whether a file is of the user, who has it below that folder: neither installed nor Python's nor ours."""
    path = os.path.abspath(path)
    python, ours = os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if "site-packages" in path or any(path.startswith(os.path.join(others, "")) for others in (python, ours)):
        return False
    return path.startswith(os.path.join(folder, "")) and os.path.isfile(path)
