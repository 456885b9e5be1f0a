"""`mcpd preview` for tests: a preview of a server in this process, and a bare page of it in a real Chromium.

Lives here: the preview with its page (tests/apps/preview/page), and how a test speaks to both. Never here: servers, and
assertions about rules.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from support.browser import Chromium, Frame, Page
from websockets.asyncio.client import ClientConnection, connect

from mcpd.apps.preview.preview import Preview
from mcpd.apps.preview.sandbox import Place
from mcpd.apps.preview.session import SessionOptions
from mcpd.client.target import Target

__all__ = ["Api", "Stage", "api_of", "place_of", "previewing", "staged"]

PAGE = Path(__file__).resolve().parent.parent / "apps" / "preview" / "page"


@contextlib.asynccontextmanager
async def previewing(target: Target, **options: Any) -> AsyncIterator[Preview]:
    """A preview with the bare page."""
    settings = SessionOptions(target=target, name="under test", **options)
    async with Preview(settings, folder=str(PAGE)) as preview:
        yield preview


def place_of(preview: Preview, view_id: str) -> Place:
    """The addresses of a View; no page is told that of the guest."""
    (view,) = (view for view in preview.session.host.views if view.id == view_id)
    page_views: Any = view._send.func.__self__  # type: ignore[union-attr]
    place: Place = page_views._open[view_id].place
    return place


class Stage:
    """A preview, its page, and what a test asks of the page."""

    def __init__(self, preview: Preview, page: Page, bare: Frame) -> None:
        self.preview = preview
        self.page = page
        self.bare = bare
        self._calls = 0

    async def request(self, method: str, **params: Any) -> Any:
        """A request of the page's API; an error fails the test."""
        answer = await self.attempt(method, **params)
        assert "error" not in answer, answer
        return answer.get("result")

    async def attempt(self, method: str, **params: Any) -> Any:
        """The same, with an error as it is."""
        return await self.bare.call("(method, params) => bare.attempt(method, params)", method, params)

    async def call(self, name: str, arguments: Any = None) -> str:
        """Call a tool; the id of the call."""
        self._calls += 1
        await self.request(
            "tools/call", callId=f"c{self._calls}", name=name, arguments=arguments or {}, **{"as": "model"}
        )
        return f"c{self._calls}"

    async def show(self, call_id: str) -> tuple[Any, Frame]:
        """Open a View for a call: its ViewInfo, and the frame of the View itself."""
        info = await self.bare.call("(callId) => bare.show(callId)", call_id)
        return info, await self.guest(info)

    async def guest(self, info: Any) -> Frame:
        """The innermost frame of a View, once the View has been written into it."""
        return await self.page.frame(place_of(self.preview, info["viewId"]).guest_url)

    async def events(self, view_id: str, kind: str) -> list[Any]:
        """What was told of a View, of one kind."""
        found = "bare.told.filter(t => t.method === 'view/event').map(t => t.params)"
        told: list[Any] = await self.bare.evaluate(found)
        return [one["event"] for one in told if one["viewId"] == view_id and one["event"]["kind"] == kind]

    async def until_event(self, view_id: str, kind: str) -> Any:
        """Await the first of them."""
        await self.bare.until(
            "bare.told.some(({method, params}) => method === 'view/event' && "
            f"params.viewId === {json.dumps(view_id)} && params.event.kind === {json.dumps(kind)})"
        )
        return (await self.events(view_id, kind))[0]


@contextlib.asynccontextmanager
async def staged(chromium: Chromium, target: Target, **options: Any) -> AsyncIterator[Stage]:
    """A preview with one page open in the browser."""
    async with previewing(target, **options) as preview, chromium.page(width=900, height=800) as page:
        bare = await page.goto(preview.url)
        await bare.until("bare.hello")
        yield Stage(preview, page, bare)


class Api:
    """A page's end of the API, by hand: bytes over its WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.told: list[Any] = []
        self._last = 0

    async def send(self, **message: Any) -> None:
        """One message."""
        await self.socket.send(json.dumps({"jsonrpc": "2.0", **message}))

    async def receive(self) -> Any:
        """The next one."""
        return json.loads(await self.socket.recv())

    async def request(self, method: str, **params: Any) -> Any:
        """A request, and its answer; what is told meanwhile is kept."""
        self._last += 1
        await self.send(id=self._last, method=method, params=params)
        while True:
            message = await self.receive()
            if message.get("id") == self._last and "method" not in message:
                return message
            self.told.append(message)

    async def answer(self, request_id: str) -> Any:
        """The answer to a request that was sent by hand."""
        while True:
            for message in self.told:
                if message.get("id") == request_id and "method" not in message:
                    self.told.remove(message)
                    return message
            self.told.append(await self.receive())

    async def until(self, method: str) -> Any:
        """The params of the first notification or question of this name that was not taken before."""
        while True:
            for message in self.told:
                if message.get("method") == method:
                    self.told.remove(message)
                    return message
            self.told.append(await self.receive())


@contextlib.asynccontextmanager
async def api_of(preview: Preview, *, token: str | None = None, **headers: str) -> AsyncIterator[Api]:
    """A connection to the API, as the page makes it; `hello` was answered."""
    port = preview.origins.port
    origin = headers.pop("origin", f"http://mcpd.localhost:{port}")
    url = f"ws://mcpd.localhost:{port}/api"
    async with connect(url, origin=origin, host="127.0.0.1", port=port, proxy=None, **headers) as socket:  # type: ignore[arg-type]
        api = Api(socket)
        hello = await api.request("hello", token=preview.token if token is None else token)
        api.hello = hello["result"]  # type: ignore[attr-defined]
        yield api
