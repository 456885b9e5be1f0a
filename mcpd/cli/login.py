"""`mcpd login`: log in to a server, once, for all commands and programs of this user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

from mcpd.cli.client_options import json_option
from mcpd.cli.talk.logins import lasts, oauth, show_logins, url_target
from mcpd.cli.talk.reach import Reach, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client.auth.run import UserInteraction
    from mcpd.client.auth.settings import OAuth
    from mcpd.client.targets.named import UrlTarget

_HELP = """Log in to a server behind a URL, in a browser. The login is kept for `mcpd list URL` and all other commands,
and for `Client(URL)` in programs, until `mcpd logout URL`.

\b
  mcpd login https://example.com/mcp
  mcpd login --no-browser https://example.com/mcp    over SSH: prints the address, takes what the browser ends at
  mcpd login --device https://example.com/mcp        by a code that is typed on another device
  mcpd login --client-id ID https://example.com/mcp  where clients are registered by hand
"""

_EPILOG = "Exit codes: 0 logged in, 1 not, 2 wrong use, 130 Ctrl-C."


@click.command(
    "login",
    help=_HELP,
    epilog=_EPILOG,
    params=[
        click.Argument(["target"], required=False, metavar="URL"),
        click.Option(["--client-id"], metavar="ID", help="The client that is registered there."),
        click.Option(["--client-secret-file"], metavar="FILE", help="A file with its secret, if it has one."),
        click.Option(["--client-metadata"], metavar="URL", help="The client's metadata document, if it has one."),
        click.Option(["--scope", "scopes"], multiple=True, help="Ask for this right, not for what the server names. "
                     "Can be repeated."),
        click.Option(["--device"], is_flag=True, help="Log in by a code that is typed on another device."),
        click.Option(["--no-browser"], is_flag=True, help="Print the address, and take the one that the browser ends "
                     "at. So it is over SSH, and without a display."),
        click.Option(["--port"], type=click.IntRange(1, 65535), help="The port of this machine that the browser comes "
                     "back to, where one was registered."),
        click.Option(["--localhost"], is_flag=True, help="Let the browser come back to localhost instead of 127.0.0.1, "
                     "for providers that accept nothing else."),
        click.Option(["--dpop"], is_flag=True, help="Bind the tokens to a key of this machine."),
        click.Option(["--keyring"], is_flag=True, help="Keep the secrets of logins in the system's keyring."),
        click.Option(["--assume-pkce"], is_flag=True, help="Go on where the authorization server does not say that it "
                     "has PKCE: Microsoft Entra and Amazon Cognito have it."),
        click.Option(["--assume-issuer"], is_flag=True, help="Accept an issuer that differs by a slash at its end."),
        click.Option(["--allow-private"], is_flag=True, help="Log in at private addresses, though the server is not."),
        click.Option(["--list", "is_list"], is_flag=True, help="Show what logins there are, as mcpd whoami does."),
        json_option("With --list: print it as JSON."),
    ],
)  # fmt: skip
def command(
    target: str | None,
    client_id: str | None,
    client_secret_file: str | None,
    client_metadata: str | None,
    scopes: tuple[str, ...],
    device: bool,
    no_browser: bool,
    port: int | None,
    localhost: bool,
    dpop: bool,
    keyring: bool,
    assume_pkce: bool,
    assume_issuer: bool,
    allow_private: bool,
    is_list: bool,
    as_json: bool,
) -> int:
    reach = Reach(target=target, called="mcpd login")
    if is_list:
        return run(lambda terminal: show_logins(terminal, target, as_json=as_json), reach)
    if target is None:
        raise WrongUse("name the server: mcpd login URL; mcpd login --list shows where you are logged in")
    if client_secret_file is not None and client_id is None:
        raise WrongUse("--client-secret-file goes with --client-id")

    async def work(terminal: Terminal) -> int:
        settings = oauth(
            scopes=scopes or None,
            client_id=client_id,
            client_secret=None if client_secret_file is None else _secret(client_secret_file),
            client_metadata_url=client_metadata,
            device=device,
            dpop=dpop,
            assume_pkce=assume_pkce,
            assume_issuer=assume_issuer,
            allow_private=allow_private,
            redirect=f"http://{'localhost' if localhost else '127.0.0.1'}:{port or 0}/callback",
            store="keyring" if keyring else None,
        )
        return await _log_in(terminal, url_target(reach), settings, no_browser=no_browser)

    return run(work, reach)


def _secret(path: str) -> str:
    from mcpd.auth.settings import secret_in

    secret = secret_in(path, "--client-secret-file")
    if not secret or "\n" in secret:
        raise ConfigurationError(f"--client-secret-file {path}: a secret is one line")
    return secret


async def _log_in(terminal: Terminal, target: UrlTarget, settings: OAuth, *, no_browser: bool) -> int:
    from mcpd.client.auth.auth_option import login_file
    from mcpd.client.auth.logins import log_in

    found = await log_in(target, settings, _person(terminal, settings, no_browser=no_browser))
    if found is None:
        terminal.note(f"mcpd: {printable(target.url.partition('?')[0])} wants no login", "yellow")
        return 0
    terminal.out(f"logged in to {found.url} at {found.issuer}")
    if found.granted:
        terminal.out(f"  scopes   {' '.join(found.granted)}")
    terminal.out(f"  lasts    {lasts(found)}")
    where = f"the system's keyring, listed in {login_file()}" if settings.store == "keyring" else login_file()
    terminal.out(f"  kept in  {where}")
    return 0


def _person(terminal: Terminal, settings: OAuth, *, no_browser: bool) -> UserInteraction:
    """The user of this terminal: shown a page by a browser if there is one, else by its address."""
    from mcpd.client.auth.run import UserInteraction, has_browser, open_browser

    async def show(url: str) -> None:
        if not no_browser and has_browser() and await open_browser(url):
            terminal.note("mcpd: a browser was opened to log in; if you see none, visit", "dim")
            terminal.note(url)
        else:
            terminal.note("To log in, visit in a browser of any machine:\n")
            terminal.note(f"{url}\n")

    def show_code(url: str, code: str) -> None:
        terminal.note(f"To log in, visit {printable(url, 500)} and type the code {printable(code, 100)}", "bold")

    return UserInteraction(open_url=show, show_code=show_code, paste=_paste(terminal), redirect=settings.redirect)


def _paste(terminal: Terminal) -> Callable[[], Awaitable[str]]:
    """The address that the browser ended at, typed by the user: one on another machine finds nobody there."""

    async def paste() -> str:
        try:
            while True:
                prompt = "If it ends at an address that cannot be shown, paste that here: "
                line = await terminal.ask(prompt if terminal.err_is_terminal else "")
                if line is None:
                    break
                if "state=" in line:
                    return line
                if line:
                    terminal.note("mcpd: that is not it: the address has code= and state= in it", "yellow")
        except OSError:
            pass  # stdin is no terminal and no pipe: nothing can be waited for there
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    return paste
