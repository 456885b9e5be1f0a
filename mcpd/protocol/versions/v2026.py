"""The revision of 2026: 2026-07-28.

No handshake, version and capabilities in every request, multi round-trip requests, subscriptions.
Spec: spec/mcp-2026-07-28/changelog.
"""

from typing import Any

from msgspec import UNSET, Raw, structs
from msgspec.json import decode

from mcpd.errors import HeaderMismatch, MissingCapability, ResourceNotFound, UnsupportedVersion, UrlElicitationRequired
from mcpd.protocol.jsonrpc import is_object
from mcpd.protocol.schemas import Schema, mapped
from mcpd.protocol.types.base import META, ClientCapabilities, Params, ServerCapabilities
from mcpd.protocol.types.features import (
    AnyValue,
    CallToolParams,
    CallToolResult,
    GetPromptParams,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceParams,
    ReadResourceResult,
    Tool,
)
from .table import Revision

_HINT = ("ttl_ms", "cache_scope")


def object_schema(tool: Tool) -> Tool:
    """Wrap an output schema that does not describe an object in one, under `result`, as older versions require.

    `$defs` stay at the root, and other references are changed to the new place. A schema with an `$id` is left alone:
    its references are relative to itself.
    """
    schema = tool.output_schema
    if not isinstance(schema, dict) or schema.get("type") == "object":
        return tool

    root: Schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    if "$id" not in schema:
        moved = _moved({key: schema[key] for key in ("$schema", "$defs") if key in schema})
        inner = {key: value for key, value in schema.items() if key not in moved}
        root = moved | root
        root["properties"] = {"result": _moved(inner)}
    return structs.replace(tool, output_schema=root)


def _moved(node: Any) -> Any:
    # Copy a schema, with references changed to `#/properties/result`.
    if not isinstance(node, dict):
        return node
    changed = mapped(node, _moved)
    reference = node.get("$ref")
    if isinstance(reference, str) and (f"{reference}/").startswith("#/") and not reference.startswith("#/$defs/"):
        changed["$ref"] = f"#/properties/result{reference[1:]}"
    return changed


def _object_content(result: CallToolResult) -> CallToolResult:
    content = result.structured_content
    if content is UNSET or (content.__class__ is not AnyValue and is_object_value(content)):
        return result
    if content.__class__ is AnyValue:
        return structs.replace(result, meta=_marked(result.meta))
    return wrapped_content(result)


def wrapped_content(result: CallToolResult) -> CallToolResult:
    """Return the result with its structured content under `result`, marked as wrapped."""
    content = {"result": result.structured_content}
    return structs.replace(result, structured_content=content, meta=_marked(result.meta))


def _marked(meta: dict[str, Any] | Raw | None) -> dict[str, Any]:
    # FastMCP's client unwraps values with this mark. FastMCP also has a keyword for the schema, but strict validators
    # refuse it.
    known = decode(meta, type=dict[str, Any]) if isinstance(meta, Raw) else meta or {}
    mark = known.get("fastmcp")
    return {**known, "fastmcp": {**(mark if isinstance(mark, dict) else {}), "wrap_result": True}}


def is_object_value(value: Any) -> bool:
    """Return whether a value is encoded as a JSON object."""
    if isinstance(value, Raw):
        return is_object(value)
    return isinstance(value, dict) or hasattr(value, "__struct_fields__") or hasattr(value, "__dataclass_fields__")


def _without_tasks(capabilities: ClientCapabilities) -> ClientCapabilities:
    # Older versions have tasks without this extension. Spec: tasks-extension, backward compatibility.
    extensions = capabilities.extensions or {}
    if f"{META}tasks" not in extensions:
        return capabilities
    kept = {name: settings for name, settings in extensions.items() if name != f"{META}tasks"}
    return structs.replace(capabilities, extensions=kept or None)


_2026_07_28 = Revision(
    version="2026-07-28",
    modern=True,
    requests={"server/discover": Params, "subscriptions/listen": "ListenParams"},
    server_notifications=("notifications/subscriptions/acknowledged",),
    errors=(HeaderMismatch, MissingCapability, UnsupportedVersion),
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
    fields_gone={
        Tool: ("execution",),
        CallToolParams: ("task",),
        "ElicitUrlParams": ("elicitation_id",),
        ClientCapabilities: ("tasks",),
        ServerCapabilities: ("tasks",),
    },
    back={Tool: object_schema, CallToolResult: _object_content, ClientCapabilities: _without_tasks},
    error_codes={ResourceNotFound: -32002},
)


REVISIONS = (_2026_07_28,)
