"""What attackers tried on the embedded authorization server: links, names, letters, and secrets in what is printed."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

from support.login_stage import CALLBACK, Login, stage, told, users_file

from mcpd.auth.fetch import Response
from mcpd.auth.server.clients import Client
from mcpd.auth.server.core import Transaction
from mcpd.auth.server.settings import ListedClient, Settings, UserFile
from mcpd.auth.server.upstream import Tokens, is_allowed
from mcpd.transports.guards import Access

FAR = "https://far.example/cb"


async def test_no_link_of_ours_leads_to_a_stranger_by_itself(tmp_path: Path) -> None:
    """H34: anybody registers a client; a browser goes there when its user says so (security considerations)."""
    settings = Settings(
        users=UserFile(file=str(users_file(tmp_path))), clients={"known": ListedClient(redirect_uris=(FAR,))}
    )
    async with stage(settings) as here:
        stranger = (await here.register(redirect_uris=[FAR, CALLBACK]))["client_id"]
        for wrong in ({"dpop_jkt": "x"}, {"response_type": "x"}, {"prompt": "none"}, {"state": "x" * 5000}):
            page = await Login(here, stranger, redirect_uri=FAR, **wrong).begin()
            assert (page.status, "location" in page) == (400, False)
            assert f'<a rel="noreferrer" href="{FAR}?error=' in page.text
            assert "Back to far.example</a>" in page.text
            assert "form-action 'none'" in page["content-security-policy"]
        hurt = await Login(here, stranger, redirect_uri=FAR, prompt="none", state='"><script>').begin()
        assert "<script" not in hurt.text

        # What the operator has written down, and what is on the user's own machine, is told at once; programs are too.
        for client, uri in (("known", FAR), (stranger, CALLBACK)):
            answer = await Login(here, client, redirect_uri=uri, prompt="none").begin()
            assert (answer.status, told(answer)["error"]) == (302, "interaction_required")
        asked = urlencode(Login(here, stranger, redirect_uri=FAR, prompt="none").asked)
        answer = await here.ask("GET", f"/oauth/authorize?{asked}", [("Accept", "*/*")])
        assert (answer.status, told(answer)["iss"]) == (302, here.issuer)

        # Who has signed in has read where it goes.
        login = Login(here, stranger, redirect_uri=FAR)
        await login.begin()
        await login.browser.sign_in()
        assert (await login.browser.choose("deny"))["error"] == "access_denied"


async def test_names_have_nothing_that_is_not_seen(tmp_path: Path) -> None:
    """AUTH-136: what turns text round, or is not shown, is left out of the name that people decide by."""
    async with stage(users_file(tmp_path)) as here:
        made = await here.register(client_name="\u202eelgoog\u200b \x1b[31m\x00bank\u2028x")
        assert made["client_name"] == "elgoog [31mbank x"
        page = await Login(here, (await here.register(client_name="\u202e\u200b"))["client_id"]).begin()
        assert "A program asks to use" in page.text


async def test_the_warning_is_for_where_this_login_goes(tmp_path: Path) -> None:
    """AUTH-136: one address elsewhere in a client's document says nothing of who listens on this machine."""
    async with stage(users_file(tmp_path)) as here:
        client = (await here.register(redirect_uris=[CALLBACK, FAR]))["client_id"]
        for uri, is_local in ((CALLBACK, True), (FAR, False)):
            login = Login(here, client, redirect_uri=uri)
            await login.begin()
            assert ("on your computer" in (await login.browser.sign_in()).text) == is_local


def test_letters_that_become_others() -> None:
    """The small letter of U+212A is the k of ASCII, and its domain another one."""
    assert not is_allowed(["*@koch.example"], "1", "eve@\u212aoch.example")
    assert not is_allowed(["kim@corp.example"], "1", "\u212aim@corp.example")
    assert is_allowed(["*@K\u00d6CH.example"], "1", "ana@k\u00f6ch.example")
    assert is_allowed(["*@koch.example"], "1", "Eve@KOCH.example")


def test_no_secret_is_in_a_repr() -> None:
    """AUTH-057: whatever a traceback or a debugger prints."""
    client = Client(id="c-1", name="x", redirect_uris=(FAR,), kind="registered")
    shown = [
        Access(token="s3cret"),
        Tokens("s3cret", "s3cret"),
        Response(200, (("Set-Cookie", "s3cret"),), b"s3cret", "https://x.example/?code=s3cret"),
        Transaction(
            id="s3cret", browser="s3cret", address="", expires=0, client=client, redirect_uri=FAR, state="s3cret",
            challenge="", resource="", scopes=(), provider_state="s3cret", nonce="s3cret", verifier="s3cret",
        ),
    ]  # fmt: skip
    assert all("s3cret" not in text for one in shown for text in (repr(one), str(one)))


async def test_a_proxy_is_not_everybody(tmp_path: Path) -> None:
    """AUTH-147: where TLS ends before us all come from one address; who guesses there locks nobody else out."""
    async with stage(users_file(tmp_path), public_url="https://tools.example/mcp") as here:
        core = here.server.core
        for _ in range(60):
            core.address_throttle.failed("127.0.0.1")
        assert (await (await here.login()).code()).strip()
        for _ in range(5):
            core.pair_throttle.failed("ana\x00127.0.0.1")
        login = await here.login()
        await login.begin()
        assert "oo many wrong passwords" in (await login.browser.sign_in()).text
        assert not core.has_own_address("")
        assert core.has_own_address("1.1.1.1")


async def test_a_flood_of_keys_to_be_read(tmp_path: Path) -> None:
    """Anybody may register a place of keys: it is asked by a few at once, and by no crowd."""
    async with stage(users_file(tmp_path)) as here:
        client = await here.register(token_endpoint_auth_method="private_key_jwt", jwks_uri="https://127.0.0.1:1/keys")
        shown = {
            "client_id": client["client_id"], "client_assertion": "a.b.c", "refresh_token": "x",
            "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        }  # fmt: skip
        here.server.core.fetching_keys = 8
        assert (await here.token("refresh_token", **shown)).json["error"] == "temporarily_unavailable"
        here.server.core.fetching_keys = 0
        assert (await here.token("refresh_token", **shown)).json["error"] == "invalid_client"
        assert here.server.core.fetching_keys == 0


async def test_a_redirect_to_no_address_is_registered_by_nobody(tmp_path: Path) -> None:
    """AUTH-125, AUTH-145: the page that shows where a login leads would fail on it."""
    async with stage(users_file(tmp_path)) as here:
        for host in ("[:::::]", "[1.2.3.4]", "app.example:99999"):
            answer = await here.post_json("/oauth/register", {"redirect_uris": [f"https://{host}/cb"]})
            assert (answer.status, answer.json["error"]) == (400, "invalid_redirect_uri"), host
