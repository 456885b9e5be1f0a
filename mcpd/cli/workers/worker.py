"""A worker's side: applies the handover to its options, and reads the control socket on a thread.

The thread answers the parent's requests while a tool blocks the event loop, and ends the worker if the parent has died.
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
from contextlib import suppress
from typing import Literal

from msgspec.json import encode

from mcpd.errors import ConfigurationError
from mcpd.protocol.channel import Ending
from mcpd.protocol.state_keys import hand_over_keys
from mcpd.server.backplane.node import SHARED
from mcpd.server.backplane.shared_memory import encode_frame
from mcpd.server.observe.report import JSON
from mcpd.server.observe.watching import Watching, exposed
from mcpd.server.settings import Options, Settings
from mcpd.transports.address import Address
from mcpd.transports.routes import Route, RouteRequest, RouteResponse
from .process import (
    VARIABLE,
    Handover,
    WorkerReport,
    decode_handover,
    decode_report,
    encode_body,
    read_frame,
)

_PATIENCE = 0.5


class WorkerWatching(Watching):
    """Watches one worker's server. It binds nothing: the parent answers for all workers."""

    def __init__(
        self, parent: Parent, server: object, settings: Settings, connections: Callable[[], Iterable[Ending]]
    ) -> None:
        super().__init__(server, settings, connections)
        self._parent = parent

    def stop(self) -> None:
        """See `Watching`. Sends the final metrics."""
        super().stop()
        self._parent.detach(WorkerReport(self.report.families()))

    async def _bind(self, address: Address) -> list[socket.socket]:
        return []

    def _bind_control(self) -> socket.socket | None:
        return None

    def _start_thread(self, sockets: list[socket.socket], control: socket.socket | None) -> None:
        self._parent.attach(self._collect)

    def _collect(self) -> WorkerReport:
        # Called on the thread of the control socket. Runs in the event loop unless that is blocked.
        self.report.pulse()
        found: Future[WorkerReport] = Future()

        def collect() -> None:
            if found.set_running_or_notify_cancel():
                found.set_result(self._report())

        try:
            self._loop.call_soon_threadsafe(collect)
            return found.result(_PATIENCE)
        except (TimeoutError, RuntimeError):
            found.cancel()
            return self._report()

    def _report(self) -> WorkerReport:
        return WorkerReport(self.report.families(), self.report.status(), self._heartbeat.late)

    def _routes(self) -> tuple[Route, ...]:
        # These routes report on all workers, whichever of them is asked (OBS-14).
        async def metrics(request: RouteRequest) -> RouteResponse:
            said = exposed((await self._parent.ask()).families, request.headers.get("accept"))
            return RouteResponse(said.body, content_type=said.content_type)

        async def statusz() -> RouteResponse:
            return RouteResponse(encode((await self._parent.ask()).status), content_type=JSON)

        return Route("/metrics", metrics), Route("/statusz", statusz)


log = logging.getLogger("mcpd")

_SEND_SECONDS = 5
_ASK_SECONDS = 3.0
# A worker ends this many seconds after `--grace` when its parent has died.
_LAST_SECONDS = 5.0


def take_over(options: Options) -> Parent:
    """Make this process the worker that its environment names: puts the handover into `options`.

    Raises ConfigurationError without a parent.
    """
    number = os.environ.pop(VARIABLE)
    try:
        parent = Parent(socket.socket(fileno=int(number)), options)
    except (OSError, ValueError, EOFError):
        raise ConfigurationError(f"{VARIABLE} is set by mcpd serve --workers; unset it") from None

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
    """The parent, at the other end of this worker's control socket; see `Overseer`. Raises OSError or EOFError."""

    def __init__(self, connected: socket.socket, options: Options) -> None:
        connected.set_inheritable(False)
        connected.setblocking(True)
        # A parent that does not read must not block this process.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))
        self._socket = connected
        self._options = options
        self._sending = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], None] | None = None
        self._is_to_stop = False
        self._is_exchanged = False
        self._collect: Callable[[], WorkerReport] | None = None
        self._asked: dict[int, asyncio.Future[WorkerReport]] = {}
        self._number = 0

        _, _, body = read_frame(connected)
        self.given: Handover = decode_handover(body)
        threading.Thread(target=self._read_frames, name="mcpd-parent", daemon=True).start()

    def say(self, line: str) -> None:
        """Print a line for people once all workers are ready. Only one worker's lines are printed."""
        if self.given.says:
            self._send(0, "say", line)

    def on_state(self, state: Literal["ready", "stopping"]) -> None:
        """Report the state of serving."""
        self._send(0, state, None)

    def _send(self, number: int, word: str, body: object) -> None:
        # If the parent is gone, the thread notices.
        with suppress(OSError), self._sending:
            self._socket.sendall(encode_frame(number, word, body))

    @property
    def is_last_on_sockets(self) -> bool:
        """See `Overseer`. An exchanged worker has a successor on its sockets; a dead one has none yet."""
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

    def attach(self, collect: Callable[[], WorkerReport]) -> None:
        """Set the function that returns this worker's metrics and status. It is called on any thread."""
        self._collect = collect

    def detach(self, last: WorkerReport) -> None:
        """Stop counting; `last` are the final metrics."""
        self._collect = None
        self._send(0, "last", encode_body(last))

    async def ask(self) -> WorkerReport:
        """Return the metrics and status of all workers. Raises TimeoutError if the parent does not respond."""
        loop = asyncio.get_running_loop()
        self._number += 1
        number = self._number

        answer: asyncio.Future[WorkerReport]
        answer = self._asked[number] = loop.create_future()
        try:
            await loop.run_in_executor(None, self._send, number, "ask", None)
            async with asyncio.timeout(_ASK_SECONDS):
                return await answer
        finally:
            del self._asked[number]

    # -- frames from the parent, on the thread -----------------------------------------------

    def _read_frames(self) -> None:
        try:
            while True:
                number, word, body = read_frame(self._socket)
                if word == "look":
                    self._show(number)
                elif word == "stop":
                    self._is_to_stop, self._is_exchanged = True, bool(body)
                    self._call(self._on_stop)
                elif word == "all":
                    self._call(self._on_all, number, body)
        except (OSError, EOFError):
            self._end_without_parent()

    def _show(self, number: int) -> None:
        collect = self._collect
        try:
            report = WorkerReport([]) if collect is None else collect()
        except Exception:
            log.exception("the metrics of this worker could not be collected")
            return
        self._send(number, "seen", encode_body(report))

    def _call(self, what: Callable[..., object], *arguments: object) -> None:
        if self._loop is None:
            return  # not serving yet
        with suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(what, *arguments)

    def _on_stop(self) -> None:
        if self._stop is not None:
            self._stop()

    def _on_all(self, number: int, body: bytes) -> None:
        answer = self._asked.get(number)
        if answer is not None and not answer.done():
            answer.set_result(decode_report(body))

    def _end_without_parent(self) -> None:
        # SIGTERM lets calls finish, or ends the process if it does not serve yet.
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(self._options.grace + _LAST_SECONDS)
        os._exit(1)
