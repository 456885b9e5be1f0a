"""What an issuer says of itself: where its document is, and its fetch. Spec: RFC 8414 3, OpenID Connect Discovery 4."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from mcpd.auth.fetch import FetchError, Limits, fetch_json, reach_from
from mcpd.errors import ConfigurationError
from mcpd.transports.address import is_loopback

_METADATA_LIMITS = Limits(seconds=5.0, redirects=0)
_OAUTH, _OPENID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"


def checked_issuer(issuer: str) -> str:
    """The issuer as it is written, which is how its tokens name it. Raises ConfigurationError."""
    try:
        parts = urlsplit(issuer)
        is_url = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_url = False
    if not is_url or "?" in issuer or "#" in issuer or not issuer.isascii() or not issuer.isprintable():
        raise ConfigurationError(
            f"issuer {issuer!r}: write its URL as its metadata has it, as https://idp.example.com/realms/tools"
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigurationError(f"issuer {issuer!r}: it has to begin with https:// beyond this machine")
    return issuer


def metadata_urls(issuer: str) -> list[str]:
    """Where an issuer's metadata may be, in the order in which clients look."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    found = [f"{origin}{_OAUTH}{path}", f"{origin}{_OPENID}{path}", f"{origin}{path}{_OPENID}"]
    return list(dict.fromkeys(found))


async def fetch_issuer_metadata(issuer: str) -> dict[str, Any]:
    """The document of an issuer, which names that issuer and no other. Raises FetchError."""
    reach = await reach_from(issuer)
    failure: FetchError | None = None
    for url in metadata_urls(issuer):
        try:
            found, _ = await fetch_json(url, what="the metadata of the issuer", reach=reach, limits=_METADATA_LIMITS)
        except FetchError as error:
            if error.status == 0:
                raise  # not reached: neither will be the others
            failure = failure or error
            continue
        if found.get("issuer") == issuer:
            return found
        failure = FetchError("the metadata of the issuer", url, "it names another issuer than the one configured")
    assert failure is not None
    raise failure
