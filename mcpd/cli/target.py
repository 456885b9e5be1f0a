"""TARGET on the command line: from a file or module to the `Server` object in it.

Code of the user runs here, and nowhere before. Every failure is one line that says what to do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import CoroutineType, ModuleType
from typing import Any, NoReturn, TypeVar

from ..errors import ConfigurationError, McpdError
from ..printable import printable
from ..server import Server

__all__ = ["load", "split"]

T = TypeVar("T")

_FORMS = "give file.py, file.py:object or package.module:object"


def load(target: str | None) -> Server:
    """The server that TARGET names; the built-in starter for None. Raises ConfigurationError."""
    if target is None:
        from ..sources.starter import make_server

        return make_server()
    return _find(target)


def split(target: str) -> tuple[str, str]:
    """The file or module that a target names, and the object in it, "" if it names none."""
    place, colon, attribute = target.rpartition(":")
    if not colon or attribute.endswith(".py") or os.sep in attribute:
        return target, ""
    return place, attribute


def _find(target: str) -> Server:
    place, attribute = split(target)
    is_file = os.path.isfile(place)
    if is_file and place.endswith(".py"):
        module = _from_file(place)
    elif attribute and not is_file and all(part.isidentifier() for part in place.split(".")):
        module = _from_module(place)
    else:
        raise ConfigurationError(_why_not(target, place))
    return _pick(module, attribute, place)


def _why_not(target: str, place: str) -> str:
    """What is wrong with a target that is neither a Python file nor a module with an object."""
    if os.path.isdir(place):
        return f"{place} is a folder; name a file in it, as {os.path.join(place, 'server.py')}"
    if os.path.exists(place):
        return f"{place} is no Python file; {_FORMS}"
    if "://" in target:
        return f"{target} is the address of a server that runs already; {_FORMS}"
    if target in ("stdio", "ws", "http"):
        return f"{target}: no such file; for the transport write --{target}"
    if place.endswith(".py"):
        from difflib import get_close_matches  # on the way to an error only

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
    return f"{target}: no such file; {_FORMS}"


def _python_files(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder or ".") if name.endswith(".py")]
    except OSError:
        return []


def _from_file(path: str) -> ModuleType:
    folder, base = os.path.split(os.path.abspath(path))
    name = os.path.splitext(base)[0]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = spec_from_file_location(name if name.isidentifier() and name not in sys.modules else f"mcpd_{name}", path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is no Python file; {_FORMS}")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    loader = spec.loader
    _run(path, lambda: loader.exec_module(module))
    return module


def _from_module(name: str) -> ModuleType:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return _run(name, lambda: import_module(name))


def _run(name: str, step: Callable[[], T], function: str = "") -> T:
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
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not function and (name == missing or name.startswith(f"{missing}.")):
            raise ConfigurationError(
                f"no module {missing!r}, neither in {os.getcwd()} nor installed; {_FORMS}"
            ) from error
        instead = _hint(error) or f"; install it where mcpd runs: {sys.executable} -m pip install …"
        raise ConfigurationError(f"{failed}: no module {missing!r}{_where(name, error)}{instead}") from error
    except Exception as error:
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        if isinstance(error, ImportError):
            what = what.removesuffix(f" ({error.path})")  # which __init__.py that was helps nobody
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


def _pick(module: ModuleType, attribute: str, place: str) -> Server:
    if attribute:
        found = getattr(module, attribute, None)
        if callable(found) and not isinstance(found, Server):
            found = _run(place, found, attribute)
        if isinstance(found, CoroutineType):
            found.close()
            raise ConfigurationError(
                f"{place}: {attribute} is async; the function that makes the server is a plain one"
            )
        if not isinstance(found, Server):
            what = f"{attribute} is no Server, nor a function that makes one"
            raise ConfigurationError(f"{place}: {what}; {_have(module)}")
        return found
    servers = _servers(module)
    distinct = {id(value): value for value in servers.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if "server" in servers:
        return servers["server"]
    if not servers:
        raise ConfigurationError(f"{place}: {_have(module)}")
    raise ConfigurationError(f"{place}: {_have(module)}; name one, as {place}:{min(servers)}")


def _servers(module: ModuleType) -> dict[str, Server]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Server)}


def _have(module: ModuleType) -> str:
    names = sorted(_servers(module))
    if names:
        return f"the servers in it are {', '.join(names)}"
    from .hints import LIBRARIES

    for name, value in vars(module).items():
        library = LIBRARIES.get(type(value).__module__.partition(".")[0])
        if library is not None and hasattr(value, "run"):
            return f'{name} is a server of {library}, which is not served; make one with server = mcpd.Server("name")'
    return 'there is no server in it; make one with server = mcpd.Server("name")'
