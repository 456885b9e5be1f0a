"""A limit on the memory that all connections of the process hold together, shared fairly between clients.

These are counted: bodies and frames that are being received, arguments of running calls, subscriptions, events kept for
clients that reconnect, and data that waits to be written. Pieces up to `SMALL` bytes are not counted.

A connection may hold as much memory as it leaves free. A client (a token, or an address) may hold four times that, and
all clients of one address eight times, because a client can get many tokens. Pieces of up to 64 KiB may use four times
the free memory. So one greedy connection gets half of the memory, two get a third each, and large pieces are refused
first.
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

# Bytes. Pieces up to this size are not counted.
SMALL = 4096

OVER = "The server's memory for requests is used up (setting max_memory): try again later, or send less at once"

# Bytes that one more waiting call takes: its task, its frames and small objects.
CALL = 12 * 1024

_MIDDLING = 64 * 1024
_MARKS = b",:[{"
_MARK_BYTES = 48
_LOG_EVERY = 60.0


class Budget:
    """The memory of one process. Thread-safe.

    Args:
        most: The limit in bytes. 0 means half of the memory of the machine or of the control group.
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
        if self._most <= 0:
            self._most = machine_memory() // 2
        return self._most

    @most.setter
    def most(self, size: int) -> None:
        self._most = size

    @property
    def used(self) -> int:
        with self._lock:
            self._settle()
            return self._used

    def take(self, connection: object, client: str, size: int, before: int = 0) -> bool:
        """Take bytes for a connection and its client ("" if unknown). Return False if the limit does not allow it.

        `before` is the size already taken for the same piece.
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
                "Refused %d bytes: connections hold %d of at most %d bytes (change the limit with --max-memory or the "
                "setting max_memory)",
                size, used, self.most,
            )  # fmt: skip
        return False

    def give_back(self, connection: object, client: str, size: int) -> None:
        """Return bytes. They are counted at the next `take`, because this may be called by a destructor."""
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


class Charge:
    """The bytes that one piece takes of the budget. They are returned when this object is deleted.

    `connection` is a hashable that identifies the connection and does not refer to this object.
    """

    __slots__ = ("_client", "_connection", "size")

    def __init__(self, connection: object, client: str = "") -> None:
        self._connection = connection
        self._client = client
        self.size = 0

    def set(self, size: int) -> bool:
        """Change the size to `size` bytes. Return False, and change nothing, if the budget does not allow it."""
        more = size - self.size
        if more > 0:
            if not BUDGET.take(self._connection, self._client, more, self.size):
                return False
        elif more < 0:
            BUDGET.give_back(self._connection, self._client, -more)
        self.size = size
        return True

    def add(self, size: int) -> bool:
        return self.set(self.size + size)

    def __del__(self) -> None:
        if self.size:
            BUDGET.give_back(self._connection, self._client, self.size)


class ChargedTexts:
    """A set of strings whose bytes, plus `overhead` for each, are counted in the budget."""

    __slots__ = ("_charge", "_overhead", "_texts")

    def __init__(self, overhead: int, connection: object, client: str = "") -> None:
        self._texts: set[str] = set()
        self._overhead = overhead
        self._charge = Charge(connection, client)

    def add(self, text: str) -> bool:
        """Add a string. Return False if the budget does not allow it."""
        if text not in self._texts:
            if not self._charge.add(len(text) + self._overhead):
                return False
            self._texts.add(text)
        return True

    def discard(self, text: str) -> None:
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
    """Estimate the bytes that a JSON message and its decoded values take.

    In `[[],[],…`, each 3 bytes become 64. Values are counted by the punctuation between them, in a random sample:
    counting all of it would take longer than decoding.
    """
    size = len(message)
    # The step has no divisor in common with 2, 3 and 5, so that repeated text is sampled at each of its bytes.
    step = 30 * ((size >> 16) + 1 + (perf_counter_ns() & 3)) + 1
    seen = message[perf_counter_ns() % 31 :: step]
    return 2 * size + (len(seen) - len(seen.translate(None, _MARKS))) * step * _MARK_BYTES


def client_of(peer: str, principal: str = "") -> str:
    """Return the key of the client behind a request: its principal and its address; "" if both are unknown.

    Only the first half of an IPv6 address counts, because a client can choose the second half freely.
    """
    if ":" in peer:
        peer = _network(peer)
    return f"{principal}@{peer}" if principal else peer


@lru_cache(1024)
def _network(peer: str) -> str:
    # Imported here because few servers have clients with IPv6 addresses.
    from ipaddress import IPv6Address  # noqa: PLC0415

    try:
        packed = IPv6Address(peer.partition("%")[0]).packed
    except ValueError:
        return peer
    return packed[:8].hex(":", 2) if any(packed[:8]) else peer  # all zero: loopback or an IPv4 address


def address_of(client: str) -> str:
    """Return the key that all clients of one address share."""
    return "@" + client[client.rfind("@") + 1 :]


def machine_memory() -> int:
    """Return the bytes of memory that this process may use, by the machine and its control groups."""
    try:
        least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        least = 4 << 30  # on Windows, where `sysconf` does not exist

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
    # Return the files with the memory limits of this process's control group and of its parents.
    files = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return files

    for line in lines:
        _, kinds, path = (line.split(":", 2) + ["", "", ""])[:3]
        base, name = (
            ("/sys/fs/cgroup", "memory.max") if not kinds else ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        )
        if kinds and "memory" not in kinds.split(","):
            continue
        parts = [part for part in path.split("/") if part and part != ".."]
        for depth in range(len(parts), 0, -1):
            files.append("/".join((base, *parts[:depth], name)))
    return files
