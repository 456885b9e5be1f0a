"""Servers of `mcp.server.fastmcp` over HTTP: routes of Starlette's, tokens, and the request that a tool can look at."""

from __future__ import annotations

import pytest
from compat.theirs import module, served
from support.clock import Clock
from support.http_peer import Session, call, post, request, serving

pytestmark = pytest.mark.usefixtures("libraries")

SERVER = """
    import time

    from mcp.server.auth.middleware.auth_context import get_access_token
    from mcp.server.auth.provider import AccessToken, TokenVerifier
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.fastmcp import Context, FastMCP
    from pydantic import AnyHttpUrl
    from starlette.requests import Request
    from starlette.responses import JSONResponse, RedirectResponse, Response

    class Verifier(TokenVerifier):
        async def verify_token(self, token: str) -> AccessToken | None:
            if token == "old":
                return AccessToken(token=token, client_id="ann", scopes=["user"], expires_at=1)
            if token in ("of bob", "of cid"):
                return AccessToken(token=token, client_id="ann", scopes=["user"], subject=token,
                                   expires_at=int(time.time()) + 3600)
            scopes = {"good": ["user"], "poor": []}.get(token)
            return None if scopes is None else AccessToken(token=token, client_id="ann", scopes=scopes)

    mcp = FastMCP("web", token_verifier=Verifier(), auth=AuthSettings(
        issuer_url=AnyHttpUrl("https://auth.example.com"),
        resource_server_url=AnyHttpUrl("http://localhost:3001"),
        required_scopes=["user"]))

    @mcp.tool()
    async def who(ctx: Context) -> str:
        return f"{get_access_token().client_id} {ctx.request_context.request.headers['X-Own']}"

    @mcp.custom_route("/health/{part}", methods=["GET", "POST"])
    async def health(request: Request) -> Response:
        body = (await request.body()).decode()
        return JSONResponse({"part": request.path_params["part"], "q": request.query_params.get("q"), "body": body},
                            status_code=201, headers={"X-More": "1"})

    @mcp.custom_route("/old", methods=["GET"])
    async def old(request: Request) -> Response:
        return RedirectResponse("/new")
"""


async def test_routes_of_starlette() -> None:
    async with serving(served(SERVER)) as port:
        answer = await port.ask(request("POST", "/health/db?q=1", body=b"hi"))
        assert (answer.status, answer["x-more"], answer["content-type"]) == (201, "1", "application/json")
        assert answer.body == b'{"part":"db","q":"1","body":"hi"}'
        moved = await port.ask(request("GET", "/old"))
        assert (moved.status, moved["location"]) == (307, "/new")


async def test_tokens() -> None:
    server = served(SERVER)
    asked = call("tools/call", {"name": "who", "arguments": {}})
    async with serving(server) as port:

        async def ask(token: str) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {token}", "X-Own": "mine", "MCP-Protocol-Version": "2025-06-18"}
            answer = await port.ask(post(call("initialize", {
                "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
            }), headers))  # fmt: skip
            if answer.status != 200:
                return answer.status, answer["www-authenticate"] or ""
            session = {"Mcp-Session-Id": answer["mcp-session-id"]}
            await port.ask(post({"jsonrpc": "2.0", "method": "notifications/initialized"}, {**headers, **session}))
            result = await port.ask(post(asked, {**headers, **session}))
            return result.status, result.messages[-1]["result"]["content"][0]["text"]

        assert await ask("good") == (200, "ann mine")
        for token in ("bad", "old"):
            status, told = await ask(token)
            assert status == 401
            assert told.startswith('Bearer error="invalid_token"')
            assert 'resource_metadata="http://localhost:3001/.well-known/oauth-protected-resource"' in told
        assert (await ask("poor"))[0] == 403
        found = await port.ask(request("GET", "/.well-known/oauth-protected-resource"))
        assert b'"authorization_servers":["https://auth.example.com/"]' in found.body


async def test_a_session_belongs_to_a_user_and_its_stream_ends_with_the_token() -> None:
    """Two users of one client are not one user, and nothing is sent to a token that has expired."""
    clock = Clock()
    async with serving(served(SERVER)) as port:
        bob = Session(port, "2025-06-18")
        bob.extra = {"Authorization": "Bearer of bob"}
        await bob.open()
        peer = await bob.listen()
        bob.extra = {"Authorization": "Bearer of cid"}
        assert (await bob.ask("ping")).status == 404
        bob.extra = {"Authorization": "Bearer of bob"}
        assert (await bob.ask("ping")).status == 200
        await clock.advance(3700)
        assert await peer.event() is None


CACHED = """
    from fastmcp import FastMCP
    from fastmcp.server.dependencies import get_http_headers
    from fastmcp.server.middleware.caching import ResponseCachingMiddleware

    mcp = FastMCP("cached")
    mcp.add_middleware(ResponseCachingMiddleware())
    runs = []

    @mcp.tool
    def mine() -> str:
        runs.append(1)
        return f"{len(runs)} {get_http_headers(include={'authorization'})['authorization']}"
"""


async def test_a_result_is_cached_for_one_credential_even_if_a_proxy_checks_it() -> None:
    async with serving(served(CACHED)) as port:
        texts = []
        for user in ("ann", "ann", "bob"):
            headers = {"Authorization": f"Bearer {user}"}
            answer = await port.ask(post(call("tools/call", {"name": "mine", "arguments": {}}), headers))
            texts.append(answer.messages[-1]["result"]["content"][0]["text"])
        assert texts == ["1 Bearer ann", "1 Bearer ann", "2 Bearer bob"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("auth_server_provider=object(), auth=AUTH", "mcpd.compat does not run an authorization server"),
        ("token_verifier=object()", "without auth settings"),
        ("auth=AUTH", "Must specify either"),
        ("auth=AUTH, token_verifier=object(), auth_server_provider=object()", "Cannot specify both"),
    ],
)
def test_settings_that_cannot_be(options: str, said: str) -> None:
    with pytest.raises((NotImplementedError, ValueError), match=said):
        module(f"""
            from mcp.server.auth.settings import AuthSettings
            from mcp.server.fastmcp import FastMCP
            AUTH = AuthSettings(issuer_url="https://auth.example.com", resource_server_url="https://a.example.com")
            FastMCP("a", {options})
        """)


@pytest.mark.parametrize(
    ("security", "statuses"),
    [
        ("enable_dns_rebinding_protection=False", [404, 404]),
        ("allowed_hosts=['a.example:*'], allowed_origins=['https://a.example:*']", [404, 403]),
    ],
)
async def test_which_hosts_and_origins_are_allowed(security: str, statuses: list[int]) -> None:
    app = module(f"""
        from mcp.server.fastmcp import FastMCP
        from mcp.server.transport_security import TransportSecuritySettings
        mcp = FastMCP("a", transport_security=TransportSecuritySettings({security}))
    """).mcp.streamable_http_app()
    found = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        found.append(message.get("status"))

    for host in (b"a.example", b"b.example"):
        headers = [(b"host", host + b":8443"), (b"origin", b"https://" + host + b":8443")]
        scope = {"type": "http", "method": "GET", "path": "/nowhere", "headers": headers, "query_string": b""}
        await app(scope, receive, send)
    assert [status for status in found if status] == statuses


async def test_an_asgi_application() -> None:
    mcp = module("""
        from mcp.server.fastmcp import FastMCP
        mcp = FastMCP("a", streamable_http_path="/own")
    """).mcp
    app = mcp.streamable_http_app()
    sent = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/nowhere", "headers": [(b"host", b"localhost")],
             "query_string": b"", "root_path": ""}  # fmt: skip
    await app(scope, receive, send)
    assert sent[0]["status"] == 404
    async with mcp.session_manager.run():
        pass


async def test_a_client_in_the_same_process() -> None:
    from mcp.shared.memory import create_connected_server_and_client_session  # type: ignore[import-not-found]

    mcp = module("""
        from mcp.server.fastmcp import FastMCP
        mcp = FastMCP("a")

        @mcp.tool()
        def add(a: int) -> int:
            return a + 1
    """).mcp
    async with create_connected_server_and_client_session(mcp) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["add"]
        assert (await session.call_tool("add", {"a": 1})).structuredContent == {"result": 2}
