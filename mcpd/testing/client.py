"""Clients of servers in the same process: `TestClient`, `SyncTestClient` for plain functions, and the pytest mark.

Each client records the messages that it sends and receives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from msgspec import DecodeError, Struct
from msgspec.json import decode

from mcpd.client import Callbacks, Client, ClientLimits
from mcpd.client.blocking import BlockingClient
from mcpd.client.channels import ChannelWatcher, watched
from mcpd.errors import ConfigurationError
from mcpd.protocol.principal import Principal, Transport
from mcpd.protocol.types.base import Implementation
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.server import Server
from .joining import TRANSPORTS, Caller, join

if TYPE_CHECKING:
    import pytest

VERSIONS: tuple[str, ...] = SUPPORTED[::-1]
"""Every protocol version, oldest first: `@pytest.mark.parametrize("version", VERSIONS)`."""

F = TypeVar("F", bound=Callable[..., Any] | type)


class WireMessage(Struct, frozen=True):
    """A message that was sent: its sender, and the decoded JSON-RPC message.

    A batch is a list; a message that is not JSON is a string.
    """

    sender: Literal["client", "server"]
    message: Any

    @property
    def method(self) -> str | None:
        """The method of a request or notification; None for a response."""
        found = self.message.get("method") if isinstance(self.message, dict) else None
        return found if isinstance(found, str) else None


class TestClient(Client):
    """A `Client` of a server in this process: `async with TestClient(server) as client:`.

    `version` is one of `VERSIONS`; None is the newest. `transport` is one of `TRANSPORTS`: memory, pipes as on stdio, a
    WebSocket on the loopback, or HTTP requests without a socket. Instead of a server, a command as a list of strings
    can be given; it is started and uses stdio.

    `user` is the user who sends the requests (`ctx.user` in tools); the server's authenticator is then not called.
    Without `user`, WebSocket and HTTP call it. `headers` are sent with each request (`ctx.headers` in tools). All other
    arguments are those of `Client`. `messages` has all messages between the two, in order.

    Raises ConfigurationError for arguments that exclude each other.
    """

    __test__ = False  # pytest would collect the class by its name
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
            raise ConfigurationError(f"transport={transport!r}: the transports are {', '.join(TRANSPORTS)}")
        if not isinstance(server, Server):
            # A string is a sequence of strings, too.
            if isinstance(server, str) or not all(isinstance(part, str) for part in server):
                raise ConfigurationError(f"cannot test {server!r}: give a Server, or a command as a list of strings")
            if transport != "stdio" or user is not None or headers:
                raise ConfigurationError("a command requires transport='stdio', and excludes user= and headers=")

        super().__init__(
            () if isinstance(server, Server) else server,
            Callbacks() if callbacks is None else callbacks,
            info=info,
            extensions=extensions,
            version=version,
            timeout=timeout,
            limits=ClientLimits() if limits is None else limits,
        )

    async def open(self) -> None:
        """Connect. Raises the errors of `Client.open`, and ConfigurationError if asyncio is not running."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigurationError(
                "a client of mcpd needs asyncio, which is not running: with anyio's plugin, write a fixture "
                'anyio_backend that returns "asyncio"; or write a plain def, and `with` instead of `async with`'
            ) from None
        if self._open is None:
            channel = await join(self._server, self._transport, self._caller, self.limits)
            self._target = watched(channel, _Recorder(self.messages))
        await super().open()

    async def value(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool and return its value, for arguments that have the names of options of `call`."""
        return await self.call(tool, arguments)

    def sent(self, method: str | None = None) -> list[Any]:
        """The messages that this client sent, as JSON; if `method` is given, only its messages."""
        return self._by("client", method)

    def received(self, method: str | None = None) -> list[Any]:
        """The messages that the server sent, as JSON; if `method` is given, only its messages."""
        return self._by("server", method)

    def _by(self, sender: str, method: str | None) -> list[Any]:
        return [each.message for each in self.messages if each.sender == sender and method in (None, each.method)]


class _Recorder(ChannelWatcher):
    def __init__(self, messages: list[WireMessage]) -> None:
        self._messages = messages

    def sent(self, frame: bytes) -> None:
        self._messages.append(WireMessage("client", _decoded(frame)))

    def received(self, frame: bytes) -> None:
        self._messages.append(WireMessage("server", _decoded(frame)))


def _decoded(frame: bytes) -> Any:
    try:
        return decode(frame)
    except (DecodeError, UnicodeDecodeError):
        return frame.decode(errors="backslashreplace")


class SyncTestClient(BlockingClient[TestClient]):
    """A client for plain functions: `with SyncTestClient(lambda: TestClient(server)) as client:`.

    It has the methods of `TestClient`, which return their results directly. The client, the server's `async` functions
    and the callbacks run in an event loop on another thread.
    """

    __test__ = False
    _thread_name = "mcpd-test-client"

    def __init__(self, make: Callable[[], TestClient]) -> None:
        super().__init__(make())

    @property
    def client(self) -> TestClient:
        """The `TestClient`, which belongs to the other thread."""
        return self._client

    @property
    def messages(self) -> list[WireMessage]:
        """All messages, in order."""
        return self.client.messages

    def sent(self, method: str | None = None) -> list[Any]:
        """The messages that this client sent, as JSON; if `method` is given, only its messages."""
        return self.client.sent(method)

    def received(self, method: str | None = None) -> list[Any]:
        """The messages that the server sent, as JSON; if `method` is given, only its messages."""
        return self.client.received(method)

    def value(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool and return its value, for arguments that have the names of options of `call`."""
        return self.call(tool, arguments)


class UnopenedClient(AbstractAsyncContextManager[TestClient], AbstractContextManager[SyncTestClient]):
    """A client that connects with `async with` in a coroutine, or with `with` in a plain function."""

    def __init__(self, make: Callable[[], TestClient]) -> None:
        self._make = make
        self._client: TestClient
        self._sync: SyncTestClient

    async def __aenter__(self) -> TestClient:
        self._client = self._make()
        return await self._client.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._client.__aexit__(*error)

    def __enter__(self) -> SyncTestClient:
        self._sync = SyncTestClient(self._make)
        return self._sync.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._sync.__exit__(*error)


class ClientMaker:
    """The value of the fixture `mcpd_client`: makes clients, `async with mcpd_client(server) as client:`.

    `version` and `transport` are the defaults for clients that name none.
    """

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
        """Make a client of `server`, with the arguments of `TestClient`. A command uses stdio by default."""

        # `mcpd_transport` names the transport in a test over several transports; otherwise it is memory.
        is_command = not isinstance(server, Server)
        default: Transport = "stdio" if is_command and self.transport == "memory" else self.transport

        def make() -> TestClient:
            return TestClient(
                server,
                callbacks,
                user=user,
                headers=headers,
                info=info,
                extensions=extensions,
                version=self.version if version is None else version,
                transport=transport or default,
                timeout=timeout,
                limits=limits,
            )

        return UnopenedClient(make)


@overload
def mcpd_every_version(test: F, /) -> F: ...


@overload
def mcpd_every_version(
    *, versions: Sequence[str] = (), transports: Sequence[Transport] | Literal["all"] = ()
) -> pytest.MarkDecorator: ...


def mcpd_every_version(
    test: F | None = None, /, *, versions: Sequence[str] = (), transports: Sequence[Transport] | Literal["all"] = ()
) -> F | pytest.MarkDecorator:
    """Run a test, or the tests of a class, in each protocol version: `@mcpd_every_version`.

    The test must take `mcpd_client` or `mcpd_version`. `versions` limits the versions. `transports` runs the test over
    each of these transports, `"all"` over every one; by default it runs in memory. `mcpd_version` and `mcpd_transport`
    are fixtures with the current values. For a whole module, write `pytestmark = mcpd_every_version()`.
    """
    import pytest  # `TestClient` works without pytest

    mark = pytest.mark.mcpd_every_version(versions=tuple(versions), transports=transports)
    return mark if test is None else mark(test)
