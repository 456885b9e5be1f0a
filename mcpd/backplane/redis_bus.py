"""The bus of `redis://`: one connection that listens, kept by a loop of our own.

Redis-py would connect anew by itself, and nobody would hear of what was missed meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from mcpd.backplane.base import BackplaneAway, Receive
from mcpd.backplane.local_bus import LocalBus
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")

_QUIET = 1.5
"""After so many seconds without a word it is asked whether it is there, and given as long again."""
_CONFIRM = 2.5
_BACK_OFF = (0.1, 2.0)


class _OneConnection(PubSub):
    """Listens on one connection only: it makes no second one by itself, once something was heard on the first. The
    library has no option for that; `PubSub` and `on_connect` are names that it documents."""

    has_heard = False

    async def on_connect(self, connection: Any) -> None:
        if self.has_heard:
            raise BackplaneAway("the connection of the bus was lost")
        await super().on_connect(connection)


class RedisBus:
    """What this process listens to. `find` gives the client whose connection is used, anew after each loss, and when
    `has_moved` says that it would be another one now."""

    def __init__(self, find: Callable[[], Awaitable[Redis]], has_moved: Callable[[], Awaitable[bool]]) -> None:
        self.local = LocalBus()
        self._find = find
        self._has_moved = has_moved
        self._pubsub: _OneConnection | None = None
        self._client: Redis | None = None
        self._reader: asyncio.Task[None] | None = None
        self._confirmed: dict[str, asyncio.Future[None]] = {}

    async def subscribe(self, channel: str, receive: Receive) -> None:
        """Returns once Redis says so. Raises BackplaneAway; then it is subscribed once that is back."""
        self.local.add(channel, receive)
        loop = asyncio.get_running_loop()
        confirmed = self._confirmed.get(channel)
        if confirmed is None:
            confirmed = self._confirmed[channel] = loop.create_future()
            if self._reader is None:
                self._reader = loop.create_task(self._read_on(), name="mcpd-backplane-bus")
            elif self._pubsub is not None:
                await self._tell(self._pubsub.subscribe, channel)
        done, _ = await asyncio.wait([confirmed], timeout=_CONFIRM)
        if not done:
            raise BackplaneAway("the backplane is away")

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        """See `Backplane`."""
        if self.local.remove(channel, receive):
            self._confirmed.pop(channel, None)
            if self._pubsub is not None:
                await self._tell(self._pubsub.unsubscribe, channel)

    async def _tell(self, say: Callable[[str], Awaitable[Any]], channel: str) -> None:
        try:
            await say(channel)
        except (OSError, RedisError):
            pass  # the reader finds out by itself, and subscribes to all anew

    async def publish(self, channel: str, data: bytes) -> int:
        """By the client of the listening connection: for a cluster, where others would not know all who hear."""
        try:
            async with asyncio.timeout(_CONFIRM):
                client = self._client or await self._find()
                return int(await client.publish(channel, data))
        except (OSError, RedisError) as error:
            raise BackplaneAway(f"the backplane: {printable(error)}") from None

    async def aclose(self) -> None:
        """Stop listening. A later `subscribe` connects again."""
        self._confirmed.clear()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])

    # -- the loop ----------------------------------------------------------------------------

    async def _read_on(self) -> None:
        """Listen for ever; after a loss say that there is a gap, once all is subscribed again."""
        wait, is_first = _BACK_OFF[0], True
        while True:
            pubsub: _OneConnection | None = None
            try:
                async with asyncio.timeout(_CONFIRM):
                    self._client = await self._find()
                    pubsub = _OneConnection(self._client.connection_pool)
                    if self.local.channels:
                        await pubsub.subscribe(*self.local.channels)
                self._pubsub = pubsub
                await self._read(pubsub, is_first)
            except (OSError, RedisError) as error:
                log.debug("the bus of the backplane: %s", printable(error))
            finally:
                if self._pubsub is not None:
                    # There was a connection: what comes between now and the next one is missed.
                    is_first, wait = False, _BACK_OFF[0]
                self._pubsub = self._client = None
                if pubsub is not None:
                    await self._let_go(pubsub)
            await asyncio.sleep(wait)
            wait = min(wait * 2, _BACK_OFF[1])

    async def _let_go(self, pubsub: PubSub) -> None:
        try:
            await pubsub.aclose()  # type: ignore[no-untyped-call, unused-ignore]
        except (OSError, RedisError):
            pass

    async def _read(self, pubsub: _OneConnection, is_first: bool) -> None:
        """Hand on what comes. Raises OSError or RedisError when the connection is lost, or says nothing any more."""
        loop = asyncio.get_running_loop()
        awaited, look_at = set(self.local.channels), loop.time() + _QUIET
        is_asked = False
        while True:
            if not awaited and not is_first:
                is_first = True
                self.local.tell_gap()
            if loop.time() >= look_at:
                if await self._has_moved():
                    raise BackplaneAway("the bus is at another member now")
                look_at = loop.time() + _QUIET
            if not pubsub.subscribed:
                await asyncio.sleep(_QUIET)  # nobody listens to anything now
                continue
            message = await pubsub.get_message(ignore_subscribe_messages=False, timeout=_QUIET)
            if message is None:
                if is_asked:
                    raise BackplaneAway("it says nothing any more")
                is_asked = True
                await pubsub.ping()
                continue

            is_asked, pubsub.has_heard = False, True
            kind, channel = message["type"], _channel_name(message["channel"])
            if kind == "message":
                self.local.tell(channel, message["data"])
            elif kind == "subscribe":
                awaited.discard(channel)
                confirmed = self._confirmed.get(channel)
                if confirmed is not None and not confirmed.done():
                    confirmed.set_result(None)


def _channel_name(found: bytes | str | None) -> str:
    return found.decode() if isinstance(found, bytes) else found or ""
