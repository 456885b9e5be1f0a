"""The agent of docs/hosting-apps.md shows an app, and its hooks decide what the app may do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

from support.documentation import page_modules
from websockets.asyncio.client import connect

__all__ = ["page_modules"]


async def test_the_agent_shows_the_view_of_a_tool(page_modules: Callable[..., list[ModuleType]]) -> None:
    """A model that picks the app's tool, and a page whose View asks for a link and leaves a message."""
    agent, server = page_modules("hosting-apps", "agent", "server")
    shown: list[tuple[str, str]] = []
    answers: dict[int, Any] = {}
    watching: list[asyncio.Task[None]] = []

    async def ask_model(tools: list[Any]) -> tuple[str, dict[str, Any]]:
        assert "show_bed" in [tool.name for tool in tools]
        return "show_bed", {"bed": "south"}

    async def show(html: str, policy: str, address: str) -> None:
        shown.append((html, policy))
        watching.append(asyncio.ensure_future(watch(address)))

    async def watch(address: str) -> None:
        text = [{"type": "text", "text": "more beans"}]
        requests = [
            (
                "ui/initialize",
                {"appInfo": {"name": "p", "version": "1"}, "appCapabilities": {}, "protocolVersion": "x"},
            ),
            ("ui/open-link", {"url": "https://garden.example/beans"}),
            ("ui/open-link", {"url": "https://elsewhere.example/"}),
            ("ui/message", {"role": "user", "content": text}),
            ("ui/update-model-context", {"structuredContent": {"selected": "beans"}}),
        ]
        async with connect(address, origin="http://localhost:8000", proxy=None) as page:  # type: ignore[arg-type]
            for number, (method, params) in enumerate(requests):
                await page.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
                if number == 0:
                    await page.send('{"jsonrpc": "2.0", "method": "ui/notifications/initialized"}')
                while number not in answers:
                    told = json.loads(await page.recv())
                    answers[told.get("id", told.get("method"))] = told

    result, messages, context = await agent.turn(ask_model, show)
    await watching[0]
    assert result.structured_content["plants"] == ["beans"]
    assert shown[0][0] == server.BED
    assert shown[0][1].startswith("default-src 'none'; ")
    assert answers[1]["result"] == {}
    assert answers[2]["error"]["code"] == -32000
    assert [message.content[0].text for message in messages] == ["more beans"]
    assert [one.structured_content for one in context] == [{"selected": "beans"}]
