"""The page's API, bytes over its WebSocket: who may connect, what may be asked first, and what is answered."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest
from conftest import REPOSITORY
from support.preview_stage import api_of, previewing
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from mcpd.sources.demo import make_server


async def test_only_the_page_may_connect() -> None:
    """APP-H-20: neither programs, nor pages elsewhere, on another port of this machine or below its own name."""
    async with previewing(make_server()) as preview:
        port = preview.origins.port
        for host, origin in (
            (f"mcpd.localhost:{port}", "http://mcpd.localhost:9999"),
            (f"mcpd.localhost:{port}", "http://evil.example"),
            (f"mcpd.localhost:{port}", f"http://v-1.mcpd.localhost:{port}"),
            (f"mcpd.localhost:{port}", f"http://localhost:{port}"),  # the page's other name is another origin
            (f"mcpd.localhost:{port}", "null"),
            (f"mcpd.localhost:{port}", None),
            (f"rebound.example:{port}", f"http://rebound.example:{port}"),
            (f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"),
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with connect(f"ws://{host}/api", origin=origin, host="127.0.0.1", port=port, proxy=None):  # type: ignore[arg-type]
                    pass
            assert refused.value.response.status_code == 403, (host, origin)


async def test_without_the_token_nothing_is_answered() -> None:
    async with previewing(make_server()) as preview:
        port = preview.origins.port
        url, origin = f"ws://mcpd.localhost:{port}/api", f"http://mcpd.localhost:{port}"
        for first in (
            {},
            {"id": 1, "method": 7},
            {"id": 1, "method": "hello", "params": {"token": "wrong"}},
            {"id": 1, "method": "hello"},
            {"id": 1, "method": "tools/list", "params": {}},
            {"method": "view/message", "params": {"viewId": "view-1", "message": {}}},
        ):
            async with connect(url, origin=origin, host="127.0.0.1", port=port, proxy=None) as socket:  # type: ignore[arg-type]
                await socket.send(json.dumps({"jsonrpc": "2.0", **first}))
                with pytest.raises(ConnectionClosedError) as closed:
                    async with asyncio.timeout(20):
                        await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008
        assert not preview.session.pages


async def test_a_tool_is_called() -> None:
    async with previewing(make_server()) as preview, api_of(preview) as api:
        tools = (await api.request("tools/list"))["result"]["tools"]
        assert {"echo", "apps_diagnostics"} <= {tool["name"] for tool in tools}
        params = {"callId": "a", "name": "echo", "arguments": {"text": "hi"}, "as": "model"}
        answer = (await api.request("tools/call", **params))["result"]
        assert answer["text"] == answer["result"]["content"]
        assert answer["milliseconds"] >= 0
        assert (await api.request("tools/call", **params))["error"]["code"] == -32000  # a call is made once
        unknown = await api.request("tools/call", callId="b", name="nothing")
        assert unknown["error"]["code"] == -32602
        assert (await api.request("no/such"))["error"]["code"] == -32601


async def test_running_tasks_are_listed_and_cancelled() -> None:
    """Each change is told to the pages; the list has what runs now."""
    script = [sys.executable, str(REPOSITORY / "tests" / "support" / "task_script.py"), "modern"]
    async with previewing(script) as preview, api_of(preview) as api:
        assert (await api.request("tasks/list"))["result"] == {"tasks": []}
        answer = await api.request("tools/call", callId="a", name="render", arguments={}, **{"as": "model"})
        assert answer["result"]["result"]["content"][0]["text"] == "a forest"
        told = [one["params"] for one in api.told if one["method"] == "task/changed"]
        assert [(task["taskId"], task["status"]) for task in told] == [("busy", "working"), ("busy", "completed")]
        assert told[0]["message"] == "frame (3 of 40)"
        await preview.session.host.client.tasks.get("asks")
        (task,) = (await api.request("tasks/list"))["result"]["tasks"]
        assert (task["taskId"], task["status"]) == ("asks", "input_required")
        assert (await api.request("tasks/cancel", taskId="asks"))["result"] == {}
        assert (await api.request("tasks/cancel", taskId="none"))["error"]["code"] == -32602
