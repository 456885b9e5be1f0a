"""Runs a scenario with the newest official Python client (`mcp` 2) over stdio or Streamable HTTP.

echo '{"target": {"command": ["mcpd", "serve", "--stdio"]}, "era": "auto", "steps": []}' | python python_client.py
"""

from __future__ import annotations

import os
import warnings
from importlib.metadata import version
from typing import Any

import anyio
import mcp_types as types
import scenario
from mcp import Client, StdioServerParameters
from mcp.client import advertise
from mcp.shared.exceptions import MCPDeprecationWarning

MODES = {"legacy": "legacy", "auto": "auto", "pin": "2026-07-28"}


class Run:
    """One client and what it heard and was asked."""

    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.heard: list[Any] = []
        self.asked: list[Any] = []

    def client(self) -> Client:
        target, answers = self.wanted["target"], self.wanted["answers"]
        server: Any = target.get("url")
        if "command" in target:
            command, *arguments = target["command"]
            server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
        return Client(
            server,
            mode=MODES[self.wanted["era"]],
            cache=None,
            read_timeout_seconds=20,
            extensions=[advertise(name, settings) for name, settings in self.wanted["extensions"].items()],
            sampling_callback=self.sample if "sampling/createMessage" in answers else None,
            elicitation_callback=self.elicit if "elicitation/create" in answers else None,
            list_roots_callback=self.roots if "roots/list" in answers else None,
            message_handler=self.hear,
            client_info=types.Implementation(name="official-python", version=version("mcp")),
        )

    async def hear(self, message: Any) -> None:
        self.heard.append({"error": str(message)} if isinstance(message, Exception) else scenario.wire(message))

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

    async def call(self, client: Client, step: dict[str, Any], progress: list[Any]) -> Any:
        """One step by the client's own typed method."""
        params = step.get("params", {})
        cursor = params.get("cursor")

        async def heard(done: float, total: float | None, message: str | None) -> None:
            progress.append([done, total, message])

        match step["method"]:
            case "tools/list":
                return await client.list_tools(cursor=cursor)
            case "tools/call":
                return await client.call_tool(
                    params["name"],
                    params.get("arguments"),
                    progress_callback=heard if step.get("progress") else None,
                    meta=params.get("_meta"),
                )
            case "resources/list":
                return await client.list_resources(cursor=cursor)
            case "resources/templates/list":
                return await client.list_resource_templates(cursor=cursor)
            case "resources/read":
                return await client.read_resource(params["uri"])
            case "resources/subscribe":
                return await client.subscribe_resource(params["uri"])
            case "resources/unsubscribe":
                return await client.unsubscribe_resource(params["uri"])
            case "prompts/list":
                return await client.list_prompts(cursor=cursor)
            case "prompts/get":
                return await client.get_prompt(params["name"], params.get("arguments"))
            case "completion/complete":
                kind = (
                    types.PromptReference if params["ref"]["type"] == "ref/prompt" else types.ResourceTemplateReference
                )
                context = params.get("context", {}).get("arguments")
                return await client.complete(kind.model_validate(params["ref"]), params["argument"], context)
            case "logging/setLevel":
                return await client.set_logging_level(params["level"])
            case "ping":
                return await client.send_ping()
            case "notifications/roots/list_changed":
                return await client.send_roots_list_changed()
            case "subscriptions/listen":
                return await self.listen(client, step)
        raise ValueError(f"this script has no step {step['method']!r}")

    async def listen(self, client: Client, step: dict[str, Any]) -> dict[str, Any]:
        """A subscription around some steps."""
        wanted = step["params"]
        async with client.listen(
            tools_list_changed=wanted.get("toolsListChanged", False),
            prompts_list_changed=wanted.get("promptsListChanged", False),
            resources_list_changed=wanted.get("resourcesListChanged", False),
            resource_subscriptions=wanted.get("resourceSubscriptions", ()),
        ) as subscription:
            steps = await self.take(client, step["steps"])
            events = [type(await anext(subscription)).__name__ for _ in range(step["events"])]
            return {"honored": scenario.wire(subscription.honored), "steps": steps, "events": events}

    async def take(self, client: Client, wanted: list[Any]) -> list[Any]:
        steps = []
        for step in wanted:
            progress: list[Any] = []
            done = {"method": step["method"], "progress": progress}
            try:
                with anyio.fail_after(step.get("timeout", 20)):
                    done["result"] = scenario.wire(await self.call(client, step, progress))
            except Exception as error:  # the report says what went wrong, whatever it was
                done["error"] = scenario.failure(error)
            steps.append(done)
        return steps

    async def go(self) -> dict[str, Any]:
        async with self.client() as client:
            steps = await self.take(client, self.wanted["steps"])
            return {
                "client": f"mcp {version('mcp')}",
                "protocol": client.protocol_version,
                "server": scenario.wire(client.server_info),
                "capabilities": scenario.wire(client.server_capabilities),
                "instructions": client.instructions,
                "steps": steps,
                "asked": self.asked,
                "heard": self.heard,
            }


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)  # older methods are asked for on purpose
    scenario.write(anyio.run(Run(scenario.read()).go))
