"""Puts together what watches one server that is served: its meter, its control socket, its port for metrics.

`serving` makes one if any of that is wanted, and tells it when the server is ready and when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.json import encode
from msgspec.structs import replace

from mcpd.errors import ConfigurationError
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from mcpd.serve_options import Settings
from mcpd.server.observe.control import checked_folder, control_path
from mcpd.server.observe.meter import Meter
from mcpd.server.observe.metrics import OPEN_METRICS, TEXT, Family, expose, wants_open_metrics
from mcpd.server.observe.outside import Asked, Outside, Said
from mcpd.server.observe.report import JSON, Heartbeat, Report, Status
from mcpd.server.registry.routes import Route, RouteRequest, RouteResponse
from mcpd.transports.address import Address, authority, bind, is_loopback, parse
from mcpd.transports.authentication import TokenAuthenticator
from mcpd.transports.guards import Access, Guard

if TYPE_CHECKING:
    from mcpd.serve_options import Settings
    from mcpd.server.observe.metrics import Family
    from mcpd.server.observe.report import Status
    from mcpd.server.registry.routes import Route


def routes_of(report: Report) -> tuple[Route, ...]:
    """Both. They ask for what the endpoint asks for, so that it has to ask for a token, or be this machine's alone."""

    async def metrics(request: RouteRequest) -> RouteResponse:
        said = report.metrics(request.headers.get("accept"))
        return RouteResponse(said.body, content_type=said.content_type)

    async def statusz() -> RouteResponse:
        return RouteResponse(encode(report.status()), content_type=JSON)

    return Route("/metrics", metrics), Route("/statusz", statusz)


log = logging.getLogger("mcpd")


class Site(ABC):
    """Answers what comes by the port of `--metrics` and by the control socket. `settings` say who may ask."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._counts = settings.metrics is not None
        self._control_path = ""
        self._guard = Guard(Access())
        self._token: TokenAuthenticator | None = None

    # -- what is known -----------------------------------------------------------------------

    @abstractmethod
    async def asked_families(self) -> Sequence[Family]:
        """All metrics, as they are now."""

    @abstractmethod
    async def asked_status(self) -> Status:
        """What `mcpd status` shows."""

    @abstractmethod
    def health(self) -> Said:
        """What `/healthz` says."""

    @abstractmethod
    def readiness(self) -> Said:
        """What `/readyz` says."""

    # -- where it is asked -------------------------------------------------------------------

    async def _bind(self, address: Address) -> list[socket.socket]:
        token = self._settings.token
        if not address.path and not is_loopback(address.host) and token is None:
            # Not even with --insecure, which is about what the server offers, not about who uses it (OBS-04).
            raise ConfigurationError(
                f"--metrics {address} can be reached from other machines: ask for a token with --token-file FILE or "
                f"MCPD_TOKEN; :{address.port} is for this machine only"
            )
        self._guard = Guard(Access(token=token, hosts=self._settings.allowed_hosts), address.host)
        self._token = None if token is None else TokenAuthenticator(token)
        sockets = list(self._settings.sockets.get("metrics", ())) or await bind(address, is_guarded=token is not None)
        log.info("Metrics are at http://%s/metrics", printable(authority(sockets[0])))
        return sockets

    def _bind_control(self) -> socket.socket | None:
        """The control socket, if there is to be one; where nobody asked for it, it is left out if it cannot be."""
        wanted = self._settings.control
        if wanted == "never" or not hasattr(socket, "AF_UNIX"):
            return None
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            folder = checked_folder(make=True)
            assert folder is not None
            path = control_path(folder)
            # It gets its name once it listens: one of that name that does not is taken for what a killed process left.
            new = path + "~"
            try:
                os.unlink(new)
            except FileNotFoundError:
                pass
            listening.bind(new)
            os.chmod(new, 0o600)
            listening.listen(16)
            os.rename(new, path)
            listening.setblocking(False)
        except (OSError, ConfigurationError) as error:
            listening.close()
            if wanted == "always":
                raise ConfigurationError(f"no control socket: {error}") from None
            log.info("No control socket, so mcpd status does not find this server: %s", printable(error, 300))
            return None
        self._control_path = path
        return listening

    def _unbind_control(self) -> None:
        if self._control_path:
            try:
                os.unlink(self._control_path)
            except OSError:
                pass

    # -- what is answered --------------------------------------------------------------------

    async def answer(self, asked: Asked) -> Said:
        """What is asked by the port of its own, or by the control socket."""
        path = asked.path
        if not asked.is_control:
            refusal = self._guard.check_source(asked.headers.get("host"), asked.headers.get("origin"))
            if refusal is not None:
                return Said(refusal.status, refusal.text.encode())
        if asked.method == "POST" and path == "/stop" and asked.is_control:
            os.kill(os.getpid(), signal.SIGTERM)
            return Said(202, b"stopping\n")
        if asked.method not in ("GET", "HEAD"):
            return Said(405, b"There is only GET here.\n", headers=(("Allow", "GET, HEAD"),))
        if path == "/healthz":
            return self.health()
        if path == "/readyz":
            return self.readiness()

        if not asked.is_control and self._token is not None:
            known = self._token(asked.headers)
            if not isinstance(known, Principal):
                return Said(known.status, known.text.encode(), headers=known.headers)
        if path == "/metrics" and self._counts:
            return exposed(await self.asked_families(), asked.headers.get("accept"))
        if path == "/metrics.json" and asked.is_control:
            return Said(200, encode(await self.asked_families()), JSON)
        if path == "/statusz":
            return Said(200, encode(await self.asked_status()), JSON)
        return Said(404, b"Here are /metrics, /statusz, /healthz and /readyz.\n")


def exposed(families: Iterable[Family], accept: str | None) -> Said:
    """Metrics in the format that was asked for."""
    is_open = wants_open_metrics(accept)
    return Said(200, expose(families, open_metrics=is_open), OPEN_METRICS if is_open else TEXT)


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

        from mcpd.server.http import HttpSettings

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


class Embedded:
    """Of one application; `routes` are for it. Raises ConfigurationError where others could read them (OBS-04)."""

    def __init__(self, server: Any, access: Access) -> None:
        if access.token is None:
            # With users of its own each of them could read it; without anybody asking, all could.
            raise ConfigurationError("asgi_app(metrics=True): give a token=, which reads them and uses the server")
        self.report = Report(server.identity, self._connections)
        self.report.meter = Meter(server.catalog.tools.offered)
        server.add_observer(self.report.meter)
        self.routes: tuple[Route, ...] = routes_of(self.report)
        self._app: Any = None
        self._outside: Outside | None = None

    def join(self, app: Any) -> None:
        """This is the application."""
        self._app = app
        self.report.services.append(app.facts)

    def _connections(self) -> Iterable[Any]:
        return [*self._app.connections, *self._app.core.sockets.values()]

    def start(self) -> None:
        """Begin, in the loop that serves. Safe to call again."""
        if self._outside is None:
            self.report.start()
            self.report.state = "ready"
            self.report.heartbeat = Heartbeat(asyncio.get_running_loop())
            # For its thread: once a second it works off what was counted, and looks whether the loop turns.
            self._outside = Outside(_nobody, (), None, self.report.pulse)
            self._outside.start()

    def stop(self) -> None:
        """End. Safe to call twice; `start` begins again."""
        self.report.stop()
        if self._outside is not None:
            self._outside.stop()
            self._outside = None


async def _nobody(asked: Asked) -> Said:
    """Nothing is listened on."""
    return Said(404, b"")
