"""What is said to who gets no service: JSON with an `error` string for clients, a text for browsers.

Clients probe for discovery documents and read the body of a failure as an OAuth error, with and without authorization.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.http_peer import post, request, serving
from support.http_stage import Stage

from mcpd.transports.guards import Access

BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"
PAGE = "https://app.example.com"
DISCOVERY = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration/mcp",
    "/mcp/.well-known/openid-configuration",
]


def error_of(answer: Any) -> dict[str, str]:
    assert dict(answer.headers)["content-type"] == "application/json"
    body: dict[str, str] = json.loads(answer.body)
    assert set(body) == {"error", "error_description"}
    assert all(isinstance(value, str) for value in body.values())
    return body


@pytest.mark.parametrize("token", [None, "secret"])
@pytest.mark.parametrize("accept", [None, "application/json", "*/*", "application/json, text/event-stream"])
@pytest.mark.parametrize("path", ["/", "/sse", "/register", "/token", "/authorize", *DISCOVERY])
async def test_unknown_paths_are_json_to_clients(path: str, accept: str | None, token: str | None) -> None:
    """Design of authorization, 2.4; AUTH-016, AUTH-017: also without authorization."""
    headers = [] if accept is None else [("Accept", accept)]
    async with serving(Stage().server, access=Access(token=token)) as port:
        for method in ("GET", "POST"):
            answer = await port.ask(request(method, path, headers, b"a=b" if method == "POST" else b""))
            assert answer.status == 404
            said = error_of(answer)
            assert said["error"] == "not_found"
            assert "the MCP endpoint is /mcp" in said["error_description"]


async def test_browsers_get_a_text() -> None:
    async with serving(Stage().server) as port:
        answer = await port.ask(request("GET", "/", [("Accept", BROWSER)]))
        assert answer.status == 404
        assert dict(answer.headers)["content-type"] == "text/plain; charset=utf-8"
        assert "the MCP endpoint is /mcp" in answer.text


@pytest.mark.parametrize("path", DISCOVERY)
async def test_discovery_answers_every_page(path: str) -> None:
    """A refusal without CORS headers looks to a page like a network that is down; there is nothing to protect here."""
    async with serving(Stage().server, access=Access(token="secret")) as port:
        for origin in (PAGE, "null", f"http://localhost:{port.number}"):
            answer = await port.ask(request("GET", path, [("Origin", origin)]))
            assert answer.status == 404
            assert dict(answer.headers)["access-control-allow-origin"] == "*"
            assert error_of(answer)["error"] == "not_found"
            asked = [("Origin", origin), ("Access-Control-Request-Method", "GET")]
            answer = await port.ask(request("OPTIONS", path, asked))
            assert answer.status == 204
            assert dict(answer.headers)["access-control-allow-origin"] == "*"
            assert dict(answer.headers)["access-control-allow-headers"] == "*"
        assert (await port.ask(request("GET", "/mcp", [("Origin", PAGE)]))).status == 403
        assert (await port.ask(request("GET", path, host="evil.example"))).status == 403


async def test_refusals_of_the_endpoint_are_json_too() -> None:
    async with serving(Stage().server, access=Access(token="secret")) as port:
        wrong = await port.ask(post(b"{}"))
        assert (wrong.status, error_of(wrong)["error"]) == (401, "invalid_token")
        assert dict(wrong.headers)["www-authenticate"].startswith("Bearer")
        page = await port.ask(post(b"{}", {"Origin": PAGE}))
        assert (page.status, error_of(page)["error"]) == (403, "access_denied")
        key = [("Authorization", "Bearer secret")]
        put = await port.ask(request("PUT", "/mcp", key))
        assert (put.status, error_of(put)["error"]) == (405, "method_not_allowed")
        assert dict(put.headers)["allow"] == "GET, POST, DELETE"
        get = await port.ask(request("GET", "/mcp", [*key, ("MCP-Protocol-Version", "2026-07-28")]))
        assert (get.status, error_of(get)["error"]) == (405, "method_not_allowed")


async def asked(app: Any, scope: dict[str, Any]) -> tuple[int, dict[bytes, bytes], bytes]:
    said: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"} if scope["type"] == "websocket" else {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        said.append(message)

    await app(scope, receive, send)
    return said[0]["status"], dict(said[0]["headers"]), said[1]["body"]


@pytest.mark.parametrize("root", ["", "/garden"])
async def test_under_another_server(root: str) -> None:
    """`asgi_app()`, also mounted: for HTTP and for a WebSocket that is refused."""
    app = Stage().server.asgi_app()
    usual = {"root_path": root, "headers": [(b"host", b"localhost")]}
    for path in ("/", "/.well-known/oauth-protected-resource"):
        scope = {"type": "http", "method": "GET", "path": root + path, **usual}
        status, headers, body = await asked(app, scope)
        assert (status, headers[b"content-type"]) == (404, b"application/json")
        assert json.loads(body)["error"] == "not_found"
    scope = {"type": "websocket", "path": f"{root}/no", "extensions": {"websocket.http.response": {}}, **usual}
    status, headers, body = await asked(app, scope)
    assert (status, headers[b"content-type"]) == (404, b"application/json")
    assert json.loads(body)["error"] == "not_found"
