"""What pytest's fixture `mcpd_client` is: it makes clients, in the version and over the transport of a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any

from mcpd.client import Callbacks, ClientLimits
from mcpd.protocol.principal import Principal, Transport
from mcpd.protocol.types.base import Implementation
from mcpd.server import Server
from mcpd.testing.blocking import SyncTestClient
from mcpd.testing.client import TestClient


class UnopenedClient(AbstractAsyncContextManager[TestClient], AbstractContextManager[SyncTestClient]):
    """A client that begins with `async with` in a coroutine, with `with` in a plain function."""

    def __init__(self, make: Callable[[], TestClient]) -> None:
        self._make = make
        self._client: TestClient | None = None
        self._sync: SyncTestClient | None = None

    async def __aenter__(self) -> TestClient:
        self._client = self._make()
        return await self._client.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)

    def __enter__(self) -> SyncTestClient:
        self._sync = SyncTestClient(self._make)
        return self._sync.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sync is not None:
            self._sync.__exit__(kind, error, trace)


class ClientMaker:
    """`async with mcpd_client(server) as client:`; `version` and `transport` are those of a client that names none."""

    def __init__(self, version: str | None = None, transport: Transport = "memory") -> None:
        self.version = version
        self.transport: Transport = transport

    def __call__(
        self,
        server: Server | Sequence[str],
        callbacks: Callbacks | None = None,
        *,
        user: Principal | None = None,
        headers: Mapping[str, str] | None = None,
        info: Implementation | None = None,
        extensions: Mapping[str, Any] | None = None,
        version: str | None = None,
        transport: Transport | None = None,
        timeout: float | None = 60.0,
        limits: ClientLimits | None = None,
    ) -> UnopenedClient:
        """A client of `server`, with the options of `TestClient`. A command is spoken to over stdio."""

        def make() -> TestClient:
            return TestClient(
                server,
                callbacks,
                user=user,
                headers=headers,
                info=info,
                extensions=extensions,
                version=self.version if version is None else version,
                transport=_transport(server, transport, self.transport),
                timeout=timeout,
                limits=limits,
            )

        return UnopenedClient(make)


def _transport(server: Server | Sequence[str], named: Transport | None, usual: Transport) -> Transport:
    if named is not None:
        return named
    # A test over each transport names it as `mcpd_transport`; without that mark a command needs no word.
    return "stdio" if not isinstance(server, Server) and usual == "memory" else usual
