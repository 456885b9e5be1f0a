"""Rate limits for guessing passwords, and the addresses that they apply to.

`X-Forwarded-For` is used only if it comes from a proxy that the operator has named, because anybody may send that
header. AUTH-147.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

_MAX_KEYS = 20_000


class Throttle:
    """Counts failures by key and allows `most` of them in `seconds`. The state is in memory."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._failures: dict[str, tuple[int, float]] = {}

    def seconds_to_wait(self, key: str) -> float:
        """Return how many seconds this key must wait, 0 if it may try."""
        count, since = self._failures.get(key, (0, 0.0))
        left = since + self._seconds - self._clock()
        return left if count >= self._most and left > 0 else 0.0

    def failed(self, key: str) -> None:
        """Count a failure. The time begins with the first."""
        now = self._clock()
        count, since = self._failures.pop(key, (0, now))
        if since + self._seconds <= now:
            count, since = 0, now
        self._failures[key] = (count + 1, since)
        if len(self._failures) > _MAX_KEYS:
            # The oldest entry is deleted, so that an attacker who fills the table deletes their own entries first.
            del self._failures[next(iter(self._failures))]

    def succeeded(self, key: str) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)


_Address: TypeAlias = IPv4Address | IPv6Address
Networks: TypeAlias = Sequence[IPv4Network | IPv6Network]

_MAX_HOPS = 32
_CUSTOMER_BITS = 64
"""The smallest IPv6 network of one customer, in bits."""


def networks_of(given: Iterable[str]) -> Networks:
    """Parse addresses and networks such as 10.0.0.1 or 10.0.0.0/8. Raises ValueError."""
    found = []
    for text in given:
        try:
            found.append(ip_network(text))
        except ValueError:
            raise ValueError(f"trusted-proxies: {text!r} is not an address or network such as 10.0.0.0/8") from None
    return found


def address_of(peer: str, forwarded: str, trusted: Networks) -> str:
    """Return the address of a request: `peer`, or for a trusted proxy the last address that it has added.

    Entries before the first address that is not a trusted proxy could be forged and are ignored.
    """
    here = _parsed(peer)
    hops = forwarded.split(",")[-_MAX_HOPS:]
    while here is not None and _is_in(here, trusted) and hops:
        address = _parsed(hops.pop())
        if address is None:
            break
        here = address

    return peer if here is None else str(here)


def rate_limit_key(address: str) -> str:
    """Return the network that is counted together: one IPv4 address, or 64 bits of an IPv6 address."""
    found = _parsed(address)
    if not isinstance(found, IPv6Address):
        return address

    return str(IPv6Network((int(found), _CUSTOMER_BITS), strict=False))


def _is_in(address: _Address, networks: Networks) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _parsed(text: str) -> _Address | None:
    """Parse an address as proxies write it: with a port, in brackets, or as IPv4-mapped IPv6."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]

    try:
        found = ip_address(text)
    except ValueError:
        return None

    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
