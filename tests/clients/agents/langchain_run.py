"""Runs the example with a model that calls tools and repeats what they said."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import langchain_agent as example  # type: ignore[import-not-found]
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

CALLS = json.loads(sys.argv[1])


class Fake(BaseChatModel):
    _llm_type = "fake"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        assert {convert_to_openai_tool(tool)["function"]["name"] for tool in tools} == {"add", "water_bed"}
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        said = [str(message.content) for message in messages if isinstance(message, ToolMessage)]
        answer = AIMessage(json.dumps(said))
        if not said:
            calls = [{"name": name, "args": args, "id": str(n)} for n, (name, args) in enumerate(CALLS)]
            answer = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])


print(asyncio.run(example.ask(Fake(), "What now?", sys.argv[2:])))
