"""The asyncio side of a connection to a client: runs calls, sends messages, and observes both.

Start reading in `connection`. `tasks` starts calls, `outgoing` has the server's requests, `subscriptions` the change
notifications of one client, `announcer` the notifications for all clients, and `observing` calls observers. The state
of a connection, without I/O, is the `Session` of `mcpd.protocol.session`; the methods are in `server/handlers`, and
framing belongs to the transports.
"""

from .connection import ServerConnection

__all__ = ["ServerConnection"]
