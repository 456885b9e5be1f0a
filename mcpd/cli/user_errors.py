"""What code of the user raised, in one line: where it was, and what to do. Loaded on the way to an error only."""

from __future__ import annotations

import os
import sys

from mcpd.cli.hints import hint
from mcpd.client.targets.grammar import near_target
from mcpd.errors import McpdError
from mcpd.protocol.printable import printable


def names_nothing(error: BaseException, name: str, function: str) -> bool:
    """Whether the module that `name` is, or a package above it, is not there."""
    missing = error.name or "" if type(error) is ModuleNotFoundError else ""
    return bool(missing) and not function and (name == missing or name.startswith(f"{missing}."))


# What comes with the libraries whose servers we run, so that servers import it without depending on it: their packages.
_WITH_LIBRARIES = {each: each for each in ("authlib", "httpx", "rich", "starlette", "typer", "uvicorn")}
_WITH_LIBRARIES |= {"dotenv": "python-dotenv", "pydantic_settings": "pydantic-settings", "yaml": "pyyaml"}


def told(error: BaseException, name: str, function: str) -> str:
    """The line for what was raised when `name` was imported, or a `function` in it called."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    failed = f"{name}: {function}() failed" if function else f"{name} cannot be imported"
    if isinstance(error, McpdError):
        return f"{name}: {error}{_where(name, error)}"
    if isinstance(error, SystemExit):
        when = f"in {function}()" if function else "while it was imported"
        return f"{name} ended by itself {when} (exit {error.code or 0})"
    if type(error).__module__ == "mcpd.compat.missing":
        own = "; if it is a server of mcpd's own that uses that library, say --no-compat"
        return f"{failed}{_where(name, error)}: {error}{own if isinstance(error, ImportError) else ''}"
    if isinstance(error, ImportError):
        return _told_import(error, name, function, failed)

    assert isinstance(error, Exception)
    what = error.msg if isinstance(error, SyntaxError) else str(error)
    text = f"{type(error).__name__}: {what}" if what else type(error).__name__
    return f"{failed}: {text}{_where(name, error)}{hint(error)}{_source(error)}"


def _told_import(error: ImportError, name: str, function: str, failed: str) -> str:
    if not isinstance(error, ModuleNotFoundError):
        what = str(error).removesuffix(f" ({error.path})")  # which __init__.py that was helps nobody
        return f"{failed}: {type(error).__name__}: {what}{_where(name, error)}{hint(error)}"

    missing = error.name or ""
    if type(error).__name__ == "PackageNotFoundError":
        # Of importlib.metadata, asked for a version; what `mcpd.compat` stands in for is no installed package.
        return (
            f"{failed}: it asks for the version of {missing}, which is not installed{_where(name, error)}; catch that"
        )
    if names_nothing(error, name, function):
        return f"no module {missing!r}, neither in {os.getcwd()} nor installed{near_target(name)}"
    package = _WITH_LIBRARIES.get(missing.partition(".")[0], "…")
    instead = hint(error) or f"; install it where mcpd runs: {sys.executable} -m pip install {package}"
    return f"{failed}: no module {missing!r}{_where(name, error)}{instead}"


def _where(name: str, error: BaseException) -> str:
    """` (line 12)`: the innermost line of the user's own code; with the file, if it is not the one that was named."""
    folder = os.path.dirname(os.path.abspath(name)) if os.path.isfile(name) else os.getcwd()
    found: tuple[str, int] | None = None
    trace = error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if is_own(path, folder):
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


def is_own(path: str, folder: str) -> bool:
    """Whether a file is of the user, who has it below that folder: neither installed nor Python's nor ours."""
    path = os.path.abspath(path)
    python, ours = os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if "site-packages" in path or any(path.startswith(os.path.join(others, "")) for others in (python, ours)):
        return False
    return path.startswith(os.path.join(folder, "")) and os.path.isfile(path)
