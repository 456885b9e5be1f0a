"""What a request that was denied is answered with over HTTP, also by servers that speak no OAuth themselves."""

from __future__ import annotations

from mcpd.auth.challenge import build
from mcpd.errors import AccessDenied
from mcpd.protocol.principal import Principal
from mcpd.transports.authentication import Protection, Refusal


def refusal_of(protection: Protection | None, denied: AccessDenied, user: Principal) -> Refusal:
    """The status and the challenge."""
    if protection is not None:
        return protection.refuse(denied, user)
    challenge = build("Bearer", {"error": denied.error, "scope": " ".join(denied.scopes) or None})
    status = 403 if denied.error == "insufficient_scope" else 401
    return Refusal(status, f"{denied.message}.\n", (("WWW-Authenticate", challenge),), denied.error)


def challenges_of(protection: Protection | None, denied: AccessDenied, user: Principal) -> list[str]:
    """The challenges alone, where there is no status left to give."""
    headers = refusal_of(protection, denied, user).headers
    return [value for name, value in headers if name == "WWW-Authenticate"]
