"""The start of a new process: it connects to the server, and imports the target as the server has done.

Standard input is empty and standard output is standard error, so that nothing that a tool prints gets into the
protocol.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import Any, NoReturn

from msgspec.json import decode

from mcpd.errors import ConfigurationError, as_told
from mcpd.server import Server
from . import callee
from .starting import SECRET_BYTES, Setup
from .worker import end_with_parent, serve

# The name of the main file of a program, which must not run as `__main__` a second time.
MAIN = "__mcpd_worker__"


def main() -> NoReturn:
    """Run a fork server, or a worker that is a new interpreter. The command line is that of `Setup.command`."""
    setup = decode(sys.argv[1], type=Setup)
    end_with_parent()
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    if setup.start != "spawn":
        from .fork_server import ForkServer  # only some systems can fork

        control = socket.socket(fileno=setup.address)
        control.set_inheritable(False)
        ForkServer(control, load(setup), must_fork=setup.start == "fork").run()

    sock = socket.create_connection(("127.0.0.1", setup.address))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(os.read(0, SECRET_BYTES))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    serve(sock, load(setup))


class _Serves(BaseException):
    """Stops the import of a target that serves itself, after everything before that call has run."""


def load(setup: Setup) -> str:
    """Import the target; returns why that failed, or ""."""
    found: dict[str, callee.ProcessCallee] = {}
    callee.registered = found
    module, _, name = setup.loader.partition(":")
    serving = Server.run
    Server.run = _refuse  # type: ignore[method-assign,assignment]
    try:
        getattr(import_module(module), name)(**setup.arguments)
    except _Serves:
        pass
    except ConfigurationError as error:
        return str(error)
    except (Exception, SystemExit) as error:
        return "".join(traceback.format_exception(*as_told(error))).rstrip()
    finally:
        Server.run = serving  # type: ignore[method-assign]

    for each in found.values():
        each.prepare()
    return ""


def _refuse(server: Server, **_: Any) -> NoReturn:
    raise _Serves


def import_target(name: str, path: str, package: str, argv: list[str]) -> None:
    """Import a module by its name, or the main file of a program under another name than `__main__`."""
    sys.argv[:] = argv
    if name != "__main__":
        import_module(name)
        return
    spec = find_spec(package) if package else None
    path = path if spec is None or spec.origin is None else spec.origin
    found = spec_from_file_location(MAIN, path)
    if found is None or found.loader is None:
        raise ConfigurationError(f"{path}: not a Python file")

    module = sys.modules[MAIN] = module_from_spec(found)
    if spec is not None:
        module.__package__ = spec.parent
    found.loader.exec_module(module)
