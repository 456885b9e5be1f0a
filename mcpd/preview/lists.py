"""The server's lists from all their pages, each entry as it came."""

from __future__ import annotations

from typing import Any

from msgspec import Raw
from msgspec.json import decode

from mcpd.client import Client
from mcpd.errors import ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED, explain

MOST_PAGES = 1000


async def read_all(client: Client, method: str, member: str) -> list[Raw]:
    """All entries of a list. Raises what the client does, ProtocolError for an answer that is none."""
    entries: list[Raw] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        raw = await client.request(method, None if cursor is None else {"cursor": cursor})
        try:
            page: dict[str, Raw] = decode(raw, type=dict[str, Raw])
            entries += decode(page[member], type=list[Raw])
            after: Any = decode(page["nextCursor"]) if "nextCursor" in page else None
        except (KeyError, *MALFORMED) as error:
            raise ProtocolError(f"The answer to {method} cannot be read: {explain(error)}") from None
        if not isinstance(after, str) or after == cursor:
            break
        cursor = after

    return entries
