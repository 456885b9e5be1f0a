"""`TestClient`: a client of a server in this process, whose methods are awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from mcpd.client import Callbacks, Client, ClientLimits
from mcpd.errors import ConfigurationError
from mcpd.protocol.principal import Principal, Transport
from mcpd.protocol.types.base import Implementation
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.server import Server
from mcpd.testing.caller import TRANSPORTS, Caller
from mcpd.testing.joining import join
from mcpd.testing.recording import WireMessage, recorded

VERSIONS: tuple[str, ...] = SUPPORTED[::-1]
"""Every protocol version, oldest first: `@pytest.mark.parametrize("version", VERSIONS)`."""


class TestClient(Client):
    """A `Client` of a server in this process: `async with TestClient(server) as client:`.

    `version`, one of `VERSIONS`, is the protocol version, None the newest. `transport`, one of `TRANSPORTS`, is what
    carries the messages: memory, pipes as on stdio, a WebSocket on the loopback, or HTTP requests without a socket. A
    command as a list instead of a server is started, and spoken to over stdio.
    `user` is who sends the requests, what tools get as `ctx.user`, and no authenticator is asked; without it the
    server's is, over WebSocket and HTTP. `headers` are what is sent with each request, what tools get as
    `ctx.headers`, by name. All else is as with `Client`. Afterwards, and meanwhile, `messages` has all that passed
    between the two, in order. Raises ConfigurationError for what does not go together.
    """

    __test__ = False  # pytest collects classes whose names begin so
    messages: list[WireMessage]

    def __init__(
        self,
        server: Server | Sequence[str],
        callbacks: Callbacks | None = None,
        *,
        user: Principal | None = None,
        headers: Mapping[str, str] | None = None,
        info: Implementation | None = None,
        extensions: Mapping[str, Any] | None = None,
        version: str | None = None,
        transport: Transport = "memory",
        timeout: float | None = 60.0,
        limits: ClientLimits | None = None,
    ) -> None:
        self.messages = []
        self._server = server
        self._transport: Transport = transport
        self._caller = Caller(user, tuple((headers or {}).items()))
        if transport not in TRANSPORTS:
            raise ConfigurationError(f"transport={transport!r}: there are {', '.join(TRANSPORTS)}")
        if not isinstance(server, Server):
            self._check_command(server)
        super().__init__(
            () if isinstance(server, Server) else server,
            Callbacks() if callbacks is None else callbacks,
            info=info,
            extensions=extensions,
            version=version,
            timeout=timeout,
            limits=ClientLimits() if limits is None else limits,
        )

    def _check_command(self, command: Sequence[str]) -> None:
        if isinstance(command, str) or not all(isinstance(part, str) for part in command):
            raise ConfigurationError(f"{command!r} is nothing to test: give a Server, or a command as a list of texts")
        if self._transport != "stdio" or self._caller.user is not None or self._caller.headers:
            raise ConfigurationError("a command is spoken to over stdio, as nobody: give transport='stdio' alone")

    async def open(self) -> None:
        """Connect and agree on a version. Raises as `Client.open`, ConfigurationError outside of asyncio."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigurationError(
                "a client of mcpd needs asyncio, which does not run here: under anyio's plugin say so by a fixture "
                'anyio_backend that returns "asyncio", or write a plain def and `with` instead of `async with`'
            ) from None
        if self._open is None:
            channel = await join(self._server, self._transport, self._caller, self.limits)
            self._target = recorded(channel, self.messages)
        await super().open()

    async def value(self, tool: str, /, **arguments: Any) -> Any:
        """`call` without options, for tools whose arguments are called like them."""
        return await self.call(tool, arguments)

    def sent(self, method: str | None = None) -> list[Any]:
        """The messages that this client sent, as JSON; those of one method only, if it is named."""
        return self._by("client", method)

    def received(self, method: str | None = None) -> list[Any]:
        """The messages that the server sent, as JSON; those of one method only, if it is named."""
        return self._by("server", method)

    def _by(self, sender: str, method: str | None) -> list[Any]:
        return [
            one.message for one in self.messages if one.sender == sender and (method is None or one.method == method)
        ]
