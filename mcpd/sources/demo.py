"""The demo server: the server of `mcpd serve --demo`. It is read-only and safe to leave running."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct, to_builtins

from mcpd import __version__
from mcpd.errors import ResourceNotFound
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.server import Server
from mcpd.server.context.context import Context
from mcpd.server.extensions.ui.constants import AppsMode
from mcpd.server.extensions.ui.results import ViewResult, view_result

_READ_ONLY = {"readOnlyHint": True, "openWorldHint": False}

# The app that shows what a host supports. It is in the repository but not in the installed package.
_DIAGNOSTICS = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "diagnostics")

_WELCOME = """# mcpd demo server

This is the demo server of mcpd. To serve your own server, name its file:

    mcpd serve --stdio my_server.py

with this content of my_server.py:

    from mcpd import Server

    server = Server("my-server")

    @server.tool
    def greet(name: str) -> str:
        "Greet somebody."
        return f"Hello, {name}!"
"""

# A blue dot, 8 by 8 pixels.
_DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000008000000080806000000c40fbe8b000000254944415478da636040028a"
    "c9afff8330033a8049a063e214e092842b22a880723710f22600dee66ae9f119af940000000049454e44ae426082"
)


class ServerInfo(Struct, rename="camel"):
    """The result of the tool `server_info`."""

    name: str
    version: str
    python_version: str
    platform: str
    protocol_version: str
    supported_versions: list[str]
    client: str | None
    uptime_seconds: float
    apps: bool


def make_server(apps: AppsMode = "auto") -> Server:
    server = Server(
        "mcpd",
        version=__version__,
        title="mcpd demo server",
        description="The demo server of mcpd, for trying out a host",
        instructions="A demo server with a few harmless tools. Read mcpd://welcome to replace it with your own.",
        apps=apps,
    )
    started = time.monotonic()

    def info(ctx: Context) -> ServerInfo:
        client = ctx.client_info
        return ServerInfo(
            name=server.name,
            version=__version__,
            python_version=".".join(map(str, sys.version_info[:3])),
            platform=sys.platform,
            protocol_version=ctx.protocol_version,
            supported_versions=list(SUPPORTED),
            client=f"{client.name} {client.version}" if client else None,
            uptime_seconds=round(time.monotonic() - started, 3),
            apps=server.has_apps(ctx),
        )

    _add_tools(server, info)
    _add_resources(server)
    _add_diagnostics(server, info)
    return server


def _add_tools(server: Server, info: Callable[[Context], ServerInfo]) -> None:
    @server.tool(title="Echo", annotations={**_READ_ONLY, "idempotentHint": True})
    async def echo(text: Annotated[str, Meta(description="What to send back.")]) -> str:
        """Send the text back."""
        return text

    @server.tool(title="Add", annotations={**_READ_ONLY, "idempotentHint": True})
    async def add(
        a: Annotated[float, Meta(description="The first number.")],
        b: Annotated[float, Meta(description="The second number.")],
    ) -> float:
        """Add two numbers."""
        return a + b

    @server.tool(title="Server information", annotations=_READ_ONLY)
    async def server_info(ctx: Context) -> ServerInfo:
        """Show which server this is and which protocol version it uses with you."""
        return info(ctx)

    @server.tool(title="Count slowly", annotations=_READ_ONLY)
    async def count_slowly(
        ctx: Context,
        steps: Annotated[int, Meta(ge=1, le=100, description="How far to count.")] = 5,
        seconds: Annotated[float, Meta(ge=0, le=60, description="Pause between two steps.")] = 0.5,
    ) -> str:
        """Count up and report progress at every step. The call can be cancelled."""
        for step in range(1, steps + 1):
            await asyncio.sleep(seconds)
            await ctx.progress(step, total=steps, message=f"step {step} of {steps}")
        return f"Counted to {steps}"


def _add_resources(server: Server) -> None:
    server.add_text("mcpd://welcome", _WELCOME, name="welcome", mime_type="text/markdown")
    server.add_text("mcpd://dot.png", _DOT, name="dot", mime_type="image/png")

    @server.resource("mcpd://greeting/{name}", name="greeting", mime_type="text/plain")
    async def greeting(name: str) -> str:
        """A greeting for the name in the URI."""
        if not name.strip():
            raise ResourceNotFound(f"mcpd://greeting/{name}")
        return f"Hello, {name}!"


def _add_diagnostics(server: Server, info: Callable[[Context], ServerInfo]) -> None:
    if not os.path.isdir(_DIAGNOSTICS):
        return
    server.add_apps(_DIAGNOSTICS, "mcpd")

    @server.tool(title="Apps diagnostics", annotations=_READ_ONLY, ui="ui://mcpd/apps_diagnostics")
    async def apps_diagnostics(
        ctx: Context, note: Annotated[str, Meta(description="Any text; the app shows that it arrived.")] = ""
    ) -> ViewResult:
        """Show what this host supports of MCP Apps. Hosts without MCP Apps get text about the server."""
        found = info(ctx)
        lines = [
            f"mcpd {found.version} on Python {found.python_version} ({found.platform})",
            f"You are {found.client or 'a client without a name'} and use MCP {found.protocol_version}.",
            "MCP Apps are enabled: your host now shows the diagnostics."
            if found.apps
            else "Your host does not support MCP Apps, so only this text is shown.",
        ]
        if note:
            lines.append(f"Note: {note}")
        # The app reports which of these did not arrive: some hosts drop one of them.
        channels = ["content", "structuredContent", "_meta"]
        data = {**to_builtins(found), "note": note, "channels": channels}
        return view_result("\n".join(lines), data, meta={"mcpd/channels": channels})
