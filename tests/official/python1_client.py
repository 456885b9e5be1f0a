"""Runs a scenario with the official Python client of the 1.x line, the one with a WebSocket client; HTTP and stdio too.

    echo '{"target": {"url": "ws://127.0.0.1:8080/"}, "steps": []}' | python python1_client.py

Knows one era only, the legacy one, and no extensions.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio
import scenario
from mcp import ClientSession, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client
from mcp.client.websocket import websocket_client


@asynccontextmanager
async def http_streams(url: str) -> AsyncIterator[Any]:
    """The two streams alone: this transport gives a third thing with them."""
    async with streamable_http_client(url) as (read, write, *_):
        yield read, write


class Run:
    """One session and what it heard and was asked."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.heard: list[Any] = []
        self.asked: list[Any] = []

    def streams(self) -> AbstractAsyncContextManager[Any]:
        target = self.wanted["target"]
        if "url" in target:
            return (websocket_client if target["url"].startswith("ws") else http_streams)(target["url"])
        command, *arguments = target["command"]
        return stdio_client(StdioServerParameters(command=command, args=arguments, env=dict(os.environ)))

    def session(self, read: Any, write: Any) -> ClientSession:
        answers = self.wanted["answers"]
        return ClientSession(
            read,
            write,
            sampling_callback=self.sample if "sampling/createMessage" in answers else None,
            elicitation_callback=self.elicit if "elicitation/create" in answers else None,
            list_roots_callback=self.roots if "roots/list" in answers else None,
            message_handler=self.hear,
            client_info=types.Implementation(name="official-python-1", version=version("mcp")),
        )

    async def hear(self, message: Any) -> None:
        if isinstance(message, Exception):
            self.heard.append({"error": str(message)})
        elif isinstance(message, types.ServerNotification):
            self.heard.append(scenario.wire(message))

    def answer(self, method: str, params: Any) -> Any:
        self.asked.append({"method": method, "params": scenario.wire(params)})
        answer = self.wanted["answers"][method]
        return answer.pop(0) if isinstance(answer, list) else answer

    async def sample(self, _context: Any, params: Any) -> Any:
        return types.CreateMessageResult.model_validate(self.answer("sampling/createMessage", params))

    async def elicit(self, _context: Any, params: Any) -> Any:
        return types.ElicitResult.model_validate(self.answer("elicitation/create", params))

    async def roots(self, _context: Any) -> Any:
        return types.ListRootsResult.model_validate(self.answer("roots/list", None))

    async def call(self, session: ClientSession, step: dict[str, Any], progress: list[Any]) -> Any:
        """One step by the client's own typed method."""
        params = step.get("params", {})
        page = types.PaginatedRequestParams(cursor=params["cursor"]) if "cursor" in params else None

        async def heard(done: float, total: float | None, message: str | None) -> None:
            progress.append([done, total, message])

        match step["method"]:
            case "tools/list":
                return await session.list_tools(params=page)
            case "tools/call" if "task" in step:
                return await self.as_task(session, params, step["task"], step.get("cancel"))
            case "tools/call":
                return await session.call_tool(
                    params["name"],
                    params.get("arguments"),
                    progress_callback=heard if step.get("progress") else None,
                )
            case "resources/list":
                return await session.list_resources(params=page)
            case "resources/templates/list":
                return await session.list_resource_templates(params=page)
            case "resources/read":
                return await session.read_resource(params["uri"])
            case "resources/subscribe":
                return await session.subscribe_resource(params["uri"])
            case "resources/unsubscribe":
                return await session.unsubscribe_resource(params["uri"])
            case "prompts/list":
                return await session.list_prompts(params=page)
            case "prompts/get":
                return await session.get_prompt(params["name"], params.get("arguments"))
            case "completion/complete":
                kind = (
                    types.PromptReference if params["ref"]["type"] == "ref/prompt" else types.ResourceTemplateReference
                )
                context = params.get("context", {}).get("arguments")
                return await session.complete(kind.model_validate(params["ref"]), params["argument"], context)
            case "logging/setLevel":
                return await session.set_logging_level(params["level"])
            case "ping":
                return await session.send_ping()
        raise ValueError(f"this script has no step {step['method']!r}")

    async def as_task(self, session: ClientSession, params: dict[str, Any], task: dict[str, Any], cancel: Any) -> Any:
        """A call as a task, by the methods of its own that the client has for that."""
        tasks = session.experimental
        created = (await tasks.call_tool_as_task(params["name"], params.get("arguments"), ttl=task["ttl"])).task
        told: dict[str, Any] = {"statuses": [created.status], "ttl": created.ttl}
        if cancel:
            told["statuses"].append((await tasks.cancel_task(created.taskId)).status)
            return told
        async for status in tasks.poll_task(created.taskId):
            told["statuses"].append(status.status)
            if status.status == "input_required":
                break  # the question comes while the result is awaited
        told["result"] = scenario.wire(await tasks.get_task_result(created.taskId, types.CallToolResult))
        told["statuses"].append((await tasks.get_task(created.taskId)).status)
        listed = (await tasks.list_tasks()).tasks if task.get("listed") else [created]
        told["listed"] = created.taskId in [each.taskId for each in listed]
        return told

    async def go(self) -> dict[str, Any]:
        steps = []
        async with self.streams() as (read, write), self.session(read, write) as session:
            hello = await session.initialize()
            for step in self.wanted["steps"]:
                progress: list[Any] = []
                done = {"method": step["method"], "progress": progress}
                try:
                    with anyio.fail_after(step.get("timeout", 20)):
                        done["result"] = scenario.wire(await self.call(session, step, progress))
                except Exception as error:  # the report says what went wrong, whatever it was
                    done["error"] = scenario.failure(error)
                steps.append(done)
            return {
                "client": f"mcp {version('mcp')}",
                "protocol": hello.protocolVersion,
                "server": scenario.wire(hello.serverInfo),
                "capabilities": scenario.wire(hello.capabilities),
                "instructions": hello.instructions,
                "steps": steps,
                "asked": self.asked,
                "heard": self.heard,
            }


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # the WebSocket client says that it will go
    scenario.write(anyio.run(Run(scenario.read()).go))
