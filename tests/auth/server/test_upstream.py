"""Signing in with a provider: OpenID Connect and GitHub, honest ones and others, and what is kept of their tokens."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from support.login_stage import Browser, Login, Now, Stage, claims_of, stage, told, users_file
from support.raw_http import Asked, as_json, raw_server

from mcpd.auth.server.clients import OAuthError
from mcpd.auth.server.settings import Provider, Settings, UserFile, Users
from mcpd.auth.server.upstream import GitHub, is_allowed

KEY = ECKey.generate_key("P-256", {"use": "sig"}, auto_kid=True)


class Corp:
    """A provider: what it says can be changed. Its pages are not shown: a test says who came back."""

    def __init__(self) -> None:
        self.url = ""
        self.metadata: dict[str, Any] = {}
        self.claims: dict[str, Any] = {"email": "ana@corp.example", "email_verified": True, "name": "Ana <b>"}
        self.answer: dict[str, Any] = {"access_token": "upstream-1", "refresh_token": "upstream-r", "expires_in": 3600}
        self.status = 200
        self.key = KEY
        self.asked: list[Asked] = []
        self.nonce = ""

    def __call__(self, asked: Asked) -> bytes:
        self.asked.append(asked)
        if asked.path == "/.well-known/openid-configuration":
            endpoints = {
                "issuer": self.url, "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token", "jwks_uri": f"{self.url}/keys",
            }  # fmt: skip
            return as_json({**endpoints, **self.metadata})
        if asked.path == "/keys":
            return as_json({"keys": [KEY.as_dict(private=False)]})
        claims = {"iss": self.url, "aud": "us", "sub": "42", "exp": 4e9, "nonce": self.nonce, **self.claims}
        token = jwt.encode({"alg": "ES256", "kid": KEY.kid}, claims, self.key)
        return as_json({"id_token": token, "token_type": "Bearer", **self.answer}, self.status)


@asynccontextmanager
async def corp(tmp_path: Path, **changes: Any) -> AsyncIterator[tuple[Stage, Corp]]:
    """A server that lets people in by such a provider."""
    provider = Corp()
    secret = tmp_path / "secret"
    secret.write_text("s3cr:t")
    async with raw_server(provider) as server:
        provider.url = server.url
        said = {"client_id": "us", "client_secret_file": str(secret), "allow": ("*@corp.example",), **changes}
        settings = Settings(providers={"corp": Provider(issuer=server.url, label="Corp", **said)})
        now = Now()
        import time

        now.time = time.time()
        async with stage(settings, now=now) as here:
            yield here, provider


async def leave(login: Login, provider: Corp, name: str = "corp") -> dict[str, str]:
    """Begin, and press the button; gives what the provider is asked."""
    page = await login.begin()
    assert f"/oauth/sign-in/{name}" in page.text
    answer = await login.browser.post(f"/oauth/sign-in/{name}", login.browser.form)
    assert answer.status == 303, answer.text
    asked = told(answer)
    provider.nonce = asked.get("nonce", "")
    return asked


async def back(browser: Browser, asked: dict[str, str], **changes: str) -> Any:
    """Come back from the provider; gives the page that follows."""
    state = changes.pop("state", asked["state"])
    more = "".join(f"&{name}={value}" for name, value in changes.items())
    answer = await browser.get(f"/oauth/sign-in/corp/callback?code=c&state={state}{more}")
    if answer.status == 303:
        return await browser.get(answer["location"].removeprefix(browser.stage.issuer))
    return answer


async def test_a_login_by_a_provider(tmp_path: Path) -> None:
    """AUTH-141, AUTH-142 (S25-153, S26-187), AUTH-143: PKCE and nonce upstream; our own token, not the provider's."""
    async with corp(tmp_path) as (here, provider):
        login = await here.login()
        asked = await leave(login, provider)
        assert asked["redirect_uri"] == f"{here.issuer}/oauth/sign-in/corp/callback"
        assert (asked["scope"], asked["code_challenge_method"]) == ("openid email profile", "S256")
        page = await back(login.browser, asked, iss=provider.url)
        assert "ana@corp.example" in page.text
        tokens = (await login.exchange((await login.browser.choose())["code"])).json
        claims = claims_of(tokens["access_token"])
        assert (claims["sub"], claims["email"], claims["name"]) == ("corp:42", "ana@corp.example", "Ana <b>")
        assert "upstream" not in str(tokens)

        (exchange,) = [one for one in provider.asked if one.path == "/token"]
        basic = exchange.headers["authorization"].removeprefix("Basic ")
        assert b64decode(basic) == b"us:s3cr%3At"
        sent = parse_qs(exchange.body.decode())
        assert len(sent["code_verifier"][0]) >= 43
        assert (await login.refresh(tokens["refresh_token"])).status == 200
        # Nothing was asked to be kept.
        with pytest.raises(OAuthError, match="invalid_grant"):
            await here.server.core.upstream_token(claims["grant"])


async def test_the_callback_is_of_the_browser_that_left(tmp_path: Path) -> None:
    """H31 (AUTH-141, AUTH-142): state once, within ten minutes, in that browser alone, to that provider."""
    async with corp(tmp_path) as (here, provider):
        login, victim = await here.login(), await here.login()
        await victim.begin()
        asked = await leave(login, provider)
        for browser, changes in ((Browser(here), {}), (victim.browser, {}), (login.browser, {"state": "other"})):
            answer = await back(browser, asked, **changes)
            assert (answer.status in (400, 403), "location" in answer) == (True, False)
        assert "Let A client use" in (await back(login.browser, asked)).text
        assert (await back(login.browser, asked)).status == 400

        asked = await leave(login, provider)
        here.now.time += 601
        assert (await back(login.browser, asked)).status == 400
        assert not [one for one in provider.asked if one.path == "/token"][1:]


async def test_a_login_that_left_again(tmp_path: Path) -> None:
    """Back and again: the state that was sent first is worth nothing; nor is who signed in before."""
    async with corp(tmp_path) as (here, provider):
        login = await here.login()
        first = await leave(login, provider)
        answer = await login.browser.post("/oauth/sign-in/corp", {**login.browser.form, **form_of(login)})
        second = told(answer)
        assert first["state"] != second["state"]
        assert (await back(login.browser, first)).status == 400


def form_of(login: Login) -> dict[str, str]:
    """What the form of its page carries, though another page is shown."""
    here = login.stage.server.core.transactions
    (transaction,) = here._open.values()
    return {"login": transaction.id, "form": here.form_token(transaction)}


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "other"}, {"nonce": None}, {"iss": "https://other.example"}, {"aud": "other"}, {"aud": None},
        {"aud": ["us", "other"]}, {"aud": ["us", "other"], "azp": "other"}, {"exp": 1}, {"exp": None}, {"sub": None},
    ],
)  # fmt: skip
async def test_id_tokens_that_are_not_ours(tmp_path: Path, claims: dict[str, Any]) -> None:
    async with corp(tmp_path) as (here, provider):
        login = await here.login()
        asked = await leave(login, provider)
        provider.claims = {**provider.claims, **claims}
        answer = await back(login.browser, asked)
        assert (answer.status, "cannot be reached to sign you in: its ID token" in answer.text) == (502, True)


async def test_providers_that_fail(tmp_path: Path) -> None:
    """Another key, no token, an error, another issuer in the answer or in the metadata."""
    async with corp(tmp_path) as (here, provider):
        login = await here.login()
        asked = await leave(login, provider)
        provider.key = ECKey.generate_key("P-256", {"kid": KEY.kid})
        assert "its ID token is not valid" in (await back(login.browser, asked)).text
        provider.key, provider.status = KEY, 400
        asked = await leave(login, provider)
        assert "answers 400 without a token" in (await back(login.browser, asked)).text
        asked = await leave(login, provider)
        assert (
            "the answer is from another provider"
            in (await back(login.browser, asked, iss="https://other.example")).text.lower()
        )
        # RFC 9207 2.4: who says that it names itself, and does not, is somebody else.
        here.server.core.upstreams["corp"]._metadata["authorization_response_iss_parameter_supported"] = True  # type: ignore[index]
        asked = await leave(login, provider)
        assert "the answer is from another provider" in (await back(login.browser, asked)).text.lower()
        asked = await leave(login, provider)
        answer = await login.browser.get(f"/oauth/sign-in/corp/callback?error=access_denied&state={asked['state']}")
        assert (answer.status, "Corp did not sign you in" in answer.text) == (403, True)

    for changes, why in (
        ({"issuer": "https://other.example"}, "an issuer other than the settings"),
        ({"token_endpoint": None}, "no token_endpoint"),
        ({"authorization_endpoint": "javascript:alert(1)"}, ""),
    ):
        async with corp(tmp_path) as (here, provider):
            provider.metadata = changes
            login = await here.login()
            await login.begin()
            answer = await login.browser.post("/oauth/sign-in/corp", login.browser.form)
            if why:
                assert (answer.status, why in answer.text) == (502, True)
            assert not answer.text.startswith("javascript:")


async def test_who_is_let_in(tmp_path: Path) -> None:
    """AUTH-143's table: a verified address of the list, or a subject; nobody by a name."""
    async with corp(tmp_path, allow=("*@corp.example", "7")) as (here, provider):
        for claims, is_in in (
            ({}, True),
            ({"email_verified": False}, False),
            ({"email_verified": None}, False),
            ({"email": "ana@corp.example.evil"}, False),
            ({"email": "ana@evil@corp.example"}, False),
            ({"email": "ana@sub.corp.example"}, False),
            ({"email": None, "name": "7"}, False),
            ({"email": None, "sub": "7"}, True),
        ):
            login = await here.login()
            asked = await leave(login, provider)
            before, provider.claims = provider.claims, {**provider.claims, **claims}
            page = await back(login.browser, asked)
            provider.claims = before
            assert ("Let A client use" in page.text) is is_in, claims
            assert is_in or "not allowed to use this server" in page.text


def test_allowed() -> None:
    assert is_allowed(("Ana@Corp.example",), "1", "ana@corp.example")
    assert not is_allowed(("*@corp.example",), "1", "")
    assert not is_allowed((), "1", "a@b")
    assert not is_allowed(("corp.example",), "1", "ana@corp.example")


async def test_who_is_not_let_in_any_more(tmp_path: Path) -> None:
    async with corp(tmp_path) as (here, provider):
        login = await here.login()
        await back(login.browser, await leave(login, provider))
        tokens = (await login.exchange((await login.browser.choose())["code"])).json
        here.server.core.settings.providers["corp"] = Provider(client_id="us", issuer=provider.url, allow=("x@y",))
        assert (await login.refresh(tokens["refresh_token"])).json["error"] == "invalid_grant"


async def test_tokens_that_are_kept(tmp_path: Path) -> None:
    """AUTH-143: only on request, encrypted, refreshed where they are over; gone with the grant."""
    state = tmp_path / "state.sqlite"
    async with corp(tmp_path, keep_tokens=True, ask_for=("calendar",)) as (here, provider):
        core = here.server.core
        core.keys._path = str(state)
        login = await here.login()
        asked = await leave(login, provider)
        assert asked["scope"] == "openid email profile calendar"
        await back(login.browser, asked)
        tokens = (await login.exchange((await login.browser.choose())["code"])).json
        grant = claims_of(tokens["access_token"])["grant"]
        assert await core.upstream_token(grant) == "upstream-1"
        assert (tmp_path / "state.sqlite.key").stat().st_mode & 0o777 == 0o600
        sealed = await core.store.upstream(grant)
        assert sealed is not None
        assert b"upstream" not in sealed

        here.now.time += 3600
        provider.answer = {"access_token": "upstream-2", "expires_in": 3600 * 3}
        assert await core.upstream_token(grant) == "upstream-2"
        assert await core.upstream_token(grant) == "upstream-2"
        assert len([one for one in provider.asked if b"refresh_token=upstream-r" in one.body]) == 1
        found = await core.store.grant(grant)
        assert found is not None
        await core.end(found)
        with pytest.raises(OAuthError):
            await core.upstream_token(grant)


async def test_calls_at_once_refresh_a_provider_s_token_once(tmp_path: Path) -> None:
    """AUTH-143: many a refresh token can be used once. Who leaves meanwhile takes nothing along."""
    async with corp(tmp_path, keep_tokens=True) as (here, provider):
        core = here.server.core
        login = await here.login()
        await back(login.browser, await leave(login, provider))
        tokens = (await login.exchange((await login.browser.choose())["code"])).json
        grant = claims_of(tokens["access_token"])["grant"]
        here.now.time += 3600
        provider.answer = {"access_token": "upstream-2", "refresh_token": "upstream-r2", "expires_in": 3600 * 3}

        calls = [asyncio.ensure_future(core.upstream_token(grant)) for _ in range(4)]
        before = len(provider.asked)
        async with asyncio.timeout(5):
            while len(provider.asked) == before:
                await asyncio.sleep(0)
        calls[0].cancel()
        assert await asyncio.gather(*calls[1:]) == ["upstream-2"] * 3
        assert len([one for one in provider.asked if b"grant_type=refresh_token" in one.body]) == 1

        # Without the key that it was kept with nobody can read it: another login helps.
        core.keys._sealing = None
        with pytest.raises(OAuthError, match="invalid_grant"):
            await core.upstream_token(grant)


async def test_several_ways_to_sign_in(tmp_path: Path) -> None:
    async with raw_server(lambda _: None) as server:
        corp = Provider(client_id="us", issuer=server.url, allow=("*@corp.example",))
        users = UserFile(file=str(users_file(tmp_path)))
        async with stage(Settings(users=users, providers={"corp": corp, "other": corp})) as here:
            login = await here.login()
            page = await login.begin()
            for shown in ("and continue with Corp", "and continue with Other", 'name="password"'):
                assert shown in page.text
            assert (await login.browser.post("/oauth/sign-in/none", login.browser.form)).status == 404


async def test_nobody_is_sent_to_a_provider_unasked(tmp_path: Path) -> None:
    """S25-153, S26-187: which client wants what is on the page with the ways to sign in, and so is a no."""
    async with raw_server(lambda _: None) as server:
        corp = Provider(client_id="us", issuer=server.url, allow=("*@corp.example",))
        async with stage(Settings(providers={"corp": corp}, scopes={"beds": "Look at the beds"})) as here:
            login = await here.login(scope="beds")
            page = await login.begin()
            for shown in (
                "Look at the beds",
                "any program can use this name",
                "Allow and continue with Corp",
            ):
                assert shown in page.text
            denied = await login.browser.post("/oauth/consent", {**login.browser.form, "choice": "deny"})
            assert told(denied)["error"] == "access_denied"
            assert (await login.browser.post("/oauth/sign-in/corp", login.browser.form)).status == 400


async def test_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No OpenID Connect there: who it is says the API."""
    emails: list[dict[str, Any]] = [
        {"email": "old@corp.example", "primary": False, "verified": True},
        {"email": "ana@corp.example", "primary": True, "verified": True},
    ]

    def answer(asked: Asked) -> bytes:
        if asked.path == "/login/oauth/access_token":
            assert b"client_secret=s" in asked.body
            return as_json({"access_token": "gh", "token_type": "bearer"})
        assert asked.headers["authorization"] == "Bearer gh"
        return as_json(emails) if asked.path == "/user/emails" else as_json({"id": 7, "login": "ana-gh"})

    secret = tmp_path / "secret"
    secret.write_text("s")
    async with raw_server(answer) as server:
        monkeypatch.setattr(GitHub, "server", server.url)
        monkeypatch.setattr(GitHub, "api", server.url)
        provider = Provider(client_id="us", client_secret_file=str(secret), allow=("*@corp.example",))
        async with stage(Settings(providers={"github": provider})) as here:
            for verified in (True, False):
                emails[1]["verified"] = verified
                login = await here.login()
                page = await login.begin()
                assert "Allow and continue with Github" in page.text
                asked = told(await login.browser.post("/oauth/sign-in/github", login.browser.form))
                assert asked["scope"] == "read:user user:email"
                url = f"/oauth/sign-in/github/callback?code=c&state={asked['state']}"
                answer_ = await login.browser.get(url)
                assert answer_.status == (303 if verified else 403)
            assert urlsplit(here.issuer).scheme == "http"


async def test_tokens_of_who_signed_in_before(tmp_path: Path) -> None:
    """AUTH-143: who signs in with a password has no provider's tokens, also after somebody else came back from it."""
    users = UserFile(file=str(users_file(tmp_path)))
    async with corp(tmp_path, keep_tokens=True) as (here, provider):
        here.server.core.users = Users(users.file)
        login = await here.login()
        await back(login.browser, await leave(login, provider))
        await login.browser.sign_in()
        tokens = (await login.exchange((await login.browser.choose())["code"])).json
        assert claims_of(tokens["access_token"])["sub"] == "ana"
        with pytest.raises(OAuthError):
            await here.server.core.upstream_token(claims_of(tokens["access_token"])["grant"])
