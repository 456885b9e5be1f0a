"""The answer to one POST: JSON if that is all there is to say, an event stream as soon as anything comes before it.

What the dispatcher sends while a request is worked on arrives here; when the work is done, `finish` gets the
answer. A request that is answered at once never becomes more than one JSON body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..jsonrpc import Id
from ..principal import Origin
from ..wire.sse import KEEP_ALIVE
from .event_store import Track
from .stream import HEADERS, EventStream
from .visit import Header, Visit

__all__ = ["Beats", "Reply"]


_MOST_EARLY = 64 * 1024


class Beats:
    """One timer for all replies and streams that last: every so often each says that it is still there.

    `patience` is for how many seconds a client may take nothing while somebody waits for it (0: for ever).
    """

    def __init__(self, interval: float, patience: float = 0) -> None:
        self.patience = patience
        self._interval = interval
        self._members: set[Reply | EventStream] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, member: Reply | EventStream) -> None:
        """From now on `beat` is called on it, once in each interval."""
        self._members.add(member)
        if self._timer is None and self._interval > 0:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._beat)

    def discard(self, member: Reply | EventStream) -> None:
        """It has ended."""
        self._members.discard(member)

    def _beat(self) -> None:
        self._timer = None
        for member in list(self._members):
            member.beat()
        if self._members:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._beat)

    def stop(self) -> None:
        """No more beats."""
        self._members.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Reply:
    """What is said to one POST. To a connection that has no other request it is the channel as well."""

    is_multiplexed = False

    __slots__ = ("_beats", "_early", "_early_bytes", "_ending", "_is_done", "_is_gone", "_is_quiet", "_new_track",
                 "_on_gone", "_own", "_watcher", "track", "visit")  # fmt: skip

    def __init__(self, visit: Visit, new_track: Callable[[], Track], beats: Beats) -> None:
        self.visit = visit
        self.track: Track | None = None
        """The stream, once it is one."""
        self._new_track = new_track
        self._beats = beats
        self._early: list[bytes] = []
        self._early_bytes = 0
        self._own: EventStream | None = None
        self._on_gone: Callable[[], None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._is_done = False
        self._is_gone = False
        self._is_quiet = False

    # -- as a channel ------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        """Whether the client is behind with reading."""
        track = self.track
        return track is not None and track.sink is not None and track.sink.is_congested

    def send(self, frame: bytes, about: Id | None = None) -> None:
        """Say something before the answer."""
        if self.track is not None:
            self.track.push(frame)
            return
        self._early.append(frame)
        self._early_bytes += len(frame)
        if self._early_bytes > _MOST_EARLY:
            # Work that says much and never waits: only a stream can make it wait for its client.
            self.begin()
        elif len(self._early) == 1 and self._watcher is not None:
            # Work that does not wait has said all in a moment, and needs no stream for it.
            asyncio.get_running_loop().call_soon(self.begin)

    def send_apart(self, frame: bytes, about: Id | None = None) -> None:
        """The same: the answer to a POST comes by `finish`, in an event of its own."""
        self.send(frame, about)

    def origin(self, about: Id | None = None) -> Origin:
        """The request that this answers."""
        return self.visit.origin()

    async def drain(self) -> None:
        """Wait until the client has read most of what was said."""
        if self.track is not None and self.track.sink is not None:
            await self.track.sink.drain()

    async def aclose(self, reason: str = "") -> None:
        """Nothing to do: a reply ends with its answer."""

    # -- the life of a reply -----------------------------------------------------------------

    def attend(self, on_gone: Callable[[], None] | None = None) -> None:
        """The work takes time: watch the client meanwhile; `on_gone` is called if it leaves before the end."""
        loop = asyncio.get_running_loop()
        self._on_gone = on_gone
        self._beats.add(self)
        self._watcher = loop.create_task(self._watch(), name="mcpd-watch")
        if self._early:
            loop.call_soon(self.begin)

    @property
    def is_attended(self) -> bool:
        """Whether the client is watched, which `stop` ends."""
        return self._watcher is not None

    def begin(self) -> None:
        """Become an event stream, unless all is said by now."""
        if self.track is not None or self._is_done:
            return
        track = self.track = self._new_track()
        opening = track.opening()
        if not self._is_gone:
            self._own = track.sink = EventStream(self.visit, self._beats.patience)
            self._own.push(opening)
        for frame in self._early:
            track.push(frame)
        self._early.clear()

    def beat(self) -> None:
        """Show that the work goes on, to the client and to what lies between."""
        if self.track is not None:
            if self._own is not None:
                self._own.beat()
        elif self._is_quiet:
            self.begin()
            if self._own is not None:
                self._own.push(KEEP_ALIVE)
        self._is_quiet = True

    def release_connection(self) -> None:
        """Let the connection go and the work go on: the client comes back for the rest (2025-11-25)."""
        self.begin()
        sink = None if self.track is None else self.track.sink
        if sink is not None and self.track is not None:
            # The connection of the POST, or the one on which the client came back.
            self.track.sink = None
            self._ending = asyncio.ensure_future(sink.end())

    async def finish(self, answer: bytes | None, status: int = 200, headers: tuple[Header, ...] = ()) -> None:
        """Give the answer, and complete the reply; None if the request was given up and there is no answer."""
        if self._watcher is not None:
            self.stop()
        self._is_done = True
        track = self.track
        if track is not None:
            if answer is not None:
                track.push(answer)
            track.complete()
            if track.sink is not None:
                await track.sink.end()
        elif self._is_gone:
            pass
        elif self._early:
            track = self._new_track()
            events = [track.opening(), *map(track.write, self._early)]
            if answer is not None:
                events.append(track.write(answer))
            track.complete()
            await self.visit.answer(200, b"".join(events), HEADERS[0], (*HEADERS[1:], *headers))
        elif answer is not None:
            await self.visit.answer(status, answer, headers=headers)
        else:
            await self.visit.answer_empty(202)

    def stop(self) -> None:
        """The work is done: no longer watch the client."""
        self._is_done = True
        if self._watcher is not None:
            # Else the request would leave a circle of references for the garbage collector to find.
            self._on_gone = None
            self._beats.discard(self)
            self._watcher.cancel()
            self._watcher = None

    # -- the client --------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Wait until the client leaves."""
        try:
            while (await self.visit.receive())["type"] != "http.disconnect":
                pass
        except Exception:
            # Whatever a server raises when there is nothing more to receive: for us the client is gone.
            pass
        self._beats.discard(self)
        self._is_gone = True
        own = self._own
        if own is not None:
            if self.track is not None and self.track.sink is own:
                self.track.sink = None
            if self._ending is None:
                own.close()
        if self._on_gone is not None:
            self._on_gone()
