"""Clients that are known by a document of theirs, and those that sign: fetched, read, kept, attacked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey
from support.login_stage import CALLBACK, Login, Stage, stage
from support.raw_http import Asked, RawServer, as_json, raw_server, reply

from mcpd.auth.server.clients import is_document_id
from mcpd.auth.server.settings import development

Answer = Callable[[Asked], bytes | None]


@asynccontextmanager
async def documents(changes: dict[str, Any] | None = None, **headers: str) -> AsyncIterator[RawServer]:
    """A place where a client has its document."""

    def answer(asked: Asked) -> bytes:
        url = f"{server.url}{asked.path}"
        document = {"client_id": url, "client_name": "Docs", "redirect_uris": [CALLBACK], **(changes or {})}
        return as_json({name: value for name, value in document.items() if value is not None}, **headers)

    async with raw_server(answer) as server:
        yield server


async def begun(here: Stage, client: str) -> str:
    """What the page says that a login of this client begins with."""
    answer = await Login(here, client).begin()
    assert (answer.status == 200) is ("Let " in answer.text)
    return answer.text


async def test_a_client_by_its_document() -> None:
    """AUTH-133, AUTH-134, AUTH-136: read once for five minutes at least; its host is shown."""
    async with stage(development()) as here, documents() as server:
        login = Login(here, f"{server.url}/client.json")
        page = await login.begin()
        assert "Let Docs use" in page.text
        assert server.url.removeprefix("http://") in page.text
        said = await login.browser.choose()
        assert (await login.exchange(said["code"])).status == 200
        assert len(server.asked) == 1
        here.now.time += 299
        await login.begin()
        assert len(server.asked) == 1
        here.now.time += 2
        await login.begin()
        assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("cache_control", "seconds"),
    [("max-age=3600", 3600), ("max-age=5", 300), ("no-store", 300), ("public, max-age=999999999", 86400)],
)
async def test_how_long_a_document_is_kept(cache_control: str, seconds: int) -> None:
    """AUTH-134."""
    async with stage(development()) as here, documents(cache_control=cache_control) as server:
        for wait, count in ((0, 1), (seconds - 1, 1), (2, 2)):
            here.now.time += wait
            await begun(here, f"{server.url}/c")
            assert len(server.asked) == count


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"client_id": "https://other.example/c"}, "document is not its URL"),
        ({"client_id": None}, "document is not its URL"),
        ({"client_secret": "x"}, "contains a secret"),
        ({"client_secret_expires_at": 0}, "contains a secret"),
        ({"token_endpoint_auth_method": "client_secret_basic"}, "requires a shared secret"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "requires jwks"),
        ({"client_name": None}, "has no client_name"),
        ({"client_name": " "}, "has no client_name"),
        ({"redirect_uris": None}, "is not valid: Object missing required field `redirect_uris`"),
        ({"redirect_uris": ["javascript:alert(1)"]}, "not registered for this client"),
        ({"redirect_uris": ["https://other.example/cb"]}, "not registered for this client"),
        ({"padding": "x" * 6000}, "larger than 5,120 bytes"),
    ],
)
async def test_what_is_no_document(changes: dict[str, Any], why: str) -> None:
    """H30 (AUTH-133): refused on a page, with the reason."""
    async with stage(development()) as here, documents(changes) as server:
        assert why in await begun(here, f"{server.url}/c")


async def test_documents_where_none_is_fetched(caplog: pytest.LogCaptureFixture) -> None:
    """H30 (AUTH-133): addresses that are not global, redirects, what never ends; failures are kept for a moment."""
    caplog.set_level("INFO", "mcpd")
    async with stage(development()) as here:
        # Not for development: a public server asks nothing inside.
        here.server.core.documents._reach = ()
        async with documents() as server:
            assert "cannot be reached" in await begun(here, f"{server.url}/c")
            assert server.asked == []
        # One answer for all: nobody learns what there is inside. The operator's log says more.
        inside = ("https://10.0.0.1/c", "https://169.254.169.254/c", "http://192.0.2.1/c", "https://[::1]/c")
        said = {(await begun(here, url)).replace(url, "") for url in (*inside, "https://no-such.invalid/c")}
        assert len(said) == 1
        assert "cannot be reached" in said.pop()
        assert "a private address, which is not allowed here" in caplog.text
        assert "no-such.invalid cannot be resolved" in caplog.text

        here.server.core.documents._reach = ("loopback",)
        async with raw_server(lambda _: reply(302, Location="/other")) as server:
            assert "it redirects, which is not followed" in await begun(here, f"{server.url}/c")
            assert "it redirects, which is not followed" in await begun(here, f"{server.url}/c")
            assert len(server.asked) == 1
            here.now.time += 11
            await begun(here, f"{server.url}/c")
            assert len(server.asked) == 2
        for answer in (reply(200, b"<html>"), reply(200, b"[]"), reply(404), reply(500)):
            async with raw_server(lambda _, answer=answer: answer) as server:  # type: ignore[misc]
                assert "document cannot be fetched" in await begun(here, f"{server.url}/c")


async def test_a_document_that_changes() -> None:
    """H30 (AUTH-134): redirects are those of the document of that request."""
    uris = [CALLBACK]

    def answer(asked: Asked) -> bytes:
        return as_json({"client_id": f"{server.url}/c", "client_name": "Docs", "redirect_uris": uris})

    async with stage(development()) as here, raw_server(answer) as server:
        assert "Let Docs use" in await begun(here, f"{server.url}/c")
        uris[:] = ["https://evil.example/cb"]
        here.now.time += 301
        assert "not registered for this client" in await begun(here, f"{server.url}/c")


async def test_many_documents_at_once() -> None:
    """One fetch for all who ask for the same; not more than a few of others."""
    go = asyncio.Event()

    def answer(asked: Asked) -> None:
        go.set()

    async with stage(development()) as here, raw_server(answer) as server:
        documents = here.server.core.documents
        waiting = [asyncio.ensure_future(documents.get(f"{server.url}/{number % 8}")) for number in range(16)]
        await go.wait()
        assert "oo many client documents" in await begun(here, f"{server.url}/more")
        assert len(documents._pending) == 8
        for task in [*waiting, *documents._pending.values()]:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize(
    "id",
    [
        "https://a.example", "https://a.example/", "https://a.example/c#f", "https://u@a.example/c", "https:///c",
        "https://a.example/../c", "https://a.example/./c", "ftp://a.example/c", "c-1", "", "https://[/c",
        "https://a.example/" + "c" * 1024,
    ],
)  # fmt: skip
def test_what_is_no_id_of_a_document(id: str) -> None:
    assert not is_document_id(id)


# -------------------------------------------------------------------------------------- signed clients

KEY = ECKey.generate_key("P-256", {"use": "sig"}, auto_kid=True)
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def signed(here: Stage, client: str, key: Any = KEY, alg: str = "ES256", **changes: Any) -> dict[str, Any]:
    claims = {
        "iss": client, "sub": client, "aud": here.issuer, "exp": here.now.time + 60, "jti": f"j{here.now.time}",
        **changes,
    }  # fmt: skip
    claims = {name: value for name, value in claims.items() if value is not None}
    token = jwt.encode({"alg": alg, "kid": key.kid}, claims, key, algorithms=[alg])
    return {"client_assertion_type": ASSERTION, "client_assertion": token, "client_id": None}


@pytest.mark.parametrize("where", ["document", "jwks_uri", "registered"])
async def test_clients_that_sign(where: str) -> None:
    """AUTH-148: private_key_jwt, with the key in the document, at a URL, or in the registration."""
    public = {"keys": [KEY.as_dict(private=False)]}

    def answer(asked: Asked) -> bytes:
        if asked.path == "/keys":
            return as_json(public)
        said = {"jwks": public} if where == "document" else {"jwks_uri": f"{server.url}/keys"}
        return as_json(
            {
                "client_id": f"{server.url}/c",
                "client_name": "Signs",
                "redirect_uris": [CALLBACK],
                "grant_types": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_method": "private_key_jwt",
                **said,
            }
        )

    async with stage(development()) as here, raw_server(answer) as server:
        if where == "registered":
            found = await here.register(token_endpoint_auth_method="private_key_jwt", jwks=public)
            login = Login(here, found["client_id"])
        else:
            login = Login(here, f"{server.url}/c")
        await login.begin()
        code = (await login.browser.choose())["code"]
        assert (await login.exchange(code)).json["error"] == "invalid_client"
        once = signed(here, login.client, aud=[f"{here.issuer}/oauth/token"])
        said = (await login.exchange(code, **once)).json
        here.now.time += 1
        assert (await login.refresh(said["refresh_token"], **once)).json["error"] == "invalid_client"
        assert (await login.refresh(said["refresh_token"], **signed(here, login.client))).status == 200


async def test_assertions_that_are_not_taken() -> None:
    """AUTH-148: other keys, other servers, others' names, old ones, symmetric ones."""
    public = {"keys": [KEY.as_dict(private=False)]}
    async with stage(development()) as here:
        client = (await here.register(token_endpoint_auth_method="private_key_jwt", jwks=public))["client_id"]
        other = (await here.register())["client_id"]
        login = Login(here, client)
        await login.begin()
        code = (await login.browser.choose())["code"]
        shared = OctKey.import_key(json.dumps(public).encode(), {"kid": KEY.kid})
        for number, assertion in enumerate(
            (
                signed(here, client, ECKey.generate_key("P-256", {"kid": KEY.kid})),
                signed(here, client, shared, "HS256"),
                signed(here, client, aud="https://other.example"),
                signed(here, client, aud=None),
                signed(here, client, iss="https://other.example"),
                signed(here, client, sub=other),
                signed(here, client, exp=here.now.time - 61),
                signed(here, client, exp=here.now.time + 3600),
                signed(here, client, exp=None),
                signed(here, client, exp="soon"),
                signed(here, client, jti=None),
                signed(here, other),
                {**signed(here, client), "client_assertion": "a.b.c"},
                {**signed(here, client), "client_assertion": "x"},
                {**signed(here, client), "client_assertion": "a" * 9000},
                {**signed(here, client), "client_assertion_type": "other"},
            )
        ):
            answer = await login.exchange(code, **assertion)
            assert answer.json["error"] in ("invalid_client", "invalid_request"), number
            assert "access_token" not in answer.json
        assert (await login.exchange(code, **signed(here, client))).status == 200
