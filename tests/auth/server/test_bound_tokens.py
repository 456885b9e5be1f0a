"""Tokens that are bound to a key where they are given, and provider's tokens that tools may use."""

from __future__ import annotations

import base64
import time
import uuid
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from joserfc.jws import JWSRegistry
from support.http_peer import Answer, modern, serving
from support.login_stage import Login, Now, Stage, claims_of, told
from support.raw_http import as_json, raw_server

from mcpd import Context, Server
from mcpd.auth.server.login_server import LoginServer
from mcpd.auth.server.settings import Provider, Settings, development
from mcpd.auth.server.upstream import GitHub
from mcpd.transports.guards import Access

KEY, OTHER = ECKey.generate_key("P-256"), ECKey.generate_key("P-256")


def proof(url: str, token: str = "", key: ECKey = KEY, **claims: Any) -> str:
    """A DPoP proof for a POST to this URL."""
    usual: dict[str, Any] = {"htm": "POST", "htu": url, "iat": int(time.time()), "jti": uuid.uuid4().hex}
    if token:
        usual["ath"] = base64.urlsafe_b64encode(sha256(token.encode()).digest()).decode().rstrip("=")
    registry = JWSRegistry(algorithms=["ES256"], strict_check_header=False)
    head = {"alg": "ES256", "typ": "dpop+jwt", "jwk": key.as_dict(private=False)}
    return jwt.encode(head, {**usual, **claims}, key, registry=registry)


async def call(here: Stage, token: str, scheme: str = "DPoP", key: ECKey | None = KEY) -> Answer:
    headers: dict[str, str | None] = {"Authorization": f"{scheme} {token}"}
    if key is not None:
        headers["DPoP"] = proof(here.resource, token, key)
    return await here.port.ask(modern("tools/call", {"name": "who", "arguments": {}}, headers))


def with_proof(here: Stage, key: ECKey = KEY, **claims: Any) -> dict[str, Any]:
    return {"headers": [("DPoP", proof(f"{here.issuer}/oauth/token", key=key, **claims))]}


class protected:  # noqa: N801 - reads as a function
    """A server with a tool, and logins with these options."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        self._login = LoginServer(settings, **options)
        server = Server("garden", auth=self._login)

        @server.tool
        async def who(ctx: Context) -> str:
            return ctx.user.subject

        @server.tool
        async def upstream(ctx: Context) -> str:
            return await ctx.upstream_token()

        self._serving = serving(server, access=Access(authenticate=self._login))

    async def __aenter__(self) -> Stage:
        now = Now()
        now.time = time.time()
        return Stage(await self._serving.__aenter__(), self._login.server, now, "")

    async def __aexit__(self, *what: Any) -> None:
        await self._serving.__aexit__(*what)
        self._login.close()


async def coded(login: Login) -> str:
    await login.begin()
    return (await login.browser.choose())["code"]


async def test_tokens_that_are_bound_to_a_key() -> None:
    """AUTH-155: asked for with a proof, a token works with proofs of that key alone, and so does its refresh token."""
    async with protected(development(), dpop="accept") as here:
        metadata = (await here.ask("GET", "/.well-known/oauth-authorization-server")).json
        assert metadata["dpop_signing_alg_values_supported"] == ["ES256", "EdDSA", "Ed25519", "RS256", "PS256"]
        login = await here.login()
        tokens = (await login.exchange(await coded(login), **with_proof(here))).json
        token = tokens["access_token"]
        assert (tokens["token_type"], claims_of(token)["cnf"]) == ("DPoP", {"jkt": KEY.thumbprint()})
        assert (await call(here, token)).status == 200
        for scheme, key in (("Bearer", None), ("DPoP", None), ("DPoP", OTHER)):
            assert (await call(here, token, scheme, key)).status == 401

        for refused in ({}, with_proof(here, OTHER)):
            answer = await login.refresh(tokens["refresh_token"], **refused)
            assert (answer.status, answer.json["error"]) == (400, "invalid_grant")
        renewed = (await login.refresh(tokens["refresh_token"], **with_proof(here))).json
        assert (await call(here, renewed["access_token"])).status == 200

        plain = (await login.exchange(await coded(login))).json
        assert plain["token_type"] == "Bearer"
        assert (await call(here, plain["access_token"], "Bearer", None)).status == 200


async def test_proofs_that_are_not_taken() -> None:
    """AUTH-155: for another method, place or time; two of them; one twice."""
    async with protected(development(), dpop="accept") as here:
        login = await here.login()
        code = await coded(login)
        once = with_proof(here)
        for refused in (
            with_proof(here, htm="GET"),
            with_proof(here, htu=here.resource),
            with_proof(here, iat=int(time.time()) - 400),
            {"headers": [("DPoP", "x")]},
            {"headers": [*once["headers"], *with_proof(here)["headers"]]},
        ):
            answer = await login.exchange(code, **refused)
            assert (answer.status, answer.json["error"]) == (400, "invalid_dpop_proof")
        tokens = (await login.exchange(code, **once)).json
        assert (await login.refresh(tokens["refresh_token"], **once)).json["error"] == "invalid_dpop_proof"


async def test_codes_that_are_bound_to_a_key() -> None:
    """AUTH-155: by `dpop_jkt` (RFC 9449 10)."""
    async with protected(development(), dpop="accept") as here:
        login = await here.login(dpop_jkt=KEY.thumbprint())
        code = await coded(login)
        for refused in ({}, with_proof(here, OTHER)):
            assert (await login.exchange(code, **refused)).json["error"] == "invalid_grant"
        assert (await login.exchange(code, **with_proof(here))).json["token_type"] == "DPoP"


async def test_nonces_and_proofs_that_are_required() -> None:
    """AUTH-155: 400 with a nonce that the client then takes; nothing without a proof."""
    async with protected(development(), dpop="require", dpop_nonces=True) as here:
        login = await here.login()
        code = await coded(login)
        assert (await login.exchange(code)).json["error"] == "invalid_dpop_proof"
        wanted = await login.exchange(code, **with_proof(here))
        assert (wanted.status, wanted.json["error"]) == (400, "use_dpop_nonce")
        assert "DPoP-Nonce" in wanted["access-control-expose-headers"]
        tokens = (await login.exchange(code, **with_proof(here, nonce=wanted["dpop-nonce"]))).json
        assert tokens["token_type"] == "DPoP"


async def test_a_server_without_them_gives_plain_tokens() -> None:
    async with protected(development()) as here:
        login = await here.login()
        metadata = (await here.ask("GET", "/.well-known/oauth-authorization-server")).json
        assert "dpop_signing_alg_values_supported" not in metadata
        assert (await login.exchange(await coded(login), **with_proof(here))).json["token_type"] == "Bearer"


async def test_a_tool_uses_the_providers_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AUTH-060, AUTH-143: where it is kept; the client gets none of it."""

    def answer(asked: Any) -> bytes:
        if asked.path == "/login/oauth/access_token":
            return as_json({"access_token": "gh-token", "token_type": "bearer"})
        return as_json([]) if asked.path == "/user/emails" else as_json({"id": 7, "login": "ana"})

    async with raw_server(answer) as github:
        monkeypatch.setattr(GitHub, "server", github.url)
        monkeypatch.setattr(GitHub, "api", github.url)
        for keeps in (True, False):
            settings = Settings(providers={"github": Provider(client_id="us", allow=("7",), keep_tokens=keeps)})
            async with protected(settings, implies={"all": ["some"]}) as here:
                login = await here.login()
                await login.begin()
                asked = told(await login.browser.post("/oauth/sign-in/github", login.browser.form))
                back = await login.browser.get(f"/oauth/sign-in/github/callback?code=c&state={asked['state']}")
                await login.browser.get(back["location"].removeprefix(here.issuer))
                tokens = (await login.exchange((await login.browser.choose())["code"])).json
                headers: dict[str, str | None] = {"Authorization": f"Bearer {tokens['access_token']}"}
                request = modern("tools/call", {"name": "upstream", "arguments": {}}, headers)
                result = (await here.port.ask(request)).json["result"]
                assert ("isError" in result, "gh-token" in str(result)) == (not keeps, keeps)

                if keeps:
                    grant = await here.server.core.store.grant(claims_of(tokens["access_token"])["grant"])
                    assert grant is not None
                    await here.server.core.store.keep_upstream(
                        grant.id, here.server.core.keys.seal(b'{"access":"x","expires":1}')
                    )
                    over = await here.port.ask(request)
                    assert (over.status, over.json["error"]) == (401, "invalid_token")
