"""`SyncTestClient`: a client for tests that are plain functions. It lives in an event loop on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcpd.client.blocking import BlockingClient
from mcpd.testing.client import TestClient
from mcpd.testing.recording import WireMessage


class SyncTestClient(BlockingClient[TestClient]):
    """`with SyncTestClient(lambda: TestClient(server)) as client:`, or by the fixture `mcpd_client`.

    Its methods are those of `TestClient`, and return what is awaited there. The server's `async` functions and the
    callbacks run on the other thread. `client` is the `TestClient` itself, for what is not asked of a server.
    """

    __test__ = False
    _thread_name = "mcpd-test-client"

    def __init__(self, make: Callable[[], TestClient]) -> None:
        super().__init__(make())

    @property
    def client(self) -> TestClient:
        """The `TestClient` itself. It belongs to the other thread."""
        return self._client

    @property
    def messages(self) -> list[WireMessage]:
        """All that passed, in order."""
        return self.client.messages

    def sent(self, method: str | None = None) -> list[Any]:
        """The messages that this client sent, as JSON; those of one method only, if it is named."""
        return self.client.sent(method)

    def received(self, method: str | None = None) -> list[Any]:
        """The messages that the server sent, as JSON; those of one method only, if it is named."""
        return self.client.received(method)

    def value(self, tool: str, /, **arguments: Any) -> Any:
        """`call` without options, for tools whose arguments are called like them."""
        return self.call(tool, arguments)
