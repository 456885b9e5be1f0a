"""The seed's sections 4 to 7 (mcp-apps-life, -ctx, -req, -sbox), each on real channels: a server, a host, a View.

Every message the host sends is held against the official schema by the Guest (see `host_program`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.apps_schema import AppsSchema
from support.clock import until
from support.host_program import HTML, Guest, Program, each_channel, on_channel

from mcpd import HostOptions
from mcpd.apps.host.host import style_variables
from mcpd.apps.host.view import ViewPhase
from mcpd.apps.host.view.context import ContainerDimensions, HostContext, HostCss, HostStyles
from mcpd.apps.host.view.events import Closed, SizeChanged
from mcpd.errors import RequestCancelled

RESULT = "ui/notifications/tool-result"
INPUT = "ui/notifications/tool-input"
PARTIAL = "ui/notifications/tool-input-partial"
CANCELLED = "ui/notifications/tool-cancelled"
CONTEXT_CHANGED = "ui/notifications/host-context-changed"
PROXY_READY = "ui/notifications/sandbox-proxy-ready"
RESOURCE_READY = "ui/notifications/sandbox-resource-ready"

FONTS = "@font-face { font-family: X; src: url('https://fonts.example.com/x.woff2') }"
SURROUNDINGS = HostContext(
    theme="dark",
    styles=HostStyles(variables=style_variables(), css=HostCss(fonts=FONTS)),
    available_display_modes=["inline", "fullscreen", "pip"],
    container_dimensions=ContainerDimensions(width=400, max_height=600),
)


@asynccontextmanager
async def at_home(kind: str, schema: AppsSchema, **context: Any) -> AsyncIterator[Program]:
    """A program whose host says something of its surroundings."""
    fields = {name: getattr(SURROUNDINGS, name) for name in HostContext.__struct_fields__}
    async with on_channel(kind, schema, options=HostOptions(context=HostContext(**{**fields, **context}))) as program:
        yield program


# ------------------------------------------------------------------------- section 4: lifecycle


@each_channel
async def test_tool_input(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-life-01, APP-H-08, APP-H-09: the complete arguments follow `initialized`, and nothing goes before."""
    async with on_channel(kind, schema) as program, program.view() as (_, guest):
        result = await guest.initialize()
        assert result["protocolVersion"] == "2026-01-26"
        assert result["hostInfo"]["name"] == "mcpd"
        await guest.request("ping")
        assert guest.methods() == []
        guest.notify("ui/notifications/initialized")
        assert await guest.hears(INPUT) == {"arguments": {"city": "Oslo"}}
        await guest.hears(RESULT)
        assert guest.methods() == [INPUT, RESULT]


@each_channel
async def test_partial_tool_input(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-life-02, APP-H-10: unclosed structures come closed, before the complete arguments and never after."""
    async with on_channel(kind, schema) as program:
        call = program.host.begin_call("forecast")
        async with program.view(call) as (_, guest):
            await guest.live()
            call.stream_arguments('{"city": "Os')
            assert await guest.hears(PARTIAL) == {"arguments": {"city": "Os"}}
            call.stream_arguments('lo", "days": 2, "more": [1, {"a"')
            assert await guest.hears(PARTIAL, 2) == {"arguments": {"city": "Oslo", "days": 2, "more": [1, {}]}}
            await call.run({"city": "Oslo", "days": 2})
            assert await guest.hears(INPUT) == {"arguments": {"city": "Oslo", "days": 2}}
            await guest.hears(RESULT)
            assert guest.methods() == [PARTIAL, PARTIAL, INPUT, RESULT]


@each_channel
async def test_tool_result(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-life-03, APP-H-11: the whole CallToolResult, when the call ends."""
    async with on_channel(kind, schema) as program:
        call = program.host.begin_call("forecast")
        async with program.view(call) as (_, guest):
            await guest.live()
            result = await call.run({"city": "Bergen"})
            told = await guest.hears(RESULT)
            assert told["structuredContent"] == {"city": "Bergen", "days": 1} == result.structured_content
            assert told["content"][0]["type"] == "text"


@each_channel
async def test_a_tool_that_fails_has_a_result(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-life-03, apps.md 1.3 (4): `isError` is a result, no cancellation."""
    async with on_channel(kind, schema) as program:
        call = await program.host.call_tool("broken")
        assert call.result is not None
        assert call.result.is_error
        async with program.view(call) as (_, guest):
            await guest.live()
            assert (await guest.hears(RESULT))["isError"] is True
            assert CANCELLED not in guest.methods()


@each_channel
async def test_tool_cancelled(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-life-04, APP-H-12: the View hears of it with a reason, and the tool stops."""
    async with on_channel(kind, schema) as program:
        call = program.host.begin_call("slow")
        async with program.view(call) as (_, guest):
            await guest.live()
            begun = asyncio.Event()
            running = asyncio.ensure_future(call.run({"steps": 1}, on_progress=lambda *_: begun.set()))
            await begun.wait()
            await guest.hears(INPUT)
            call.cancel("the user pressed stop")
            assert await guest.hears(CANCELLED) == {"reason": "the user pressed stop"}
            with pytest.raises(RequestCancelled, match="pressed stop"):
                await running
            await until(lambda: program.server.calls == ["cancelled"])
            assert RESULT not in guest.methods()


@each_channel
async def test_teardown(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-life-05, APP-H-13: the host asks, waits for the answer, and only then is the View gone."""
    async with on_channel(kind, schema) as program, program.view() as (view, guest):
        await guest.live()
        await guest.hears(RESULT)
        closing = asyncio.ensure_future(view.close("no longer needed"))
        await guest.hears("ui/resource-teardown")
        assert not closing.done()
        assert view.state is ViewPhase.CLOSING
        assert (await guest.reply("ui/resource-teardown"))["reason"] == "no longer needed"
        assert await closing == Closed("no longer needed", clean=True)
        await guest.until(lambda: guest.is_closed)
        assert program.host.views == []


@each_channel
async def test_teardown_by_a_view_that_refuses(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-life-05: "or error if teardown fails"; the View goes all the same."""
    async with on_channel(kind, schema) as program, program.view() as (view, guest):
        await guest.live()
        await view.live()
        closing = asyncio.ensure_future(view.close())
        await guest.hears("ui/resource-teardown")
        request = next(one for one in guest.told if one.get("method") == "ui/resource-teardown")
        guest.send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "what?"}})
        assert isinstance(await closing, Closed)


@each_channel
async def test_size_changed(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-life-06, mcp-apps-ctx-04, mcp-apps-ctx-05, APP-H-14: flexible up to the maximum, fixed stays."""
    async with at_home(kind, schema) as program, program.view() as (_, guest):
        result = await guest.live()
        assert result["hostContext"]["containerDimensions"] == {"width": 400, "maxHeight": 600}
        guest.notify("ui/notifications/size-changed", {"width": 900, "height": 250})
        guest.notify("ui/notifications/size-changed", {"width": 900, "height": 5000})
        await guest.request("ping")
        sizes = [event for event in program.notes.events if isinstance(event, SizeChanged)]
        assert sizes == [SizeChanged(None, 250), SizeChanged(None, 600)]


@each_channel
async def test_fixed_dimensions(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-ctx-04: the container is the host's on both axes; what the View reports changes nothing."""
    dimensions = ContainerDimensions(width=400, height=300)
    async with at_home(kind, schema, container_dimensions=dimensions) as program, program.view() as (_, guest):
        result = await guest.live()
        assert result["hostContext"]["containerDimensions"] == {"width": 400, "height": 300}
        guest.notify("ui/notifications/size-changed", {"width": 9, "height": 9})
        await guest.request("ping")
        assert not [event for event in program.notes.events if isinstance(event, SizeChanged)]


@each_channel
async def test_host_context_changed(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-life-07: only what changed, and only after the View is live."""
    async with at_home(kind, schema) as program, program.view() as (view, guest):
        result = await guest.initialize()
        assert result["hostContext"]["theme"] == "dark"
        program.host.change_context(HostContext(theme="light"))
        await guest.request("ping")
        assert guest.methods() == []
        guest.notify("ui/notifications/initialized")
        assert await guest.hears(CONTEXT_CHANGED) == {"theme": "light"}
        view.change_context(HostContext(locale="nb-NO"))
        assert await guest.hears(CONTEXT_CHANGED, 2) == {"locale": "nb-NO"}


# ------------------------------------------------------------------ section 5: context and theme


@each_channel
async def test_theme_variables(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-ctx-01, mcp-apps-ctx-06, APP-H-16: standard names, `light-dark()` values, fonts as CSS, all there."""
    async with at_home(kind, schema) as program, program.view() as (_, guest):
        said = (await guest.initialize())["hostContext"]["styles"]
        assert set(said["variables"]) == set(style_variables())
        assert said["variables"]["--color-background-primary"].startswith("light-dark(")
        assert said["css"]["fonts"] == FONTS


@each_channel
@pytest.mark.parametrize(
    ("declared", "both"),
    [(["pip", "inline", "cinema"], ["inline", "pip"]), (None, ["inline", "fullscreen", "pip"]), ([], [])],
)
async def test_display_modes_of_both(kind: str, schema: AppsSchema, declared: Any, both: list[str]) -> None:
    """mcp-apps-ctx-02, APP-H-15: the host offers those that both sides know."""
    async with at_home(kind, schema) as program, program.view() as (_, guest):
        result = await guest.initialize(**({} if declared is None else {"availableDisplayModes": declared}))
        assert result["hostContext"]["availableDisplayModes"] == both


@each_channel
async def test_a_display_mode_is_asked_for(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-ctx-03, APP-H-15: the mode in force is the answer, granted, changed, denied or undeclared."""
    async with at_home(kind, schema) as program, program.view() as (view, guest):
        await guest.live(availableDisplayModes=["inline", "fullscreen"])
        program.notes.answers["display_mode"] = lambda mode: mode
        assert await guest.request("ui/request-display-mode", {"mode": "fullscreen"}) == {"mode": "fullscreen"}
        assert await guest.hears(CONTEXT_CHANGED) == {"displayMode": "fullscreen"}
        program.notes.answers["display_mode"] = None
        assert await guest.request("ui/request-display-mode", {"mode": "inline"}) == {"mode": "fullscreen"}
        assert await guest.request("ui/request-display-mode", {"mode": "pip"}) == {"mode": "fullscreen"}
        assert program.notes.of("display_mode") == ["fullscreen", "inline"]
        assert view.context.display_mode == "fullscreen"


# ------------------------------------------------------------------- section 6: requests of Views


@each_channel
async def test_open_link(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-req-01, APP-H-17: empty result if opened; -32000 with a text if denied; never `javascript:`."""
    async with on_channel(kind, schema) as program, program.view() as (_, guest):
        await guest.live()
        assert await guest.request("ui/open-link", {"url": "https://example.com/a"}) == {}
        program.notes.answers["open_link"] = False
        denied = await guest.request("ui/open-link", {"url": "https://example.com/b"})
        assert denied["error"]["code"] == -32000
        assert denied["error"]["message"]
        refused = await guest.request("ui/open-link", {"url": "javascript:alert(1)"})
        assert refused["error"]["code"] == -32000
        assert program.notes.of("open_link") == ["https://example.com/a", "https://example.com/b"]


@each_channel
async def test_a_denial_as_a_result(kind: str, schema: AppsSchema) -> None:
    """apps.md 1.4: `denials="result"` answers as most hosts do; what is malformed stays an error."""
    async with on_channel(kind, schema, denials="result") as program, program.view() as (_, guest):
        await guest.live()
        program.notes.answers.update(open_link=False, message=False, download=False, model_context=False)
        assert await guest.request("ui/open-link", {"url": "https://example.com/"}) == {"isError": True}
        text = [{"type": "text", "text": "hi"}]
        assert await guest.request("ui/message", {"role": "user", "content": text}) == {"isError": True}
        file = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "x"}}
        assert await guest.request("ui/download-file", {"contents": [file]}) == {"isError": True}
        context = await guest.request("ui/update-model-context", {"content": text})
        assert context["error"]["code"] == -32000
        assert (await guest.request("ui/open-link", {}))["error"]["code"] == -32602


@each_channel
async def test_message(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-req-02, APP-H-18: it stands in the conversation as the user's, and the View learns nothing of it."""
    async with on_channel(kind, schema) as program, program.view() as (view, guest):
        await guest.live()
        text = {"type": "text", "text": "and tomorrow?"}
        assert await guest.request("ui/message", {"role": "user", "content": [text]}) == {}
        assert await guest.request("ui/message", {"role": "user", "content": text}) == {}
        conversation = program.host.conversation
        taken = conversation.take_messages()
        assert [(one.role, one.view, one.tool, one.content[0].text) for one in taken] == [  # type: ignore[union-attr]
            ("user", view.id, "forecast", "and tomorrow?")
        ] * 2
        assert conversation.take_messages() == []
        program.notes.answers["message"] = False
        denied = await guest.request("ui/message", {"role": "user", "content": [text]})
        assert denied["error"]["code"] == -32000
        assert conversation.messages == []


@each_channel
async def test_update_model_context(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-req-03, APP-H-19: the last word of each View before the next turn, and no more."""
    async with on_channel(kind, schema) as program, program.view() as (view, guest), program.view() as (other, second):
        await guest.live()
        await second.live()
        for number in range(3):
            update = {"content": [{"type": "text", "text": f"{number}"}], "structuredContent": {"number": number}}
            assert await guest.request("ui/update-model-context", update) == {}
        assert await second.request("ui/update-model-context", {"structuredContent": {"from": "second"}}) == {}
        taken = program.host.conversation.take_context()
        assert [(one.view, one.structured_content) for one in taken] == [
            (view.id, {"number": 2}),
            (other.id, {"from": "second"}),
        ]
        assert program.host.conversation.take_context() == []
        update = {"content": [{"type": "text", "text": "2"}], "structuredContent": {"number": 2}}
        assert await guest.request("ui/update-model-context", update) == {}
        assert program.host.conversation.take_context() == [], "the same again is no news"


@each_channel
async def test_tool_call_from_a_view(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-req-04, mcp-apps-tool-04, mcp-apps-tool-05, APP-H-03: app tools run, model-only do not."""
    async with on_channel(kind, schema) as program, program.view() as (_, guest):
        await guest.live()
        await guest.hears(RESULT)
        before = guest.methods()
        result = await guest.request("tools/call", {"name": "refresh", "arguments": {"text": "now"}})
        assert result["content"] == [{"type": "text", "text": "refreshed now"}]
        both = await guest.request("tools/call", {"name": "forecast", "arguments": {"city": "Bodø"}})
        assert both["structuredContent"]["city"] == "Bodø"
        for name in ("delete_all", "no_such_tool"):
            refused = await guest.request("tools/call", {"name": name, "arguments": {}})
            assert refused["error"]["code"] == -32602
        assert program.server.calls == ["refresh"]
        assert guest.methods() == before, "a View's own call is answered by its response alone"
        assert [finding.rule for finding in program.notes.findings()] == ["visibility", "visibility"]


# --------------------------------------------------------------------- section 7: sandbox proxy


@each_channel
async def test_sandbox_proxy_ready(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-sbox-01, APP-X-03: the proxy reports and is sent the document, its policy and permissions; once."""
    options = HostOptions(permissions=("camera", "clipboardWrite"))
    async with on_channel(kind, schema, options=options) as program, program.view(proxy=True) as (_, guest):
        guest.notify(PROXY_READY, {})
        ready = await guest.hears(RESOURCE_READY)
        assert ready["html"] == HTML
        assert ready["sandbox"] == "allow-scripts allow-same-origin allow-forms"
        assert ready["csp"]["connectDomains"] == ["https://api.example.com"]
        assert ready["permissions"] == {"camera": {}, "clipboardWrite": {}}
        guest.notify(PROXY_READY, {})
        await guest.live()
        await guest.hears(RESULT)
        assert guest.methods().count(RESOURCE_READY) == 1


@each_channel
async def test_csp_of_what_was_declared(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-sbox-02, APP-H-05: only declared domains, and the restrictive default for a View that declares none."""
    async with on_channel(kind, schema) as program:
        async with program.view() as (view, guest):
            policy = view.grant.policy()
            assert "connect-src 'self' https://api.example.com;" in policy
            assert "frame-src 'none'" in policy
            granted = (await guest.initialize())["hostCapabilities"]["sandbox"]["csp"]
            assert granted == {
                "connectDomains": ["https://api.example.com"],
                "resourceDomains": ["https://cdn.example.com"],
            }
        async with program.view(await program.host.call_tool("delete_all")) as (plain, guest):
            assert "connect-src 'none'" in plain.grant.policy()
            assert "csp" not in (await guest.initialize())["hostCapabilities"]["sandbox"]


@each_channel
async def test_permissions(kind: str, schema: AppsSchema) -> None:
    """mcp-apps-sbox-03: what is both asked for and allowed; by default nothing."""
    async with on_channel(kind, schema) as program, program.view() as (view, _):
        assert view.grant.allow == ""
    options = HostOptions(permissions=("camera", "microphone", "clipboardWrite"))
    async with on_channel(kind, schema, options=options) as program, program.view() as (view, guest):
        assert view.grant.allow == "camera; clipboard-write"
        granted = (await guest.initialize())["hostCapabilities"]["sandbox"]["permissions"]
        assert granted == {"camera": {}, "clipboardWrite": {}}


async def test_a_guest_notices_a_message_that_breaks_the_schema(schema: AppsSchema) -> None:
    """The judge of all the tests above can say no."""
    guest = Guest(schema)
    guest.hear('{"jsonrpc": "2.0", "method": "ui/notifications/tool-input", "params": {"arguments": []}}')
    assert guest.problems
