"""Who asks at the token endpoint: the client, shown as it is registered. AUTH-148. Spec: RFC 6749 2.3, RFC 7523 3."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64decode
from hmac import compare_digest
from typing import Any
from urllib.parse import unquote_plus

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec.json import decode

from mcpd.auth.fetch import FetchError, Limits, fetch_json
from mcpd.auth_server.clients import Client, told
from mcpd.auth_server.core import Core
from mcpd.auth_server.replies import OAuthError
from mcpd.auth_server.store import digest
from mcpd.server.registry.routes import RouteRequest

_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ALGORITHMS = ["ES256", "RS256", "PS256", "ES384", "EdDSA"]
_LONGEST_ASSERTION = 8192
_SECONDS = 300.0
_SKEW = 60.0
_MOST_AT_ONCE = 8
_KEYS = Limits(max_bytes=64 * 1024, seconds=5.0, redirects=0)


async def authenticated(core: Core, request: RouteRequest, said: dict[str, str]) -> Client:
    """The client of a request, which has shown that it is that one. Raises OAuthError."""
    basic = request.headers.get("authorization", "")
    shown = [bool(basic), "client_secret" in said, "client_assertion" in said]
    if sum(shown) > 1:
        raise OAuthError("invalid_request", "the client shows in several ways who it is: one is needed")

    if basic:
        id, secret = _basic(basic)
        if said.get("client_id", id) != id:
            raise OAuthError("invalid_request", "client_id is another one than in Authorization")
        client = await _known(core, id, basic=True)
        return _by_secret(client, "client_secret_basic", secret)
    if "client_assertion" in said:
        return await _by_assertion(core, said)

    client = await _known(core, said.get("client_id", ""), basic=False)
    if "client_secret" in said:
        return _by_secret(client, "client_secret_post", said["client_secret"])
    if client.method != "none":
        raise _refused(f"this client is registered with {client.method}", basic=client.method == "client_secret_basic")
    return client


async def _known(core: Core, id: str, *, basic: bool) -> Client:
    try:
        return await core.client(id)
    except OAuthError as error:
        if error.error != "invalid_client":
            raise
        raise _refused(error.text, basic=basic) from None


def _basic(header: str) -> tuple[str, str]:
    """Id and secret, each of which was form-encoded first. Raises OAuthError."""
    scheme, _, value = header.partition(" ")
    try:
        id, found, secret = b64decode(value.strip(), validate=True).decode().partition(":")
    except ValueError:
        found = ""
    if scheme.lower() != "basic" or not found:
        raise _refused("Authorization is no Basic", basic=True)
    return unquote_plus(id), unquote_plus(secret)


def _by_secret(client: Client, method: str, secret: str) -> Client:
    # One that is in the settings' list may send its secret in either way.
    is_right_way = client.method == method or (client.kind == "listed" and client.secret_digest)
    is_right = compare_digest(client.secret_digest.encode(), digest(secret).encode()) if client.secret_digest else False
    if not is_right_way or not is_right:
        raise _refused("the client's secret is wrong, or sent in another way", basic=method == "client_secret_basic")
    return client


async def _by_assertion(core: Core, said: dict[str, str]) -> Client:
    """A JWT that the client signed with its key, for us, just now, once. Raises OAuthError."""
    assertion = said["client_assertion"]
    if said.get("client_assertion_type") != _ASSERTION or len(assertion) > _LONGEST_ASSERTION:
        raise OAuthError("invalid_request", "client_assertion is no JWT of the type that is taken here")
    client = await _known(core, said.get("client_id") or _subject(assertion), basic=False)
    if client.method != "private_key_jwt":
        raise _refused(f"this client is registered with {client.method}", basic=False)

    try:
        token = jwt.decode(assertion, await _keys_of(core, client), algorithms=_ALGORITHMS)
    except (JoseError, ValueError, TypeError, KeyError):
        raise _refused("the client's assertion is not signed by its key", basic=False) from None

    claims, now = token.claims, core.clock()
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    expires, jti = claims.get("exp"), claims.get("jti")
    if claims.get("iss") != client.id or claims.get("sub") != client.id:
        raise _refused("the client's assertion is about another client", basic=False)
    if not {core.issuer, f"{core.issuer}/", f"{core.issuer}/oauth/token"} & {*map(str, audiences)}:
        raise _refused("the client's assertion is for another server", basic=False)
    if not isinstance(expires, int | float) or not now - _SKEW < expires <= now + _SECONDS + _SKEW:
        raise _refused("the client's assertion is over, or lives for more than five minutes", basic=False)
    if not isinstance(jti, str) or not await core.store.is_new_assertion(f"{client.id} {jti}", expires + _SKEW):
        raise _refused("the client's assertion was used before, or has no jti", basic=False)
    return client


def _subject(assertion: str) -> str:
    """Whom an assertion is about, as long as nobody has checked it."""
    try:
        _, payload, _ = assertion.split(".")
        claims = decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return ""
    return str(claims.get("sub", "")) if isinstance(claims, dict) else ""


async def _keys_of(core: Core, client: Client) -> KeySet:
    """The client's public keys. Raises OAuthError, and ValueError for what are none."""
    found: Any = client.jwks
    if client.jwks_uri:
        if core.fetching_keys >= _MOST_AT_ONCE:
            raise OAuthError("temporarily_unavailable", "too many keys of clients are being read; try again")
        core.fetching_keys += 1
        try:
            found, _ = await fetch_json(client.jwks_uri, what="the client's keys", reach=core.reach, limits=_KEYS)
        except FetchError as error:
            raise _refused(f"the client's keys cannot be had: {told(error)}", basic=False) from None
        finally:
            core.fetching_keys -= 1
    keys = found.get("keys") if isinstance(found, dict) else None
    usable = [
        key
        for key in (keys if isinstance(keys, list) else [])[:20]
        if isinstance(key, dict) and key.get("kty") in ("RSA", "EC", "OKP") and "d" not in key
    ]
    return KeySet.import_key_set({"keys": usable})


def _refused(text: str, *, basic: bool) -> OAuthError:
    headers = (("WWW-Authenticate", 'Basic realm="oauth"'),) if basic else ()
    return OAuthError("invalid_client", text, status=401, headers=headers)
