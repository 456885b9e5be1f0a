"""Attacks on the embedded authorization server: forms of strangers, other browsers, guessing, floods, markup."""

from __future__ import annotations

import re
import statistics
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from support.login_stage import CALLBACK, PASSWORD, Browser, Login, stage, told, users_file

from mcpd.auth.server import core, settings, store as stores
from mcpd.auth.server.settings import Settings, Throttle, development

SCRIPT = "<script>alert(1)</script>"


# -------------------------------------------------------------------------------------------- pages


async def test_pages_are_not_framed_and_run_nothing(tmp_path: Path) -> None:
    """H31, H33 (AUTH-136, AUTH-138): what came from others is text; each page has the strictest policy it can."""
    async with stage(users_file(tmp_path)) as here:
        client = await here.register(client_name=f'{SCRIPT}" onload="x', redirect_uris=["https://app.example:8/cb"])
        login = Login(here, client["client_id"], redirect_uri="https://app.example:8/cb", state=SCRIPT)
        first = await login.begin()
        question = await login.browser.sign_in()
        lost = await Browser(here).get("/oauth/consent?login=%3Cscript%3E")
        for page in (first, question, lost):
            policy = page["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "base-uri 'none'" in policy
            assert "unsafe" not in policy
            assert page["x-frame-options"] == "DENY"
            assert page["x-content-type-options"] == "nosniff"
            assert page["cache-control"] == "no-store"
            # A page with a form tells its own origin where the form comes from, and nobody else.
            assert page["referrer-policy"] == ("no-referrer" if page is lost else "same-origin")
            assert "<script" not in page.text
            assert " onload=" not in re.sub(r"&quot;.*?<", "<", page.text)
            assert page.text.startswith('<!doctype html>\n<html lang="en">')

        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in question.text
        for shown in ("app.example:8", "it registered itself", "ana", "tools.use"):
            assert shown in question.text
        # Browsers would hold what a client's page leads on to against it: tests/auth/server/test_pages.py.
        assert "form-action" not in question["content-security-policy"]
        assert "form-action 'none'" in lost["content-security-policy"]
        assert "on your computer" not in question.text
        local = await here.login()
        await local.begin()
        assert "on your computer" in (await local.browser.sign_in()).text


async def test_each_field_has_a_label_and_colours_follow_the_system(tmp_path: Path) -> None:
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        page = (await login.begin()).text
        fields = re.findall(r'<input id="(\w+)"', page)
        assert fields == ["user", "password"]
        assert all(f'<label for="{name}">' in page for name in fields)
        assert "color-scheme: light dark" in page
        assert page.count("<h1>") == 1
        wrong = await login.browser.sign_in("ana", "wrong")
        assert 'role="alert">The name or the password is wrong.' in wrong.text


# ------------------------------------------------------------------------------- forms and browsers


async def test_forms_of_strangers(tmp_path: Path) -> None:
    """H31 (AUTH-139): without the cookie, with another browser's, without the token, from another page."""
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        await login.begin()
        fields = {**login.browser.form, "user": "ana", "password": PASSWORD}
        stranger = Browser(here)
        other = await here.login()
        await other.begin()

        assert (await stranger.post("/oauth/sign-in", fields)).status == 403
        assert "another browser" in stranger.page.text  # type: ignore[union-attr]
        assert (await other.browser.post("/oauth/sign-in", fields)).status == 403
        for changed in ({"form": "x"}, {"form": other.browser.form.get("form", "")}, {"login": "x"}):
            assert (await login.browser.post("/oauth/sign-in", {**fields, **changed})).status in (400, 403)
        for origin in ("https://evil.example", "null"):
            answer = await login.browser.post("/oauth/sign-in", fields, headers=[("Origin", origin)])
            assert answer.status == 403
        # A cookie that this server did not sign.
        (name,) = login.browser.cookies
        stranger.cookies[name] = "made-up.signature"
        assert (await stranger.post("/oauth/sign-in", fields)).status == 403
        assert (await login.browser.post("/oauth/sign-in", fields)).status == 303


async def test_consent_is_of_the_browser_that_began(tmp_path: Path) -> None:
    """H31 (AUTH-139, AUTH-142; S25-153, S26-187): an attacker's link shows nothing in another browser."""
    async with stage(users_file(tmp_path)) as here:
        attacker, victim = await here.login(), await here.login()
        await attacker.begin()
        await attacker.browser.sign_in()
        fields = attacker.browser.form
        await victim.begin()
        assert (await victim.browser.get(f"/oauth/consent?login={fields['login']}")).status == 403
        assert (await victim.browser.post("/oauth/consent", {**fields, "choice": "allow"})).status == 403


async def test_nothing_is_allowed_before_somebody_signs_in(tmp_path: Path) -> None:
    """AUTH-137: nor twice for one login, nor by itself the next time."""
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        await login.begin()
        early = await login.browser.post("/oauth/consent", {**login.browser.form, "choice": "allow"})
        assert (early.status, "location" in early) == (200, False)
        assert "Password" in early.text

        await login.browser.sign_in()
        # Back and again: a page may be loaded twice, and sent once.
        fields = login.browser.form
        reloaded = await login.browser.get(f"/oauth/consent?login={fields['login']}")
        assert (reloaded.status, login.browser.form) == (200, fields)
        assert "code" in await login.browser.choose()
        twice = await login.browser.post("/oauth/consent", {**fields, "choice": "allow"})
        assert (twice.status, "this login has ended" in twice.text.lower()) == (400, True)

        again = await login.begin()
        assert (again.status, "Password" in again.text) == (200, True)


async def test_who_denies(tmp_path: Path) -> None:
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        await login.begin()
        await login.browser.sign_in()
        said = await login.browser.choose("deny")
        assert (said["error"], said["state"], said["iss"]) == ("access_denied", "s1", here.issuer)


async def test_logins_end(tmp_path: Path) -> None:
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        await login.begin()
        here.now.time += 601
        answer = await login.browser.sign_in()
        assert (answer.status, "this login has ended" in answer.text.lower()) == (400, True)


async def test_logins_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who begins many forgets their own: those of another address stay."""
    monkeypatch.setattr(core, "MAX_LOGINS", 20)
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        await login.begin()
        (kept,) = here.server.core.transactions._open.values()
        kept.address = "192.0.2.1"
        for _ in range(50):
            await Login(here, login.client).begin()
        assert len(here.server.core.transactions._open) == 20
        assert (await login.browser.sign_in()).status == 200


async def test_no_open_redirect(tmp_path: Path) -> None:
    """H34 (AUTH-126): parameters that look like a way back lead nowhere."""
    async with stage(users_file(tmp_path)) as here:
        login = await here.login(
            return_to="https://evil.example", next="//evil.example", redirect="https://evil.example"
        )
        await login.begin()
        fields = {**login.browser.form, "user": "ana", "password": PASSWORD, "return_to": "https://evil.example"}
        answer = await login.browser.post("/oauth/sign-in?return_to=https://evil.example", fields)
        assert answer["location"].startswith(f"{here.issuer}/oauth/consent?login=")
        await login.browser.get(answer["location"].removeprefix(here.issuer))
        answer = await login.browser.post("/oauth/consent", {**login.browser.form, "choice": "allow"})
        assert answer["location"].startswith(f"{CALLBACK}?")


async def test_response_splitting(tmp_path: Path) -> None:
    async with stage(development()) as here:
        login = await here.login(state="a\r\nSet-Cookie: x=y\r\n\r\n<b>")
        await login.begin()
        answer = await login.browser.post("/oauth/consent", {**login.browser.form, "choice": "allow"})
        assert "set-cookie" not in answer
        assert told(answer)["state"] == "a\r\nSet-Cookie: x=y\r\n\r\n<b>"


@pytest.mark.parametrize("path", ["/oauth/authorize", "/oauth/consent", "/oauth/sign-in", "/oauth/sign-in/x/callback"])
async def test_odd_requests_are_answered_in_words(tmp_path: Path, path: str) -> None:
    async with stage(users_file(tmp_path)) as here:
        browser = Browser(here)
        for query in ("", "?%ff=%fe&a", f"?{'a=1&' * 2000}", "?login[]=x&state[]=y", f"?state={'s' * 5000}"):
            answer = await browser.get(path + query)
            assert answer.status in (400, 403, 404, 405), (path, query[:20])
            assert "Traceback" not in answer.text
        assert (await browser.post(path, {"a": "b" * 30_000})).status in (405, 413)


async def test_a_form_is_a_form(tmp_path: Path) -> None:
    async with stage(users_file(tmp_path)) as here:
        for kind in ("text/plain", "application/json", "multipart/form-data; boundary=x"):
            answer = await here.ask("POST", "/oauth/consent", [("Content-Type", kind)], b"login=x&form=y&choice=allow")
            assert answer.status == 400


async def test_a_state_that_is_too_long(tmp_path: Path) -> None:
    async with stage(users_file(tmp_path)) as here:
        login = await here.login(state="s" * 5000)
        said = told(await login.begin())
        assert (said["error"], "state" in said) == ("invalid_request", False)


# ------------------------------------------------------------------------------------------ guessing


async def test_password_guessing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """H34 (AUTH-147): five a person and address, then minutes; the right one too. No password in the log (AUTH-057)."""
    caplog.set_level("DEBUG")
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        await login.begin()
        for _ in range(5):
            answer = await login.browser.sign_in("ana", "hunter2")
            assert (answer.status, "is wrong" in answer.text) == (403, True)
        answer = await login.browser.sign_in()
        assert (answer.status, "oo many wrong passwords" in answer.text) == (403, True)
        here.now.time += 301
        assert (await login.browser.sign_in()).status == 200
        assert "A sign-in from 127.0.0.1 failed" in caplog.text
        assert "hunter2" not in caplog.text
        assert PASSWORD not in caplog.text


async def test_a_wrong_name_costs_as_much_as_a_wrong_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H34 (AUTH-147): the same work, and the same answer."""
    costs: list[tuple[int, int, int]] = []
    true = settings._scrypt

    def counted(password: str, salt: bytes, log_n: int, r: int, p: int) -> bytes:
        costs.append((log_n, r, p))
        return true(password, salt, log_n, r, p)

    people = settings.Users(str(users_file(tmp_path)))
    monkeypatch.setattr(settings, "_scrypt", counted)
    times: dict[str, list[float]] = {"ana": [], "nobody": []}
    for _ in range(3):
        for name, took in times.items():
            began = time.perf_counter()
            assert await people.check(name, "wrong") is None
            took.append(time.perf_counter() - began)
    people.close()
    assert costs == [(15, 8, 1)] * 6
    assert statistics.median(times["nobody"]) > 0.2 * statistics.median(times["ana"])


def test_what_counts_failures_is_bounded() -> None:
    now = 0.0
    throttle = Throttle(2, 10, lambda: now)
    for number in range(30_000):
        throttle.failed(str(number))
    assert len(throttle._failures) <= 20_000
    throttle.failed("a")
    assert throttle.seconds_to_wait("a") == 0
    throttle.failed("a")
    assert throttle.seconds_to_wait("a") == 10
    now = 11.0
    assert throttle.seconds_to_wait("a") == 0
    throttle.failed("a")
    assert throttle.seconds_to_wait("a") == 0
    throttle.failed("a")
    throttle.succeeded("a")
    assert throttle.seconds_to_wait("a") == 0


@pytest.mark.parametrize(
    "hashed", ["", "x", "scrypt$15$8$1$!$!", "scrypt$30$8$1$AA$AA", "bcrypt$15$8$1$AA$AA", "a$b$c$d$e$f"]
)
def test_what_is_no_hash_is_nobodys_password(hashed: str) -> None:
    assert not settings.matches(hashed, "x")


# ------------------------------------------------------------------------------------- registration


async def test_a_flood_of_registrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H33 (AUTH-144): capped; those of the address that has most go, the oldest first; what was used stays."""
    monkeypatch.setattr(stores, "MAX_UNCONFIRMED", 10)
    async with stage(development()) as here:
        login = await here.login()
        await login.begin()
        await login.exchange((await login.browser.choose())["code"])
        other = await here.register()
        core = here.server.core
        await core.store._run(
            lambda _: core.store._db.execute("UPDATE clients SET address = 'other' WHERE used IS NULL")
        )
        ids = [(await here.register())["client_id"] for _ in range(30)]
        count = await core.store._run(lambda _: core.store._db.execute("SELECT COUNT(*) FROM clients").fetchone())
        assert count == (11,)
        assert (await Login(here, ids[0]).begin()).status == 400
        for known in (ids[-1], other["client_id"], login.client):
            assert (await Login(here, known).begin()).status == 200


async def test_registrations_end(tmp_path: Path) -> None:
    """AUTH-144: after an hour without a login, after 90 days without use."""
    async with stage(development()) as here:
        used, unused = await here.login(), await here.login()
        await used.begin()
        await used.exchange((await used.browser.choose())["code"])
        here.now.time += 3601
        assert (await used.begin()).status == 200
        assert (await unused.begin()).status == 400
        here.now.time += 91 * 86400
        assert (await used.begin()).status == 400
        assert (await used.refresh("x")).json["error"] == "invalid_client"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"redirect_uris": None}, "invalid_redirect_uri"),
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": "https://a.example/cb"}, "invalid_redirect_uri"),
        ({"redirect_uris": [1]}, "invalid_redirect_uri"),
        *(
            ({"redirect_uris": [uri]}, "invalid_redirect_uri")
            for uri in (
                "javascript:alert(1)", "data:text/html,x", "file:///x", "http://a.example/cb", "app:/cb",
                "https://*.example/cb", "https://a.example/cb#f", "https://u@a.example/cb", "https:///cb", "https://",
                "https://a.example/ cb", "https://a.example\\@b.example/", "https://a.example/" + "a" * 2000, "",
                "https://bücher.example/cb",
            )
        ),
        ({"redirect_uris": [f"https://a.example/{number}" for number in range(21)]}, "invalid_redirect_uri"),
        ({"token_endpoint_auth_method": "tls_client_auth"}, "invalid_client_metadata"),
        ({"token_endpoint_auth_method": "private_key_jwt"}, "invalid_client_metadata"),
        ({"response_types": ["token"]}, "invalid_client_metadata"),
        ({"grant_types": ["password"]}, "invalid_client_metadata"),
        ({"grant_types": ["authorization_code", 1]}, "invalid_client_metadata"),
        ({"client_name": {"a": 1}}, "invalid_client_metadata"),
        ({"jwks": [1]}, "invalid_client_metadata"),
    ],
)  # fmt: skip
async def test_what_cannot_register(tmp_path: Path, changes: dict[str, Any], error: str) -> None:
    """H33 (AUTH-145)."""
    async with stage(development()) as here:
        said = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none", **changes}
        answer = await here.post_json("/oauth/register", said)
        assert (answer.status, answer.json["error"]) == (400, error)
        assert isinstance(answer.json["error_description"], str)


async def test_what_is_no_registration(tmp_path: Path) -> None:
    """H33: no JSON, too much of it; `scope` is no ceiling; and off is off."""
    async with stage(development()) as here:
        for body in (b"", b"{", b"[]", b"[" * 10_000, b"\xff"):
            assert (await here.ask("POST", "/oauth/register", (), body)).json["error"] == "invalid_client_metadata"
        assert (await here.ask("POST", "/oauth/register", (), b"{" + b" " * 20_000)).status == 413
        assert "scope" not in await here.register(scope="a")
    async with stage(Settings(is_development=True, registration="off")) as here:
        metadata = (await here.ask("GET", "/.well-known/oauth-authorization-server")).json
        assert "registration_endpoint" not in metadata
        answer = await here.post_json("/oauth/register", {"redirect_uris": [CALLBACK]})
        assert (answer.status, answer.json["error"]) == (404, "not_found")


async def test_nothing_secret_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """H16 (AUTH-057): of a whole login, at level debug."""
    caplog.set_level("DEBUG")
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        code = await login.code()
        tokens = (await login.exchange(code)).json
        await login.refresh(tokens["refresh_token"])
        await login.exchange(code)
        for secret in (code, *map(str, tokens.values()), PASSWORD, *login.browser.cookies.values()):
            if len(secret) > 20:
                assert secret not in caplog.text
        assert urlencode({"code": code}) not in caplog.text
