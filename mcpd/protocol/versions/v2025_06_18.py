"""2025-06-18: structured output, elicitation, resource links, titles, `_meta` everywhere, no batches.

Spec: spec/mcp-2025-06-18/changelog.
"""

from typing import Any

from msgspec import structs

from mcpd.protocol.types.base import ClientCapabilities, Implementation
from mcpd.protocol.types.features import (
    Annotations,
    AudioContent,
    BlobResourceContents,
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
from mcpd.protocol.versions.table import Revision


def _link_as_text(block: ResourceLink) -> TextContent:
    text = f"{block.title or block.name}: {block.uri}"
    if block.description:
        text += f"\n{block.description}"
    return TextContent(text, annotations=block.annotations)


_APPS_KEYS = ("ui", "ui/resourceUri")


def _only_apps_meta(value: Any) -> Any:
    """Keep only the keys of MCP Apps in `_meta`, which lists and resources did not have before this revision.

    The keys are present only if the client offered Apps, as the extension's own example does in 2024-11-05.
    Spec: MCP Apps 2026-01-26, "Client<>Server Capability Negotiation".
    """
    if value.meta is None:
        return value
    kept = {key: value.meta[key] for key in _APPS_KEYS if key in value.meta}
    return value if len(kept) == len(value.meta) else structs.replace(value, meta=kept or None)


REVISION = Revision(
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
