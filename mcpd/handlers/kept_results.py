"""Results that were too large to be given whole: kept for a while, for the caller who asked for them.

What is kept takes of the memory that there is (`budget`), and all together never has more than a stated share. When
that is used up the oldest goes of whoever has most, so that nobody can push out what others wait to read.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from secrets import token_urlsafe
from threading import Lock
from typing import Any

from msgspec import Struct

from mcpd.protocol.budget import Charge
from mcpd.protocol.types.content import BlobResourceContents, TextResourceContents

PREFIX = "mcpd-result:///"
"""What the URIs of kept results begin with; the rest cannot be guessed."""

_OVERHEAD = 1024


class _Kept(Struct, weakref=True):
    owner: str
    contents: list[TextResourceContents | BlobResourceContents]
    size: int
    until: float
    charge: Charge


class KeptResults:
    """`seconds` is how long each is kept, `most` how many bytes all have together. Safe from any thread."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._sizes: Counter[str] = Counter()
        self._total = 0
        self._lock = Lock()

    def put(self, owner: str, client: str, contents: list[Any], size: int) -> str | None:
        """Keep the contents of a result, of about `size` bytes: gives the URI, which they get; None if there is no
        memory for them.
        """
        size += _OVERHEAD
        with self._lock:
            self._expire()
            if size > self._most:
                return None
            while self._total + size > self._most:
                richest = max(self._sizes, key=self._sizes.__getitem__)
                self._drop(next(uri for uri, kept in self._kept.items() if kept.owner == richest))
            charge = Charge(id(self), client)
            if not charge.set(size):
                return None

            uri = PREFIX + token_urlsafe(24)
            for content in contents:
                content.uri = uri
            self._kept[uri] = _Kept(owner, contents, size, asyncio.get_running_loop().time() + self._seconds, charge)
            self._sizes[owner] += size
            self._total += size
        # Of what nobody asks for any more the memory is given back too.
        asyncio.get_running_loop().call_later(self._seconds + 0.01, self.expire)
        return uri

    def get(self, owner: str, uri: str) -> list[TextResourceContents | BlobResourceContents] | None:
        """The contents of a result; None if there is none, any more, or it is somebody else's."""
        with self._lock:
            self._expire()
            kept = self._kept.get(uri)
            return None if kept is None or kept.owner != owner else kept.contents

    def expire(self) -> None:
        """Forget what was kept long enough."""
        with self._lock:
            self._expire()

    def _expire(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._kept:
            uri, kept = next(iter(self._kept.items()))
            if kept.until > now:
                return
            self._drop(uri)

    def _drop(self, uri: str) -> None:
        kept = self._kept.pop(uri)
        self._total -= kept.size
        self._sizes[kept.owner] -= kept.size
        if not self._sizes[kept.owner]:
            del self._sizes[kept.owner]
