"""Servers that want a login, of FastMCP and of the official Python SDK: `serve_login.py fastmcp|sdk PORT`.

Each is its own authorization server: FastMCP's, which keeps all in memory and asks nobody, is behind both.
"""

from __future__ import annotations

import sys
from typing import Any

from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider  # type: ignore[import-not-found]
from mcp.server.auth.settings import (  # type: ignore[import-not-found]
    AuthSettings,
    ClientRegistrationOptions,
    RevocationOptions,
)


def serve(kind: str, port: int) -> None:
    """Serve at http://127.0.0.1:PORT/mcp."""
    origin = f"http://127.0.0.1:{port}"
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=["use"], default_scopes=["use"])
    revocation = RevocationOptions(enabled=True)
    provider = InMemoryOAuthProvider(
        base_url=origin,
        client_registration_options=registration,
        revocation_options=revocation,
        required_scopes=["use"],
    )
    server: Any
    if kind == "fastmcp":
        from fastmcp import FastMCP

        server = FastMCP("guarded", auth=provider)
        options: dict[str, Any] = {"transport": "http", "show_banner": False}
    else:
        from mcp.server import MCPServer

        settings = AuthSettings(
            issuer_url=origin,
            resource_server_url=f"{origin}/mcp",
            client_registration_options=registration,
            revocation_options=revocation,
            required_scopes=["use"],
        )
        server = MCPServer("guarded", auth_server_provider=provider, auth=settings)
        options = {"transport": "streamable-http"}

    def whoami() -> str:
        return "somebody who has logged in"

    server.tool()(whoami)
    server.run(**options, host="127.0.0.1", port=port)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
