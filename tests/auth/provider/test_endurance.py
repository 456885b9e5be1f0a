"""What goes on while tokens are renewed, keys are exchanged and the authorization server is away (one of others)."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from conftest import REPOSITORY
from support.http_peer import Port, modern, serving
from support.oidc_provider import Provider, free_port, provider

import mcpd.auth.issuers as keys_module
from mcpd import Callbacks, Client, ClientCredentials, Context, ElicitResult, OAuth, Server
from mcpd.auth.issuers import Introspection, Jwt
from mcpd.transports.guards import Access

pytestmark = pytest.mark.nightly

APPROVE = str(REPOSITORY / "conformance" / "approve.py")
SECRET = "s" * 32
ROBOT = {
    "client_id": "robot", "client_secret": SECRET, "grant_types": ["client_credentials"], "redirect_uris": [],
    "response_types": [], "scope": "use",
}  # fmt: skip
RENEWING = """
import asyncio, sys
from msgspec.structs import replace
from mcpd import Client, OAuth
from mcpd.client.auth.store import FileStore

url, store, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])


def expire(kept):
    kept.logins = [replace(one, expires_at=1.0) for one in kept.logins]


async def main():
    for _ in range(rounds):
        FileStore(store).change(expire)
        async with Client(url, auth=OAuth(interactive=False, store=store)) as client:
            assert str(await client.call("who")) == "ada"


asyncio.run(main())
"""


def judged() -> Server:
    """A server that says who calls, counts in a session, and asks for a name."""
    server = Server("judged")

    @server.tool
    async def who(ctx: Context) -> str:
        return ctx.user.subject

    @server.tool
    async def session(ctx: Context) -> str:
        return str(ctx.headers.get("mcp-session-id"))

    @server.tool
    async def greet(ctx: Context) -> str:
        found = await ctx.elicit("Who is it?", str)
        return f"Hello {found.get()}"

    return server


async def visit(url: str) -> str:
    """Be shown a page, agree, and come back."""
    browser = await asyncio.create_subprocess_exec(sys.executable, APPROVE, "--print", url, stdout=-1)
    return (await browser.communicate())[0].decode().strip()


def person(store: Path | str) -> OAuth:
    """Somebody who logs in."""
    back: list[str] = []

    async def open_url(url: str) -> None:
        back.append(await visit(url))

    redirect = "http://127.0.0.1:9/callback"
    return OAuth(open_url=open_url, wait_callback=lambda: back[-1], redirect=redirect, store=store)


async def test_two_processes_renew_one_login_200_times(tmp_path: Path) -> None:
    """AUTH-208, AUTH-210: with rotation, and a second use of a refresh token would end it: none is used twice."""
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    store = tmp_path / "auth.json"
    with provider(url, ["use"]) as there:
        access = Access(authenticate=Jwt(there.issuer, public_url=url))
        async with serving(judged(), access=access, address=f"127.0.0.1:{port}"):
            async with Client(url, auth=person(store)) as client:
                assert str(await client.call("who")) == "ada"

            command = [sys.executable, "-c", RENEWING, url, str(store), "100"]
            both = [await asyncio.create_subprocess_exec(*command, stderr=-1) for _ in range(2)]
            for process in both:
                errors = (await asyncio.wait_for(process.communicate(), 100))[1]
                assert process.returncode == 0, errors.decode()

        said = there.said()
        assert not [line for line in said if line.startswith("refused")]
        # One that finds what the other has just got asks for nothing.
        assert 100 <= there.granted().count("refresh_token") <= 200


async def expire(there: Provider, token: str) -> None:
    """Make the provider forget an access token, as if its time were over."""
    await asyncio.to_thread(from_form, f"{there.issuer}/forget/{token}", {})


def from_form(url: str, fields: dict[str, str]) -> bytes:
    """POST a form, as a client with a secret."""
    basic = b64encode(f"robot:{SECRET}".encode()).decode()
    request = urllib.request.Request(url, urlencode(fields).encode(), {"Authorization": f"Basic {basic}"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        found: bytes = answer.read()
        return found


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_what_is_under_way_outlives_a_token(version: str, tmp_path: Path) -> None:
    """AUTH-065, AUTH-067: a session, and a question that waits for an answer, go on with the next token."""
    store = tmp_path / "auth.json"
    tokens: list[str] = []

    def token() -> str:
        (login,) = json.loads(store.read_text(encoding="utf-8"))["logins"]
        return str(login["access_token"])

    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    with provider(url, ["use"], format="opaque") as there:
        auth = Introspection(there.issuer, public_url=url, client_id="server", client_secret=SECRET, cache_seconds=0)
        async with serving(judged(), access=Access(authenticate=auth), address=f"127.0.0.1:{port}"):

            async def answer(_: Any) -> ElicitResult:
                tokens.append(token())
                await expire(there, token())
                return ElicitResult(action="accept", content={"value": "Ada"})

            callbacks = Callbacks(elicit_form=answer)
            async with Client(url, callbacks, auth=person(store), version=version) as client:
                before = str(await client.call("session"))
                tokens.append(token())
                await expire(there, token())
                assert str(await client.call("session")) == before
                assert str(await client.call("greet")) == "Hello Ada"
                assert str(await client.call("session")) == before
            tokens.append(token())
        assert len(set(tokens)) == 3
        assert there.granted() == ["authorization_code", "refresh_token", "refresh_token"]


async def test_other_keys_and_no_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTH-047, AUTH-048, AUTH-054: new keys are taken at once, withdrawn ones no longer; no provider is no 401."""
    monkeypatch.setattr(keys_module, "_BETWEEN_TRIES", 0.0)
    url, home = "http://127.0.0.1:1/mcp", free_port()
    issuer = f"http://127.0.0.1:{home}"

    def token() -> str:
        found = json.loads(from_form(f"{issuer}/token", {"grant_type": "client_credentials", "scope": "use"}))
        return str(found["access_token"])

    async def status(port: Port, token: str) -> int:
        return (await port.ask(modern("tools/call", {"name": "who"}, {"Authorization": f"Bearer {token}"}))).status

    async with serving(judged(), access=Access(authenticate=Jwt(issuer, public_url=url))) as port:
        with provider(url, ["use"], port=home, clients=[ROBOT]):
            first, second, third = [await asyncio.to_thread(token) for _ in range(3)]
            assert await status(port, first) == 200
        assert [await status(port, one) for one in (first, second)] == [200, 200]

        with provider(url, ["use"], port=home, clients=[ROBOT]):
            load = [await asyncio.to_thread(token) for _ in range(20)]
            answers = await asyncio.gather(*(status(port, one) for one in (*load[:10], first, *load[10:19])))
            assert answers == [200] * 20
            assert await status(port, third) == 401
        assert await status(port, load[19]) == 200
        assert await status(port, first) == 200

    # Who has to ask about each token has nothing to go by but what was said before.
    with provider(url, ["use"], port=home, clients=[ROBOT], format="opaque"):
        auth = Introspection(issuer, public_url=url, client_id="server", client_secret=SECRET)
        known, unknown = [await asyncio.to_thread(token) for _ in range(2)]
        async with serving(judged(), access=Access(authenticate=auth)) as port:
            assert await status(port, known) == 200
            assert await status(port, unknown[::-1]) == 401
    async with serving(judged(), access=Access(authenticate=auth)) as port:
        assert [await status(port, one) for one in (known, unknown)] == [200, 503]


async def test_a_program_whose_tokens_end_all_the_time() -> None:
    """AUTH-207, AUTH-220: tokens of two seconds are asked for anew in time, and no call is refused."""
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    with provider(url, ["use"], clients=[ROBOT], seconds=2) as there:
        access = Access(authenticate=Jwt(there.issuer, public_url=url))
        async with serving(judged(), access=access, address=f"127.0.0.1:{port}"):
            auth = ClientCredentials(client_id="robot", client_secret=SECRET)
            async with asyncio.timeout(60), Client(url, auth=auth) as client:
                while len(there.granted()) < 4:
                    assert str(await client.call("who")) == "robot"
        assert not [line for line in there.said() if line.startswith("refused")]
