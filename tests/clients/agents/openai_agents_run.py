"""Runs the example with a model that calls tools and repeats what they said."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import openai_agents_agent as example  # type: ignore[import-not-found]
from agents import Model, ModelResponse, Usage, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

CALLS = json.loads(sys.argv[1])


class Fake(Model):
    async def get_response(self, *_: Any, input: Any, tools: Any, **__: Any) -> ModelResponse:
        said = [item["output"] for item in input if item.get("type") == "function_call_output"]
        output: list[Any] = []
        if said:
            text = ResponseOutputText(text=json.dumps(said), type="output_text", annotations=[])
            output.append(
                ResponseOutputMessage(id="1", content=[text], role="assistant", status="completed", type="message")
            )
        else:
            assert {tool.name for tool in tools} == {"garden_add", "garden_water_bed"}
            for number, (name, arguments) in enumerate(CALLS):
                output.append(
                    ResponseFunctionToolCall(
                        name=f"garden_{name}",
                        arguments=json.dumps(arguments),
                        call_id=str(number),
                        type="function_call",
                    )
                )
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


set_tracing_disabled(True)
servers = {"garden": sys.argv[2:], "missing": ["/nowhere/at/all"]}
print(asyncio.run(example.ask(Fake(), "What now?", servers)))
