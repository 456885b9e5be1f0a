"""One session of an HTTP client up to 2025-11-25, as a channel: which stream each message of it takes.

What belongs to a request goes to that request's reply, everything else to the newest GET stream, and to one stream
only (S25-037), on whichever node that is. Spec: 2025-11-25 basic/transports.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import ANONYMOUS, Origin, Principal
from mcpd.server.http.event_stream import EventStreamResponse
from mcpd.server.http.reply import Reply
from mcpd.server.http.resumable_streams import ResumableStream, ResumableStreams

if TYPE_CHECKING:
    from mcpd.server.dispatcher.connection import ServerConnection

_MOST_HELD = 64
_MOST_LISTENING = 16


class CannotRestore(Exception):
    """A session cannot be found out about, or not be taken over, now."""


class _Texts(Protocol):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...


class Sealed:
    """A session that any node can serve: its uid, when its id ends (as `time.time` has it), and what was last
    remembered of it, as it is on the backplane."""

    __slots__ = ("ends", "level", "raw", "rest", "saving", "uid", "watched")

    def __init__(
        self,
        uid: str,
        ends: float,
        rest: float,
        raw: bytes | None = None,
        level: str | None = "info",
        watched: frozenset[str] = frozenset(),
    ) -> None:
        self.uid = uid
        self.ends = ends
        self.rest = rest
        """For how many seconds the backplane has to keep what belongs to it."""
        self.raw = raw
        self.level = level
        self.watched = watched
        self.saving: asyncio.Lock | None = None
        """One change after the other: those of other nodes are enough to be overtaken by."""

    def has(self, level: str | None, watched: _Texts | None) -> bool:
        """Whether this is what is remembered."""
        if level != self.level or (0 if watched is None else len(watched)) != len(self.watched):
            return False
        return watched is None or all(uri in self.watched for uri in watched)


class Elsewhere(Protocol):
    """Where the newest GET stream of a session may be, if that is not here."""

    def send(self, session: HttpSession, frame: bytes, method: str | None) -> None:
        """Say something there, unless it is said there anyhow."""


class HttpSession:
    """One session, as a channel. `connection` is set right after it was made."""

    is_multiplexed = False
    connection: ServerConnection

    __slots__ = ("_held", "_latest", "_new_streams", "_next_stream", "_streams", "busy", "connection", "elsewhere",
                 "handed", "id", "is_doubted", "listening", "nodes", "owner", "principal", "replies", "request_prefix",
                 "sealed", "stopped", "touched", "user")  # fmt: skip

    def __init__(self, id: str, principal: str, new_streams: Callable[[str], ResumableStreams]) -> None:
        self.id = id
        self.principal = principal
        self._new_streams = new_streams
        # Thousands of sessions may be idle, and most have none of these: made when they are needed.
        self._streams: ResumableStreams | None = None
        self.replies: dict[Id, Reply] | None = None
        """The replies of the requests that are worked on."""
        self.listening: tuple[ResumableStream, ...] = ()
        """The GET streams that are connected, the newest last."""
        self.stopped: dict[Id, bytes] | None = None
        """The answers to requests that were worked on when the session ended: errors."""
        self.owner = ""
        """The client behind it, as far as that is known: who it is and from where."""
        self.user: Principal = ANONYMOUS
        """The principal that initialized it. Its later requests come from the same one, maybe with other scopes."""
        self.busy = 0
        """How many HTTP requests of this session have a client that waits: with any, it is not idle."""
        self.touched = 0.0
        self.sealed: Sealed | None = None
        """What other processes know of it, if they share sessions."""
        self.is_doubted = False
        """Whether it may have ended elsewhere, unheard: the next request asks."""
        self.elsewhere = ""
        """The node that has its newest GET stream, if that is another one, or had it."""
        self.nodes: Elsewhere | None = None
        self.handed: set[bytes] | None = None
        """What other nodes held for the newest GET stream, and handed over: more than one may have had it."""
        self.request_prefix = ""
        """What the ids of questions to its client begin with: the node that asks."""
        self._latest: Reply | EventStreamResponse | None = None
        self._held: deque[bytes] | None = None
        self._next_stream = 0

    @property
    def is_only_known(self) -> bool:
        """Whether nothing of it is here but what its id and the backplane say: any node makes it anew at any time."""
        has_more = self.busy or self.is_doubted or self._held or self._streams or self.connection.session.in_flight
        return self.sealed is not None and not has_more

    def rest(self) -> None:
        """Nothing may come for long: tables that requests have filled go, as far as they are empty again."""
        if not self.replies:
            self.replies = None
        self.connection.session.release_memory()

    # -- as a channel ------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        """Whether the stream that was last written to is behind. Streams do not wait for each other."""
        latest = self._latest
        if latest is None or (latest.__class__ is Reply and latest.stream is None):  # nothing waits in most replies
            return False
        return latest.is_congested

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Say something on the stream of the request it belongs to, else on the newest GET stream, or hold it."""
        replies = self.replies
        # As `_reply` has it, in a call less.
        reply = None if related_request_id is None or replies is None else replies.get(related_request_id)
        if reply is not None:
            self._latest = reply
            reply.send(frame)
        elif self.elsewhere and self.nodes is not None:
            self.nodes.send(self, frame, method)
        else:
            self.deliver(frame)

    def deliver(self, frame: bytes) -> None:
        """Say something on the newest GET stream here, or hold it."""
        for stream in reversed(self.listening):
            if stream.response is not None and stream.response.is_open:
                self._latest = stream.response
                stream.push(frame)
                return
        self._hold(frame)

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """The same: on an event stream each message is an event of its own."""
        self.send(frame, related_request_id)

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The HTTP request that carries a request which is worked on; without that, what is known of the session."""
        reply = self._reply(related_request_id)
        return Origin("http", self.user) if reply is None else reply.request.origin()

    def _reply(self, request_id: Id | None) -> Reply | None:
        return None if request_id is None or self.replies is None else self.replies.get(request_id)

    def _hold(self, frame: bytes) -> None:
        if self._held is None:
            self._held = deque(maxlen=_MOST_HELD)
        if frame not in self._held:  # that a list changed is news once
            self._held.append(frame)

    def hand_over(self, frames: list[bytes]) -> None:
        """What another node held for its newest GET stream, which is here."""
        for frame in frames:
            if self.handed is None:
                self.handed = set()
            if frame not in self.handed and frame not in (self._held or ()):
                self.handed.add(frame)
                self.deliver(frame)

    def take_held(self) -> list[bytes]:
        """What is held is another's to say."""
        held, self._held = self._held, None
        return list(held or ())

    async def drain(self) -> None:
        """Wait until the stream that was last written to is not far behind."""
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
        """Those that can be resumed."""
        if self._streams is None:
            self._streams = self._new_streams(self.id)
        return self._streams

    def clear_streams(self) -> None:
        """It has ended: nothing can be resumed any more."""
        if self._streams is not None:
            self._streams.clear()

    def new_stream(self, *, is_listening: bool = False) -> ResumableStream:
        """A new event stream of this session."""
        self._next_stream += 1
        return ResumableStream(self._next_stream, self.streams, primes=self._has_polling, is_listening=is_listening)

    def write_whole(self, frames: Sequence[bytes]) -> bytes:
        """A new event stream that has all of these frames, and ends: its bytes."""
        self._next_stream += 1
        return self.streams.write_whole(self._next_stream, frames, primes=self._has_polling)

    @property
    def _has_polling(self) -> bool:
        """Whether its version lets a client come back for the rest of a stream that we close (2025-11-25)."""
        version = self.connection.session.version
        return version is not None and version.has_polling

    def close_stream(self, related_request_id: Id) -> None:
        """Let go of the connection on which the client waits for the answer to that request; the work goes on."""
        reply = self._reply(related_request_id)
        if reply is not None and self._has_polling:
            reply.release_connection()

    def listen(self, stream: ResumableStream) -> bool:
        """Make a connected GET stream the one for what belongs to no request; False if there are too many."""
        if len(self.listening) >= _MOST_LISTENING:
            return False
        self.listening = (*self.listening, stream)
        held = self.take_held()
        self.handed = None if self.nodes is None else set(held)
        for frame in held:
            stream.push(frame)
        return True

    def leave(self, stream: ResumableStream) -> None:
        """A GET stream is not connected any more."""
        self.listening = tuple(each for each in self.listening if each is not stream)
        self.forget_latest()

    def forget_latest(self) -> None:
        """Something that was written to has ended; what holds on to it holds all that it was made of."""
        self._latest = None


class Waiting:
    """A request of a session whose client waits for the answer: until it is given, or the client has left.

    What a client that left has asked for goes on, as it may come back; but it keeps the session no longer.
    """

    __slots__ = ("_session",)

    def __init__(self, session: HttpSession) -> None:
        self._session: HttpSession | None = session
        session.busy += 1

    def end(self) -> None:
        """Not any more. Safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            session.busy -= 1
