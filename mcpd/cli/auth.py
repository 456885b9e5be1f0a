"""`mcpd auth`: the people who may log in at a server of one's own."""

from __future__ import annotations

import sys

import click

from mcpd.errors import ConfigurationError

_LEAST = 8


@click.command("add-user", context_settings={"max_content_width": 110})
@click.argument("name")
@click.option("--file", "path", default="users.toml", show_default=True, metavar="FILE", help="The file to write.")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="What they may be given; without any, all.")
def _add_user(name: str, path: str, scopes: tuple[str, ...]) -> None:
    """Write a person into a file of users, with a password that is asked for.

    Who is in it already gets the new password, and keeps the scopes unless others are named. From a pipe, the first
    line is the password. The file holds hashes, and only its owner can read it.

    \b
    Exit codes: 0 written, 1 cannot be written, 2 wrong use.
    """
    from mcpd.auth.server.users import add_user as write, is_user_name

    if not is_user_name(name):
        raise ConfigurationError(f"{name!r} is no name of a user: letters, digits and ._@+-, up to 64 characters")
    if sys.stdin is not None and sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = "" if sys.stdin is None else sys.stdin.readline().rstrip("\r\n")
    if len(password) < _LEAST:
        raise ConfigurationError(f"the password has to have {_LEAST} characters or more")

    was_there = write(path, name, password, scopes or None)
    click.echo(f"{name} {'has a new password' if was_there else 'may log in'} ({path})", err=True)


command = click.Group(
    "auth",
    help="Say who may log in at a server that is served with --auth-server.",
    commands=[_add_user],
    context_settings={"max_content_width": 110},
)
