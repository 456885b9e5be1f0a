"""A limit on the memory that all connections of the process hold together, shared fairly between clients.

Counted are bodies and frames that are being received, the arguments of calls that run, what is subscribed to, the
events kept for clients that reconnect, and what waits to be written. What is below `SMALL` is not: to count it would
cost more than it takes.

Theory of operation. All together never hold more than the limit. A connection may hold as much as it leaves
free, a client (its token, or its address) four times that, all clients of one address eight times, as a token may be
another one each time, and anybody four times for pieces of up to 64 KiB. So one connection that takes all it can gets
half, two get a third each, and some is left for others; large pieces are refused first.
"""

from __future__ import annotations

import logging
import os
from collections import Counter, deque
from collections.abc import Iterator
from functools import lru_cache
from threading import Lock
from time import monotonic, perf_counter_ns

log = logging.getLogger("mcpd")

SMALL = 4096
"""Bytes; what has no more than these is not counted."""

OVER = "The server's memory for requests is used up (setting max_memory): try again later, or send less at once"

CALL = 12 * 1024
"""Bytes that one more call takes which waits: its task, its frames, and what is small about it."""

_MIDDLING = 64 * 1024
_MARKS = b",:[{"
_MARK_BYTES = 48
_LOG_EVERY = 60.0


class Budget:
    """`most` are the bytes for all together; 0 is half of what the machine or its control group has.

    Thread-safe. What is given back is counted when somebody takes: it may come from a destructor, at any time.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._used = 0
        self._held: Counter[object] = Counter()
        self._returned: deque[tuple[object, str, int]] = deque()
        self._lock = Lock()
        self._logged = -_LOG_EVERY

    @property
    def most(self) -> int:
        """How many bytes there are."""
        if self._most <= 0:
            self._most = machine_memory() // 2
        return self._most

    @most.setter
    def most(self, size: int) -> None:
        self._most = size

    @property
    def used(self) -> int:
        """How many of them are taken."""
        with self._lock:
            self._settle()
            return self._used

    def take(self, connection: object, client: str, size: int, before: int = 0) -> bool:
        """Take bytes for a connection, and the client behind it ("" if unknown); False if it may not have them.

        `before` is what was taken already for the same thing, which grows.
        """
        with self._lock:
            self._settle()
            left = self.most - self._used - size
            most, held = left if before + size > _MIDDLING else 4 * left, self._held
            address = address_of(client)
            if (
                left < 0
                or held[connection] + size > most
                or (client and (held[client] + size > 4 * left or held[address] + size > 8 * left))
            ):
                is_said, used = monotonic() - self._logged < _LOG_EVERY, self._used
                if not is_said:
                    self._logged = monotonic()
            else:
                self._used += size
                held[connection] += size
                if client:
                    held[client] += size
                    held[address] += size
                return True
        if not is_said:
            log.warning(
                "Refused %d bytes: of the %d that may wait in all connections %d are taken (--max-memory, in a program "
                "max_memory)",
                size, self.most, used,
            )  # fmt: skip
        return False

    def give_back(self, connection: object, client: str, size: int) -> None:
        """Bytes that were taken are free again."""
        self._returned.append((connection, client, size))

    def _settle(self) -> None:
        while self._returned:
            connection, client, size = self._returned.popleft()
            self._used -= size
            for key in (connection, client, address_of(client)) if client else (connection,):
                self._held[key] -= size
                if self._held[key] <= 0:
                    del self._held[key]


BUDGET = Budget()
"""That of this process."""


class Charge:
    """What one thing takes of the budget; given back when this is dropped.

    `connection` is any hashable that stands for it, and does not hold this.
    """

    __slots__ = ("_client", "_connection", "size")

    def __init__(self, connection: object, client: str = "") -> None:
        self._connection = connection
        self._client = client
        self.size = 0

    def set(self, size: int) -> bool:
        """Take so much in all; False, and nothing is changed, if it is not to be had. Less is always granted."""
        more = size - self.size
        if more > 0:
            if not BUDGET.take(self._connection, self._client, more, self.size):
                return False
        elif more < 0:
            BUDGET.give_back(self._connection, self._client, -more)
        self.size = size
        return True

    def add(self, size: int) -> bool:
        """Take so much more."""
        return self.set(self.size + size)

    def __del__(self) -> None:
        if self.size:
            BUDGET.give_back(self._connection, self._client, self.size)


class ChargedTexts:
    """A set of texts that takes of the budget: the bytes of each, and `overhead` more."""

    __slots__ = ("_charge", "_overhead", "_texts")

    def __init__(self, overhead: int, connection: object, client: str = "") -> None:
        self._texts: set[str] = set()
        self._overhead = overhead
        self._charge = Charge(connection, client)

    def add(self, text: str) -> bool:
        """Keep one; False if there is no memory for it."""
        if text not in self._texts:
            if not self._charge.add(len(text) + self._overhead):
                return False
            self._texts.add(text)
        return True

    def discard(self, text: str) -> None:
        """Keep it no longer."""
        if text in self._texts:
            self._texts.discard(text)
            self._charge.add(-len(text) - self._overhead)

    def __contains__(self, text: str) -> bool:
        return text in self._texts

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def weigh(message: bytes) -> int:
    """About how many bytes a JSON message takes: its own, and what its values become.

    Of `[[],[],…` each 3 bytes become 64. Values are counted by the marks between them, at a few hundred places that
    nobody can foresee: to look at all would take longer than to decode it.
    """
    size = len(message)
    # With 2, 3 and 5 it has no divisor in common: what repeats itself is hit at each of its bytes.
    step = 30 * ((size >> 16) + 1 + (perf_counter_ns() & 3)) + 1
    seen = message[perf_counter_ns() % 31 :: step]
    return 2 * size + (len(seen) - len(seen.translate(None, _MARKS))) * step * _MARK_BYTES


def client_of(peer: str, principal: str = "") -> str:
    """The client behind a request, for shares: who it is, as far as that is known, and from where; "" if unknown.

    Of an IPv6 address the first half counts: a client chooses the second half freely.
    """
    if ":" in peer:
        peer = _network(peer)
    return f"{principal}@{peer}" if principal else peer


@lru_cache(1024)
def _network(peer: str) -> str:
    # For the few servers that IPv6 reaches: it costs start-up.
    from ipaddress import IPv6Address  # noqa: PLC0415

    try:
        packed = IPv6Address(peer.partition("%")[0]).packed
    except ValueError:
        return peer
    return packed[:8].hex(":", 2) if any(packed[:8]) else peer  # else this machine, or an IPv4 address


def address_of(client: str) -> str:
    """What all clients of one address share, as the key for it."""
    return "@" + client[client.rfind("@") + 1 :]


def machine_memory() -> int:
    """The bytes of memory that this process may use: the machine's, or fewer by its control group."""
    try:
        least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        least = 4 << 30  # Windows; nothing was said of it

    for path in _limit_files():
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text.isdigit() and int(text) > 0:  # "max", and in version 1 a huge number, is no limit
            least = min(least, int(text))
    return least


def _limit_files() -> list[str]:
    """The files that may hold the limit of this process's control group, or of one above it."""
    found = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return found

    for line in lines:
        _, kinds, path = (line.split(":", 2) + ["", "", ""])[:3]
        base, name = (
            ("/sys/fs/cgroup", "memory.max") if not kinds else ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        )
        if kinds and "memory" not in kinds.split(","):
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts), 0, -1):
            found.append("/".join((base, *parts[:depth], name)))

    return found
