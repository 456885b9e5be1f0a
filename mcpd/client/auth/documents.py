"""The metadata documents that a client reads, and the rules for URLs in them. No I/O.

Spec: RFC 9728 (protected resource metadata), RFC 8414 (authorization server metadata), RFC 8628, RFC 9449.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from mcpd.errors import AuthorizationFailed
from mcpd.protocol.printable import printable
from mcpd.transports.address import is_loopback_url

_MOST_SCOPES = 200


class ResourceMetadata(Struct, frozen=True):
    """The metadata of a protected resource (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None = None
    """None if the document does not list scopes."""
    wants_dpop: bool = False
    dpop_algorithms: tuple[str, ...] = ()

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ResourceMetadata:
        """Read a document. Raises ValueError, with the reason, for an unusable document."""
        return cls(
            resource=_needed(document, "resource"),
            authorization_servers=_texts(document, "authorization_servers") or (),
            scopes_supported=_texts(document, "scopes_supported"),
            wants_dpop=document.get("dpop_bound_access_tokens_required") is True,
            dpop_algorithms=_texts(document, "dpop_signing_alg_values_supported") or (),
        )


class ServerMetadata(Struct, frozen=True, kw_only=True):
    """The metadata of an authorization server (RFC 8414)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    device_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    auth_methods: tuple[str, ...] | None = None
    """None if the document does not list methods, which means `client_secret_basic`."""
    challenge_methods: tuple[str, ...] | None = None
    signing_algorithms: tuple[str, ...] | None = None
    """The algorithms for client assertions."""
    dpop_algorithms: tuple[str, ...] = ()
    takes_documents: bool = False
    """Whether a client id may be the URL of a metadata document."""
    sends_issuer: bool = False
    is_guessed: bool = False
    """Whether there was no document, so that the endpoints are the fallback paths of 2025-03-26."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ServerMetadata:
        """Read a document. Raises ValueError, with the reason, for an unusable document."""
        methods = _texts(document, "token_endpoint_auth_methods_supported")
        return cls(
            issuer=_needed(document, "issuer"),
            token_endpoint=_needed(document, "token_endpoint"),
            authorization_endpoint=_text(document, "authorization_endpoint"),
            registration_endpoint=_text(document, "registration_endpoint"),
            revocation_endpoint=_text(document, "revocation_endpoint"),
            device_endpoint=_text(document, "device_authorization_endpoint"),
            scopes_supported=_texts(document, "scopes_supported"),
            auth_methods=methods,
            challenge_methods=_texts(document, "code_challenge_methods_supported"),
            signing_algorithms=_texts(document, "token_endpoint_auth_signing_alg_values_supported"),
            dpop_algorithms=_texts(document, "dpop_signing_alg_values_supported") or (),
            takes_documents=document.get("client_id_metadata_document_supported") is True,
            sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        )

    @classmethod
    def guessed(cls, origin: str) -> ServerMetadata:
        """Spec: 2025-03-26 basic/authorization, fallbacks for servers without metadata discovery."""
        return cls(
            issuer=origin,
            token_endpoint=f"{origin}/token",
            authorization_endpoint=f"{origin}/authorize",
            registration_endpoint=f"{origin}/register",
            auth_methods=("none", "client_secret_post", "client_secret_basic"),
            is_guessed=True,
        )

    def endpoints(self) -> dict[str, str]:
        """The endpoints of the document, by their names in error messages."""
        named = {
            "authorization endpoint": self.authorization_endpoint,
            "token endpoint": self.token_endpoint,
            "registration endpoint": self.registration_endpoint,
            "revocation endpoint": self.revocation_endpoint,
            "device authorization endpoint": self.device_endpoint,
        }
        return {name: url for name, url in named.items() if url is not None}


def _text(document: Mapping[str, Any], name: str) -> str | None:
    found = document.get(name)
    return found if isinstance(found, str) and found else None


def _needed(document: Mapping[str, Any], name: str) -> str:
    found = _text(document, name)
    if found is None:
        raise ValueError(f"it has no {name}")
    return found


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    found = document.get(name)
    if not isinstance(found, list):
        return None
    return tuple(dict.fromkeys(each for each in found if isinstance(each, str) and each))[:_MOST_SCOPES]


# -- URLs --------------------------------------------------------------------------------------


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises ValueError for an invalid port
        return parts if parts.hostname else None
    except ValueError:
        return None


def origin_of(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of a URL; None for an invalid URL."""
    parts = _split(url)
    if parts is None or parts.scheme not in ("https", "http"):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, (parts.hostname or "").rstrip("."), port


def plain_url(url: str) -> str:
    """Return the URL that names a server as a resource: without user, query and fragment; `ws` becomes `http`."""
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    return f"{scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def covers(resource: str, url: str) -> bool:
    """Whether the metadata of `resource` may describe the server at `url`: the same path, or one below it.

    Spec: RFC 9728 3.3, interpreted like both official libraries.
    """
    ours, theirs = _split(url), _split(resource)
    if ours is None or theirs is None or theirs.query or theirs.fragment or "@" in theirs.netloc:
        return False
    if origin_of(resource) != origin_of(url) or origin_of(url) is None:
        return False
    below = theirs.path.rstrip("/")
    return ours.path.rstrip("/") == below or ours.path.startswith(f"{below}/")


def check_endpoint(name: str, url: str, server: str) -> None:
    """Require https, or http between loopback addresses. Raises AuthorizationFailed.

    Spec: RFC 6749 3.1, AUTH-172.
    """
    parts = _split(url)
    is_fine = parts is not None and not parts.fragment and "@" not in parts.netloc
    if is_fine and parts is not None:
        is_fine = parts.scheme == "https" or (
            parts.scheme == "http" and is_loopback_url(url) and is_loopback_url(server)
        )
    if not is_fine or not url.isascii() or not url.isprintable() or " " in url:
        raise AuthorizationFailed(
            f"the {name} {shown(url)} is not an https URL; report this to the operator of the authorization server"
        )


def shown(url: str) -> str:
    """Return a URL for messages: printable, short, and without its query."""
    return printable(url.partition("?")[0], 200)
