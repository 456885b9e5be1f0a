"""For tests of servers: clients in this process, as anybody, in any version, over any transport, that keep what passed.

    client       `TestClient`, whose methods are awaited
    blocking     `SyncTestClient`, for plain functions: the same on a thread of its own
    maker        what pytest's fixture `mcpd_client` is: makes either, by `async with` or `with`
    every_version  the mark `@mcpd_every_version`
    caller       who a client is, and what may carry its messages
    joining      a server in this process joined to a client, by memory, pipes or a WebSocket
    asgi         the same over HTTP, without a socket
    recording    what passed

Nothing here is loaded by a server, nor by pytest before a test asks for it: the plugin is `mcpd/pytest_plugin.py`.
`docs/testing.md` shows how to use it.
"""

from __future__ import annotations

from mcpd.testing.blocking import SyncTestClient
from mcpd.testing.caller import TRANSPORTS
from mcpd.testing.client import VERSIONS, TestClient
from mcpd.testing.every_version import mcpd_every_version
from mcpd.testing.maker import ClientMaker, UnopenedClient
from mcpd.testing.recording import WireMessage

__all__ = [
    "TRANSPORTS",
    "VERSIONS",
    "ClientMaker",
    "SyncTestClient",
    "TestClient",
    "UnopenedClient",
    "WireMessage",
    "mcpd_every_version",
]
