"""`mcpd doctor` and URLs: servers of raw HTTP that are odd in one way each, and our own."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.login_world import world
from support.raw_http import Asked, as_json, raw_server, reply

from mcpd import Client, Server
from mcpd.cli.doctor import http, urls
from mcpd.cli.doctor.report import Report, Step
from mcpd.cli.doctor.urls import try_url
from mcpd.client.targets.named import UrlTarget
from mcpd.transports.websocket.server import WebSocketListener

VERSIONS = ("2025-11-25", "2025-06-18")
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n"


def good(request: Asked) -> bytes | None:
    """A legacy server without faults."""
    if request.headers.get("origin") or "stranger" in request.headers["host"]:
        return reply(403, b"not you")
    if request.path != "/mcp":
        return reply(404, b"nothing here")
    if request.method == "GET":
        return STREAM
    if request.method != "POST":
        return reply(204)
    asked = request.message
    params = asked.get("params", {})
    if asked.get("method") == "initialize":
        wanted = params["protocolVersion"]
        result = {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        }
        return as_json({"jsonrpc": "2.0", "id": asked["id"], "result": result}, mcp_session_id="s1")
    if "id" not in asked:
        return reply(202)
    if asked["method"] == "tools/list":
        return as_json({"jsonrpc": "2.0", "id": asked["id"], "result": {"tools": []}})
    error = {"code": -32601, "message": "Method not found"}
    return as_json({"jsonrpc": "2.0", "id": asked["id"], "error": error}, 400 if "discover" in asked["method"] else 200)


Answer = Callable[[Asked], bytes | None]


def but(**how: Answer) -> Answer:
    """A good server, but for requests of these HTTP methods."""
    return lambda request: how.get(request.method, good)(request)


async def tried(url: str, timeout: float = 20.0, **how: Any) -> list[Step]:
    report = Report()
    await try_url(UrlTarget(url, **how), report, timeout)
    return report.steps


async def tried_raw(answer: Answer, path: str = "/mcp", timeout: float = 20.0, **how: Any) -> list[Step]:
    async with raw_server(answer) as server:
        return await tried(server.url + path, timeout, **how)


def of(steps: list[Step], name: str) -> Step:
    found = [step for step in steps if step.name == name]
    assert found, [(step.name, step.text) for step in steps]
    return next((step for step in found if step.status == "problem"), found[0])


def troubles(steps: list[Step]) -> list[tuple[str, str]]:
    return [(step.name, step.status) for step in steps if step.status in ("warning", "problem")]


async def test_a_good_server_has_no_trouble() -> None:
    async with raw_server(good) as server:
        steps = await tried(f"{server.url}/mcp")
    assert troubles(steps) == []
    assert [step.name for step in steps] == [
        "connection (TCP)", "endpoint", "token", "Origin", "Host", "CORS", "streams", "conversation", "name",
        "extensions", "tools", "call", "versions",
    ]  # fmt: skip
    assert of(steps, "versions").text == "2025-11-25, 2025-06-18"
    assert of(steps, "name").text == "raw 1"
    assert "one began at once" in of(steps, "streams").text
    # Sessions that were opened are closed again.
    opened = sum(asked.message.get("method") == "initialize" and "origin" not in asked.headers
                 and "stranger" not in asked.headers["host"] for asked in server.asked)  # fmt: skip
    assert sum(asked.method == "DELETE" for asked in server.asked) == opened


@pytest.mark.medium
async def test_a_server_of_new_versions_only() -> None:
    def modern(request: Asked) -> bytes | None:
        asked = request.message
        if request.method != "POST" or request.headers.get("origin") or "stranger" in request.headers["host"]:
            return reply(403 if request.method == "POST" else 405)
        if asked["method"] == "server/discover":
            assert request.headers["mcp-method"] == "server/discover"
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0}
        elif asked["method"] == "tools/list":
            result = {"tools": [], "ttlMs": 0, "cacheScope": "private"}
        elif asked["method"] == "subscriptions/listen":
            return STREAM
        else:
            error = {"code": -32022, "message": "old", "data": {"supported": ["2026-07-28"], "requested": "x"}}
            return as_json({"jsonrpc": "2.0", "id": asked["id"], "error": error}, 400)
        return as_json({"jsonrpc": "2.0", "id": asked["id"], "result": {"resultType": "complete"} | result})

    steps = await tried_raw(modern, timeout=1.0)
    assert of(steps, "endpoint").status == "ok"
    assert of(steps, "versions").text == "2026-07-28"
    assert of(steps, "streams").status == "ok"
    assert [name for name, _ in troubles(steps)] == ["name"]  # it does not say what it is called


# ------------------------------------------------------------------------------------ the way there


async def test_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (step,) = await tried(f"http://127.0.0.1:{free.getsockname()[1]}/mcp")
    assert step.status == "problem"
    assert "127.0.0.1 refused" in step.text


async def test_a_name_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    (step,) = await tried("https://nowhere.invalid/mcp")
    assert step.name == "name (DNS)"
    assert step.text == "nowhere.invalid has no address: Name or service not known"


async def test_one_of_two_addresses_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(good) as server:
        port = int(server.url.rpartition(":")[2])
        report = Report()
        assert await urls._connect("localhost", port, ["127.0.0.2", "127.0.0.1"], report)
    (step,) = report.steps
    assert step.status == "warning"
    assert step.text == "127.0.0.1 answers, 127.0.0.2 refused"


async def test_a_proxy_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://me:secret@127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    steps = await tried("http://mcp.example/mcp")
    assert steps[0].name == "proxy"
    assert "127.0.0.1:9" in steps[0].text
    assert "secret" not in str(steps)
    assert of(steps, "endpoint").status == "problem"


async def test_unix_sockets(tmp_path: Path) -> None:
    for path, text in [("none", "No such file"), (".", "is not a socket")]:
        (step,) = await tried("http://localhost/mcp", socket=str(tmp_path / path))
        assert step.status == "problem"
        assert text in step.text


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with the key and certificate of 127.0.0.1, for a week."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "7",
         "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", f"{path}.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def tls_of(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


async def test_certificates(certificate: Path) -> None:
    async with raw_server(good, tls_of(certificate)) as server:
        steps = await tried(f"{server.url}/mcp")
        assert steps[-1].name == "certificate (TLS)"
        assert steps[-1].status == "problem"
        assert "self-signed certificate" in steps[-1].text
        assert "is self-signed" in steps[-1].advice

        trusted = await tried(f"{server.url}/mcp", ca_file=str(certificate))
        step = of(trusted, "certificate (TLS)")
        assert step.status == "warning"  # it ends within two weeks
        assert "for 127.0.0.1" in step.text
        assert "renew it: it expires in 6 days" in step.advice
        assert of(trusted, "versions").status == "ok"

        plain = await tried(f"{server.url.replace('https', 'http')}/mcp")
        assert of(plain, "endpoint").status == "problem"


async def test_plain_http_where_tls_is_wanted() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(reply(400))
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        step = (await tried(f"https://127.0.0.1:{port}/mcp"))[-1]
    assert "no TLS connection" in step.text
    assert step.advice == f"does it speak plain http there? Then write http://127.0.0.1:{port}/mcp"


# --------------------------------------------------------------------------------------- the endpoint


async def test_it_is_somewhere_else() -> None:
    step = of(await tried_raw(good, "/other"), "endpoint")
    assert step.text == "no server at /other (status 404: nothing here)"
    assert step.advice.endswith("/mcp")


@pytest.mark.parametrize(
    ("answer", "text", "advice"),
    [
        (reply(200, b"<html>Welcome", content_type="text/html"), "status 200", "this is a web page"),
        (reply(404, b"no"), "status 404: no", "is the path right?"),
        (reply(403, b"forbidden"), "status 403: forbidden", "it may require a token (--token-file FILE), or not allow"),
        (reply(403, b"Host 'x' is not allowed"), "status 403: Host", "for the reason that it gives"),
        (reply(415), "status 415", "Content-Type: application/json"),
        (reply(421), "status 421", "does not know this host name"),
        (reply(429), "status 429", "try again later"),
        (reply(502, b"Bad Gateway"), "status 502: Bad Gateway", "or the proxy in front of it"),
        (reply(400, b"no session"), "status 400: no session", "answer `initialize` in every version"),
        (as_json({"ok": True}), "status 200", "answer `initialize` with a JSON-RPC result"),
        (reply(302, location="https://login.example/"), "on another origin", "use the URL of the server itself"),
        (reply(307, location="/mcp"), "redirects too often", "redirects every request to itself"),
        (as_json({"much": " " * 5_000_000}), "with more than 4 MiB", "answer `initialize` with a JSON-RPC result"),
        (b"SSH-2.0-OpenSSH_9\r\n", "an invalid HTTP response", "use the URL of the server itself"),
    ],
)
async def test_answers_that_are_none(answer: bytes, text: str, advice: str) -> None:
    step = of(await tried_raw(lambda request: answer), "endpoint")
    assert step.status == "problem"
    assert text in step.text
    assert advice in step.advice


async def test_http_where_a_websocket_is_looked_for() -> None:
    async with raw_server(lambda request: reply(404, b"no")) as server:
        step = of(await tried(server.url.replace("http://", "ws://") + "/mcp"), "conversation")
    assert "refused the WebSocket: 404" in step.text
    assert f"If the server speaks HTTP there, write {server.url}/mcp" in step.advice


@pytest.mark.medium
async def test_silence() -> None:
    step = of(await tried_raw(lambda request: None, timeout=0.3), "endpoint")
    assert "did not answer within 0.3 s" in step.text
    assert "raise --timeout if it is slow" in step.advice


async def test_a_redirect_that_not_all_follow() -> None:
    def moved(request: Asked) -> bytes | None:
        if request.path == "/mcp/":
            return reply(307, location="/mcp")
        return good(request)

    step = of(await tried_raw(moved, "/mcp/"), "endpoint")
    assert step.status == "warning"
    assert "redirects to" in step.text


async def test_the_transport_of_2024(monkeypatch: pytest.MonkeyPatch) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: /message\n\n"

    def old(request: Asked) -> bytes | None:
        if request.path.startswith("/sse") and request.method == "GET":
            return head
        return reply(404 if request.path != "/sse" else 405)

    elsewhere = of(await tried_raw(old, "/other", 2.0), "endpoint")
    assert elsewhere.status == "problem"
    assert "HTTP+SSE of 2024-11-05" in elsewhere.advice
    here = await tried_raw(old, "/sse", 0.5)
    assert of(here, "endpoint").status == "warning"
    assert '"type": "sse"' in of(here, "endpoint").advice
    assert of(here, "conversation").status == "problem"  # it never answers there


# -------------------------------------------------------------------------------------------- the token

CHALLENGE = 'Bearer resource_metadata="/.well-known/oauth-protected-resource/mcp"'


def guarded(documents: dict[str, Any], challenge: str | None = CHALLENGE) -> Answer:
    """A server that wants the token `good`; `ORIGIN` in the documents is where it is."""

    def answer(request: Asked) -> bytes | None:
        if request.path in documents:
            origin = f"http://{request.headers['host']}"
            assert "authorization" not in request.headers
            text = json.dumps(documents[request.path]).replace("ORIGIN", origin)
            return reply(200, text.encode(), content_type="application/json")
        if request.headers.get("authorization") == "Bearer good":
            return good(request)
        return reply(401, b"who are you", **({} if challenge is None else {"www_authenticate": challenge}))

    return answer


RESOURCE = {"resource": "ORIGIN/mcp", "authorization_servers": ["ORIGIN"]}
ISSUER = {
    "issuer": "ORIGIN",
    "authorization_endpoint": "ORIGIN/authorize",
    "token_endpoint": "ORIGIN/token",
    "code_challenge_methods_supported": ["S256"],
    "registration_endpoint": "ORIGIN/register",
}
WELL = "/.well-known/oauth-protected-resource"
WELL_MCP = f"{WELL}/mcp"
SERVER = "/.well-known/oauth-authorization-server"


async def test_a_token_is_wanted_and_can_be_had() -> None:
    steps = await tried_raw(guarded({f"{WELL}/mcp": RESOURCE, SERVER: ISSUER}))
    assert troubles(steps) == []
    assert [step.name for step in steps] == ["connection (TCP)", "token", "sign-in", "login"]
    advice = of(steps, "token").advice
    assert advice.startswith("log in: mcpd login http://127.0.0.1:")
    assert "--token-file" in advice


@pytest.mark.parametrize(
    ("documents", "challenge", "name", "text"),
    [
        ({}, None, "token", "without the header WWW-Authenticate"),
        ({}, CHALLENGE, "sign-in", "the status is 401"),
        ({WELL_MCP: RESOURCE | {"resource": "https://other.example/mcp"}}, "Bearer", "sign-in", "its resource is"),
        ({}, 'Bearer resource_metadata="http://[::1"', "sign-in", "is not an https URL"),
        ({WELL_MCP: RESOURCE | {"resource": "http://[::1"}}, "Bearer", "sign-in", "its resource is"),
        ({WELL_MCP: RESOURCE | {"authorization_servers": ["http://[::1"]}}, "Bearer", "login", "is not an https URL"),
        ({WELL_MCP: RESOURCE | {"authorization_servers": ["file:///"]}}, "Bearer", "login", "is not an https URL"),
        ({WELL_MCP: {"resource": "ORIGIN"}}, "Bearer", "sign-in", "it names no authorization server"),
        ({WELL_MCP: RESOURCE}, "Bearer", "login", "well-known/oauth-authorization-server: 401"),
        ({WELL_MCP: RESOURCE, SERVER: ISSUER | {"issuer": "ORIGIN/"}}, "Bearer", "login", "its issuer is"),
        ({WELL_MCP: RESOURCE, SERVER: {"issuer": "ORIGIN"}}, "Bearer", "login", "it has no token_endpoint"),
        ({WELL_MCP: RESOURCE, SERVER: ISSUER | {"authorization_endpoint": None}}, "Bearer", "login",
         "has no authorization_endpoint"),
        ({WELL_MCP: RESOURCE, SERVER: ISSUER | {"code_challenge_methods_supported": ["plain"]}}, "Bearer", "login",
         "PKCE with S256"),
        ({WELL_MCP: RESOURCE, SERVER: ISSUER | {"registration_endpoint": None}}, "Bearer", "login",
         "does not let hosts register themselves"),
    ],
)  # fmt: skip
async def test_what_is_wrong_with_signing_in(documents: Any, challenge: str | None, name: str, text: str) -> None:
    steps = await tried_raw(guarded(documents, challenge))
    step = of(steps, name)
    assert step.status in ("warning", "problem")
    assert text in step.text


@pytest.mark.parametrize(
    ("resource", "issuer", "text"),
    [
        ({}, {"token_endpoint": "http://elsewhere.example/token"}, "authorization server metadata at"),
        ({}, {"registration_endpoint": "javascript:1"}, "is not an https URL"),
        ({"scopes_supported": ["offline_access"]}, {}, "lists offline_access"),
        (
            {},
            {
                "client_id_metadata_document_supported": True,
                "token_endpoint_auth_methods_supported": ["private_key_jwt"],
            },
            "does not list none",
        ),
    ],
)
async def test_the_first_document_that_a_login_stops_at(resource: Any, issuer: Any, text: str) -> None:
    """AUTH-173: what hosts are not known to look at, our own client does."""
    steps = await tried_raw(guarded({f"{WELL}/mcp": RESOURCE | resource, SERVER: ISSUER | issuer}))
    step = of(steps, "login")
    assert step.status in ("warning", "problem")
    assert text in step.text


async def test_a_server_that_the_user_is_logged_in_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with world() as there:
        async with Client(there.url, auth=there.oauth(store=None)):
            pass
        report = Report()
        await try_url(UrlTarget(there.url, {}), report, 10)
        assert of(report.steps, "logged in").status == "ok"
        assert of(report.steps, "conversation").status == "ok"


async def test_tokens_that_are_given() -> None:
    documents = {f"{WELL}/mcp": RESOURCE, SERVER: ISSUER}
    good_one = await tried_raw(guarded(documents), headers={"Authorization": "Bearer good"})
    assert of(good_one, "token").text == "it is accepted, and without it the server answers with status 401"
    assert troubles(good_one) == []
    bad_one = await tried_raw(guarded(documents), headers={"Authorization": "Bearer bad"})
    assert of(bad_one, "token").text == "the server refuses the token (401): who are you"
    unasked = await tried_raw(good, headers={"Authorization": "Bearer any"})
    assert of(unasked, "token").status == "warning"


# ---------------------------------------------------------------------------------------- who may use it


async def test_strangers_are_let_in() -> None:
    def open_to_all(request: Asked) -> bytes | None:
        headers = {name: value for name, value in request.headers.items() if name != "origin"} | {"host": "127.0.0.1"}
        if request.method == "OPTIONS":
            return reply(204, access_control_allow_origin="*", access_control_allow_headers="content-type")
        return good(request._replace(headers=headers))

    steps = await tried_raw(open_to_all)
    assert ("Origin", "problem") in troubles(steps)
    assert ("Host", "problem") in troubles(steps)
    assert (
        of(steps, "CORS").text
        == "* may send requests, but not with authorization, mcp-protocol-version, mcp-session-id"
    )


async def test_cors_that_lets_in_what_is_needed() -> None:
    needed = "Content-Type, Authorization, MCP-Protocol-Version, Mcp-Session-Id"
    steps = await tried_raw(
        but(OPTIONS=lambda _: reply(204, access_control_allow_origin="*", access_control_allow_headers=needed))
    )
    assert of(steps, "CORS").text == "pages of * may send requests"


# ----------------------------------------------------------------------------------------------- streams


@pytest.mark.medium
@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (None, "warning", "did not begin within 0.3 s"),
        (reply(405), "ok", "it has no stream of notifications (status 405)"),
        (
            STREAM.replace(b"\r\n\r\n", b"\r\nVia: 1.1 nginx\r\nContent-Encoding: gzip\r\n\r\n"),
            "warning",
            "compressed (gzip)",
        ),
    ],
)
async def test_streams(monkeypatch: pytest.MonkeyPatch, answer: bytes | None, status: str, text: str) -> None:
    monkeypatch.setattr(http, "_SECONDS", 0.3)
    step = of(await tried_raw(but(GET=lambda _: answer)), "streams")
    assert step.status == status
    assert text in step.text


async def test_a_stream_that_begins_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_SLOW_SECONDS", 0.0)
    step = of(await tried_raw(but(GET=lambda _: STREAM.replace(b"\r\n\r\n", b"\r\nServer: nginx\r\n\r\n"))), "streams")
    assert step.status == "warning"
    assert "through nginx" in step.text
    assert "proxy_buffering off" in step.advice


async def _doctored_without_aiohttp(child: Child, url: str) -> str:
    """What `mcpd doctor URL` prints where only what every installation has is installed."""
    program = "import sys; sys.modules['aiohttp'] = None; from mcpd.cli import main; main(['doctor', sys.argv[1]])"
    process = await asyncio.create_subprocess_exec(
        child.python, "-c", program, url, env=child.env, stdout=PIPE, stderr=DEVNULL
    )  # fmt: skip
    printed, _ = await process.communicate()
    return printed.decode()


async def test_a_websocket_needs_no_extra(child: Child) -> None:
    listener = WebSocketListener("127.0.0.1:0")
    server = Server("garden", version="3")
    await listener.start(server.connect)
    try:
        printed = await _doctored_without_aiohttp(child, listener.url)
    finally:
        await listener.aclose()
    assert "garden 3" in printed
    assert "It works" in printed


async def test_what_http_needs_is_named(child: Child) -> None:
    printed = await _doctored_without_aiohttp(child, "http://127.0.0.1:9/mcp")
    assert "servers behind http:// URLs need the package aiohttp, which is not installed" in printed
    assert "pip install 'mcpd-server[client]'" in printed
