"""A list of tools, resources or prompts, from all its pages: as much of it as `ClientLimits` lets a server give.

Spec: 2026-07-28 server/utilities/pagination.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Raw, ValidationError
from msgspec.json import Decoder

from mcpd.client.faults import Faults
from mcpd.client.limits import ClientLimits
from mcpd.errors import ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable

T = TypeVar("T")

_COMMAS = 10
"""A page with so many times more commas than a list may have entries is not taken apart: that costs fifty times it."""

_read_page = Decoder(dict[str, Raw]).decode
_entries = Decoder(list[Raw]).decode
_any = Decoder().decode


async def read_list(
    request: Callable[[Any], Awaitable[Raw]],
    method: str,
    member: str,
    kind: type[T],
    limits: ClientLimits,
    faults: Faults,
    all_entries: list[Raw] | None = None,
) -> list[T]:
    """Every page of a list. Entries that cannot be read are left out, and logged in one line: they spoil no list.

    `all_entries` is filled with those that were listed, as they were written.
    Raises ProtocolError for a list that is larger than the limits, or never ends, and what `request` raises.
    """
    decode_entry = Decoder(kind).decode
    decode_loosely = Decoder(kind, strict=False).decode  # takes "true" for true, as the official clients do
    found: list[T] = []
    bad, why, size = 0, "", 0
    cursor: str | None = None
    entries: list[Raw] = []
    seen: set[str] = set()

    for _ in range(limits.list_pages):
        raw = await request(None if cursor is None else {"cursor": cursor})
        size += len(raw)
        if size > limits.list_bytes:
            raise _too_large(method, f"{limits.list_bytes} bytes", "list_bytes")
        asked, before = cursor, entries
        entries, cursor = _page(method, member, raw, limits)
        if asked == cursor == "" and list(map(bytes, entries)) == list(map(bytes, before)):
            cursor, entries = None, []  # a server that means the end by an empty cursor, and gives its one page again
        if all_entries is not None:
            all_entries += entries
        if len(found) + bad + len(entries) > limits.list_entries:
            raise _too_large(method, f"{limits.list_entries} entries", "list_entries")

        for entry in entries:
            try:
                try:
                    found.append(decode_entry(entry))
                except ValidationError:
                    found.append(decode_loosely(entry))
            except MALFORMED as error:
                bad += 1
                why = why or explain(error)

        if cursor is None:
            if bad:
                text = "%s: %d entries that cannot be read are left out of %d; of the first: %s"
                faults.say(logging.WARNING, text, printable(method), bad, bad + len(found), printable(why))
            return found
        if cursor in seen:
            raise ProtocolError(f"{method}: the server gives the same page again, so that its list would never end")
        seen.add(cursor)

    raise _too_large(method, f"{limits.list_pages} pages", "list_pages")


def _page(method: str, member: str, raw: Raw, limits: ClientLimits) -> tuple[list[Raw], str | None]:
    """The entries of one page, and the cursor of the next."""
    try:
        page = _read_page(raw)
        listed = page.get(member, Raw(b"null"))
        if bytes(listed).count(b",") > _COMMAS * limits.list_entries:
            raise _too_large(method, f"{limits.list_entries} entries", "list_entries")
        following = page.get("nextCursor")
        cursor = None if following is None else _any(following)
        return _entries(listed), cursor if isinstance(cursor, str) else None
    except MALFORMED as error:
        raise ProtocolError(f"The server's answer to {method} cannot be read: {explain(error)}") from None


def _too_large(method: str, much: str, limit: str) -> ProtocolError:
    return ProtocolError(f"{method}: the server's list has more than {much} (ClientLimits.{limit})")
