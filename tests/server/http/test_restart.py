"""An application that was stopped serves again when it is started again: warm functions in a cloud, test clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.http_peer import envelope
from support.redis_server import NEEDS_REDIS, RedisServer
from support.wires import initialize

from mcpd import Server
from mcpd.auth import Jwt, StaticTokens
from mcpd.auth.server.login_server import LoginServer
from mcpd.errors import ConfigurationError
from mcpd.server.http.app import HttpApp

HEADERS = {"host": "localhost", "content-type": "application/json", "accept": "application/json, text/event-stream"}


async def ask(
    app: HttpApp,
    method: str,
    path: str,
    message: Any = None,
    body: list[bytes] | None = None,
    root: str = "",
    **more: str,
) -> tuple[int, dict[str, str]]:
    """One request; returns status and headers. The answer is read to its end."""
    fields = [(name.encode(), value.encode()) for name, value in {**HEADERS, **more}.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": fields, "query_string": b"", "root_path": root}
    incoming = [{"type": "http.request", "body": b"" if message is None else json.dumps(message).encode()}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return incoming.pop(0) if incoming else await asyncio.Future()

    async def send(part: Any) -> None:
        sent.append(part)

    await app(scope, receive, send)
    if body is not None:
        body += [part["body"] for part in sent[1:]]
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


@asynccontextmanager
async def living(app: HttpApp) -> AsyncIterator[None]:
    """From startup to shutdown, as an ASGI server has it."""
    messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    answers: asyncio.Queue[str] = asyncio.Queue()

    async def send(part: Any) -> None:
        answers.put_nowait(part["type"])

    task = asyncio.ensure_future(app({"type": "lifespan"}, messages.get, send))
    for phase in ("startup", "shutdown"):
        messages.put_nowait({"type": f"lifespan.{phase}"})
        assert await answers.get() == f"lifespan.{phase}.complete"
        if phase == "startup":
            yield
    await task


async def serve_once(app: HttpApp) -> None:
    async with living(app):
        assert (await ask(app, "GET", "/readyz"))[0] == 200
        status, headers = await ask(app, "POST", "/mcp", initialize("2025-11-25"))
        assert status == 200
        if (session := headers.get("mcp-session-id")) is not None:
            assert (await ask(app, "DELETE", "/mcp", **{"mcp-session-id": session}))[0] in (200, 204)
    assert (await ask(app, "GET", "/readyz"))[0] == 503


def test_each_start_opens_and_closes_the_lifespan() -> None:
    events = []

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        events.append("open")
        yield
        events.append("close")

    app = Server("again", lifespan=lifespan).asgi_app(token="a" * 32, metrics=True)
    token = {"authorization": "Bearer " + "a" * 32}

    async def once() -> None:
        async with living(app):
            assert (await ask(app, "POST", "/mcp", initialize("2025-11-25"), **token))[0] == 200
            assert (await ask(app, "GET", "/metrics", **token))[0] == 200

    for _ in range(3):
        asyncio.run(once())
    assert events == ["open", "close"] * 3


BACKPLANES = ["none", "memory", "sqlite", pytest.param("redis", marks=NEEDS_REDIS)]


@pytest.mark.parametrize("kind", BACKPLANES)
def test_again_in_another_loop_and_in_the_same(kind: str, tmp_path: Path) -> None:
    server = Server("again", state_key="a secret of 16 bytes or more")
    with ExitStack() as stack:
        urls = {"sqlite": f"sqlite://{tmp_path}/state.db", "memory": "memory://"}
        url = stack.enter_context(RedisServer()).url if kind == "redis" else urls.get(kind)
        app = server.asgi_app(backplane=url)

        async def twice() -> None:
            for _ in range(2):
                await serve_once(app)

        for _ in range(2):
            asyncio.run(twice())


def test_a_loop_that_ended_without_a_word_is_not_used_any_more() -> None:
    """Servers without a lifespan: what was open in the old event loop is forgotten."""
    app = Server("again").asgi_app()
    for _ in range(2):
        assert asyncio.run(ask(app, "POST", "/mcp", initialize("2025-11-25")))[0] == 200
        assert len(list(app.sessions)) == 1


async def test_an_embedded_application_is_told_of_its_own_options_and_path() -> None:
    server, body = Server("embedded"), list[bytes]()

    @server.tool(scopes=["beds.write"])
    async def dig() -> None: ...

    app = server.asgi_app()
    await ask(app, "POST", "/mcp", {}, body, host="evil.example")
    await ask(app, "POST", "/mcp", {}, body, origin="https://evil.example")
    await ask(app, "GET", "/below/nothing", None, body, root="/below")
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "dig", "arguments": {}, "_meta": envelope()},
    }
    modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "dig"}
    assert (await ask(app, "POST", "/mcp", call, body, **modern))[0] == 403
    assert [status for status in body if b"--" in status] == []
    assert b"pass allowed_hosts=['NAME'] to asgi_app()" in body[0]
    assert b"pass allowed_origins=['ORIGIN'] to asgi_app()" in body[1]
    assert b"the MCP endpoint is /below/mcp" in body[2]
    assert b"this server authenticates nobody: pass auth= to asgi_app()" in body[3]


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"auth": lambda: Jwt("https://idp.example")}, r"Jwt\(…, public_url='https://example.com/mcp'\)"),
        ({"auth": lambda: LoginServer("dev")}, r"configure users in a file \(LoginServer\('auth.toml'\)\)"),
        ({"auth": lambda: LoginServer("none.toml")}, "none.toml: No such file"),
        ({"auth": lambda: StaticTokens.from_file("none.toml")}, "tokens file none.toml: No such file"),
        ({"allowed_hosts": lambda: ["*"]}, "allowed_hosts '\\*'"),
        ({"allowed_origins": lambda: ["example.com"]}, "allowed_origins 'example.com'"),
    ],
)
def test_an_embedded_application_names_what_it_is_called_with(
    options: dict[str, Callable[[], Any]], remedy: str
) -> None:
    with pytest.raises(ConfigurationError, match=remedy) as caught:
        Server("embedded").asgi_app(**{name: value() for name, value in options.items()})
    assert "--" not in str(caught.value)
