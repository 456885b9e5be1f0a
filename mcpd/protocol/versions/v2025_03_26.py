"""2025-03-26: batches, audio, tool annotations, completions as a capability. Spec: spec/mcp-2025-03-26/changelog."""

from mcpd.protocol.types.base import ProgressParams, ServerCapabilities
from mcpd.protocol.types.features import AudioContent, TextContent, Tool
from mcpd.protocol.versions.table import Revision


def _audio_as_text(block: AudioContent) -> TextContent:
    return TextContent(f"[audio, {block.mime_type}, {len(block.data)} bytes]", annotations=block.annotations)


REVISION = Revision(
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
