"""One server of a group: opened, kept, and opened again when it is lost, while the others serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import uniform

from mcpd.client.client import Client
from mcpd.client.group_names import Prefix
from mcpd.errors import ConnectionLost, McpdError, RemoteError
from mcpd.protocol.printable import printable
from mcpd.types.notifications import LogLevel

log = logging.getLogger("mcpd.client")

FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 60.0
_LIVED_SECONDS = 10.0
"""A server that was there for so long is tried again as soon as one that is tried for the first time."""


class Member:
    """A server called `name`: `make` makes a client of it, `told` hears of each time it comes or goes."""

    def __init__(
        self, name: str, prefix: Prefix, make: Callable[[], Client], told: Callable[[Member, McpdError | None], None]
    ) -> None:
        self.name = name
        self.prefix = prefix
        self.client: Client | None = None
        """The client while the server is there."""
        self.error: McpdError | None = None
        """Why it is not there; None while it is, and before it was tried."""
        self.tried = asyncio.Event()
        """It has come, or failed to, at least once."""

        self._make = make
        self._told = told
        self._current: Client | None = None
        self._lost = asyncio.Event()
        self._uris: set[str] = set()
        self._level: LogLevel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to open it."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def aclose(self) -> None:
        """Close it, and try no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def require(self) -> Client:
        """The client. Raises ConnectionLost that says why there is none."""
        if self.client is None:
            why = "it has not come yet" if self.error is None else str(self.error)
            raise ConnectionLost(f"the server {self.name} is not there, and is tried again: {why}")
        return self.client

    def lose(self, client: Client, error: McpdError) -> None:
        """The connection of this client has ended."""
        if client is self._current:
            self._current = self.client = None
            self.error = error
            self._lost.set()

    async def watch(self, uri: str) -> None:
        """Subscribe to a resource, also when the server comes again."""
        await self.require().subscribe(uri)
        self._uris.add(uri)

    async def unwatch(self, uri: str) -> None:
        """Be subscribed to it no longer."""
        self._uris.discard(uri)
        if self.client is not None:
            await self.client.unsubscribe(uri)

    async def set_log_level(self, level: LogLevel) -> None:
        """Hear of log messages of this level and above, also when the server comes again."""
        self._level = level
        if self.client is not None and self.client.server_capabilities.logging is not None:
            await self.client.set_log_level(level)

    # -- its life -----------------------------------------------------------------------------

    async def _keep(self) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            self._lost.clear()
            client = self._current = self._make()
            client.on_lost = lambda error, client=client: self.lose(client, error)
            began = loop.time()
            try:
                await self._open(client)
                began = loop.time()
                await self._lost.wait()
            except (McpdError, OSError) as error:
                self.error = error if isinstance(error, McpdError) else ConnectionLost(str(error))
            except Exception as error:  # whatever it is: the server is tried again, and nobody waits for it in vain
                log.exception("the server %s cannot be opened", printable(self.name))
                self.error = ConnectionLost(f"{type(error).__name__}: {error}")
            finally:
                self._current = self.client = None
                await self._close(client)

            self._report()
            failures = 1 if loop.time() - began > _LIVED_SECONDS else min(failures + 1, 20)
            most = min(FIRST_RETRY_SECONDS * 2 ** (failures - 1), LONGEST_RETRY_SECONDS)
            await asyncio.sleep(uniform(most / 2, most))  # not all at once where many were lost at once

    async def _open(self, client: Client) -> None:
        await client.open()
        try:
            if self._level is not None and client.server_capabilities.logging is not None:
                await client.set_log_level(self._level)
            for uri in sorted(self._uris):
                await client.subscribe(uri)
        except RemoteError as error:
            log.warning("the server %s is there again, and takes no subscription: %s", self.name, printable(error))
        if not self._lost.is_set():
            self.client, self.error = client, None
            log.debug("the server %s is there", self.name)
            self._report()

    async def _close(self, client: Client) -> None:
        client.on_lost = None
        try:
            await client.aclose()
        except Exception as error:
            log.debug("the server %s cannot be closed: %s", self.name, printable(error))

    def _report(self) -> None:
        self.tried.set()
        self._told(self, self.error)
