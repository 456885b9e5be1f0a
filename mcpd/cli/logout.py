"""`mcpd logout`: end a login, here and at its authorization server."""

from __future__ import annotations

import click

from mcpd.cli.talk.logins import oauth, url_target
from mcpd.cli.talk.reach import Reach, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_HELP = """End the login at a server: its tokens are revoked where that is offered, and deleted in any case.

\b
  mcpd logout https://example.com/mcp
  mcpd logout --all
"""


@click.command(
    "logout",
    help=_HELP,
    epilog="Exit codes: 0 done, 1 there was no such login, 2 wrong use.",
    params=[
        click.Argument(["target"], required=False, metavar="URL"),
        click.Option(["--all", "is_all"], is_flag=True, help="End all logins, and forget all registrations."),
    ],
)
def command(target: str | None, is_all: bool) -> int:
    if (target is None) != is_all:
        raise WrongUse("name the server: mcpd logout URL; or mcpd logout --all for all of them")
    return run(lambda terminal: _log_out(terminal, target), Reach(target=target, called="mcpd logout"))


async def _log_out(terminal: Terminal, target: str | None) -> int:
    settings = oauth(interactive=False)
    from mcpd.client.auth.logins import forget_all, log_out

    url = None if target is None else url_target(Reach(target=target, called="mcpd logout")).url
    try:
        ended = await log_out(settings, url)
    except ConfigurationError as error:
        if target is not None:
            raise
        terminal.note(f"mcpd: {printable(error, 500)}", "yellow")
        if forget_all(settings):
            terminal.note(
                "mcpd: the file is deleted; what its tokens are good for only their issuers can end", "yellow"
            )
            return 0
        return 1
    for one in ended:
        terminal.out(f"logged out of {one.login.url}")
        if one.problem:
            terminal.note(
                f"mcpd: its tokens are deleted here, and not revoked: {printable(one.problem, 500)}", "yellow"
            )
    if not ended:
        terminal.note(f"mcpd: there was no login{f' at {target}' if target else ''}")
        return 1
    return 0
