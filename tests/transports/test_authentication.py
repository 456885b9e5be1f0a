"""Whatever an authenticator does, it lets in those whom it names, and nobody else; by bytes, over each road."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.http_peer import Answer, Peer, Port, call, modern, post, serving
from support.http_stage import Stage
from support.websocket_peer import (
    TEXT,
    Bare,
    House,
    Peer as WebSocketPeer,
    Socket,
    frame,
    raw,
    serving as websockets,
    upgrade,
)
from support.wires import initialize

from mcpd import ANONYMOUS, Context, Principal, Refusal, Server
from mcpd.errors import ConfigurationError
from mcpd.server.serving import Settings, serve
from mcpd.transports.authentication import Authentication, RequestHeaders
from mcpd.transports.guards import Access, Guard

ADA = Principal("ada", issuer="https://idp", scopes=["read"], claims={"team": "red"})
TOKENS = {
    "Bearer ada": ADA,
    "Bearer ada-2": Principal("ada", issuer="https://idp", scopes=["read", "write"]),
    "Bearer eve": Principal("eve", issuer="https://idp"),
}


def by_table(headers: Mapping[str, str]) -> Principal | Refusal:
    """Who has a token of the table."""
    return TOKENS.get(headers.get("authorization", "")) or Refusal(401, "Send a token.\n")


async def by_table_later(headers: Mapping[str, str]) -> Principal | Refusal:
    await asyncio.sleep(0)
    return by_table(headers)


each_kind = pytest.mark.parametrize("authenticate", [by_table, by_table_later])


def watching() -> Server:
    """A server with a tool that says who calls it."""
    server = Server("who")

    def told(ctx: Context) -> str:
        return json.dumps([ctx.user.subject, sorted(ctx.user.scopes), dict(ctx.user.claims)])

    @server.tool
    async def who(ctx: Context) -> str:
        return told(ctx)

    @server.tool
    def who_sync(ctx: Context) -> str:
        return told(ctx)

    return server


def told_by(message: Any) -> Any:
    return json.loads(message["result"]["content"][0]["text"])


def bearer(name: str) -> dict[str, str | None]:
    return {"Authorization": f"Bearer {name}"}


async def ask(port: Port, name: str | None, tool: str = "who") -> Answer:
    headers = {} if name is None else bearer(name)
    return await port.ask(modern("tools/call", {"name": tool, "arguments": {}}, headers))


async def websocket(port: Port | House) -> WebSocketPeer:
    number = port.number if isinstance(port, Port) else port.port
    return WebSocketPeer(*await asyncio.open_connection("127.0.0.1", number, limit=1 << 26))


# --------------------------------------------------------------------------------- who is let in


@each_kind
@pytest.mark.parametrize("tool", ["who", "who_sync"])
async def test_a_tool_sees_who_sends_each_request(authenticate: Any, tool: str) -> None:
    async with serving(watching(), access=Access(authenticate=authenticate)) as port:
        assert told_by((await ask(port, "ada", tool)).json) == ["ada", ["read"], {"team": "red"}]
        assert told_by((await ask(port, "eve", tool)).json) == ["eve", [], {}]
        for name in (None, "mallory"):
            answer = await ask(port, name, tool)
            assert answer.status == 401
            assert answer["www-authenticate"] == "Bearer"
            assert answer.json == {"error": "invalid_token", "error_description": "Send a token."}


@each_kind
async def test_a_session_is_its_principals_whatever_its_token(authenticate: Any) -> None:
    async with serving(watching(), access=Access(authenticate=authenticate)) as port:
        hello = await port.ask(post(initialize("2025-11-25"), bearer("ada")))
        session = {"Mcp-Session-Id": hello["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}

        async def who(name: str) -> Answer:
            message = call("tools/call", {"name": "who", "arguments": {}})
            return await port.ask(post(message, {**session, **bearer(name)}))

        assert told_by((await who("ada")).json) == ["ada", ["read"], {"team": "red"}]
        # Refreshed, with more scopes: the session goes on, and the call has those of its own request.
        assert told_by((await who("ada-2")).json) == ["ada", ["read", "write"], {}]
        assert (await who("eve")).status == 404
        assert (await who("mallory")).status == 401
        assert told_by((await who("ada")).json)[0] == "ada"


@each_kind
async def test_a_sealed_state_is_its_principals(authenticate: Any) -> None:
    """AUTH-067, AUTH-068."""
    server = Server("asks")

    @server.tool
    async def hello(ctx: Context) -> str:
        answer = await ctx.elicit("Name?", {"type": "object", "properties": {"name": {"type": "string"}}}, key="n")
        return f"hello {answer.get()['name']}"

    params = {"name": "hello", "arguments": {}}
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    }
    async with serving(server, access=Access(authenticate=authenticate)) as port:
        first = (await port.ask(modern("tools/call", params, bearer("ada"), meta=meta))).json["result"]
        again = {
            **params,
            "requestState": first["requestState"],
            "inputResponses": {"n": {"action": "accept", "content": {"name": "Ada"}}},
        }
        stolen = await port.ask(modern("tools/call", again, bearer("eve"), meta=meta))
        assert stolen.code == -32602
        answer = await port.ask(modern("tools/call", again, bearer("ada-2"), meta=meta))
        assert answer.json["result"]["content"][0]["text"] == "hello Ada"


@each_kind
async def test_a_websocket_is_its_handshakes(authenticate: Any) -> None:
    """On the HTTP port."""
    async with serving(watching(), access=Access(authenticate=authenticate)) as port:
        peer = await websocket(port)
        message = call("tools/call", {"name": "who", "arguments": {}}, id=2)
        hello = json.dumps(initialize("2025-11-25")).encode()
        peer.send(upgrade(Authorization="Bearer ada"))
        assert (await peer.response())[0] == 101
        peer.send(frame(TEXT, hello) + frame(TEXT, json.dumps(message).encode()))
        assert "result" in json.loads(await peer.text())
        assert told_by(json.loads(await peer.text())) == ["ada", ["read"], {"team": "red"}]
        await peer.aclose()

        peer = await websocket(port)
        peer.send(upgrade(Authorization="Bearer mallory"))
        status, headers, body = await peer.response()
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert json.loads(body)["error"] == "invalid_token"
        await peer.aclose()


@each_kind
async def test_on_a_port_of_its_own_too(authenticate: Any) -> None:
    async with websockets(access=Access(authenticate=authenticate)) as house:
        async with raw(house, Authorization="Bearer ada") as peer:
            peer.send(frame(TEXT, b"1"))
            assert await peer.text() == b"1"
            assert house.guests[0].channel.origin().user == ADA
        async with raw(house, is_open=False) as peer:
            peer.send(upgrade())
            assert (await peer.response())[0] == 401
        assert len(house.guests) == 1


async def test_identify_goes_the_same_way() -> None:
    def identify(scope: Any) -> str | Principal | None:
        name = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        if name == "broken":
            raise RuntimeError("no user")
        return ADA if name == "ada" else name or None

    async with serving(watching(), identify=identify) as port:
        assert told_by((await ask(port, "ada")).json) == ["ada", ["read"], {"team": "red"}]
        assert told_by((await ask(port, "bob")).json) == ["bob", [], {}]
        assert told_by((await ask(port, None)).json) == ["", [], {}]
        assert (await ask(port, "broken")).status == 503


async def test_who_has_the_fixed_token_is_the_token() -> None:
    async with serving(watching(), access=Access(token="s3cret")) as port:
        assert told_by((await ask(port, "s3cret")).json) == ["token", [], {}]
        assert (await ask(port, "other")).status == 401


async def test_a_server_brings_its_own() -> None:
    server = watching()
    server.authenticate = by_table
    async with serving(server) as port:
        assert (await ask(port, None)).status == 401
        assert told_by((await ask(port, "eve")).json) == ["eve", [], {}]
    with pytest.raises(ConfigurationError, match="leave out the token"):
        server.asgi_app(token="t")
    with pytest.raises(ConfigurationError, match="identify="):
        server.asgi_app(identify=lambda scope: None)
    everybody = server.asgi_app(authenticate=lambda headers: ANONYMOUS)
    assert everybody.guard.authentication.check(RequestHeaders({})) == ANONYMOUS  # type: ignore[union-attr]
    assert Access(authenticate=by_table).is_guarded


# ------------------------------------------------------------------- authenticators that do not do


async def fails_later(headers: Mapping[str, str]) -> Principal:
    await asyncio.sleep(0)
    raise RuntimeError("secret-in-an-error")


async def exits(headers: Mapping[str, str]) -> Principal:
    raise SystemExit(3)


async def gives_itself_up(headers: Mapping[str, str]) -> Principal:
    raise asyncio.CancelledError


def fails(headers: Mapping[str, str]) -> Principal:
    raise KeyError("authorization")


async def nothing_later(headers: Mapping[str, str]) -> Any:
    return None


WRONG: list[Callable[[Mapping[str, str]], Any]] = [
    fails,
    fails_later,
    exits,
    gives_itself_up,
    nothing_later,
    lambda headers: None,
    lambda headers: True,
    lambda headers: "ada",
    lambda headers: Principal,
    lambda headers: Principal(7),  # type: ignore[arg-type]
    lambda headers: Refusal(200, "welcome"),
    lambda headers: Refusal(101, "welcome"),
    lambda headers: Refusal("401", "x"),  # type: ignore[arg-type]
    lambda headers: Refusal(401, 7),  # type: ignore[arg-type]
    lambda headers: Refusal(401, "\ud800"),
    lambda headers: Refusal(401, "x", (("WWW-Authenticate", "a\r\nSet-Cookie: b"),)),
    lambda headers: Refusal(401, "x", (("A\r\nB", "c"),)),
    lambda headers: Refusal(401, "x", ("WWW-Authenticate",)),  # type: ignore[arg-type]
    lambda headers: Refusal(401, "x", None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("number", range(len(WRONG)))
async def test_what_is_no_answer_is_503_and_logged(number: int, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(watching(), access=Access(authenticate=WRONG[number])) as port:
        with caplog.at_level(logging.ERROR, "mcpd"):
            answer = await ask(port, "ada")
            peer = await websocket(port)
            peer.send(upgrade(Authorization="Bearer ada"))
            status, headers, body = await peer.response()
        await peer.aclose()
    assert (answer.status, answer.json["error"]) == (503, "temporarily_unavailable")
    assert answer["retry-after"] == headers["retry-after"] == "5"
    assert (status, json.loads(body)["error"]) == (503, "temporarily_unavailable")
    assert "secret-in" not in body + answer.text
    assert len([record for record in caplog.records if "uthenticator" in record.message]) == 2


async def test_one_that_hangs_is_503_and_given_up(caplog: pytest.LogCaptureFixture) -> None:
    left: list[str] = []

    async def hangs(headers: Mapping[str, str]) -> Principal:
        try:
            await asyncio.Event().wait()
        finally:
            left.append(headers["authorization"])
        raise AssertionError

    access = Access(authenticate=hangs, authenticate_timeout=0.05)
    async with serving(watching(), access=access) as port:
        assert (await ask(port, "ada")).status == 503
        peer = await websocket(port)
        peer.send(upgrade(Authorization="Bearer eve"))
        assert (await peer.response())[0] == 503
        await peer.aclose()
    assert sorted(left) == ["Bearer ada", "Bearer eve"]
    assert "did not answer within 0.05 s" in caplog.text


async def test_how_long_it_may_take_is_an_option_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def hangs(headers: Mapping[str, str]) -> Principal:
        await asyncio.Event().wait()
        raise AssertionError

    server = Server("t", authenticate=hangs, authenticate_timeout=0.05)
    urls: asyncio.Queue[str] = asyncio.Queue()
    served = asyncio.create_task(serve(server, Settings(http="127.0.0.1:0", announce=urls.put_nowait)))
    port = int((await urls.get()).split(":")[2].partition("/")[0])
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
    assert (await peer.ask(modern("server/discover"))).status == 503
    await peer.aclose()
    served.cancel()
    await asyncio.wait([served])
    assert "did not answer within 0.05 s" in caplog.text

    assert server.asgi_app().guard.authentication is not None
    with pytest.raises(ValueError, match="authenticate_timeout more than 0"):
        Server("t", authenticate_timeout=0)


async def test_one_that_cannot_be_cancelled_is_left_behind() -> None:
    release = asyncio.Event()

    async def stubborn(headers: object) -> Principal:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass
        return ADA

    authentication = Authentication(stubborn, 0.01)
    found = authentication.check(RequestHeaders({}))
    assert not isinstance(found, Principal | Refusal)
    refusal = await found
    assert isinstance(refusal, Refusal)
    assert refusal.status == 503
    release.set()
    await asyncio.gather(*authentication._tasks)


async def test_two_credentials_are_refused() -> None:
    seen: list[object] = []

    def remembers(headers: Mapping[str, str]) -> Principal:
        seen.append(headers)
        return ADA

    twice = "Authorization: Bearer ada\r\nAuthorization: Bearer eve\r\n\r\n"
    for access, status in ((Access(authenticate=remembers), 400), (Access(token="ada"), 401)):
        async with serving(watching(), access=access) as port:
            data = modern("tools/call", {"name": "who", "arguments": {}})
            head, _, body = data.partition(b"\r\n\r\n")
            answer = await port.ask(head + b"\r\n" + twice.encode() + body)
            assert answer.status == status
            assert answer["www-authenticate"].startswith("Bearer error=")
            peer = await websocket(port)
            peer.send(upgrade().removesuffix(b"\r\n") + twice.encode())
            assert (await peer.response())[0] == status
            await peer.aclose()
    assert seen == []


async def test_a_token_in_the_query_is_none() -> None:
    seen: list[dict[str, str]] = []

    def remembers(headers: Mapping[str, str]) -> Principal | Refusal:
        seen.append(dict(headers))
        return by_table(headers)

    async with serving(watching(), access=Access(authenticate=remembers)) as port:
        for query in ("?token=ada", "?access_token=ada", "?Authorization=Bearer%20ada"):
            data = modern("tools/call", {"name": "who", "arguments": {}}).replace(b"/mcp ", f"/mcp{query} ".encode(), 1)
            assert (await port.ask(data)).status == 401
            peer = await websocket(port)
            peer.send(upgrade(path=f"/mcp{query}"))
            assert (await peer.response())[0] == 401
            await peer.aclose()
    assert len(seen) == 6
    assert "ada" not in json.dumps(seen)


# ----------------------------------------------------------------------- handshakes that wait


class Waiting(Bare):
    """A WebSocket port without a network, whose authenticator answers when `answer` is set."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.known: asyncio.Future[Principal | Refusal] = asyncio.get_running_loop().create_future()
        self.asked = 0

        async def authenticate(headers: Mapping[str, str]) -> Principal | Refusal:
            self.asked += 1
            return await asyncio.shield(self.known)

        self.endpoint.guard = Guard(Access(authenticate=authenticate, authenticate_timeout=60))

    def knock(self) -> Socket:
        channel = self.endpoint.connect()
        socket = Socket(1 << 60)
        socket.protocol = channel
        channel.connection_made(socket)
        channel.data_received(upgrade())
        return socket


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_thousand_that_wait_are_bounded() -> None:
    port = Waiting(max_connections=2000)
    sockets = [port.knock() for _ in range(1000)]
    await turn()
    assert port.asked == port.endpoint.authenticating == 256
    refused = [socket for socket in sockets if b"".join(socket.writes).startswith(b"HTTP/1.1 503 ")]
    assert len(refused) == 744
    waiting = [socket for socket in sockets if not socket.writes]
    assert len(waiting) == 256
    # Those who leave make room.
    for socket in waiting[:100]:
        socket.abort()
    await turn()
    assert port.endpoint.authenticating == 156
    late = port.knock()
    port.known.set_result(ADA)
    await turn()
    for socket in (*waiting[100:], late):
        assert b"".join(socket.writes).startswith(b"HTTP/1.1 101 ")
    assert len(port.guests) == 157
    assert port.endpoint.authenticating == 0
    for socket in sockets:
        socket.abort()
    late.abort()


async def test_what_comes_early_is_bounded() -> None:
    port = Waiting()
    small, large = port.knock(), port.knock()
    await turn()
    small.protocol.data_received(frame(TEXT, b"early"))
    large.protocol.data_received(frame(TEXT, b"x" * 20_000))
    assert large.is_aborted
    assert not small.is_aborted
    assert port.guests == []
    port.known.set_result(ADA)
    await turn()
    assert [guest.frames for guest in port.guests] == [[b"early"]]
    small.abort()


async def test_who_leaves_is_asked_about_no_more() -> None:
    port = Waiting()
    socket = port.knock()
    await turn()
    socket.protocol.eof_received()
    await turn()
    assert socket.is_aborted
    assert port.endpoint.authenticating == 0
    port.known.set_result(ADA)
    await turn()
    assert (port.guests, socket.writes) == ([], [])


async def test_who_is_known_too_late_is_not_let_in() -> None:
    port = Waiting()
    socket = port.knock()
    await turn()
    port.endpoint.pause()
    port.known.set_result(ADA)
    await turn()
    assert b"".join(socket.writes).startswith(b"HTTP/1.1 503 ")
    assert port.guests == []
    socket.abort()


async def test_the_end_of_the_server_does_not_wait_for_authenticators() -> None:
    port = Waiting()
    sockets = [port.knock() for _ in range(3)]
    await turn()
    async with asyncio.timeout(60):
        await port.endpoint.aclose()
    assert all(socket.is_aborted for socket in sockets)
    await turn()
    assert port.endpoint.authenticating == 0


async def test_an_asgi_websocket_waits_too() -> None:
    stage = Stage()
    app = stage.server.asgi_app(authenticate=by_table_later)
    for token, first in ((b"Bearer ada", "websocket.accept"), (b"Bearer mallory", "websocket.close")):
        incoming: asyncio.Queue[Any] = asyncio.Queue()
        sent: asyncio.Queue[Any] = asyncio.Queue()
        scope = {"type": "websocket", "path": "/mcp", "headers": [(b"host", b"localhost"), (b"authorization", token)]}
        incoming.put_nowait({"type": "websocket.connect"})
        task = asyncio.create_task(app(scope, incoming.get, sent.put))  # type: ignore[arg-type]
        assert (await sent.get())["type"] == first
        incoming.put_nowait({"type": "websocket.disconnect", "code": 1001})
        await task
