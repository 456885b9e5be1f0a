"""2025-06-18: structured output, elicitation, resource links, titles, `_meta` everywhere, no batches.

Spec: spec/mcp-2025-06-18/changelog.
"""

from ..types.completion import CompleteParams, PromptReference
from ..types.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from ..types.lifecycle import ClientCapabilities, Implementation
from ..types.prompts import Prompt, PromptArgument
from ..types.resources import Resource, ResourceTemplate
from ..types.tools import CallToolResult, Tool
from .revision import Revision

__all__ = ["REVISION"]


def _link_as_text(block: ResourceLink) -> TextContent:
    text = f"{block.title or block.name}: {block.uri}"
    if block.description:
        text += f"\n{block.description}"
    return TextContent(text, annotations=block.annotations)


REVISION = Revision(
    version="2025-06-18",
    null_id=True,
    server_requests=("elicitation/create",),
    fields={
        ClientCapabilities: ("elicitation",),
        Implementation: ("title",),
        Annotations: ("last_modified",),
        Tool: ("title", "output_schema", "meta"),
        CallToolResult: ("structured_content",),
        Resource: ("title", "meta"),
        ResourceTemplate: ("title", "meta"),
        Prompt: ("title", "meta"),
        PromptArgument: ("title",),
        TextContent: ("meta",),
        ImageContent: ("meta",),
        AudioContent: ("meta",),
        EmbeddedResource: ("meta",),
        TextResourceContents: ("meta",),
        BlobResourceContents: ("meta",),
        CompleteParams: ("context",),
        PromptReference: ("title",),
    },
    back={ResourceLink: _link_as_text},
)
