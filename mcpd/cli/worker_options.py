"""`mcpd serve --workers`: checks the options, and starts the parent process or joins it as a worker.

Also contains the init process that `mcpd serve` needs as process 1 of a container.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import warnings
from collections.abc import Callable

from mcpd.errors import ConfigurationError
from mcpd.server.settings import Options


def check(options: Options, from_file: frozenset[str]) -> None:
    """Check the options for several processes. Raises ConfigurationError."""
    # If `workers` is among the options `from_file`, it does not apply to a host that starts the target on stdio.
    if options.stdio and "workers" in from_file:
        options.workers = None
        return
    if options.stdio:
        raise ConfigurationError(
            "--workers: stdio has one client, which needs one process; add an address, for example --http :8080"
        )
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigurationError(
            "--workers: this system cannot share a port between processes (SO_REUSEPORT); use one port per process"
        )
    if options.reload:
        raise ConfigurationError(
            "--workers and --reload exclude each other; to reload the code of all workers, send SIGHUP to the parent"
        )
    if options.auth_server is not None:
        raise ConfigurationError(
            "--workers and --auth-server exclude each other, because a login needs one process; serve the login server "
            "separately, and the workers with --issuer"
        )
    if options.wire_log is not None:
        raise ConfigurationError("--workers and --wire-log exclude each other: all processes would write to the file")


def run_parent(options: Options, token: str | None, print_line: Callable[[str], object]) -> int:
    """Run the parent process until it is stopped, and return the exit code. Raises ConfigurationError.

    Metrics require `token`; `print_line` prints lines for the user.
    """
    from mcpd.cli.workers.parent import run
    from mcpd.server.listening import check_ports, take_handed_over

    take_handed_over(options)
    check_ports(options)
    options.token = token
    return run(options, print_line)


def become_worker(options: Options) -> Callable[[str], object]:
    """Become a worker of the parent; returns a function that sends it lines for the user. Raises ConfigurationError."""
    # All workers load the same target. Until `end_quiet_loading`, only the first one logs what happens meanwhile.
    from mcpd.cli.workers.worker import take_over

    parent = take_over(options)
    if parent.given.number != 1:
        for handler in logging.getLogger().handlers:
            handler.addFilter(_is_critical)
        warnings.showwarning = lambda *_: None
    return parent.say


def end_quiet_loading() -> None:
    """Log everything from now on: the target is loaded, and the first worker has logged its problems."""
    for handler in logging.getLogger().handlers:
        handler.removeFilter(_is_critical)
    warnings.showwarning = _show_warning


_show_warning = warnings.showwarning


def _is_critical(record: logging.LogRecord) -> bool:
    return record.levelno > logging.ERROR


def serve_below_init() -> None:
    """As process 1 of a container, fork a child that serves, and reap processes that tools leave behind."""
    # Returns in the child. Process 1 forwards signals to the child and exits with its exit code.
    child = os.fork()
    if child == 0:
        if os.environ.get("LISTEN_PID") == "1":
            os.environ["LISTEN_PID"] = str(os.getpid())
        return

    def forward(number: int, _: object) -> None:
        os.kill(child, number)

    # A terminal sends signals to both processes.
    of_terminal = {signal.SIGINT, signal.SIGQUIT} if os.isatty(0) else set()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGQUIT):
        handler = signal.SIG_IGN if number in of_terminal else forward
        signal.signal(number, handler)
    os.closerange(0, 2)  # clients wait for the end of stdout, so only the child may hold it
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
