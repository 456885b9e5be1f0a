"""What becomes of tokens: refreshed once for all, stepped up, refused, and never sent where they do not belong."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from support.http_script import Asked, Write, reply
from support.login_world import LoginWorld, world

from mcpd import AuthorizationFailed, AuthorizationRequired, Client, HttpError
from mcpd.client.auth.store import FileStore
from mcpd.errors import ConfigurationError


def client_of(there: LoginWorld, **more: Any) -> Client:
    return Client(there.url, auth=there.oauth(**more), cache=False)


def refreshes(there: LoginWorld) -> list[dict[str, str]]:
    return [form for form in there.forms if form["grant_type"] == "refresh_token"]


async def test_a_refused_token_is_refreshed_and_nobody_logs_in_again() -> None:
    """AUTH-207, AUTH-209: with the resource, and the client as it was registered."""
    async with world(metadata={"token_endpoint_auth_methods_supported": ["client_secret_basic"]}) as there:
        async with client_of(there) as client:
            await client.call_tool("read")
            there.tokens.clear()
            await client.call_tool("read")
        (form,) = refreshes(there)
        assert form["resource"] == there.url
        assert (form["_client"], form["_auth"]) == ("client-1", "basic")
        assert "scope" not in form
        assert len(there.visits) == 1


async def test_what_a_refresh_leaves_out_stays() -> None:
    """AUTH-209, AUTH-199: the refresh token and the scopes."""
    async with world(token_answer={"scope": None}) as there, client_of(there) as client:
        await client.call_tool("read")
        first = there.token
        there.token = lambda scopes="", lifetime=None: {  # type: ignore[method-assign, misc]
            name: value for name, value in first(scopes).items() if name not in ("refresh_token", "scope")
        }
        for _ in range(2):
            there.tokens.clear()
            there.refreshable[next(iter(refreshes(there) or [{"refresh_token": ""}]))["refresh_token"] or "x"] = set()
            there.refreshable.update({form["refresh_token"]: set() for form in refreshes(there)})
            await client.call_tool("read")
        sent = {form["refresh_token"] for form in refreshes(there)}
        assert len(sent) == 1
        assert len(there.visits) == 1


@pytest.mark.medium
async def test_a_token_is_refreshed_before_it_ends() -> None:
    """AUTH-207: at nine tenths of a short life; meanwhile it serves on."""
    async with world(lifetime=1) as there, client_of(there) as client:
        await client.call_tool("read")
        async with asyncio.timeout(20):
            while not refreshes(there):
                await client.call_tool("read")
        assert len(there.visits) == 1
        tokens = [asked.headers.get("authorization") for asked in there.server.asked if asked.rpc == "tools/call"]
        assert None not in tokens


async def test_many_requests_cause_one_refresh_and_one_login() -> None:
    """AUTH-200, AUTH-208."""
    async with world() as there, client_of(there) as client:
        await asyncio.gather(*(client.call_tool("read") for _ in range(10)))
        assert len(there.visits) == 1
        there.tokens.clear()
        await asyncio.gather(*(client.call_tool("read") for _ in range(10)))
        assert len(refreshes(there)) == 1
        there.tokens.clear()
        there.refreshable.clear()
        await asyncio.gather(*(client.call_tool("read") for _ in range(10)))
        assert len(there.visits) == 2


async def test_two_clients_of_one_server_log_in_once(tmp_path: Path) -> None:
    """AUTH-200: and share what one of them gets."""
    async with world() as there:
        clients = [client_of(there, store=tmp_path / "auth.json") for _ in range(3)]
        await asyncio.gather(*(client.open() for client in clients))
        assert len(there.visits) == 1
        there.tokens.clear()
        await asyncio.gather(*(client.call_tool("read") for client in clients))
        assert len(refreshes(there)) == 1
        await asyncio.gather(*(client.aclose() for client in clients))


async def test_a_refresh_that_another_process_made_is_used(tmp_path: Path) -> None:
    """AUTH-208, AUTH-210: the store is read again under the lock."""
    path = tmp_path / "auth.json"
    async with world() as there, client_of(there, store=path) as one, client_of(there, store=path) as other:
        there.tokens.clear()
        await one.call_tool("read")
        await other.call_tool("read")
        assert len(refreshes(there)) == 1
        # The refresh token that `other` knew first is used up; that of the store is not dropped for it.
        assert (kept := FileStore(path).read().login(there.url)) is not None
        assert kept.refresh_token in there.refreshable


@pytest.mark.parametrize("is_early", [True, False])
async def test_who_has_logged_out_elsewhere_stays_logged_out(tmp_path: Path, is_early: bool) -> None:
    """AUTH-210: a program that runs on puts no login back that `mcpd logout` deleted, before its refresh or during."""
    path = tmp_path / "auth.json"

    def log_out(form: dict[str, str] | None = None) -> None:
        FileStore(path).change(lambda kept: kept.logins.clear())

    async with world() as there, client_of(there, store=path), client_of(there, store=path, interactive=False) as late:
        await late.call_tool("read")
        there.tokens.clear()
        if is_early:
            log_out()
        else:
            there.token_error = log_out
        with pytest.raises(AuthorizationRequired):
            await late.call_tool("read")
        assert len(refreshes(there)) == (not is_early)
        assert FileStore(path).read().logins == []


async def test_a_refresh_token_that_is_refused_is_dropped() -> None:
    """AUTH-210: then somebody logs in."""
    async with world() as there, client_of(there) as client:
        there.tokens.clear()
        there.refreshable.clear()
        await client.call_tool("read")
        assert len(there.visits) == 2


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_an_outage_drops_nothing(status: int) -> None:
    """AUTH-210."""
    async with world() as there, client_of(there) as client:
        await client.call_tool("read")
        there.tokens.clear()
        there.token_error = lambda form: (status, {"error": "invalid_grant"})
        with pytest.raises(AuthorizationFailed, match=str(status)):
            await client.call_tool("read")
        there.token_error = lambda form: None
        await client.call_tool("read")
        assert len(there.visits) == 1


async def test_a_server_without_refresh_tokens() -> None:
    """AUTH-207: they are never assumed."""
    async with world(gives_refresh=False) as there, client_of(there) as client:
        await client.call_tool("read")
        there.tokens.clear()
        await client.call_tool("read")
        assert len(there.visits) == 2
        assert not refreshes(there)


async def test_a_registration_is_used_again_until_it_is_refused(tmp_path: Path) -> None:
    """AUTH-181."""
    path = tmp_path / "auth.json"
    async with world(gives_refresh=False) as there:
        for _ in range(2):
            async with client_of(there, store=path) as client:
                await client.call_tool("read")
            there.tokens.clear()
        assert len(there.visits) == 2
        assert len(there.registered) == 1
        there.token_error = lambda form: (401, {"error": "invalid_client"}) if form["_client"] == "client-1" else None
        async with client_of(there, store=path) as client:
            await client.call_tool("read")
        assert [form["_client"] for form in there.forms[-2:]] == ["client-1", "client-2"]


async def test_another_authorization_server_is_told_nothing_of_the_first(tmp_path: Path) -> None:
    """H26 (AUTH-171, AUTH-179, AUTH-180): registered anew there, and not with what the first gave."""
    path = tmp_path / "auth.json"
    basic = {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}
    async with world(metadata=basic, gives_refresh=False) as there, world(metadata=basic) as second:
        async with client_of(there, store=path) as client:
            await client.call_tool("read")
            there.tokens.clear()
            there.resource["authorization_servers"] = [second.origin]
            there.callback["iss"] = second.origin
            second.codes = there.codes
            second.tokens = there.tokens
            await client.call_tool("read")
        assert len(second.registered) == 1
        said = b"".join(asked.body for asked in second.server.asked)
        first = [one.body for one in there.server.asked if one.path == "/token"][0]
        assert b"secret-" not in said.replace(b"client_secret_basic", b"")
        assert b"code_verifier" in first
        # A given id is not carried over.
        there.tokens.clear()
        there.resource["authorization_servers"] = [there.origin]
        there.callback = {}
        async with client_of(there, client_id="given", client_secret="secret-given", store=path) as client:
            there.tokens.clear()
            there.resource["authorization_servers"] = [second.origin]
            with pytest.raises(AuthorizationFailed, match="belongs to"):
                await client.call_tool("read")


# -- step up -----------------------------------------------------------------------------------


async def test_a_step_up_asks_for_both() -> None:
    """AUTH-197: the union of what was asked for and what is wanted."""
    async with world(needs={"write": "write"}, challenge={}) as there, client_of(there) as client:
        await client.call_tool("read")
        await client.call_tool("write")
        assert [visit["scope"] for visit in there.visits] == ["basic", "basic write"]
        await client.call_tool("write")
        assert len(there.visits) == 2


async def test_a_step_up_keeps_what_was_granted_unasked() -> None:
    """AUTH-197."""
    granted = {"scope": "usual"}
    async with world(resource={"scopes_supported": None}, needs={"write": "write"}, token_answer=granted) as there:
        async with client_of(there) as client:
            await client.call_tool("read")
            await client.call_tool("write")
        assert [visit.get("scope") for visit in there.visits] == [None, "usual write"]


@pytest.mark.parametrize("gives_refresh", [True, False])
async def test_the_next_login_keeps_what_was_granted(gives_refresh: bool) -> None:
    """AUTH-197: else the first call that needs more asks once more. What a program says itself stays as it is."""
    async with world(needs={"write": "write"}, gives_refresh=gives_refresh) as there:
        async with client_of(there) as client:
            await client.call_tool("write")
            there.tokens.clear()
            there.refreshable.clear()
            await client.call_tool("read")
            await client.call_tool("write")
        assert [set(visit["scope"].split()) for visit in there.visits] == [{"basic"}, *[{"basic", "write"}] * 2]

        async with client_of(there, scopes=["own"]) as client:
            await client.call_tool("read")
            there.tokens.clear()
            there.refreshable.clear()
            await client.call_tool("read")
        assert [visit["scope"] for visit in there.visits[3:]] == ["own", "own"]


async def test_what_is_granted_no_more_does_not_end_the_login() -> None:
    """AUTH-197: the challenge alone is asked for then."""
    async with world(needs={"write": "write"}, gives_refresh=False) as there, client_of(there) as client:
        await client.call_tool("write")
        there.tokens.clear()
        refusal = {"error": "invalid_scope"}
        there.token_error = lambda form: (400, refusal) if "write" in there.visits[-1]["scope"] else None
        await client.call_tool("read")
        assert [visit["scope"] for visit in there.visits[1:]] == ["basic write", "basic write", "basic"]
        assert len(there.registered) == 1


async def test_a_step_up_in_vain_is_not_tried_again() -> None:
    """AUTH-198, AUTH-212."""
    async with world(needs={"write": "write"}, token_answer={"scope": "basic"}) as there, client_of(there) as client:
        visit = there.visit

        def grants_less(url: str) -> None:
            visit(url)
            for asked in there.codes.values():
                asked["scope"] = "basic"

        client._auth = there.oauth(open_url=grants_less)  # type: ignore[assignment]
        client._authorization = None
        async with client_of(there, open_url=grants_less) as poor:
            with pytest.raises(AuthorizationFailed, match="write"):
                await poor.call_tool("write")
            assert len(there.visits) <= 4
            before = len(there.visits)
            with pytest.raises(AuthorizationFailed, match="write"):
                await poor.call_tool("write")
            assert len(there.visits) == before
            await poor.call_tool("read")


async def test_without_a_person_a_step_up_says_what_is_wanted(tmp_path: Path) -> None:
    """AUTH-200."""
    path = tmp_path / "auth.json"
    async with world(needs={"write": "write"}) as there:
        async with client_of(there, store=path) as client:
            await client.call_tool("read")
        async with client_of(there, store=path, interactive=False) as client:
            await client.call_tool("read")
            with pytest.raises(AuthorizationRequired) as raised:
                await client.call_tool("write")
            assert raised.value.scopes == ("write",)
            assert raised.value.status == 403


@pytest.mark.parametrize("how", ["401", "403", "both"])
async def test_refusals_for_ever_end(how: str) -> None:
    """H25 (AUTH-198, AUTH-212): bounded on POST, whatever the server says."""
    turns = 0
    async with world() as there:
        serve = there._serve

        async def refuses(asked: Asked, write: Write) -> None:
            nonlocal turns
            turns += 1
            if "authorization" not in asked.headers or how == "401" or (how == "both" and turns % 2):
                await write(reply(401, {}, {"WWW-Authenticate": there._challenge({"error": "invalid_token"})}))
            elif asked.rpc == "tools/call" or how == "both":
                scope = {"error": "insufficient_scope", "scope": f"s{turns}"}
                await write(reply(403, {}, {"WWW-Authenticate": there._challenge(scope)}))
            else:
                await serve(asked, write)

        there._serve = refuses  # type: ignore[method-assign]
        with pytest.raises(AuthorizationFailed):
            async with client_of(there) as client:
                await client.call_tool("read")
        assert 1 <= len(there.visits) <= 4
        assert turns < 20


async def test_a_websocket_is_opened_with_a_token_and_refused_with_an_end() -> None:
    """AUTH-212, AUTH-205: the handshake has it."""
    async with world(gives_refresh=False, takes_tokens=False) as there:
        with pytest.raises(AuthorizationFailed, match="just issued"):
            async with Client(there.url.replace("http", "ws"), auth=there.oauth()):
                pass
        upgrades = [asked for asked in there.server.asked if "upgrade" in asked.headers]
        assert [("authorization" in asked.headers) for asked in upgrades] == [False, True]
        assert len(there.visits) == 1


async def test_the_stream_of_a_session_does_not_ask_anybody_to_log_in_again_and_again() -> None:
    """AUTH-212, for GET."""
    async with world(gives_refresh=False) as there:
        gets = 0

        async def old(asked: Asked, write: Write) -> None:
            nonlocal gets
            from support.http_script import legacy, result

            token = asked.headers.get("authorization", "").removeprefix("Bearer ")
            if asked.method == "GET":
                gets += 1
            if token not in there.tokens or asked.method == "GET":
                await write(reply(401, {}, {"WWW-Authenticate": there._challenge({})}))
                return

            async def rest(asked: Asked, write: Write) -> None:
                if asked.rpc not in ("GET", "DELETE"):
                    await write(reply(200, result(asked, {"content": []})))

            await legacy(rest, tools=[{"name": "read", "inputSchema": {"type": "object"}}])(asked, write)

        there._serve = old  # type: ignore[method-assign]
        async with client_of(there) as client:
            await client.call_tool("read")
            await client.call_tool("read")
            assert len(there.visits) <= 2
            assert gets <= 3


# -- where tokens go ---------------------------------------------------------------------------


@pytest.mark.parametrize("auth", ["login", "token"])
async def test_no_token_goes_along_a_redirect(auth: str) -> None:
    """AUTH-206, AUTH-244: neither to another server, nor to another path of this one; below the server it may."""
    async with world() as there, world() as other:
        there.tokens["mine"] = set()
        used: Any = there.oauth() if auth == "login" else "mine"
        for place in (other.url, "/elsewhere", f"{there.origin}/mcp2"):
            async with Client(there.url, auth=used, cache=False) as client:
                there.answers["/mcp"] = reply(307, b"", {"Location": place})
                with pytest.raises(HttpError, match="redirects to"):
                    await client.call_tool("read")
                del there.answers["/mcp"]
        assert not other.server.asked
        assert not any("authorization" in one.headers for one in there.server.asked if one.path != "/mcp")


async def test_a_token_of_the_program() -> None:
    """AUTH-205: as it is, or from a function that is asked again when it was refused."""
    async with world(tokens={"one": set(), "two": set()}) as there:
        async with Client(there.url, auth="one") as client:
            await client.call_tool("read")
        given = iter(["none", "two", "three"])

        async def source() -> str:
            return next(given)

        async with Client(there.url, auth=source) as client:
            await client.call_tool("read")
        with pytest.raises(HttpError) as raised:
            async with Client(there.url, auth="secret-wrong"):
                pass
        assert raised.value.status == 401
        assert "secret-wrong" not in str(raised.value)


@pytest.mark.parametrize("auth", ["a b", "", "ü", 7])
async def test_what_is_no_token(auth: Any) -> None:
    async with world() as there:
        with pytest.raises(ConfigurationError, match="auth"):
            async with Client(there.url, auth=auth):
                pass


async def test_a_token_is_said_in_one_way() -> None:
    with pytest.raises(ConfigurationError, match="use only one of"):
        async with Client("http://127.0.0.1:1/mcp", auth="x", headers={"Authorization": "Bearer y"}):
            pass


@pytest.mark.medium
async def test_a_login_takes_as_long_as_it_takes() -> None:
    """The time limit of a request stands still while somebody logs in for it."""
    async with world() as there:
        seen = asyncio.Event()

        async def slow(url: str) -> None:
            # Longer than the time limit below.
            asyncio.get_running_loop().call_later(0.5, seen.set)
            await seen.wait()
            there.visit(url)

        async with Client(there.url, auth=there.oauth(open_url=slow), timeout=0.3) as client:
            assert seen.is_set()
            await client.call_tool("read")


async def test_nothing_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """AUTH-057: no token, code, verifier or secret, at any level."""
    caplog.set_level(logging.DEBUG)
    async with world(needs={"write": "write"}) as there, client_of(there) as client:
        await client.call_tool("write")
        there.tokens.clear()
        await client.call_tool("read")
        there.tokens.clear()
        there.refreshable.clear()
        there.token_error = lambda form: (400, {"error": "invalid_grant", "error_description": "no"})
        with pytest.raises(AuthorizationFailed) as raised:
            await client.call_tool("read")
        secret = [form.get("code_verifier", "") for form in there.forms] + [
            form.get("code", "") for form in there.forms
        ]
        for one in ["secret-", *filter(None, secret)]:
            assert one not in caplog.text
            assert one not in repr(raised.value)
            assert one not in repr(vars(client._authorization))
