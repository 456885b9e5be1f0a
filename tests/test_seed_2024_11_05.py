"""Every message of the seed list "Model Context Protocol Testcases", on the wire at 2024-11-05, in the list's order.

The list was collected from the pages of spec 2024-11-05 basic and server. Where this server says more than
the list's example (a closed input schema, further capabilities) the test says so.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
from msgspec import Meta
from support.wires import Wire, memory_wire, stdio_wire

from mcpd import Context, Server
from mcpd.server.registry.content import embedded, image

VERSION = "2024-11-05"
MAIN_RS = 'fn main() {\n    println!("Hello world!");\n}'
WEATHER = "Current weather in New York:\nTemperature: 72°F\nConditions: Partly cloudy"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def make_server() -> Server:
    server = Server("ExampleServer", version="1.0.0", page_size=1)

    @server.tool
    async def get_weather(location: Annotated[str, Meta(description="City name or zip code")]) -> str:
        """Get current weather information for a location"""
        assert location == "New York"
        return WEATHER

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(50, 100)
        await asyncio.Event().wait()
        return "never"

    @server.tool
    async def contents(kind: str) -> Any:
        if kind == "image":
            return image(PNG, "image/png")
        if kind == "resource":
            return embedded("resource://example", "Resource content", "text/plain")
        return "Tool result text"

    @server.resource(
        "file:///project/src/main.rs",
        name="main.rs",
        description="Primary application entry point",
        mime_type="text/x-rust",
    )
    async def main_rs() -> str:
        return MAIN_RS

    server.add_text("file:///project/README.md", "# Project", name="README.md")

    @server.resource(
        "file:///{path}",
        name="Project Files",
        description="Access files in the project directory",
        mime_type="application/octet-stream",
    )
    async def project_files(path: str) -> bytes:
        raise FileNotFoundError(path)

    @server.prompt
    def greet(name: str) -> str:
        return f"Say hello to {name}"

    return server


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": VERSION,
        "capabilities": {"roots": {"listChanged": True}, "sampling": {}},
        "clientInfo": {"name": "ExampleClient", "version": "1.0.0"},
    },
}


@asynccontextmanager
async def opened(server: Server | None = None) -> AsyncIterator[Wire]:
    async with stdio_wire(server or make_server()) as wire:
        await exchange(wire, INITIALIZE)
        wire.version = VERSION
        wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield wire


async def exchange(wire: Wire, request: dict[str, Any]) -> Any:
    wire.send(request)
    return await wire.answer(request["id"])


# ------------------------------------------------------------------------------- message format


@pytest.mark.parametrize("request_id", ["string", "", 1, 0, -1])
async def test_request_and_response(request_id: Any) -> None:
    async with opened() as wire:
        answer = await exchange(
            wire, {"jsonrpc": "2.0", "id": request_id, "method": "tools/list", "params": {"key": "value"}}
        )
        assert answer.keys() == {"jsonrpc", "id", "result"}
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", request_id)
        assert isinstance(answer["result"], dict)


async def test_an_unknown_method_is_answered_with_an_error() -> None:
    async with opened() as wire:
        answer = await exchange(wire, {"jsonrpc": "2.0", "id": 1, "method": "string", "params": {"key": "value"}})
        assert answer.keys() == {"jsonrpc", "id", "error"}
        assert answer["error"]["code"] == -32601


async def test_notification() -> None:
    async with opened() as wire:
        wire.send({"jsonrpc": "2.0", "method": "string", "params": {"key": "value"}})
        await wire.quiet()


# ------------------------------------------------------------------------------------ lifecycle


async def test_initialization() -> None:
    """`completions` was no capability yet; a server that offers prompts shows the four of the list."""
    async with memory_wire(make_server()) as wire:
        assert await exchange(wire, INITIALIZE) == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {
                "protocolVersion": VERSION,
                "capabilities": {
                    "logging": {},
                    "prompts": {"listChanged": True},
                    "resources": {"subscribe": True, "listChanged": True},
                    "tools": {"listChanged": True},
                },
                "serverInfo": {"name": "ExampleServer", "version": "1.0.0"},
            },
        }


async def test_initialization_notification() -> None:
    async with memory_wire(make_server()) as wire:
        await exchange(wire, INITIALIZE)
        wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await wire.quiet()
        assert wire.connection.session.is_initialized


async def test_an_unsupported_version_is_answered_with_one_that_is_supported() -> None:
    """The list shows the error -32602 for this. It is for a server that shares no version with the client, while
    the rule is: "Otherwise, the server MUST respond with another protocol version it supports" (lifecycle page)."""
    async with memory_wire(make_server()) as wire:
        request = {**INITIALIZE, "params": {**INITIALIZE["params"], "protocolVersion": "1.0.0"}}  # type: ignore[dict-item]
        answer = await exchange(wire, request)
        assert answer["result"]["protocolVersion"] == "2025-11-25"


# ----------------------------------------------------------------------- ping, cancel, progress


async def test_ping() -> None:
    async with opened() as wire:
        answer = await exchange(wire, {"jsonrpc": "2.0", "id": "123", "method": "ping"})
        assert answer == {"jsonrpc": "2.0", "id": "123", "result": {}}


def a_long_call(request_id: Any) -> dict[str, Any]:
    params = {"name": "wait", "_meta": {"progressToken": "abc123"}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


async def test_cancellation() -> None:
    async with opened() as wire:
        wire.send(a_long_call("123"))
        assert (await wire.receive())["method"] == "notifications/progress"
        wire.send(
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": "123", "reason": "User requested cancellation"},
            }
        )
        await wire.quiet()


async def test_progress() -> None:
    """The list's request is `some_method`; a token alone makes no method."""
    async with opened() as wire:
        request = {"jsonrpc": "2.0", "id": 1, "method": "some_method", "params": {"_meta": {"progressToken": "abc123"}}}
        assert (await exchange(wire, request))["error"]["code"] == -32601
        wire.send(a_long_call(2))
        assert await wire.receive() == {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": "abc123", "progress": 50, "total": 100},
        }
        wire.cancel(2)


# ---------------------------------------------------------------------------------------- tools


async def test_tool_list() -> None:
    """Ours adds that no other argument is taken."""
    async with opened() as wire:
        answer = await exchange(wire, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
        cursor = answer["result"].pop("nextCursor")
        assert answer == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {
                "tools": [
                    {
                        "name": "get_weather",
                        "description": "Get current weather information for a location",
                        "inputSchema": {
                            "type": "object",
                            "properties": {"location": {"type": "string", "description": "City name or zip code"}},
                            "required": ["location"],
                            "additionalProperties": False,
                        },
                    }
                ]
            },
        }
        answer = await exchange(wire, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": cursor}})
        assert [tool["name"] for tool in answer["result"]["tools"]] == ["wait"]


async def test_a_cursor_of_nobody() -> None:
    async with opened() as wire:
        for method in ("tools/list", "resources/list", "resources/templates/list", "prompts/list"):
            params = {"cursor": "optional-cursor-value"}
            answer = await exchange(wire, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            assert answer["error"]["code"] == -32602


async def test_tool_call() -> None:
    """`isError` is false when it is absent."""
    async with opened() as wire:
        answer = await exchange(
            wire,
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "tools/call",
                "params": {"name": "get_weather", "arguments": {"location": "New York"}},
            },
        )
        assert answer["result"].pop("isError", False) is False
        assert answer == {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": WEATHER}]}}


async def test_tool_list_changed() -> None:
    server = make_server()
    async with opened(server) as wire:
        await wire.quiet()
        server.remove_tool("contents")
        assert await wire.receive() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await wire.quiet()


# ------------------------------------------------------------------------------------ resources


async def test_resource_list() -> None:
    async with opened() as wire:
        answer = await exchange(wire, {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {}})
        cursor = answer["result"].pop("nextCursor")
        assert answer == {
            "jsonrpc": "2.0",
            "id": 1,
            "result": {
                "resources": [
                    {
                        "uri": "file:///project/src/main.rs",
                        "name": "main.rs",
                        "description": "Primary application entry point",
                        "mimeType": "text/x-rust",
                    }
                ]
            },
        }
        request = {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {"cursor": cursor}}
        last = await exchange(wire, request)
        assert [resource["name"] for resource in last["result"]["resources"]] == ["README.md"]
        assert "nextCursor" not in last["result"]


async def test_resource_read() -> None:
    async with opened() as wire:
        answer = await exchange(
            wire,
            {
                "jsonrpc": "2.0",
                "id": 2,
                "method": "resources/read",
                "params": {"uri": "file:///project/src/main.rs"},
            },
        )
        assert answer == {
            "jsonrpc": "2.0",
            "id": 2,
            "result": {
                "contents": [{"uri": "file:///project/src/main.rs", "mimeType": "text/x-rust", "text": MAIN_RS}]
            },
        }


async def test_resource_template_list() -> None:
    async with opened() as wire:
        answer = await exchange(wire, {"jsonrpc": "2.0", "id": 3, "method": "resources/templates/list"})
        assert answer == {
            "jsonrpc": "2.0",
            "id": 3,
            "result": {
                "resourceTemplates": [
                    {
                        "uriTemplate": "file:///{path}",
                        "name": "Project Files",
                        "description": "Access files in the project directory",
                        "mimeType": "application/octet-stream",
                    }
                ]
            },
        }


async def test_resource_list_changed() -> None:
    server = make_server()
    async with opened(server) as wire:
        await wire.quiet()
        server.add_text("file:///project/LICENSE", "text", name="LICENSE")
        assert await wire.receive() == {"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}
        await wire.quiet()


async def test_resource_subscription() -> None:
    """The list calls it "Resource Description Request"; then "Resource Updated Notification"."""
    server, uri = make_server(), "file:///project/src/main.rs"
    async with opened(server) as wire:
        server.resource_updated(uri)
        await wire.quiet()
        request = {"jsonrpc": "2.0", "id": 4, "method": "resources/subscribe", "params": {"uri": uri}}
        assert await exchange(wire, request) == {"jsonrpc": "2.0", "id": 4, "result": {}}
        server.resource_updated(uri)
        server.resource_updated("file:///project/README.md")
        assert await wire.receive() == {
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"uri": uri},
        }
        await wire.quiet()
        request = {"jsonrpc": "2.0", "id": 5, "method": "resources/unsubscribe", "params": {"uri": uri}}
        assert await exchange(wire, request) == {"jsonrpc": "2.0", "id": 5, "result": {}}
        server.resource_updated(uri)
        await wire.quiet()


async def test_resource_not_found() -> None:
    async with opened() as wire:
        request = {
            "jsonrpc": "2.0",
            "id": 5,
            "method": "resources/read",
            "params": {"uri": "file:///nonexistent.txt"},
        }
        assert await exchange(wire, request) == {
            "jsonrpc": "2.0",
            "id": 5,
            "error": {
                "code": -32002,
                "message": "Resource not found: file:///nonexistent.txt",
                "data": {"uri": "file:///nonexistent.txt"},
            },
        }


# ---------------------------------------------------------------------------------- tool result


@pytest.mark.parametrize(
    ("kind", "block"),
    [
        ("text", {"type": "text", "text": "Tool result text"}),
        ("image", {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}),
        (
            "resource",
            {
                "type": "resource",
                "resource": {"uri": "resource://example", "mimeType": "text/plain", "text": "Resource content"},
            },
        ),
    ],
)
async def test_content(kind: str, block: dict[str, Any]) -> None:
    async with opened() as wire:
        assert (await wire.call("contents", kind=kind))["content"] == [block]
