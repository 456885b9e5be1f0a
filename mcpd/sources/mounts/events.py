"""The events of a mounted server as events of this one.

Each type is offered under the prefix of its mount, by every delivery of this server. New events are polled from the
mounted server, once for all subscribers of a user with the same arguments; the cursors of clients are its cursors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.json import Decoder, decode
from msgspec.structs import replace

from mcpd.errors import InvalidParams, ProtocolError, RemoteError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.types.events import EventType, PollResult
from mcpd.server.extensions.events.declare import Batch, Found
from mcpd.server.extensions.events.wire import Forbidden, NotFound
from .entries import valid_entries

if TYPE_CHECKING:
    from mcpd.protocol.principal import Principal
    from mcpd.server import Server
    from .upstream import Upstream

_EVERY_SECONDS = 5.0
_MOST_EVENTS = 500
_NOT_FOUND, _FORBIDDEN = (-32023, -32011), (-32024, -32012)

_read_poll = Decoder(PollResult, strict=False).decode


def offer_events(server: Server, upstream: Upstream, is_mounted: bool) -> None:
    """Offer the types of events that a mounted server lists now; none if it `is_mounted` no more."""
    settings = upstream.settings
    found: dict[str, EventType] = {}
    # For a mount with the logins of users, nobody could be asked on behalf of a user who is away.
    if is_mounted and settings.identity == "proxy":
        for _, kind in valid_entries(upstream, "events/list"):
            if "poll" in kind.delivery and settings.allows(kind.name):
                found[kind.name] = replace(kind, name=upstream.prefix.name(kind.name))

    before, upstream.events = upstream.events, found
    for own, kind in before.items():
        if own not in found:
            server.remove_event(kind.name)
    for own, kind in found.items():
        if before.get(own) != kind:
            server._events.add_remote(kind, _Remote(upstream, own), every=_EVERY_SECONDS)


class _Remote:
    # Asks a mounted server for the events of one type.
    def __init__(self, upstream: Upstream, name: str) -> None:
        self._upstream = upstream
        self._name = name

    async def __call__(
        self, arguments: Mapping[str, Any], cursor: str | None, user: Principal, most: int
    ) -> Batch[Any]:
        params = {"name": self._name, "arguments": arguments, "cursor": cursor, "maxEvents": min(most, _MOST_EVENTS)}
        upstream = self._upstream
        connection = await upstream.connection()
        connection.calls += 1
        try:
            raw = await connection.client.request("events/poll", params, timeout=upstream.settings.start_timeout)
            result = _read_poll(raw)
        except RemoteError as error:
            if error.code == InvalidParams.code:
                raise InvalidParams(upstream.masked(error.message)) from None
            if error.code in _FORBIDDEN:
                raise Forbidden() from None
            raise NotFound("event") if error.code in _NOT_FOUND else error from None
        except MALFORMED as error:
            text = f"mount {upstream.name!r}: its response to events/poll is invalid: {explain(error)}"
            raise ProtocolError(text) from None
        finally:
            connection.calls -= 1
            connection.used_at = asyncio.get_running_loop().time()
            upstream.release(connection)

        events = [Found(decode(each.data), id=each.event_id, timestamp=each.timestamp) for each in result.events]
        return Batch(events=events, cursor=result.cursor, has_more=result.has_more, truncated=result.truncated)
