"""Tokens that their issuer is asked about."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import pytest
from support.http_peer import Answer, Port, modern, serving
from support.issuer import TestIssuer, issuing

from mcpd import Context, Server
from mcpd.auth.issuers import Introspection
from mcpd.auth.settings import PROVIDERS, AuthSettings, auth_of, settings_of
from mcpd.errors import ConfigurationError
from mcpd.transports.guards import Access

PUBLIC = "https://tools.example.com/mcp"


@asynccontextmanager
async def house(**options: Any) -> AsyncIterator[tuple[Port, TestIssuer, list[dict[str, list[str]]]]]:
    server = Server("notes")

    @server.tool
    async def who(ctx: Context) -> str:
        return json.dumps([ctx.user.subject, ctx.user.client, sorted(ctx.user.scopes)])

    sent: list[dict[str, list[str]]] = []
    async with issuing() as issuer:

        def answer(body: bytes) -> tuple[int, str, bytes]:
            form = parse_qs(body.decode())
            sent.append(form)
            return 200, "", json.dumps(issuer.inactive.get(form["token"][0], {"active": False})).encode()

        issuer.metadata["introspection_endpoint"] = f"{issuer.url}/introspect"
        issuer.answers["/introspect"] = answer
        given = {"client_id": "r s", "client_secret": "p%", "public_url": PUBLIC, **options}
        async with serving(server, access=Access(authenticate=Introspection(issuer.url, **given))) as port:
            yield port, issuer, sent


async def ask(port: Port, token: str) -> Answer:
    return await port.ask(modern("tools/call", {"name": "who", "arguments": {}}, {"Authorization": f"Bearer {token}"}))


async def test_what_the_issuer_says_is_checked_and_kept() -> None:
    """AUTH-053: an authenticated POST, `active` is true, then the checks of a JWT; kept for a minute."""
    async with house() as (port, issuer, sent):
        good = {"active": True, **issuer.claims(iss=None)}
        issuer.inactive = {
            "good": good,
            "endless": {name: value for name, value in good.items() if name != "exp"},
            "no": {**good, "active": False},
            "text": {**good, "active": "true"},
            "one": {**good, "active": 1},
            "other-aud": {**good, "aud": "x"},
            "other-iss": {**good, "iss": "https://x.example"},
            "old": {**good, "exp": int(time.time()) - 100},
            "bound": {**good, "cnf": {"jkt": "x"}},
        }
        for _ in range(3):
            answer = await ask(port, "good")
            assert json.loads(answer.json["result"]["content"][0]["text"]) == ["ada", "cli", ["notes.read"]]
        assert (await ask(port, "endless")).status == 200
        for token in ("unknown", "no", "text", "one", "other-aud", "other-iss", "old", "bound"):
            answer = await ask(port, token)
            assert (answer.status, answer.json["error"]) == (401, "invalid_token"), token
        assert sent[0] == {"token": ["good"], "token_type_hint": ["access_token"]}
        assert len(sent) == 10
        expected = b64encode(b"r+s:p%25").decode()
        assert all(f"authorization: basic {expected}".lower() in head.lower() for head in issuer.headers[1:])


async def test_without_a_cache_it_is_asked_each_time() -> None:
    async with house(cache_seconds=0) as (port, issuer, sent):
        issuer.inactive["good"] = {"active": True, **issuer.claims()}
        for _ in range(3):
            assert (await ask(port, "good")).status == 200
        issuer.inactive["good"]["active"] = False
        assert (await ask(port, "good")).status == 401
        assert len(sent) == 4


@pytest.mark.parametrize("answer", [(500, b"{}"), (401, b"{}"), (200, b"<html>"), (200, b"[]"), (302, b"")])
async def test_an_issuer_that_does_not_answer_logs_nobody_out(answer: tuple[int, bytes]) -> None:
    """AUTH-054."""
    async with house() as (port, issuer, _):
        issuer.answers["/introspect"] = lambda body: (answer[0], "", answer[1])
        assert (await ask(port, "good")).status == 503
        del issuer.metadata["introspection_endpoint"]
    async with house() as (port, issuer, _):
        del issuer.metadata["introspection_endpoint"]
        assert (await ask(port, "good")).status == 503


def test_settings_make_one(tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s\n")
    said: dict[str, Any] = {"client_id": "c", "client_secret_file": str(secret)}
    from msgspec import convert

    one = convert({"issuer": "https://i.example", "introspection": said}, AuthSettings)
    assert isinstance(auth_of(one), Introspection)
    two = convert({"issuer": ["https://i.example", "https://j.example"], "introspection": said}, AuthSettings)
    with pytest.raises(ConfigurationError, match="only one issuer"):
        auth_of(two)
    said["client_secret_file"] = str(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="write the secret to"):
        auth_of(convert({"issuer": "https://i.example", "introspection": said}, AuthSettings))
    with pytest.raises(ConfigurationError, match="client-id"):
        Introspection("https://i.example", client_id="", client_secret="x")


# ------------------------------------------------------------------------------------ providers


@pytest.mark.parametrize("name", PROVIDERS)
def test_each_provider_says_what_it_needs(name: str) -> None:
    known = PROVIDERS[name]
    if not known.issuer:
        with pytest.raises(ConfigurationError, match="login server"):
            settings_of(name, None)
        return
    with pytest.raises(ConfigurationError, match="tenant is missing"):
        settings_of(name, None)
    tenant = known.tenant_is.rsplit(" as ", 1)[-1]
    tenant = "t-1" if " " in tenant else tenant
    auth = auth_of(AuthSettings(provider=name, tenant=tenant, public_url=PUBLIC))
    assert tenant in auth.authorization_servers[0]
    assert "{" not in auth.authorization_servers[0]


def test_how_providers_spell_themselves() -> None:
    assert settings_of("auth0", "x.eu.auth0.com")["issuer"] == "https://x.eu.auth0.com/"
    region = "https://cognito-idp.eu-west-1.amazonaws.com/eu-west-1_Ab"
    assert settings_of("cognito", "eu-west-1_Ab")["issuer"] == region
    assert settings_of("keycloak", "https://sso.example.com/realms/t/")["issuer"] == "https://sso.example.com/realms/t"
    with pytest.raises(ConfigurationError, match="or issuer for others"):
        settings_of("acme", "x")
    with pytest.raises(ConfigurationError, match="cannot be combined: use one of"):
        auth_of(AuthSettings(provider="auth0", tenant="x.auth0.com", issuer="https://i.example"))
