"""What a client keeps of a server's answers, for as long as the server says that they are fresh.

One cache belongs to one connection, and is never shared. Where each request may be another caller's (its header fields
come from a function of the program) only results of public scope are kept, and of one whose token was exchanged nothing
private. What a notification says has changed is forgotten at once, also an answer that is on its way while it comes.
Spec: 2026-07-28 server/utilities/caching. Older versions have no hints: nothing of theirs is kept.
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


class _Kept(Struct):
    result: Raw
    until: float
    size: int
    is_private: bool


class ResultCache:
    """Results by method and parameter (cursor or URI), of `most` bytes together; the one not used for longest goes.

    `keeps_private` is False where requests may be of several callers.
    """

    def __init__(self, most: int, time: Callable[[], float], *, keeps_private: bool = True) -> None:
        self._most = most
        self._time = time
        self._keeps_private = keeps_private
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._size = 0
        self._changes = 0

    async def get(
        self, method: str, parameter: str, ask: Callable[[], Awaitable[tuple[Raw, bool]]], *, fresh: bool = False
    ) -> Raw:
        """The result that is kept, or what `ask` gives, and whether that may be kept. `fresh`: asked in any case."""
        key = (method, parameter)
        kept = self._kept.get(key)
        if kept is not None and not fresh and self._time() < kept.until:
            self._kept.move_to_end(key)
            return kept.result

        self._drop(key)
        changes = self._changes
        result, is_plain = await ask()
        if is_plain and changes == self._changes:
            self._put(key, result)
        return result

    def told(self, method: str, params: Raw) -> None:
        """A notification came: forget what it says has changed."""
        if method == "notifications/resources/updated":
            try:
                uri = _read_uri(params).uri
            except MALFORMED:
                return
            self._changes += 1
            # Also what is below it: a change there may be told of the whole.
            below = uri.rstrip("/") + "/"
            self._forget(lambda key: key[0] == "resources/read" and (key[1] == uri or key[1].startswith(below)))
        elif method in _CHANGED:
            self._changes += 1
            self._forget(lambda key: key[0] in _CHANGED[method])

    def _forget(self, is_meant: Callable[[tuple[str, str]], bool]) -> None:
        for key in [key for key in self._kept if is_meant(key)]:
            self._drop(key)

    def forget(self, method: str) -> None:
        """Forget all results of a method: a page could not be had, and the others belong to it."""
        self._forget(lambda key: key[0] == method)

    def forget_private(self) -> None:
        """The token is another one: "a different access token requires a different cache"."""
        self._changes += 1
        for key in [key for key, kept in self._kept.items() if kept.is_private]:
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
        self._kept[key] = _Kept(result, self._time() + hint.ttl_ms / 1000, size, is_private)
        self._size += size
        while self._size > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._size -= kept.size
