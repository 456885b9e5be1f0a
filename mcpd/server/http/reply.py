"""The response to one POST: JSON, or an event stream as soon as a message precedes it.

The messages that the dispatcher sends during a call arrive here, and `finish` gets the response at the end. A call that
sends no message before its response is answered with one JSON body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import Origin
from mcpd.protocol.wire.sse import KEEP_ALIVE
from .event_stream import HEADERS, EventStreamResponse
from .request import Departure, HttpRequest, on_departure
from .resumable_streams import ResumableStream

_MOST_EARLY = 64 * 1024
_MORE_HEADERS = HEADERS[1:]


class Reply(Struct, eq=False):
    """The response to one POST and the messages before it. A connection with a single request uses it as channel."""

    is_multiplexed = False

    request: HttpRequest
    _new_stream: Callable[[], ResumableStream]
    _keep_alive: KeepAlive
    on_left: Callable[[], object] | None = None
    """Called if the client leaves before the end."""
    has_waited: bool = False
    """Whether the call had to wait for something."""
    stream: ResumableStream | None = None
    """The event stream, if the reply has become one."""
    _early: list[bytes] = []
    _early_bytes: int = 0
    _own: EventStreamResponse | None = None
    _ending: asyncio.Future[None] | None = None
    _watcher: Departure | asyncio.Task[None] | None = None
    _is_done: bool = False
    _is_disconnected: bool = False
    _is_quiet: bool = False

    # -- as a channel ------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        """Whether the client is behind with reading."""
        stream = self.stream
        return stream is not None and stream.response is not None and stream.response.is_congested

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Send a message before the response."""
        if self.stream is not None:
            self.stream.push(frame)
            return

        self._early.append(frame)
        self._early_bytes += len(frame)
        if self._early_bytes > _MOST_EARLY:
            # A tool that sends much and never waits: only a stream can slow it down.
            self.begin()
        elif len(self._early) == 1 and self._watcher is not None:
            # A tool that does not wait has finished before the next iteration, and needs no stream.
            asyncio.get_running_loop().call_soon(self.begin)

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Same as `send`: the response to a POST is sent by `finish`, in an event of its own."""
        self.send(frame)

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The origin of the POST."""
        return self.request.origin()

    async def drain(self) -> None:
        """Wait until the client has read most of the stream."""
        if self.stream is not None and self.stream.response is not None:
            await self.stream.response.drain()

    async def aclose(self, reason: str = "") -> None:
        """Do nothing: a reply ends with its response."""

    @property
    def has_left(self) -> bool:
        """Whether the client has left, also if its call is not cancelled yet. Only our own HTTP server tells."""
        return getattr(getattr(self.request.send, "__self__", None), "has_left", False)

    # -- from the request to the response ----------------------------------------------------

    def watch_for_disconnect(self) -> None:
        """Watch the client while the call runs."""
        loop = asyncio.get_running_loop()
        self.has_waited = True
        self._keep_alive.add(self)
        self._watcher = on_departure(self.request, self._left)
        if self._early:
            loop.call_soon(self.begin)

    @property
    def is_stream(self) -> bool:
        """Whether the client reads an event stream here."""
        return self._own is not None and not self._is_disconnected

    @property
    def is_awaited(self) -> bool:
        """Whether the client has not left its POST."""
        return not self._is_disconnected

    @property
    def is_away(self) -> bool:
        """Whether the client has left, and has not resumed the stream."""
        return self._is_disconnected and (self.stream is None or self.stream.is_away)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent yet, so that the response may have any status."""
        return self.stream is None and not self._early and not self._is_disconnected

    def begin(self) -> None:
        """Become an event stream, unless the response was sent meanwhile."""
        if self.stream is not None or self._is_done:
            return

        stream = self.stream = self._new_stream()
        opening = stream.priming()
        if not self._is_disconnected:
            self._own = stream.response = EventStreamResponse(self.request, self._keep_alive.write_timeout)
            self._own.push(opening)

        for frame in self._early:
            stream.push(frame)
        self._early.clear()

    def keep_alive(self) -> None:
        """Send a comment, for the client and for proxies; a reply without a stream becomes one."""
        if self.stream is not None:
            if self._own is not None:
                self._own.keep_alive()
        elif self._is_quiet:
            self.begin()
            if self._own is not None:
                self._own.push(KEEP_ALIVE)
        self._is_quiet = True

    def release_connection(self) -> None:
        """End the connection while the call continues: the client returns for the rest (2025-11-25)."""
        self.begin()
        response = None if self.stream is None else self.stream.response
        if response is not None and self.stream is not None:
            # The connection of the POST, or the one on which the client has returned.
            self.stream.response = None
            self._ending = asyncio.ensure_future(response.end())
            self.stream.lost()

    async def finish(self, answer: bytes | None, status: int = 200) -> None:
        """Send the response and complete the reply. None: the request was cancelled and has no response."""
        if self._watcher is not None:
            self.stop()
        self._is_done = True

        stream = self.stream
        if stream is not None:
            if answer is not None:
                self._tell_sent(answer)
                stream.push(answer)
            stream.complete()
            if stream.response is not None:
                await stream.response.end()
        elif self._is_disconnected:
            pass
        elif self._early:
            if answer is not None:
                self._tell_sent(answer)
                self._early.append(answer)
            stream = self._new_stream()
            body = b"".join([stream.priming(), *map(stream.write, self._early)])
            stream.complete()
            stream.was_sent_whole = True
            await self.request.answer(200, body, HEADERS[0], _MORE_HEADERS)
        elif answer is not None:
            await self.request.answer(status, answer)
        else:
            await self.request.answer_empty(202)

    def _tell_sent(self, answer: bytes) -> None:
        # Report a response that is an event. The request reports one that is a JSON body.
        if self.request.watch is not None:
            self.request.watch.sent(answer)

    def stop(self) -> None:
        """Stop watching the client: the call has ended."""
        self._is_done = True
        if self._watcher is not None:
            # Otherwise the request would leave a reference cycle for the garbage collector.
            self.on_left = None
            self._keep_alive.discard(self)
            self._watcher.cancel()
            self._watcher = None

    # -- the client --------------------------------------------------------------------------

    def _left(self) -> None:
        # Handle a client that has left, or a released connection.
        self._keep_alive.discard(self)
        self._is_disconnected = True
        own = self._own
        if own is not None:
            if self.stream is not None and self.stream.response is own:
                self.stream.response = None
            if self._ending is None:
                own.close()
            if self.stream is not None and not self._is_done:
                self.stream.lost()

        if self.on_left is not None:
            self.on_left()


class KeepAlive(Struct, eq=False):
    """One timer for all open streams: every `interval` seconds each quiet stream sends a comment (0: never).

    `write_timeout` is the number of seconds for which a client may read nothing while a tool waits (0: no limit).
    """

    _interval: float
    write_timeout: float = 0
    _members: set[Reply | EventStreamResponse] = set()
    _timer: asyncio.TimerHandle | None = None

    def add(self, member: Reply | EventStreamResponse) -> None:
        """Call `keep_alive` on a member once in each interval."""
        self._members.add(member)
        if self._timer is None and self._interval > 0:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._tick)

    def discard(self, member: Reply | EventStreamResponse) -> None:
        """Remove a member that has ended."""
        self._members.discard(member)

    @property
    def streams(self) -> int:
        """The number of open event streams."""
        return sum(member.is_stream for member in self._members)

    def _tick(self) -> None:
        self._timer = None
        for member in list(self._members):
            member.keep_alive()
        if self._members:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._tick)

    def stop(self) -> None:
        """Remove all members."""
        self._members.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
