"""`ToolResult`, and what a tool's result becomes: content blocks, and structured content."""

from __future__ import annotations

from base64 import b64encode
from math import isfinite
from typing import Any

import pydantic_core
from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from mcpd.compat.fastmcp.errors import ToolError
from mcpd.compat.fastmcp.media import Audio, File, Image
from mcpd.compat.types.content import ContentBlock, TextContent
from mcpd.compat.types.tools import CallToolResult

__all__ = ["ToolResult", "content_of", "is_content", "jsonable", "result_of"]

# Infinities and NaN stay what they are, to be refused and not to become null.
_AS_THEY_ARE = ConfigDict(ser_json_inf_nan="constants")
_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any, config=_AS_THEY_ARE)


def jsonable(value: Any, annotation: Any = Any) -> Any:
    """A value as JSON values, as its annotation writes it."""
    if annotation in (None, ..., Any) or isinstance(annotation, str) or annotation.__class__ is type(Any):
        return _ANYTHING.dump_python(value, mode="json")
    try:
        return _adapter(annotation).dump_python(value, mode="json")
    except (PydanticSchemaGenerationError, AttributeError):
        return _ANYTHING.dump_python(value, mode="json")


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=_AS_THEY_ARE)
    except PydanticUserError:  # a model, which has a configuration of its own
        return TypeAdapter(annotation)


def _refuse_non_finite(value: Any, path: str = "$") -> None:
    """Raise ToolError for a number that JSON has no text for, as version 4 of the library does."""
    if isinstance(value, float) and not isfinite(value):
        raise ToolError(
            f"Tool result contains a non-finite float ({value!r}) at {path}; JSON cannot represent NaN or Infinity"
        )
    if isinstance(value, dict):
        for name, member in value.items():
            _refuse_non_finite(member, f"{path}.{name}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_non_finite(item, f"{path}[{index}]")


def is_content(value: Any) -> bool:
    """Whether it is a content block, or becomes one by itself."""
    return isinstance(value, (*_BLOCKS, Image, Audio, File))


_BLOCKS: tuple[type, ...] = ContentBlock.__args__


def content_of(value: Any) -> list[Any]:
    """A value as content blocks; a list without any such in it is one text."""
    if value is None:
        return []
    if isinstance(value, (list, tuple)) and any(is_content(item) for item in value):
        return [_block(item) for item in value]
    if isinstance(value, (list, tuple)) and not value:
        return []
    return [_block(value)]


def _block(item: Any) -> Any:
    if isinstance(item, _BLOCKS):
        return item
    if isinstance(item, Image):
        return item.to_image_content()
    if isinstance(item, Audio):
        return item.to_audio_content()
    if isinstance(item, File):
        return item.to_resource_content()
    if isinstance(item, bytes):
        try:
            return TextContent(text=item.decode())
        except UnicodeDecodeError:
            return TextContent(text=b64encode(item).decode())
    return TextContent(text=item if isinstance(item, str) else _ANYTHING.dump_json(item, fallback=str).decode())


class ToolResult(BaseModel):
    """What a tool gives, if it says all of it: content, structured content, `_meta`, and whether it failed."""

    content: list[Any]
    structured_content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    is_error: bool = False

    def __init__(
        self,
        content: Any = None,
        structured_content: Any = None,
        meta: dict[str, Any] | None = None,
        is_error: bool = False,
    ) -> None:
        if content is None and structured_content is None:
            raise ValueError("Either content or structured_content must be provided")
        if structured_content is not None:
            plain = jsonable(structured_content)
            if not isinstance(plain, dict):
                raise ValueError(
                    f"structured_content must be a dict or None. Got {type(plain).__name__}: {plain!r}. "
                    "Tools should wrap non-dict values based on their output_schema."
                )
            if content is None:
                content = structured_content
            structured_content = plain
        super().__init__(
            content=content_of(content), structured_content=structured_content, meta=meta, is_error=is_error
        )

    def to_mcp_result(self) -> CallToolResult:
        """The same as the protocol's result."""
        return CallToolResult(
            content=self.content,
            structuredContent=self.structured_content,
            isError=self.is_error,
            _meta=self.meta,  # type: ignore[call-arg]
        )


def result_of(value: Any, schema: dict[str, Any] | None, wraps: bool, annotation: Any) -> ToolResult:
    """What a function gave as a result. Raises ValueError for what is no JSON, where a schema asks for it, and
    ToolError for NaN and infinities."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, CallToolResult):
        found = ToolResult(value.content, value.structuredContent, value.meta, value.isError)
        return found.model_copy(update={"content": value.content})
    content = content_of(value)
    if isinstance(value, bytes):
        return ToolResult(content)
    has_content = is_content(value) or (isinstance(value, (list, tuple)) and any(is_content(one) for one in value))
    if schema is None and has_content:
        return ToolResult(content)
    try:
        plain = jsonable(value, annotation)
    except (pydantic_core.PydanticSerializationError, UnicodeDecodeError):
        if schema is not None:
            raise
        return ToolResult(content)
    if not has_content:
        _refuse_non_finite(plain)
        content = content_of(plain)
    if schema is None:
        return ToolResult(content, plain if isinstance(plain, dict) else None)
    if wraps:
        return ToolResult(content, {"result": plain}, {"fastmcp": {"wrap_result": True}})
    return ToolResult(content, plain)
