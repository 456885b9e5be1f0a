"""`mcpd login`, `logout` and `whoami` manage the logins of this user; `mcpd auth` manages the users of a server."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from mcpd.cli.options import flag_option, json_option, repeated_option, value_option
from mcpd.cli.talk.connecting import ServerOptions, resolve_target, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import ConfigurationError, missing_extra
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client.auth.settings import OAuth
    from mcpd.client.auth.steps import UserInteraction
    from mcpd.client.auth.store import Login
    from mcpd.client.targets.named import UrlTarget

_LEAST_PASSWORD_CHARACTERS = 8

_LOGIN_HELP = """Log in to a server at a URL, in a browser. All mcpd commands, and `Client(URL)` in programs, use the
login until `mcpd logout URL`.

\b
  mcpd login https://example.com/mcp
  mcpd login --no-browser https://example.com/mcp    over SSH: prints the address, reads the one the browser ends at
  mcpd login --device https://example.com/mcp        with a code that you type on another device
  mcpd login --client-id ID https://example.com/mcp  for servers where clients are registered by hand
"""

_LOGOUT_HELP = """Log out of a server: revoke its tokens if the authorization server supports that, and delete them.

\b
  mcpd logout https://example.com/mcp
  mcpd logout --all
"""

_WHOAMI_HELP = """Show your logins: server, issuer, client, scopes and how long they last. Tokens are not shown.

\b
  mcpd whoami
  mcpd whoami https://example.com/mcp
"""


@click.command(
    "login",
    help=_LOGIN_HELP,
    epilog="Exit codes: 0 logged in, 1 not logged in, 2 wrong use, 130 Ctrl-C.",
    params=[
        click.Argument(["target"], required=False, metavar="URL"),
        value_option("--client-id", metavar="ID", help="Use this registered client."),
        value_option("--client-secret-file", metavar="FILE", help="Read the secret of the client from this file."),
        value_option("--client-metadata", metavar="URL", help="Identify the client by this metadata document."),
        repeated_option("--scope", "scopes", metavar="SCOPE", help="Request this scope instead of those "
                     "that the server names."),
        flag_option("--device", help="Log in with a code that you type on another device."),
        flag_option("--no-browser", help="Print the address instead of opening a browser, and read "
                     "the address that the browser ends at. This is the default over SSH and without a display."),
        value_option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="Let the browser return to this "
                     "port, if the client is registered with one. Default: any free port."),
        flag_option("--localhost", help="Let the browser return to localhost instead of 127.0.0.1, "
                     "for authorization servers that accept only that."),
        flag_option("--dpop", help="Bind the tokens to a key of this machine."),
        flag_option("--keyring", help="Store the tokens in the system's keyring."),
        flag_option("--assume-pkce", help="Log in even if the authorization server does not announce "
                     "PKCE. Microsoft Entra and Amazon Cognito support it without announcing it."),
        flag_option("--assume-issuer", help="Accept an issuer that differs by a slash at its end."),
        flag_option("--allow-private", help="Allow an authorization server with a private address "
                     "for a server with a public one."),
        flag_option("--list", "is_list", help="Show your logins, as mcpd whoami does."),
        json_option("With --list: print the logins as JSON."),
    ],
)  # fmt: skip
def login_command(
    target: str | None,
    client_id: str | None,
    client_secret_file: str | None,
    client_metadata: str | None,
    scopes: tuple[str, ...],
    port: int | None,
    localhost: bool,
    keyring: bool,
    no_browser: bool,
    is_list: bool,
    as_json: bool,
    **flags: bool,
) -> int:
    server = ServerOptions(target=target, called="mcpd login")
    if is_list:
        return run(lambda terminal: _show_logins(terminal, server, as_json=as_json), server)
    if target is None:
        raise WrongUse("name the server: mcpd login URL; to show your logins: mcpd login --list")
    if client_secret_file is not None and client_id is None:
        raise WrongUse("--client-secret-file requires --client-id")

    async def work(terminal: Terminal) -> int:
        settings = _oauth(
            scopes=scopes or None,
            client_id=client_id,
            client_secret=None if client_secret_file is None else _secret(client_secret_file),
            client_metadata_url=client_metadata,
            redirect=f"http://{'localhost' if localhost else '127.0.0.1'}:{port or 0}/callback",
            store="keyring" if keyring else None,
            **flags,
        )
        return await _log_in(terminal, _url_target(server), settings, no_browser=no_browser)

    return run(work, server)


def _secret(path: str) -> str:
    from mcpd.auth.settings import secret_in

    secret = secret_in(path, "--client-secret-file")
    if not secret or "\n" in secret:
        raise ConfigurationError(f"--client-secret-file {path}: the file must contain one line, the secret")
    return secret


async def _log_in(terminal: Terminal, target: UrlTarget, settings: OAuth, *, no_browser: bool) -> int:
    from mcpd.client.auth.logins import log_in
    from mcpd.client.http.options import login_file

    found = await log_in(target, settings, _person(terminal, settings, no_browser=no_browser))
    if found is None:
        # The query may hold a secret.
        terminal.note(f"mcpd: {printable(target.url.partition('?')[0])} does not require a login", "yellow")
        return 0
    terminal.out(f"logged in to {found.url} at {found.issuer}")
    if found.granted:
        terminal.out(f"  scopes     {' '.join(found.granted)}")
    terminal.out(f"  expires    {_expiry(found)}")
    where = f"the system's keyring, listed in {login_file()}" if settings.store == "keyring" else login_file()
    terminal.out(f"  stored in  {where}")
    return 0


def _person(terminal: Terminal, settings: OAuth, *, no_browser: bool) -> UserInteraction:
    from mcpd.client.auth.steps import UserInteraction, has_browser, open_browser

    async def show(url: str) -> None:
        if not no_browser and has_browser() and await open_browser(url):
            terminal.note("mcpd: a browser was opened for the login; if you do not see it, visit", "dim")
            terminal.note(url)
        else:
            terminal.note("To log in, visit this address in a browser on any machine:\n")
            terminal.note(f"{url}\n")

    def show_code(url: str, code: str) -> None:
        terminal.note(f"To log in, visit {printable(url, 500)} and type the code {printable(code, 100)}", "bold")

    async def paste() -> str:
        # A browser on another machine cannot reach ours, so the user pastes the address at which it ended.
        try:
            while True:
                prompt = "If the browser ends at an address that it cannot open, paste the address here: "
                line = await terminal.ask(prompt if terminal.err_is_terminal else "")
                if line is None:
                    break
                if "state=" in line:
                    return line
                if line:
                    terminal.note("mcpd: this is not the address: it contains code= and state=", "yellow")
        except OSError:
            pass  # stdin is neither a terminal nor a pipe, so nothing can be read from it

        await asyncio.get_running_loop().create_future()
        raise AssertionError

    return UserInteraction(open_url=show, show_code=show_code, paste=paste, redirect=settings.redirect)


@click.command(
    "logout",
    help=_LOGOUT_HELP,
    epilog="Exit codes: 0 done, 1 you were not logged in, 2 wrong use.",
    params=[
        click.Argument(["target"], required=False, metavar="URL"),
        flag_option("--all", "is_all", help="Log out everywhere, and forget all registrations."),
    ],
)
def logout_command(target: str | None, is_all: bool) -> int:
    if (target is None) != is_all:
        raise WrongUse("name the server: mcpd logout URL; or log out everywhere: mcpd logout --all")
    server = ServerOptions(target=target, called="mcpd logout")
    return run(lambda terminal: _log_out(terminal, server), server)


async def _log_out(terminal: Terminal, server: ServerOptions) -> int:
    settings = _oauth(interactive=False)
    from mcpd.client.auth.logins import forget_all, log_out

    target = server.target
    url = None if target is None else _url_target(server).url
    try:
        ended = await log_out(settings, url)
    except ConfigurationError as error:
        if target is not None:
            raise
        terminal.note(f"mcpd: {printable(error, 500)}", "yellow")
        if forget_all(settings):
            terminal.note("mcpd: the file of logins was deleted; only the issuers can revoke its tokens", "yellow")
            return 0
        return 1
    for each in ended:
        terminal.out(f"logged out of {each.login.url}")
        if each.problem:
            problem = printable(each.problem, 500)
            terminal.note(f"mcpd: the tokens were deleted here but not revoked: {problem}", "yellow")
    if not ended:
        terminal.note(f"mcpd: you were not logged in{f' at {target}' if target else ''}")
        return 1
    return 0


@click.command(
    "whoami",
    help=_WHOAMI_HELP,
    epilog="Exit codes: 0 you are logged in, 1 you are not, 2 wrong use.",
    params=[click.Argument(["target"], required=False, metavar="[URL]"), json_option("Print the logins as JSON.")],
)
def whoami_command(target: str | None, as_json: bool) -> int:
    server = ServerOptions(target=target, called="mcpd whoami")
    return run(lambda terminal: _show_logins(terminal, server, as_json=as_json), server)


async def _show_logins(terminal: Terminal, server: ServerOptions, *, as_json: bool) -> int:
    settings = _oauth(interactive=False)
    from mcpd.client.auth.logins import logins

    target = server.target
    found = logins(settings, None if target is None else _url_target(server).url)
    if as_json:
        members = [
            {
                "url": login.url, "issuer": login.issuer, "clientId": login.client_id, "scopes": list(login.granted),
                "expiresAt": login.expires_at, "isRefreshed": login.refresh_token is not None,
            }
            for login in found
        ]  # fmt: skip
        terminal.print_json(members)
        return 0 if found else 1
    if not found:
        where = "anywhere" if target is None else f"at {target}"
        terminal.note(f"mcpd: you are not logged in {where}; to log in: mcpd login {target or 'URL'}")
        return 1
    for login in found:
        terminal.out(login.url)
        terminal.out(f"  issuer   {login.issuer}")
        terminal.out(f"  client   {printable(login.client_id)}")
        terminal.out(f"  scopes   {' '.join(login.granted) or 'not stated'}")
        terminal.out(f"  expires  {_expiry(login)}")
    return 0


def _expiry(login: Login) -> str:
    bound = "; bound to a key of this machine" if login.token_type == "DPoP" else ""
    if login.refresh_token is not None:
        return f"when the authorization server ends it{bound}"
    if login.expires_at is None:
        return f"not stated{bound}"
    left = login.expires_at - time.time()
    if left <= 0:
        return f"has expired: mcpd login {login.url}"
    return f"in {round(left / 60) or 1} min{bound}"


def _oauth(**options: Any) -> OAuth:
    try:
        from mcpd.client.auth import logins  # noqa: F401 - its imports may be missing
        from mcpd.client.auth.settings import OAuth
    except ModuleNotFoundError as error:
        raise missing_extra(error, "logging in", "client") from None
    return OAuth(**options)


def _url_target(server: ServerOptions) -> UrlTarget:
    # Only a server behind a URL has logins.
    from mcpd.client.targets.named import UrlTarget

    found = resolve_target(server)
    if not isinstance(found, UrlTarget):
        raise WrongUse(f"{printable(server.target or '', 200)} is a program; only servers at URLs have logins")
    return found


@click.command("add-user", context_settings={"max_content_width": 110})
@click.argument("name")
@click.option("--file", "path", default="users.toml", metavar="FILE", help="Write to FILE. Default: users.toml.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="Allow this scope to the user. Can be repeated. Default: all scopes.",
)
def _add_user(name: str, path: str, scopes: tuple[str, ...]) -> None:
    """Add a user to a file of users, and ask for the password.

    If the user exists, the password is replaced, and the scopes too if --scope is given. If stdin is a pipe, its first
    line is the password. The file contains hashes, and only its owner can read it.

    \b
    Exit codes: 0 written, 1 cannot be written, 2 wrong use.
    """
    from mcpd.auth.server.settings import add_user, is_user_name

    if not is_user_name(name):
        raise ConfigurationError(f"{name!r} is not a user name: use up to 64 letters, digits and ._@+-")
    if sys.stdin is not None and sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = "" if sys.stdin is None else sys.stdin.readline().rstrip("\r\n")
    if len(password) < _LEAST_PASSWORD_CHARACTERS:
        raise ConfigurationError(f"the password must have at least {_LEAST_PASSWORD_CHARACTERS} characters")

    existed = add_user(path, name, password, scopes or None)
    click.echo(f"{name} {'has a new password' if existed else 'may log in'} ({path})", err=True)


auth_command = click.Group(
    "auth",
    help="Manage the users who may log in at a server that is served with --auth-server.",
    commands=[_add_user],
    context_settings={"max_content_width": 110},
)
