"""`mcpd serve --workers`: what of a command line makes sense for several processes, and which of them this one is."""

from __future__ import annotations

import socket

from ..errors import ConfigurationError
from ..serve_options import Options
from .telling import tell, tell_to

__all__ = ["become_worker", "check", "run_parent"]


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
    from ..workers.parent import run

    if any(each is not None and each.startswith("fd:") for each in (options.http, options.ws, options.metrics)):
        from ..server.listening import take_handed_over

        take_handed_over(options)

    options.token = token
    return run(options, tell)


def become_worker(options: Options) -> None:
    """Be the worker that the parent has started. Raises ConfigurationError."""
    from ..workers.worker import take_over

    tell_to(take_over(options).say)
