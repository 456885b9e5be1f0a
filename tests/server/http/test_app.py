"""What stands before the endpoint and beside it: Host and Origin, token, CORS, kinds of bodies, health, paths."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from support.http_peer import BOTH, MODERN, Answer, Port, call, initialize, modern, post, request, serving
from support.http_stage import Stage

from mcpd.errors import ConfigurationError
from mcpd.server.http import HttpSettings
from mcpd.transports.guards import Access

PAGE = "https://app.example.com"


def from_page(method: str, headers: dict[str, str], origin: str = PAGE, path: str = "/mcp") -> bytes:
    return request(method, path, [("Origin", origin), *headers.items()])


# ------------------------------------------------------------------------------------ where from, who


@pytest.mark.parametrize("host", ["evil.example.com", "evil.example.com:80", "127.0.0.1.evil.example.com"])
async def test_a_foreign_host_is_refused(host: str) -> None:
    """S25-030, S26-051: DNS rebinding sends the attacker's name; the answer names the setting."""
    stage = Stage()
    async with serving(stage.server) as port:
        for data in (post(initialize(), host=host), request("GET", "/healthz", host=host)):
            answer = await port.ask(data)
            assert answer.status == 403
            assert "--allow-host" in answer.text


@pytest.mark.parametrize("origin", ["http://evil.example.com", "null", "https://localhost.evil.com", "file://"])
async def test_a_foreign_origin_is_refused(origin: str) -> None:
    """S25-030, S25-031, S26-051, S26-052: 403, on every method and path, in both eras."""
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        session.extra = {"Origin": origin}
        for data in (
            modern("tools/list", headers={"Origin": origin}),
            session.bytes(call("ping")),
            session.get(),
            session.delete(),
            from_page("GET", {}, origin, "/readyz"),
            from_page("OPTIONS", {"Access-Control-Request-Method": "POST"}, origin),
        ):
            answer = await port.ask(data)
            assert answer.status == 403
            assert "--allow-origin" in answer.text
            assert not any(name.startswith("access-control") for name, _ in answer.headers)
        session.extra = {}
        assert (await session.ask("ping")).status == 200


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]"])
async def test_this_machine_is_welcome(name: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        for origin in (None, f"http://{name}:{port.number}", f"http://{name}"):
            answer = await port.ask(post(initialize(), {"Origin": origin}, host=f"{name}:{port.number}"))
            assert answer.status == 200


async def test_named_hosts_and_origins_are_welcome() -> None:
    stage = Stage()
    access = Access(hosts=("mcp.example.com",), origins=(PAGE,))
    async with serving(stage.server, access=access) as port:
        assert (await port.ask(post(initialize(), {"Origin": PAGE}, host="mcp.example.com"))).status == 200
        assert (await port.ask(post(initialize(), host="other.example.com"))).status == 403


async def test_a_token_is_asked_for() -> None:
    """S26-185: before anything of the request is looked at, but after Host and Origin."""
    stage = Stage()
    async with serving(stage.server, access=Access(token="secret")) as port:
        for authorization in (None, "Bearer wrong", "Basic secret", "secret"):
            for data in (
                post(b"rubbish", {"Authorization": authorization, "Accept": "none"}),
                request("GET", "/mcp", [("Authorization", authorization)] if authorization else []),
            ):
                answer = await port.ask(data)
                assert answer.status == 401
                assert answer["www-authenticate"].startswith("Bearer")
        assert (await port.ask(post(initialize(), {"Authorization": "Bearer secret"}))).status == 200
        assert (await port.ask(post(b"", {"Origin": "http://evil"}))).status == 403
        assert (await port.ask(request("GET", "/healthz"))).status == 200


async def test_the_same_source_is_checked_once_and_the_memory_of_it_is_bounded() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        for number in range(1100):
            answer = await peer.ask(request("GET", "/healthz", host=f"h{number}.example.com"))
            assert answer.status == 403
        assert len(port.app._checked) <= 1024


async def test_two_hosts_are_none() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        data = post(initialize()).replace(b"Host: localhost\r\n", b"Host: localhost\r\nHost: evil.example.com\r\n")
        assert (await port.ask(data)).status in (400, 403)


# ---------------------------------------------------------------------------------------------- CORS


def cors(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers if name.startswith("access-control") or name == "vary"}


async def test_a_named_page_gets_what_a_browser_needs() -> None:
    """Every answer can be read, also a refusal; a session id too."""
    stage = Stage()
    expected = {
        "access-control-allow-origin": PAGE,
        "access-control-expose-headers": "DPoP-Nonce, Mcp-Session-Id, WWW-Authenticate",
        "vary": "Origin",
    }
    async with serving(stage.server, access=Access(origins=(PAGE,), token="t")) as port:
        allowed = {"Origin": PAGE, "Authorization": "Bearer t"}
        answer = await port.ask(post(initialize(), allowed))
        assert answer.status == 200
        assert cors(answer) == expected
        answer = await port.ask(post(initialize(), {"Origin": PAGE}))
        assert (answer.status, cors(answer)) == (401, expected)
        answer = await port.ask(post(b"{", allowed))
        assert (answer.status, cors(answer)) == (400, expected)
        meta = {"_meta": {"progressToken": 1}}
        answer = await port.ask(post(call("tools/call", {"name": "count", "arguments": {"steps": 2}, **meta}), allowed))
        assert answer["content-type"] == "text/event-stream"
        assert cors(answer) == expected


async def test_a_preflight_is_answered_without_a_token() -> None:
    stage = Stage()
    async with serving(stage.server, access=Access(origins=(PAGE,), token="t")) as port:
        wanted = "content-type,mcp-protocol-version,mcp-method,mcp-name,Mcp-Param-Region,x-own, mcp-param-b\xe4d"
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
        answer = await port.ask(from_page("OPTIONS", asked))
        assert (answer.status, answer.body) == (204, b"")
        assert cors(answer) == {
            "access-control-allow-origin": PAGE,
            "access-control-allow-methods": "GET, POST, DELETE",
            "access-control-allow-headers": (
                "Accept, Authorization, Content-Type, DPoP, Last-Event-ID, Mcp-Method, Mcp-Name, MCP-Protocol-Version, "
                "Mcp-Session-Id, Mcp-Param-Region, x-own"
            ),
            "access-control-expose-headers": "DPoP-Nonce, Mcp-Session-Id, WWW-Authenticate",
            "access-control-max-age": "7200",
            "vary": "Origin",
        }


async def test_pages_of_this_machine_that_nobody_named_read_nothing() -> None:
    """The guard lets them in, as it does any local program; a browser gives their scripts no answer."""
    stage = Stage()
    asked = {"Access-Control-Request-Method": "POST"}
    local = "http://localhost:3000"
    async with serving(stage.server) as port:
        answer = await port.ask(from_page("OPTIONS", asked, local))
        assert answer.status == 405
        assert cors(answer) == {}
        assert cors(await port.ask(post(initialize(), {"Origin": local}))) == {}
    async with serving(stage.server, access=Access(origins=(PAGE,))) as port:
        answer = await port.ask(from_page("OPTIONS", asked, local))
        assert answer.status == 204
        assert cors(answer) == {"vary": "Origin"}
        assert cors(await port.ask(post(initialize()))) == {"vary": "Origin"}
        answer = await port.ask(from_page("OPTIONS", {}))
        assert answer.status == 405


# -------------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    "accept",
    [
        BOTH,
        "text/event-stream,application/json",
        "text/event-stream;q=0.9, application/json",
        "*/*",
        "application/*, text/*",
        "APPLICATION/JSON, TEXT/EVENT-STREAM",
        None,
    ],
)
async def test_accept_that_takes_either(accept: str | None) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        assert (await port.ask(post(initialize(), {"Accept": accept}))).status == 200


@pytest.mark.parametrize(
    "accept", ["application/json", "text/event-stream", "text/html", "", "application/json, text/event-stream;q=0"]
)
async def test_accept_that_does_not(accept: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        for data in (post(initialize(), {"Accept": accept}), modern("tools/list", headers={"Accept": accept})):
            answer = await port.ask(data)
            assert (answer.status, answer.code) == (406, -32600)
            assert "id" not in answer.json


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", 'APPLICATION/JSON;charset="UTF-8"']
)
async def test_a_body_of_json(kind: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        assert (await port.ask(post(initialize(), {"Content-Type": kind}))).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": None},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/jsonx"},
        {"Content-Type": "text/plain; application/json"},
        {"Content-Encoding": "gzip"},
    ],
    ids=str,
)
async def test_a_body_of_anything_else_is_415(headers: dict[str, str | None]) -> None:
    """What a web page can send without asking is among it."""
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.ask(post(initialize(), headers))
        assert (answer.status, answer.code) == (415, -32600)


async def test_a_body_over_the_limit_is_413_before_it_is_read() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_body_bytes=1000)) as port:
        peer = await port.connect()
        peer.send(request("POST", "/mcp", [("Content-Type", "application/json"), ("Content-Length", "1001")]))
        answer = await peer.answer()
        assert (answer.status, answer.code) == (413, -32600)
        assert "max_body_bytes" in answer.error["message"]
        assert answer["connection"] == "close"
        assert await peer.rest() == b""
        peer = await port.connect()
        peer.send(post(b" " * 3_000_000))
        assert (await peer.answer()).status == 413  # and no reset, though most of it was not read
        fits = post(call("ping", {"_meta": {"x": "y" * 800}}))
        assert (await port.ask(fits)).status == 200


async def test_a_chunked_body_is_counted_as_it_comes() -> None:
    stage = Stage()
    chunked = [("Content-Type", "application/json"), ("Transfer-Encoding", "chunked")]
    async with serving(stage.server, HttpSettings(max_body_bytes=1000)) as port:
        peer = await port.connect()
        peer.send(request("POST", "/mcp", chunked))
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        for index in range(0, len(body), 7):
            part = body[index : index + 7]
            peer.send(b"%x\r\n%b\r\n" % (len(part), part))
        assert (await peer.ask(b"0\r\n\r\n")).json["result"] == {}
        peer = await port.connect()
        peer.send(request("POST", "/mcp", chunked) + b"400\r\n" + b" " * 0x400 + b"\r\n")
        assert (await peer.answer()).status == 413


async def test_a_body_that_does_not_come_is_408() -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(body_timeout=0.05)) as port:
        peer = await port.connect()
        data = post(initialize())
        peer.send(data[:-5])
        answer = await peer.answer()
        assert (answer.status, answer["connection"]) == (408, "close")


async def test_expect_continue() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        head, _, body = post(initialize(), {"Expect": "100-continue"}).partition(b"\r\n\r\n")
        peer.send(head + b"\r\n\r\n")
        assert (await peer.head()).status == 100
        assert (await peer.ask(body)).status == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "OPTIONS", "TRACE"])
async def test_other_methods_are_405(method: str) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        peer.send(request(method, "/mcp"))
        answer = await peer.head()
        assert answer.status == 405
        assert answer["allow"] == "GET, POST, DELETE"


# ------------------------------------------------------------------------------------------- beside it


async def test_health() -> None:
    stage = Stage()
    async with serving(stage.server, access=Access(token="t")) as port:
        for path in ("/healthz", "/readyz"):
            answer = await port.ask(request("GET", path))
            assert (answer.status, answer.body) == (200, b"ok\n")
            peer = await port.connect()
            peer.send(request("HEAD", path))
            assert (await peer.head()).status == 200
            wrong = await port.ask(post(b"", path=path))
            assert (wrong.status, wrong["allow"]) == (405, "GET, HEAD")
        port.app.drain()
        assert (await port.ask(request("GET", "/healthz"))).status == 200
        assert (await port.ask(request("GET", "/readyz"))).status == 503


async def test_while_draining_no_session_begins_and_the_rest_goes_on() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        session = await port.open()
        port.app.drain()
        answer = await port.ask(post(initialize()))
        assert (answer.status, "retry-after" in answer) == (503, True)
        assert (await session.ask("ping")).status == 200
        assert (await port.modern("tools/list")).status == 200


async def _upgrade(port: Port, path: str) -> int:
    peer = await port.connect()
    key = ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    wish = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), key]
    peer.send(request("GET", path, wish))
    status = (await peer.head()).status
    peer.abort()
    return status


async def test_the_path_is_a_setting() -> None:
    stage = Stage()
    for path, inside in (("/", "/"), ("/deep/path/", "/deep/path"), ("/m", "/m/")):
        async with serving(stage.server, HttpSettings(path=path)) as port:
            assert (await port.ask(post(initialize(), path=inside))).status == 200
            assert (await port.ask(post(initialize(), path="/nowhere"))).status == 404
            assert await _upgrade(port, inside) == 101
            assert await _upgrade(port, "/") == 101
            assert await _upgrade(port, "/nowhere") == 404
    with pytest.raises(ConfigurationError, match="write an absolute path"):
        stage.server.asgi_app(settings=HttpSettings(path="mcp"))


async def test_each_request_is_a_line_of_the_debug_log(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        with caplog.at_level(logging.DEBUG, "mcpd.http"):
            await port.modern("tools/list")
            await port.ask(request("GET", "/nowhere"))
        lines = [record.getMessage() for record in caplog.records if record.name == "mcpd.http"]
        assert lines[0].startswith("POST /mcp 200 ")
        assert lines[1].startswith("GET /nowhere 404 ")
        caplog.clear()
        with caplog.at_level(logging.INFO, "mcpd.http"):
            await port.modern("tools/list")
        assert not caplog.records


async def test_refusals_are_logged_without_the_credential(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    async with serving(stage.server, access=Access(token="secret")) as port:
        await port.ask(post(initialize(), {"Authorization": "Bearer guess"}))
        await port.ask(post(initialize(), host="evil.example.com"))
    text = caplog.text
    assert "401" in text
    assert "evil.example.com" in text
    assert "guess" not in text
    assert "secret" not in text


# --------------------------------------------------------------------------------- as an ASGI application


class Caller:
    """Calls an application as an ASGI server does."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, path: str, body: bytes, root_path: str = "", **headers: str) -> tuple[int, bytes]:
        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "root_path": root_path,
            "headers": [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                *((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()),
            ],
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


async def test_it_can_be_mounted() -> None:
    """Servers differ in whether `path` holds the place of the mount."""
    stage = Stage()
    ask = Caller(stage.server.asgi_app())
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    for path, root_path in (("/mcp", ""), ("/api/mcp", "/api"), ("/mcp", "/api")):
        status, answer = await ask(path, body, root_path)
        assert (status, answer) == (200, b'{"jsonrpc":"2.0","id":1,"result":{}}')
    ask = Caller(stage.server.asgi_app(settings=HttpSettings(path="/")))
    for path, root_path in (("/api", "/api"), ("/api/", "/api"), ("", "/api"), ("/", "")):
        assert (await ask(path, body, root_path))[0] == 200
    assert (await ask("/api/mcp", body, "/api"))[0] == 404


async def test_settings_of_a_mounted_application() -> None:
    stage = Stage()
    app = stage.server.asgi_app(
        token="t", allowed_hosts=["mcp.example.com"], allowed_origins=[PAGE], identify=lambda scope: "ada"
    )
    ask = Caller(app)
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert (await ask("/mcp", body))[0] == 401
    assert (await ask("/mcp", body, authorization="Bearer t"))[0] == 200
    assert (await ask("/mcp", body, authorization="Bearer t", origin=PAGE))[0] == 200
    assert (await ask("/mcp", body, authorization="Bearer t", origin="http://evil"))[0] == 403


async def test_lifespan() -> None:
    """Start-up needs nothing; shut-down ends the sessions."""
    stage = Stage()
    app = stage.server.asgi_app()
    ask = Caller(app)
    status, _ = await ask("/mcp", post(initialize()).partition(b"\r\n\r\n")[2])
    assert status == 200
    assert len(app.connections) == 1
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    said: list[Any] = []

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        said.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert not app.connections


async def test_a_client_that_leaves_before_its_body_is_whole() -> None:
    stage = Stage()
    app = stage.server.asgi_app()
    messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    for left in (messages, messages[1:]):
        queue = list(left)

        async def receive(queue: list[Any] = queue) -> Any:
            return queue.pop(0)

        async def send(message: Any) -> None:
            raise AssertionError(message)

        await app({"type": "http", "method": "POST", "path": "/mcp", "headers": headers}, receive, send)


async def test_the_port_is_one_of_both_eras(request: pytest.FixtureRequest) -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        peer = await port.connect()
        hello = await peer.ask(post(initialize()))
        found = await peer.ask(modern("server/discover"))
        assert hello.json["result"]["protocolVersion"] == "2025-11-25"
        assert MODERN in found.json["result"]["supportedVersions"]
        session_id = hello["mcp-session-id"]
        pong = await peer.ask(post(call("ping", id=2), {"Mcp-Session-Id": session_id}))
        assert pong.json["result"] == {}


def test_ports_know_their_number() -> None:
    class Listening:
        app = None
        url = "http://127.0.0.1:4711/mcp"

    assert Port(Listening()).number == 4711  # type: ignore[arg-type]
