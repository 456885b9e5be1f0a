"""What a server refuses, where it sends us, who it is, and why it cannot be reached: each as an error in words."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.http_script import Answer, Asked, Cut, Write, legacy, modern, reply, result, scripted, text_result

from mcpd import CannotConnect, Challenge, Client, ConnectionLost, HttpError, HttpOptions, RemoteError
from mcpd.errors import ConfigurationError, McpdError

TIMEOUT = 30.0


async def refused(answer: Answer, **options: Any) -> McpdError:
    """What a call of a server with these answers raises."""
    async with scripted(answer) as server, asyncio.timeout(TIMEOUT), Client(server.url, **options) as client:
        with pytest.raises(McpdError) as caught:
            await client.call("x")
    return caught.value


def always(data: bytes) -> Answer:
    """Everything that is no handshake is answered so."""

    async def answer(asked: Asked, write: Write) -> bool:
        await write(reply(405) if asked.rpc == "GET" else data)
        return True

    return answer


# ------------------------------------------------------------------------------------- status and body

LOGIN = {"WWW-Authenticate": 'Bearer resource_metadata="https://x.example/m"'}


@pytest.mark.parametrize("era", [legacy, modern])
@pytest.mark.parametrize(
    ("data", "text"),
    [
        (reply(500, b"\n  it broke \x1b[31m\nand more"), "/mcp: HTTP 500 Reason: it broke \\x1b[31m"),
        (reply(503), "/mcp: HTTP 503 Reason"),
        (reply(400, {"error": "invalid"}), '/mcp: HTTP 400 Reason: {"error": "invalid"}'),
        (reply(500, {"error": "x", "error_description": "One.\nTwo."}), "/mcp: HTTP 500 Reason: One. Two"),
        (reply(401, b"who?"), "/mcp: HTTP 401 Reason: who?; give a token with --token-file"),
        (reply(401, b"Send a token.\n"), "/mcp: HTTP 401 Reason: Send a token; give a token with --token-file"),
        (reply(401, b"", LOGIN), "/mcp requires a login: run mcpd login http://127.0.0.1:"),
        (reply(401, b"who?", {"WWW-Authenticate": LOGIN["WWW-Authenticate"] + ', error="invalid_token"'}),
         "/mcp: HTTP 401 Reason: who?; give a token with --token-file FILE, in Python with headers={'Authorization': "
         "'Bearer …'}; to log in: mcpd login http://127.0.0.1:"),
        (reply(200, b"<html>", {"Content-Type": "text/html"}), "answered tools/call with text/html, not with MCP"),
        (reply(200, b"", {"Content-Type": "application/json"}), "/mcp answered tools/call with an empty body"),
        (reply(202), "/mcp accepted the request tools/call but sent no response (HTTP 202)"),
    ],
)  # fmt: skip
async def test_status_and_first_line(era: Any, data: bytes, text: str) -> None:
    error = await refused(era(always(data)))
    assert isinstance(error, HttpError)
    assert text in str(error)
    assert str(error).startswith("http://127.0.0.1:")


@pytest.mark.parametrize("era", [legacy, modern])
@pytest.mark.parametrize("has_id", [True, False])
async def test_a_refusal_that_is_an_answer(era: Any, has_id: bool) -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        error = {"code": -32001, "message": "not today", "data": {"a": 1}}
        message = {"jsonrpc": "2.0", "error": error, **({"id": asked.id} if has_id else {})}
        await write(reply(405) if asked.rpc == "GET" else reply(400, message))
        return True

    error = await refused(era(answer))
    assert isinstance(error, RemoteError)
    assert (error.code, error.message, error.data) == (-32001, "not today", {"a": 1})


@pytest.mark.parametrize(
    "data",
    [b"\0\1\r\n\r\n", b"SSH-2.0-x\r\n", b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nBad Name: 1\r\n\r\n"],
)  # fmt: skip
async def test_what_is_no_http(data: bytes) -> None:
    async def answer(asked: Asked, write: Write) -> None:
        await write(data)
        raise Cut

    async with scripted(answer) as server:
        with pytest.raises(
            ConnectionLost, match=r"127\.0\.0\.1:\d+/mcp (sent an invalid HTTP response|closed the connection)"
        ):
            await Client(server.url).open()


async def test_a_bad_session_header_is_named() -> None:
    async with scripted(legacy(always(reply(200)), session="ä")) as server:
        with pytest.raises(HttpError, match="header Mcp-Session-Id .* must be printable ASCII"):
            await Client(server.url).open()


async def texts(asked: Asked, write: Write) -> None:
    """Every call is answered by a text."""
    await write(reply(200, text_result(asked, "done")))


@pytest.mark.parametrize("session", ["", "a b", "x" * 6000])
async def test_ids_of_sessions_that_the_official_clients_take(session: str) -> None:
    async with scripted(legacy(texts, session=session)) as server, Client(server.url) as client:
        await client.call_tool("x")
        assert server.asked[-1].headers.get("mcp-session-id", "") == session


async def test_a_session_id_that_is_too_long_is_named_with_the_limit() -> None:
    async with scripted(legacy(always(reply(200)), session="x" * 8001)) as server:
        with pytest.raises(HttpError, match="Mcp-Session-Id has 8001 characters; the maximum is 8000"):
            await Client(server.url).open()


async def test_cookies_go_back_to_the_server_that_set_them() -> None:
    """Load balancers keep a session on its node by a cookie."""
    lines = ["node=1; Path=/", "below=2; Path=/mcp/deeper", "safe=3; Secure", "theirs=4; Domain=example.com"]

    async def answer(asked: Asked, write: Write) -> None:
        if asked.rpc == "tools/call" and asked.message["params"]["name"] == "leave":
            lines[:] = ["node=; Max-Age=0"]
        head = "".join(f"Set-Cookie: {line}\r\n" for line in lines)
        body = json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": {"resultType": "complete", "content": []}})
        kind = "Content-Type: application/json\r\n"
        await write(f"HTTP/1.1 200 OK\r\n{kind}{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())

    async with scripted(modern(answer)) as server:
        async with Client(server.url) as client:
            for name in ("first", "second", "leave", "third"):
                await client.call_tool(name)
            sent = [asked.headers.get("cookie", "") for asked in server.asked if asked.rpc == "tools/call"]
            assert sent == ["", "node=1", "node=1", ""]
        async with Client(server.url, headers={"Cookie": "own=5"}) as client:
            await client.call_tool("first")
            await client.call_tool("second")
            assert server.asked[-1].headers["cookie"] == "own=5"


# ------------------------------------------------------------------------------------------ eras


@pytest.mark.parametrize(
    "refusal",
    [
        reply(400), reply(400, b"Bad Request: no session"), reply(404, b"x"), reply(405), reply(406), reply(500),
        reply(401), reply(403, {"error": "missing session"}),
        reply(422, {"a": 1}), reply(200, b"<html>", {"Content-Type": "text/html"}), reply(202),
        reply(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no"}}),
        reply(404, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}}),
        reply(200, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}}),
    ],
)  # fmt: skip
async def test_a_legacy_server_is_found_out(refusal: bytes) -> None:
    inner = legacy(always(reply(200)))

    async def answer(asked: Asked, write: Write) -> None:
        await (write(refusal) if asked.rpc == "server/discover" else inner(asked, write))

    async with scripted(answer) as server, Client(server.url) as client:
        assert client.version == "2025-11-25"
        probe, first = server.asked[:2]
        assert probe.headers["mcp-method"] == "server/discover"
        assert probe.headers["mcp-protocol-version"] == "2026-07-28"
        assert "mcp-protocol-version" not in first.headers
        assert first.rpc == "initialize"


@pytest.mark.parametrize("status", [401, 403])
async def test_a_server_that_asks_for_a_token_is_not_asked_as_an_old_one(status: int) -> None:
    async with scripted(always(reply(status, b"no", {"WWW-Authenticate": "Bearer"}))) as server:
        with pytest.raises(HttpError, match="give a token with"):
            await Client(server.url).open()
        with pytest.raises(HttpError, match="the server refuses the Authorization header"):
            await Client(server.url, headers={"authorization": "Bearer x"}).open()
        assert [one.rpc for one in server.asked] == ["server/discover"] * 2


@pytest.mark.parametrize("status", [429, 302])
async def test_what_says_nothing_of_the_era_is_raised(status: int) -> None:
    async with scripted(always(reply(status, b"no", {"Location": "http://127.0.0.1:1/"}))) as server:
        with pytest.raises(HttpError) as caught:
            await Client(server.url).open()
        assert caught.value.status == status
        assert [one.rpc for one in server.asked] == ["server/discover"]


async def test_a_modern_server_that_refuses_its_first_request_is_asked_again() -> None:
    inner = modern(always(reply(200)))

    async def answer(asked: Asked, write: Write) -> None:
        if len(server.asked) == 1:
            data = {"supported": ["2026-07-28"], "requested": "2026-07-28"}
            error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
            await write(reply(400, {"jsonrpc": "2.0", "id": asked.id, "error": error}))
        else:
            await inner(asked, write)

    async with scripted(answer) as server, Client(server.url) as client:
        assert client.version == "2026-07-28"
        assert client.server_capabilities.tools is not None
        assert [one.rpc for one in server.asked] == ["server/discover"] * 2


async def test_a_server_that_names_legacy_versions_is_a_legacy_one() -> None:
    inner = legacy(always(reply(200)))

    async def answer(asked: Asked, write: Write) -> None:
        if asked.rpc == "server/discover":
            error = {"code": -32022, "message": "no", "data": {"supported": ["2025-11-25"], "requested": "2026-07-28"}}
            await write(reply(400, {"jsonrpc": "2.0", "id": asked.id, "error": error}))
        else:
            await inner(asked, write)

    async with scripted(answer) as server, Client(server.url) as client:
        assert client.version == "2025-11-25"


# -------------------------------------------------------------------------------------- redirects


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_within_the_origin_is_followed_as_it_was(status: int) -> None:
    inner = modern(always(b""))

    async def answer(asked: Asked, write: Write) -> None:
        if asked.path == "/mcp":
            await write(reply(status, b"", {"Location": "/mcp/"}))
        elif asked.rpc == "tools/call":
            await write(reply(200, text_result(asked, "there")))
        else:
            await inner(asked, write)

    async with scripted(answer) as server, Client(server.url, headers={"Authorization": "Bearer t"}) as client:
        assert await client.call("x") == "there"
        assert {one.method for one in server.asked} == {"POST"}
        assert {one.headers["authorization"] for one in server.asked} == {"Bearer t"}
        # One for good is remembered.
        assert len([one for one in server.asked if one.path == "/mcp"]) == (1 if status in (301, 308) else 2)


@pytest.mark.parametrize(
    ("status", "where", "text"),
    [
        (307, "http://127.0.0.1:1/mcp", "redirects to http://127.0.0.1:1/mcp on another origin: if that is intended"),
        (308, "https://127.0.0.1:{port}/mcp", "redirects to https://127.0.0.1:{port}/mcp on another origin"),
        (302, "//localhost/x?secret=1", "redirects to http://localhost/x on another origin"),
        (
            303,
            "/login",
            "answers POST with 303, a redirect to GET http://127.0.0.1:{port}/login, which is not followed",
        ),
        (307, "", "answers 307 without a Location"),
        (307, "http://[", "redirects to 'http://[', which is not a URL"),
        (307, "mailto:x@y", "not a URL"),
        (307, "/mcp", "redirects too often, at last to http://127.0.0.1:{port}/mcp"),
    ],
)
async def test_a_redirect_that_is_refused_says_where_to(status: int, where: str, text: str) -> None:
    async def answer(asked: Asked, write: Write) -> None:
        await write(reply(status, b"", {"Location": where.replace("{port}", port)}))

    async with scripted(answer) as server:
        port = server.url.split(":")[2].partition("/")[0]
        with pytest.raises(HttpError) as caught:
            await Client(server.url).open()
        assert text.replace("{port}", port) in str(caught.value)
        assert caught.value.status == status


# -------------------------------------------------------------------------------- who cannot be reached


async def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(
        CannotConnect, match=r"http://no-such-host\.invalid/mcp: the host name no-such-host\.invalid cannot be resolved"
    ):
        await Client("http://no-such-host.invalid/mcp").open()


async def test_a_server_that_does_not_shake_hands() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"https://127.0.0.1:{listening.getsockname()[1]}/mcp"
        with pytest.raises(CannotConnect, match=r"/mcp: no connection within 0\.2 s"):
            await Client(url, http=HttpOptions(connect_seconds=0.2)).open()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "made.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


async def test_tls(certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)

    async def answer(asked: Asked, write: Write) -> None:
        await write(reply(200, text_result(asked, "secret")))

    async with scripted(modern(answer), tls=context) as server:
        ours = ssl.create_default_context(cafile=str(certificate[0]))
        for verify in (str(certificate[0]), certificate[0], ours, False):
            async with Client(server.url, http=HttpOptions(verify=verify)) as client:
                assert await client.call("x") == "secret"

        with pytest.raises(
            CannotConnect,
            match=r"certificate is not trusted: self-signed.*SSL_CERT_FILE=.*HttpOptions\(verify=FILE\)",
        ):
            await Client(server.url).open()
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("SSL_CERT_FILE", str(certificate[0]))
            async with Client(server.url) as client:
                assert await client.call("x") == "secret"
        elsewhere = server.url.replace("127.0.0.1", "localhost")
        with pytest.raises(CannotConnect, match="the certificate is not trusted: .*localhost"):
            await Client(elsewhere, http=HttpOptions(verify=str(certificate[0]))).open()
        with pytest.raises(ConnectionLost):
            await Client(server.url.replace("https", "http")).open()


async def test_https_where_http_is_spoken() -> None:
    async def complain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(reply(400))
        writer.close()

    listening = await asyncio.start_server(complain, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    with pytest.raises(CannotConnect, match="the TLS handshake failed: .*is this an https port?"):
        await Client(f"https://127.0.0.1:{port}/mcp").open()
    listening.close()


@pytest.mark.parametrize("name", ["none.pem", "empty.pem"])
async def test_certificates_that_are_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty.pem").write_text("")
    with pytest.raises(ConfigurationError, match=f"verify=.*{name}.*: cannot read certificates"):
        await Client("https://127.0.0.1:1/mcp", http=HttpOptions(verify=tmp_path / name)).open()


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with pytest.raises(CannotConnect, match=r"unix:.*/s: cannot connect to the socket .*/s: No such file"):
        await Client(f"unix:{path}").open()

    async with scripted(modern(always(b""))) as server:
        port = int(server.url.split(":")[2].partition("/")[0])

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there_in, there_out = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(reader, there_out), _copy(there_in, writer))

        listening = await asyncio.start_unix_server(pass_on, path)
        async with Client(f"unix:{path}") as client:
            assert client.version == "2026-07-28"
        listening.close()
        assert server.asked[0].headers["host"] == "localhost"


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray | None = None) -> None:
    while data := await reader.read(65536):
        if kept is not None:
            kept += data
        writer.write(data)
    writer.close()


# --------------------------------------------------------------------------------------- proxies


async def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(asked: Asked, write: Write) -> None:
        asked.path = asked.path.removeprefix("http://example.test")
        await write(reply(200, text_result(asked, "through")))

    async with scripted(modern(answer)) as server:
        proxy = server.url.removesuffix("/mcp")
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with Client("http://example.test/mcp") as client:
            assert await client.call("x") == "through"
        assert server.asked[0].headers["host"] == "example.test"

        monkeypatch.setenv("no_proxy", "example.test")
        with pytest.raises(CannotConnect, match="the host name example.test cannot be resolved"):
            await Client("http://example.test/mcp").open()
        monkeypatch.delenv("no_proxy")
        with pytest.raises(CannotConnect, match="the host name example.test cannot be resolved"):
            await Client("http://example.test/mcp", http=HttpOptions(proxies=False)).open()


async def test_a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", f"http://user:secret@127.0.0.1:{port}")
    with pytest.raises(CannotConnect, match="cannot connect to the proxy .*HTTP_PROXY") as caught:
        await Client("http://example.test/mcp").open()
    assert "secret" not in str(caught.value)

    monkeypatch.setenv("http_proxy", "http://user:secret@[::1")
    with pytest.raises(ConfigurationError, match="^HTTP_PROXY is not the URL of a proxy; use http://host:port$"):
        await Client("http://example.test/mcp").open()

    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    with pytest.raises(
        ConfigurationError, match=r"^HTTP_PROXY: socks5 proxies are not supported; .* NO_PROXY=example\.test$"
    ):
        await Client("http://example.test/mcp").open()
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv("all_proxy", "socks5h://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="^ALL_PROXY: socks5h proxies are not supported"):
        await Client("http://example.test/mcp").open()


@pytest.mark.parametrize("answers", ["200 Connected", "407 Proxy Authentication Required"])
async def test_https_through_the_tunnel_of_a_proxy(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path], answers: str
) -> None:
    """CONNECT (RFC 9110 9.3.6): the proxy sees where to, and its own password; nothing of what is said."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    heads: list[str] = []
    through = bytearray()

    async def answer(asked: Asked, write: Write) -> None:
        await write(reply(200, text_result(asked, asked.headers["authorization"])))

    async with scripted(modern(answer), tls=context) as server:

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(f"HTTP/1.1 {answers}\r\n\r\n".encode())
            if not answers.startswith("200"):
                writer.close()
                return
            port = int(server.url.split(":")[2].partition("/")[0])
            there_in, there_out = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(_copy(reader, there_out, through), _copy(there_in, writer))

        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        place = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        monkeypatch.setenv("https_proxy", f"http://ada:secret@{place}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)

        # The name is the proxy's to look up; the certificate is that of the server.
        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        trusted.check_hostname = False
        client = Client(
            "https://example.test/mcp", headers={"Authorization": "Bearer abc"}, http=HttpOptions(verify=trusted)
        )
        if answers.startswith("200"):
            async with client:
                assert await client.call("x") == "Bearer abc"
            with pytest.raises(CannotConnect, match="the certificate is not trusted"):
                await Client("https://example.test/mcp", http=HttpOptions(verify=str(certificate[0]))).open()
        else:
            with pytest.raises(CannotConnect, match="the proxy refused the connection: 407") as caught:
                await client.open()
            assert "secret" not in str(caught.value)
        proxy.close()

    assert heads[0].startswith("CONNECT example.test:443 HTTP/1.1\r\n")
    assert "Proxy-Authorization: Basic YWRhOnNlY3JldA==" in heads[0]
    assert b"abc" not in through
    assert "abc" not in heads[0]


# ------------------------------------------------------------------------------------- header fields


async def test_header_fields_of_the_program_go_with_every_request() -> None:
    count = 0

    def fresh() -> Mapping[str, str]:
        nonlocal count
        count += 1
        return {"X-Count": str(count)}

    async def fresh_later() -> Mapping[str, str]:
        return fresh()

    for headers in (fresh, fresh_later):
        count = 0
        async with scripted(legacy(always(reply(200)))) as server:
            async with Client(server.url, headers=headers):
                pass
            assert {one.rpc for one in server.asked} >= {"initialize", "DELETE"}
            assert len({one.headers["x-count"] for one in server.asked}) == len(server.asked)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"Bad Name": "x"}, "'Bad Name' is not a valid header name"),
        ({"X-A": "secret\r\nX-B: 1"}, "the value of X-A must not contain line breaks"),
        ({"X-A": " secret"}, "the value of X-A must not contain line breaks"),
        ({"X-A": "secret€"}, "the value of X-A must be Latin-1"),
        ({"MCP-Session-Id": "secret"}, "MCP-Session-Id is set by the client itself"),
        ({"mcp-param-x": "secret"}, "mcp-param-x is set by the client itself"),
    ],
)
async def test_header_fields_that_cannot_be_sent(headers: dict[str, str], text: str) -> None:
    for given in (headers, lambda: headers):
        with pytest.raises(ConfigurationError, match=text) as caught:
            await Client("http://127.0.0.1:1/mcp", headers=given).open()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("headers", [None, {"Authorization": "Bearer old"}, lambda: {"Authorization": "Bearer old"}])
async def test_a_refused_token_is_shown_to_the_program(headers: Any) -> None:
    shown: list[Challenge] = []

    async def authenticate(challenge: Challenge) -> Mapping[str, str] | None:
        shown.append(challenge)
        return {"Authorization": f"Bearer {len(shown)}"}

    inner = modern(always(b""))

    async def answer(asked: Asked, write: Write) -> None:
        token = asked.headers.get("authorization")
        if token in (None, "Bearer old"):
            await write(reply(401, b"", {"WWW-Authenticate": 'Bearer resource_metadata="https://x/y"'}))
        elif asked.rpc == "tools/call" and token == "Bearer 1":
            await write(reply(403, b"", {"WWW-Authenticate": 'Bearer error="insufficient_scope"'}))
        elif asked.rpc == "tools/call":
            await write(reply(200, text_result(asked, token)))
        else:
            await inner(asked, write)

    options = HttpOptions(authenticate=authenticate)
    async with scripted(answer) as server, Client(server.url, headers=headers, http=options) as client:
        found = await asyncio.gather(*(client.call("x") for _ in range(5)))
        assert found == ["Bearer 2"] * 5
        assert [(one.status, one.url) for one in shown] == [(401, server.url), (403, server.url)]
        assert shown[0].www_authenticate == ('Bearer resource_metadata="https://x/y"',)


@pytest.mark.parametrize("gives", [{"Authorization": "Bearer bad"}, None])
async def test_a_token_that_is_refused_again_and_again(gives: Mapping[str, str] | None) -> None:
    async def authenticate(challenge: Challenge) -> Mapping[str, str] | None:
        return gives and dict(gives)

    async with scripted(always(reply(401, b"no"))) as server:
        with pytest.raises(HttpError, match="HTTP 401 Reason: no"):
            await Client(server.url, http=HttpOptions(authenticate=authenticate)).open()
        assert len(server.asked) == (1 if gives is None else 4)


async def test_user_and_password_of_a_url_are_said_and_never_shown() -> None:
    async with scripted(always(reply(401, b"no"))) as server:
        with pytest.raises(HttpError) as caught:
            await Client(server.url.replace("//", "//ada:secret@") + "?key=secret").open()
        assert server.asked[0].headers["authorization"] == "Basic YWRhOnNlY3JldA=="
        assert server.asked[0].path == "/mcp?key=secret"
        assert "secret" not in str(caught.value)


# --------------------------------------------------------------------- what is repeated in header fields

TOOL = {
    "name": "x",
    "inputSchema": {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "deep": {"type": "object", "properties": {"is": {"type": "boolean", "x-mcp-header": "Is"}}},
        },
    },
}
BAD = {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}}


async def test_arguments_are_repeated_once_the_schema_is_known() -> None:
    async def answer(asked: Asked, write: Write) -> None:
        await write(reply(200, text_result(asked, "")))

    async with scripted(modern(answer, tools=[TOOL, BAD])) as server, Client(server.url) as client:
        assert [tool.name for tool in await client.list_tools()] == ["x"]
        await client.call_tool("x", {"region": "Zürich", "count": 42, "deep": {"is": False}})
        await client.call_tool("x", {"region": "", "count": None, "deep": None})
        first, second = server.of("tools/call")
        assert first.headers["mcp-name"] == "x"
        assert first.headers["mcp-param-region"] == "=?base64?WsO8cmljaA==?="
        assert first.headers["mcp-param-count"] == "42"
        assert first.headers["mcp-param-is"] == "false"
        assert second.headers["mcp-param-region"] == ""
        assert not {"mcp-param-count", "mcp-param-is"} & set(second.headers)


async def test_a_header_mismatch_makes_the_client_look_at_the_tools() -> None:
    async def answer(asked: Asked, write: Write) -> None:
        if "mcp-param-region" in asked.headers:
            await write(reply(200, text_result(asked, "now")))
        else:
            error = {"code": -32020, "message": "Header mismatch: Mcp-Param-Region is missing"}
            await write(reply(400, {"jsonrpc": "2.0", "id": asked.id, "error": error}))

    async with scripted(modern(answer, tools=[TOOL])) as server, Client(server.url) as client:
        assert await client.call("x", region="here") == "now"
        assert [one.rpc for one in server.asked][-3:] == ["tools/call", "tools/list", "tools/call"]


async def test_in_a_session_nothing_is_repeated() -> None:
    async def answer(asked: Asked, write: Write) -> bool:
        await write(reply(405) if asked.rpc == "GET" else reply(200, result(asked, {"content": []})))
        return True

    async with scripted(legacy(answer, tools=[TOOL, BAD])) as server, Client(server.url) as client:
        assert [tool.name for tool in await client.list_tools()] == ["x", "bad"]
        await client.call_tool("x", {"region": "here"})
        assert not [name for one in server.of("tools/call") for name in one.headers if name.startswith("mcp-param")]
