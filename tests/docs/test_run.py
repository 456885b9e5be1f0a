"""The servers and files in the pages about running a server do what the pages say."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from conftest import REPOSITORY
from support.documentation import blocks, page_modules

from mcpd.auth.settings import StaticTokens

__all__ = ["page_modules"]

Load = Callable[..., list[ModuleType]]
Answer = tuple[int, dict[bytes, bytes], Any]


async def post(app: Any, tool: str, arguments: dict[str, Any] | None = None, token: str = "", host: str = "") -> Answer:
    """Call a tool with one request to an ASGI application: status, headers and JSON of the answer."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    params = {"name": tool, "arguments": arguments or {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "host": host or "localhost", "accept": "application/json, text/event-stream",
        "content-type": "application/json", "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call",
        "mcp-name": tool,
    }  # fmt: skip
    if token:
        headers["authorization"] = f"Bearer {token}"
    sent: list[dict[str, Any]] = []

    messages = [{"type": "http.request", "body": body}]

    async def receive() -> dict[str, Any]:
        if not messages:
            await asyncio.Event().wait()  # the client stays connected
        return messages.pop()

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    fields = [(name.encode(), value.encode()) for name, value in headers.items()]
    await app({"type": "http", "method": "POST", "path": "/mcp", "headers": fields}, receive, send)
    text = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), json.loads(text) if text else None


def text_of(answer: Answer) -> str:
    return answer[2]["result"]["content"][0]["text"]


async def test_a_token_per_user(page_modules: Load, tmp_path: Any) -> None:
    (module,) = page_modules("authorization", "server")
    toml = next(text for language, text in blocks(REPOSITORY / "docs" / "authorization.md") if language == "toml")
    (tmp_path / "tokens.toml").write_text(toml, encoding="utf-8")
    (tmp_path / "tokens.toml").chmod(0o600)
    app = module.server.asgi_app(auth=StaticTokens.from_file(tmp_path / "tokens.toml"))
    ada, job = "6a1c8f0d2b7e4935a0c4e8d1f2b3a695", "0f9e8d7c6b5a49382716051423324150"
    assert text_of(await post(app, "whoami", token=ada)) == "ada, with notes.read, notes.write"
    assert text_of(await post(app, "save", {"text": "x"}, ada)) == "saved"
    status, headers, _ = await post(app, "save", {"text": "x"}, job)
    assert status == 403
    assert b'scope="notes.write' in headers[b"www-authenticate"]
    assert (await post(app, "whoami"))[0] == 401
    assert "Unknown tool" in json.dumps((await post(app, "drop", token=ada))[2])


async def test_tokens_of_an_issuer(page_modules: Load) -> None:
    joserfc = pytest.importorskip("joserfc.jwt")
    from joserfc.jwk import OctKey

    from mcpd.auth import Jwt

    (module,) = page_modules("authorization", "server")
    secret, issuer, public = "only-for-tests-only-for-tests-only", "https://sso.example.com", "https://t.example/mcp"
    app = module.server.asgi_app(auth=Jwt(issuer, public_url=public, secret=secret))

    def token(audience: str) -> str:
        claims = {"iss": issuer, "aud": audience, "sub": "ada", "client_id": "cli", "exp": int(time.time()) + 60}
        return str(joserfc.encode({"alg": "HS256", "typ": "at+jwt"}, claims, OctKey.import_key(secret)))

    assert text_of(await post(app, "whoami", token=token(public), host="t.example")).startswith("ada, ")
    assert (await post(app, "whoami", token=token("https://other.example/mcp"), host="t.example"))[0] == 401
    status, headers, _ = await post(app, "whoami", host="t.example")
    assert status == 401
    assert b"oauth-protected-resource" in headers[b"www-authenticate"]


async def test_an_authenticator_of_ones_own(page_modules: Load) -> None:
    own, page = page_modules("authorization", "own_tokens", "server")
    app = page.server.asgi_app(authenticate=own.authenticate)
    assert text_of(await post(app, "whoami", token="tok-ada")) == "ada, with notes.read"
    status, _, answer = await post(app, "whoami", token="tok-eve")
    assert (status, answer["error"]) == (401, "invalid_token")


async def test_the_application_identifies_the_user(page_modules: Load) -> None:
    (asgi,) = page_modules("authorization", "asgi")

    class User:
        username, is_authenticated = "ada", True

    assert asgi.identify({"user": User()}) == "ada"
    assert asgi.identify({}) is None


def test_the_proxy_of_the_page_is_the_one_that_is_tested() -> None:
    (nginx,) = (text for language, text in blocks(REPOSITORY / "docs" / "deploying.md") if language == "nginx")
    assert (REPOSITORY / "deploy" / "nginx-tls.conf").read_text(encoding="utf-8").endswith(nginx)


def test_a_library_that_is_replaced(page_modules: Load) -> None:
    (own,) = page_modules("migrating", "own")
    tools = asyncio.run(own.mcp.list_tools())
    assert [tool.name for tool in tools] == ["add"]


def test_the_switches_are_those_of_the_preview() -> None:
    script = (REPOSITORY / "assets" / "host" / "host.js").read_text(encoding="utf-8")
    labels = re.findall(r'^  \["\w+", "([^"]+)", "', script, re.MULTILINE)
    page = (REPOSITORY / "docs" / "testing-apps.md").read_text(encoding="utf-8")
    assert len(labels) == 8
    assert [label for label in labels if f"\n| {label} | " not in page] == []
