"""Addresses to listen on: parsing them, and opening the sockets that WebSocket and HTTP share; and where addresses are.

`:8080` means this machine only, on both 127.0.0.1 and ::1: clients resolve `localhost` to either, and another program
must not take the one that is left free. Any wider address requires authentication (decision D9).
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from mcpd.errors import ConfigurationError

_LOOPBACK = ("127.0.0.1", "::1")
_WILDCARDS = ("0.0.0.0", "::")
_BACKLOG = 512
_PORT_TRIES = 8


class Address(Struct, frozen=True):
    """An address to listen on. An empty `host` is this machine only, `port` 0 any free port, `path` a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str) -> Address:
    """Parse `:PORT`, `HOST:PORT`, `[IPV6]:PORT` or `unix:/PATH`. Raises ConfigurationError."""
    if text.startswith("unix:"):
        path = text[5:]
        if not path.startswith("/"):
            raise ConfigurationError(f"Address {text!r}: write unix:/path/to/socket, with an absolute path")
        return Address(path=path)

    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        is_good = _family(host) == socket.AF_INET6
    else:
        is_good = all(c.isalnum() or c in "-._" for c in host)

    if not colon or not is_good or not (port.isascii() and port.isdigit()):
        hint = "with an IPv6 address in brackets" if text.count(":") > 2 and "/" not in text else "for example :8080"
        raise ConfigurationError(
            f"Address {text!r}: expected :PORT (this machine only), HOST:PORT or [IPV6]:PORT, {hint}"
        )

    if len(port) > 5 or int(port) > 65535:
        raise ConfigurationError(f"Address {text!r}: the port must be a number up to 65535, or 0 for any free port")
    return Address("" if host.lower() == "localhost" else host.lower(), int(port))


def is_loopback(host: str) -> bool:
    """Return whether a name or IP address (without brackets) can only mean this machine. Names are not resolved.

    `127.0.0.1%evil.com` is a name, which may have any address.
    """
    family = None if "%" in host else _family(host)
    if family == socket.AF_INET:
        return host.startswith("127.")
    if family == socket.AF_INET6:
        return socket.inet_pton(family, host) == socket.inet_pton(family, "::1")
    return host.lower() in ("", "localhost")


def is_loopback_url(url: str) -> bool:
    """Return whether the host of a URL can only mean this machine."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    return bool(host) and is_loopback(str(host))


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address (without brackets) and not a name."""
    return _family(host) is not None


def is_local(listening: Iterable[socket.socket]) -> bool:
    return all(is_loopback(str(one.getsockname()[0])) for one in listening)


def close(listening: Iterable[socket.socket]) -> None:
    for one in listening:
        one.close()


def authority(listening: socket.socket) -> str:
    """Return `host:port` for a URL that reaches this socket from this machine."""
    host, port = listening.getsockname()[:2]
    if host in _WILDCARDS:
        host = _LOOPBACK[_WILDCARDS.index(host)]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def bind(address: Address, *, is_guarded: bool) -> list[socket.socket]:
    """Open sockets that listen on `address`, all on one port; the first is the one to announce. The caller closes them.

    `is_guarded` means that clients are authenticated, or that the user has allowed access without (`--insecure`).
    Raises ConfigurationError for an unguarded address that other machines can reach, and for an address that is in
    use, forbidden, unknown, or a unix socket.
    """
    if address.path:
        raise ConfigurationError(f"Cannot listen on {address} here: give a port, for example :8080")
    hosts = await _resolve(address)
    if not is_guarded:
        _refuse_open(address, hosts)
    return _listen_on_all(address, hosts)


async def bind_shared(address: Address) -> list[socket.socket]:
    """Bind sockets that several processes share (SO_REUSEPORT), without listening yet.

    The process that listens on them must check that the address is guarded (`check_guarded`).
    """
    hosts = await _resolve(address)
    if address.port:
        # Another process of the same user could share the port, so first make sure that it is free.
        close(_listen_on_all(address, hosts, listens=False))
    return _listen_on_all(address, hosts, listens=False, is_shared=True)


def bind_beside(sockets: Iterable[socket.socket]) -> list[socket.socket]:
    """Bind one more socket to the address of each of these sockets from `bind_shared`. Raises ConfigurationError."""
    bound: list[socket.socket] = []
    for each in sockets:
        host, port = each.getsockname()[:2]
        try:
            bound.append(_open(host, port, listens=False, is_shared=True))
        except OSError as error:
            close(bound)
            raise ConfigurationError(_explain(error, Address(host, port))) from None
    return bound


def check_guarded(address: Address, sockets: Iterable[socket.socket]) -> None:
    """Raise ConfigurationError if other machines can reach these inherited sockets."""
    if not address.path:
        _refuse_open(address, [str(each.getsockname()[0]) for each in sockets])


def address_of(sockets: Sequence[socket.socket]) -> Address:
    if sockets[0].family == getattr(socket, "AF_UNIX", None):
        return Address(path=os.fsdecode(sockets[0].getsockname()))
    hosts = [str(each.getsockname()[0]) for each in sockets]
    host = "" if all(map(is_loopback, hosts)) else next(each for each in hosts if not is_loopback(each))
    return Address(host, sockets[0].getsockname()[1])


def _refuse_open(address: Address, hosts: Iterable[str]) -> None:
    if not all(map(is_loopback, hosts)):
        raise ConfigurationError(
            f"{address} can be reached from other machines: require a token with --token-file FILE, MCPD_TOKEN or "
            "--issuer URL, or allow everyone who can connect with --insecure (in Python: token=… or insecure=True); "
            f":{address.port} listens on this machine only"
        )


def _listen_on_all(
    address: Address, hosts: list[str], *, listens: bool = True, is_shared: bool = False
) -> list[socket.socket]:
    for _ in range(_PORT_TRIES):
        sockets = _listen(address, hosts, listens, is_shared)
        if sockets:
            return sockets

    raise ConfigurationError("No port is free on both 127.0.0.1 and ::1: choose one, for example :8080")


def bind_unix(path: str, mode: str = "600") -> socket.socket:
    """Listen on a unix socket with these permissions (octal). A socket left behind by a stopped server is replaced.

    Raises ConfigurationError.
    """
    permissions = int(mode, 8) if re.fullmatch(r"0?[0-7]{3}", mode) else 0
    if permissions & 0o600 != 0o600:
        raise ConfigurationError(f"--socket-mode {mode}: write octal permissions that include the owner, such as 660")

    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_left_behind(path):
            os.unlink(path)
        listening.bind(path)
        os.chmod(path, permissions)  # nobody can connect before it listens
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"Cannot listen on unix:{path}: {error.strerror or error}") from None
    return listening


def _is_left_behind(path: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
    except OSError:
        return False

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
    return False


async def _resolve(address: Address) -> list[str]:
    if not address.host:
        return list(_LOOPBACK)
    loop = asyncio.get_running_loop()
    try:
        entries = await loop.getaddrinfo(address.host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not a host name"
        raise ConfigurationError(
            f"Cannot listen on {address}: {why}; use the name of this machine, one of its addresses, or 0.0.0.0 for all"
        ) from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def _listen(address: Address, hosts: list[str], listens: bool, is_shared: bool) -> list[socket.socket]:
    # Listen on all addresses; on none if the port that the system chose for the first is taken on another.
    sockets: list[socket.socket] = []
    port = address.port
    try:
        for host in hosts:
            try:
                listening = _open(host, port, listens, is_shared)
            except OSError as error:
                if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) and (sockets or host != hosts[-1]):
                    continue  # a machine without IPv6 (or IPv4): the other address is enough
                if error.errno == errno.EADDRINUSE and sockets and address.port == 0:
                    close(sockets)
                    return []
                raise ConfigurationError(_explain(error, Address(host, port))) from None
            sockets.append(listening)
            port = listening.getsockname()[1]
    except BaseException:
        close(sockets)
        raise
    return sockets


def _open(host: str, port: int, listens: bool, is_shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets that name their protocol.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            # On Windows it would let two programs use the same port.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # [::] means all addresses of this machine, IPv4 included.
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        if is_shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind((host, port))
        if listens:
            listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _explain(error: OSError, address: Address) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use: stop the program that listens there, or use another port (0 for any free port)"
    if error.errno == errno.EACCES:
        return f"{address} is not allowed: ports below 1024 need special permission, use a higher one"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{address} is not an address of this machine: use :{address.port} for local clients, 0.0.0.0 for all"
    return f"Cannot listen on {address}: {error.strerror}"


def _family(host: str) -> int | None:
    # Return AF_INET or AF_INET6 for an IP address, None for a name.
    # Only link-local IPv6 addresses may have a zone, the name of a network interface (RFC 4007 section 11).
    address, has_zone, zone = host.partition("%")
    is_zone = zone.isascii() and zone.replace("-", "").replace("_", "").replace(".", "").isalnum()
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, address)
        except (OSError, ValueError):
            continue
        is_link_local = family == socket.AF_INET6 and packed[0] == 0xFE and packed[1] & 0xC0 == 0x80
        return family if not has_zone or (is_zone and is_link_local) else None
    return None


# -- where an address is -------------------------------------------------------------------

# Where an address is. Requests never go to `never`.
Kind: TypeAlias = Literal["global", "private", "loopback", "never"]

# The kinds of addresses that a request may go to, besides global ones.
Reach: TypeAlias = Collection[Literal["private", "loopback"]]

_Address: TypeAlias = IPv4Address | IPv6Address

_NEVER = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "240.0.0.0/4",
            # Metadata services of clouds that are not link-local.
            "168.63.129.16/32",
            "100.100.100.200/32",
            "192.0.0.192/32",
            "fd00:ec2::254/128",
            "fd20:ce::254/128",
        ),
    )
)
_TRANSLATED = tuple(map(ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
FROM_WORST = ("never", "loopback", "private", "global")


def kind_of(address: str) -> Kind:
    """Return where an address is. If it contains IPv4 addresses, the most restricted kind counts. Raises ValueError."""
    return min(map(_kind, _all_in(ip_address(address))), key=FROM_WORST.index)


def may_reach(kind: Kind, reach: Reach) -> bool:
    """Return whether a request may go to an address of this kind."""
    return kind == "global" or (kind != "never" and kind in reach)


def _all_in(address: _Address) -> Iterator[_Address]:
    # Yield the address and the addresses that routers, tunnels and translators derive from it.
    if not isinstance(address, IPv6Address):
        yield address
        return

    inner = address.ipv4_mapped
    if inner is not None:
        yield inner
        return

    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    # `::` and `::1`, the addresses below 2**16, contain no IPv4 address.
    if _is_translated(address) and int(address) >= 1 << 16:
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def _kind(address: _Address) -> Kind:
    if address.is_loopback:
        return "loopback"
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return "never"
    if any(address.version == network.version and address in network for network in _NEVER):
        return "never"
    if isinstance(address, IPv6Address) and (address.sixtofour or address.teredo or _is_translated(address)):
        return "global"  # the IPv4 address inside counts
    is_site_local = isinstance(address, IPv6Address) and address.is_site_local
    return "global" if address.is_global and not is_site_local else "private"


def _is_translated(address: IPv6Address) -> bool:
    return any(address in network for network in _TRANSLATED)
