"""From the options of `mcpd serve` to a running server, and what people are told meanwhile, on stderr.

No click here: what a host waits for when it starts `mcpd serve --stdio` loads nothing else than this.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from ..transports.http import HttpSettings

__all__ = ["APPS", "LOG_HELP", "LOG_LEVELS", "Options", "launch"]

APPS = ("auto", "always", "never")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_HELP = "What to log: error, warning, info or debug, which also shows where a target failed."


class Options(Struct, kw_only=True):
    """What `mcpd serve` can be told; the defaults are the command's."""

    target: str | None = None
    stdio: bool = False
    ws: str | None = None
    http: str | None = None
    stateless: bool = False
    session_timeout: float = 1800.0
    apps: str | None = None
    strict_model_list: bool = False
    token_file: str | None = None
    insecure: bool = False
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    grace: float = 5.0
    max_message_bytes: int = 64 * 1024 * 1024
    log_level: str = "info"


def launch(options: Options) -> None:
    """Load the target and serve it until it is stopped. Raises ConfigurationError.

    With no transport named: stdio if a program started us, `--ws :8080` in a terminal, where nobody writes
    JSON-RPC by hand.
    """
    if not options.stdio and options.ws is None and options.http is None:
        _choose_transport(options)
    descriptors = None
    if options.stdio:
        if sys.stdin is not None and sys.stdin.isatty():
            _tell("mcpd: serving on stdio: an MCP client is expected to talk here, line by line. Ctrl-C ends it.")
        # Before any code of the user is loaded: what it prints must not reach the protocol.
        from ..transports.stdio import claim

        descriptors = claim()
    logging.basicConfig(
        stream=sys.stderr, level=options.log_level.upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    from ..server.serving import Settings, run
    from .target import load

    server = load(options.target, options.apps, strict_model_list=options.strict_model_list)

    def announce(url: str) -> None:
        from .announcement import lines

        for line in lines(url, server.name, options):
            _tell(line)
        options.stdio = True  # Claude Desktop's block is for the first address only

    settings = Settings(
        stdio=options.stdio,
        ws=options.ws,
        http=options.http,
        http_settings=None if options.http is None else _http_settings(options),
        descriptors=descriptors,
        grace=options.grace,
        max_frame_bytes=options.max_message_bytes,
        token=_token(options.token_file),
        insecure=options.insecure,
        allowed_hosts=options.allow_host,
        allowed_origins=options.allow_origin,
        announce=announce,
    )
    _resume_collector()
    run(server, settings)


def _choose_transport(options: Options) -> None:
    if sys.stdin is not None and sys.stdin.isatty():
        options.ws = ":8080"
    elif _is_nothing(0):
        raise ConfigurationError("nobody can talk to it: stdin is empty; say where to listen, for example --ws :8080")
    else:
        options.stdio = True


def _http_settings(options: Options) -> HttpSettings:
    from ..transports.http import HttpSettings

    return HttpSettings(stateless=options.stateless, session_idle_timeout=options.session_timeout)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _is_nothing(descriptor: int) -> bool:
    """Whether this reads from /dev/null, as that of a service or a background job does."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(os.devnull))
    except OSError:  # closed
        return True


def _token(path: str | None) -> str | None:
    if path is None:
        return os.environ.get("MCPD_TOKEN") or None
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"--token-file {path}: {why}; name a file that holds the token") from None
    if not token:
        raise ConfigurationError(f"--token-file {path}: the file is empty; write the token into it")
    return token


def _resume_collector() -> None:
    """The collector rests while modules are loaded (`main`), and need never look at what they left."""
    gc.enable()
    gc.freeze()
