"""A conversation with a server behind a URL, as a client of ours has it, and what the server offers there."""

from __future__ import annotations

import time

from msgspec import to_builtins

from mcpd.apps.tool_metadata import OFFER
from mcpd.client import Client
from mcpd.client.targets.named import UrlTarget
from mcpd.doctor.client_peer import ClientPeer
from mcpd.doctor.dialogue import has_handshake
from mcpd.doctor.offers import look_at_offers, say_extensions, say_who_it_is
from mcpd.doctor.report import Report
from mcpd.errors import McpdError
from mcpd.protocol.printable import printable


async def try_client(target: UrlTarget, report: Report, timeout: float) -> None:
    """Connect as a client of ours does, and look at what the server offers."""
    began = time.monotonic()
    client = Client(target, extensions=OFFER, timeout=timeout)
    try:
        await client.open()
    except (McpdError, TimeoutError) as error:
        text = f"no conversation: {printable(error, 500)}"
        advice = "see what it writes to its log; mcpd ping says more with other options"
        if target.url.startswith("ws") and getattr(error, "status", None) in (400, 404, 405, 426, 501):
            advice = f"is the path right, and is it a WebSocket? If it speaks HTTP there, write http{target.url[2:]}"
        report.fail("conversation", text, advice)
        return
    try:
        report.ok("conversation", f"begun, in version {client.version}", seconds=time.monotonic() - began)
        opening = {
            "capabilities": to_builtins(client.server_capabilities),
            "instructions": client.instructions,
        }
        say_who_it_is(opening, None if client.server_info is None else to_builtins(client.server_info), report)
        say_extensions([opening["capabilities"]], report)
        peer = ClientPeer(client, timeout)
        await look_at_offers(peer, opening, report, any_output=not has_handshake(client.version))
    finally:
        await client.aclose()
