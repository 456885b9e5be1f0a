"""A stream that is resumed on another node than its own: there it is followed, as long as its node lives.

A stream that lost its connection is written to a log on the backplane, what was kept of it and what comes; with its
node gone, that is what is left. One that has its connection writes none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any

from msgspec import DecodeError
from msgspec.msgpack import Decoder, Encoder

from mcpd.backplane.base import BackplaneAway
from mcpd.backplane.node import Node
from mcpd.http.core import Core
from mcpd.http.event_stream import EventStreamResponse
from mcpd.http.http_session import HttpSession
from mcpd.http.request import HttpRequest
from mcpd.http.resumable_streams import ResumableStream

_MOST_BYTES = 4 * 1024 * 1024
"""An event that is larger is to be had on its own node only."""
_LOG_LIFE = 600.0
_ANSWER = 2.0
_RENEW = 1.0
_MANY = 16
_FORGET = 5.0
"""A follower that was not heard of for so many seconds is none any more."""

_Events = list[tuple[int, bytes]]


class Following:
    """Both ends of it, for one application."""

    def __init__(self, core: Core, node: Node, by_uid: Mapping[str, HttpSession]) -> None:
        self._core = core
        self._node = node
        self._by_uid = by_uid
        self._followed: dict[str, Followed] = {}
        node.on("follow", self._on_follow)
        node.on("events", self._on_events)

    # -- the node that has the stream --------------------------------------------------------

    def keep_log(self, session: HttpSession) -> Callable[[ResumableStream], None]:
        """What is to be called with a stream of this session that lost its connection."""

        def lost(stream: ResumableStream) -> None:
            relay = self._relay(session, stream)
            if not relay.is_logging:
                relay.is_logging = True
                self._node.post(relay.log_kept(stream))

        return lost

    def _relay(self, session: HttpSession, stream: ResumableStream) -> _Relay:
        if not isinstance(stream.relay, _Relay):
            assert session.sealed is not None
            settings = self._core.settings
            stream.relay = _Relay(
                self._node,
                _log_name(session.sealed.uid, self._node.id, stream.number),
                settings.max_stored_events,
                settings.max_stored_bytes,
            )
        return stream.relay

    def _on_follow(self, sender: str, body: list[Any]) -> None:
        follower, uid, number, after = body
        session = self._by_uid.get(uid)
        stream = None if session is None else session.streams.get(number)
        if session is None or stream is None:
            self._node.post(self._node.tell(sender, "events", follower, [], True))
            return
        relay = self._relay(session, stream)
        if relay.renew(follower):
            return
        self._node.post(self._catch_up(sender, follower, stream, relay, after))

    async def _catch_up(self, sender: str, follower: str, stream: ResumableStream, relay: _Relay, after: int) -> None:
        missed = await stream.numbered_since(after) or []
        # From here on without a pause: what comes next goes to the follower by itself.
        earlier, stream.response = stream.response, None
        if earlier is not None:
            self._core.spawn(earlier.end())  # its client has come back elsewhere
        if not stream.is_complete:
            relay.follow(follower, sender)
        await self._node.tell(sender, "events", follower, _small(missed), stream.is_complete)

    # -- the node that the client came to ----------------------------------------------------

    def _on_events(self, _: str, body: list[Any]) -> None:
        follower, events, is_over = body
        followed = self._followed.get(follower)
        if followed is not None:
            followed.came.put_nowait(([(number, data) for number, data in events], is_over))

    async def begin(self, session: HttpSession, owner: str, number: int, after: int) -> Followed:
        """What of a stream of `owner` follows that event, as far as is known now. Raises BackplaneAway."""
        assert session.sealed is not None
        followed = Followed(self._node, session.sealed.uid, owner, number, after)
        self._followed[followed.id] = followed
        try:
            await followed.begin()
        except BaseException:
            self.end(followed)
            raise
        return followed

    def end(self, followed: Followed) -> None:
        """Follow no more."""
        self._followed.pop(followed.id, None)

    async def serve(self, request: HttpRequest, followed: Followed, missed: bytes) -> None:
        """Answer a GET with what was missed of a stream and what comes, to its end or the client's."""
        response = EventStreamResponse(request, self._core.settings.write_timeout)
        response.push(missed)
        self._core.keep_alive.add(response)
        leaving = asyncio.ensure_future(_disconnected(request))
        try:
            while not (followed.is_over or leaving.done()):
                coming = asyncio.ensure_future(followed.wait())
                await asyncio.wait([coming, leaving], return_when=asyncio.FIRST_COMPLETED)
                coming.cancel()
                await asyncio.wait([coming])
                response.push(followed.take())
            if followed.is_over:
                await response.end()
        finally:
            leaving.cancel()
            response.close()
            self._core.keep_alive.discard(response)
            self.end(followed)


class Followed:
    """A stream of another node. `is_over`: no more will come of it."""

    def __init__(self, node: Node, uid: str, owner: str, number: int, after: int) -> None:
        self.id = token_hex(6)
        self.came: asyncio.Queue[tuple[_Events, bool]] = asyncio.Queue()
        self.is_over = False
        self._node = node
        self._uid = uid
        self._owner = owner
        self._number = number
        self._last = after
        self._ready: list[bytes] = []

    def take(self) -> bytes:
        """What has come since the last time."""
        ready, self._ready = self._ready, []
        return b"".join(ready)

    async def begin(self) -> None:
        """Ask its node; if that is gone, the log."""
        if not await self._ask():
            await self._read_log()
            return
        try:
            async with asyncio.timeout(_ANSWER):
                self._add(*await self.came.get())
        except TimeoutError:
            await self._read_log()
            return
        if self.is_over:
            await self._read_log()  # its node may have forgotten what it wrote there

    async def wait(self) -> None:
        """Wait for what comes next, or for the end of it."""
        try:
            async with asyncio.timeout(_RENEW):
                self._add(*await self.came.get())
        except TimeoutError:
            try:
                if not await self._ask():
                    await self._read_log()
            except BackplaneAway:
                self.is_over = True  # the client comes back

    async def _ask(self) -> int:
        return await self._node.tell(self._owner, "follow", self.id, self._uid, self._number, self._last)

    def _add(self, events: _Events, is_over: bool) -> None:
        for number, data in events:
            if number > self._last:
                self._last = number
                self._ready.append(data)
        self.is_over |= is_over

    async def _read_log(self) -> None:
        """What its node has left, and no more will come."""
        entries = await self._node.backplane.read(_log_name(self._uid, self._owner, self._number))
        self._add(sorted(event for _, entry in entries for event in _events_of(entry)), True)


class _Relay:
    """Where the events of one stream go beside its own connection.

    Its log has the newest of them, at most so many and so many bytes; the last one whatever its size.
    """

    def __init__(self, node: Node, log_name: str, most_events: int, most_bytes: int) -> None:
        self.is_logging = False
        self._node = node
        self._log_name = log_name
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._sizes: deque[int] = deque()
        """Of what is in the log."""
        self._bytes = 0
        self._followers: dict[str, tuple[str, float]] = {}

    def follow(self, follower: str, where: str) -> None:
        """Tell this one too."""
        now = asyncio.get_running_loop().time()
        if follower not in self._followers and len(self._followers) >= _MANY:
            self._followers = {each: found for each, found in self._followers.items() if found[1] >= now}
        self._followers[follower] = where, now + _FORGET

    def renew(self, follower: str) -> bool:
        """It goes on following; False if it does not yet."""
        if follower not in self._followers:
            return False
        self.follow(follower, self._followers[follower][0])
        return True

    def add(self, number: int, data: bytes) -> None:
        """See `Relay`."""
        events = _small([(number, data)])
        if self.is_logging and events:
            self._node.post(self._append(events))
        self._tell(events, is_over=False)

    def end(self) -> None:
        """See `Relay`."""
        self._tell([], is_over=True)
        self._followers.clear()

    async def log_kept(self, stream: ResumableStream) -> None:
        """Write what there is."""
        events = _small(await stream.numbered_since(1) or [])
        if events:
            await self._append(events)

    async def _append(self, events: _Events) -> None:
        entries = [_encode(event) for event in events]
        self._sizes += map(len, entries)
        self._bytes += sum(map(len, entries))
        while len(self._sizes) > 1 and (len(self._sizes) > self._most_events or self._bytes > self._most_bytes):
            self._bytes -= self._sizes.popleft()
        await self._node.backplane.append(self._log_name, entries, len(self._sizes), _LOG_LIFE)

    def _tell(self, events: _Events, *, is_over: bool) -> None:
        now = asyncio.get_running_loop().time()
        for follower, (where, end) in list(self._followers.items()):
            if end < now:
                del self._followers[follower]
            else:
                self._node.post(self._node.tell(where, "events", follower, events, is_over))


async def _disconnected(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _log_name(uid: str, node: str, number: int) -> str:
    return f"{{s:{uid}}}:e:{node}.{number}"


def _small(events: _Events) -> _Events:
    return [(number, data) for number, data in events if len(data) <= _MOST_BYTES]


def _events_of(entry: bytes) -> _Events:
    try:
        return [_decode(entry)]
    except DecodeError:
        return []  # of another version of this program


_encode = Encoder().encode
_decode = Decoder(tuple[int, bytes]).decode
