"""Scopes of single tools, resources and prompts: 403 before anything runs, step-up, hiding, what is for everybody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.http_peer import Answer, Port, call, initialize, modern, post, request, serving
from support.websocket_peer import TEXT, Peer as WebSocketPeer, frame, upgrade

from mcpd import Context, Principal, Server
from mcpd.auth.settings import TokenFunction
from mcpd.errors import AccessDenied, RegistrationError
from mcpd.testing import TestClient
from mcpd.transports.authentication import Refusal
from mcpd.transports.challenge import parse
from mcpd.transports.guards import Access

METADATA = "https://tools.example.com/.well-known/oauth-protected-resource/mcp"
TOKENS = {
    "read": ["use", "files.read", "openid"],
    "write": ["use", "files"],
    "admin": ["use", "admin", "files"],
    "none": ["openid"],
}


class Shop:
    """A server with tools that need scopes; `ran` has the names of those that ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.server = server = Server("shop")

        def tool(name: str, **options: Any) -> None:
            @server.tool(name=name, **options)
            async def function(path: str = "/") -> str:
                self.ran.append(name)
                return name

        tool("plain")
        tool("read", scopes=["files.read"])
        tool("save", scopes=["files.write", "files.read"])
        tool("drop", scopes=["admin"], hide=True)
        tool("by_path", scopes=lambda args: [f"repo:{args['path']}"])
        tool("help", anonymous=True)

        @server.tool
        async def later(ctx: Context, progress: bool = False) -> str:
            if progress:
                await ctx.info("begun")
                await asyncio.sleep(0)
            assert ctx.has_scopes("use")
            await ctx.require_scopes("use", "admin")
            self.ran.append("later")
            return "done"

        @server.tool
        def later_sync(ctx: Context) -> str:
            ctx.require_scopes("admin")
            self.ran.append("later_sync")
            return "done"

        @server.tool
        async def expired(ctx: Context) -> str:
            raise ctx.reauthorize("the one behind it has expired")

        @server.resource("notes://today", scopes=["files.read"])
        async def today() -> str:
            self.ran.append("today")
            return "x"

        @server.resource("notes://{day}", scopes=["files.write"])
        async def day(day: str) -> str:
            self.ran.append("day")
            return day

        @server.resource("open://{which}")
        async def opened(which: str, ctx: Context) -> str:
            await ctx.require_scopes("admin")
            return which

        @server.prompt(scopes=["files.write"])
        def rewrite(text: str) -> str:
            self.ran.append("rewrite")
            return text

        @server.completion("text", prompt="rewrite")
        async def completed(value: str) -> list[str]:
            self.ran.append("completion")
            return ["a"]


def protection(**options: Any) -> TokenFunction:
    def judge(token: str, request: object) -> Principal | None:
        scopes = TOKENS.get(token)
        return None if scopes is None else Principal(token, issuer="https://idp.example", scopes=scopes)

    return TokenFunction(
        judge,
        issuers=["https://idp.example"],
        public_url="https://tools.example.com/mcp",
        scopes=["use"],
        implies={"files": ["files.read", "files.write"], "files.write": ["files.append"]},
        **options,
    )


@asynccontextmanager
async def opened(shop: Shop, **options: Any) -> AsyncIterator[Port]:
    async with serving(shop.server, access=Access(authenticate=protection(**options))) as port:
        yield port


def bearer(token: str | None) -> dict[str, str | None]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


async def use(port: Port, token: str | None, method: str, params: dict[str, Any]) -> Answer:
    return await port.ask(modern(method, params, bearer(token)))


async def tool(port: Port, token: str | None, name: str, **arguments: Any) -> Answer:
    return await use(port, token, "tools/call", {"name": name, "arguments": arguments})


def challenge(answer: Answer) -> Mapping[str, str]:
    return parse([answer["www-authenticate"]])[0].params


# ------------------------------------------------------------------------------------ single entries


async def test_a_scope_that_is_lacking_is_403_before_anything_runs() -> None:
    """AUTH-080, AUTH-081, AUTH-082, AUTH-084, S25-149, S26-180: all scopes of the call, and those held that matter."""
    shop = Shop()
    async with opened(shop) as port:
        answer = await tool(port, "read", "save", path=7)  # what is wrong with the arguments is not looked at
        assert (answer.status, answer.json["error"]) == (403, "insufficient_scope")
        assert dict(challenge(answer)) == {
            "resource_metadata": METADATA,
            "scope": "use files.write files.read",
            "error": "insufficient_scope",
            "error_description": "the token does not allow this",
        }
        held = await tool(port, "admin", "by_path", path="x")
        assert challenge(held)["scope"] == "use repo:x admin files.read files.write"
        assert "openid" not in challenge(answer)["scope"]
        assert shop.ran == []
        assert (await tool(port, "write", "save")).status == 200
        assert (await tool(port, "read", "read")).status == 200
        assert (await tool(port, "read", "plain")).status == 200
    async with opened(shop, names_held=False) as port:
        assert challenge(await tool(port, "admin", "by_path", path="x"))["scope"] == "use repo:x"


async def test_scopes_include_others_by_their_hierarchy_alone() -> None:
    """AUTH-083, S26-181, H15."""
    shop = Shop()
    shop.server.tool(name="append", scopes=["files.append"])(lambda: "x")
    shop.server.tool(name="exact", scopes=["files.rea"])(lambda: "x")
    async with opened(shop) as port:
        assert (await tool(port, "write", "append")).status == 200
        assert (await tool(port, "read", "append")).status == 403
        assert (await tool(port, "write", "exact")).status == 403


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "notes://friday"}),
        ("prompts/get", {"name": "rewrite", "arguments": {"text": "a"}}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "rewrite"}, "argument": {"name": "text", "value": ""}},
        ),
        (
            "completion/complete",
            {"ref": {"type": "ref/resource", "uri": "notes://{day}"}, "argument": {"name": "day", "value": ""}},
        ),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["notes://friday"]}}),
    ],
)
async def test_all_that_is_guarded_is_guarded_alike(method: str, params: dict[str, Any]) -> None:
    """AUTH-086, S25-059, S26-109, S26-136."""
    shop = Shop()
    async with opened(shop) as port:
        answer = await use(port, "read", method, params)
        assert answer.status == 403
        assert "files.write" in challenge(answer)["scope"].split()
        assert shop.ran == []
        if method != "subscriptions/listen":
            allowed = await use(port, "write", method, params)
            assert (allowed.status, "result" in allowed.json) == (200, True)


async def test_what_is_suggested_can_depend_on_who_asks() -> None:
    """S25-074, S26-136: the scopes come first, in each version; then the function itself sees who it is."""
    shop = Shop()

    @shop.server.prompt(scopes=["files.read"])
    def secrets(name: str) -> str:
        return name

    @shop.server.completion("name", prompt="secrets")
    async def names(value: str, ctx: Context) -> list[str]:
        shop.ran.append(ctx.user.subject)
        return ["plain", *(["hidden"] if ctx.has_scopes("admin") else [])]

    params = {"ref": {"type": "ref/prompt", "name": "secrets"}, "argument": {"name": "name", "value": ""}}
    async with opened(shop) as port:
        for token, suggested in (("read", ["plain"]), ("admin", ["plain", "hidden"]), ("none", None), (None, None)):
            hello = await port.ask(post(initialize(), bearer(token)))
            session = {"MCP-Protocol-Version": "2025-11-25", **bearer(token)}
            if hello.status == 200:
                session["Mcp-Session-Id"] = hello["mcp-session-id"]
            old = await port.ask(post(call("completion/complete", params), session))
            new = await use(port, token, "completion/complete", params)
            if suggested is None:
                assert {old.status, new.status} == {401 if token is None else 403}
            else:
                assert old.json["result"]["completion"]["values"] == suggested
                assert new.json["result"]["completion"]["values"] == suggested
    assert shop.ran == ["read", "read", "admin", "admin"]


async def test_the_resource_that_would_be_read_is_the_one_that_counts() -> None:
    shop = Shop()
    async with opened(shop) as port:
        assert (await use(port, "read", "resources/read", {"uri": "notes://today"})).status == 200
        # Also as a handler finds out itself.
        assert (await use(port, "read", "resources/read", {"uri": "open://x"})).status == 403
        assert (await use(port, "admin", "resources/read", {"uri": "open://x"})).status == 200


async def test_scopes_by_arguments() -> None:
    """AUTH-084: a function that does not say lets nobody in."""
    shop = Shop()
    async with opened(shop) as port:
        answer = await tool(port, "read", "by_path", path="main")
        assert answer.status == 403
        assert "repo:main" in challenge(answer)["scope"]
        for arguments in ({}, {"path": 5}):
            answer = await tool(port, "admin", "by_path", **arguments)
            assert answer.status in (200, 403)
            assert answer.status == 403 or answer.code == -32602
        assert shop.ran == []


# ------------------------------------------------------------------------------------ hidden, for everybody


async def listed(port: Port, token: str | None) -> dict[str, Any]:
    answer = await use(port, token, "tools/list", {})
    return answer.json["result"]


async def test_hidden_tools_are_unknown_to_whom_they_are_hidden_from() -> None:
    """AUTH-076, AUTH-087, S26-132, H14: no page of an admin's is shown to another, and lists are private."""
    shop = Shop()
    async with opened(shop) as port:
        for _ in range(2):
            for token, is_seen in (("admin", True), ("read", False)):
                page = await listed(port, token)
                assert ("drop" in [one["name"] for one in page["tools"]]) == is_seen
                assert page["cacheScope"] == "private"
        hidden = await tool(port, "read", "drop")
        unknown = await tool(port, "read", "none")
        assert (hidden.status, hidden.code) == (unknown.status, unknown.code)
        assert hidden.error["message"].replace("drop", "none") == unknown.error["message"]
        assert (await tool(port, "admin", "drop")).status == 200
        # What needs scopes and is not hidden is seen by all, so that somebody may ask for them.
        assert "save" in [one["name"] for one in (await listed(port, "read"))["tools"]]


async def test_what_is_for_everybody() -> None:
    """AUTH-024, AUTH-091, AUTH-008: without a token; with one that is wrong it is 401."""
    shop = Shop()
    async with opened(shop) as port:
        assert (await tool(port, None, "help")).status == 200
        assert "help" in [one["name"] for one in (await listed(port, None))["tools"]]
        for name, scopes in (("plain", "use"), ("save", "use files.write files.read")):
            answer = await tool(port, None, name)
            assert (answer.status, answer.json["error"]) == (401, "unauthorized")
            assert dict(challenge(answer)) == {"resource_metadata": METADATA, "scope": scopes}
        for token, status in (("wrong", 401), ("none", 403)):
            assert (await tool(port, token, "help")).status == status
        assert (await use(port, None, "resources/read", {"uri": "notes://today"})).status == 401
        assert (await use(port, None, "resources/read", {"uri": "open://x"})).status == 401
        assert (await use(port, None, "com.example/thing", {})).status in (401, 404)

        # In a session of an older client too.
        hello = await port.ask(post(initialize()))
        session = {"Mcp-Session-Id": hello["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
        assert (await port.ask(post(call("tools/call", {"name": "help", "arguments": {}}), session))).status == 200
        assert (await port.ask(post(call("tools/call", {"name": "plain", "arguments": {}}), session))).status == 401
        assert shop.ran == ["help", "help"]


async def test_routes_are_not_for_everybody() -> None:
    shop = Shop()
    shop.server.route("/report")(lambda: "secret")
    async with opened(shop) as port:
        assert (await port.ask(request("GET", "/report"))).status == 401


# ------------------------------------------------------------------------------------ older versions, other roads


async def test_in_a_session_it_is_403_too() -> None:
    shop = Shop()
    async with opened(shop) as port:
        hello = await port.ask(post(initialize(), bearer("read")))
        session = {"Mcp-Session-Id": hello["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25", **bearer("read")}
        answer = await port.ask(post(call("tools/call", {"name": "save", "arguments": {}}), session))
        assert (answer.status, challenge(answer)["error"]) == (403, "insufficient_scope")
        again = {**session, **bearer("read")}
        assert (await port.ask(post(call("tools/call", {"name": "read", "arguments": {}}), again))).status == 200


async def test_a_batch_has_one_status() -> None:
    """AUTH-085: with the scopes of all its parts, and nothing of it runs."""
    shop = Shop()
    batch = [
        call("tools/call", {"name": name, "arguments": {"path": "x"}}, id=number)
        for number, name in enumerate(("plain", "save", "by_path"))
    ]
    async with opened(shop) as port:
        answer = await port.ask(post(batch, bearer("read")))
        assert answer.status == 403
        assert set(challenge(answer)["scope"].split()) >= {"use", "files.write", "files.read", "repo:x"}
        assert shop.ran == []
        answer = await port.ask(post(batch[:1], bearer("read")))
        assert (answer.status, shop.ran) == (200, ["plain"])


async def test_on_a_websocket_it_is_an_error_with_data() -> None:
    """AUTH-092: there is no status left to give."""
    shop = Shop()
    async with opened(shop) as port:
        peer = WebSocketPeer(*await asyncio.open_connection("127.0.0.1", port.number))
        peer.send(upgrade(Authorization="Bearer read"))
        assert (await peer.response())[0] == 101

        async def ask(message: Any) -> Any:
            peer.send(frame(TEXT, json.dumps(message).encode()))
            return json.loads(await peer.text())

        await ask(initialize())
        error = (await ask(call("tools/call", {"name": "save", "arguments": {}}, id=2)))["error"]
        assert error["code"] == -32600
        assert error["data"] == {
            "error": "insufficient_scope",
            "scope": "files.write files.read",
            "resource_metadata": METADATA,
        }
        # Found by the tool itself: a result that says so.
        result = (await ask(call("tools/call", {"name": "later", "arguments": {}}, id=3)))["result"]
        assert result["isError"]
        (line,) = result["_meta"]["mcp/www_authenticate"]
        assert parse([line])[0].params["error"] == "insufficient_scope"
        await peer.aclose()
    assert shop.ran == []


async def test_a_websocket_without_a_token_has_what_is_for_everybody() -> None:
    """AUTH-091, AUTH-024: where there is such a thing; all else says who to ask. A bad token is still 401."""
    shop = Shop()
    async with opened(shop) as port:
        peer = WebSocketPeer(*await asyncio.open_connection("127.0.0.1", port.number))
        peer.send(upgrade())
        assert (await peer.response())[0] == 101

        async def ask(number: int, name: str) -> Any:
            peer.send(frame(TEXT, json.dumps(call("tools/call", {"name": name, "arguments": {}}, id=number)).encode()))
            return json.loads(await peer.text())

        peer.send(frame(TEXT, json.dumps(initialize()).encode()))
        assert "result" in json.loads(await peer.text())
        assert (await ask(2, "help"))["result"]["content"][0]["text"] == "help"
        for number, name in ((3, "plain"), (4, "save")):
            data = (await ask(number, name))["error"]["data"]
            assert (data["error"], data["resource_metadata"]) == ("unauthorized", METADATA)
        await peer.aclose()

        for header, status in (("Bearer wrong", 401), ("Bearer", 400)):
            peer = WebSocketPeer(*await asyncio.open_connection("127.0.0.1", port.number))
            peer.send(upgrade(Authorization=header))
            assert (await peer.response())[0] == status
            await peer.aclose()
    assert shop.ran == ["help"]


async def test_a_tool_says_to_hosts_what_it_needs_where_its_author_wants_that() -> None:
    """AUTH-093: as hosts read it, beside what is asked for; nothing is written unasked."""
    server = Server("shop")
    schemes = [{"type": "oauth2", "scopes": ["files.write"]}]

    @server.tool(scopes=["files.write"], meta={"securitySchemes": schemes})
    async def save() -> str:
        return "saved"

    @server.tool(scopes=["files.write"])
    async def move() -> str:
        return "moved"

    def judge(token: str, request: object) -> Principal:
        return Principal(token, issuer="https://idp.example")

    auth = TokenFunction(judge, issuers=["https://idp.example"], public_url="https://x.example/mcp")
    async with serving(server, access=Access(authenticate=auth)) as port:
        listed = (await port.ask(modern("tools/list", {}, bearer("ada")))).json["result"]["tools"]
        assert {tool["name"]: (tool.get("_meta") or {}).get("securitySchemes") for tool in listed} == {
            "save": schemes,
            "move": None,
        }


async def test_a_refusal_of_an_authors_own_is_final() -> None:
    """AUTH-014, AUTH-091: what is for everybody opens nothing else, whatever word the refusal has."""
    server, ran = Server("shop"), []

    @server.tool(anonymous=True)
    async def help() -> str:
        return "help"

    @server.tool
    async def plain() -> str:
        ran.append("plain")
        return "plain"

    refusal = Refusal(401, "Who are you?\n", (("WWW-Authenticate", "Bearer"),), "unauthorized")
    async with serving(server, access=Access(authenticate=lambda headers: refusal)) as port:
        assert (await port.ask(modern("tools/call", {"name": "plain", "arguments": {}}))).status == 401
    assert ran == []


# ------------------------------------------------------------------------------------ in a handler


@pytest.mark.parametrize("name", ["later", "later_sync"])
async def test_what_a_tool_finds_out_is_403_while_nothing_was_said(name: str) -> None:
    """AUTH-084, AUTH-092."""
    shop = Shop()
    async with opened(shop) as port:
        answer = await tool(port, "read", name)
        assert answer.status == 403
        assert "admin" in challenge(answer)["scope"].split()
        assert (await tool(port, "admin", name)).status == 200
        assert shop.ran == [name]


async def test_in_a_stream_that_has_begun_it_is_a_result() -> None:
    """AUTH-092."""
    shop = Shop()
    meta = {"io.modelcontextprotocol/logLevel": "info"}
    async with opened(shop) as port:
        params = {"name": "later", "arguments": {"progress": True}}
        answer = await port.modern("tools/call", params, headers=bearer("read"), meta={**_meta(), **meta})
        assert answer.status == 200
        result = answer.messages[-1]["result"]
        assert result["isError"]
        assert "insufficient_scope" in result["_meta"]["mcp/www_authenticate"][0]


def _meta() -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    }


async def test_a_token_that_has_to_be_exchanged() -> None:
    shop = Shop()
    async with opened(shop) as port:
        answer = await tool(port, "read", "expired")
        assert (answer.status, answer.json["error"]) == (401, "invalid_token")
        assert challenge(answer)["error"] == "invalid_token"
        assert answer.json["error_description"] == "the one behind it has expired."


# ------------------------------------------------------------------------------------ where nobody is asked


async def test_on_this_machine_nobody_is_asked() -> None:
    """AUTH-022: on stdio, and in memory; but one who says who they are has what they have."""
    shop = Shop()
    async with TestClient(shop.server) as client:
        assert (await client.call_tool("save", {})).content[0].text == "save"
        assert (await client.call_tool("later", {})).content[0].text == "done"
        assert "drop" in [one.name for one in await client.list_tools()]


async def test_over_http_nobody_has_scopes() -> None:
    """A server that asks nobody serves nothing that needs a scope, and says what to do."""
    shop = Shop()
    async with serving(shop.server) as port:
        answer = await tool(port, None, "save")
        assert answer.status == 403
        assert "--issuer" in answer.text
        assert dict(challenge(answer)) == {"error": "insufficient_scope", "scope": "files.write files.read"}
        assert (await tool(port, None, "plain")).status == 200


async def test_an_authenticator_of_ones_own_gives_scopes_too() -> None:
    shop = Shop()

    def authenticate(headers: Mapping[str, str]) -> Principal:
        return Principal("ada", scopes=headers.get("authorization", "").split()[1:])

    async with serving(shop.server, access=Access(authenticate=authenticate)) as port:
        assert (await tool(port, "files.read", "read")).status == 200
        assert (await tool(port, "files", "read")).status == 403


@pytest.mark.parametrize(
    "options",
    [
        {"scopes": "files.read"},
        {"scopes": ["a b"]},
        {"scopes": ["a"], "anonymous": True},
        {"hide": True},
        {"hide": True, "scopes": lambda args: []},
        {"hide": True, "scopes": ["a"], "visible": lambda ctx: True},
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any]) -> None:
    with pytest.raises(RegistrationError):
        Server("x").tool(name="t", **options)(lambda: "x")


def test_what_is_raised_says_what_is_lacking() -> None:
    error = AccessDenied("no", scopes=["a", "b"])
    assert error.data == {"error": "insufficient_scope", "scope": "a b"}
    assert AccessDenied(error="invalid_token").data == {"error": "invalid_token"}
