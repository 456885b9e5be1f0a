"""Who a test's client is, and what may carry its messages."""

from __future__ import annotations

from typing import NamedTuple, get_args

from mcpd.protocol.principal import ANONYMOUS, Origin, Principal, Transport
from mcpd.server import Server
from mcpd.transports.guards import Access

TRANSPORTS: tuple[Transport, ...] = ("memory", "stdio", "websocket", "http")
"""What can carry the messages, the quickest first."""

assert set(TRANSPORTS) == set(get_args(Transport))


class Caller(NamedTuple):
    """Who sends the requests, None if the server is to find out, and the headers that come with them."""

    user: Principal | None
    headers: tuple[tuple[str, str], ...]

    def origin(self, transport: Transport) -> Origin:
        """What a server's end says of its client where nobody is asked."""
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers]
        return Origin(transport, ANONYMOUS if self.user is None else self.user, fields)


def access_of(server: Server, caller: Caller) -> Access:
    """Who may connect: `caller`, as who it says it is; else as the server's own authenticator finds."""
    user = caller.user
    if user is None:
        return Access(authenticate=server.authenticate, authenticate_timeout=server.authenticate_timeout)
    return Access(authenticate=lambda headers: user)
