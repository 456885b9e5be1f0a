"""Streamable HTTP from 2025-03-26 to 2026-07-28 on one endpoint, as an ASGI application, and an HTTP server for it.

Start reading in `app`, which admits requests and chooses the era: `modern` or `legacy` answers, with a `reply` that is
JSON or an event stream. `sessions`, `http_session` and `resumable_streams` are what legacy clients return to.
`sealed_sessions` and `nodes` let several processes serve them. `routes` serves other paths. `listener`, `http1` and
`exchange` are the HTTP server; `core` has what all share. Byte formats belong to `protocol/wire`.
"""

from mcpd.transports.routes import Route
from .app import HttpApp
from .core import HttpSettings

__all__ = ["HttpApp", "HttpSettings", "Route"]
