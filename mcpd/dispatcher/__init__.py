"""The asyncio side of a connection: calls in and out, subscriptions, tasks."""

from .connection import Connection, Handler

__all__ = ["Connection", "Handler"]
