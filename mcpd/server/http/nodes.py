"""What the nodes of a service say to each other about its sessions: messages that belong to another node's stream,
answers to another node's question, and where the newest GET stream of a session is. Never a request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any

from msgspec import DecodeError
from msgspec.msgpack import Decoder, Encoder

from mcpd.errors import ProtocolError
from mcpd.protocol.jsonrpc import Batch, Failure, Message, Notification, Request, Response, Result, call, decode, encode
from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.backplane.node import Node
from mcpd.server.http.core import Core
from mcpd.server.http.event_stream import EventStreamResponse
from mcpd.server.http.http_session import CannotRestore, HttpSession
from mcpd.server.http.request import HttpRequest
from mcpd.server.http.resumable_streams import ResumableStream
from mcpd.server.http.sealed_sessions import SealedSessions
from mcpd.server.http.sharing import Sharing

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

_SAID_BY_ALL = frozenset(
    (
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    )
)
"""Each node hears of these by itself: where the newest GET stream is, they are said."""


class Nodes:
    """The others, as the sessions of one application have to do with them; `by_uid` are those that are known here."""

    def __init__(self, core: Core, sharing: Sharing, sealed: SealedSessions, by_uid: Mapping[str, HttpSession]) -> None:
        self._node: Node = sharing.node
        self._changes = sharing.changes
        self._sealed = sealed
        self._by_uid = by_uid
        self.following = Following(core, self._node, by_uid)
        for kind, take in (
            ("deliver", self._on_deliver),
            ("answer", self._on_message),
            ("cancel", self._on_message),
        ):
            self._node.on(kind, take)
        self._node.on_gap(self._gap)
        sealed.listens_at = self._listens_at

    def join(self, session: HttpSession) -> None:
        """A session may be served by several nodes: what it numbers is numbered as this node's."""
        session.nodes = self
        session.request_prefix = f"{self._node.id}."
        session.streams.node = self._node.id
        session.streams.on_lost = self.following.keep_log(session)

    def _gap(self) -> None:
        """Something may have been missed: that a session has ended, what was set, or where it listens."""
        for session in list(self._by_uid.values()):
            session.is_doubted = True
            if session.listening:
                self.listen(session)

    # -- the newest GET stream ---------------------------------------------------------------

    def listen(self, session: HttpSession) -> None:
        """It is here now."""
        session.elsewhere = ""
        self._node.post(self._listen(session))

    async def _listen(self, session: HttpSession) -> None:
        try:
            before = await self._sealed.listen(session)
        except CannotRestore:
            return  # after the gap it is tried again
        if before and before != self._node.id and not await self._node.tell(before, "alive"):
            # What that node held is lost, and what it said may be: better once too often.
            subscriptions = session.connection.subscriptions
            for kind in self._changes.moved:
                subscriptions.changed(kind)
            subscriptions.missed()

    def _listens_at(self, session: HttpSession, where: str) -> None:
        assert session.sealed is not None
        session.elsewhere = "" if where == self._node.id else where
        held = session.take_held() if session.elsewhere else []
        if held:
            self._node.post(self._node.tell(where, "deliver", session.sealed.uid, held))

    def send(self, session: HttpSession, frame: bytes, method: str | None) -> None:
        """Say something on the newest GET stream, which is another node's."""
        if method not in _SAID_BY_ALL:
            self._node.post(self._deliver(session, frame))

    async def _deliver(self, session: HttpSession, frame: bytes) -> None:
        assert session.sealed is not None
        where = session.elsewhere
        if not where or not await self._node.tell(where, "deliver", session.sealed.uid, [frame]):
            session.elsewhere = "" if session.elsewhere == where else session.elsewhere
            session.deliver(frame)

    def _on_deliver(self, _: str, body: list[Any]) -> None:
        session = self._by_uid.get(body[0])
        if session is not None:
            session.hand_over(body[1])

    # -- answers, and requests that were given up --------------------------------------------

    async def takes(self, session: HttpSession, message: Message) -> int | None:
        """The HTTP status of a message that is another node's to take; None if it is not. Raises BackplaneAway.

        An answer whose node is gone, or never was, gets 400; one whose node does not hear at the time is to be sent
        again. A cancellation is told to all who may work on it.
        """
        assert session.sealed is not None
        if isinstance(message, Request):
            return None
        if isinstance(message, Notification):
            if message.method == "notifications/cancelled":
                # What is meant may be worked on here, or anywhere.
                frame = call(message.method, message.params)
                self._node.post(self._node.tell_all("cancel", session.sealed.uid, frame))
            return None

        node, dot, _ = message.id.partition(".") if isinstance(message.id, str) else ("", "", "")
        if not dot or node == self._node.id:
            return None
        frame = encode(Result(message.id, message.result)) if isinstance(message, Response) else encode(message)
        return 202 if await self._node.tell_surely(node, "answer", session.sealed.uid, frame) else 400

    def _on_message(self, _: str, body: list[Any]) -> None:
        session = self._by_uid.get(body[0])
        if session is None:
            return
        try:
            message = decode(body[1])
        except ProtocolError:
            return
        # The bus never carries a request to be run.
        if not isinstance(message, (Batch, Request)):
            session.connection.receive_message(message)

    async def take_parts(
        self, session: HttpSession, parts: list[Message | ProtocolError]
    ) -> list[Message | ProtocolError]:
        """The parts of a batch that are for this node; the others are told to theirs."""
        mine: list[Message | ProtocolError] = []
        for part in parts:
            try:
                if not isinstance(part, (Response, Failure)) or await self.takes(session, part) is None:
                    mine.append(part)
            except BackplaneAway:
                pass  # nobody hears that an answer in a batch was lost; who asked gives up in the end
        return mine
