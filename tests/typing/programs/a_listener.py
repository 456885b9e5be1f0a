"""Serving in an event loop of one's own, on a listener of one's own. Nothing here may be an error to a type checker."""

from __future__ import annotations

from msgspec import Raw

from mcpd import CreateMessageResult, Hooks, Server, TextContent
from mcpd.apps.host.shown_view import ShownView
from mcpd.protocol.channel import Accept
from mcpd.server.http import HttpSettings
from mcpd.server.serving import serve
from mcpd.server.settings import Settings
from mcpd.transports.websocket.server import WebSocketLimits


class Pipe:
    @property
    def url(self) -> str:
        return "pipe:"

    async def start(self, accept: Accept) -> None:
        print(accept)

    def pause(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


settings = Settings(
    listeners=[Pipe()],
    http=":8080",
    http_settings=HttpSettings(path="/x"),
    ws_limits=WebSocketLimits(max_connections=5),
)


async def main() -> None:
    await serve(Server("garden"), settings)


def run(server: Server) -> None:
    server.run(listeners=(Pipe(),), http_settings=None, ws_limits=WebSocketLimits())


async def think(view: ShownView, asked: Raw) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(view.id), model="m")


def think_at_once(view: ShownView, asked: Raw) -> dict[str, object]:
    return {"role": "assistant", "model": "m"}


known = [Hooks(sample=think), Hooks(sample=think_at_once)]
