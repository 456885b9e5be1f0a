"""Tools. Spec: 2026-07-28 server/tools."""

from typing import Any, Literal

from msgspec import UNSET, Raw, UnsetType, field

from mcpd.protocol.types.base import NO_JSON, CacheableResult, Icon, Params, Result, Wire
from mcpd.protocol.types.content import ContentBlock


class ToolAnnotations(Wire, kw_only=True):
    """Hints about a tool's behaviour; a client does not trust them blindly."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Wire, kw_only=True):
    """Whether a tool can run as a task; 2025-11-25 only."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Tool(Wire, kw_only=True):
    """A tool as listed. The schemas are JSON Schema 2020-12 objects unless they name another dialect."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    input_schema: dict[str, Any] | Raw
    output_schema: dict[str, Any] | Raw | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class ListToolsResult(CacheableResult, kw_only=True, weakref=True, eq=False):
    """One page of tools; no `next_cursor` means the last page."""

    tools: list[Tool]
    next_cursor: str | None = None


class CallToolParams(Params, kw_only=True, gc=False):
    """The params of `tools/call`. `arguments` is raw JSON; the last two fields answer an earlier `input_required`."""

    name: str
    arguments: Raw = NO_JSON
    task: Raw = NO_JSON
    input_responses: Raw = NO_JSON
    request_state: str | None = None


class AnyValue(Wire):
    """Structured content of a tool whose output schema does not describe an object.

    Versions that allow only objects receive this struct, as the schema is wrapped; newer versions receive `result`.
    """

    result: Any


class CallToolResult(Result, kw_only=True):
    """The result of a tool. `structured_content` may be any JSON value, null included; UNSET means none."""

    content: list[ContentBlock]
    structured_content: Any | UnsetType = UNSET
    is_error: bool = False
