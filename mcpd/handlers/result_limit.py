"""A limit on the size of a tool's result: what is more is cut off, and the whole can be read for a while."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, ClassVar

from msgspec import UNSET, Raw, convert, structs

from mcpd.errors import RegistrationError, ResourceNotFound
from mcpd.handlers.kept_results import PREFIX, KeptResults
from mcpd.handlers.middleware import CallNext, MiddlewareRequest, Piece
from mcpd.protocol.types.base import Result
from mcpd.protocol.types.content import (
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcpd.protocol.types.resources import ReadResourceResult
from mcpd.protocol.types.tools import AnyValue, CallToolResult
from mcpd.registry.catalog import Catalog
from mcpd.registry.content import encode_data

KEEP_SECONDS = 600.0
"""How long a result that was cut can be read."""

MOST_KEPT_BYTES = 64 * 1024 * 1024
"""How much all of them have together."""


class ResultLimit(Piece):
    """A middleware: results of tools show no more than `most_bytes`: `server.middleware(ResultLimit(100_000))`.

    A larger one is cut: texts to what fits, with a line that says so and a link to the whole, which only the same
    principal can read, for `keep_seconds`, by `resources/read`. All that is kept has `keep_bytes` together. Structured
    content that is larger is left out, and the result of a tool with an output schema is an error then, since what
    would be left does not fit the schema. `tools` names those that are limited, None is all. Raises RegistrationError
    for numbers that are none.
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
                "ResultLimit: most_bytes and keep_seconds are more than 0, and keep_bytes is not negative"
            )
        if isinstance(tools, str):
            raise RegistrationError(f"ResultLimit: tools are several names; write tools=[{tools!r}]")
        self._most = most_bytes
        self._keep_seconds = keep_seconds
        self._tools = None if tools is None else frozenset(tools)
        self._kept = KeptResults(keep_seconds, keep_bytes)

    def attach(self, catalog: Catalog) -> None:
        """The server offers resources from now on: what is kept is read as one."""
        super().attach(catalog)
        catalog.offer("resources")

    async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """The result, or as much of it as may be; or what is kept of an earlier one. Raises ResourceNotFound."""
        if request.method == "resources/read":
            uri: str = request.params.uri
            if not uri.startswith(PREFIX):
                return await call_next(request)
            contents = self._kept.get(_owner(request), uri)
            if contents is None:
                raise ResourceNotFound(uri)
            # Whatever the server says of its resources: nobody else may have it.
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
            note = f"The result of {name} is cut: it has {size} bytes, of which {self._most} are shown at most. "
            shown.append(TextContent(f"{note}The rest is not kept; ask for less at a time."))
        else:
            note = f"The result of {name} is cut: it has {size} bytes. The whole can be read "
            shown.append(TextContent(f"{note}for {self._keep_seconds:g} s as the resource {uri}"))
            kind = whole[0].mime_type if len(whole) == 1 else None
            shown.append(ResourceLink(uri=uri, name=f"result of {name}", mime_type=kind, size=total))

        if len(data) <= self._most:
            return structs.replace(result, content=shown)
        is_error = result.is_error or self._has_schema(name)
        return structs.replace(result, content=shown, structured_content=UNSET, is_error=is_error)

    def _beginning(self, blocks: list[ContentBlock], sizes: list[int]) -> list[ContentBlock]:
        """As many blocks as fit, the last text of them cut."""
        left = self._most
        shown: list[ContentBlock] = []
        for block, size in zip(blocks, sizes, strict=True):
            if size <= left:
                shown.append(block)
                left -= size
            elif isinstance(block, TextContent) and left:
                # A character that is cut through is left out.
                text = block.text.encode("utf-8", "replace")[:left].decode("utf-8", "ignore")
                shown.append(structs.replace(block, text=text))
                left = 0
        return shown

    def _has_schema(self, name: str) -> bool:
        entry = None if self.catalog is None else self.catalog.tools.find(name)
        return entry is not None and entry.listed(frozenset()).output_schema is not None


def _owner(request: MiddlewareRequest) -> str:
    return request._exchange.call.session.principal


def _size_of(block: Any) -> int:
    """The bytes of a block that count; of a binary one as base64 has them."""
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
    """Structured content as JSON; empty for none."""
    if content is UNSET:
        return b""
    if isinstance(content, AnyValue):
        content = content.result
    return bytes(content) if isinstance(content, Raw) else encode_data(content)


def _contents_of(block: ContentBlock) -> TextResourceContents | BlobResourceContents | None:
    """A block as the content of a resource; None for a link, which is shown, or can be had, by itself."""
    if isinstance(block, TextContent):
        return TextResourceContents("", block.text, "text/plain")
    if isinstance(block, EmbeddedResource):
        inner: Any = block.resource
        if isinstance(inner, dict):  # of an author, or of another server
            inner = convert(inner, BlobResourceContents if "blob" in inner else TextResourceContents)
        copy: TextResourceContents | BlobResourceContents = structs.replace(inner)
        return copy
    if isinstance(block, ResourceLink):
        return None
    return BlobResourceContents("", block.data, block.mime_type)
