"""What attackers tried on a protected server: ways around scopes, and answers meant for somebody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.http_peer import Answer, Port, modern, serving

from mcpd import Context, Principal, Server
from mcpd.auth import base
from mcpd.auth.base import TokenRequest
from mcpd.auth.settings import TokenFunction
from mcpd.transports.authentication import Refusal
from mcpd.transports.guards import Access


def guarded(**options: Any) -> TokenFunction:
    def judge(token: str, request: object) -> Principal | None:
        return Principal(token, issuer="https://idp.example", scopes=["use", *token.split(".")[1:]])

    return TokenFunction(judge, issuers=["https://idp.example"], public_url="https://x.example/mcp", **options)


async def use(port: Port, token: str | None, method: str, params: dict[str, Any]) -> Answer:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return await port.ask(modern(method, params, headers))


async def test_what_is_hidden_is_no_way_around_what_lies_behind_it() -> None:
    """AUTH-086: the scopes that count are those of what is read once a rule has hidden what would come first."""
    server, ran = Server("shop"), []

    @server.resource("notes://today", visible=lambda ctx: False)
    async def today() -> str:
        return "hidden"

    @server.resource("notes://x/{day}", visible=lambda ctx: False)
    async def hidden_template(day: str) -> str:
        return "hidden"

    @server.resource("notes://{+day}", scopes=["secret"])
    async def anyday(day: str) -> str:
        ran.append(day)
        return "secret"

    async with serving(server, access=Access(authenticate=guarded())) as port:
        for uri in ("notes://today", "notes://x/y", "notes://other"):
            answer = await use(port, "eve", "resources/read", {"uri": uri})
            assert answer.status == 403, (uri, answer.text)
            assert (await use(port, "ana.secret", "resources/read", {"uri": uri})).status == 200
        listen = {"notifications": {"resourceSubscriptions": ["notes://today"]}}
        assert (await use(port, "eve", "subscriptions/listen", listen)).status == 403
    assert ran == ["today", "x/y", "other"]


async def test_arguments_that_only_the_tool_can_read() -> None:
    """AUTH-084: scopes are found by what the tool gets, or nobody is let in."""
    server, ran = Server("shop"), []

    @server.tool(scopes=lambda args: ["secret"] if args.get("repo") == "secret" else [])
    async def push(repo: str = "public", junk: Any = None) -> str:
        ran.append(repo)
        return repo

    async with serving(server, access=Access(authenticate=guarded())) as port:
        for repo in (b'"public", "repo": "secret"', b'"secret", "repo": "public"', b'"s\\u0065cret"'):
            for junk in (b"1e999", b'"\xff"', b"[" * 5000 + b"]" * 5000, b'"\\ud800"', b"1"):
                answer = await port.ask(push_with(repo, junk))
                assert answer.status in (200, 400, 403), (repo, junk[:20])
                assert "secret" not in ran, (repo, junk[:20])


def push_with(repo: bytes, junk: bytes) -> bytes:
    """A call of the tool `push`, with these bytes in its arguments."""
    arguments = {"repo": "REPO", "junk": "JUNK"}
    message = modern("tools/call", {"name": "push", "arguments": arguments}, {"Authorization": "Bearer eve"})
    head, _, body = message.partition(b"\r\n\r\n")
    body = body.replace(b'"REPO"', repo).replace(b'"JUNK"', junk)
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


async def test_one_entry_for_everybody_opens_no_other() -> None:
    """AUTH-024, AUTH-091: who is nobody may do what is for everybody, and only that."""
    server = Server("shop")

    @server.resource("open://a", anonymous=True)
    async def open_a() -> str:
        return "a"

    @server.resource("own://b")
    async def own_b() -> str:
        return "b"

    async with serving(server, access=Access(authenticate=guarded())) as port:
        assert (await use(port, None, "resources/read", {"uri": "own://b"})).status == 401
        listen = {"notifications": {"resourceSubscriptions": ["open://a", "own://b"]}}
        assert (await use(port, None, "subscriptions/listen", listen)).status == 401
        assert (await use(port, None, "resources/read", {"uri": "open://a"})).status == 200


async def test_one_token_in_two_requests_at_once_is_judged_for_each() -> None:
    """A function that goes by the request, and keeps nothing, is asked about each of them."""
    go = asyncio.Event()
    asked = 0

    async def judge(token: str, request: TokenRequest) -> Principal | None:
        nonlocal asked
        asked += 1
        tenant = request.headers.get("x-tenant", "")
        if asked == 2:
            go.set()
        await asyncio.wait_for(go.wait(), 20)
        return Principal(f"{tenant}/{token}")

    server = Server("shop")

    @server.tool
    async def who(ctx: Context) -> str:
        return ctx.user.subject

    auth = TokenFunction(judge, public_url="https://x.example/mcp", cache_seconds=0)
    async with serving(server, access=Access(authenticate=auth)) as port:
        asks = [
            port.ask(modern("tools/call", {"name": "who"}, {"Authorization": "Bearer t", "X-Tenant": tenant}))
            for tenant in ("a", "b")
        ]
        answers = await asyncio.gather(*asks)
        assert [one.json["result"]["content"][0]["text"] for one in answers] == ["a/t", "b/t"]


@pytest.mark.medium
async def test_tokens_that_are_looked_at_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of made-up tokens costs no more than so many questions, and one that hangs is given up."""
    asked: list[str] = []

    async def hang(token: str, request: TokenRequest) -> Principal | None:
        asked.append(token)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    monkeypatch.setattr(base, "_MAX_AT_ONCE", 3)
    monkeypatch.setattr(base, "_VERIFY_SECONDS", 0.2)
    auth = TokenFunction(hang, public_url="https://x.example/mcp")
    given = [auth({"authorization": f"Bearer made-up-{number}"}) for number in range(5)]
    refused = [one for one in given if isinstance(one, Refusal)]
    assert [one.status for one in refused] == [503, 503]
    waited = await asyncio.gather(*(one for one in given if asyncio.iscoroutine(one)))
    assert [one.status for one in waited if isinstance(one, Refusal)] == [503, 503, 503]
    assert len(asked) == 3
    assert asyncio.iscoroutine(later := auth({"authorization": "Bearer another"}))
    assert isinstance(answer := await later, Refusal)
    assert answer.status == 503
