"""`mcp.shared._httpx_utils`: a client for HTTP requests of the server's own; needs httpx."""

from __future__ import annotations

from typing import Any

__all__ = ["create_mcp_http_client"]


def create_mcp_http_client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> Any:
    """An `httpx.AsyncClient` that follows redirects, with a time limit of 30 seconds (300 to read)."""
    import httpx

    limit = httpx.Timeout(30.0, read=300.0) if timeout is None else timeout
    return httpx.AsyncClient(follow_redirects=True, headers=headers, timeout=limit, auth=auth)
