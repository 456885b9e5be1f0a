"""Programs are let in without a person: client credentials, keys, enterprise-managed authorization, workloads; DPoP."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwk, jwt
from support.http_script import reply
from support.login_world import LoginWorld, world

from mcpd import (
    AuthorizationFailed,
    Client,
    ClientCredentials,
    EnterpriseManaged,
    PrivateKeyJwt,
    WorkloadIdentity,
)
from mcpd.errors import ConfigurationError

KEY = jwk.ECKey.generate_key("P-256", private=True)
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


async def call(there: LoginWorld, auth: Any) -> None:
    async with Client(there.url, auth=auth) as client:
        assert not (await client.call_tool("read")).is_error


def claims_of(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims, as they stand."""
    parts = [json.loads(base64.urlsafe_b64decode(part + "===")) for part in token.split(".")[:2]]
    return parts[0], parts[1]


@pytest.mark.parametrize(
    ("listed", "auth"),
    [
        (["client_secret_post", "client_secret_basic"], "basic"),
        (["client_secret_post"], "post"),
        (None, "basic"),
    ],
)
async def test_client_credentials(listed: list[str] | None, auth: str) -> None:
    """AUTH-220: by the listed method, Basic preferred; nothing is registered, nobody visits anything."""
    async with world(metadata={"token_endpoint_auth_methods_supported": listed}) as there:
        await call(there, ClientCredentials(client_id="robot", client_secret="secret-of-robot"))
        (form,) = there.forms
        assert (form["grant_type"], form["_auth"], form["_client"]) == ("client_credentials", auth, "robot")
        assert form.get("_secret", form.get("client_secret")) == "secret-of-robot"
        assert (form["resource"], form["scope"]) == (there.url, "basic")
        assert not there.registered
        assert not there.visits


async def test_a_key_in_place_of_a_secret() -> None:
    """AUTH-221."""
    async with world() as there:
        pem = KEY.as_pem(private=True).decode()
        auth = PrivateKeyJwt(client_id="robot", key_pem=pem)
        await call(there, auth)
        await call(there, auth)
        found = [jwt.decode(form["client_assertion"], KEY).claims for form in there.forms]
        for claims in found:
            assert claims["iss"] == claims["sub"] == "robot"
            assert claims["aud"] == there.origin
            assert claims["exp"] - claims["iat"] <= 300
        assert found[0]["jti"] != found[1]["jti"]
        assert "client_id" not in there.forms[0]

        there.metadata["token_endpoint_auth_signing_alg_values_supported"] = ["RS256"]
        with pytest.raises(AuthorizationFailed, match="RS256"):
            await call(there, auth)


async def test_a_key_that_is_none_is_not_shown() -> None:
    async with world() as there:
        with pytest.raises(ConfigurationError) as raised:
            await call(there, PrivateKeyJwt(client_id="robot", key_pem="secret-key"))
        assert "secret-key" not in str(raised.value)
        assert "PKCS 8" in str(raised.value)
        with pytest.raises(ConfigurationError, match="algorithm"):
            await call(there, PrivateKeyJwt(client_id="robot", key_pem="x", algorithm="HS256"))


def enterprise(there: LoginWorld, idp: str) -> EnterpriseManaged:
    return EnterpriseManaged(
        client_id="app", client_secret="secret-of-app", idp_token_endpoint=idp, idp_client_id="app-at-idp",
        id_token=lambda: "secret-identity",
    )  # fmt: skip


async def test_the_sign_in_of_a_company_decides() -> None:
    """AUTH-223, AUTH-224, AUTH-225: the identity goes to the sign-in only, the ID-JAG to the server's only."""
    given = {"access_token": "secret-jag", "issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 300}
    async with world() as there, world(answers={"/idp": reply(200, given)}) as company:
        await call(there, enterprise(there, f"{company.origin}/idp"))
        (asked,) = company.server.asked
        exchanged = dict(pair.split("=") for pair in asked.body.decode().split("&"))
        assert exchanged["subject_token"] == "secret-identity"
        assert "id-jag" in exchanged["requested_token_type"]
        assert exchanged["client_id"] == "app-at-idp"
        assert b"secret-of-app" not in asked.body

        (form,) = there.forms
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assert (form["assertion"], form["_client"], form["_auth"]) == ("secret-jag", "app", "basic")
        assert not any(b"secret-identity" in one.body for one in there.server.asked)


@pytest.mark.parametrize(
    "answer",
    [
        reply(400, {"error": "access_denied", "error_description": "not you"}),
        reply(200, {"access_token": "secret-jag", "issued_token_type": "urn:other", "token_type": "N_A"}),
        reply(200, b"<html>"),
    ],
)
async def test_a_sign_in_that_gives_no_id_jag(answer: bytes) -> None:
    """AUTH-223."""
    async with world() as there, world(answers={"/idp": answer}) as company:
        with pytest.raises(AuthorizationFailed) as raised:
            await call(there, enterprise(there, f"{company.origin}/idp"))
        assert "secret" not in str(raised.value)
        assert not there.forms


async def test_a_workload_has_the_platforms_token(tmp_path: Path) -> None:
    """AUTH-226: read anew each time; a refusal is the end."""
    file = tmp_path / "token"
    file.write_text("platform-1\n")
    async with world(gives_refresh=False) as there:
        async with Client(there.url, auth=WorkloadIdentity(token_file=file), cache=False) as client:
            await client.list_tools()
            there.tokens.clear()
            file.write_text("platform-2\n")
            await client.list_tools()
        assert [form["assertion"] for form in there.forms] == ["platform-1", "platform-2"]
        assert there.forms[0]["resource"] == there.url

        there.token_error = lambda form: (400, {"error": "invalid_grant"})
        with pytest.raises(AuthorizationFailed, match="invalid_grant"):
            await call(there, WorkloadIdentity(source=lambda: "platform-3"))
        assert len(there.forms) == 3
        file.unlink()
        with pytest.raises(ConfigurationError, match="token"):
            await call(there, WorkloadIdentity(token_file=file))
    with pytest.raises(ConfigurationError, match="use either token_file or source"):
        WorkloadIdentity()


async def test_credentials_go_to_their_issuer_only() -> None:
    """AUTH-179, for programs."""
    async with world() as there:
        auth = ClientCredentials(client_id="robot", client_secret="secret-of-robot", issuer="https://as.example")
        with pytest.raises(AuthorizationFailed, match=r"https://as\.example"):
            await call(there, auth)
        assert not there.forms


async def test_credentials_stay_where_they_were_taken_first() -> None:
    """AUTH-179, AUTH-180, H26: a server that names another issuer later gets nothing sent there."""
    async with world(gives_refresh=False) as there, world() as second:
        async with Client(there.url, auth=ClientCredentials(client_id="r", client_secret="secret-r")) as client:
            await client.call_tool("read")
            there.tokens.clear()
            there.resource["authorization_servers"] = [second.origin]
            with pytest.raises(AuthorizationFailed, match="not sent there"):
                await client.call_tool("read")
        assert second.forms == []
        assert not any(b"secret-r" in one.body for one in second.server.asked)


async def test_a_program_that_lacks_a_scope_gives_up_at_once() -> None:
    """AUTH-227."""
    async with world(needs={"write": "write"}) as there:
        async with Client(there.url, auth=ClientCredentials(client_id="r", client_secret="secret-r")) as client:
            with pytest.raises(AuthorizationFailed, match="write"):
                await client.call_tool("write")
        assert len(there.forms) == 1


async def test_tokens_of_programs_are_asked_for_anew() -> None:
    """AUTH-212: and one that is refused at once is the end."""
    async with world(gives_refresh=False) as there:
        async with Client(there.url, auth=ClientCredentials(client_id="r", client_secret="secret-r")) as client:
            await client.call_tool("read")
            there.tokens.clear()
            await client.call_tool("read")
            there.takes_tokens = False
            with pytest.raises(AuthorizationFailed, match="just issued"):
                await client.call_tool("read")
        assert len(there.forms) == 3


# -- DPoP --------------------------------------------------------------------------------------


def bound(there: LoginWorld) -> None:
    there.metadata["dpop_signing_alg_values_supported"] = ["ES256", "EdDSA"]
    there.token_answer = {"token_type": "DPoP"}


@pytest.mark.parametrize("how", ["challenge", "resource", "settings"])
async def test_a_token_that_is_bound_to_a_key(how: str) -> None:
    """AUTH-228, AUTH-229, AUTH-230: proofs at the token endpoint and with each request, none twice."""
    async with world() as there:
        bound(there)
        if how == "challenge":
            there.scheme = "DPoP"
        elif how == "resource":
            there.resource["dpop_bound_access_tokens_required"] = True
        auth = there.oauth(dpop=how == "settings")
        async with Client(f"{there.url}?tenant=1", auth=auth) as client:
            await client.call_tool("read")
            await client.call_tool("read")

        header, claims = claims_of(there.forms[0]["_proof"])
        assert (header["typ"], header["alg"]) == ("dpop+jwt", "ES256")
        assert set(header["jwk"]) == {"kty", "crv", "x", "y"}
        assert (claims["htm"], claims["htu"]) == ("POST", f"{there.origin}/token")
        assert "ath" not in claims

        used = [asked for asked in there.server.asked if asked.headers.get("authorization", "").startswith("DPoP ")]
        assert len(used) >= 3
        ids = {claims["jti"]}
        for asked in used:
            said = jwt.decode(asked.headers["dpop"], jwk.ECKey.import_key(header["jwk"]))
            token = asked.headers["authorization"].removeprefix("DPoP ")
            digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
            assert (said.claims["ath"], said.claims["htu"]) == (digest, there.url)
            assert said.claims["htm"] == asked.method
            ids.add(said.claims["jti"])
        assert len(ids) == len(used) + 1


async def test_a_plain_token_where_a_bound_one_is_wanted() -> None:
    """AUTH-228."""
    async with world() as there:
        bound(there)
        there.token_answer = {"token_type": "Bearer"}
        with pytest.raises(AuthorizationFailed, match="bearer token instead of a DPoP token"):
            await call(there, there.oauth(dpop=True))
        there.metadata["dpop_signing_alg_values_supported"] = ["RS256"]
        with pytest.raises(AuthorizationFailed, match="ES256"):
            await call(there, there.oauth(dpop=True))


async def test_a_nonce_is_kept_for_its_origin() -> None:
    """AUTH-230, AUTH-231: one retry at the token endpoint and one at the server, with proofs of their own."""
    async with world() as there:
        bound(there)
        refusals: list[str] = ["one"]
        there.token_error = lambda form: (400, {"error": "use_dpop_nonce"}) if refusals and refusals.pop() else None
        answer = there._token

        def with_nonce(asked: Any) -> bytes:
            return answer(asked).replace(b"\r\n", b"\r\nDPoP-Nonce: n-as\r\n", 1)

        there._token = with_nonce  # type: ignore[method-assign]
        await call(there, there.oauth(dpop=True))
        first, second = (claims_of(form["_proof"])[1] for form in there.forms)
        assert "nonce" not in first
        assert second["nonce"] == "n-as"
        assert first["jti"] != second["jti"]

        there.token_error = lambda form: (400, {"error": "use_dpop_nonce"})
        with pytest.raises(AuthorizationFailed, match="use_dpop_nonce"):
            await call(there, there.oauth(dpop=True))
        assert len(there.forms) == 4


@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_nonce_of_the_server(is_stubborn: bool) -> None:
    """AUTH-231."""
    async with world() as there:
        bound(there)
        serve = there._serve
        nonces: list[str | None] = []

        async def wants_nonce(asked: Any, write: Any) -> None:
            if "dpop" in asked.headers:
                nonce = claims_of(asked.headers["dpop"])[1].get("nonce")
                nonces.append(nonce)
                if is_stubborn or nonce != "n-rs":
                    challenge = 'DPoP error="use_dpop_nonce"'
                    await write(reply(401, {}, {"WWW-Authenticate": challenge, "DPoP-Nonce": "n-rs"}))
                    return
            await serve(asked, write)

        there._serve = wants_nonce  # type: ignore[method-assign]
        auth = there.oauth(dpop=True)
        if not is_stubborn:
            await call(there, auth)
            assert nonces[:2] == [None, "n-rs"]
            assert set(nonces[1:]) == {"n-rs"}
            return
        there.named = False
        with pytest.raises(AuthorizationFailed):
            await call(there, auth)
        assert len(nonces) <= 8


def test_no_secret_is_in_a_repr() -> None:
    """AUTH-057."""
    for settings in (
        ClientCredentials(client_id="robot", client_secret="hunter2"),
        PrivateKeyJwt(client_id="robot", key_pem="hunter2"),
        EnterpriseManaged(
            client_id="a", client_secret="hunter2", idp_token_endpoint="https://i.example/t", idp_client_id="b",
            id_token="hunter2", idp_client_secret="hunter2",
        ),
        WorkloadIdentity(source=lambda: "hunter2"),
    ):  # fmt: skip
        assert "hunter2" not in repr(settings)
        assert "hunter2" not in f"{settings}"
        assert "…" in repr(settings)
