"""The asyncio side of a connection: calls in and out, subscriptions, tasks."""

from mcpd.dispatcher.connection import Handler, ServerConnection

__all__ = ["Handler", "ServerConnection"]
