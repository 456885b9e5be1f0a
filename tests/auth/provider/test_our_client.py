"""`Client` and `mcpd login` at a certified authorization server that others wrote: each way to be known there, each
grant, renewal, and the end; its tokens are judged by our server, and what it grants is read in its own log.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from conftest import REPOSITORY, Child
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc.jwk import ECKey
from msgspec.structs import replace
from support.http_peer import modern, serving
from support.oidc_provider import Provider, free_port, provider

from mcpd import (
    AuthorizationFailed,
    AuthorizationRequired,
    Client,
    ClientCredentials,
    Context,
    OAuth,
    PrivateKeyJwt,
    Server,
)
from mcpd.auth.base import Auth
from mcpd.auth.issuers import Introspection, Jwt
from mcpd.client.auth.logins import log_out, logins
from mcpd.client.auth.store import FileStore, LoginRecords
from mcpd.transports.guards import Access

pytestmark = pytest.mark.slow

APPROVE = str(REPOSITORY / "conformance" / "approve.py")
CALLBACK = "http://127.0.0.1:9/callback"
DOCUMENT = "https://desk.example.com/mcpd.json"
KEY = generate_private_key(SECP256R1())
KEY_PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
SECRET = "a secret+of/the:client and 32 more"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
ROBOT = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": [], "scope": "use notes"}


class Site:
    """A server that takes the tokens of a provider, and the user of both."""

    def __init__(self, url: str, there: Provider) -> None:
        self.url = url
        self.there = there
        self.visits: list[str] = []
        self._returned = ""

    async def visit(self, url: str) -> None:
        """Be shown the page, and agree."""
        self.visits.append(url)
        browser = await asyncio.create_subprocess_exec(sys.executable, APPROVE, "--print", url, stdout=-1)
        self._returned = (await browser.communicate())[0].decode().strip()

    def oauth(self, **more: Any) -> OAuth:
        """How this user logs in."""
        hooks = {"open_url": self.visit, "wait_callback": lambda: self._returned, "redirect": CALLBACK}
        return OAuth(**{"store": "memory", **hooks, **more})


@asynccontextmanager
async def site(dpop: Any = "off", **options: Any) -> AsyncIterator[Site]:
    """Both of them; `options` are the provider's."""
    server = Server("judged")

    @server.tool
    async def who(ctx: Context) -> str:
        return json.dumps([ctx.user.subject, ctx.user.client, sorted(ctx.user.scopes)])

    @server.tool(scopes=["notes"])
    async def save(ctx: Context) -> str:
        return json.dumps([ctx.user.subject, ctx.user.client, sorted(ctx.user.scopes)])

    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    with provider(url, ["use", "notes"], **options) as there:
        settings: dict[str, Any] = {"public_url": url, "scopes": ["use"], "dpop": dpop}
        auth: Auth = Jwt(there.issuer, **settings)
        if options.get("format") == "opaque":
            auth = Introspection(there.issuer, client_id="server", client_secret="s" * 32, cache_seconds=0, **settings)
        async with serving(server, access=Access(authenticate=auth), address=f"127.0.0.1:{port}"):
            yield Site(url, there)


async def said(client: Client, tool: str = "who") -> list[Any]:
    """Subject, client and scopes, as the server sees them."""
    found: list[Any] = json.loads(str(await client.call(tool)))
    return found


async def test_registered_by_itself_and_let_in_for_more(tmp_path: Path) -> None:
    """AUTH-177, AUTH-181, AUTH-197, AUTH-209, AUTH-216: known, stepped up, renewed and rotated, revoked."""
    store = tmp_path / "auth.json"
    stored = OAuth(interactive=False, store=store)
    async with site(format="opaque") as there:
        async with Client(there.url, auth=there.oauth(store=store)) as client:
            subject, registered, scopes = await said(client)
            assert (subject, scopes) == ("ada", ["use"])
            assert await said(client, "save") == ["ada", registered, ["notes", "use"]]
        assert len(there.visits) == 2
        assert there.there.said().count("registers mcpd") == 1

        def expire(kept: LoginRecords) -> None:
            kept.logins = [replace(one, expires_at=1.0) for one in kept.logins]

        (before,) = logins(stored)
        FileStore(store).change(expire)
        async with Client(there.url, auth=stored) as client:
            assert await said(client, "save") == ["ada", registered, ["notes", "use"]]
        (after,) = logins(stored)
        assert after.refresh_token != before.refresh_token
        assert there.there.granted() == ["authorization_code", "authorization_code", "refresh_token"]

        (ended,) = await log_out(stored, there.url)
        assert ended.problem == ""
        with pytest.raises(AuthorizationRequired):
            async with Client(there.url, auth=stored):
                pass
        with pytest.raises(Exception, match="401"):
            async with Client(there.url, auth=after.access_token):
                pass


async def test_known_by_a_document_or_beforehand() -> None:
    """AUTH-175, AUTH-176, AUTH-183: the document's URL is the id; a secret has every kind of character."""
    document = {
        "client_id": DOCUMENT, "client_name": "desk", "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
        "application_type": "native",
    }  # fmt: skip
    known = {"client_id": "desk:1", "client_secret": SECRET, "redirect_uris": [CALLBACK], "application_type": "native"}
    async with site(documents={DOCUMENT: document}, clients=[known]) as there:
        async with Client(there.url, auth=there.oauth(client_metadata_url=DOCUMENT)) as client:
            assert await said(client) == ["ada", DOCUMENT, ["use"]]
        async with Client(there.url, auth=there.oauth(client_id="desk:1", client_secret=SECRET)) as client:
            assert await said(client) == ["ada", "desk:1", ["use"]]
        assert not any(line.startswith(("registers", "refused")) for line in there.there.said())


async def test_programs_let_themselves_in() -> None:
    """AUTH-220, AUTH-221, AUTH-227: by a secret, and by a key; the secret of another is told."""
    key = ECKey.import_key(KEY_PEM).as_dict(private=False)
    robots: list[dict[str, Any]] = [
        {**ROBOT, "client_id": "nightly", "client_secret": SECRET},
        {
            **ROBOT, "client_id": "signed", "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_signing_alg": "ES256", "jwks": {"keys": [key]},
        },
    ]  # fmt: skip
    async with site(clients=robots) as there:
        by_secret = ClientCredentials(client_id="nightly", client_secret=SECRET, scopes=["use", "notes"])
        async with Client(there.url, auth=by_secret) as client:
            assert await said(client, "save") == ["nightly", "nightly", ["notes", "use"]]
        async with Client(there.url, auth=PrivateKeyJwt(client_id="signed", key_pem=KEY_PEM)) as client:
            assert (await said(client))[1:] == ["signed", ["use"]]
        with pytest.raises(AuthorizationFailed, match="invalid_client"):
            async with Client(there.url, auth=ClientCredentials(client_id="nightly", client_secret="of another")):
                pass
        assert there.there.granted() == ["client_credentials"] * 2


@pytest.mark.parametrize("form", ["jwt", "opaque"])
async def test_tokens_bound_to_our_key(form: str) -> None:
    """AUTH-228 … AUTH-231: our proofs are judged by it, with its nonces, at each grant; our server wants them."""
    robot = {**ROBOT, "client_id": "nightly", "client_secret": SECRET}
    async with site(dpop="require", format=form, nonce=True, clients=[robot]) as there:
        async with Client(there.url, auth=there.oauth()) as client:
            assert (await said(client))[0] == "ada"
            assert (await said(client, "save"))[2] == ["notes", "use"]
        async with Client(there.url, auth=ClientCredentials(client_id="nightly", client_secret=SECRET)) as client:
            assert (await said(client))[0] == "nightly"
        assert there.there.granted() == ["authorization_code", "authorization_code", "client_credentials"]


async def test_a_code_on_another_device() -> None:
    """AUTH-202: the grant of devices, with what its page wants to be confirmed."""
    known = {
        "client_id": "shell", "redirect_uris": [], "response_types": [], "grant_types": [DEVICE, "refresh_token"],
        "token_endpoint_auth_method": "none", "application_type": "native",
    }  # fmt: skip
    async with site(clients=[known]) as there:
        shown: list[str] = []

        async def show(page: str, code: str) -> None:
            shown.append(code)
            await asyncio.to_thread(typed, page, code)

        async with Client(there.url, auth=there.oauth(client_id="shell", device=True, show_code=show)) as client:
            assert await said(client) == ["ada", "shell", ["use"]]
        assert len(shown) == 1
        assert there.there.granted() == [DEVICE]


def typed(page: str, code: str) -> None:
    """Type a code into the page that asks for it, and confirm it."""
    from http.cookiejar import CookieJar

    jar = urllib.request.HTTPCookieProcessor(CookieJar())
    browser = urllib.request.build_opener(jar, urllib.request.ProxyHandler({}))
    fields = {"user_code": code}
    for more in ({}, {"confirm": "yes"}):
        with browser.open(page.partition("?")[0], timeout=30) as answer:
            form = answer.read().decode()
        secret = re.search(r'name="xsrf" value="([^"]+)"', form)
        assert secret is not None, form
        data = urlencode({**fields, **more, "xsrf": unescape(secret[1])}).encode()
        with browser.open(page.partition("?")[0], data, timeout=30) as answer:
            answer.read()


async def test_who_may_ask_about_tokens() -> None:
    """AUTH-053, AUTH-054: a token that the provider does not know is not active; who asks wrongly is not answered."""
    with provider("http://127.0.0.1:1/mcp", ["use"]) as there:
        for secret, status in (("s" * 32, 401), ("wrong", 503)):
            auth = Introspection(there.issuer, client_id="server", client_secret=secret)
            async with serving(Server("judged"), access=Access(authenticate=auth)) as port:
                answer = await port.ask(modern("tools/list", {}, {"Authorization": "Bearer unknown"}))
                assert answer.status == status


@contextmanager
def command(child: Child, home: Path, *words: str) -> Iterator[Any]:
    """`mcpd` as a user types it over SSH."""
    env = {**child.env, "XDG_STATE_HOME": str(home), "SSH_CONNECTION": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(child.mcpd(*words), env=env, text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("device", [False, True], ids=["pasted", "device"])
async def test_the_commands(device: bool, child: Child, tmp_path: Path) -> None:
    """AUTH-192, AUTH-202, AUTH-216: over SSH the address is printed, and where the browser ended is pasted."""
    known = {
        "client_id": "shell", "redirect_uris": [CALLBACK], "grant_types": [DEVICE, "refresh_token"],
        "response_types": [], "token_endpoint_auth_method": "none", "application_type": "native",
    }  # fmt: skip
    async with site(format="opaque", clients=[known]) as there:
        await asyncio.to_thread(commanded, device, there, child, tmp_path)
        granted = there.there.granted()
    assert granted == [DEVICE if device else "authorization_code"]


def commanded(device: bool, there: Site, child: Child, home: Path) -> None:
    """Log in, use it, and log out."""
    how = ("--device", "--client-id", "shell") if device else ("--no-browser",)
    with command(child, home, "login", *how, there.url) as process:
        text = ""
        while not (found := re.search(r"(http://\S+/(?:auth\?\S+|device\S*))(?s:.*?)(?:\b(\w{4}-\w{4})\b|$)", text)):
            line = process.stderr.readline()
            assert line, text
            text += line
        if device:
            while not (code := re.search(r"\b([A-Z]{4}-[A-Z]{4})\b", text)):
                text += process.stderr.readline()
            typed(found[1], code[1])
            out, _ = process.communicate(timeout=60)
        else:
            browser = [sys.executable, APPROVE, "--print", found[1]]
            back = subprocess.run(browser, capture_output=True, text=True, check=True, timeout=60).stdout
            out, _ = process.communicate(back, timeout=60)
        assert process.returncode == 0
        assert f"logged in to {there.url}" in out

    for words, expected in ((("call", there.url, "who"), "ada"), (("whoami",), there.url), (("logout", there.url), "")):
        with command(child, home, *words) as process:
            out, errors = process.communicate(timeout=60)
            assert (process.returncode, expected in out) == (0, True), errors
    with command(child, home, "list", there.url) as process:
        assert "mcpd login" in process.communicate(timeout=60)[1]
        assert process.returncode == 3
