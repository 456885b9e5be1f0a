"""Middleware with limits: `RateLimit` for calls, `ResultLimit` for the size of results.

A result that was cut is kept for a while and can be read whole by its caller. Kept results count towards the memory
budget, and all together never exceed a given size. If they would, the oldest result of the caller with the most is
dropped, so that one caller cannot push out another's results.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Collection
from secrets import token_urlsafe
from threading import RLock
from typing import Any, ClassVar

from msgspec import UNSET, Raw, Struct, convert, structs

from mcpd.errors import RateLimited, RegistrationError, ResourceNotFound
from mcpd.protocol.budget import Charge
from mcpd.protocol.types.base import Result
from mcpd.protocol.types.features import (
    AnyValue,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.content import encode_data
from .middleware import BuiltInMiddleware, CallNext, MiddlewareRequest

# The maximum number of token buckets. Beyond it the caller that called longest ago is forgotten.
MOST_BUCKETS = 16_384

# The maximum number of buckets of one caller, for known and unknown tools; all others share one.
MOST_TOOLS = 1024


class _Limit(BuiltInMiddleware):
    def _names(self, tools: Collection[str] | None) -> frozenset[str] | None:
        if isinstance(tools, str):
            raise RegistrationError(f"{type(self).__name__}: tools is a list of names; use tools=[{tools!r}]")
        return None if tools is None else frozenset(tools)


class RateLimit(_Limit):
    """Middleware: each caller may call each tool `calls` times in `per` seconds: `server.middleware(RateLimit(60))`.

    `burst` is the number of calls that may come at once, by default `calls`. `tools` are the limited tools; None means
    all. A caller is a principal, otherwise an address, otherwise a connection. Excess calls get the error 429, whose
    data has `retryAfter` in seconds. Each round of a request in 2026-07-28 is a call. Raises RegistrationError for
    invalid numbers.
    """

    methods: ClassVar[tuple[str, ...]] = ("tools/call",)

    def __init__(
        self, calls: float, *, per: float = 60.0, burst: int | None = None, tools: Collection[str] | None = None
    ) -> None:
        most = calls if burst is None else burst
        if not (0 < calls < math.inf and 0 < per < math.inf and 1 <= most < math.inf):
            raise RegistrationError(
                "RateLimit: calls and per must be more than 0, and burst (by default calls) at least 1"
            )
        self._most = float(most)
        self._per_second = calls / per
        self._tools = self._names(tools)
        # By caller, in order of the last call; by tool the remaining calls and the time of that number.
        self._callers: OrderedDict[str, dict[str, tuple[float, float]]] = OrderedDict()
        self._count = 0
        # When the full buckets of a caller with too many tools were last removed.
        self._swept: dict[str, float] = {}

    async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Pass the request on, or raise RateLimited."""
        tool: str = request.params.name
        if self._tools is None or tool in self._tools:
            self._take(request.caller, tool)
        return await call_next(request)

    def _take(self, caller: str, tool: str) -> None:
        now = asyncio.get_running_loop().time()
        buckets = self._callers.pop(caller, {})
        self._callers[caller] = buckets
        before = len(buckets)
        if tool not in buckets and before >= MOST_TOOLS:
            self._sweep(caller, buckets, now)
            # Unknown names are treated like known ones, so that hidden tools stay hidden.
            if len(buckets) >= MOST_TOOLS:
                tool = ""

        left = self._left(buckets.get(tool, (self._most, now)), now)
        is_over = left < 1
        buckets[tool] = (left if is_over else left - 1, now)
        self._count += len(buckets) - before
        while self._count > MOST_BUCKETS and len(self._callers) > 1:
            forgotten, theirs = self._callers.popitem(last=False)
            self._count -= len(theirs)
            self._swept.pop(forgotten, None)
        if is_over:
            raise RateLimited((1 - left) / self._per_second)

    def _sweep(self, caller: str, buckets: dict[str, tuple[float, float]], now: float) -> None:
        # Remove full buckets, but not at each call of a caller that invents names.
        if now - self._swept.get(caller, -math.inf) < max(1 / self._per_second, 0.1):
            return
        self._swept[caller] = now
        for name in [name for name, bucket in buckets.items() if self._left(bucket, now) >= self._most]:
            del buckets[name]

    def _left(self, bucket: tuple[float, float], now: float) -> float:
        left, since = bucket
        return min(self._most, left + (now - since) * self._per_second)


# The prefix of the URIs of kept results; the rest cannot be guessed.
PREFIX = "mcpd-result:///"

_OVERHEAD = 1024


class _Kept(Struct, weakref=True):
    owner: str
    contents: list[TextResourceContents | BlobResourceContents]
    size: int
    until: float
    charge: Charge


class KeptResults:
    """Keeps results. `seconds` is the time for each, `most` the size of all together in bytes. Safe from any thread."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._sizes: Counter[str] = Counter()
        self._total = 0
        self._lock = RLock()

    def put(self, owner: str, client: str, contents: list[Any], size: int) -> str | None:
        """Keep the contents of a result of about `size` bytes. Returns the URI that they get, or None without memory
        for them.
        """
        size += _OVERHEAD
        with self._lock:
            self.expire()
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
        # Frees memory also if nothing is requested any more.
        asyncio.get_running_loop().call_later(self._seconds + 0.01, self.expire)
        return uri

    def get(self, owner: str, uri: str) -> list[TextResourceContents | BlobResourceContents] | None:
        """Return the contents of a result; None if it has expired or belongs to another caller."""
        with self._lock:
            self.expire()
            kept = self._kept.get(uri)
            return None if kept is None or kept.owner != owner else kept.contents

    def expire(self) -> None:
        """Drop results that have expired."""
        now = asyncio.get_running_loop().time()
        with self._lock:
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


# How long a result that was cut can be read.
KEEP_SECONDS = 600.0

# The size of all kept results together.
MOST_KEPT_BYTES = 64 * 1024 * 1024


class ResultLimit(_Limit):
    """Middleware that limits results of tools to `most_bytes`: `server.middleware(ResultLimit(100_000))`.

    A larger result is cut. Its text is cut to the limit and followed by a notice and a link to the whole, which only
    the same principal can read with `resources/read`, for `keep_seconds`. All kept results share `keep_bytes`. Larger
    structured content is dropped; for a tool with an output schema the result then becomes an error, as it no longer
    fits the schema. `tools` are the limited tools; None means all. Raises RegistrationError for invalid numbers.
    """

    methods: ClassVar[tuple[str, ...]] = ("tools/call", "resources/read")

    def __init__(
        self,
        most_bytes: int,
        *,
        keep_seconds: float = KEEP_SECONDS,
        keep_bytes: int = MOST_KEPT_BYTES,
        tools: Collection[str] | None = None,
    ) -> None:
        if not (most_bytes > 0 and 0 < keep_seconds < math.inf and keep_bytes >= 0):
            raise RegistrationError(
                "ResultLimit: most_bytes and keep_seconds must be more than 0, and keep_bytes at least 0"
            )
        self._most = most_bytes
        self._keep_seconds = keep_seconds
        self._tools = self._names(tools)
        self._kept = KeptResults(keep_seconds, keep_bytes)

    def attach(self, catalog: Catalog) -> None:
        """Offer resources from now on, because kept results are read as resources."""
        super().attach(catalog)
        catalog.offer("resources")

    async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Return the result, cut if necessary, or a kept one. Raises ResourceNotFound."""
        if request.method == "resources/read":
            uri: str = request.params.uri
            if not uri.startswith(PREFIX):
                return await call_next(request)
            contents = self._kept.get(_owner(request), uri)
            if contents is None:
                raise ResourceNotFound(uri)
            # Always private, whatever the server's hints say.
            return ReadResourceResult(contents=list(contents), ttl_ms=0, cache_scope="private")

        result = await call_next(request)
        name: str = request.params.name
        if not isinstance(result, CallToolResult) or (self._tools is not None and name not in self._tools):
            return result
        sizes = [_size_of(block) for block in result.content]
        data = _json_of(result.structured_content)
        if sum(sizes) <= self._most and len(data) <= self._most:
            return result
        return self._cut(request, result, sizes, data)

    def _cut(self, request: MiddlewareRequest, result: CallToolResult, sizes: list[int], data: bytes) -> CallToolResult:
        whole = [content for block in result.content if (content := _contents_of(block)) is not None]
        if data and not any(isinstance(one, TextResourceContents) and one.text.encode() == data for one in whole):
            whole.append(TextResourceContents("", data.decode(), "application/json"))
        total = sum(len(one.text) if isinstance(one, TextResourceContents) else len(one.blob) for one in whole)
        session = request._exchange.call.session
        uri = self._kept.put(_owner(request), session.owner, whole, total)

        name = request.params.name
        shown = self._beginning(result.content, sizes)
        size = max(sum(sizes), len(data))
        if uri is None:
            note = f"The result of {name} was cut: it has {size} bytes, and the limit is {self._most}. "
            shown.append(TextContent(f"{note}The rest was not kept; request less at a time."))
        else:
            note = f"The result of {name} was cut: it has {size} bytes. The whole result can be read "
            shown.append(TextContent(f"{note}for {self._keep_seconds:g} s as the resource {uri}"))
            kind = whole[0].mime_type if len(whole) == 1 else None
            shown.append(ResourceLink(uri=uri, name=f"result of {name}", mime_type=kind, size=total))

        if len(data) <= self._most:
            return structs.replace(result, content=shown)
        is_error = result.is_error or self._has_schema(name)
        return structs.replace(result, content=shown, structured_content=UNSET, is_error=is_error)

    def _beginning(self, blocks: list[ContentBlock], sizes: list[int]) -> list[ContentBlock]:
        left = self._most
        shown: list[ContentBlock] = []
        for block, size in zip(blocks, sizes, strict=True):
            if size <= left:
                shown.append(block)
                left -= size
            elif isinstance(block, TextContent) and left:
                # A character that would be cut is left out.
                text = block.text.encode("utf-8", "replace")[:left].decode("utf-8", "ignore")
                shown.append(structs.replace(block, text=text))
                left = 0
        return shown

    def _has_schema(self, name: str) -> bool:
        entry = None if self.catalog is None else self.catalog.tools.find(name)
        return entry is not None and entry.listed(frozenset()).output_schema is not None


def _owner(request: MiddlewareRequest) -> str:
    return request._exchange.call.session.opening.principal


def _size_of(block: Any) -> int:
    # Return the size of a block in bytes; binary data count as base64.
    if isinstance(block, EmbeddedResource):
        block = block.resource
    if isinstance(block, dict):
        return len(encode_data(block))
    text = getattr(block, "text", None)
    if isinstance(text, str):
        return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    data: Any = getattr(block, "blob", None) or getattr(block, "data", b"")
    return len(data) * 4 // 3


def _json_of(content: Any) -> bytes:
    if content is UNSET:
        return b""
    if isinstance(content, AnyValue):
        content = content.result
    return bytes(content) if isinstance(content, Raw) else encode_data(content)


def _contents_of(block: ContentBlock) -> TextResourceContents | BlobResourceContents | None:
    # Return a block as the content of a resource; None for a link.
    if isinstance(block, TextContent):
        return TextResourceContents("", block.text, "text/plain")
    if isinstance(block, EmbeddedResource):
        inner: Any = block.resource
        if isinstance(inner, dict):  # from an author or another server
            inner = convert(inner, BlobResourceContents if "blob" in inner else TextResourceContents)
        return structs.replace(inner)  # type: ignore[no-any-return]
    if isinstance(block, ResourceLink):
        return None
    return BlobResourceContents("", block.data, block.mime_type)
