"""Results of requests: all pages of a list, the value of a tool call as JSON or as a type, and a cache of results.

Some libraries wrap values that are not objects as `{"result": …}`, because versions before 2026-07-28 only allow
objects. One of them marks it in `_meta`, the other does not. Spec: 2026-07-28 server/tools, structured content;
server/utilities/{pagination,caching}.
"""

from __future__ import annotations

import logging
import typing
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from types import UnionType
from typing import Any, TypeVar, Union

from msgspec import UNSET, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode, encode

from mcpd.errors import ConfigurationError, ProtocolError, RegistrationError, ResultMismatch, ToolError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Wire
from mcpd.protocol.types.features import CallToolResult, TextContent
from .limits import ClientLimits, Faults


def plain_value(result: CallToolResult) -> Any:
    """Return the JSON value of a result; its text if there is only one text, otherwise its content; None without
    content.

    Raises ToolError with the text of the result if the tool failed.
    """
    texts = _texts(result)
    if result.structured_content is not UNSET:
        return result.structured_content["result"] if _is_wrapped(result) else result.structured_content
    return texts[0] if len(texts) == len(result.content) == 1 else result.content or None


def typed_value(tool: str, result: CallToolResult, returns: Any) -> Any:
    """Return the value as the type `returns`. Without structured content, the text is parsed as JSON unless text is
    expected.

    Raises ResultMismatch with the tool, the position and the expected type; ConfigurationError for a type that JSON
    cannot represent.
    """
    texts = _texts(result)
    read = _readable(tool, returns)

    if result.structured_content is UNSET:
        return _from_text(tool, result, texts, read, returns)

    value = result.structured_content
    # Without a mark, only the type shows whether the value is wrapped. As an object, it would fit any type whose
    # members have defaults.
    may_be_wrapped = isinstance(value, dict) and value.keys() == {"result"} and returns not in (Any, object)
    if _is_wrapped(result) or (may_be_wrapped and not _has_result(returns)):
        return _read(tool, value["result"], read, returns)
    try:
        return _read(tool, value, read, returns)
    except ResultMismatch as mismatch:
        if not may_be_wrapped:
            raise
        try:
            return _read(tool, value["result"], read, returns)
        except ResultMismatch:
            raise mismatch from None


def _from_text(tool: str, result: CallToolResult, texts: list[str], read: Any, returns: Any) -> Any:
    # Return the value of a tool without structured content, as in versions before 2025-06-18.
    if not result.content:
        return _read(tool, None, read, returns)
    if len(texts) < len(result.content):
        kinds = sorted({str(getattr(block, "type", type(block).__name__)) for block in result.content})
        raise ResultMismatch(tool, f"its content is {', '.join(kinds)}, not {_name(returns)}; use call_tool to get it")
    if len(texts) == 1 and returns is str:
        return texts[0]

    try:
        values = [decode(text.encode()) for text in texts]
    except MALFORMED:
        if len(texts) == 1 and str in _members(returns):
            return texts[0]
        problem = f"it has no structured content, and its text is not JSON for {_name(returns)}"
        raise ResultMismatch(tool, f"{problem}: {printable(texts[0], 200)}") from None
    # Version 1 of the official SDK returns a list as several texts.
    return _read(tool, values[0] if len(values) == 1 else values, read, returns)


def _texts(result: CallToolResult) -> list[str]:
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    if result.is_error:
        raise ToolError("\n".join(texts))
    return texts


def _is_wrapped(result: CallToolResult) -> bool:
    meta = decode(result.meta) if isinstance(result.meta, Raw) else result.meta
    mark = meta.get("fastmcp") if isinstance(meta, dict) else None
    found = result.structured_content
    return isinstance(mark, dict) and mark.get("wrap_result") is True and isinstance(found, dict) and "result" in found


def _readable(tool: str, returns: Any) -> Any:
    # Return a type that msgspec can decode, like the type hints of a tool's function.
    from mcpd.server.functions.hints import readable  # most clients name no type

    try:
        return readable(returns, f"call of tool {tool}: returns={_name(returns)}")
    except RegistrationError as error:
        raise ConfigurationError(str(error)) from None


def _read(tool: str, value: Any, read: Any, returns: Any) -> Any:
    from mcpd.server.functions.results import dec_hook

    try:
        # Decoded from JSON, where bytes, dates and keys of objects are text.
        return decode(encode(value), type=read, dec_hook=dec_hook)
    except MALFORMED as error:
        message, _, place = str(error).partition(" - at `")
        # msgspec writes a position as `$.days[0].high`, and a key of a mapping as `$[...]`.
        where = place.removesuffix("`").removeprefix("$").removeprefix(".")
        problem = f"{where}: {message}" if where else message
        raise ResultMismatch(tool, f"the result is not {_name(returns)}: {printable(problem, 500)}") from None


def _has_result(returns: Any) -> bool:
    # Whether `{"result": …}` may be a value of the type: a mapping, or an object with that member.
    for kind in _members(returns):
        origin = typing.get_origin(kind) or kind
        if isinstance(origin, type) and issubclass(origin, Mapping | dict) and not typing.is_typeddict(origin):
            return True
        if any("result" in getattr(base, "__annotations__", {}) for base in getattr(origin, "__mro__", ())):
            return True
        if "result" in getattr(origin, "__struct_encode_fields__", ()):
            return True
    return False


def _members(returns: Any) -> tuple[Any, ...]:
    if typing.get_origin(returns) is typing.Annotated:
        return _members(returns.__origin__)
    if typing.get_origin(returns) in (Union, UnionType):
        return tuple(kind for member in typing.get_args(returns) for kind in _members(member))
    return (returns,)


def _name(returns: Any) -> str:
    is_class = isinstance(returns, type) and not typing.get_args(returns)
    return returns.__name__ if is_class else str(returns).replace("typing.", "")


T = TypeVar("T")

# Commas per allowed entry. A page with more is not parsed, which would need fifty times its size.
_COMMAS = 10

_read_page = Decoder(dict[str, Raw]).decode
_entries = Decoder(list[Raw]).decode
_any = Decoder().decode


async def read_list(
    request: Callable[[Any], Awaitable[Raw]],
    method: str,
    member: str,
    kind: type[T],
    limits: ClientLimits,
    faults: Faults,
    all_entries: list[Raw] | None = None,
) -> list[T]:
    """Return all entries of a list, from all pages. Invalid entries are left out and logged in one line.

    `all_entries` is filled with all entries as the server sent them. Raises ProtocolError for a list that exceeds the
    limits or never ends, and the errors of `request`.
    """
    decode_entry = Decoder(kind).decode
    decode_loosely = Decoder(kind, strict=False).decode  # accepts "true" for true, like the official clients
    found: list[T] = []
    bad, why, size = 0, "", 0
    cursor: str | None = None
    entries: list[Raw] = []
    seen: set[str] = set()

    for _ in range(limits.list_pages):
        raw = await request(None if cursor is None else {"cursor": cursor})
        size += len(raw)
        # Checked for each page, before it is parsed.
        if size > limits.list_bytes:
            raise _too_large(method, f"{limits.list_bytes} bytes", "list_bytes")
        asked, before = cursor, entries
        entries, cursor = _page(method, member, raw, limits)
        if asked == cursor == "" and list(map(bytes, entries)) == list(map(bytes, before)):
            cursor, entries = None, []  # an empty cursor that repeats the page means the end
        if all_entries is not None:
            # Unread, for programs that show what the server sent.
            all_entries += entries
        if len(found) + bad + len(entries) > limits.list_entries:
            raise _too_large(method, f"{limits.list_entries} entries", "list_entries")

        for entry in entries:
            try:
                try:
                    found.append(decode_entry(entry))
                except ValidationError:
                    found.append(decode_loosely(entry))
            except MALFORMED as error:
                # One bad entry must not hide all others.
                bad += 1
                why = why or explain(error)

        if cursor is None:
            if bad:
                text = "%s: %d invalid entries of %d are left out; the first error: %s"
                faults.log(logging.WARNING, text, printable(method), bad, bad + len(found), printable(why))
            return found
        # Spec: 2025-11-25 server/utilities/pagination: cursors are opaque, so only equality says that a page repeats.
        if cursor in seen:
            raise ProtocolError(f"{method}: the server repeats a page, so the list would never end")
        seen.add(cursor)

    raise _too_large(method, f"{limits.list_pages} pages", "list_pages")


def _page(method: str, member: str, raw: Raw, limits: ClientLimits) -> tuple[list[Raw], str | None]:
    try:
        page = _read_page(raw)
        listed = page.get(member, Raw(b"null"))
        if bytes(listed).count(b",") > _COMMAS * limits.list_entries:
            raise _too_large(method, f"{limits.list_entries} entries", "list_entries")
        following = page.get("nextCursor")
        cursor = None if following is None else _any(following)
        return _entries(listed), cursor if isinstance(cursor, str) else None
    except MALFORMED as error:
        raise ProtocolError(f"The server's response to {method} is invalid: {explain(error)}") from None


def _too_large(method: str, much: str, limit: str) -> ProtocolError:
    return ProtocolError(f"{method}: the server's list has more than {much} (ClientLimits.{limit})")


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
        # Counted, so that a result that was requested before a change is not kept after it.
        self._changes = 0

    async def get(
        self, method: str, parameter: str, ask: Callable[[], Awaitable[tuple[Raw, bool]]], *, fresh: bool = False
    ) -> Raw:
        """Return the cached result if not `fresh`, or the result of `ask` with whether it may be cached."""
        key = (method, parameter)
        kept = self._entries.get(key)
        if kept is not None and not fresh and self._time() < kept.until:
            self._entries.move_to_end(key)
            return kept.result

        self._drop(key)
        # A notification may arrive while the result is on its way.
        changes = self._changes
        result, is_plain = await ask()
        if is_plain and changes == self._changes:
            self._put(key, result)
        return result

    def on_notification(self, method: str, params: Raw) -> None:
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

    def _forget(self, matches: Callable[[tuple[str, str]], bool]) -> None:
        for key in filter(matches, list(self._entries)):
            self._drop(key)

    def forget(self, method: str) -> None:
        """Remove all results of a method, because one page of a list is no longer valid."""
        self._forget(lambda key: key[0] == method)

    def forget_private(self) -> None:
        """Remove private results: "a different access token requires a different cache"."""
        self._changes += 1
        self._forget(lambda key: self._entries[key].is_private)

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
        # The oldest entries come first, because each use moves an entry to the end.
        while self._size > self._most:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: tuple[str, str]) -> None:
        kept = self._entries.pop(key, None)
        if kept is not None:
            self._size -= kept.size
