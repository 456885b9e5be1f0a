"""Messages between the nodes of a service about its sessions, and streams that are resumed on another node.

Nodes forward messages for another node's GET stream, responses to another node's request, and cancellations, but never
a request. A stream that was resumed on another node is followed there as long as its own node lives. A stream without a
connection is also written to a log on the backplane, from which it is resumed after its node has crashed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import Any

from msgspec import DecodeError, Struct, field
from msgspec.msgpack import Decoder, Encoder

from mcpd.errors import ProtocolError
from mcpd.protocol.jsonrpc import (
    Batch,
    Failure,
    Message,
    Notification,
    Request,
    Response,
    Result,
    decode,
    encode,
    encode_message,
)
from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.backplane.node import Node, Sharing
from mcpd.transports.authentication import at_expiry
from .core import Core
from .event_stream import EventStreamResponse
from .http_session import HttpSession, Unavailable
from .request import HttpRequest, departed
from .resumable_streams import ResumableStream
from .sealed_sessions import SealedSessions

# Bytes of an event. A larger one can be resumed on its own node only.
_MOST_BYTES = 4 * 1024 * 1024
_LOG_LIFE = 600.0
_ANSWER = 2.0
_RENEW = 1.0
_MANY = 16
# Seconds after which a follower that has not renewed is dropped.
_FORGET = 5.0

_Events = list[tuple[int, bytes]]


class StreamFollower:
    """Streams that are resumed on another node than their own: both ends, for one application."""

    def __init__(self, core: Core, node: Node, by_uid: Mapping[str, HttpSession]) -> None:
        self._core = core
        self._node = node
        self._by_uid = by_uid
        self._followed: dict[str, FollowedStream] = {}
        node.on("follow", self._on_follow)
        node.on("events", self._on_events)

    # -- the node that has the stream --------------------------------------------------------

    def keep_log(self, session: HttpSession) -> Callable[[ResumableStream], None]:
        """Return the function to call when a stream of this session loses its connection."""

        def lost(stream: ResumableStream) -> None:
            relay = self._relay(session, stream)
            if not relay.is_logging:
                relay.is_logging = True
                self._node.post(relay.log_kept(stream))

        return lost

    def _relay(self, session: HttpSession, stream: ResumableStream) -> _Relay:
        if not isinstance(stream.relay, _Relay):
            settings = self._core.settings
            stream.relay = _Relay(
                self._node,
                _log_name(session.uid, self._node.id, stream.number),
                settings.max_stored_events,
                settings.max_stored_bytes,
            )
        return stream.relay

    def _on_follow(self, sender: str, body: list[Any]) -> None:
        follower, uid, number, after = body
        session = self._by_uid.get(uid)
        stream = None if session is None else session.streams.get(number)
        if session is None or stream is None:
            self._node.post(self._node.send(sender, "events", follower, [], True))
            return
        relay = self._relay(session, stream)
        if relay.renew(follower):
            return
        self._node.post(self._catch_up(sender, follower, stream, relay, after))

    async def _catch_up(self, sender: str, follower: str, stream: ResumableStream, relay: _Relay, after: int) -> None:
        missed = await stream.numbered_since(after) or []
        # No await from here on: later events go to the follower directly.
        earlier, stream.response = stream.response, None
        if earlier is not None:
            self._core.spawn(earlier.end())  # its client has returned on another node
        if not stream.is_complete:
            relay.follow(follower, sender)
        await self._node.send(sender, "events", follower, _small(missed), stream.is_complete)

    # -- the node on which the client resumes ------------------------------------------------

    def _on_events(self, _: str, body: list[Any]) -> None:
        follower, events, is_over = body
        followed = self._followed.get(follower)
        if followed is not None:
            followed.came.put_nowait(([(number, data) for number, data in events], is_over))

    async def begin(self, session: HttpSession, owner: str, number: int, after: int) -> FollowedStream:
        """Follow a stream of the node `owner` from an event on. Raises Unavailable."""
        followed = FollowedStream(self._node, session.uid, owner, number, after)
        self._followed[followed.id] = followed
        try:
            await followed.begin()
        except BaseException as error:
            self.end(followed)
            if isinstance(error, BackplaneAway):
                raise Unavailable("cannot reach the process that has this stream") from None
            raise

        return followed

    def end(self, followed: FollowedStream) -> None:
        """Stop following a stream."""
        self._followed.pop(followed.id, None)

    async def serve(self, request: HttpRequest, followed: FollowedStream, missed: bytes) -> None:
        """Answer a GET with the missed and the new events, until the stream ends or the client leaves."""
        response = EventStreamResponse(request, self._core.settings.write_timeout)
        response.push(missed)
        self._core.keep_alive.add(response)
        leaving = departed(request)
        expiry = at_expiry(request.user, lambda: self._core.spawn(response.end()))
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
            if expiry is not None:
                expiry.cancel()
            leaving.cancel()
            response.close()
            self._core.keep_alive.discard(response)
            self.end(followed)


class FollowedStream(Struct, eq=False):
    """A stream of another node. `is_over` is set when no more events follow."""

    _node: Node
    _uid: str
    _owner: str
    _number: int
    _last: int
    id: str = field(default_factory=partial(token_hex, 6))
    came: asyncio.Queue[tuple[_Events, bool]] = field(default_factory=asyncio.Queue)
    is_over: bool = False
    _ready: list[bytes] = []

    def take(self) -> bytes:
        """Return the events since the last call."""
        ready, self._ready = self._ready, []
        return b"".join(ready)

    async def begin(self) -> None:
        """Request the events from the stream's node; read the log if the node is gone."""
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
            await self._read_log()  # the log may have events that the node has dropped

    async def wait(self) -> None:
        """Wait for the next events, or for the end of the stream."""
        try:
            async with asyncio.timeout(_RENEW):
                self._add(*await self.came.get())
        except TimeoutError:
            try:
                if not await self._ask():
                    await self._read_log()
            except BackplaneAway:
                self.is_over = True  # the client will resume again

    async def _ask(self) -> int:
        return await self._node.send(self._owner, "follow", self.id, self._uid, self._number, self._last)

    def _add(self, events: _Events, is_over: bool) -> None:
        for number, data in events:
            if number > self._last:
                self._last = number
                self._ready.append(data)
        self.is_over |= is_over

    async def _read_log(self) -> None:
        # Read what the node has written before it ended; no more events follow.
        entries = await self._node.backplane.read(_log_name(self._uid, self._owner, self._number))
        self._add(sorted(event for _, entry in entries for event in _events_of(entry)), True)


class _Relay(Struct, eq=False):
    # Passes the events of one stream to other nodes, and to a log on the backplane.
    # The log has the newest events, limited by number and bytes; the last one whatever its size.
    _node: Node
    _log_name: str
    _most_events: int
    _most_bytes: int
    is_logging: bool = False
    # The sizes of the entries in the log.
    _sizes: deque[int] = field(default_factory=deque)
    _bytes: int = 0
    _followers: dict[str, tuple[str, float]] = {}

    def follow(self, follower: str, where: str) -> None:
        # Send events to a follower.
        now = asyncio.get_running_loop().time()
        if follower not in self._followers and len(self._followers) >= _MANY:
            self._followers = {each: found for each, found in self._followers.items() if found[1] >= now}
        self._followers[follower] = where, now + _FORGET

    def renew(self, follower: str) -> bool:
        # Extend the time of a follower. Returns False if it is unknown.
        if follower not in self._followers:
            return False
        self.follow(follower, self._followers[follower][0])
        return True

    def add(self, number: int, data: bytes) -> None:
        events = _small([(number, data)])
        if self.is_logging and events:
            self._node.post(self._append(events))
        self._send(events, is_over=False)

    def end(self) -> None:
        self._send([], is_over=True)
        self._followers.clear()

    @property
    def is_followed(self) -> bool:
        now = asyncio.get_running_loop().time()
        return any(end >= now for _, end in self._followers.values())

    async def log_kept(self, stream: ResumableStream) -> None:
        # Write the stored events to the log.
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

    def _send(self, events: _Events, *, is_over: bool) -> None:
        now = asyncio.get_running_loop().time()
        for follower, (where, end) in list(self._followers.items()):
            if end < now:
                del self._followers[follower]
            else:
                self._node.post(self._node.send(where, "events", follower, events, is_over))


def _log_name(uid: str, node: str, number: int) -> str:
    return f"{{s:{uid}}}:e:{node}.{number}"


def _small(events: _Events) -> _Events:
    return [(number, data) for number, data in events if len(data) <= _MOST_BYTES]


def _events_of(entry: bytes) -> _Events:
    try:
        return [_decode(entry)]
    except DecodeError:
        return []  # written by another version of mcpd


_encode = Encoder().encode
_decode = Decoder(tuple[int, bytes]).decode

# Every node receives these changes, so that the node with the newest GET stream sends them.
_SENT_BY_ALL = frozenset(
    (
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    )
)


class Nodes:
    """The other nodes, for the sessions of one application; `by_uid` are the sessions of this process."""

    def __init__(self, core: Core, sharing: Sharing, sealed: SealedSessions, by_uid: Mapping[str, HttpSession]) -> None:
        self._node: Node = sharing.node
        self._changes = sharing.changes
        self._sealed = sealed
        self._by_uid = by_uid
        self.following = StreamFollower(core, self._node, by_uid)
        self._node.on("deliver", self._on_deliver)
        self._node.on("answer", self._on_message)
        self._node.on("cancel", self._on_message)
        self._node.on_gap(self._gap)
        sealed.on_stream_node = self._on_stream_node

    def join(self, session: HttpSession) -> None:
        """Prepare a session for several nodes: the ids that it assigns begin with this node's id."""
        session.forward = self.send
        session.request_prefix = f"{self._node.id}."
        session.streams.node = self._node.id
        session.streams.on_lost = self.following.keep_log(session)

    def _gap(self) -> None:
        # Messages may have been lost: the end of a session, its settings, or the node of its GET stream.
        for session in list(self._by_uid.values()):
            session.is_doubtful = True
            if session.listening:
                self.listen(session)

    # -- the newest GET stream ---------------------------------------------------------------

    def listen(self, session: HttpSession) -> None:
        """This node has the newest GET stream now."""
        session.stream_node = ""
        self._node.post(self._listen(session))

    async def _listen(self, session: HttpSession) -> None:
        try:
            before = await self._sealed.listen(session)
        except Unavailable:
            return  # the next gap tries again
        if before and before != self._node.id and not await self._node.send(before, "alive"):
            # The messages that the node held are lost, and those that it sent may be: repeat them.
            subscriptions = session.connection.subscriptions
            for kind in self._changes.moved:
                subscriptions.notify(kind, None)
            subscriptions.missed()

    def _on_stream_node(self, session: HttpSession, where: str) -> None:
        session.stream_node = "" if where == self._node.id else where
        held = session.take_held() if session.stream_node else []
        if held:
            self._node.post(self._node.send(where, "deliver", session.uid, held))

    def send(self, session: HttpSession, frame: bytes, method: str | None) -> None:
        """Send a frame on the newest GET stream, which is on another node."""
        if method not in _SENT_BY_ALL:
            self._node.post(self._deliver(session, frame))

    async def _deliver(self, session: HttpSession, frame: bytes) -> None:
        where = session.stream_node
        if not where or not await self._node.send(where, "deliver", session.uid, [frame]):
            session.stream_node = "" if session.stream_node == where else session.stream_node
            session.deliver(frame)

    def _on_deliver(self, _: str, body: list[Any]) -> None:
        session = self._by_uid.get(body[0])
        if session is not None:
            session.receive_held(body[1])

    # -- responses and cancellations ---------------------------------------------------------

    async def takes(self, session: HttpSession, message: Message) -> int | None:
        """Forward a message to another node. Returns the HTTP status, None if it is for this node.

        A response gets 400 if its node is gone or never existed. A cancellation is sent to all nodes. Raises
        Unavailable if the node does not receive now, so that the client sends the response again.
        """
        if isinstance(message, Request):
            return None
        if isinstance(message, Notification):
            if message.method == "notifications/cancelled":
                # Any node may run the call.
                frame = encode_message(message.method, message.params)
                self._node.post(self._node.broadcast("cancel", session.uid, frame))
            return None

        node, dot, _ = message.id.partition(".") if isinstance(message.id, str) else ("", "", "")
        if not dot or node == self._node.id:
            return None
        frame = encode(Result(message.id, message.result)) if isinstance(message, Response) else encode(message)
        try:
            return 202 if await self._node.send_reliably(node, "answer", session.uid, frame) else 400
        except BackplaneAway:
            raise Unavailable("cannot reach the process that this answers") from None

    def _on_message(self, _: str, body: list[Any]) -> None:
        session = self._by_uid.get(body[0])
        if session is None:
            return
        try:
            message = decode(body[1])
        except ProtocolError:
            return
        # Nodes never execute requests from the bus.
        if not isinstance(message, (Batch, Request)):
            session.connection.receive_message(message)

    async def take_parts(
        self, session: HttpSession, parts: list[Message | ProtocolError]
    ) -> list[Message | ProtocolError]:
        """Return the parts of a batch that are for this node, and forward the others."""
        mine: list[Message | ProtocolError] = []
        for part in parts:
            with suppress(Unavailable):  # a lost response in a batch cannot be reported; the request times out
                if not isinstance(part, (Response, Failure)) or await self.takes(session, part) is None:
                    mine.append(part)
        return mine
