"""Where an address is, as far as authorization has to know: which ones an outgoing request may be sent to.

Spec: security best practices, server-side request forgery; AUTH-240 … AUTH-243. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["global", "private", "loopback", "never"]
"""Where an address is; `never` are those that no document of ours is at."""

Reach: TypeAlias = Collection[Literal["private", "loopback"]]
"""Which addresses besides global ones a request may go to."""

_Address: TypeAlias = IPv4Address | IPv6Address

_NEVER = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "240.0.0.0/4",
            # Where clouds tell their machines secrets, besides link-local addresses.
            "168.63.129.16/32",
            "100.100.100.200/32",
            "192.0.0.192/32",
            "fd00:ec2::254/128",
            "fd20:ce::254/128",
        ),
    )
)
_TRANSLATED = tuple(map(ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
_FROM_WORST = ("never", "loopback", "private", "global")


def kind_of(address: str) -> Kind:
    """Where an address is, by the worst of it and all IPv4 addresses inside it. Raises ValueError for no address."""
    return min(map(_kind, _all_in(ip_address(address))), key=_FROM_WORST.index)


def may_reach(kind: Kind, reach: Reach) -> bool:
    """Whether a request may go to an address of this kind."""
    return kind == "global" or (kind != "never" and kind in reach)


def _all_in(address: _Address) -> Iterator[_Address]:
    """The address, and what a router, a tunnel or a translator makes of it."""
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
    # What is below 2**16 is `::` and `::1`, and no IPv4 address.
    if any(address in network for network in _TRANSLATED) and int(address) >= 1 << 16:
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def _kind(address: _Address) -> Kind:
    if address.is_loopback:
        return "loopback"
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        return "never"
    if any(address.version == network.version and address in network for network in _NEVER):
        return "never"
    if isinstance(address, IPv6Address) and (address.sixtofour or address.teredo or _is_translated(address)):
        return "global"  # judged by what is inside
    is_site_local = isinstance(address, IPv6Address) and address.is_site_local
    return "global" if address.is_global and not is_site_local else "private"


def _is_translated(address: IPv6Address) -> bool:
    return any(address in network for network in _TRANSLATED)
