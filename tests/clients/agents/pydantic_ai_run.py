"""Runs the example with a model that calls tools and repeats what they said."""

from __future__ import annotations

import asyncio
import json
import sys

import pydantic_ai_agent as example  # type: ignore[import-not-found]
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

CALLS = json.loads(sys.argv[1])


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    said = [
        str(part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]
    if said:
        return ModelResponse(parts=[TextPart(json.dumps(said))])
    assert {tool.name for tool in info.function_tools} == {"add", "water_bed"}
    return ModelResponse(parts=[ToolCallPart(name, arguments) for name, arguments in CALLS])


print(asyncio.run(example.ask(FunctionModel(model), "What now?", sys.argv[2:])))
