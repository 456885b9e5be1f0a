"""`ToolCall`: what its Views are told, and how it ends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.host_program import make_server

from mcpd import Host
from mcpd.apps.host.shown_view import ShownView
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view import ViewPhase
from mcpd.errors import RequestCancelled

INPUT = "ui/notifications/tool-input"
PARTIAL = "ui/notifications/tool-input-partial"
RESULT = "ui/notifications/tool-result"


class Frame:
    """A callback channel that breaks on one method."""

    def __init__(self, breaks_on: str = "") -> None:
        self.told: list[dict[str, Any]] = []
        self._breaks_on = breaks_on

    def __call__(self, text: str) -> None:
        message = json.loads(text)
        if self._breaks_on and message.get("method") == self._breaks_on:
            raise OSError("broken")
        self.told.append(message)

    def methods(self) -> list[str]:
        return [message["method"] for message in self.told if "method" in message]


async def open_live(host: Host, call: ToolCall, frame: Frame) -> ShownView:
    view = await host.open_view(call, frame)
    params = {"appInfo": {"name": "v", "version": "1"}, "appCapabilities": {}, "protocolVersion": "2026-01-26"}
    view.receive(json.dumps({"jsonrpc": "2.0", "id": "i", "method": "ui/initialize", "params": params}))
    view.receive('{"jsonrpc":"2.0","method":"ui/notifications/initialized"}')
    assert view.state is ViewPhase.LIVE
    return view


async def test_a_view_that_fails_while_it_is_told_takes_nothing_from_the_next() -> None:
    """APP-H-09, APP-H-11."""
    async with Host(make_server()) as host:
        for method in (PARTIAL, INPUT, RESULT):
            call = host.begin_call("forecast")
            broken, next_one, last = frames = [Frame(method), Frame(), Frame()]
            views = [await open_live(host, call, frame) for frame in frames]
            call.stream_arguments('{"city": "Oslo"}')
            await call.run()
            assert views[0].state is ViewPhase.FAILED
            assert method not in broken.methods()
            assert next_one.methods() == last.methods() == [PARTIAL, INPUT, RESULT]
            for view in views[1:]:
                view.lost("the test is over")


async def test_a_streamed_character_may_be_cut_in_two() -> None:
    async with Host(make_server()) as host:
        call = host.begin_call("forecast")
        for chunk in ('{"city": "\ud83d', '\ude00"}'):
            call.stream_arguments(chunk)
        assert (await call.run()).structured_content == {"city": "😀", "days": 1}


async def test_given_up_while_the_answer_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """APP-H-12: one end only; what the Views were told holds."""
    async with Host(make_server()) as host:
        call, frame = host.begin_call("forecast"), Frame()
        view = await open_live(host, call, frame)
        request = host.client.request

        async def answered_and_cancelled(*args: Any, **options: Any) -> Any:
            answer = await request(*args, **options)
            asyncio.get_running_loop().call_soon(call.cancel, "the user")  # before `run` is woken
            return answer

        monkeypatch.setattr(host.client, "request", answered_and_cancelled)
        with pytest.raises(RequestCancelled, match="the user"):
            await call.run({})
        assert (call.result, call.error) == (None, "the user")
        assert frame.methods()[-1] == "ui/notifications/tool-cancelled"
        view.lost("the test is over")
