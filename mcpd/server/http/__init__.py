"""Streamable HTTP, 2025-03-26 to 2026-07-28 on one endpoint, as an ASGI application.

`app` guards the endpoint, `routes` serves what is beside it; `eras` tells the two eras apart, which `modern` and
`legacy` answer; `sessions` and `resumable_streams` are what legacy clients come back to; `reply` and `event_stream` are
answers; `listener` runs it on our own connections.
"""

from mcpd.server.http.app import HttpApp
from mcpd.server.http.core import HttpSettings
from mcpd.server.registry.routes import Route

__all__ = ["HttpApp", "HttpSettings", "Route"]
