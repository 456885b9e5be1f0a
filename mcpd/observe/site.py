"""What can be asked about a daemon from outside: metrics, status, health, and by its control socket to stop.

`Watching` has it for the server in its own process, `workers.overview` for a parent and its workers.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from msgspec.json import encode

from mcpd.errors import ConfigurationError
from mcpd.observe.exposition import OPEN_METRICS, TEXT, expose, wants_open_metrics
from mcpd.observe.families import Family
from mcpd.observe.outside import Asked, Said
from mcpd.observe.report import JSON
from mcpd.observe.runtime_folder import checked_folder, control_path
from mcpd.observe.status import Status
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from mcpd.serve_options import Settings
from mcpd.transports.address import Address, authority, bind, is_loopback
from mcpd.transports.authentication import TokenAuthenticator
from mcpd.transports.guards import Access, Guard

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
