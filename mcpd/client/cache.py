"""A cache of results, which are kept for as long as the server says that they are fresh.

A cache belongs to one connection. If requests may belong to several users, because a function returns their header
fields, only public results are kept. A notification of a change removes the result, even if it is still being received.
Spec: 2026-07-28 server/utilities/caching. Older versions have no hints, so their results are not kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.types.base import Wire

_CHANGED = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
_OVERHEAD = 200
_MOST_MS = 2**53


class _Hint(Wire):
    result_type: str = "complete"
    ttl_ms: int | float = 0
    cache_scope: str = "private"


class _Uri(Struct):
    uri: str


_read_hint = Decoder(_Hint).decode
_read_uri = Decoder(_Uri).decode


class _Entry(Struct):
    result: Raw
    until: float
    size: int
    is_private: bool


class ResultCache:
    """Results by method and parameter (cursor or URI), of at most `most` bytes. The least recently used is removed
    first.

    `keeps_private` is False if requests may belong to several users.
    """

    def __init__(self, most: int, time: Callable[[], float], *, keeps_private: bool = True) -> None:
        self._most = most
        self._time = time
        self._keeps_private = keeps_private
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._size = 0
        self._changes = 0

    async def get(
        self, method: str, parameter: str, ask: Callable[[], Awaitable[tuple[Raw, bool]]], *, fresh: bool = False
    ) -> Raw:
        """Return the cached result, or the result of `ask`, which also returns whether it may be cached. `fresh` skips
        the cache.
        """
        key = (method, parameter)
        kept = self._entries.get(key)
        if kept is not None and not fresh and self._time() < kept.until:
            self._entries.move_to_end(key)
            return kept.result

        self._drop(key)
        changes = self._changes
        result, is_plain = await ask()
        if is_plain and changes == self._changes:
            self._put(key, result)
        return result

    def on_notification(self, method: str, params: Raw) -> None:
        """Remove the results that a notification reports as changed."""
        if method == "notifications/resources/updated":
            try:
                uri = _read_uri(params).uri
            except MALFORMED:
                return
            self._changes += 1
            # Also resources below it: the notification may report their change by the URI of the whole.
            below = uri.rstrip("/") + "/"
            self._forget(lambda key: key[0] == "resources/read" and (key[1] == uri or key[1].startswith(below)))
        elif method in _CHANGED:
            self._changes += 1
            self._forget(lambda key: key[0] in _CHANGED[method])

    def _forget(self, is_meant: Callable[[tuple[str, str]], bool]) -> None:
        for key in [key for key in self._entries if is_meant(key)]:
            self._drop(key)

    def forget(self, method: str) -> None:
        """Remove all results of a method, because one page of a list is no longer valid."""
        self._forget(lambda key: key[0] == method)

    def forget_private(self) -> None:
        """Remove private results, because the token has changed: "a different access token requires a different
        cache".
        """
        self._changes += 1
        for key in [key for key, kept in self._entries.items() if kept.is_private]:
            self._drop(key)

    def _put(self, key: tuple[str, str], result: Raw) -> None:
        try:
            hint = _read_hint(result)
        except MALFORMED:
            return
        size = len(result) + len(key[1]) + _OVERHEAD
        if hint.result_type != "complete" or not 0 < hint.ttl_ms <= _MOST_MS or size > self._most:
            return
        is_private = hint.cache_scope != "public"
        if is_private and not self._keeps_private:
            return
        self._entries[key] = _Entry(result, self._time() + hint.ttl_ms / 1000, size, is_private)
        self._size += size
        while self._size > self._most:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._entries.pop(key, None)
        if kept is not None:
            self._size -= kept.size
