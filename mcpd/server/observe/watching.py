"""Observation of a running server: `/metrics`, `/statusz` and health on a port, on routes, and on the control socket.

`serving` creates a `Watching` for `--metrics` and the control socket. `workers.overview` derives from `Site` for a
parent with workers. `Embedded` observes an application in another ASGI server, with routes only: while the loop is
blocked it cannot answer.
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
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import META
from mcpd.server.settings import Settings
from mcpd.transports.address import Address, authority, bind, is_loopback, parse
from mcpd.transports.authentication import TokenAuthenticator
from mcpd.transports.guards import Access, Guard
from mcpd.transports.routes import Route, RouteRequest, RouteResponse
from .control import checked_folder, control_path
from .http_thread import HttpThread, ObserverRequest, ObserverResponse
from .metrics import OPEN_METRICS, TEXT, Family, Meter, expose, wants_open_metrics
from .report import JSON, Heartbeat, MountStatus, Report, Status


def routes_of(report: Report) -> tuple[Route, ...]:
    """Return the routes `/metrics` and `/statusz`. They require the credentials of the endpoint, which therefore must
    require a token, or be for this machine only."""

    async def metrics(request: RouteRequest) -> RouteResponse:
        response = exposed(report.families(), request.headers.get("accept"))
        return RouteResponse(response.body, content_type=response.content_type)

    async def statusz() -> RouteResponse:
        return RouteResponse(encode(report.status()), content_type=JSON)

    return Route("/metrics", metrics), Route("/statusz", statusz)


def mounts_of(server: Any) -> list[MountStatus]:
    """Return the status of all servers that are mounted on a server."""
    return [each for extension in server.extensions.values() for each in extension.mounts()]


def events_of(server: Any) -> dict[str, int]:
    """Return the counts of a server's events; nothing of a server without events."""
    extension = server.extensions.get(_EVENTS)
    return {} if extension is None else extension.counts()


_EVENTS = f"{META}events"
log = logging.getLogger("mcpd")


class Site(ABC):
    """Answers requests on the port of `--metrics` and the control socket. `settings` control the access."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._counts = settings.metrics is not None
        self._control_path = ""
        self._guard = Guard(Access())
        self._token: TokenAuthenticator | None = None

    # -- sources -----------------------------------------------------------------------------

    @abstractmethod
    async def asked_families(self) -> Sequence[Family]:
        """Return all metrics."""

    @abstractmethod
    async def asked_status(self) -> Status:
        """Return the status that `mcpd status` shows."""

    async def asked_events(self, what: str, body: bytes) -> ObserverResponse:
        """Answer `mcpd events`."""
        return ObserverResponse(404, b"with --workers, its events cannot be controlled")

    @abstractmethod
    def health(self) -> ObserverResponse:
        """Answer `/healthz`."""

    @abstractmethod
    def readiness(self) -> ObserverResponse:
        """Answer `/readyz`."""

    # -- sockets -----------------------------------------------------------------------------

    async def _bind(self, address: Address) -> list[socket.socket]:
        token = self._settings.token
        if not address.path and not is_loopback(address.host) and token is None:
            # Not even with --insecure, which opens the server's tools, not its metrics (OBS-04).
            raise ConfigurationError(
                f"--metrics {address} can be reached from other machines: require a token with --token-file FILE or "
                f"MCPD_TOKEN, or use :{address.port} for this machine only"
            )

        self._guard = Guard(Access(token=token, hosts=self._settings.allowed_hosts), address.host)
        self._token = None if token is None else TokenAuthenticator(token)
        sockets = list(self._settings.sockets.get("metrics", ())) or await bind(address, is_guarded=token is not None)
        log.info("Metrics are at http://%s/metrics", printable(authority(sockets[0])))
        return sockets

    def _bind_control(self) -> socket.socket | None:
        # Return the control socket; None if it is off, or it is optional and cannot be created.
        wanted = self._settings.control
        if wanted == "never" or not hasattr(socket, "AF_UNIX"):
            return None
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            folder = checked_folder(make=True)
            assert folder is not None
            path = control_path(folder)
            # Renamed once it listens: a socket of that name that does not listen counts as left by a killed process.
            new = path + "~"
            with suppress(FileNotFoundError):
                os.unlink(new)
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
            with suppress(OSError):
                os.unlink(self._control_path)

    # -- requests ----------------------------------------------------------------------------

    async def answer(self, request: ObserverRequest) -> ObserverResponse:
        """Answer a request on the port or the control socket."""
        path = request.path
        if not request.is_control:
            refusal = self._guard.check_source(request.headers.get("host"), request.headers.get("origin"))
            if refusal is not None:
                return ObserverResponse(refusal.status, refusal.text.encode())

        if request.method == "POST" and path == "/stop" and request.is_control:
            os.kill(os.getpid(), signal.SIGTERM)
            return ObserverResponse(202, b"stopping\n")

        if path.startswith("/events/") and request.is_control:
            return await self.asked_events(path.removeprefix("/events/"), request.body)

        if request.method not in ("GET", "HEAD"):
            return ObserverResponse(405, b"Only GET is supported here.\n", headers=(("Allow", "GET, HEAD"),))
        if path == "/healthz":
            return self.health()
        if path == "/readyz":
            return self.readiness()

        if not request.is_control and self._token is not None:
            known = self._token(request.headers)
            if not isinstance(known, Principal):
                return ObserverResponse(known.status, known.text.encode(), headers=known.headers)

        if path == "/metrics" and self._counts:
            return exposed(await self.asked_families(), request.headers.get("accept"))
        if path == "/metrics.json" and request.is_control:
            return ObserverResponse(200, encode(await self.asked_families()), JSON)
        if path == "/statusz":
            return ObserverResponse(200, encode(await self.asked_status()), JSON)
        return ObserverResponse(404, b"Available paths: /metrics, /statusz, /healthz and /readyz.\n")


def exposed(families: Iterable[Family], accept: str | None) -> ObserverResponse:
    """Return metrics in the format of an `Accept` header."""
    is_open = wants_open_metrics(accept)
    return ObserverResponse(200, expose(families, open_metrics=is_open), OPEN_METRICS if is_open else TEXT)


T = TypeVar("T")

_PATIENCE = 1.0


class Watching(Site):
    """Observes a server. `connections` returns the open connections. Create it in the server's event loop."""

    def __init__(self, server: Any, settings: Settings, connections: Callable[[], Iterable[Any]]) -> None:
        super().__init__(settings)
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(self._loop)
        self.report = Report(server.identity, connections, getattr(settings, "target", None) or "")
        """The state of the server. Other modules add to its `sources` and `services`."""
        self.report.mounts = lambda: mounts_of(server)
        self.report.events = lambda: events_of(server)
        self.report.heartbeat = self._heartbeat
        self._thread_server: HttpThread | None = None

    async def start(self) -> None:
        """Start, before the first client connects. Raises ConfigurationError for an address that cannot be used."""
        self.report.start()
        settings = self._settings
        sockets: list[socket.socket] = []
        if settings.metrics is not None:
            self.report.meter = Meter(self._server.catalog.tools.find_enabled)
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

        self._start_thread(sockets, control)

    def _start_thread(self, sockets: list[socket.socket], control: socket.socket | None) -> None:
        if sockets or control is not None or self.report.meter is not None:
            self._thread_server = HttpThread(self.answer, sockets, control, self.report.pulse)
            self._thread_server.start()

    def add(self, listener: object) -> None:
        """Include the status of a listener's HTTP application."""
        status = getattr(getattr(listener, "app", None), "status", None)
        if status is not None:
            self.report.services.append(status)

    def ready(self, urls: list[str]) -> None:
        """The server is ready, at these URLs."""
        self.report.urls = urls
        if self.report.state == "starting":
            self.report.state = "ready"

    def stopping(self) -> None:
        """The server is stopping, and lets running calls end."""
        self.report.state = "stopping"

    def stop(self) -> None:
        """The server has stopped."""
        self.report.stop()
        self._unbind_control()
        if self._thread_server is not None:
            self._thread_server.stop()

    # -- sockets -----------------------------------------------------------------------------

    def _add_routes(self) -> None:
        # Add `/metrics` and `/statusz` to the HTTP port. Raises ConfigurationError if other users could read them.
        settings = self._settings
        if settings.http is None:
            raise ConfigurationError(
                "--metrics http: HTTP is not served; add --http :8080, or give --metrics an address"
            )

        address = parse(settings.http)
        if self._server.authenticate is not None:
            raise ConfigurationError(
                "--metrics http: each user of this server could read them; use a separate port, such as --metrics :9464"
            )

        if not address.path and not is_loopback(address.host) and settings.token is None:
            raise ConfigurationError(
                f"--metrics http: {address} can be reached from other machines; require a token with --token-file FILE "
                "or MCPD_TOKEN, or use a port of this machine only, such as --metrics :9464"
            )

        from mcpd.server.http import HttpSettings

        details = settings.http_settings or HttpSettings()
        settings.http_settings = replace(details, routes=(*details.routes, *self._routes()))

    def _routes(self) -> tuple[Route, ...]:
        return routes_of(self.report)

    # -- requests, on the other thread -------------------------------------------------------

    async def asked_families(self) -> Sequence[Family]:
        return await self._ask(self.report.families)

    async def asked_status(self) -> Status:
        return await self._ask(self.report.status)

    async def asked_events(self, what: str, body: bytes) -> ObserverResponse:
        extension = self._server.extensions.get(_EVENTS)
        if extension is None:
            return ObserverResponse(404, b"it has no events")
        work = _control_events(extension, what, body)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def health(self) -> ObserverResponse:
        return self.report.health()

    def readiness(self) -> ObserverResponse:
        return self.report.readiness()

    async def _ask(self, read: Callable[[], T]) -> T:
        # Call `read` in the server's event loop, or here if the loop is blocked and nothing changes anyway.
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(read())
                except Exception as error:
                    future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(run)
            async with asyncio.timeout(_PATIENCE):
                return await asyncio.wrap_future(future)
        except (TimeoutError, RuntimeError):
            return read()


class _EventRequest(Struct):
    name: str = ""
    data: Any = None
    id: str | None = None
    subscription: str = ""


async def _control_events(extension: Any, what: str, body: bytes) -> ObserverResponse:
    # Emit an event, or look after the webhooks of an extension with events.
    try:
        asked = decode(body or b"{}", type=_EventRequest)
        engine = extension.webhooks
        found: Any
        if what == "emit":
            found = extension.emit(asked.name, asked.data, id=asked.id)
        elif what == "status":
            found = [] if engine is None else engine.status()
        elif engine is None or asked.subscription not in {each["id"] for each in engine.status()}:
            return ObserverResponse(404, f"it has no webhook subscription {asked.subscription!r}".encode())
        else:
            # The name of a method of the engine: failed, retry or drop.
            found = await getattr(engine, _ON_SUBSCRIPTIONS[what])(asked.subscription)
    except KeyError as error:
        return ObserverResponse(404, str(error.args[0]).encode())
    except (McpdError, ValueError, TypeError) as error:
        return ObserverResponse(400, str(error).encode())
    return ObserverResponse(200, encode(found), JSON)


_ON_SUBSCRIPTIONS = {name: name for name in ("failed", "retry", "drop")}


class Embedded:
    """Observes an application in another ASGI server; `routes` are for it. Raises ConfigurationError without a token,
    because other users could read the metrics (OBS-04)."""

    def __init__(self, server: Any, access: Access) -> None:
        if access.token is None:
            # Every user of the server could read the metrics, or everybody without authentication.
            raise ConfigurationError("asgi_app(metrics=True): pass token=, which protects the metrics and the server")
        self.report = Report(server.identity, self._connections)
        self.report.mounts = lambda: mounts_of(server)
        self.report.events = lambda: events_of(server)
        self.report.meter = Meter(server.catalog.tools.find_enabled)
        server.add_observer(self.report.meter)
        self.routes: tuple[Route, ...] = routes_of(self.report)
        self._app: Any = None
        self._thread_server: HttpThread | None = None

    def join(self, app: Any) -> None:
        """Observe this application, and start and stop with it."""
        self._app = app
        self.report.services.append(app.status)
        app.on_start, app.on_stop = self.start, self.stop

    def _connections(self) -> Iterable[Any]:
        return [*self._app.connections, *self._app.core.sockets.values()]

    def start(self) -> None:
        """Start in the server's event loop. Safe to call again."""
        if self._thread_server is None:
            self.report.start()
            self.report.state = "ready"
            self.report.heartbeat = Heartbeat(asyncio.get_running_loop())
            # Only for its thread, which updates the meter and checks the event loop once a second.
            self._thread_server = HttpThread(_nobody, (), None, self.report.pulse)
            self._thread_server.start()

    def stop(self) -> None:
        """Stop. Safe to call twice; `start` starts again."""
        self.report.stop()
        if self._thread_server is not None:
            self._thread_server.stop()
            self._thread_server = None


async def _nobody(request: ObserverRequest) -> ObserverResponse:
    # No socket is listened on, so no request arrives.
    return ObserverResponse(404, b"")
