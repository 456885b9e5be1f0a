"""`mcpd serve`: its options."""

from __future__ import annotations

from typing import Any

import click

from .launch import launch
from .options import choice, flag, number, option, seconds, size
from .serve_options import APPS, LOG_HELP, LOG_LEVELS, Options

__all__ = ["command"]

_DEFAULTS = Options()

_HELP = """Serve TARGET to MCP clients until it is stopped.

TARGET is file.py or package.module:object; without one it is the built-in starter. A file with several servers
needs the name of one: file.py:object. An object may also be a function that makes the server.

With none of --stdio, --ws and --http it serves on stdio if a program started it, and on --http :8080 in a terminal
(on --ws :8080 where the extra http is not installed).

\b
  mcpd serve --stdio server.py           what Claude Desktop and other hosts start
  mcpd serve --http :8080 server.py      http://127.0.0.1:8080/mcp, for this machine only; WebSocket too
  MCPD_TOKEN=… mcpd serve --http 0.0.0.0:8080 server.py    for others, who need the token
"""

_EPILOG = """\b
Also from the environment:
  MCPD_TOKEN              the bearer token itself; --token-file goes before it
  MCPD_STATE_KEY          a secret of 16 bytes or more that seals what clients carry between the rounds of one
                          request; the same for all processes that serve the same clients
  MCP_APPS_ENABLED=false  no MCP Apps, whatever --apps says
An option that can be repeated takes its values from the environment with spaces between them.

\b
Log messages and everything for people go to stderr. The first Ctrl-C or SIGTERM lets running calls end within
--grace; the second does not wait. Exit codes: 0 stopped, 1 cannot serve, 2 wrong use.
"""


@click.command("serve", help=_HELP, epilog=_EPILOG)
@click.argument("target", required=False)
@flag("--stdio", "Serve on stdin and stdout.")
@option("--ws", "ADDR", "Serve WebSocket on :PORT (this machine only), HOST:PORT or [IPV6]:PORT; 0 is any free port.")
@option("--http", "ADDR", "Serve Streamable HTTP, and WebSocket on the same port; ADDR as for --ws, or unix:/PATH.")
@flag("--stateless", "HTTP: keep no sessions for clients older than 2026-07-28.")
@seconds("--session-timeout", _DEFAULTS.session_timeout, "HTTP: when an idle session ends; 0 for never.")
@choice("--apps", "WHO", APPS, "Who gets MCP Apps: auto (clients that offer them), always or never.")
@flag("--strict-model-list", "List no tool that only apps may call, though they can; some hosts then never find it.")
@option("--token-file", "FILE", "Ask for the bearer token in this file; needed beyond this machine.")
@flag("--insecure", "Serve beyond this machine without a token.")
@option("--allow-host", "NAME", "Another name that clients may reach this server by; can be repeated.", multiple=True)
@option(
    "--allow-origin", "ORIGIN", "A web page that may call, as https://app.example.com; can be repeated.", multiple=True
)
@seconds("--grace", _DEFAULTS.grace, "What running calls get when the server is stopped.")
@number("--max-message-bytes", "BYTES", _DEFAULTS.max_message_bytes, "Refuse messages that are larger.")
@size("--max-memory", "What may wait in all connections together, as 512M; by default half of the machine's memory.")
@number("--max-threads", "NUMBER", _DEFAULTS.max_threads, "How many plain functions run at once.")
@choice("--log-level", "LEVEL", LOG_LEVELS, LOG_HELP, default=_DEFAULTS.log_level)
def command(**options: Any) -> None:
    launch(Options(**options))
