"""2026-07-28: no handshake, version and capabilities in every request, multi round-trip requests, subscriptions.

Spec: spec/mcp-2026-07-28/changelog.
"""

from typing import Any

from msgspec import UNSET, Raw, structs

from ..errors import ResourceNotFound, UrlElicitationRequired
from ..types.base import Params
from ..types.elicitation import ElicitUrlParams
from ..types.prompts import GetPromptParams, ListPromptsResult
from ..types.resources import ListResourcesResult, ListResourceTemplatesResult, ReadResourceParams, ReadResourceResult
from ..types.rounds import ListenParams
from ..types.tools import CallToolParams, CallToolResult, ListToolsResult, Tool
from .revision import Revision

__all__ = ["REVISION"]

_HINT = ("ttl_ms", "cache_scope")


def _object_schema(tool: Tool) -> Tool:
    """Before this revision an output schema describes an object: any other is wrapped in one, under `result`.

    The schema's own definitions stay at the root, where its `#/$defs/…` references find them.
    """
    schema = tool.output_schema
    if not isinstance(schema, dict) or schema.get("type") == "object":
        return tool
    inner = {key: value for key, value in schema.items() if key not in ("$defs", "$schema")}
    root: dict[str, Any] = {key: schema[key] for key in ("$schema", "$defs") if key in schema}
    root |= {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return structs.replace(tool, output_schema=root)


def _object_content(result: CallToolResult) -> CallToolResult:
    content = result.structured_content
    if content is UNSET or _is_object(content):
        return result
    return structs.replace(result, structured_content={"result": content})


def _is_object(value: Any) -> bool:
    """Whether a value becomes a JSON object when it is encoded; of raw JSON the first byte tells."""
    if isinstance(value, Raw):
        return bytes(value)[:1] == b"{"
    return isinstance(value, dict) or hasattr(value, "__struct_fields__") or hasattr(value, "__dataclass_fields__")


REVISION = Revision(
    version="2026-07-28",
    modern=True,
    requests={"server/discover": Params, "subscriptions/listen": ListenParams},
    server_notifications=("notifications/subscriptions/acknowledged",),
    errors_gone=(UrlElicitationRequired,),
    removed=(
        "initialize",
        "ping",
        "resources/subscribe",
        "resources/unsubscribe",
        "logging/setLevel",
        "notifications/initialized",
        "notifications/roots/list_changed",
        "sampling/createMessage",
        "roots/list",
        "elicitation/create",
        "notifications/elicitation/complete",
    ),
    fields={
        CallToolParams: ("input_responses", "request_state"),
        ReadResourceParams: ("input_responses", "request_state"),
        GetPromptParams: ("input_responses", "request_state"),
        ListToolsResult: _HINT,
        ListPromptsResult: _HINT,
        ListResourcesResult: _HINT,
        ListResourceTemplatesResult: _HINT,
        ReadResourceResult: _HINT,
    },
    fields_gone={Tool: ("execution",), CallToolParams: ("task",), ElicitUrlParams: ("elicitation_id",)},
    back={Tool: _object_schema, CallToolResult: _object_content},
    error_codes={ResourceNotFound: -32002},
)
