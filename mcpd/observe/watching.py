"""Puts together what watches one server that is served: its meter, its control socket, its port for metrics.

`serving` makes one if any of that is wanted, and tells it when the server is ready and when it ends.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from mcpd.errors import ConfigurationError
from mcpd.observe.heartbeat import Heartbeat
from mcpd.observe.meter import Meter
from mcpd.observe.outside import Outside, Said
from mcpd.observe.report import Report
from mcpd.observe.routes import routes_of
from mcpd.observe.site import Site
from mcpd.transports.address import is_loopback, parse

if TYPE_CHECKING:
    from mcpd.observe.families import Family
    from mcpd.observe.status import Status
    from mcpd.serve_options import Settings
    from mcpd.server.registry.routes import Route

T = TypeVar("T")

_PATIENCE = 1.0


class Watching(Site):
    """What watches a server. `connections` gives all that are open now. Made in the loop that serves."""

    def __init__(self, server: Any, settings: Settings, connections: Callable[[], Iterable[Any]]) -> None:
        super().__init__(settings)
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(self._loop)
        self.report = Report(server.identity, connections, getattr(settings, "target", None) or "")
        """What is told. Others add what they know to its `sources` and `services`."""
        self.report.heartbeat = self._heartbeat
        self._outside: Outside | None = None

    async def start(self) -> None:
        """Begin, before anybody connects. Raises ConfigurationError for an address that cannot be used."""
        self.report.start()
        settings = self._settings
        sockets: list[socket.socket] = []
        if settings.metrics is not None:
            self.report.meter = Meter(self._server.catalog.tools.offered)
            self._server.add_observer(self.report.meter)
            if settings.metrics == "http":
                self._add_routes()
            else:
                sockets = await self._bind(parse(settings.metrics))
        try:
            control = self._bind_control()
        except ConfigurationError:
            for each in sockets:
                each.close()
            self.stop()
            raise
        self._go_outside(sockets, control)

    def _go_outside(self, sockets: list[socket.socket], control: socket.socket | None) -> None:
        if sockets or control is not None or self.report.meter is not None:
            self._outside = Outside(self.answer, sockets, control, self.report.pulse)
            self._outside.start()

    def add(self, listener: object) -> None:
        """It listens now: what its application knows is told too, if it is one of ours."""
        facts = getattr(getattr(listener, "app", None), "facts", None)
        if facts is not None:
            self.report.services.append(facts)

    def ready(self, urls: list[str]) -> None:
        """It serves now, at these addresses."""
        self.report.urls = urls
        if self.report.state == "starting":
            self.report.state = "ready"

    def stopping(self) -> None:
        """It is told to stop, and lets calls end."""
        self.report.state = "stopping"

    def stop(self) -> None:
        """It has stopped."""
        self.report.stop()
        self._unbind_control()
        if self._outside is not None:
            self._outside.stop()

    # -- where it is asked -------------------------------------------------------------------

    def _add_routes(self) -> None:
        """`/metrics` and `/statusz` on the port of HTTP. Raises ConfigurationError where others could read them."""
        settings = self._settings
        if settings.http is None:
            raise ConfigurationError(
                "--metrics http: HTTP is not served; add --http :8080, or give --metrics an address"
            )
        address = parse(settings.http)
        if self._server.authenticate is not None:
            raise ConfigurationError(
                "--metrics http: each user of this server could read them; give them a port, as --metrics :9464"
            )
        if not address.path and not is_loopback(address.host) and settings.token is None:
            raise ConfigurationError(
                f"--metrics http: {address} can be reached from other machines; ask for a token with --token-file FILE "
                "or MCPD_TOKEN, or give the metrics a port of this machine's, as --metrics :9464"
            )

        from mcpd.http import HttpSettings

        details = settings.http_settings or HttpSettings()
        settings.http_settings = replace(details, routes=(*details.routes, *self._routes()))

    def _routes(self) -> tuple[Route, ...]:
        return routes_of(self.report)

    # -- what is answered, on the thread outside ---------------------------------------------

    async def asked_families(self) -> Sequence[Family]:
        """See `Site`."""
        return await self._ask(self.report.families)

    async def asked_status(self) -> Status:
        """See `Site`."""
        return await self._ask(self.report.status)

    def health(self) -> Said:
        """See `Site`."""
        return self.report.health()

    def readiness(self) -> Said:
        """See `Site`."""
        return self.report.readiness()

    async def _ask(self, look: Callable[[], T]) -> T:
        """What `look` gives in the loop that serves. If that does not turn, nothing changes there: look from here."""
        found: Future[T] = Future()

        def run() -> None:
            if found.set_running_or_notify_cancel():
                try:
                    found.set_result(look())
                except Exception as error:
                    found.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(run)
            async with asyncio.timeout(_PATIENCE):
                return await asyncio.wrap_future(found)
        except (TimeoutError, RuntimeError):
            return look()
