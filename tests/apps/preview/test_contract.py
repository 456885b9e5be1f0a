"""The page's API request by request, over its WebSocket: calls, questions, Views that a script plays, records."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from support.preview_stage import Api, api_of, place_of, previewing
from support.scripted_server import DISCOVERED, Script

from mcpd import Context, Server, ToolError
from mcpd.apps.host.view.messages import TOOL_INPUT, TOOL_INPUT_PARTIAL, TOOL_RESULT
from mcpd.apps.preview.messages import Quirks
from mcpd.apps.preview.views import rewriter
from mcpd.client.targets.named import CommandTarget
from mcpd.transports.memory import pair

HTML = "<!doctype html><meta charset=utf-8><title>A bed</title>"


def make_server() -> Server:
    server = Server("garden", version="1.2", instructions="Water it.")
    server.app("bed", HTML, permissions=["camera"])

    @server.tool(ui="ui://garden/bed")
    async def show_bed(bed: str = "south") -> dict[str, str]:
        """Show a bed."""
        return {"bed": bed}

    @server.tool(visibility=["app"])
    async def water() -> str:
        return "wet"

    @server.tool(visibility=["model"])
    async def dig() -> str:
        raise ToolError("too dry")

    @server.tool
    async def slowly(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await asyncio.sleep(600)
        return "never"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which bed?", {"type": "object", "properties": {"bed": {"type": "string"}}})
        return f"{answer.action} {answer.content}"

    @server.resource("bed://south")
    async def south() -> str:
        return "beans"

    @server.prompt
    async def plan(bed: str) -> str:
        return f"Plan {bed}"

    return server


async def live(api: Api, call_id: str) -> tuple[Any, list[Any]]:
    """Open a View and play its proxy and itself until it is live: its ViewInfo, and what it was sent."""
    info = (await api.request("view/open", callId=call_id))["result"]
    view = info["viewId"]
    sent: list[Any] = []
    await say(api, view, method="ui/notifications/sandbox-proxy-ready", params={})
    sent.append(await heard(api, view))
    params = {"appInfo": {"name": "a", "version": "1"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"}
    await say(api, view, id=0, method="ui/initialize", params=params)
    sent.append(await heard(api, view))
    await say(api, view, method="ui/notifications/initialized")
    return info, sent


async def say(api: Api, view_id: str, **message: Any) -> None:
    """The View, or its proxy, says something to the page, which passes it on."""
    told = {"viewId": view_id, "message": {"jsonrpc": "2.0", **message}}
    await api.send(method="view/message", params=told)


async def heard(api: Api, view_id: str) -> Any:
    """The next message for a View."""
    while True:
        params = (await api.until("view/message"))["params"]
        if params["viewId"] == view_id:
            return params["message"]


async def test_what_a_page_learns_at_first() -> None:
    async with previewing(make_server(), permissions=("camera",)) as preview, api_of(preview) as api:
        hello = api.hello
        assert hello["server"] == {
            "name": "garden",
            "version": "1.2",
            "protocolVersion": "2026-07-28",
            "era": "modern",
            "instructions": "Water it.",
            "capabilities": hello["server"]["capabilities"],
            "extensions": {"io.modelcontextprotocol/ui": hello["server"]["extensions"]["io.modelcontextprotocol/ui"]},
            "state": "connected",
        }
        assert hello["sandbox"]["origin"] == f"http://*.mcpd.localhost:{preview.origins.sandbox_port}"
        assert hello["profile"] == "strict"
        assert hello["profiles"] == ["strict", "compat", "opaque"]
        assert hello["context"]["availableDisplayModes"] == ["inline", "fullscreen", "pip"]
        tools = {tool["name"]: tool for tool in (await api.request("tools/list"))["result"]["tools"]}
        assert tools["show_bed"]["app"].startswith("ui://garden/bed")
        assert tools["show_bed"]["visibility"] == ["model", "app"]
        assert tools["water"]["visibility"] == ["app"]
        assert tools["dig"]["app"] is None
        assert tools["show_bed"]["problems"] == []

        # What is the server's goes there and back as it is.
        assert (await api.request("resources/read", uri="bed://south"))["result"]["contents"][0]["text"] == "beans"
        assert (await api.request("prompts/get", name="plan", arguments={"bed": "a"}))["result"]["messages"]
        assert [one["uri"] for one in (await api.request("resources/list"))["result"]["resources"]] != []
        assert (await api.request("prompts/list"))["result"]["prompts"][0]["name"] == "plan"
        assert (await api.request("resources/templates/list"))["result"] == {"resourceTemplates": []}
        assert (await api.request("resources/read", uri="bed://none"))["error"]["code"] == -32602

        server = (await api.request("server/connect", version="2025-06-18"))["result"]
        assert (server["protocolVersion"], server["era"]) == ("2025-06-18", "legacy")
        assert (await api.until("server/status"))["params"]["state"] == "connected"
        assert (await api.request("server/connect", version="1999-01-01"))["error"]["code"] == -32602


async def test_calls_by_the_model_and_by_apps() -> None:
    """APP-H-02, APP-H-03: who may call what, with an error of the tool and one of the call."""
    async with previewing(make_server()) as preview, api_of(preview) as api:
        call = api.request
        assert (await call("tools/call", callId="1", name="water", **{"as": "model"}))["error"]["code"] == -32602
        assert (await call("tools/call", callId="2", name="water", **{"as": "app"}))["result"]["text"][0][
            "text"
        ] == "wet"
        assert (await call("tools/call", callId="3", name="dig", **{"as": "app"}))["error"]["code"] == -32602
        failed = (await call("tools/call", callId="4", name="dig", **{"as": "model"}))["result"]
        assert failed["result"]["isError"] is True
        assert failed["view"] is None
        assert (await call("view/open", callId="4"))["error"]["code"] == -32600

        # One that is given up: progress first, then the error.
        await api.send(id="slow", method="tools/call", params={"callId": "5", "name": "slowly"})
        progress = (await api.until("call/progress"))["params"]
        assert progress == {"callId": "5", "progress": 1, "total": 2, "message": "half"}
        await api.request("call/cancel", callId="5", reason="enough")
        assert (await api.answer("slow"))["error"]["code"] == -32000


async def test_the_servers_questions() -> None:
    """Both pages are asked, the first answer counts, and the other hears that it is over."""
    async with previewing(make_server()) as preview, api_of(preview) as api, api_of(preview) as other:
        await api.send(id="call", method="tools/call", params={"callId": "1", "name": "ask"})
        asked, there = await api.until("ask"), await other.until("ask")
        assert asked["params"]["kind"] == "elicitForm"
        assert asked["params"]["schema"]["properties"] == {"bed": {"type": "string"}}
        assert there["params"]["askId"] == asked["params"]["askId"]
        await api.send(id=asked["id"], result={"action": "accept", "content": {"bed": "north"}})
        assert (await other.until("ask/cancelled"))["params"] == {"askId": asked["params"]["askId"]}
        assert (await api.answer("call"))["result"]["text"][0]["text"] == "accept {'bed': 'north'}"


async def test_input_that_is_written_bit_by_bit() -> None:
    """APP-H-09, APP-H-10: partial input as the text grows, then the whole, then the result."""
    async with previewing(make_server()) as preview, api_of(preview) as api:
        await api.request("call/begin", callId="1", name="show_bed")
        info, sent = await live(api, "1")
        assert sent[0]["method"] == "ui/notifications/sandbox-resource-ready"
        assert sent[0]["params"]["html"] == HTML
        closed = await api.request("call/partial", callId="1", text='{"bed": "no')
        assert closed["result"] == {"closed": {"bed": "no"}}
        assert (await heard(api, info["viewId"]))["params"] == {"arguments": {"bed": "no"}}
        await api.request("call/partial", callId="1", text='{"bed": "north"')
        assert (await heard(api, info["viewId"]))["method"] == TOOL_INPUT_PARTIAL
        assert (await api.request("call/partial", callId="1", text="{}"))["error"]["code"] == -32602
        await api.request("tools/call", callId="1", name="show_bed", arguments={"bed": "north"})
        assert (await heard(api, info["viewId"]))["method"] == TOOL_INPUT
        assert (await heard(api, info["viewId"]))["params"]["structuredContent"] == {"bed": "north"}


async def test_a_view_and_what_it_asks() -> None:
    """APP-H-17 to -22, -25: what a View wants is asked on its page, and the answer goes back to it."""
    async with previewing(make_server()) as preview, api_of(preview) as api:
        await api.request("tools/call", callId="1", name="show_bed")
        info, _ = await live(api, "1")
        view = info["viewId"]
        await heard(api, view)  # input
        await heard(api, view)  # result
        assert info["permissions"] == {"asked": ["camera"], "granted": []}
        assert len(info["sha256"]) == 64

        await say(api, view, id=1, method="ui/open-link", params={"url": "https://example.com/"})
        asked = await api.until("ask")
        assert (asked["params"]["kind"], asked["params"]["url"]) == ("openLink", "https://example.com/")
        await api.send(id=asked["id"], result={"allow": False})
        assert (await heard(api, view))["error"]["code"] == -32000
        await say(api, view, id=2, method="ui/open-link", params={"url": "javascript:alert(1)"})
        assert (await heard(api, view))["error"]["code"] == -32000
        await say(api, view, id=3, method="tools/call", params={"name": "dig", "arguments": {}})
        assert (await heard(api, view))["error"]["code"] == -32602
        await say(api, view, id=4, method="tools/call", params={"name": "water", "arguments": {}})
        assert (await heard(api, view))["result"]["content"][0]["text"] == "wet"

        content = [{"type": "text", "text": "hello"}]
        await say(api, view, id=5, method="ui/message", params={"role": "user", "content": content})
        await api.send(id=(await api.until("ask"))["id"], result={"allow": True})
        assert (await heard(api, view))["result"] == {}
        await say(api, view, id=6, method="ui/update-model-context", params={"content": content})
        assert (await heard(api, view))["result"] == {}
        told = (await api.request("conversation/get"))["result"]
        assert [(one["viewId"], one["role"], one["content"]) for one in told["messages"]] == [(view, "user", content)]
        assert [(one["viewId"], one["content"]) for one in told["context"]] == [(view, content)]

        await api.request("view/context", context={"theme": "dark"})
        assert (await heard(api, view))["params"] == {"theme": "dark"}
        await api.send(id="ping", method="view/ping", params={"viewId": view})
        ping = await heard(api, view)
        await say(api, view, id=ping["id"], result={})
        await api.send(id="close", method="view/close", params={"viewId": view})
        teardown = await heard(api, view)
        assert teardown["method"] == "ui/resource-teardown"
        await say(api, view, id=teardown["id"], result={})
        assert (await api.request("view/tools", viewId=view))["error"]["code"] == -32602
        assert (await api.answer("close"))["result"] == {"clean": True}
        assert (await api.answer("ping"))["result"]["milliseconds"] >= 0
        kinds = [one["params"]["event"]["kind"] for one in api.told if one.get("method") == "view/event"]
        assert kinds[:2] == ["connected", "live"]
        assert kinds[-1] == "closed"


QUIRKS = [
    ({"dropMeta": True}, {TOOL_INPUT: {"arguments": {}}}, {"structuredContent"}, {"_meta"}),
    ({"dropStructuredContent": True}, {TOOL_INPUT: {"arguments": {}}}, {"content"}, {"structuredContent"}),
    ({"noToolInput": True}, {}, {"structuredContent"}, set()),
    ({"errorResult": True}, {TOOL_INPUT: {"arguments": {}}}, {"isError"}, {"structuredContent"}),
]


async def test_what_bad_hosts_do() -> None:
    result = Raw(b'{"content":[],"structuredContent":{"a":1},"_meta":{"b":2}}')
    for method in (TOOL_RESULT, "tools/call"):  # what the View calls itself comes back so too
        drops = rewriter(Quirks(drop_meta=True, drop_structured_content=True))
        assert drops is not None
        assert bytes(drops(method, result) or b"") == b'{"content":[]}'
    assert rewriter(Quirks(opaque_origin=True)) is None

    async with previewing(make_server()) as preview, api_of(preview) as api:
        for number, (quirks, first, has, lacks) in enumerate(QUIRKS):
            assert "result" in await api.request("quirks/set", quirks=quirks)
            await api.request("tools/call", callId=f"q{number}", name="show_bed")
            info, _ = await live(api, f"q{number}")
            told = {}
            while TOOL_RESULT not in told:
                message = await heard(api, info["viewId"])
                told[message["method"]] = message["params"]
            assert {name: told[name] for name in told if name != TOOL_RESULT} == first, quirks
            assert not lacks & set(told[TOOL_RESULT]), quirks
            assert has <= set(told[TOOL_RESULT]), quirks

        await api.request("quirks/set", quirks={"inputBeforeInitialized": True, "opaqueOrigin": True})
        await api.request("tools/call", callId="early", name="show_bed")
        info = (await api.request("view/open", callId="early"))["result"]
        assert (info["profile"], info["sandbox"]) == ("opaque", "allow-scripts allow-forms")
        await say(api, info["viewId"], method="ui/notifications/sandbox-proxy-ready", params={})
        await heard(api, info["viewId"])
        params = {"appInfo": {"name": "a", "version": "1"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"}
        await say(api, info["viewId"], id=0, method="ui/initialize", params=params)
        order = [(await heard(api, info["viewId"])).get("method", "answer") for _ in range(3)]
        assert order == ["answer", TOOL_INPUT, TOOL_RESULT]


@pytest.mark.medium
async def test_a_view_is_loaded_again_with_the_same_call() -> None:
    """APP-H-26: read and hashed anew; what the user granted holds from then on."""
    async with previewing(make_server()) as preview, api_of(preview) as api:
        await api.request("tools/call", callId="1", name="show_bed", arguments={"bed": "west"})
        info, _ = await live(api, "1")
        assert (await api.request("view/permission", viewId=info["viewId"], name="motor"))["error"]["code"] == -32602
        await api.request("view/permission", viewId=info["viewId"], name="camera")
        again = (await api.request("view/reload", viewId=info["viewId"]))["result"]
        assert again["viewId"] != info["viewId"]
        assert again["callId"] == "1"
        assert again["allow"] == "camera"
        assert again["permissions"]["granted"] == ["camera"]


async def test_a_violation_names_what_to_declare() -> None:
    """APP-H-06, APP-X-04: a report of the browser becomes the missing domain and its field."""
    async with previewing(make_server()) as preview, api_of(preview) as api:
        await api.request("tools/call", callId="1", name="show_bed")
        info = (await api.request("view/open", callId="1"))["result"]
        place, port = place_of(preview, info["viewId"]), preview.origins.sandbox_port
        guest, proxy = (place.guest_host, place.guest_report), (place.proxy_host, place.proxy_report)
        for (host, path), report, expected in (
            (guest, ("connect-src", "https://a.example:8443/x?y"), ("https://a.example:8443", "connectDomains")),
            (guest, ("script-src-elem", "https://b.example/a.js"), ("https://b.example", "resourceDomains")),
            (guest, ("script-src", "eval"), (None, None)),
            (guest, ("form-action", "https://a.example/"), ("https://a.example", None)),
            (proxy, ("frame-src", "https://b.example/"), ("https://b.example", None)),
        ):
            said = {"effective-directive": report[0], "blocked-uri": report[1], "line-number": 3}
            body = json.dumps({"csp-report": said})
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 204")
            writer.close()
            told = (await api.until("view/event"))["params"]
            assert told["viewId"] == info["viewId"]
            event = told["event"]
            assert (event["kind"], event["directive"], event["blockedUri"]) == ("violation", *report)
            assert (event["domain"], event["field"]) == expected
            assert event["advice"]
            assert event["harmless"] is (report[1] == "eval")


async def test_tools_are_listed_once_and_unreadable_ones_are_shown() -> None:
    """As the server wrote them; what it lists and no host can read is among them, with why."""
    server = make_server()
    async with previewing(server) as preview, api_of(preview) as api:
        for _ in range(2):
            assert len((await api.request("tools/list"))["result"]["tools"]) == 5
        asked = (await api.request("trace/get", filter={"methods": ["tools/list"], "kinds": ["request"]}))["result"]
        assert asked["total"] == 1
    listed = [{"name": "good", "inputSchema": {"type": "object"}, "other": 1}, {"name": "bad", "inputSchema": 3}, 7]
    near, far = pair()
    Script(far, {"server/discover": DISCOVERED, "tools/list": {"resultType": "complete", "tools": listed}})
    async with previewing(near) as preview, api_of(preview) as api:
        good, bad, none = (await api.request("tools/list"))["result"]["tools"]
        assert (good["other"], good["problems"]) == (1, [])
        assert (bad["name"], bad["inputSchema"], bad["visibility"]) == ("bad", 3, [])
        assert "no host can read this" in bad["problems"][0]
        assert none["name"] == "(without a name)"


async def test_that_a_page_was_visited_is_told() -> None:
    """S25-093: the question has the id, and the server's word that it is over comes to the page."""
    server = make_server()

    @server.tool
    async def sign_in(ctx: Context) -> str:
        answer = await ctx.elicit_url("Sign in.", "https://id.example/x", elicitation_id="e1")
        await ctx.elicitation_complete("e1")
        return answer.action

    async with previewing(server, version="2025-11-25") as preview, api_of(preview) as api:
        await api.send(id="call", method="tools/call", params={"callId": "1", "name": "sign_in", "arguments": {}})
        asked = await api.until("ask")
        about = {"kind": "elicitUrl", "message": "Sign in.", "url": "https://id.example/x", "elicitationId": "e1"}
        assert asked["params"].items() >= about.items()
        await api.send(id=asked["id"], result={"action": "accept"})
        assert (await api.until("elicitation/complete"))["params"] == {"elicitationId": "e1"}
        assert (await api.answer("call"))["result"]["result"]["content"][0]["text"] == "accept"


@pytest.mark.parametrize("kind", ["call", "view"])
async def test_every_message_is_in_the_trace(kind: str) -> None:
    async with previewing(make_server()) as preview, api_of(preview) as api:
        await api.request("tools/call", callId="1", name="show_bed")
        view = (await live(api, "1"))[0]["viewId"] if kind == "view" else ""
        told = (await api.request("trace/get", **{"from": 0, "count": 500}))["result"]
        assert told["total"] >= len(told["entries"]) > 2
        assert [entry["n"] for entry in told["entries"]] == list(range(len(told["entries"])))
        calls = (await api.request("trace/get", filter={"methods": ["tools/CALL"]}, count=9))["result"]
        assert [(entry["from"], entry["to"], entry["kind"]) for entry in calls["entries"]] == [
            ("host", "server", "request"),
            ("server", "host", "response"),
        ]
        assert calls["entries"][0]["message"]["params"]["name"] == "show_bed"
        assert calls["total"] == 2
        (await api.until("trace/added"))["params"]["total"]
        if kind == "view":
            seen = (await api.request("trace/get", filter={"parties": ["view"]}, count=99, brief=True))["result"]
            assert {(one["from"], one["to"]) for one in seen["entries"]} == {
                (f"view:{view}", "host"),
                ("host", f"view:{view}"),
            }
            assert all("message" not in one and "preview" in one for one in seen["entries"])
            methods = [one["method"] for one in seen["entries"]]
            assert methods.count("ui/initialize") == 2  # with its answer
            whole = (await api.request("trace/get", whole=seen["entries"][1]["n"]))["result"]["entries"]
            assert whole[0]["message"]["params"]["html"] == HTML


@pytest.mark.slow
async def test_a_server_that_ends_is_reached_again(tmp_path: Path) -> None:
    """Pages hear that it is lost, and that it is there again; what it offers is listed anew."""
    file = tmp_path / "server.py"
    file.write_text(
        "import os\nfrom mcpd import Server\nserver = Server('mortal')\n\n\n"
        "@server.tool\nasync def end() -> None:\n    os._exit(3)\n"
    )
    target = CommandTarget((sys.executable, "-m", "mcpd", "serve", "--stdio", str(file)))
    async with previewing(target) as preview, api_of(preview) as api:
        assert (await api.request("tools/call", callId="1", name="end"))["error"]["code"] == -32000
        states = [(await api.until("server/status"))["params"]["state"] for _ in range(2)]
        assert states == ["lost", "restarted"]
        assert [one["name"] for one in (await api.request("tools/list"))["result"]["tools"]] == ["end"]
        file.unlink()
        assert (await api.request("server/connect", version=None))["error"]["code"] == -32000
        assert (await api.until("server/status"))["params"]["state"] == "lost"
        assert (await api.request("tools/list"))["error"]["code"] == -32600
