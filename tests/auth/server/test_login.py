"""A login from the first page to tokens, and what goes wrong on the way, in bytes."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import urlencode

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet
from support.login_stage import CALLBACK, Browser, Login, claims_of, stage, told, users_file

from mcpd.auth.server.settings import ListedClient, Settings, UserFile, development
from mcpd.auth.server.store import User


async def test_a_whole_login(tmp_path: Path) -> None:
    """AUTH-120, AUTH-121, AUTH-127, AUTH-130, AUTH-148: metadata, registration, login, tokens, and a refresh."""
    async with stage(users_file(tmp_path)) as here:
        answer = await here.ask("GET", "/.well-known/oauth-authorization-server")
        metadata = answer.json
        assert answer["access-control-allow-origin"] == "*"
        assert metadata["issuer"] == here.issuer == here.resource.removesuffix("/mcp")
        assert metadata["code_challenge_methods_supported"] == ["S256"]
        assert metadata["token_endpoint_auth_methods_supported"][0] == "none"
        assert metadata["client_id_metadata_document_supported"] is True
        assert metadata["authorization_response_iss_parameter_supported"] is True
        assert metadata["scopes_supported"] == ["tools.use", "offline_access"]
        assert all(metadata[name].startswith(here.issuer) for name in metadata if name.endswith(("_endpoint", "_uri")))

        login = await here.login()
        answer = await login.exchange(await login.code())
        assert answer["cache-control"] == "no-store"
        said = answer.json
        assert (said["token_type"], said["expires_in"], said["scope"]) == ("Bearer", 3600, "tools.use")

        keys = KeySet.import_key_set((await here.ask("GET", "/oauth/jwks")).json)
        token = jwt.decode(said["access_token"], keys, algorithms=["ES256"])
        assert token.header["typ"] == "at+jwt"
        assert token.claims["iss"] == here.issuer
        assert token.claims["aud"] == here.resource
        assert token.claims["sub"] == "ana"
        assert token.claims["client_id"] == login.client
        assert token.claims["scope"] == "tools.use"
        assert token.claims["exp"] - token.claims["iat"] == 3600
        assert token.claims["jti"]
        assert "d" not in (await here.ask("GET", "/oauth/jwks")).json["keys"][0]

        renewed = (await login.refresh(said["refresh_token"])).json
        assert renewed["refresh_token"] != said["refresh_token"]
        assert claims_of(renewed["access_token"])["sub"] == "ana"


async def test_development_is_one_click(tmp_path: Path) -> None:
    async with stage(development()) as here:
        login = await here.login()
        page = await login.begin()
        assert "Let A client use" in page.text
        said = await login.browser.choose()
        assert claims_of((await login.exchange(said["code"])).json["access_token"])["sub"] == "developer"


async def test_a_public_url_with_a_path_and_tls(tmp_path: Path) -> None:
    """AUTH-120, AUTH-122, AUTH-139: mounted below a path; cookies of https are bound to the host."""
    async with stage(users_file(tmp_path), public_url="https://tools.example/a/mcp") as here:
        assert here.issuer == "https://tools.example/a"
        metadata = (await here.ask("GET", "/.well-known/oauth-authorization-server/a")).json
        assert metadata["token_endpoint"] == "https://tools.example/a/oauth/token"
        other = await here.ask("GET", "/.well-known/oauth-authorization-server/b")
        assert (other.status, other.json["error"]) == (404, "not_found")

        login = await here.login()
        page = await login.begin()
        assert 'action="/a/oauth/sign-in"' in page.text
        cookie = page["set-cookie"]
        assert cookie.startswith("__Host-mcpd-login=")
        assert {"Secure", "HttpOnly", "SameSite=Lax", "Path=/"} <= {*cookie.split("; ")}
        await login.browser.sign_in()
        assert "code" in await login.browser.choose()


# ----------------------------------------------------------------------------------- authorization


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": None}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"scope": " ".join(map(str, range(70)))}, "invalid_scope"),
        ({"prompt": "none"}, "interaction_required"),
        ({"request": "x"}, "request_not_supported"),
        ({"request_uri": "https://127.0.0.1/x"}, "request_not_supported"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"dpop_jkt": "x"}, "invalid_request"),
    ],
)
async def test_errors_that_the_client_is_told(tmp_path: Path, changes: dict[str, str | None], error: str) -> None:
    """AUTH-123, AUTH-127, AUTH-129, AUTH-153; H31: silent consent is none. With `state` and `iss`."""
    async with stage(users_file(tmp_path)) as here:
        login = await here.login(**changes)
        answer = await login.begin()
        assert answer.status == 302
        assert answer["location"].startswith(f"{CALLBACK}?")
        said = told(answer)
        assert (said["error"], said["state"], said["iss"]) == (error, "s1", here.issuer)


REDIRECTS = [
    "http://127.0.0.1/callback?x=1", "http://127.0.0.1/callback#f", "http://127.0.0.1/other", "http://127.0.0.1/callback/",
    "http://127.0.0.1:99999999/callback", "http://127.0.0.1.evil.example/callback", "http://evil.example/callback",
    "http://user@127.0.0.1/callback", "http://127.0.0.1@evil.example/callback", "https://127.0.0.1/callback",
    "http://localhost/callback", "http://[::1]/callback", "http://127.1/callback", "http://2130706433/callback",
    "app.example:/callback", "javascript:alert(1)", "//evil.example", "http://127.0.0.1/%2e%2e/callback",
    "http://127.0.0.1\\@evil.example/callback", "http://127.0.0.1/callback\r\nX: y", "HTTP://127.0.0.1/callback",
    "https://sub.good.example/cb", "https://good.example/cb/", "https://good.example/cb?x", "http://good.example/cb",
    "https://good.example:8443/cb", "https://good.example.evil/cb", "https://good.example@evil.example/cb",
]  # fmt: skip


async def test_no_redirect_that_was_not_registered(tmp_path: Path) -> None:
    """H29, H34 (AUTH-125, AUTH-126): an error page, never a redirect; programs get JSON."""
    async with stage(users_file(tmp_path)) as here:
        client = (await here.register(redirect_uris=[CALLBACK, "https://good.example/cb"]))["client_id"]
        for uri in REDIRECTS:
            answer = await Login(here, client, redirect_uri=uri).begin()
            assert (answer.status, "location" in answer) == (400, False), uri
            assert "not registered for this client" in answer.text
        answer = await Login(here, client, redirect_uri=None).begin()
        assert (answer.status, "Redirect_uri is missing" in answer.text) == (400, True)

        for changes in ({"client_id": "c-unknown"}, {"client_id": None}, {"client_id": "<script>alert(1)</script>"}):
            answer = await Login(here, client, **changes).begin()  # type: ignore[arg-type]
            assert (answer.status, "location" in answer) == (400, False)
            assert "<script" not in answer.text
        answer = await here.ask("GET", "/oauth/authorize?client_id=none")
        assert (answer.status, answer.json["error"]) == (401, "invalid_client")

        twice = f"/oauth/authorize?{urlencode(Login(here, client).asked)}&redirect_uri=https://evil.example"
        answer = await Browser(here).get(twice)
        assert (answer.status, "is repeated" in answer.text) == (400, True)


async def test_any_port_of_loopback(tmp_path: Path) -> None:
    """AUTH-125: a program's port is another one each time (RFC 8252 7.3)."""
    async with stage(development()) as here:
        uris = ["http://127.0.0.1:1/cb", "http://localhost/cb?a=b", "http://[::1]:9/cb"]
        client = (await here.register(redirect_uris=uris))["client_id"]
        for uri in ("http://127.0.0.1:65000/cb", "http://localhost:3000/cb?a=b", "http://[::1]/cb"):
            login = Login(here, client, redirect_uri=uri)
            page = await login.begin()
            assert page.status == 200, uri
            answer = await login.browser.post("/oauth/consent", {**login.browser.form, "choice": "allow"})
            assert answer["location"].startswith(f"{uri}{'&' if '?' in uri else '?'}code=")
            assert (await login.exchange(told(answer)["code"])).status == 200


async def test_a_client_with_one_redirect_need_not_name_it(tmp_path: Path) -> None:
    async with stage(users_file(tmp_path)) as here:
        login = await here.login(redirect_uri=None)
        assert (await login.exchange(await login.code())).status == 200


async def test_scopes(tmp_path: Path) -> None:
    """Known ones of those that were asked for, as far as the user may have them; else the login ends."""
    users = users_file(tmp_path, ana=None, bob=["tools.use"])
    settings = Settings(users=UserFile(file=str(users)), scopes={"admin": "Change <everything>"})
    async with stage(settings) as here:
        login = await here.login(scope="admin nonsense tools.use offline_access")
        await login.begin()
        page = await login.browser.sign_in()
        assert "<li>Change &lt;everything&gt;</li><li>tools.use</li>" in page.text
        said = (await login.exchange((await login.browser.choose())["code"])).json
        assert said["scope"] == "admin tools.use offline_access"
        assert claims_of(said["access_token"])["scope"] == "admin tools.use"

        login = await here.login(scope="admin tools.use")
        assert (await login.tokens("bob"))["scope"] == "tools.use"
        login = await here.login(scope="admin")
        await login.begin()
        said = told(await login.browser.sign_in("bob"))
        assert (said["error"], said["state"], said["iss"]) == ("access_denied", "s1", here.issuer)


# --------------------------------------------------------------------------------- codes and tokens


async def test_a_code_is_for_one_use(tmp_path: Path) -> None:
    """H28 (AUTH-124; S25-150, S26-183): the second use revokes what the first one gave."""
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        revoked: list[tuple[str, str]] = []
        here.server.core.on_revoked = lambda subject, client: revoked.append((subject, client))
        code = await login.code()
        tokens = (await login.exchange(code)).json
        again = await login.exchange(code)
        assert (again.status, again.json["error"]) == (400, "invalid_grant")
        assert revoked == [("ana", login.client)]
        assert (await login.refresh(tokens["refresh_token"])).json["error"] == "invalid_grant"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": "w" * 43}, "invalid_grant"),
        ({"code_verifier": "short"}, "invalid_request"),
        ({"code_verifier": None}, "invalid_request"),
        ({"code": None}, "invalid_request"),
        ({"code": "other"}, "invalid_grant"),
        ({"redirect_uri": "http://127.0.0.1:1/callback"}, "invalid_grant"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"client_id": "c-other"}, "invalid_client"),
        ({"client_id": None}, "invalid_client"),
        ({"client_secret": "x"}, "invalid_client"),
    ],
)
async def test_what_a_code_is_bound_to(tmp_path: Path, changes: dict[str, str | None], error: str) -> None:
    """H28 (AUTH-124, AUTH-129)."""
    async with stage(development()) as here:
        login = await here.login()
        await login.begin()
        answer = await login.exchange((await login.browser.choose())["code"], **changes)
        assert (answer.status, answer.json["error"]) == (401 if error == "invalid_client" else 400, error)
        assert answer["cache-control"] == "no-store"


async def test_the_resource_is_the_same_in_capitals(tmp_path: Path) -> None:
    """AUTH-129: scheme and host have any case, paths have not; tokens name it as the server does."""
    async with stage(users_file(tmp_path), public_url="https://tools.example/a/mcp") as here:
        login = await here.login(resource="HTTPS://Tools.Example/a/mcp")
        answer = await login.exchange(await login.code(), resource="https://TOOLS.example/a/mcp")
        assert claims_of(answer.json["access_token"])["aud"] == "https://tools.example/a/mcp"
        for other in ("https://tools.example/A/mcp", "https://tools.example/a/mcp/", "https:/tools.example/a/mcp"):
            refused = await login.refresh(answer.json["refresh_token"], resource=other)
            assert refused.json["error"] == "invalid_target"


async def test_codes_of_others_and_old_codes(tmp_path: Path) -> None:
    """H28 (AUTH-124): another client's, and after a minute."""
    async with stage(development()) as here:
        login, other = await here.login(), await here.login()
        await login.begin()
        code = (await login.browser.choose())["code"]
        assert (await other.exchange(code)).json["error"] == "invalid_grant"
        here.now.time += 59
        assert (await login.exchange(code)).status == 200

        await login.begin()
        code = (await login.browser.choose())["code"]
        here.now.time += 61
        assert (await login.exchange(code)).json["error_description"] == "the code has expired"


async def test_rotation_with_grace(tmp_path: Path) -> None:
    """H32 (AUTH-131): the same successor for 45 s; what is older revokes the family."""
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        first = (await login.tokens())["refresh_token"]
        second = (await login.refresh(first)).json["refresh_token"]
        here.now.time += 44
        assert (await login.refresh(first)).json["refresh_token"] == second
        third = (await login.refresh(second)).json["refresh_token"]
        assert len({first, second, third}) == 3

        here.now.time += 2
        reused = await login.refresh(first)
        assert (reused.status, reused.json["error"]) == (400, "invalid_grant")
        assert (await login.refresh(third)).json["error"] == "invalid_grant"


async def test_a_refresh_token_is_not_exchanged_once_its_login_was_revoked(tmp_path: Path) -> None:
    """Not even if that happens between the look at the token and its exchange."""
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        token = (await login.tokens())["refresh_token"]
        core = here.server.core
        current_user = core.current_user

        def revoke_first(user: User) -> User | None:
            (grant,) = core.store.now(lambda _: core.store._db.execute("SELECT id FROM grants").fetchone())
            core.store.now(lambda now: core.store._revoke(grant, now))
            return current_user(user)

        core.current_user = revoke_first  # type: ignore[method-assign]
        answer = await login.refresh(token)
        assert (answer.status, answer.json["error"]) == (400, "invalid_grant")


async def test_a_refresh_never_widens(tmp_path: Path) -> None:
    """H32 (AUTH-132): neither scope nor resource nor client; less it may be."""
    users = users_file(tmp_path)
    settings = Settings(users=UserFile(file=str(users)), scopes={"a": "A", "b": "B"})
    async with stage(settings) as here:
        login = await here.login(scope="a b")
        token = (await login.tokens())["refresh_token"]
        for changes, error in (
            ({"scope": "a b tools.use"}, "invalid_scope"),
            ({"resource": "https://other.example"}, "invalid_target"),
            ({"client_id": (await here.register())["client_id"]}, "invalid_grant"),
            ({"refresh_token": None}, "invalid_request"),
        ):
            assert (await login.refresh(token, **changes)).json["error"] == error
        less = (await login.refresh(token, scope="a")).json
        assert (less["scope"], claims_of(less["access_token"])["scope"]) == ("a", "a")
        assert (await login.refresh(less["refresh_token"])).json["scope"] == "a b"


async def test_who_was_taken_out_of_the_file_is_out(tmp_path: Path) -> None:
    users = users_file(tmp_path, ana=None, bob=None)
    async with stage(users) as here:
        login = await here.login()
        token = (await login.tokens("bob"))["refresh_token"]
        users_file(tmp_path, ana=None)
        assert (await login.refresh(token)).json["error_description"] == "this user may not log in any more"
        users_file(tmp_path, ana=None, bob=None)
        assert (await login.refresh(token)).json["error"] == "invalid_grant"


async def test_refresh_tokens_that_nobody_uses(tmp_path: Path) -> None:
    async with stage(users_file(tmp_path)) as here:
        login = await here.login()
        token = (await login.tokens())["refresh_token"]
        here.now.time += 89 * 86400
        token = (await login.refresh(token)).json["refresh_token"]
        here.now.time += 89 * 86400
        token = (await login.refresh(token)).json["refresh_token"]
        here.now.time += 91 * 86400
        assert (await login.refresh(token)).status in (400, 401)


async def test_no_refresh_token_that_nobody_asked_for(tmp_path: Path) -> None:
    async with stage(development()) as here:
        client = (await here.register(grant_types=["authorization_code"]))["client_id"]
        for scope, has in ((None, False), ("offline_access", True)):
            login = Login(here, client, scope=scope)
            await login.begin()
            said = (await login.exchange((await login.browser.choose())["code"])).json
            assert ("refresh_token" in said) is has


async def test_revocation(tmp_path: Path) -> None:
    """By the refresh token, or the access token; of another client's nothing happens. RFC 7009."""
    async with stage(development()) as here:
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        for name in ("refresh_token", "access_token"):
            login, other = await here.login(), await here.login()
            await login.begin()
            tokens = (await login.exchange((await login.browser.choose())["code"])).json
            for client, works in ((other.client, True), (login.client, False)):
                body = urlencode({"token": tokens[name], "client_id": client}).encode()
                answer = await here.ask("POST", "/oauth/revoke", form, body)
                assert answer.status == 200
                renewed = await login.refresh(tokens["refresh_token"])
                assert (renewed.status == 200) is works
                if works:
                    tokens["refresh_token"] = renewed.json["refresh_token"]
        body = urlencode({"token": "nonsense", "client_id": login.client}).encode()
        assert (await here.ask("POST", "/oauth/revoke", form, body)).status == 200
        assert (await here.ask("POST", "/oauth/revoke", form, b"token=x")).json["error"] == "invalid_client"


async def test_what_is_no_token_request(tmp_path: Path) -> None:
    """AUTH-148, AUTH-153: other grants, other bodies, parameters that came twice, huge forms."""
    async with stage(development()) as here:
        client = (await here.register())["client_id"]
        for grant in ("password", "client_credentials", "implicit", ""):
            answer = await here.token(grant, client_id=client, username="ana", password="x")
            assert answer.json["error"] == "unsupported_grant_type"
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        for headers, body in (
            ([("Content-Type", "application/json")], b'{"grant_type":"refresh_token"}'),
            (form, b"client_id=a&client_id=b"),
            (form, b"grant_type=\xff\xfe"),
            (form, b"&".join(b"a%d=1" % number for number in range(100))),
        ):
            answer = await here.ask("POST", "/oauth/token", headers, body)
            assert (answer.status, answer.json["error"]) == (400, "invalid_request")
        assert (await here.ask("POST", "/oauth/token", form, b"a=" + b"b" * 20_000)).status == 413
        assert (await here.ask("GET", "/oauth/token")).status == 405


async def test_cross_origin(tmp_path: Path) -> None:
    """AUTH-149: what goes by no cookie is for any page; what does is for none."""
    async with stage(users_file(tmp_path)) as here:
        evil = [("Origin", "https://page.example")]
        for path in ("/.well-known/oauth-authorization-server", "/oauth/jwks"):
            assert (await here.ask("GET", path, evil))["access-control-allow-origin"] == "*"
        for path in ("/oauth/token", "/oauth/register", "/oauth/revoke"):
            asked = [*evil, ("Access-Control-Request-Method", "POST")]
            answer = await here.ask("OPTIONS", path, asked)
            assert (answer.status, answer["access-control-allow-origin"]) == (204, "*")
            assert "POST" in answer["access-control-allow-methods"]
            assert "access-control-allow-credentials" not in answer
        for path in ("/oauth/authorize", "/oauth/consent", "/oauth/sign-in"):
            answer = await here.ask("GET", path, evil)
            assert "access-control-allow-origin" not in answer


# -------------------------------------------------------------------------------------------- clients


async def test_clients_with_secrets(tmp_path: Path) -> None:
    """AUTH-148: each in the way that it registered, and in no other."""
    async with stage(development()) as here:
        for method in ("client_secret_basic", "client_secret_post"):
            client = await here.register(token_endpoint_auth_method=method)
            id, secret = client["client_id"], client["client_secret"]
            assert client["client_secret_expires_at"] == 0
            login = Login(here, id)

            def basic(word: str, id: str = id) -> list[tuple[str, str]]:
                return [("Authorization", f"Basic {base64.b64encode(f'{id}:{word}'.encode()).decode()}")]

            by_basic = {"headers": basic(secret), "client_id": None}
            by_post = {"client_secret": secret}
            right, wrong = (by_basic, by_post) if method.endswith("basic") else (by_post, by_basic)
            await login.begin()
            code = (await login.browser.choose())["code"]
            for refused in (
                wrong,
                {},
                {"headers": basic("wrong"), "client_id": None},
                {"client_secret": "wrong"},
                {"headers": [("Authorization", "Basic !!")], "client_id": None},
            ):
                answer = await login.exchange(code, **refused)
                assert (answer.status, answer.json["error"]) == (401, "invalid_client")
                assert ("www-authenticate" in answer) is ("headers" in refused or (not refused and "basic" in method))
            both = await login.exchange(code, headers=basic(secret), client_secret=secret)
            assert both.json["error"] == "invalid_request"
            other = await login.exchange(code, headers=basic(secret), client_id="c-other")
            assert other.json["error"] == "invalid_request"
            assert (await login.exchange(code, **right)).status == 200


async def test_clients_of_the_settings(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    listed = {
        "cli": ListedClient(redirect_uris=(CALLBACK,), name="The CLI"),
        "web": ListedClient(redirect_uris=("https://web.example/cb",), secret_file=str(secret)),
    }
    settings = Settings(users=UserFile(file=str(users_file(tmp_path))), clients=listed, trusted_clients=("cli",))
    async with stage(settings) as here:
        login = Login(here, "cli")
        await login.begin()
        # AUTH-137: of those that the operator trusts nobody is asked.
        said = told(await login.browser.sign_in())
        assert (await login.exchange(said["code"])).status == 200

        login = Login(here, "web", redirect_uri="https://web.example/cb")
        page = await login.begin()
        assert "the operator of this server" in page.text
        await login.browser.sign_in()
        code = (await login.browser.choose())["code"]
        assert (await login.exchange(code)).status == 401
        assert (await login.exchange(code, client_secret="s3cret")).status == 200


# -------------------------------------------------------------------------------------------- restart


async def test_what_survives_a_restart(tmp_path: Path) -> None:
    """AUTH-151: keys, registrations, grants; in a file that only its owner can read, without a token in it."""
    state = tmp_path / "state.sqlite"
    settings = Settings(users=UserFile(file=str(users_file(tmp_path))), state=str(state))
    async with stage(settings) as here:
        login = await here.login()
        code = await login.code()
        tokens = (await login.exchange(code)).json
        keys = (await here.ask("GET", "/oauth/jwks")).json
        now, cookies = here.now, login.browser.cookies
        assert state.stat().st_mode & 0o777 == 0o600
        for kept in tmp_path.iterdir():
            raw = kept.read_bytes()
            assert kept.stat().st_mode & 0o077 == 0 or kept.name == "users.toml"
            for secret in (code, tokens["refresh_token"], tokens["access_token"]):
                assert secret.encode() not in raw

    async with stage(settings, now=now) as here:
        assert (await here.ask("GET", "/oauth/jwks")).json == keys
        login.stage = here
        # The port is another one, so that the resource is; as it would be if the public URL was changed.
        assert (await login.refresh(tokens["refresh_token"])).status == 200
        again = Login(here, login.client)
        again.browser.cookies = cookies
        assert "set-cookie" not in await again.begin()


async def test_keys_are_rotated_with_overlap(tmp_path: Path) -> None:
    """AUTH-151: what the old one signed is checked on."""
    async with stage(development()) as here:
        (first,) = (await here.ask("GET", "/oauth/jwks")).json["keys"]
        here.now.time += 91 * 86400
        login = await here.login()
        await login.begin()
        token = (await login.exchange((await login.browser.choose())["code"])).json["access_token"]
        keys = (await here.ask("GET", "/oauth/jwks")).json["keys"]
        assert [key["kid"] for key in keys][1:] == [first["kid"]]
        jwt.decode(token, KeySet.import_key_set({"keys": keys[:1]}), algorithms=["ES256"])
        here.now.time += 2 * 86400
        assert len((await here.ask("GET", "/oauth/jwks")).json["keys"]) == 1


@pytest.mark.parametrize("scope", ["openid email profile", "openid", "no-such-scope"])
async def test_only_unknown_scopes_lead_to_the_default(tmp_path: Path, scope: str) -> None:
    """Clients ask for `openid email profile` of every server; the token names the scopes that were granted."""
    async with stage(users_file(tmp_path)) as here:
        expected = (await (await here.login()).tokens())["scope"]
        login = await here.login(scope=scope)
        tokens = await login.tokens()
        assert tokens["scope"] == expected
        assert (await login.refresh(tokens["refresh_token"], scope=scope)).json["scope"] == expected


async def test_redirect_uris_that_cannot_be_used_are_left_out(tmp_path: Path) -> None:
    """Editors register `cursor://…` beside the ones that they use here."""
    other = ["cursor://anysphere.cursor-mcp/oauth/callback", "claude://claude.ai/callback", "javascript:alert(1)"]
    async with stage(users_file(tmp_path)) as here:
        client = await here.register(redirect_uris=[*other, CALLBACK])
        assert client["redirect_uris"] == [CALLBACK]
        assert (await Login(here, client["client_id"]).begin()).status == 200
        why = "a redirect URI must be https, or http on 127.0.0.1, [::1] or localhost"
        for uri in other:
            page = await Login(here, client["client_id"], redirect_uri=uri).begin()
            assert (page.status, f"not registered for this client: {why}." in page.text) == (400, True)
        refused = await here.post_json("/oauth/register", {"redirect_uris": other})
        assert (refused.status, refused.json["error"]) == (400, "invalid_redirect_uri")
        assert refused.json["error_description"] == f"none of the redirect_uris is accepted: {why}"
