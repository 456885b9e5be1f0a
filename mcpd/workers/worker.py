"""A worker's side: what its parent handed over becomes its settings, and a thread hears the parent while it lives.

A thread, since it has to be heard while a tool holds up the event loop: that the parent wants to know what the worker
does, and that the parent is gone, after which no worker stays.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Literal, Protocol

from msgspec.json import encode

from mcpd.backplane.frames import encode_frame
from mcpd.backplane.opening import SHARED
from mcpd.errors import ConfigurationError
from mcpd.observe.report import JSON
from mcpd.observe.site import exposed
from mcpd.observe.watching import Watching
from mcpd.protocol.channel import Ending
from mcpd.protocol.state_keys import hand_over_keys
from mcpd.serve_options import Options, Settings
from mcpd.server.registry.routes import Route, RouteRequest, RouteResponse
from mcpd.transports.address import Address
from mcpd.workers.handover import VARIABLE, Handover, Seen, decode_handover, decode_seen, encode_body, read_frame

_PATIENCE = 0.5


class Asking(Protocol):
    """Who wants to know: `worker.Parent`."""

    def attach(self, look: Callable[[], Seen]) -> None:
        """This says what is counted and done here; called on any thread."""

    def detach(self, last: Seen) -> None:
        """Nothing is counted any more after this."""

    async def ask(self) -> Seen:
        """What all workers count and do, together. Raises TimeoutError if the parent does not say."""


class WorkerWatching(Watching):
    """Watches one worker's server. Nothing is asked of it directly: the parent knows of all workers."""

    def __init__(
        self, parent: Asking, server: object, settings: Settings, connections: Callable[[], Iterable[Ending]]
    ) -> None:
        super().__init__(server, settings, connections)
        self._parent = parent

    def stop(self) -> None:
        """See `Watching`; what was counted last is told."""
        super().stop()
        self._parent.detach(Seen(self.report.families()))

    async def _bind(self, address: Address) -> list[socket.socket]:
        return []

    def _bind_control(self) -> socket.socket | None:
        return None

    def _go_outside(self, sockets: list[socket.socket], control: socket.socket | None) -> None:
        self._parent.attach(self._look)

    def _look(self) -> Seen:
        """Called on the thread that hears the parent: found in the loop that serves, unless that does not turn."""
        self.report.pulse()
        found: Future[Seen] = Future()

        def see() -> None:
            if found.set_running_or_notify_cancel():
                found.set_result(self._seen())

        try:
            self._loop.call_soon_threadsafe(see)
            return found.result(_PATIENCE)
        except (TimeoutError, RuntimeError):
            found.cancel()
            return self._seen()

    def _seen(self) -> Seen:
        return Seen(self.report.families(), self.report.status(), self._heartbeat.late)

    def _routes(self) -> tuple[Route, ...]:
        """They tell of all workers, so that it is the same whichever of them is asked (OBS-14)."""

        async def metrics(request: RouteRequest) -> RouteResponse:
            said = exposed((await self._parent.ask()).families, request.headers.get("accept"))
            return RouteResponse(said.body, content_type=said.content_type)

        async def statusz() -> RouteResponse:
            return RouteResponse(encode((await self._parent.ask()).status), content_type=JSON)

        return Route("/metrics", metrics), Route("/statusz", statusz)


log = logging.getLogger("mcpd")

_SEND_SECONDS = 5
_ASK_SECONDS = 3.0
_LAST_SECONDS = 5.0
"""Beyond `--grace`: so long after the parent's death a worker ends whatever it does."""


def take_over(options: Options) -> Parent:
    """Let this process be the worker that its environment says it is: puts what was handed over into `options`.

    Raises ConfigurationError if nobody is there who hands something over.
    """
    number = os.environ.pop(VARIABLE)
    try:
        parent = Parent(socket.socket(fileno=int(number)), options)
    except (OSError, ValueError, EOFError):
        raise ConfigurationError(f"{VARIABLE} is for what mcpd serve --workers starts; take it away") from None

    given = parent.given
    for name, address in given.addresses.items():
        setattr(options, name, address)
    options.sockets = {name: [_socket(each) for each in descriptors] for name, descriptors in given.sockets.items()}

    hand_over_keys(given.state_key)
    if given.backplane is not None:
        os.set_inheritable(given.backplane, False)
        options.backplane = f"{SHARED}{given.backplane}"

    options.max_memory = given.max_memory or options.max_memory
    options.overseer = parent
    options.on_state = parent.on_state
    return parent


def _socket(descriptor: int) -> socket.socket:
    found = socket.socket(fileno=descriptor)
    found.set_inheritable(False)
    found.setblocking(False)
    return found


class Parent:
    """The parent, over this worker's control socket; see `Overseer`. Raises OSError or EOFError."""

    def __init__(self, connected: socket.socket, options: Options) -> None:
        connected.set_inheritable(False)
        connected.setblocking(True)
        # Nothing that is said to a parent that does not read may hold this process up.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
        self._socket = connected
        self._options = options
        self._sending = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], None] | None = None
        self._is_to_stop = False
        self._is_exchanged = False
        self._look: Callable[[], Seen] | None = None
        self._asked: dict[int, asyncio.Future[Seen]] = {}
        self._number = 0

        _, _, body = read_frame(connected)
        self.given: Handover = decode_handover(body)
        threading.Thread(target=self._hear, name="mcpd-parent", daemon=True).start()

    # -- speaking ----------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """A line for people, once all workers are ready; of all workers the parent lets one say it."""
        if self.given.says:
            self._send(0, "say", line)

    def on_state(self, state: Literal["ready", "stopping"]) -> None:
        """What serving tells of itself."""
        self._send(0, state, None)

    def _send(self, number: int, word: str, body: object) -> None:
        try:
            with self._sending:
                self._socket.sendall(encode_frame(number, word, body))
        except OSError:
            pass  # it is gone, which the thread hears

    # -- the overseer of serving -------------------------------------------------------------

    @property
    def is_last_on_sockets(self) -> bool:
        """See `Overseer`. Who is exchanged has a successor on them; who waits to be started again has none yet."""
        return self.given.ends_sockets and not self._is_exchanged

    def take_stop(self, stop: Callable[[], None]) -> None:
        """See `Overseer`."""
        self._loop = asyncio.get_running_loop()
        self._stop = stop
        if self._is_to_stop:
            stop()

    def new_watcher(self, server: object, connections: Callable[[], Iterable[Ending]]) -> WorkerWatching:
        """See `Overseer`."""
        return WorkerWatching(self, server, self._options, connections)

    # -- what is seen ------------------------------------------------------------------------

    def attach(self, look: Callable[[], Seen]) -> None:
        """This says what is counted and done here; called on any thread."""
        self._look = look

    def detach(self, last: Seen) -> None:
        """Nothing is counted any more after this."""
        self._look = None
        self._send(0, "last", encode_body(last))

    async def ask(self) -> Seen:
        """What all workers count and do, together. Raises TimeoutError if the parent does not say."""
        loop = asyncio.get_running_loop()
        self._number += 1
        number = self._number

        answer: asyncio.Future[Seen]
        answer = self._asked[number] = loop.create_future()
        try:
            await loop.run_in_executor(None, self._send, number, "ask", None)
            async with asyncio.timeout(_ASK_SECONDS):
                return await answer
        finally:
            del self._asked[number]

    # -- hearing, on the thread --------------------------------------------------------------

    def _hear(self) -> None:
        try:
            while True:
                number, word, body = read_frame(self._socket)
                if word == "look":
                    self._show(number)
                elif word == "stop":
                    self._is_to_stop, self._is_exchanged = True, bool(body)
                    self._call(self._be_stopped)
                elif word == "all":
                    self._call(self._be_told, number, body)
        except (OSError, EOFError):
            self._outlive()

    def _show(self, number: int) -> None:
        look = self._look
        try:
            seen = Seen([]) if look is None else look()
        except Exception:
            log.exception("what this worker does could not be told")
            return
        self._send(number, "seen", encode_body(seen))

    def _call(self, what: Callable[..., object], *arguments: object) -> None:
        if self._loop is None:
            return  # it does not serve yet
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:
            pass  # it has ended

    def _be_stopped(self) -> None:
        if self._stop is not None:
            self._stop()

    def _be_told(self, number: int, body: bytes) -> None:
        answer = self._asked.get(number)
        if answer is not None and not answer.done():
            answer.set_result(decode_seen(body))

    def _outlive(self) -> None:
        """The parent is gone: let calls end as after SIGTERM, which ends the process too if it does not serve yet."""
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(self._options.grace + _LAST_SECONDS)
        os._exit(1)
