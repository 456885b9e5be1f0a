"""Who may connect: the checks of `Host`, `Origin` and `Authorization` that WebSocket and HTTP share (decision D9).

A web page that the user visits can reach this machine's ports. It cannot hide its `Origin`, and it cannot
choose the `Host` of a name that it points at 127.0.0.1 (DNS rebinding): both must be known here.
Pure: strings in, a refusal or None out. Spec: 2025-11-25 and 2026-07-28 basic/transports, security warning.

`*.localhost` is not trusted: the preview gives such origins to apps that it does not trust.
There is no way to pass the token from a browser's WebSocket, which cannot set `Authorization`: servers that
allow it each do it in their own way (query strings, which end up in logs, and several subprotocol names).
"""

from __future__ import annotations

from hmac import compare_digest

from msgspec import Struct

from ..errors import ConfigurationError
from .address import is_ip_address, is_loopback

__all__ = ["Access", "Guard", "Refusal"]

_WEB_SCHEMES = ("http", "https", "ws", "wss")
_SHOWN = 200


class Access(Struct, frozen=True, kw_only=True):
    """What the user allows: `hosts` are names that clients may use for this server, `origins` web pages that may call.

    `token` is asked for as `Authorization: Bearer …`; `insecure` serves beyond this machine without one.
    """

    token: str | None = None
    insecure: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    @property
    def is_guarded(self) -> bool:
        """Whether a wider address than this machine's may be listened on."""
        return self.token is not None or self.insecure


class Refusal(Struct, frozen=True):
    """An HTTP answer in place of the service: its status, a text for people, and headers that the status wants."""

    status: int
    text: str
    headers: tuple[tuple[str, str], ...] = ()


class Guard:
    """The checks of one listening address. `bound` is the host that it was given, empty for this machine only.

    Raises ConfigurationError for a token, host or origin that no request could carry.
    """

    def __init__(self, access: Access, bound: str = "") -> None:
        self._hosts = {_host_setting(host) for host in access.hosts}
        self._origins = {_origin_setting(origin) for origin in access.origins}
        self._takes_ip_addresses = bound in ("0.0.0.0", "::")
        if bound and not self._takes_ip_addresses:
            self._hosts.add(f"[{bound}]" if ":" in bound else bound.lower())
        self._token = None if access.token is None else _token_setting(access.token)

    def check(self, host: str | None, origin: str | None, authorization: str | None) -> Refusal | None:
        """None if a request with these headers may go on. A header that came twice is given joined by a comma."""
        return self.check_source(host, origin) or self.check_token(authorization)

    def check_source(self, host: str | None, origin: str | None) -> Refusal | None:
        """The half of `check` that asks from where; the answer for one pair is always the same."""
        return self._check_host(host) or self._check_origin(origin)

    def _check_host(self, host: str | None) -> Refusal | None:
        if not host:
            return Refusal(400, "The request has no Host header.\n")
        if self._is_known(host):
            return None
        return Refusal(
            403,
            f"Host {_show(host)} is not allowed here. If this server is meant to be reached by that name, "
            "start it with --allow-host NAME.\n",
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
            f"Origin {_show(origin)} is not allowed here. If that web page is meant to use this server, "
            "start it with --allow-origin ORIGIN.\n",
        )

    def check_token(self, authorization: str | None) -> Refusal | None:
        """The half of `check` that asks who."""
        if self._token is None:
            return None
        if authorization is None:
            return Refusal(
                401,
                "This server asks for its token: send the header Authorization: Bearer TOKEN.\n",
                (("WWW-Authenticate", "Bearer"),),
            )
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and compare_digest(token.strip().encode("utf-8", "replace"), self._token):
            return None
        return Refusal(
            401,
            "The token is wrong: send the one that the server was started with as Authorization: Bearer TOKEN.\n",
            (("WWW-Authenticate", 'Bearer error="invalid_token"'),),
        )

    def _is_known(self, authority: str, *, is_origin: bool = False) -> bool:
        """Whether `host[:port]` names this server, on whatever port it is reached through."""
        name = _name(authority)
        if name is None:
            return False
        if name in self._hosts:
            return True
        bare = name[1:-1] if name[0] == "[" else name
        if bare and is_loopback(bare):
            return True
        # An IP address cannot be pointed elsewhere as a name can; but a page may be served from any of them.
        return self._takes_ip_addresses and not is_origin and is_ip_address(bare)


def _name(authority: str) -> str | None:
    """The host in `host[:port]`, in lower case and with an IPv6 address's brackets; None if it is not that."""
    end = authority.find("]") + 1 if authority.startswith("[") else authority.find(":")
    if end < 1:
        end = len(authority)
    port = authority[end:]
    if port and not (port[0] == ":" and port[1:].isascii() and port[1:].isdigit()):
        return None
    return authority[:end].lower() or None


def _host_setting(host: str) -> str:
    name = _name(host)
    if name is None or any(c in "/@, *" for c in name):
        raise ConfigurationError(f"--allow-host {host!r}: write a host name or IP address, for example mcp.example.com")
    return name


def _origin_setting(origin: str) -> str:
    scheme, _, rest = origin.lower().partition("://")
    if not scheme or not rest or any(c in "/?#, *" for c in rest):
        raise ConfigurationError(
            f"--allow-origin {origin!r}: write scheme://host or scheme://host:port, for example https://app.example.com"
        )
    return origin.lower()


def _token_setting(token: str) -> bytes:
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError("The token must be printable ASCII without spaces: it has to fit into a header")
    return token.encode()


def _show(value: str) -> str:
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
