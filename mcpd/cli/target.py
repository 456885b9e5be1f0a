"""TARGET on the command line: from a file or module to the `Server` object in it.

Code of the user runs here, and nowhere before. Every failure is one line that says what to do.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from ..errors import ConfigurationError, McpdError
from ..server import Server

__all__ = ["load"]

_FORMS = "give file.py, file.py:object or package.module:object"


def load(target: str | None, apps: str | None = None) -> Server:
    """The server that TARGET names; the built-in starter for None. Raises ConfigurationError."""
    if target is None:
        from ..sources.starter import make_server

        server = make_server()
    else:
        server = _find(target)
    if apps is not None:
        server.set_apps(apps)
    return server


def _find(target: str) -> Server:
    path, colon, attribute = target.rpartition(":")
    if not colon or attribute.endswith(".py") or os.sep in attribute:
        path, attribute = target, ""
    if path.endswith(".py") or os.path.isfile(path):
        module = _from_file(path)
    elif os.path.isdir(path):
        raise ConfigurationError(f"{target} is a folder; {_FORMS}")
    elif attribute and all(part.isidentifier() for part in path.split(".")):
        module = _from_module(path)
    else:
        raise ConfigurationError(f"{target}: no such file, and no module with an object; {_FORMS}")
    return _pick(module, attribute, path)


def _from_file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        raise ConfigurationError(f"{path}: no such file")
    folder, base = os.path.split(os.path.abspath(path))
    name = os.path.splitext(base)[0]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = spec_from_file_location(name if name.isidentifier() and name not in sys.modules else f"mcpd_{name}", path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path}: not a Python file")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    _run(path, lambda: spec.loader.exec_module(module))  # type: ignore[union-attr]
    return module


def _from_module(name: str) -> ModuleType:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return _run(name, lambda: import_module(name))


def _run(name: str, step):  # type: ignore[no-untyped-def]
    try:
        return step()
    except ConfigurationError:
        raise
    except McpdError as error:
        raise ConfigurationError(f"{name}: {error}{_line(name, error)}") from error
    except SystemExit as error:
        raise ConfigurationError(f"{name} ended by itself while it was imported (exit {error.code})") from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ConfigurationError(f"{name} cannot be imported: {text}{_line(name, error)}") from error


def _line(name: str, error: BaseException) -> str:
    """` (file.py, line 12)`: the innermost line of the user's own file."""
    found = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if os.path.basename(trace.tb_frame.f_code.co_filename) == os.path.basename(name):
            found = trace.tb_lineno
        trace = trace.tb_next
    return f" (line {found})" if found else ""


def _pick(module: ModuleType, attribute: str, path: str) -> Server:
    if attribute:
        found = getattr(module, attribute, None)
        if callable(found) and not isinstance(found, Server):
            found = found()
        if not isinstance(found, Server):
            raise ConfigurationError(f"{path} has no Server named {attribute}; it has {_servers_text(module)}")
        return found
    servers = {name: value for name, value in vars(module).items() if isinstance(value, Server)}
    distinct = {id(value): value for value in servers.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    preferred = servers.get("server")
    if preferred is not None:
        return preferred
    raise ConfigurationError(f"{path} has {_servers_text(module)}; name one as {path}:object")


def _servers_text(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, Server))
    return f"these: {', '.join(names)}" if names else 'none (a server is made with: server = mcpd.Server("name"))'
