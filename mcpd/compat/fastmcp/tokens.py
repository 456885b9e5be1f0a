"""`AccessToken`: who asks, in the form in which servers look at it. It holds no token: mcpd keeps none."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from mcpd.compat.fastmcp.current import origin

__all__ = ["AccessToken", "access_token"]


class AccessToken(BaseModel):
    """Who asks, what they may do, and what else is known of them."""

    token: str = ""
    client_id: str = ""
    scopes: list[str] = []
    expires_at: int | None = None
    resource: str | None = None
    subject: str | None = None
    claims: dict[str, Any] = {}


def access_token() -> AccessToken | None:
    """That of the request which runs; None for anybody."""
    came = origin()
    user = None if came is None else came.user
    if user is None or not user.is_authenticated:
        return None
    claims = {**user.claims}
    if user.subject:
        claims.setdefault("sub", user.subject)
    return AccessToken(
        client_id=user.client or user.subject, scopes=sorted(user.scopes), subject=user.subject or None, claims=claims
    )
