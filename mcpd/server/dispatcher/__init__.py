"""The asyncio side of a connection: calls in and out, subscriptions, tasks."""

from mcpd.server.dispatcher.connection import Handler, ServerConnection

__all__ = ["Handler", "ServerConnection"]
