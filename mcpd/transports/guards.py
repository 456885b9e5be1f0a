"""Checks of the `Host` and `Origin` headers, which WebSocket and HTTP share (decision D9).

A web page that the user visits can connect to ports of this machine. It cannot hide its `Origin`, and it cannot choose
the `Host` when it points its own name at 127.0.0.1 (DNS rebinding). So both headers must be known to the server.
Spec: 2025-11-25 and 2026-07-28 basic/transports, security warning.

`*.localhost` is not trusted, because the preview gives such origins to untrusted apps. A browser's WebSocket cannot
send the token, because it cannot set `Authorization`; there is no standard replacement.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from mcpd.errors import ConfigurationError
from .address import is_ip_address, is_loopback
from .authentication import Authentication, Authenticator, Protection, Refusal, TokenAuthenticator

__all__ = ["Access", "Guard", "Refusal"]

_WEB_SCHEMES = ("http", "https", "ws", "wss")
_SHOWN = 200
_authority = re.compile(r"(\[[^\]]*\]|[^\[:][^:]*)(?::[0-9]+)?").fullmatch


class Access(Struct, frozen=True, kw_only=True):
    """The access settings of one listening address."""

    token: str | None = None
    """The token that all clients must send as `Authorization: Bearer …`."""
    authenticate: Authenticator | None = None
    authenticate_timeout: float = 10.0
    """Seconds."""
    insecure: bool = False
    """Whether other machines may connect without authentication."""
    hosts: tuple[str, ...] = ()
    """Further host names of this server."""
    origins: tuple[str, ...] = ()
    """The origins of web pages that may use this server."""
    is_hosted: bool = False
    """Whether another application embeds the server, so that there is no command line."""

    def remedy(self, flag: str, keyword: str, value: str) -> str:
        """Return the advice how to allow a value: as an option, or as an argument in Python."""
        return f"pass {keyword}=[{value!r}] to asgi_app()" if self.is_hosted else f"start it with {flag} {value}"

    def __repr__(self) -> str:
        return f"Access(hosts={self.hosts}, origins={self.origins})"  # without the token

    def or_by(self, authenticate: Authenticator | None) -> Access:
        """Return these settings with the server's own authenticator, unless they have one."""
        return self if self.authenticate is not None else replace(self, authenticate=authenticate)

    @property
    def protection(self) -> Protection | None:
        """The authenticator, if it implements OAuth."""
        return self.authenticate if isinstance(self.authenticate, Protection) else None

    def locate(self, known: str, guess: str, *, is_local: bool) -> None:
        """Set the URL of the endpoint: `known` if it was configured, otherwise `guess`, from the listening address.

        Raises ConfigurationError for a URL that tokens cannot be issued for.
        """
        if self.protection is not None:
            self.protection.locate(known or guess, is_public=not (is_local or self.insecure), is_guess=not known)

    @property
    def is_guarded(self) -> bool:
        """Whether the server may listen on addresses that other machines can reach."""
        return self.token is not None or self.authenticate is not None or self.insecure


class Guard:
    """Checks the requests to one listening address. `bound` is its host, "" for this machine only.

    Raises ConfigurationError for an invalid token, host or origin.
    """

    def __init__(self, access: Access, bound: str = "") -> None:
        self._remedy = access.remedy
        # Whether hosts and origins are checked; only an embedding application can turn this off.
        self.checks_source = True
        named = ("allowed_hosts", "allowed_origins") if access.is_hosted else ("--allow-host", "--allow-origin")
        self._hosts = {_host_setting(host, named[0]) for host in access.hosts}
        self._origins = {_origin_setting(origin, named[1]) for origin in access.origins}
        self._takes_ip_addresses = bound in ("0.0.0.0", "::")
        if bound and not self._takes_ip_addresses:
            self._hosts.add(f"[{bound}]" if ":" in bound else bound.lower())

        if access.token is not None and access.authenticate is not None:
            raise ConfigurationError(
                "The server has an authenticator (authenticate=) and a token; leave out the token, also in MCPD_TOKEN"
            )

        self.has_token = access.token is not None
        self.protection = access.protection
        authenticate = access.authenticate if access.token is None else TokenAuthenticator(access.token)
        self.authentication: Authentication | None = None
        if authenticate is not None:
            self.authentication = Authentication(authenticate, access.authenticate_timeout)

    def lets_in(self, refusal: Refusal) -> bool:
        """Return whether a request without credentials may continue anonymously.

        Only for OAuth: the refusal of an author's own authenticator is final.
        """
        return self.protection is not None and self.protection.has_anonymous and refusal.error == "unauthorized"

    def check_source(self, host: str | None, origin: str | None) -> Refusal | None:
        """Return a refusal, or None if the request may continue. Repeated headers are given joined by commas."""
        return (self._check_host(host) or self._check_origin(origin)) if self.checks_source else None

    def _check_host(self, host: str | None) -> Refusal | None:
        if not host:
            return Refusal(400, "The request has no Host header.\n")
        if "," in host:
            return Refusal(400, "The request has more than one Host header.\n")  # RFC 9112 3.2
        if self._is_known(host):
            return None
        return Refusal(
            403,
            f"Host {_show(host)} is not allowed here. If clients should reach this server by that name, "
            f"{self._remedy('--allow-host', 'allowed_hosts', 'NAME')}.\n",
        )

    def _check_origin(self, origin: str | None) -> Refusal | None:
        # Absent: not a web page (S25-030, S26-051). Present and unknown, or "null": 403 (S25-031, S26-052).
        if origin is None or origin.lower() in self._origins:
            return None
        scheme, found, host = origin.rpartition("://")
        if (not found or scheme.lower() in _WEB_SCHEMES) and self._is_known(host, is_origin=True):
            return None
        return Refusal(
            403,
            f"Origin {_show(origin)} is not allowed here. If that web page should use this server, "
            f"{self._remedy('--allow-origin', 'allowed_origins', 'ORIGIN')}.\n",
        )

    def _is_known(self, authority: str, *, is_origin: bool = False) -> bool:
        # Return whether `host[:port]` names this server. The port may differ, because of proxies.
        name = _name(authority)
        if name is None:
            return False
        if name in self._hosts:
            return True

        bare = name[1:-1] if name[0] == "[" else name
        if not bare or "%" in bare or (name[0] == "[") != (":" in bare):
            return False  # brackets are for IPv6, and zones have a meaning on one machine only (RFC 6874)
        if is_loopback(bare):
            return True

        # DNS cannot point an IP address elsewhere, but a hostile page can be served from one.
        return self._takes_ip_addresses and not is_origin and is_ip_address(bare)


def _name(authority: str) -> str | None:
    # Return the host in `host[:port]`, in lower case, with the brackets of IPv6; None if it is malformed.
    match = _authority(authority)
    return None if match is None else match[1].lower()


def _host_setting(host: str, option: str) -> str:
    name = _name(host)
    if name is None or any(c in "/@, *" for c in name):
        raise ConfigurationError(f"{option} {host!r}: write a host name or IP address, for example mcp.example.com")
    return name


def _origin_setting(origin: str, option: str) -> str:
    scheme, _, rest = origin.lower().partition("://")
    if not scheme or not rest or any(c in "/?#, *" for c in rest):
        raise ConfigurationError(
            f"{option} {origin!r}: write scheme://host or scheme://host:port, for example https://app.example.com"
        )
    return origin.lower()


def _show(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
