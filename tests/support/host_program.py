"""A program that embeds a host: a server with Views, hooks that note what they are asked, and Views in Python.

A `Guest` is the other end of a View's channel and says anything it is told to, right or wrong. It comes on three
channels: an object with async ends, a plain function, a real WebSocket to the relay. Each message it is told is
held against the official schema. Lives here: what the tests of `mcpd.apps.host.host` share; rules are asserted there.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from support.apps_schema import AppsSchema
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from mcpd import Context, Hooks, Host, Server
from mcpd.apps.host.shown_view import ShownView
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view.events import Event, Finding

__all__ = ["APP", "HTML", "ORIGIN", "Guest", "Open", "Program", "each_channel", "make_server", "on_channel"]

HTML = "<!DOCTYPE html><meta charset=utf-8><title>Weather</title><p>é"
APP = {"name": "weather-view", "version": "1.0"}
ORIGIN = "http://page.localhost:8000"
TIMEOUT = 60.0
UI_META = {
    "ui": {
        "csp": {"connectDomains": ["https://api.example.com"], "resourceDomains": ["https://cdn.example.com"]},
        "permissions": {"camera": {}, "geolocation": {}, "clipboardWrite": {}},
        "prefersBorder": False,
    }
}


def make_server() -> Server:
    """Tools of each visibility, with and without a View. `server.gate` lets `slow` go on; `server.calls` notes some."""
    server = Server("weather", version="1.0")
    server.gate = asyncio.Event()  # type: ignore[attr-defined]
    server.calls = []  # type: ignore[attr-defined]
    server.app("ui://weather/view", HTML, name="view", meta=UI_META)
    server.app("ui://weather/plain", "<!DOCTYPE html><title>Plain</title>", name="plain")
    server.add_text("notes://today", "umbrella", name="today")

    @server.tool(ui="ui://weather/view")
    async def forecast(city: str = "Oslo", days: int = 1) -> dict[str, Any]:
        """The weather to come."""
        return {"city": city, "days": days}

    @server.tool(ui="ui://weather/plain", visibility=["model"])
    async def delete_all() -> str:
        """Forget all that is known of the weather."""
        server.calls.append("delete_all")  # type: ignore[attr-defined]
        return "gone"

    @server.tool(visibility=["app"])
    async def refresh(text: str = "") -> str:
        """Look again; for Views."""
        server.calls.append("refresh")  # type: ignore[attr-defined]
        return f"refreshed {text}".strip()

    @server.tool(ui="ui://weather/view")
    async def slow(ctx: Context, steps: int = 2) -> str:
        """Take a while."""
        for step in range(steps):
            await ctx.progress(step + 1, total=steps, message=f"step {step + 1}")
        try:
            await server.gate.wait()  # type: ignore[attr-defined]
        except asyncio.CancelledError:
            server.calls.append("cancelled")  # type: ignore[attr-defined]
            raise
        return "done"

    @server.tool(ui="ui://weather/view")
    async def broken() -> str:
        """Fail."""
        raise ValueError("no weather today")

    @server.tool
    async def plain(text: str) -> str:
        """Without a View."""
        return text

    return server


class Guest:
    """The View's end of a channel."""

    def __init__(self, schema: AppsSchema) -> None:
        self.told: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.is_closed = False
        self.say: Callable[[str], None] = lambda text: None
        self._schema = schema
        self._asked: dict[Any, str] = {}
        self._next_id = 0
        self._changed = asyncio.Event()

    def hear(self, text: str | bytes) -> None:
        """The host says something."""
        assert isinstance(text, str)
        message = json.loads(text)
        try:
            self._schema.check(message, self._asked)
        except Exception as error:
            self.problems.append(f"{text[:500]}: {error}")
        self.told.append(message)
        self._changed.set()

    def end(self) -> None:
        """The channel is closed."""
        self.is_closed = True
        self._changed.set()

    async def until(self, found: Callable[[], Any]) -> Any:
        """Await the moment this is truthy, looked at again with each message."""
        async with asyncio.timeout(TIMEOUT):
            while not (value := found()):
                self._changed.clear()
                await self._changed.wait()
        return value

    def of(self, method: str) -> list[Any]:
        """The params of all messages of a method so far."""
        return [message.get("params") for message in self.told if message.get("method") == method]

    def methods(self) -> list[str]:
        """The methods of all messages so far, in order."""
        return [message["method"] for message in self.told if "method" in message]

    async def hears(self, method: str, count: int = 1) -> Any:
        """Await a message of this method, or the second, the third; its params."""
        await self.until(lambda: len(self.of(method)) >= count)
        return self.of(method)[count - 1]

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def send(self, message: Any) -> None:
        """Send anything."""
        self.say(message if isinstance(message, str) else json.dumps(message))

    def ask(self, method: str, params: Any = None, request_id: Any = None) -> Any:
        """Send a request without waiting; its id."""
        if request_id is None:
            request_id, self._next_id = self._next_id, self._next_id + 1
        self._asked[request_id] = method
        self.send(
            {"jsonrpc": "2.0", "id": request_id, "method": method, **({} if params is None else {"params": params})}
        )
        return request_id

    async def answer(self, request_id: Any) -> dict[str, Any]:
        """Await the answer to a request."""

        def found() -> Any:
            return [one for one in self.told if "method" not in one and one.get("id") == request_id]

        answers: list[dict[str, Any]] = await self.until(found)
        return answers[0]

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and await its result; an error comes as the whole answer."""
        answer = await self.answer(self.ask(method, params))
        return answer.get("result", answer)

    async def initialize(self, **capabilities: Any) -> Any:
        """The handshake's first half: the result of `ui/initialize`."""
        params = {"appInfo": APP, "appCapabilities": capabilities, "protocolVersion": "2026-01-26"}
        return await self.request("ui/initialize", params)

    async def live(self, **capabilities: Any) -> Any:
        """The whole handshake; the result of `ui/initialize`."""
        result = await self.initialize(**capabilities)
        self.notify("ui/notifications/initialized")
        return result

    async def reply(self, method: str, result: Any = None) -> Any:
        """Await a request of the host's and answer it; its params."""
        await self.hears(method)
        request = next(one for one in self.told if one.get("method") == method and "id" in one)
        self.send({"jsonrpc": "2.0", "id": request["id"], "result": {} if result is None else result})
        return request.get("params")


class Line:
    """An object with async ends, as a program may have it."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._said: asyncio.Queue[str | None] = asyncio.Queue()
        guest.say = self._said.put_nowait

    async def send(self, message: str) -> None:
        await asyncio.sleep(0)
        self._guest.hear(message)

    async def receive(self) -> str | None:
        return await self._said.get()

    def close(self) -> None:
        self._guest.end()

    def stdin_watchdog(self) -> None:
        """The page goes away."""
        self._said.put_nowait(None)


Open = Callable[..., AbstractAsyncContextManager[tuple[ShownView, Guest]]]


class Program:
    """A host, all that its hooks were asked, and Views on one kind of channel."""

    def __init__(self, host: Host, server: Server, kind: str, schema: AppsSchema, notes: Notes) -> None:
        self.host = host
        self.server: Any = server
        self.kind = kind
        self.schema = schema
        self.notes = notes

    @contextlib.asynccontextmanager
    async def view(self, call: ToolCall | None = None, **options: Any) -> AsyncIterator[tuple[ShownView, Guest]]:
        """Open a View of `call`, by default of a finished `forecast`; its other end is a Guest."""
        if call is None:
            call = await self.host.call_tool("forecast", {"city": "Oslo"})
        guest = Guest(self.schema)
        async with getattr(self, f"_{self.kind}")(call, guest, options) as view:
            yield view, guest
            assert guest.problems == []
        if not view.is_over:
            view.lost("the test is over")

    @contextlib.asynccontextmanager
    async def _async(self, call: ToolCall, guest: Guest, options: Any) -> AsyncIterator[ShownView]:
        yield await self.host.open_view(call, Line(guest), **options)

    @contextlib.asynccontextmanager
    async def _callback(self, call: ToolCall, guest: Guest, options: Any) -> AsyncIterator[ShownView]:
        view = await self.host.open_view(call, guest.hear, **options)
        # A page is never heard in the middle of what the host does.
        guest.say = lambda text: asyncio.get_running_loop().call_soon(view.receive, text) and None
        view.ended.add_done_callback(lambda _: guest.end())
        yield view

    @contextlib.asynccontextmanager
    async def _websocket(self, call: ToolCall, guest: Guest, options: Any) -> AsyncIterator[ShownView]:
        relay = await self.host.listen_views(":0", origin=ORIGIN)
        view, url = await relay.open_view(call, **options)
        async with connect(url, origin=ORIGIN, proxy=None, compression=None) as socket:
            said: asyncio.Queue[str] = asyncio.Queue()
            guest.say = said.put_nowait
            tasks = [asyncio.ensure_future(_read(socket, guest)), asyncio.ensure_future(_write(socket, said))]
            try:
                yield view
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


async def _read(socket: ClientConnection, guest: Guest) -> None:
    with contextlib.suppress(ConnectionClosed):
        async for message in socket:
            guest.hear(message)
    guest.end()


async def _write(socket: ClientConnection, said: asyncio.Queue[str]) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            await socket.send(await said.get())


class Notes:
    """What the hooks were asked, and what they answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.events: list[Event] = []
        self.answers: dict[str, Any] = {}

    def hooks(self, **more: Any) -> Hooks:
        """Every hook there is, each noting what it is asked."""

        def hook(name: str) -> Callable[..., Any]:
            def asked(view: ShownView, what: Any, *rest: Any) -> Any:
                self.asked.append((name, what))
                answer = self.answers.get(name)
                if isinstance(answer, Exception):
                    raise answer
                return answer(what) if callable(answer) else answer

            return asked

        names = ("open_link", "download", "message", "model_context", "display_mode", "call_tool")
        return Hooks(
            **{**{name: hook(name) for name in names}, "event": lambda view, event: self.events.append(event), **more}
        )

    def of(self, name: str) -> list[Any]:
        """What one hook was asked."""
        return [what for asked, what in self.asked if asked == name]

    def findings(self) -> list[Finding]:
        """What Views did wrong."""
        return [event for event in self.events if isinstance(event, Finding)]


each_channel = pytest.mark.parametrize("kind", ["async", "callback", "websocket"])


@contextlib.asynccontextmanager
async def on_channel(
    kind: str, schema: AppsSchema, *, hooks: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Program]:
    """A program with an open host for `make_server`."""
    server, notes = make_server(), Notes()
    async with Host(server, hooks=notes.hooks(**(hooks or {})), **options) as host:
        yield Program(host, server, kind, schema, notes)
