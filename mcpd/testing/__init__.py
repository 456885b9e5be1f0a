"""Tests of servers: clients in the same process, as any user, in any protocol version, over any transport.

`client` has `TestClient` and its blocking twin; `joining` and `asgi` connect it to a server by each transport.
`approval` compares a server with an approval file. `pytest_plugin` is loaded in every run of pytest: it must not import
anything else of mcpd before a test needs it. docs/testing.md shows how to write tests. Servers load nothing from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import (
        VERSIONS as VERSIONS,
        ClientMaker as ClientMaker,
        SyncTestClient as SyncTestClient,
        TestClient as TestClient,
        UnopenedClient as UnopenedClient,
        WireMessage as WireMessage,
        mcpd_every_version as mcpd_every_version,
    )
    from .joining import TRANSPORTS as TRANSPORTS

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

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import client

        value = globals()[name] = getattr(client, name)
        return value
