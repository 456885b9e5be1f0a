"""What is refused before any session has it is counted once, by its reason: over HTTP, and in handshakes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from support.http_peer import MODERN, Port, call, initialize, modern, post, request, serving
from support.wires import LEGACY, memory_wire

from mcpd import Server
from mcpd.protocol.session import SessionHooks
from mcpd.server.dispatcher.observing import HookedObserver, refusal_counter
from mcpd.server.http import HttpSettings
from mcpd.server.listening import listeners_of
from mcpd.server.observe.metrics import Meter
from mcpd.server.settings import Settings
from mcpd.transports.guards import Access

UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def metered() -> tuple[Server, Meter]:
    server = Server("counted")
    meter = Meter(server.catalog.tools.find_enabled)
    server.add_observer(meter)
    server.tool(name="echo")(lambda: "x")
    return server, meter


def refused(meter: Meter) -> Counter[str]:
    """How often each reason was given."""
    (family,) = (each for each in meter.families() if each.name == "mcpd_refused")
    return Counter({dict(sample.labels)["reason"]: int(sample.value) for sample in family.samples})


_HELD_BACK = post(call("tools/call", {"name": "echo"}), {"MCP-Protocol-Version": LEGACY[-1]})

REFUSALS: list[tuple[str, int, bytes]] = [
    # What is refused by its headers, by its place, or by its size.
    ("403", 403, post(initialize(), host="evil.example")),
    ("401", 401, post(initialize(), {"Authorization": "Bearer wrong"})),
    ("405", 405, request("PUT", "/mcp", [("Authorization", "Bearer open")])),
    ("404", 404, request("GET", "/elsewhere", [("Authorization", "Bearer open")])),
    ("406", 406, post(initialize(), {"Authorization": "Bearer open", "Accept": "text/html"})),
    ("415", 415, post(initialize(), {"Authorization": "Bearer open", "Content-Type": "text/plain"})),
    ("413", 413, post(b"[" * 3000, {"Authorization": "Bearer open"})),
    # By what it says, which the code says best.
    ("-32700", 400, post(b"{", {"Authorization": "Bearer open"})),
    ("-32022", 400, post(initialize(), {"Authorization": "Bearer open", "MCP-Protocol-Version": "1999-01-01"})),
    ("-32601", 404, modern("no/such", headers={"Authorization": "Bearer open"})),
    ("-32020", 400, modern("ping", headers={"Authorization": "Bearer open", "Mcp-Method": "other"})),
    # Sessions that are none.
    ("400", 400, _HELD_BACK.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer open\r\n\r\n", 1)),
    ("404", 404, _HELD_BACK.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer open\r\nMcp-Session-Id: x\r\n\r\n", 1)),
    # What the application never sees.
    ("400", 400, b"NO HTTP\r\n\r\n"),
    ("431", 431, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 5000 + b"\r\n\r\n"),
    ("404", 404, UPGRADE.format(path="/elsewhere", host="localhost")
     .replace("\r\n\r\n", "\r\nAuthorization: Bearer open\r\n\r\n").encode()),
    ("401", 401, UPGRADE.format(path="/mcp", host="localhost").encode()),
    ("403", 403, UPGRADE.format(path="/mcp", host="evil.example").encode()),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "status", "data"), REFUSALS)
async def test_each_refusal_of_http_is_counted_once(reason: str, status: int, data: bytes) -> None:
    """OBS-02, OBS-03: by the status, or by the code where that says more; never by a text of the client's."""
    server, meter = metered()
    settings = HttpSettings(max_body_bytes=2000, max_head_bytes=2000)
    async with serving(server, settings, Access(token="open")) as port:
        answer = await port.ask(data)
        assert answer.status == status
        assert refused(meter) == {reason: 1}


async def test_what_is_served_is_no_refusal() -> None:
    server, meter = metered()
    async with serving(server) as port:
        session = await port.open()
        await session.ask("tools/call", {"name": "echo"})
        assert (await port.modern("tools/call", {"name": "echo"})).status == 200
        assert (await port.ask(request("GET", "/healthz"))).status == 200
        assert (await port.ask(session.delete())).status == 204
        assert not refused(meter)
        # While it shuts down no session begins.
        port.app.drain()
        assert (await port.ask(post(initialize()))).status == 503
        assert refused(meter) == {"503": 1}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (UPGRADE.format(path="/elsewhere", host="localhost").encode(), "404"),
        (UPGRADE.format(path="/mcp", host="evil.example").encode(), "403"),
        (request("GET", "/mcp"), "426"),
        (b"POST / HTTP/1.1\r\n\r\n", "400"),
    ],
)
async def test_handshakes_that_are_refused(asked: bytes, reason: str) -> None:
    server, meter = metered()
    (listener,) = listeners_of(server, Settings(ws="127.0.0.1:0"))
    await listener.start(server.connect)
    try:
        number = int(listener.url.split(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(asked)
        assert (await reader.readline()).startswith(f"HTTP/1.1 {reason} ".encode())
        writer.close()
    finally:
        await listener.aclose()
    assert refused(meter) == {reason: 1}


async def test_those_of_another_asgi_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A WebSocket of ASGI, which comes with no HTTP of ours."""
    server, meter = metered()
    app = server.asgi_app(token="open")
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/mcp", "headers": [(b"host", b"localhost")], "extensions": {}}
    await app(scope, receive, send)
    assert sent[0]["type"] == "websocket.close"
    assert refused(meter) == {"401": 1}
    await app.aclose()


async def test_without_a_counter_nothing_is_told() -> None:
    assert refusal_counter([]) is None
    told: list[str] = []

    class Counting(HookedObserver):
        def hooks_for(self, transport: str) -> SessionHooks:
            return SessionHooks()

        def refused(self, reason: str) -> None:
            told.append(reason)

    server = Server("told", observers=[Counting()])
    async with serving(server) as port, memory_wire(server, MODERN):
        assert (await port.ask(request("PUT", "/mcp"))).status == 405
    assert told == ["405"]


async def test_streams_are_counted_while_they_are_open() -> None:
    """`mcpd_streams`: a GET, what a call became that said something, a subscription; no call that only takes time."""
    server, _ = metered()
    let_go, entered = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        entered.set()
        await let_go.wait()
        return "x"

    async with serving(server) as port:

        async def becomes(count: int) -> None:
            async with asyncio.timeout(30):
                while port.app.status().streams != count:
                    await asyncio.sleep(0)

        session = await port.open()
        waiting = await session.start(call("tools/call", {"name": "wait"}))
        async with asyncio.timeout(30):
            await entered.wait()
        assert port.app.status().streams == 0
        listening = await session.listen()
        await becomes(1)
        subscribed = await _subscribed(port)
        await becomes(2)
        subscribed.abort()
        await becomes(1)
        listening.abort()
        await becomes(0)
        let_go.set()
        assert (await waiting.answer()).status == 200


async def _subscribed(port: Port) -> Any:
    peer = await port.connect()
    peer.send(modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    await peer.head()
    return peer
