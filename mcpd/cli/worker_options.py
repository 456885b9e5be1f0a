"""`mcpd serve --workers`: what of a command line makes sense for several processes, and which of them this one is."""

from __future__ import annotations

import logging
import os
import signal
import socket
import warnings

from mcpd.cli.telling import tell, tell_to
from mcpd.errors import ConfigurationError
from mcpd.serve_options import Options


def check(options: Options, from_file: frozenset[str]) -> None:
    """Raises ConfigurationError for options that make no sense for several processes; `from_file` came from a folder's
    file, which says how it is served to many, and not to a host that starts it on stdio."""
    if options.stdio and "workers" in from_file:
        options.workers = None
        return
    if options.stdio:
        raise ConfigurationError(
            "--workers: on stdio there is one client, and one process for it; say where to listen, as --http :8080"
        )
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigurationError(
            "--workers: this system lets no processes share a port (SO_REUSEPORT); start several on ports of their own"
        )
    if options.reload:
        raise ConfigurationError(
            "--workers and --reload: say one of them; several processes take new code on kill -HUP of their parent"
        )
    if options.auth_server is not None:
        raise ConfigurationError(
            "--workers and --auth-server: a login begins and ends in one process; serve the login server alone, and "
            "these with --issuer"
        )
    if options.wire_log is not None:
        raise ConfigurationError("--workers and --wire-log: each process would write the file; leave out one of them")


def run_parent(options: Options, token: str | None) -> int:
    """Be the parent, until it is told to stop; the exit code. `token` is what metrics ask for. Raises
    ConfigurationError."""
    from mcpd.workers.parent import run

    if any(each is not None and each.startswith("fd:") for each in (options.http, options.ws, options.metrics)):
        from mcpd.server.listening import take_handed_over

        take_handed_over(options)

    options.token = token
    return run(options, tell)


def become_worker(options: Options) -> None:
    """Be the worker that the parent has started. Raises ConfigurationError.

    All workers load the same target: what it logs meanwhile is logged by the first one, until `speak`.
    """
    from mcpd.workers.worker import take_over

    parent = take_over(options)
    tell_to(parent.say)
    if parent.given.number != 1:
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_critical)
        warnings.showwarning = lambda *_: None


def speak() -> None:
    """Log everything from now on: the target is loaded, and the first worker has logged what was wrong with it."""
    for handler in logging.getLogger().handlers:
        handler.removeFilter(_is_critical)
    warnings.showwarning = _show_warning


_show_warning = warnings.showwarning


def _is_critical(record: logging.LogRecord) -> bool:
    return record.levelno > logging.ERROR


def serve_below_init() -> None:
    """As process 1 of a container, start a child that serves, and reap the processes that tools leave behind.

    Returns in the child. This process hands signals on to it, and ends with its exit code.
    """
    child = os.fork()
    if child == 0:
        if os.environ.get("LISTEN_PID") == "1":
            os.environ["LISTEN_PID"] = str(os.getpid())
        return

    def hand_on(number: int, _: object) -> None:
        os.kill(child, number)

    # A terminal sends its signals to both processes.
    of_terminal = {signal.SIGINT, signal.SIGQUIT} if os.isatty(0) else set()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGQUIT):
        handler = signal.SIG_IGN if number in of_terminal else hand_on
        signal.signal(number, handler)
    os.closerange(0, 2)  # the child is alone at stdin and stdout, whose ends others wait for
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
