"""The revisions of 2025.

2025-03-26: batches, audio, tool annotations, completions as a capability. 2025-06-18: structured output, elicitation,
resource links, titles, `_meta` everywhere, no batches. 2025-11-25: icons, URL elicitation, tools in sampling, tasks
(experimental).

Spec: the changelogs of spec/mcp-2025-03-26, spec/mcp-2025-06-18 and spec/mcp-2025-11-25.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from mcpd.errors import LocalProtocolError, UrlElicitationRequired
from mcpd.protocol.types.base import (
    ClientCapabilities,
    ElicitationCapability,
    Implementation,
    ProgressParams,
    SamplingCapability,
    ServerCapabilities,
)
from mcpd.protocol.types.features import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    CallToolParams,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    Prompt,
    PromptArgument,
    Resource,
    ResourceLink,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
)
from .table import Revision

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import ElicitFormParams, SamplingMessage


def _audio_as_text(block: AudioContent) -> TextContent:
    return TextContent(f"[audio, {block.mime_type}, {len(block.data)} bytes]", annotations=block.annotations)


_2025_03_26 = Revision(
    version="2025-03-26",
    null_id=True,
    batches=True,
    fields={
        ServerCapabilities: ("completions",),
        ProgressParams: ("message",),
        Tool: ("annotations",),
    },
    back={AudioContent: _audio_as_text},
)


def _link_as_text(block: ResourceLink) -> TextContent:
    text = f"{block.title or block.name}: {block.uri}"
    if block.description:
        text += f"\n{block.description}"
    return TextContent(text, annotations=block.annotations)


_APPS_KEYS = ("ui", "ui/resourceUri")


def _only_apps_meta(value: Any) -> Any:
    # Keep only the keys of MCP Apps in `_meta`, which lists and resources did not have before this revision.
    #
    # The keys are present only if the client offered Apps, as the extension's own example does in 2024-11-05.
    # Spec: MCP Apps 2026-01-26, "Client<>Server Capability Negotiation".
    if value.meta is None:
        return value
    kept = {key: value.meta[key] for key in _APPS_KEYS if key in value.meta}
    return value if len(kept) == len(value.meta) else structs.replace(value, meta=kept or None)


_2025_06_18 = Revision(
    version="2025-06-18",
    null_id=True,
    server_requests=("elicitation/create",),
    fields={
        ClientCapabilities: ("elicitation",),
        Implementation: ("title",),
        Annotations: ("last_modified",),
        Tool: ("title", "output_schema"),
        CallToolResult: ("structured_content",),
        Resource: ("title",),
        ResourceTemplate: ("title",),
        Prompt: ("title", "meta"),
        PromptArgument: ("title",),
        TextContent: ("meta",),
        ImageContent: ("meta",),
        AudioContent: ("meta",),
        EmbeddedResource: ("meta",),
        "CompleteParams": ("context",),
        "PromptReference": ("title",),
    },
    back={
        ResourceLink: _link_as_text,
        Tool: _only_apps_meta,
        Resource: _only_apps_meta,
        ResourceTemplate: _only_apps_meta,
        TextResourceContents: _only_apps_meta,
        BlobResourceContents: _only_apps_meta,
    },
)


def _older_form(params: ElicitFormParams) -> ElicitFormParams:
    schema = params.requested_schema
    members = {name: _older_member(name, member) for name, member in schema.get("properties", {}).items()}
    older = {key: value for key, value in schema.items() if key != "$schema"} | {"properties": members}
    return structs.replace(params, requested_schema=older)


def _older_member(name: str, member: dict[str, Any]) -> dict[str, Any]:
    if member.get("type") == "array":
        raise LocalProtocolError(
            f"form field {name!r}: this client's protocol version does not support multiple choice"
        )
    older = {
        key: value
        for key, value in member.items()
        if key != "oneOf" and (key != "default" or member.get("type") == "boolean")
    }
    choices = member.get("oneOf")
    if choices:
        older["enum"] = [choice["const"] for choice in choices]
        older["enumNames"] = [choice.get("title", choice["const"]) for choice in choices]
    return older


def _one_block(message: SamplingMessage) -> SamplingMessage:
    content = message.content
    if not isinstance(content, list):
        return message
    if len(content) != 1:
        raise LocalProtocolError("this client's protocol version allows one content block per sampling message")
    return structs.replace(message, content=content[0])


_2025_11_25 = Revision(
    version="2025-11-25",
    polling=True,
    server_notifications=("notifications/elicitation/complete",),
    fields={
        Implementation: ("icons", "description", "website_url"),
        Tool: ("icons", "execution"),
        Resource: ("icons",),
        ResourceTemplate: ("icons",),
        Prompt: ("icons",),
        ResourceLink: ("icons",),
        CallToolParams: ("task",),
        "ElicitFormParams": ("mode",),
        "CreateMessageParams": ("tools", "tool_choice"),
        "SamplingMessage": ("meta",),
        ElicitationCapability: ("form", "url"),
        SamplingCapability: ("tools", "context"),
        ClientCapabilities: ("tasks",),
        ServerCapabilities: ("tasks",),
    },
    back={"ElicitFormParams": _older_form, "SamplingMessage": _one_block},
    errors=(UrlElicitationRequired,),
)


REVISIONS = (_2025_03_26, _2025_06_18, _2025_11_25)
