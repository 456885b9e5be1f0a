"""What may be said of a question to the client's model, for type checkers; nothing here is used at run time."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from mcpd.protocol.types.interaction import ModelPreferences, ToolChoice
from mcpd.protocol.types.tools import Tool


class SamplingOptions(TypedDict, total=False):
    """The members of `types.sampling.CreateMessageParams` beside the messages and how long the answer may be."""

    model_preferences: ModelPreferences | None
    system_prompt: str | None
    include_context: Literal["none", "thisServer", "allServers"] | None
    temperature: float | None
    stop_sequences: list[str] | None
    metadata: dict[str, Any] | None
    tools: list[Tool] | None
    tool_choice: ToolChoice | None
