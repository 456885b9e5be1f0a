"""What watches the server of a worker: it tells its parent, who has the sockets, what it counts; see `observe`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol

from msgspec.json import encode

from mcpd.observe.report import JSON
from mcpd.observe.site import exposed
from mcpd.observe.watching import Watching
from mcpd.protocol.channel import Ending
from mcpd.registry.routes import Route, RouteRequest, RouteResponse
from mcpd.serve_options import Settings
from mcpd.transports.address import Address
from mcpd.workers.handover import Seen

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
