"""One session of an HTTP client up to 2025-11-25, as a channel that chooses the stream of each message.

A message that belongs to a request is sent on its reply, any other on the newest GET stream, on whichever node that is;
each on one stream only (S25-037). Spec: 2025-11-25 basic/transports.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import ANONYMOUS, Origin, Principal
from mcpd.transports.authentication import unavailable
from .event_stream import EventStreamResponse
from .reply import Reply
from .request import Refused
from .resumable_streams import ResumableStream, ResumableStreams

if TYPE_CHECKING:
    from mcpd.protocol.budget import ChargedTexts
    from mcpd.server.dispatcher.connection import ServerConnection

_MOST_HELD = 64
_MOST_LISTENING = 16


class Unavailable(Refused):
    """The state of a session cannot be read, or it cannot be restored now. `why` continues "The server …"."""

    def __init__(self, why: str) -> None:
        super().__init__(unavailable(f"The server {why}; try again later.\n"))


class SharedState(Struct, eq=False):
    """The shared state of a session that any node can serve, with the stored settings as they are on the backplane."""

    uid: str
    rest: float
    """Seconds for which the backplane must keep its data."""
    raw: bytes | None = None
    level: str | None = "info"
    watched: frozenset[str] = frozenset()
    saving: asyncio.Lock | None = None
    """Serializes the changes of this node."""

    def has(self, level: str | None, watched: ChargedTexts | None) -> bool:
        """Whether these settings are the stored ones."""
        if level != self.level or (0 if watched is None else len(watched)) != len(self.watched):
            return False
        return watched is None or all(uri in self.watched for uri in watched)


class HttpSession:
    """One session, as a channel. `connection` is set right after its creation."""

    is_multiplexed = False
    connection: ServerConnection

    __slots__ = ("_held", "_latest", "_new_streams", "_next_stream", "_streams", "connection", "id",
                 "forward", "is_doubtful", "listening", "owner", "principal", "received", "replies", "request_prefix",
                 "sealed", "stopped", "stream_node", "streaming",
                 "touched", "user")  # fmt: skip

    def __init__(self, id: str, principal: str, new_streams: Callable[[str], ResumableStreams]) -> None:
        self.id = id
        self.principal = principal
        self._new_streams = new_streams
        # Thousands of sessions may be idle, and most need none of these: they are created on demand.
        self._streams: ResumableStreams | None = None
        self.replies: dict[Id, Reply] | None = None
        """The replies of running requests."""
        self.listening: tuple[ResumableStream, ...] = ()
        """The connected GET streams, the newest last."""
        self.stopped: dict[Id, bytes] | None = None
        """The error responses to requests that were running when the session ended."""
        self.owner = ""
        """The client behind the session, for per-client limits."""
        self.user: Principal = ANONYMOUS
        """The principal that initialized the session. Later requests have the same one, possibly with other scopes."""
        self.streaming = 0
        """The number of GETs whose client reads an event stream."""
        self.touched = 0.0
        self.sealed: SharedState | None = None
        """The state that other processes know, if sessions are shared."""
        self.is_doubtful = False
        """Whether it may have ended in another process without a notice: the next request finds out."""
        self.stream_node = ""
        """The other node that has, or had, its newest GET stream; empty for this node."""
        self.forward: Callable[[HttpSession, bytes, str | None], object] | None = None
        """Sends a frame on the newest GET stream, which is on another node; None for a single process."""
        self.received: set[bytes] | None = None
        """Messages for the newest GET stream that other nodes held. Several nodes may have held the same."""
        self.request_prefix = ""
        """The node, with which the ids of the server's requests begin."""
        self._latest: Reply | EventStreamResponse | None = None
        self._held: deque[bytes] | None = None
        self._next_stream = 0

    @property
    def uid(self) -> str:
        """The name by which other processes know the session; empty without sharing."""
        return "" if self.sealed is None else self.sealed.uid

    @property
    def is_restorable(self) -> bool:
        """Whether its id and the backplane have its whole state, so that any node can restore it at any time."""
        has_unread = self._streams is not None and self._streams.has_unread
        has_more = self.busy or self.is_doubtful or self._held or has_unread or self.connection.session.in_flight
        return self.sealed is not None and not has_more

    def release_memory(self) -> None:
        """Drop empty tables: no request may arrive for a long time."""
        if not self.replies:
            self.replies = None
        self.connection.session.release_memory()

    @property
    def busy(self) -> int:
        """The number of HTTP requests whose client waits; without any, the session is idle.

        The call of a client that has left continues, because the client may return, but keeps no session alive.
        """
        return self.streaming + sum(reply.is_awaited for reply in set((self.replies or {}).values()))

    def expect(self, ids: Iterable[Id], reply: Reply) -> None:
        """Send the messages of these requests on their reply."""
        replies = self.replies = self.replies or {}
        for request_id in ids:
            replies[request_id] = reply

    def forget(self, ids: Iterable[Id], reply: Reply) -> None:
        """Drop the reply of requests that are answered. A cancelled call may end after its id was used again."""
        self._latest = None  # it would keep the memory of a stream
        replies = self.replies or {}
        for request_id in ids:
            if replies.get(request_id) is reply:
                del replies[request_id]

    @property
    def is_listening(self) -> bool:
        """Whether the client has a GET stream, on this node or on another."""
        return bool(self.listening or self.stream_node)

    # -- as a channel ------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        """Whether the client is behind with the stream that was written last. Streams do not wait for each other."""
        latest = self._latest
        if latest is None or (latest.__class__ is Reply and latest.stream is None):  # most replies
            return False
        return latest.is_congested

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Send a frame on the reply of its request, otherwise on the newest GET stream, or hold it."""
        replies = self.replies
        reply = None if related_request_id is None or replies is None else replies.get(related_request_id)
        if reply is not None:
            self._latest = reply
            reply.send(frame)
        elif self.stream_node and self.forward is not None:
            self.forward(self, frame, method)
        else:
            self.deliver(frame)

    def deliver(self, frame: bytes) -> None:
        """Send a frame on the newest GET stream of this node, or hold it."""
        for stream in reversed(self.listening):
            if stream.response is not None and stream.response.is_open:
                self._latest = stream.response
                stream.push(frame)
                return
        self._hold(frame)

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Same as `send`: on an event stream each message is an event of its own."""
        self.send(frame, related_request_id)

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """Return the origin of a running request, otherwise the origin of the session."""
        reply = self._reply(related_request_id)
        return Origin("http", self.user) if reply is None else reply.request.origin()

    def _reply(self, request_id: Id | None) -> Reply | None:
        return None if request_id is None or self.replies is None else self.replies.get(request_id)

    def _hold(self, frame: bytes) -> None:
        if self._held is None:
            self._held = deque(maxlen=_MOST_HELD)
        if frame not in self._held:  # a change is reported once
            self._held.append(frame)

    def receive_held(self, frames: list[bytes]) -> None:
        """Send what another node held for the newest GET stream, which is here."""
        for frame in frames:
            if self.received is None:
                self.received = set()
            if frame not in self.received and frame not in (self._held or ()):
                self.received.add(frame)
                self.deliver(frame)

    def take_held(self) -> list[bytes]:
        """Return and drop the held frames: another stream sends them."""
        held, self._held = self._held, None
        return list(held or ())

    async def drain(self) -> None:
        """Wait until the client has read most of the stream that was written last."""
        if self._latest is not None:
            await self._latest.drain()

    async def aclose(self, reason: str = "") -> None:
        """End all its GET streams."""
        for stream in self.listening:
            if stream.response is not None:
                await stream.response.end()

    # -- streams -----------------------------------------------------------------------------

    @property
    def streams(self) -> ResumableStreams:
        """The streams that can be resumed."""
        if self._streams is None:
            self._streams = self._new_streams(self.id)
        return self._streams

    def clear_streams(self) -> None:
        """Drop all streams, because the session has ended."""
        if self._streams is not None:
            self._streams.clear()

    def new_stream(self, *, is_listening: bool = False) -> ResumableStream:
        """A new event stream of this session."""
        self._next_stream += 1
        return ResumableStream(self._next_stream, self.streams, primes=self._has_polling, is_listening=is_listening)

    @property
    def _has_polling(self) -> bool:
        # Whether clients of its version resume a stream that the server closes (2025-11-25).
        version = self.connection.session.version
        return version is not None and version.has_polling

    def close_stream(self, related_request_id: Id) -> None:
        """Close the connection on which the client waits for a response; the call continues."""
        reply = self._reply(related_request_id)
        if reply is not None and self._has_polling:
            reply.release_connection()

    def is_away(self, related_request_id: Id) -> bool:
        """Return whether the client has left the stream on which it waits for a response, and has not returned."""
        reply = self._reply(related_request_id)
        return reply is not None and reply.is_away

    def listen(self, stream: ResumableStream) -> bool:
        """Use a GET stream for messages that belong to no request. Returns False if there are too many."""
        if len(self.listening) >= _MOST_LISTENING:
            return False
        self.listening = (*self.listening, stream)
        held = self.take_held()
        self.received = None if self.forward is None else set(held)
        for frame in held:
            stream.push(frame)
        return True

    def leave(self, stream: ResumableStream) -> None:
        """Remove a GET stream that has lost its connection."""
        self.listening = tuple(each for each in self.listening if each is not stream)
        self._latest = None
