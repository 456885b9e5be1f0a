"""ASGI applications of a FastMCP server, and the session manager that such applications start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from mcpd.server.http import HttpSettings

if TYPE_CHECKING:
    from mcpd.compat.fastmcp1.settings import Settings
    from mcpd.server import Server as McpdServer

__all__ = ["SessionManager", "application"]


def application(server: McpdServer, settings: Settings) -> Any:
    """The server as an ASGI application."""
    security = settings.transport_security
    guarded = security is None or security.enable_dns_rebinding_protection
    hosts = [] if security is None else [host.removesuffix(":*") for host in security.allowed_hosts]
    origins = [] if security is None else [origin.removesuffix(":*") for origin in security.allowed_origins]
    app = server.asgi_app(
        allowed_hosts=hosts if guarded else [],
        allowed_origins=origins,
        settings=HttpSettings(path=settings.streamable_http_path, stateless=settings.stateless_http),
    )
    app.guard.checks_source = guarded
    return app


class SessionManager:
    """Opens a server's lifespan for as long as an application runs."""

    def __init__(self, server: McpdServer) -> None:
        self._server = server

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Open for the length of the block."""
        await self._server.open()
        try:
            yield
        finally:
            await self._server.aclose()
