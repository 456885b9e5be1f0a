"""What watches a server that runs as an ASGI application in somebody else's server: it counts, and is asked over HTTP.

There is no port and no control socket of its own, and so nobody to ask while the event loop hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from mcpd.errors import ConfigurationError
from mcpd.observe.heartbeat import Heartbeat
from mcpd.observe.meter import Meter
from mcpd.observe.outside import Asked, Outside, Said
from mcpd.observe.report import Report
from mcpd.observe.routes import routes_of
from mcpd.server.registry.routes import Route
from mcpd.transports.guards import Access


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
