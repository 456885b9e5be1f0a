"""`mcpd preview`: a page on this machine that shows what a server offers, with its apps as a strict host shows them."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import click

from mcpd.cli.client_options import client_command, reach_of
from mcpd.cli.talk.reach import Reach, named_target, run, without_secrets
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.protocol.printable import printable

_SYSTEM: str = sys.platform

_HELP = """Open a page in the browser with all that a server offers, until Ctrl-C.

Its tools can be called there, by forms that follow their schemas; apps (MCP Apps) are shown as a strict host shows
them, each on an origin of its own, with what their policy blocks named. All messages of server, host and apps are
listed, and what other hosts do wrong can be switched on. The files of a server of yours may be edited meanwhile: what
has changed is shown again.

\b
  mcpd preview server.py
  mcpd preview https://host/mcp -H 'X-Key: …'
  mcpd preview -- npx -y @modelcontextprotocol/server-budget-allocator --stdio

The page is for this machine and for who has the address that is printed, and nobody else.
"""

_PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboard-write": "clipboardWrite",
}


@client_command(
    "preview",
    _HELP,
    click.Argument(["target"], required=False),
    click.Option(
        ["--port"],
        type=click.IntRange(0, 65535),
        default=0,
        metavar="PORT",
        help="The port of the page; without it any that is free.",
    ),
    click.Option(["--no-open"], is_flag=True, help="Only print the page's address, and open no browser."),
    click.Option(
        ["--profile"],
        type=click.Choice(["strict", "compat", "opaque"]),
        default="strict",
        show_default=True,
        help="How apps are isolated: as the specification says, as laxly as the official example host, or strictly "
        "and without an origin of their own. The page can change it.",
    ),
    click.Option(
        ["--allow"],
        metavar="NAME,…",
        default="",
        help=f"What apps may use that ask for it: {', '.join(_PERMISSIONS)}. The page can allow more.",
    ),
)
def command(
    target: str | None,
    command: tuple[str, ...],
    port: int,
    no_open: bool,
    profile: Any,
    allow: str,
    **shared: Any,
) -> int:
    reach = reach_of(target, command, shared)
    names = [name.strip() for name in allow.split(",") if name.strip()]
    for name in names:
        if name not in _PERMISSIONS:
            raise WrongUse(f"--allow {printable(name, 40)}: there are {', '.join(_PERMISSIONS)}")
    permissions = tuple(_PERMISSIONS[name] for name in names)

    def work(terminal: Terminal) -> Any:
        return _preview(terminal, reach, port, profile, permissions, opens=not no_open)

    return run(work, reach)


async def _preview(
    terminal: Terminal, reach: Reach, port: int, profile: Any, permissions: tuple[str, ...], *, opens: bool
) -> int:
    """Serve the page until the command is ended."""
    found = named_target(reach)
    from mcpd.apps.preview.preview import Preview
    from mcpd.apps.preview.session import SessionOptions

    options = SessionOptions(
        target=found,
        name=without_secrets(str(found)),
        version=reach.version,
        timeout=reach.timeout,
        profile=profile,
        permissions=permissions,
    )
    async with Preview(options, port=port) as preview:
        is_plain = _finds_no_names()
        url, other = preview.url, preview.plain_url
        if is_plain:
            url, other = other, url

        terminal.out(url)
        note = f"mcpd: a preview of {printable(options.name, 300)}; Ctrl-C ends it"
        terminal.note(note, "dim")
        if not is_plain:
            terminal.note(f"mcpd: in a browser that does not find the page: {other}", "dim")
        if opens and not await _open(url):
            terminal.note("mcpd: no browser could be opened from here: open the address yourself", "dim")
        await asyncio.Event().wait()
    return 0


def _finds_no_names() -> bool:
    """Whether the browser that is opened may not find names under localhost: Safari asks the system."""
    if _SYSTEM != "darwin":
        return False
    import socket

    try:
        socket.getaddrinfo("mcpd.localhost", 80)
    except OSError:
        return True
    return False


async def _open(url: str) -> bool:
    """Open the user's browser, and say whether there was one; where there is no screen nothing is opened."""
    if _SYSTEM not in ("darwin", "win32") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    import webbrowser

    return await asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)
