"""The authorization request and its response: PKCE, state, issuer, scopes. No I/O.

Spec: 2026-07-28 basic/authorization, authorization flow, security considerations; RFC 7636, RFC 9207; OAuth 2.1.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from urllib.parse import parse_qsl, urlencode, urlsplit

from msgspec import Struct

from mcpd.client.auth.documents import ServerMetadata, check_endpoint
from mcpd.client.auth.settings import OAuth
from mcpd.client.auth.tokens import Refusal
from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable


class Attempt(Struct, frozen=True, kw_only=True):
    """One authorization request, kept until its response: recorded before the browser starts."""

    issuer: str
    state: str
    verifier: str
    redirect_uri: str
    client_id: str
    resource: str | None
    scopes: tuple[str, ...] | None
    allows_slash: bool = False
    """Whether the response may name the issuer with another slash at its end."""

    def __repr__(self) -> str:
        return f"Attempt({self.issuer!r}, {self.client_id!r}, scopes={self.scopes})"


def scopes_to_ask(
    settings: OAuth,
    server: ServerMetadata,
    challenged: Sequence[str],
    supported: Sequence[str] | None,
    before: Sequence[str] = (),
    held: Sequence[str] = (),
) -> tuple[str, ...] | None:
    """What to ask for: the program's choice, else the challenge's, else all that the resource lists; None for nothing.

    `before` is what was asked for already: a step up asks for both. `held` is what the last login was granted: the
    next one keeps that. Spec: 2026-07-28 scope selection strategy, step-up.
    """
    if before:
        found = [*before, *challenged]
    elif settings.scopes is not None:
        found = list(settings.scopes)
    else:
        found = [*(challenged or supported or ()), *held]
    if settings.offline and "offline_access" in (server.scopes_supported or ()):
        found.append("offline_access")
    elif "offline_access" not in (server.scopes_supported or ()) and settings.scopes is None:
        found = [scope for scope in found if scope != "offline_access"]
    return tuple(dict.fromkeys(found)) or None


def begin(
    settings: OAuth,
    server: ServerMetadata,
    client_id: str,
    redirect_uri: str,
    resource: str | None,
    scopes: tuple[str, ...] | None,
) -> Attempt:
    """A fresh attempt. Raises AuthorizationFailed for a server that does not say that it has PKCE."""
    name = printable(server.issuer, 200)
    if server.authorization_endpoint is None:
        raise AuthorizationFailed(f"{name} has no authorization endpoint: nobody can log in there with a browser")
    methods = server.challenge_methods
    if not server.is_guessed and not settings.assume_pkce and "S256" not in (methods or ()):
        # Spec: 2026-07-28 security considerations: clients "MUST refuse to proceed".
        said = "does not say that it has PKCE" if methods is None else "does not list S256 for PKCE"
        raise AuthorizationFailed(
            f"{name} {said} (code_challenge_methods_supported); if you know that it has, go on with "
            "mcpd login --assume-pkce, OAuth(assume_pkce=True)"
        )
    return Attempt(
        issuer=server.issuer,
        state=token_urlsafe(16),
        verifier=token_urlsafe(48),
        redirect_uri=redirect_uri,
        client_id=client_id,
        resource=resource,
        scopes=scopes,
        allows_slash=settings.assume_issuer,
    )


def authorization_url(server: ServerMetadata, attempt: Attempt, mcp_url: str) -> str:
    """The page that the user visits. Raises AuthorizationFailed for one that no browser may be sent to."""
    endpoint = server.authorization_endpoint or ""
    check_endpoint("authorization endpoint", endpoint, mcp_url)
    digest = sha256(attempt.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": attempt.client_id,
        "redirect_uri": attempt.redirect_uri,
        "state": attempt.state,
        "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    if attempt.resource is not None:
        query["resource"] = attempt.resource
    if attempt.scopes:
        query["scope"] = " ".join(attempt.scopes)
        if "offline_access" in attempt.scopes:
            query["prompt"] = "consent"  # OpenID Connect Core 11: without it no refresh token need be given
    joined = "&" if urlsplit(endpoint).query else "?"
    return f"{endpoint}{joined}{urlencode(query)}"


def read_callback(server: ServerMetadata, attempt: Attempt, url: str) -> str:
    """The code in the URL that the browser was sent back to. Raises AuthorizationFailed.

    Nothing of a response is used, or shown, before its state and its issuer are found to be right.
    """
    query = urlsplit(url.strip()).query if "?" in url else url.strip()
    pairs = parse_qsl(query, keep_blank_values=True)
    found = dict(pairs)
    if any(sum(name == other for other, _ in pairs) > 1 for name in ("code", "state", "iss", "error")):
        raise AuthorizationFailed("the browser came back with a parameter given twice: log in again")
    if not compare_digest(found.get("state", "").encode(), attempt.state.encode()):
        raise AuthorizationFailed("the browser came back from another login (state): log in again")

    # Spec: 2026-07-28 security considerations; RFC 9207 2.4: compared as it stands, in error responses too.
    issuer = found.get("iss")
    if issuer is None and server.sends_issuer:
        raise AuthorizationFailed(
            f"the response does not name its issuer (iss), which {printable(attempt.issuer, 200)} says it does: refused"
        )
    is_same = issuer == attempt.issuer
    if issuer is not None and attempt.allows_slash:
        is_same = issuer.removesuffix("/") == attempt.issuer.removesuffix("/")
    if issuer is not None and not is_same:
        raise AuthorizationFailed(
            f"the response came from another authorization server than {printable(attempt.issuer, 200)} (iss): refused"
        )
    if "error" in found:
        said = printable(found.get("error_description", ""), 300)
        code = printable(found["error"], 60)
        text = f"{printable(attempt.issuer, 200)} refused: {code}{f': {said}' if said else ''}"
        raise Refusal(text, found["error"])
    if not found.get("code"):
        raise AuthorizationFailed("the browser came back without a code: log in again")
    return found["code"]
