"""Tries a server behind a URL with the client of mcpd."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins
from msgspec.json import decode

from mcpd.apps.tool_metadata import OFFER
from mcpd.cli.doctor.dialogue import Answer, NoAnswer, has_handshake
from mcpd.cli.doctor.offers import examine_offers, report_extensions, report_identity
from mcpd.cli.doctor.report import Report
from mcpd.client import Client
from mcpd.client.targets.named import UrlTarget
from mcpd.errors import McpdError, RemoteError
from mcpd.protocol.printable import printable


class ClientPeer:
    """A client as a `Peer`: error responses are answers; after any other failure there are none."""

    def __init__(self, client: Client, timeout: float) -> None:
        self._client = client
        self._timeout = timeout

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Answer:
        """Send a request, and wait for its response. Raises NoAnswer."""
        began = time.monotonic()
        try:
            result = await self._client.request(method, params)
        except RemoteError as error:
            return Answer(time.monotonic() - began, error=f"error {error.code}: {error}", code=error.code)
        except (McpdError, TimeoutError) as error:
            raise NoAnswer(f"did not answer {method}: {printable(error, 300)}") from None
        found = decode(result)
        return Answer(time.monotonic() - began, found if isinstance(found, dict) else None, size=len(result))


async def try_client(target: UrlTarget, report: Report, timeout: float) -> None:
    """Connect with the client of mcpd, and examine the server's tools, resources and prompts."""
    began = time.monotonic()
    client = Client(target, extensions=OFFER, timeout=timeout)
    try:
        await client.open()
    except (McpdError, TimeoutError) as error:
        text = f"no conversation: {printable(error, 500)}"
        advice = "look into the server's log; mcpd ping has more options for a connection"
        if target.url.startswith("ws") and getattr(error, "status", None) in (400, 404, 405, 426, 501):
            advice = (
                f"is the path right, and is it a WebSocket? If the server speaks HTTP there, write http{target.url[2:]}"
            )
        report.fail("conversation", text, advice)
        return
    try:
        report.ok("conversation", f"begun, in version {client.version}", seconds=time.monotonic() - began)
        opening = {
            "capabilities": to_builtins(client.server_capabilities),
            "instructions": client.instructions,
            "serverInfo": None if client.server_info is None else to_builtins(client.server_info),
        }
        report_identity(opening, report)
        report_extensions([opening["capabilities"]], report)
        peer = ClientPeer(client, timeout)
        await examine_offers(peer, opening, report, any_output=not has_handshake(client.version))
    finally:
        await client.aclose()
