"""How often one may try: passwords, and what else is guessed. AUTH-147."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

_MOST = 20_000


class Throttle:
    """Counts failures by key; of those in the last `seconds` there may be `most`. In this process's memory."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._failures: dict[str, tuple[int, float]] = {}

    def wait(self, key: str) -> float:
        """For how many seconds this key has to wait; 0 if it may try."""
        count, since = self._failures.get(key, (0, 0.0))
        left = since + self._seconds - self._clock()
        return left if count >= self._most and left > 0 else 0.0

    def failed(self, key: str) -> None:
        """One failure more. The time begins with the first."""
        now = self._clock()
        count, since = self._failures.pop(key, (0, now))
        if since + self._seconds <= now:
            count, since = 0, now
        self._failures[key] = (count + 1, since)
        if len(self._failures) > _MOST:
            # The one that failed longest ago: who fills this forgets their own failures first.
            del self._failures[next(iter(self._failures))]

    def succeeded(self, key: str) -> None:
        """Forget its failures."""
        self._failures.pop(key, None)


_Address: TypeAlias = IPv4Address | IPv6Address
Networks: TypeAlias = Sequence[IPv4Network | IPv6Network]

_MOST_HOPS = 32
_HOME = 64
"""The bits of an IPv6 address that one customer has at least."""


def networks_of(given: Iterable[str]) -> Networks:
    """Addresses and networks, as 10.0.0.1 or 10.0.0.0/8. Raises ValueError that names one that is none."""
    found = []
    for text in given:
        try:
            found.append(ip_network(text))
        except ValueError:
            raise ValueError(f"trusted-proxies: {text!r} is no address or network, as 10.0.0.0/8") from None
    return found


def address_of(peer: str, forwarded: str, trusted: Networks) -> str:
    """Where a request comes from: `peer`, or for a trusted proxy what it says, the last of its `X-Forwarded-For`.

    What stands before the first address that is no trusted proxy's is its sender's to make up, and not looked at.
    """
    here = _read(peer)
    hops = forwarded.split(",")[-_MOST_HOPS:]
    while here is not None and _is_in(here, trusted) and hops:
        said = _read(hops.pop())
        if said is None:
            break
        here = said

    return peer if here is None else str(here)


def place_of(address: str) -> str:
    """What is counted together: an address of IPv4, and the network of 64 bits in which one of IPv6 is."""
    found = _read(address)
    if not isinstance(found, IPv6Address):
        return address

    return str(IPv6Network((int(found), _HOME), strict=False))


def _is_in(address: _Address, networks: Networks) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _read(text: str) -> _Address | None:
    """An address, as proxies write it: with a port, or brackets, or as the IPv6 form of one of IPv4."""
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
