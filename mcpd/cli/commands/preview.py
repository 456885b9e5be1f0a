"""`mcpd preview`: serves a page on this machine that shows a server, with its apps as a strict host shows them."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import click

from mcpd.cli.client_options import client_command, server_options
from mcpd.cli.talk.connecting import ServerOptions, resolve_target, run, without_secrets
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.protocol.printable import printable

_SYSTEM: str = sys.platform

_PREVIEW_HELP = """Open a page in the browser that shows everything a server offers, until Ctrl-C.

The page has a form for each tool. It shows apps (MCP Apps) as a strict host does, each on its own origin, and reports
what their content security policy blocks. It lists all messages of server, host and apps, and it can imitate the faults
of other hosts. If you edit the files of your server meanwhile, the page is updated.

\b
  mcpd preview server.py
  mcpd preview https://host/mcp -H 'X-Key: …'
  mcpd preview -- npx -y @modelcontextprotocol/server-budget-allocator --stdio

The page is served on this machine only, and requires the token in the printed address.
"""

_PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboard-write": "clipboardWrite",
}


@client_command(
    "preview",
    _PREVIEW_HELP,
    click.Argument(["target"], required=False),
    click.Option(
        ["--port"],
        type=click.IntRange(0, 65535),
        default=0,
        metavar="PORT",
        help="Serve the page on this port. Default: any free port.",
    ),
    click.Option(["--no-open"], is_flag=True, help="Print the address of the page, and do not open a browser."),
    click.Option(
        ["--profile"],
        type=click.Choice(["strict", "compat", "opaque"]),
        default="strict",
        help="Isolate apps as the specification says (strict), as loosely as the official example host (compat), or "
        "strictly and without an origin of their own (opaque). The page can change this. Default: strict.",
    ),
    click.Option(
        ["--allow"],
        metavar="NAME,…",
        default="",
        help=f"Grant these permissions to apps that request them: {', '.join(_PERMISSIONS)}. The page can grant more. "
        "Default: none.",
    ),
)
def preview_command(
    target: str | None,
    command: tuple[str, ...],
    port: int,
    no_open: bool,
    profile: Any,
    allow: str,
    **shared: Any,
) -> int:
    server = server_options(target, command, shared)
    names = [name.strip() for name in allow.split(",") if name.strip()]
    for name in names:
        if name not in _PERMISSIONS:
            raise WrongUse(f"--allow {printable(name, 40)}: the permissions are {', '.join(_PERMISSIONS)}")
    permissions = tuple(_PERMISSIONS[name] for name in names)

    def work(terminal: Terminal) -> Any:
        return _preview(terminal, server, port, profile, permissions, opens=not no_open)

    return run(work, server)


async def _preview(
    terminal: Terminal, server: ServerOptions, port: int, profile: Any, permissions: tuple[str, ...], *, opens: bool
) -> int:
    """Serve the page until the command is stopped."""
    found = resolve_target(server)
    from mcpd.apps.preview.preview import Preview
    from mcpd.apps.preview.session import SessionOptions

    options = SessionOptions(
        target=found,
        name=without_secrets(str(found)),
        version=server.version,
        timeout=server.timeout,
        profile=profile,
        permissions=permissions,
    )
    async with Preview(options, port=port) as preview:
        resolves = _resolves_localhost_names()
        url = preview.url if resolves else preview.plain_url
        terminal.out(url)
        terminal.note(f"mcpd: a preview of {printable(options.name, 300)}; press Ctrl-C to stop it", "dim")
        if resolves:
            terminal.note(f"mcpd: if the browser does not find the page, use {preview.plain_url}", "dim")
        if opens and not await _open(url):
            terminal.note("mcpd: no browser could be opened; open the address yourself", "dim")
        await asyncio.Event().wait()
    return 0


def _resolves_localhost_names() -> bool:
    """Whether the browser resolves names such as mcpd.localhost. Safari relies on the system for that."""
    if _SYSTEM != "darwin":
        return True
    import socket

    try:
        socket.getaddrinfo("mcpd.localhost", 80)
    except OSError:
        return False
    return True


async def _open(url: str) -> bool:
    """Open the user's browser, unless there is no screen. Returns whether one was opened."""
    if _SYSTEM not in ("darwin", "win32") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    import webbrowser

    return await asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)
