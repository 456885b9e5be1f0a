"""`Host` as an agent uses it: the model's view, calls, several Views, documents, time limits, the end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import Raw
from support.apps_schema import AppsSchema
from support.clock import turns, until
from support.host_program import HTML, Guest, each_channel, make_server, on_channel

from mcpd import Callbacks, Context, Hooks, Host, HostOptions, Server
from mcpd.apps.host.document import ViewDocument
from mcpd.apps.host.shown_view import Conversation
from mcpd.apps.host.view import ViewPhase
from mcpd.apps.host.view.events import Closed, Failed, SizeChanged
from mcpd.apps.host.view.policy import Denied, ViewLimits
from mcpd.errors import ConfigurationError, LocalProtocolError, RemoteError
from mcpd.protocol.types.interaction import ElicitFormParams, ElicitResult
from mcpd.protocol.versions.table import SUPPORTED

RESULT = "ui/notifications/tool-result"
INPUT = "ui/notifications/tool-input"
CANCELLED = "ui/notifications/tool-cancelled"
QUICK = HostOptions(limits=ViewLimits(teardown_seconds=0.05, step_seconds=0.2))


def text(words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": words}]


def name_of(document: ViewDocument) -> str:
    """The last part of its URI, which may carry a version."""
    return document.uri.rpartition("/")[2].partition("?")[0]


# ------------------------------------------------------------------------------------- the model


async def test_the_model_sees_what_is_for_it() -> None:
    """APP-H-02, APP-H-24, apps.md 7 (3): lists, texts and calls know only tools for the model."""
    async with Host(make_server()) as host:
        assert [tool.name for tool in await host.model_tools()] == ["forecast", "delete_all", "slow", "broken", "plain"]
        assert host.find_tool("refresh") is not None, "the server was offered Apps"
        for name in ("refresh", "no_such_tool"):
            with pytest.raises(LocalProtocolError, match=f"^the model has no tool '{name}'$"):
                await host.call_tool(name)


async def test_a_call_without_a_view() -> None:
    async with Host(make_server()) as host:
        call = await host.call_tool("plain", {"text": "hi"})
        assert call.result is not None
        assert not call.has_view
        with pytest.raises(ConfigurationError, match="has no View"):
            await host.open_view(call, lambda message: None)


async def test_a_call_that_the_server_refuses(schema: AppsSchema) -> None:
    """apps.md 1.3 (5): a protocol error of the launch call is a cancellation for the View."""
    async with on_channel("callback", schema) as program:
        call = program.host.begin_call("forecast")
        async with program.view(call) as (_, guest):
            await guest.live()
            program.server.remove_tool("forecast")
            with pytest.raises(RemoteError, match="forecast"):
                await call.run({})
            assert "forecast" in (await guest.hears(CANCELLED))["reason"]
        with pytest.raises(LocalProtocolError, match="made once"):
            await call.run({})


async def test_streamed_arguments_are_the_arguments() -> None:
    async with Host(make_server()) as host:
        call = host.begin_call("forecast")
        for chunk in ('{"ci', 'ty": "Od', 'da"}'):
            call.stream_arguments(chunk)
        assert (await call.run()).structured_content == {"city": "Odda", "days": 1}
        with pytest.raises(LocalProtocolError, match="complete"):
            call.stream_arguments(" ")


@pytest.mark.parametrize("version", SUPPORTED)
@each_channel
async def test_both_eras(kind: str, version: str, schema: AppsSchema) -> None:
    """One host for servers with a handshake and without."""
    async with on_channel(kind, schema, options=HostOptions(version=version)) as program:
        assert program.host.client.version == version
        async with program.view() as (_, guest):
            await guest.live()
            assert (await guest.hears(RESULT))["content"]
            assert (await guest.request("tools/call", {"name": "refresh"}))["content"] == text("refreshed")


# ------------------------------------------------------------------------- requests for the server


@each_channel
async def test_progress_under_the_views_own_token(kind: str, schema: AppsSchema) -> None:
    """apps.md 1.4: tokens are remapped for each View; two Views may use the same one."""
    async with on_channel(kind, schema) as program, program.view() as (_, first), program.view() as (_, second):
        program.server.gate.set()
        for guest in (first, second):
            await guest.live()
        asked = [
            guest.ask("tools/call", {"name": "slow", "arguments": {"steps": 2}, "_meta": {"progressToken": 0}})
            for guest in (first, second)
        ]
        for guest, request_id in zip((first, second), asked, strict=True):
            assert (await guest.answer(request_id))["result"]["content"] == text("done")
            assert guest.of("notifications/progress") == [
                {"progressToken": 0, "progress": 1, "total": 2, "message": "step 1"},
                {"progressToken": 0, "progress": 2, "total": 2, "message": "step 2"},
            ]


@each_channel
async def test_a_view_gives_its_call_up(kind: str, schema: AppsSchema) -> None:
    """apps.md 1.4: `notifications/cancelled` from a View aborts the call at the server, and is never answered."""
    async with on_channel(kind, schema) as program, program.view() as (_, guest):
        await guest.live()
        params = {"name": "slow", "arguments": {"steps": 1}, "_meta": {"progressToken": "t"}}
        request_id = guest.ask("tools/call", params)
        await guest.hears("notifications/progress")
        guest.notify("notifications/cancelled", {"requestId": request_id})
        await until(lambda: program.server.calls == ["cancelled"])
        await guest.request("ping")
        assert not [one for one in guest.told if one.get("id") == request_id and "method" not in one]


async def test_asked_and_taken_back_at_once(schema: AppsSchema) -> None:
    """Work that is given up before it began frees its place all the same."""
    async with on_channel("callback", schema) as program, program.view() as (view, guest):
        await guest.live()
        await view.live()
        for number in range(20):
            call = {"jsonrpc": "2.0", "id": f"x{number}", "method": "tools/call", "params": {"name": "slow"}}
            view.receive(json.dumps(call))
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": f"x{number}"}}
            view.receive(json.dumps(cancelled))
            await guest.request("ping")
        assert (await guest.request("tools/call", {"name": "refresh"}))["content"] == text("refreshed")


async def test_a_view_that_ends_stops_its_calls(schema: AppsSchema) -> None:
    async with on_channel("callback", schema) as program, program.view() as (view, guest):
        await guest.live()
        guest.ask("tools/call", {"name": "slow", "arguments": {"steps": 1}, "_meta": {"progressToken": "t"}})
        await guest.hears("notifications/progress")
        view.lost("the tab was closed")
        assert await view.ended == Failed("the tab was closed")
        await until(lambda: program.server.calls == ["cancelled"])


async def test_resources_and_errors_of_the_server(schema: AppsSchema) -> None:
    async with on_channel("callback", schema) as program, program.view() as (_, guest):
        await guest.live()
        read = await guest.request("resources/read", {"uri": "notes://today"})
        assert read["contents"][0]["text"] == "umbrella"
        listed = await guest.request("resources/list")
        assert "notes://today" in [one["uri"] for one in listed["resources"]]
        tools = await guest.request("tools/list")
        assert [tool["name"] for tool in tools["tools"]] == ["forecast", "refresh", "slow", "broken", "plain"]
        missing = await guest.request("resources/read", {"uri": "notes://nothing"})
        assert missing["error"]["code"] == -32602
        assert missing["error"]["data"] == {"uri": "notes://nothing"}


async def test_a_view_cannot_reach_another_server(schema: AppsSchema) -> None:
    """APP-H-04: never cross-server, even with a conversation in common."""
    other = Server("other")
    called = []

    @other.tool
    async def elsewhere() -> str:
        called.append("elsewhere")
        return ""

    conversation = Conversation()
    async with (
        Host(other, conversation=conversation) as second,
        on_channel("callback", schema, conversation=conversation) as program,
        program.view() as (_, guest),
    ):
        assert second.find_tool("elsewhere") is not None
        await guest.live()
        assert (await guest.request("tools/call", {"name": "elsewhere"}))["error"]["code"] == -32602
        assert not called


async def test_the_program_gates_calls(schema: AppsSchema) -> None:
    """APP-H-21: a host may block a View's calls; it sees the tool, and the arguments as they will be sent."""
    asked: list[Any] = []

    def call_tool(view: Any, tool: Any, arguments: Raw) -> bool:
        asked.append((tool.name, json.loads(bytes(arguments))))
        if tool.name == "refresh":
            raise Denied("not today")
        return True

    async with on_channel("callback", schema, hooks={"call_tool": call_tool}) as program:
        async with program.view() as (_, guest):
            await guest.live()
            refused = await guest.request("tools/call", {"name": "refresh", "arguments": {"text": "x"}})
            assert refused["error"] == {"code": -32000, "message": "not today"}
            assert (await guest.request("tools/call", {"name": "plain", "arguments": {"text": "y"}}))["content"]
    assert asked == [("refresh", {"text": "x"}), ("plain", {"text": "y"})]


async def test_the_server_asks_the_user_in_a_views_call(schema: AppsSchema) -> None:
    """Multi round-trip requests inside a View's call are the host's business; the View sees only the result."""
    server = make_server()

    @server.tool(visibility=["app"])
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return f"Hello {answer.get()['name']}"

    def elicit(params: ElicitFormParams) -> ElicitResult:
        assert params.message == "Who?"
        return ElicitResult(action="accept", content={"name": "Kari"})

    async with Host(server, callbacks=Callbacks(elicit_form=elicit), options=QUICK) as host:
        guest = Guest(schema)
        view = await host.open_view(await host.call_tool("forecast"), guest.hear)
        guest.say = view.receive
        await guest.live()
        assert (await guest.request("tools/call", {"name": "greet"}))["content"] == text("Hello Kari")


async def test_what_has_no_hook_is_not_offered(schema: AppsSchema) -> None:
    """Safe by default: no links, no downloads, no sampling, inline only; messages wait in the conversation."""
    async with Host(make_server(), options=QUICK) as host:
        guest = Guest(schema)
        view = await host.open_view(await host.call_tool("forecast"), guest.hear)
        guest.say = view.receive
        offered = (await guest.live())["hostCapabilities"]
        assert set(offered) == {
            "serverTools", "serverResources", "logging", "updateModelContext", "message", "sandbox",
        }  # fmt: skip
        for method, params in [
            ("ui/open-link", {"url": "https://example.com"}),
            ("ui/download-file", {"contents": []}),
            ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
        ]:
            assert (await guest.request(method, params))["error"]["code"] == -32601, method
        assert await guest.request("ui/request-display-mode", {"mode": "fullscreen"}) == {"mode": "inline"}
        assert await guest.request("ui/message", {"role": "user", "content": text("hi")}) == {}
        assert len(host.conversation.messages) == 1


async def test_a_hook_that_fails_fails_the_request_only(schema: AppsSchema) -> None:
    async with on_channel("callback", schema) as program, program.view() as (_, guest):
        await guest.live()
        program.notes.answers["open_link"] = ValueError("no browser")
        failed = await guest.request("ui/open-link", {"url": "https://example.com"})
        assert failed["error"]["code"] == -32603
        assert "browser" not in failed["error"]["message"]
        program.notes.answers["open_link"] = True
        assert await guest.request("ui/open-link", {"url": "https://example.com"}) == {}


async def test_sampling_goes_to_the_program(schema: AppsSchema) -> None:
    async def sample(view: Any, params: Raw) -> dict[str, Any]:
        assert json.loads(bytes(params))["maxTokens"] == 5
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "pong"}}

    async with on_channel("callback", schema, hooks={"sample": sample}) as program, program.view() as (_, guest):
        assert "sampling" in (await guest.live())["hostCapabilities"]
        asked = {"messages": [{"role": "user", "content": {"type": "text", "text": "ping"}}], "maxTokens": 5}
        assert (await guest.request("sampling/createMessage", asked))["content"]["text"] == "pong"


# ------------------------------------------------------------------------------ several, and limits


async def test_as_many_views_as_allowed(schema: AppsSchema) -> None:
    async with on_channel("async", schema, options=HostOptions(max_views=2)) as program:
        async with program.view() as (first, _), program.view():
            call = await program.host.call_tool("forecast")
            with pytest.raises(LocalProtocolError, match="2 Views are open"):
                await program.host.open_view(call, lambda message: None)
            first.lost("gone")
            view = await program.host.open_view(call, lambda message: None)
            assert view.state is ViewPhase.HTML


async def test_a_view_that_floods_gets_no_more_work_done(schema: AppsSchema) -> None:
    """apps.md 3.4: eight calls in flight for each View; others are not held up by it."""
    async with on_channel("callback", schema) as program, program.view() as (_, flood), program.view() as (_, calm):
        await flood.live()
        await calm.live()
        asked = [flood.ask("tools/call", {"name": "slow", "arguments": {"steps": 0}}) for _ in range(12)]
        for request_id in asked[8:]:
            assert (await flood.answer(request_id))["error"]["code"] == -32000
        assert (await calm.request("tools/call", {"name": "refresh"}))["content"]
        program.server.gate.set()
        for request_id in asked[:8]:
            assert "result" in await flood.answer(request_id)


async def test_the_host_closes_with_views_that_do_not_answer(schema: AppsSchema) -> None:
    """apps.md 1.3 (8): two seconds of silence mean "go on"; here less."""
    async with on_channel("async", schema, options=QUICK) as program, program.view() as (view, guest):
        await guest.live()
        await view.live()
        await program.host.aclose()
        assert guest.of("ui/resource-teardown") == [{"reason": "the host is closing"}]
        assert await view.ended == Closed("the host is closing", clean=False)
        with pytest.raises(LocalProtocolError, match="the host is closed"):
            await program.host.open_view(view.call, lambda message: None)


@each_channel
async def test_a_view_that_never_begins_fails(kind: str, schema: AppsSchema) -> None:
    """apps.md 1.3: a time limit for each step; the text result is there all the same."""
    async with on_channel(kind, schema, options=QUICK) as program, program.view() as (view, guest):
        assert not await view.live()
        failed = await view.ended
        assert isinstance(failed, Failed)
        assert "ui/initialize" in failed.reason
        assert view.call.result is not None
        await guest.until(lambda: guest.is_closed)


async def test_a_view_that_is_dead_is_found_out(schema: AppsSchema) -> None:
    async with on_channel("callback", schema, options=QUICK) as program, program.view() as (view, guest):
        await guest.live()
        await view.live()
        view.ping()
        await guest.reply("ping")
        await guest.request("ping")
        assert view.state is ViewPhase.LIVE
        view.ping()
        assert isinstance(await view.ended, Failed)


async def test_a_channel_that_breaks(schema: AppsSchema) -> None:
    class Broken:
        async def send(self, message: str) -> None:
            raise OSError("pipe")

        async def recv(self) -> str:
            return await asyncio.get_running_loop().create_future()

    def refuse(message: str) -> None:
        raise OSError("pipe")

    handshake = {
        "jsonrpc": "2.0", "id": 0, "method": "ui/initialize",
        "params": {"appInfo": {"name": "v", "version": "1"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"},
    }  # fmt: skip
    async with on_channel("async", schema) as program:
        call = await program.host.call_tool("forecast")
        for channel in (Broken(), refuse):
            view = await program.host.open_view(call, channel)
            view.receive(json.dumps(handshake))
            assert isinstance(await view.ended, Failed)
        with pytest.raises(ConfigurationError, match="is not a channel for a View"):
            await program.host.open_view(call, 7)
        assert program.host.views == []


@pytest.mark.medium
@pytest.mark.parametrize("end", ["receive", "send"])
async def test_a_channel_that_is_cancelled_under_us(end: str) -> None:
    """What a channel waits for may be cancelled by others: the View is lost, as with any other error."""

    class Cancelled:
        def __init__(self) -> None:
            self.ends = {name: asyncio.get_running_loop().create_future() for name in ("receive", "send")}

        async def send(self, message: str) -> None:
            await self.ends["send"]

        async def receive(self) -> str:
            return await self.ends["receive"]  # type: ignore[no-any-return]

    async with Host(make_server()) as host:
        channel = Cancelled()
        view = await host.open_view(await host.call_tool("forecast"), channel, proxy=False)
        view.receive('{"jsonrpc":"2.0","id":1,"method":"ping"}')
        await asyncio.sleep(0)
        channel.ends[end].cancel()
        async with asyncio.timeout(60):
            assert isinstance(await view.ended, Failed)
        assert host.views == []


# ---------------------------------------------------------------------------------- documents


async def test_documents_are_read_once_and_reviewed_once(schema: AppsSchema) -> None:
    """APP-H-01, APP-H-07, APP-H-26: prefetched, kept by hash and metadata, read again when the server says so."""
    server, reviewed = make_server(), []
    versions = {"html": HTML}

    def reads() -> str:
        reads.count += 1  # type: ignore[attr-defined]
        return versions["html"]

    reads.count = 0  # type: ignore[attr-defined]
    server.remove_resource("ui://weather/view")
    server.resource(
        "ui://weather/view", name="view", mime_type="text/html;profile=mcp-app", meta={"ui": {"prefersBorder": True}}
    )(reads)
    options = HostOptions(version="2025-11-25")  # this version has no time to live in its results
    async with Host(server, hooks=Hooks(review=lambda one: reviewed.append(one.digest)), options=options) as host:
        documents = await host.prefetch()
        assert sorted(map(name_of, documents)) == ["plain", "view"]
        call = await host.call_tool("forecast")
        first = await host.open_view(call, lambda message: None)
        second = await host.open_view(call, lambda message: None)
        assert first.document is second.document
        assert first.document.prefers_border is True, "from the listing, where the content says nothing"
        assert reads.count == 1  # type: ignore[attr-defined]
        server.add_text("notes://new", "x", name="new")
        async with asyncio.timeout(60):
            while reads.count == 1:  # type: ignore[attr-defined]
                third = await host.prepare_view(call)
                third.lost("only looking")
                await turns()
        assert third.document is first.document, "read again, and the same"
        assert len(reviewed) == 2
        versions["html"] = HTML + "!"
        server.add_text("notes://newer", "x", name="newer")
        async with asyncio.timeout(60):
            while (fourth := await host.prepare_view(call)).document is first.document:
                fourth.lost("only looking")
                await turns()
        assert reviewed[-1] == fourth.document.digest
        assert len(reviewed) == 3


async def test_a_document_that_is_turned_down() -> None:
    async with Host(make_server(), hooks=Hooks(review=lambda document: "plain" in document.uri)) as host:
        assert [name_of(document) for document in await host.prefetch()] == ["plain"]
        call = await host.call_tool("forecast")
        with pytest.raises(ConfigurationError, match="refused by the review"):
            await host.open_view(call, lambda message: None)
        assert call.result is not None


async def test_a_document_that_is_none() -> None:
    """The tool's text result is there whatever its View is."""
    server = make_server()
    uri = server.app("ui://weather/missing", "<!doctype html><meta charset=utf-8><title>soon gone</title>")

    @server.tool(ui=uri)
    async def dangling() -> str:
        return "text"

    async with Host(server) as host:
        call = await host.call_tool("dangling")
        assert server.remove_resource("ui://weather/missing")
        with pytest.raises(RemoteError):
            await host.open_view(call, lambda message: None)
        assert host.views == []


# ------------------------------------------------------------------------- what changes meanwhile


@each_channel
@pytest.mark.parametrize("version", [None, "2025-11-25"])
async def test_new_tools_are_announced_and_callable(kind: str, version: str | None, schema: AppsSchema) -> None:
    async with on_channel(kind, schema, options=HostOptions(version=version)) as program:
        async with program.view() as (_, guest):
            await guest.live()

            @program.server.tool(visibility=["app"])
            async def fresh() -> str:
                return "fresh"

            await guest.hears("notifications/tools/list_changed")
            assert (await guest.request("tools/call", {"name": "fresh"}))["content"] == text("fresh")
            assert "fresh" not in [tool.name for tool in await program.host.model_tools()]


async def test_tools_of_a_view(schema: AppsSchema) -> None:
    """APP-H-25: under names that say whose they are; confirmed unless read-only; gone with the View."""
    async with on_channel("callback", schema) as program, program.view() as (view, guest):
        await guest.live(tools={"listChanged": True})
        read_only = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        await guest.reply("tools/list", {"tools": [read_only, {"name": "set", "inputSchema": {"type": "object"}}]})
        await guest.request("ping")
        offered = program.host.app_tools()
        assert [(name, one.view, one.tool.name) for name, one in offered.items()] == [
            ("forecast-view-1__look", view, "look"),
            ("forecast-view-1__set", view, "set"),
        ]
        calling = asyncio.ensure_future(view.call_app_tool("look", {"at": 1}))
        assert await guest.reply("tools/call", {"content": text("seen")}) == {"name": "look", "arguments": {"at": 1}}
        assert (await calling).content[0].text == "seen"  # type: ignore[union-attr]
        with pytest.raises(LocalProtocolError, match="ask the user"):
            await view.call_app_tool("set")
        view.lost("gone")
        assert program.host.app_tools() == {}


async def test_opened_while_the_call_runs_and_after_it(schema: AppsSchema) -> None:
    """Two Views of one call: each gets the input once and the result once, whenever it was opened."""
    async with on_channel("callback", schema) as program:
        call = program.host.begin_call("slow")
        begun = asyncio.Event()
        running = asyncio.ensure_future(call.run({"steps": 1}, on_progress=lambda *_: begun.set()))
        await begun.wait()
        async with program.view(call) as (_, early):
            await early.live()
            assert await early.hears(INPUT) == {"arguments": {"steps": 1}}
            program.server.gate.set()
            await running
            async with program.view(call) as (_, late):
                await late.live()
                for guest in (early, late):
                    assert (await guest.hears(RESULT))["content"] == text("done")
                    assert guest.methods() == [INPUT, RESULT]


# ---------------------------------------------------------------------------------- hostile Views

HOSTILE = st.one_of(
    st.sampled_from(
        [
            "", "{", "[]", "null", '{"jsonrpc":"1.0"}', '{"jsonrpc":"2.0","id":null,"method":"ping"}',
            '{"jsonrpc":"2.0","id":"host-1","result":{}}', '[{"jsonrpc":"2.0","method":"x"}]', "[" * 5000,
        ]
    ),
    st.builds(
        lambda method, params, request_id: json.dumps(
            {"jsonrpc": "2.0", "method": method, "params": params, **({} if request_id is None else {"id": request_id})}
        ),
        st.sampled_from(
            [
                "tools/call", "resources/read", "ui/open-link", "ui/message", "ui/request-display-mode", "initialize",
                "ui/download-file", "ui/notifications/sandbox-proxy-ready", "ui/notifications/size-changed",
                "notifications/cancelled", "notifications/message", "ui/notifications/initialized", "x" * 3000,
            ]
        ),
        st.sampled_from(
            [
                {}, [], "x", None, {"name": "delete_all", "arguments": {}}, {"name": "refresh", "arguments": []},
                {"url": "javascript:alert(1)"}, {"url": 7}, {"mode": "cinema"}, {"requestId": 0}, {"width": -1e308},
                {"uri": "ui://other/server"}, {"role": "assistant", "content": []}, {"level": "loud"},
                {"contents": [{"type": "resource_link", "uri": "file:///etc/passwd", "name": "../../x"}]},
            ]
        ),
        st.sampled_from([None, 0, 1, "0", -5, 2**60, "é" * 50]),
    ),
)  # fmt: skip


@pytest.mark.medium
@given(st.lists(HOSTILE, max_size=25))
@settings(max_examples=40)
async def test_a_hostile_view_changes_nothing(messages: list[str]) -> None:
    """APP-H-20, issue 5: refused and logged, nothing it must not reach is reached, and its session goes on."""
    server, opened, told = make_server(), [], []
    hooks = Hooks(open_link=lambda view, url: opened.append(url), event=lambda view, event: told.append(event))
    async with Host(server, hooks=hooks, options=QUICK) as host:
        answers: list[Any] = []
        view = await host.open_view(await host.call_tool("forecast"), lambda text: answers.append(json.loads(text)))
        params = {"appInfo": {"name": "v", "version": "1"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"}
        view.receive(json.dumps({"jsonrpc": "2.0", "id": "i", "method": "ui/initialize", "params": params}))
        view.receive('{"jsonrpc":"2.0","method":"ui/notifications/initialized"}')
        for message in messages:
            view.receive(message)
        await asyncio.sleep(0)
        assert view.state is ViewPhase.LIVE
        view.receive('{"jsonrpc":"2.0","id":"last","method":"ping"}')
        assert {"jsonrpc": "2.0", "id": "last", "result": {}} in answers
        assert not opened
        assert "delete_all" not in server.calls  # type: ignore[attr-defined]
        assert all(event.width is None or event.width >= 1 for event in told if isinstance(event, SizeChanged))
