"""For tests of servers: a client without a process or a port, as anybody, in any version, that keeps what passed.

Nothing here is loaded by a server. `docs/testing.md` shows how to use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import DecodeError, Struct
from msgspec.json import decode

from .channel import Receiver
from .client import Callbacks, Client, ClientLimits
from .jsonrpc import Id
from .principal import ANONYMOUS, Origin, Principal
from .server import Server
from .transports.memory import MemoryChannel
from .types.lifecycle import Implementation
from .versions.table import SUPPORTED

__all__ = ["VERSIONS", "TestClient", "WireMessage"]

VERSIONS: tuple[str, ...] = SUPPORTED[::-1]
"""Every protocol version, oldest first: `@pytest.mark.parametrize("version", VERSIONS)`."""


class WireMessage(Struct, frozen=True):
    """One message that passed: who sent it, and the JSON-RPC message, decoded.

    A batch is a list, what is no JSON a text.
    """

    sender: Literal["client", "server"]
    message: Any

    @property
    def method(self) -> str | None:
        """The method of a request or a notification, None for an answer."""
        found = self.message.get("method") if isinstance(self.message, dict) else None
        return found if isinstance(found, str) else None


class TestClient(Client):
    """A `Client` of a server in this process: `async with TestClient(server) as client:`.

    `user` is who sends the requests, what tools get as `ctx.user`; no authenticator is asked. `headers` are what they
    get as `ctx.headers`, by name. `version`, one of `VERSIONS`, is the protocol version, None the newest. All else is
    as with `Client`. Afterwards, and meanwhile, `messages` has all that passed between the two, in order.
    """

    __test__ = False  # pytest collects classes whose names begin so
    messages: list[WireMessage]

    def __init__(
        self,
        server: Server,
        callbacks: Callbacks | None = None,
        *,
        user: Principal = ANONYMOUS,
        headers: Mapping[str, str] | None = None,
        info: Implementation | None = None,
        extensions: Mapping[str, Any] | None = None,
        version: str | None = None,
        timeout: float | None = 60.0,
        limits: ClientLimits | None = None,
    ) -> None:
        self.messages = []
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()]
        super().__init__(
            _Target(server, Origin("memory", user, fields), self.messages),
            Callbacks() if callbacks is None else callbacks,
            info=info,
            extensions=extensions,
            version=version,
            timeout=timeout,
            limits=ClientLimits() if limits is None else limits,
        )

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


class _Target:
    """A server as a `Client` takes it, whose clients are somebody, and heard."""

    def __init__(self, server: Server, origin: Origin, messages: list[WireMessage]) -> None:
        self._server = server
        self._origin = origin
        self._messages = messages

    def connect_memory(self) -> MemoryChannel:
        loop = asyncio.get_running_loop()
        near, far = _NearEnd(loop, self._messages), _FarEnd(loop, self._origin)
        near.other, far.other = far, near
        return self._server.connect_memory((near, far))


class _NearEnd(MemoryChannel):
    """The client's end: it writes down what passes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, messages: list[WireMessage]) -> None:
        super().__init__(loop)
        self._messages = messages

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        self._messages.append(WireMessage("client", _read(frame)))
        super().send(frame, related_request_id, method)

    def start(self, receiver: Receiver) -> None:
        super().start(_Recorder(receiver, self._messages))


class _FarEnd(MemoryChannel):
    """The server's end: it knows who the client is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, origin: Origin) -> None:
        super().__init__(loop)
        self._origin = origin

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return self._origin


class _Recorder:
    """Writes down what is received, and hands it on."""

    def __init__(self, receiver: Receiver, messages: list[WireMessage]) -> None:
        self._receiver = receiver
        self._messages = messages
        self.receive_error = receiver.receive_error
        self.closed = receiver.closed

    def receive(self, frame: bytes) -> None:
        self._messages.append(WireMessage("server", _read(frame)))
        self._receiver.receive(frame)


def _read(frame: bytes) -> Any:
    try:
        return decode(frame)
    except (DecodeError, UnicodeDecodeError):
        return frame.decode(errors="backslashreplace")
