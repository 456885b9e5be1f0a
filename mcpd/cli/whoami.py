"""`mcpd whoami`: where this user is logged in."""

from __future__ import annotations

import click

from mcpd.cli.client_options import json_option
from mcpd.cli.talk.logins import show_logins
from mcpd.cli.talk.reach import Reach, run

_HELP = """Show where you are logged in: the server, who issued the tokens, as which client, which rights, how long. No
token is shown.

\b
  mcpd whoami
  mcpd whoami https://example.com/mcp
"""


@click.command(
    "whoami",
    help=_HELP,
    epilog="Exit codes: 0 there is a login, 1 there is none, 2 wrong use.",
    params=[click.Argument(["target"], required=False, metavar="[URL]"), json_option("Print it as JSON.")],
)
def command(target: str | None, as_json: bool) -> int:
    return run(
        lambda terminal: show_logins(terminal, target, as_json=as_json), Reach(target=target, called="mcpd whoami")
    )
