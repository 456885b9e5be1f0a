"""Tools."""

from typing import Any, Literal

from mcpd.compat.types.base import (
    BareNotification,
    BaseRequest,
    MetaModel,
    Model,
    Named,
    NamedRequestParams,
    PaginatedRequest,
    PaginatedResult,
    Result,
)
from mcpd.compat.types.content import ContentBlock, Icon

__all__ = [
    "TASK_FORBIDDEN",
    "TASK_OPTIONAL",
    "TASK_REQUIRED",
    "CallToolRequest",
    "CallToolRequestParams",
    "CallToolResult",
    "ListToolsRequest",
    "ListToolsResult",
    "TaskExecutionMode",
    "Tool",
    "ToolAnnotations",
    "ToolExecution",
    "ToolListChangedNotification",
]

TaskExecutionMode = Literal["forbidden", "optional", "required"]
TASK_FORBIDDEN: Literal["forbidden"] = "forbidden"
TASK_OPTIONAL: Literal["optional"] = "optional"
TASK_REQUIRED: Literal["required"] = "required"


class ToolAnnotations(Model):
    """Hints about what a tool does."""

    title: str | None = None
    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None


class ToolExecution(Model):
    """Whether a tool can run as a task."""

    taskSupport: TaskExecutionMode | None = None


class Tool(Named, MetaModel):
    """A tool as listed."""

    description: str | None = None
    inputSchema: dict[str, Any]
    outputSchema: dict[str, Any] | None = None
    icons: list[Icon] | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None


class ListToolsRequest(PaginatedRequest):
    """Asks for the tools."""

    method: Literal["tools/list"] = "tools/list"


class ListToolsResult(PaginatedResult):
    """One page of tools."""

    tools: list[Tool]


class CallToolRequestParams(NamedRequestParams):
    """Which tool, with which arguments."""


class CallToolRequest(BaseRequest):
    """Calls a tool."""

    method: Literal["tools/call"] = "tools/call"
    params: CallToolRequestParams


class CallToolResult(Result):
    """What a tool gave."""

    content: list[ContentBlock]
    structuredContent: dict[str, Any] | None = None
    isError: bool = False


class ToolListChangedNotification(BareNotification):
    """The list of tools is another one now."""

    method: Literal["notifications/tools/list_changed"] = "notifications/tools/list_changed"
