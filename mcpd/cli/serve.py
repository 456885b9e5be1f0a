"""`mcpd serve`: its options."""

from __future__ import annotations

from typing import Any

import click

from ..serve_options import Options, command_options
from .launch import launch
from .options import ServeCommand, parameter, target

__all__ = ["command"]

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


_DEFAULTS = Options()
_PARAMETERS: list[click.Parameter] = [
    target(),
    *(parameter(name, option, kind, getattr(_DEFAULTS, name)) for name, (option, kind) in command_options().items()),
]


@click.command("serve", cls=ServeCommand, params=_PARAMETERS, help=_HELP, epilog=_EPILOG)
def command(**options: Any) -> None:
    launch(Options(**options))
