"""`mcpd serve`."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

import click

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from ..transports.http import HttpSettings

__all__ = ["command"]

LEVELS = ("debug", "info", "warning", "error")


@click.command("serve")
@click.argument("target", required=False)
@click.option("--stdio", is_flag=True, help="Serve on stdin and stdout, as Claude Desktop wants it.")
@click.option("--ws", metavar="ADDR", envvar="MCPD_WS", help="Serve WebSocket on :PORT or HOST:PORT.")
@click.option("--http", metavar="ADDR", envvar="MCPD_HTTP",
              help="Serve Streamable HTTP, and WebSocket on the same port, on :PORT, HOST:PORT or unix:/PATH.")
@click.option("--stateless", is_flag=True, envvar="MCPD_STATELESS",
              help="HTTP: keep no sessions for clients older than 2026-07-28.")
@click.option("--session-timeout", type=click.FloatRange(min=0), default=1800.0, envvar="MCPD_SESSION_TIMEOUT",
              show_default=True, help="HTTP: seconds after which an idle session ends; 0 for never.")
@click.option(
    "--apps",
    type=click.Choice(["auto", "always", "never"]),
    envvar="MCPD_APPS",
    help="Who gets MCP Apps: clients that offer it, all, or none.",
)
@click.option("--token-file", type=click.Path(), envvar="MCPD_TOKEN_FILE", help="File with the bearer token to ask for.")
@click.option("--insecure", is_flag=True, envvar="MCPD_INSECURE", help="Serve beyond this machine without a token.")
@click.option("--allow-host", multiple=True, metavar="NAME", envvar="MCPD_ALLOW_HOST",
              help="Another name that clients may reach this server by, as a proxy's. Can be repeated.")
@click.option("--allow-origin", multiple=True, metavar="ORIGIN", envvar="MCPD_ALLOW_ORIGIN",
              help="A web page that may use this server, as https://app.example.com. Can be repeated.")
@click.option("--grace", type=click.FloatRange(min=0), default=5.0, envvar="MCPD_GRACE", show_default=True,
              help="Seconds that running calls get when the server is stopped.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", envvar="MCPD_LOG_LEVEL", show_default=True)
def command(
    target: str | None,
    stdio: bool,
    ws: str | None,
    http: str | None,
    stateless: bool,
    session_timeout: float,
    apps: str | None,
    token_file: str | None,
    insecure: bool,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
    grace: float,
    log_level: str,
) -> None:
    """Serve TARGET: file.py, file.py:object, package.module:object, or nothing for the built-in starter.

    With none of --stdio, --ws and --http it serves on stdio. Log messages go to stderr.
    """
    is_alone = ws is None and http is None
    stdio = stdio or is_alone
    if stdio:
        if is_alone and sys.stdin.isatty():
            click.echo("mcpd: serving on stdio; an MCP host is expected to talk to it. Ctrl-C ends it.", err=True)
        # Before any code of the user is loaded: what it prints must not reach the protocol.
        from ..transports.stdio import claim

        descriptors = claim()
    else:
        descriptors = None
    _log_to_stderr(log_level)
    from ..server.serving import Settings, run
    from .target import load

    server = load(target, apps)
    settings = Settings(
        stdio=stdio,
        ws=ws,
        http=http,
        http_settings=_http_settings(stateless, session_timeout) if http is not None else None,
        descriptors=descriptors,
        grace=grace,
        token=_token(token_file),
        insecure=insecure,
        allowed_hosts=allow_host,
        allowed_origins=allow_origin,
        announce=_announce,
    )
    run(server, settings)
    _leave()


def _http_settings(stateless: bool, session_timeout: float) -> HttpSettings:
    from ..transports.http import HttpSettings

    return HttpSettings(stateless=stateless, session_idle_timeout=session_timeout)


def _announce(url: str) -> None:
    click.echo(f"mcpd: listening on {url} (Ctrl-C ends it)", err=True)
    click.echo("mcpd: for Claude Desktop run it over stdio instead; see the README, or `mcpd serve --help`", err=True)


def _token(path: str | None) -> str | None:
    if path is None:
        return os.environ.get("MCPD_TOKEN") or None
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except OSError as error:
        raise ConfigurationError(f"--token-file {path}: {error.strerror}") from None
    if not token:
        raise ConfigurationError(f"--token-file {path}: the file is empty")
    return token


def _log_to_stderr(level: str) -> None:
    import logging

    logging.basicConfig(stream=sys.stderr, level=level.upper(), format="%(levelname)s %(name)s: %(message)s")


def _leave() -> None:
    """End the process even if a tool's thread hangs: Python would wait for it forever (decision D11)."""
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        sys.stderr.flush()
        os._exit(0)
