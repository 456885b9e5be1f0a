"""A server that people log in at, whole: from 401 to an answer, and what ends that; the settings and the commands."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from click.testing import CliRunner, Result
from conftest import Child
from support.http_peer import Answer, modern, serving
from support.login_stage import CALLBACK, PASSWORD, Browser, Login, Now, Stage, claims_of, stage, users_file

from mcpd import Client, Context, Principal, Server
from mcpd.auth.server.login_server import LoginServer
from mcpd.auth.server.settings import Settings, UserFile, add_user as write_user, development, read, read_users
from mcpd.auth.settings import read_tokens
from mcpd.cli.commands.login import auth_command
from mcpd.cli.listening import protection_of
from mcpd.client.auth import OAuth
from mcpd.errors import ConfigurationError
from mcpd.server.settings import Options
from mcpd.transports.challenge import parse
from mcpd.transports.guards import Access


@asynccontextmanager
async def protected(settings: Settings, **options: Any) -> AsyncIterator[Stage]:
    """A server with a tool that says who asks, protected by logins at itself."""
    now = Now()
    now.time = time.time()
    login = LoginServer(settings, clock=now, **options)
    server = Server("garden", auth=login)

    @server.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.user.subject} {ctx.user.issuer} {sorted(ctx.user.scopes)} {ctx.user.claims.get('name')}"

    try:
        async with serving(server, access=Access(authenticate=login)) as port:
            yield Stage(port, login.server, now, login.public_url)
    finally:
        login.close()


async def call(here: Stage, token: str | None = None) -> Answer:
    """Call the tool with a token."""
    headers: dict[str, str | None] = {} if token is None else {"Authorization": f"Bearer {token}"}
    return await here.port.ask(modern("tools/call", {"name": "who", "arguments": {}}, headers))


async def found(here: Stage) -> dict[str, Any]:
    """What a client finds that was refused: the authorization server's metadata."""
    refused = await call(here)
    assert refused.status == 401
    (challenge,) = parse([refused["www-authenticate"]])
    url = challenge.params["resource_metadata"]
    resource = (await here.ask("GET", url.removeprefix(here.issuer))).json
    assert resource["resource"] == here.resource
    (issuer,) = resource["authorization_servers"]
    metadata = (
        await here.ask("GET", f"{issuer.removeprefix(here.issuer)}/.well-known/oauth-authorization-server")
    ).json
    assert metadata["issuer"] == issuer
    return dict(metadata)


async def test_from_401_to_an_answer(tmp_path: Path) -> None:
    """AUTH-120, AUTH-130: three documents name one issuer in one spelling; the token is taken for what it says."""
    settings = Settings(users=UserFile(file=str(users_file(tmp_path))))
    async with protected(settings, scopes=["tools.use"]) as here:
        metadata = await found(here)
        assert metadata["scopes_supported"] == ["tools.use", "offline_access"]
        login = await here.login()
        tokens = await login.tokens()
        answer = await call(here, tokens["access_token"])
        text = answer.json["result"]["content"][0]["text"]
        assert text == f"ana {here.issuer} ['tools.use'] ana"
        renewed = (await login.refresh(tokens["refresh_token"])).json
        assert (await call(here, renewed["access_token"])).status == 200


@pytest.mark.parametrize(
    ("host", "redirect", "dpop"),
    [
        ("localhost", "http://localhost:0/callback", False),
        ("localhost", "http://127.0.0.1:0/callback", True),
        ("127.0.0.1", "http://localhost:0/callback", True),
        ("127.0.0.1", "http://127.0.0.1:0/callback", False),
    ],
)
async def test_a_client_logs_in_by_each_name_of_this_machine(host: str, redirect: str, dpop: bool) -> None:
    """The login, the call, and the step to more scopes, all by the name in the client's URL."""
    login = LoginServer("dev", dpop="accept", scopes=["garden.read"])
    server = Server("garden", auth=login)

    @server.tool(scopes=["garden.write"])
    async def dig(ctx: Context) -> str:
        return " ".join(sorted(ctx.user.scopes))

    async with serving(server, access=Access(authenticate=login)) as port:
        here = Stage(port, login.server, Now(), login.public_url)
        browser = Browser(here)

        async def visit(url: str) -> None:
            await browser.get(url.removeprefix(here.issuer))
            answer = await browser.post("/oauth/consent", {**browser.form, "choice": "allow"})
            async with aiohttp.ClientSession() as session, session.get(answer["location"]) as page:
                assert page.status == 200

        oauth = OAuth(store="memory", open_url=visit, redirect=redirect, dpop=dpop)
        async with asyncio.timeout(60), Client(f"http://{host}:{port.number}/mcp", auth=oauth) as client:
            assert [tool.name for tool in await client.list_tools()] == ["dig"]
            assert await client.call("dig") == "garden.read garden.write"
    login.close()


async def test_what_ends_it(tmp_path: Path) -> None:
    """AUTH-124, AUTH-131: what was revoked is over at once, though its tokens were taken a moment ago."""
    async with protected(development()) as here:
        form = [("Content-Type", "application/x-www-form-urlencoded")]
        login = await here.login()
        for way in ("revoke", "code", "refresh"):
            await login.begin()
            code = (await login.browser.choose())["code"]
            tokens = (await login.exchange(code)).json
            assert (await call(here, tokens["access_token"])).status == 200
            if way == "revoke":
                body = urlencode({"token": tokens["refresh_token"], "client_id": login.client}).encode()
                await here.ask("POST", "/oauth/revoke", form, body)
            elif way == "code":
                assert (await login.exchange(code)).status == 400
            else:
                await login.refresh(tokens["refresh_token"])
                here.now.time += 46
                assert (await login.refresh(tokens["refresh_token"])).status == 400
            refused = await call(here, tokens["access_token"])
            assert (refused.status, refused.json["error"]) == (401, "invalid_token")
            assert "the token is revoked" in refused["www-authenticate"]


async def test_tokens_of_others(tmp_path: Path) -> None:
    """Another server's, though it has the same users; one that was made for another resource; what is no token."""
    async with protected(development()) as here, protected(development()) as other:
        login = await other.login()
        await login.begin()
        token = (await login.exchange((await login.browser.choose())["code"])).json["access_token"]
        assert (await call(other, token)).status == 200
        assert (await call(here, token)).status == 401

        keys, core = here.server.core.keys, here.server.core
        claims: dict[str, object] = {
            "iss": core.issuer, "sub": "x", "aud": core.resource, "exp": time.time() + 60, "client_id": "c",
            "scope": "",
        }  # fmt: skip
        for changes, typ in (
            ({}, "at+jwt"),
            ({"grant": "x"}, "at+jwt"),
            ({"aud": "https://other.example/mcp"}, "at+jwt"),
            ({}, "JWT"),
        ):
            refused = await call(here, keys.sign({**claims, **changes}, typ))
            assert refused.status == 401, changes


async def test_paths_are_json_where_nothing_is(tmp_path: Path) -> None:
    async with protected(development()) as here:
        for path in ("/.well-known/openid-configuration", "/register", "/oauth/none"):
            answer = await here.ask("GET", path)
            assert (answer.status, isinstance(answer.json["error"], str)) == (404, True)


def test_development_is_for_this_machine() -> None:
    login = LoginServer("dev")
    with pytest.raises(ConfigurationError, match="for this machine only"):
        login.locate("https://tools.example/mcp", is_public=True, is_guess=False)
    login.close()


def test_a_url_that_is_known_beforehand(tmp_path: Path) -> None:
    settings = Settings(users=UserFile(file=str(users_file(tmp_path))))
    login = LoginServer(settings, public_url="https://tools.example/mcp")
    app = Server("garden").asgi_app(auth=login, allowed_hosts=["tools.example"])
    assert all(app.routes.find(path) for path in ("/oauth/token", "/oauth/consent", "/oauth/sign-in/x"))
    assert login.authorization_servers == ("https://tools.example",)
    login.close()


# ------------------------------------------------------------------------------------------- the file


def written(folder: Path, text: str) -> str:
    path = folder / "auth.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_of_settings(tmp_path: Path) -> None:
    """Paths are those from the file on; without `state` it is beside it."""
    settings = read(
        written(
            tmp_path,
            'trusted-clients = ["cli"]\n[scopes]\n"a.b" = "Do a"\n[clients.cli]\nredirect-uris = ["http://127.0.0.1/cb"]\n'
            '[sign-in.users]\nfile = "users.toml"\n'
            '[sign-in.google]\nissuer = "https://accounts.google.com"\nclient-id = "x"\nallow = ["*@corp.example"]\n'
            'client-secret-file = "google.secret"\nkeep-tokens = true\n',
        )
    )
    assert settings.state == str(tmp_path / "auth-state.sqlite")
    assert settings.users is not None
    assert settings.users.file == str(tmp_path / "users.toml")
    google = settings.providers["google"]
    assert (google.client_secret_file, google.keep_tokens) == (str(tmp_path / "google.secret"), True)
    assert settings.clients["cli"].redirect_uris == ("http://127.0.0.1/cb",)
    assert not settings.is_development


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "nobody can sign in"),
        ("state = 1", "Expected `str`"),
        ("nonsense = 1", "unknown field `nonsense`"),
        ("is-development = true", "unknown field `is-development`"),
        ("[sign-in.users]\nfile = 1", "Expected `str`"),
        ("[sign-in.users]\n", "missing required field `file`"),
        ("[sign-in.Corp]\nclient-id = 'x'", "lower-case letters"),
        ("[sign-in.corp]\nclient-id = 'x'\nallow = ['a@b']", "issuer is missing"),
        ("[sign-in.corp]\nclient-id = 'x'\nissuer = 'http://corp.example'\nallow = ['a@b']", "begin with https"),
        ("[sign-in.corp]\nclient-id = 'x'\nissuer = 'https://corp.example'", "nobody could sign in"),
        ("[sign-in.corp]\nissuer = 'https://corp.example'\nallow = ['a@b']", "missing required field `client-id`"),
        ("token-seconds = 1\n[sign-in.users]\nfile = 'u'", "60 to 3600"),
        ("idle-seconds = 1\n[sign-in.users]\nfile = 'u'", "at least token-seconds"),
        ("[scopes]\n'a b' = 'x'\n[sign-in.users]\nfile = 'u'", "without spaces"),
        ("registration = 'maybe'\n[sign-in.users]\nfile = 'u'", "Invalid enum value"),
        ("[", "auth.toml"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(written(tmp_path, text))


def test_files_that_are_not_there(tmp_path: Path) -> None:
    """Each is named, with what to do."""
    with pytest.raises(ConfigurationError, match="or use dev"):
        read(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigurationError, match="mcpd auth add-user NAME"):
        LoginServer(written(tmp_path, "[sign-in.users]\nfile = 'none.toml'"))
    corp = "[sign-in.corp]\nclient-id = 'x'\nissuer = 'https://a.example'\nallow = ['a@b']\nclient-secret-file = 'none'"
    with pytest.raises(ConfigurationError, match="write the secret to that file"):
        LoginServer(written(tmp_path, corp))
    (tmp_path / "none").write_text("")
    with pytest.raises(ConfigurationError, match="is empty"):
        LoginServer(written(tmp_path, corp))
    users_file(tmp_path)
    listed = "[clients.cli]\nredirect-uris = ['app:/x']\n[sign-in.users]\nfile = 'users.toml'"
    with pytest.raises(ConfigurationError, match=r"\[clients.cli\]: app:/x"):
        LoginServer(written(tmp_path, listed))


def test_a_state_that_others_can_read(tmp_path: Path) -> None:
    """AUTH-151."""
    users_file(tmp_path)
    state = tmp_path / "auth-state.sqlite"
    state.touch()
    state.chmod(0o644)
    with pytest.raises(ConfigurationError, match="run: chmod 600"):
        LoginServer(written(tmp_path, "[sign-in.users]\nfile = 'users.toml'"))
    state.chmod(0o600)
    state.write_bytes(b"no database at all, but a text that is longer than a header" * 100)
    with pytest.raises(ConfigurationError, match="auth-state.sqlite"):
        LoginServer(written(tmp_path, "[sign-in.users]\nfile = 'users.toml'"))
    gc.collect()  # Python 3.13 and later complain of a database that was left open


@pytest.mark.parametrize(
    ("text", "problem"),
    [("[", "users.toml"), ("[ana]\n", "password"), ('["a:b"]\npassword = "x"', "is not a user name")],
)
def test_mistakes_in_the_users(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=problem):
        read_users(str(path))


# ------------------------------------------------------------------------------------------- commands


def add_user(*words: str, password: str = PASSWORD) -> Result:
    return CliRunner().invoke(auth_command, ["add-user", *words], input=f"{password}\n")


def test_files_that_are_too_large_are_not_half_read(tmp_path: Path) -> None:
    """Half of the users would be written back as all of them."""
    path = tmp_path / "long.toml"
    path.write_text("# padding\n" * 120_000, encoding="utf-8")
    path.chmod(0o600)
    for reads in (read, read_users, lambda path: write_user(path, "ada", "a long password"), read_tokens):
        with pytest.raises(ConfigurationError, match="is larger than"):
            reads(str(path))
    assert path.stat().st_size == 1_200_000


async def test_users_are_added_by_a_command(tmp_path: Path, child: Child) -> None:
    """AUTH-147: hashed; for nobody else to read; who is there keeps what is not said again."""
    done = subprocess.run(
        child.mcpd("auth", "add-user", "ana", "--scope", "a", "--scope", "b"), cwd=tmp_path, env=child.env,
        input=f"{PASSWORD}\n", capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "ana may log in (users.toml)\n")
    path = tmp_path / "users.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    assert PASSWORD not in path.read_text()
    first = read_users(str(path))["ana"]
    assert first.scopes == ("a", "b")

    path.write_text(path.read_text() + 'name = "Ana \\"A\\" B"\n')
    assert "ana has a new password" in add_user("ana", "--file", str(path)).output
    second = read_users(str(path))["ana"]
    assert (second.scopes, second.name) == (("a", "b"), 'Ana "A" B')
    assert second.password != first.password
    for words, password, problem in (
        (("ana",), "short", "at least 8 characters"),
        (("a b",), PASSWORD, "is not a user name"),
        (("ana", "--file", str(tmp_path / "none" / "users.toml")), PASSWORD, "No such file"),
    ):
        assert problem in str(add_user(*words, password=password).exception)
    async with stage(Settings(users=UserFile(file=str(path)), scopes={"a": "A"})) as here:
        login = await here.login(scope="a")
        assert (await login.tokens())["scope"] == "a"


async def test_it_is_served_by_a_command(tmp_path: Path, child: Child) -> None:
    """With the file, from a folder of its own; restarted, it knows its clients; nobody learns a secret from its log."""
    users_file(tmp_path)
    written(tmp_path, "[sign-in.users]\nfile = 'users.toml'\n")
    (tmp_path / "server.py").write_text("from mcpd import Server\nserver = Server('garden')\n", encoding="utf-8")
    client = ""
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            *child.mcpd("serve", "--http", "127.0.0.1:0", "--auth-server", "auth.toml", "server.py"),
            cwd=tmp_path, env=child.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            async with asyncio.timeout(60):
                while b"listening on" not in (line := await process.stderr.readline()):
                    assert line, "it ended"
            url = line.split()[3].decode()
            here = _Elsewhere(url)
            if not client:
                client = (await here.register())["client_id"]
            page = await Login(here, client, redirect_uri=CALLBACK).begin()
            assert (page.status, "Log in to garden" in page.text) == (200, True)
            assert (await call(here)).status == 401
        finally:
            process.terminate()
            rest = (await process.communicate())[1]
        assert process.returncode == 0
        assert b"Traceback" not in rest
    assert (tmp_path / "auth-state.sqlite").stat().st_mode & 0o777 == 0o600


class _Elsewhere(Stage):
    """A server in another process."""

    def __init__(self, url: str) -> None:
        self.resource, self.issuer = url, url.removesuffix("/mcp")
        self.port: Any = self
        self.number = int(self.issuer.rpartition(":")[2])

    async def connect(self) -> Any:
        from support.http_peer import Peer

        return Peer(*await asyncio.open_connection("127.0.0.1", self.number))

    async def ask(self, *words: Any) -> Answer:
        if len(words) > 1:
            return await super().ask(*words)
        peer = await self.connect()
        try:
            answer: Answer = await peer.ask(words[0])
            return answer
        finally:
            await peer.aclose()


def login_server(file: str, server: Server, options: Options) -> LoginServer:
    options.auth_server = file
    found = protection_of(options, server)
    assert isinstance(found, LoginServer)
    return found


def test_what_cannot_be_served(tmp_path: Path, child: Child) -> None:
    """AUTH-122; each is one line that says what to do."""
    users_file(tmp_path)
    file = written(tmp_path, "[sign-in.users]\nfile = 'users.toml'\n")
    server, guarded = Server("garden"), Server("garden", authenticate=lambda _: Principal("x"))
    for said, options, which, problem in (
        ("dev", Options(http="0.0.0.0:0"), server, "serves this machine only"),
        ("dev", Options(http="0.0.0.0:0", insecure=True), server, "serves this machine only"),
        ("dev", Options(http=":0", ws="0.0.0.0:0"), server, "serves this machine only"),
        ("none.toml", Options(http=":0"), server, "name a settings file"),
        (file, Options(http=":0", token_file="t0ken"), server, "--token-file exclude each other"),
        (file, Options(http=":0", issuer=("https://idp.example",)), server, "--issuer exclude each other"),
        (
            file,
            Options(http=":0", auth_table={"tokens_file": "x"}),
            server,
            r"tokens_file of \[auth\] exclude each other",
        ),
        (file, Options(http=":0"), guarded, "has its own authorization"),
        (file, Options(http=":0", public_url="tools.example"), server, "write the full URL"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            login_server(said, which, options)

    table = {"scopes": ("a", "b"), "implies": {"c": ("a",)}, "public_url": "https://tools.example/mcp"}
    login = login_server(file, server, Options(http="0.0.0.0:0", scope=("b",), auth_table=table))
    assert (login.scopes, login.public_url) == (("b",), "https://tools.example/mcp")
    login.close()
    for url, problem in (("", "--public-url"), ("http://tools.example/mcp", "https://")):
        login = LoginServer(file)
        with pytest.raises(ConfigurationError, match=problem):
            login.locate(url or "http://0.0.0.0:1/mcp", is_public=True, is_guess=not url)
        login.close()

    done = subprocess.run(
        child.mcpd("serve", "--http", "0.0.0.0:0", "--auth-server", "auth.toml"), cwd=tmp_path, env=child.env,
        capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "--public-url https://example.com/mcp" in done.stderr


def test_nothing_of_it_is_imported_when_it_is_off(child: Child) -> None:
    """Neither the library nor a server without it loads joserfc, cryptography or the authorization server."""
    code = (
        "import sys, mcpd\nfrom mcpd.cli.launch import launch\nfrom mcpd.server.http import HttpApp\n"
        "mcpd.Server('x').asgi_app()\n"
        "found = [name for name in sys.modules if name.startswith(('joserfc', 'cryptography', 'mcpd.auth.server'))]\n"
        "print(found)"
    )
    env = {name: value for name, value in child.env.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


async def test_the_page_for_a_team(tmp_path: Path, repository: Path) -> None:
    """What docs/login-server.md writes is what is served: its files, and its providers' tables."""
    text = (repository / "docs" / "login-server.md").read_text(encoding="utf-8")
    team, providers = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    users_file(tmp_path, ana=None, bob=["garden.read"])
    settings = read(written(tmp_path, team))
    async with protected(settings) as here:
        login = await here.login(scope="garden.read garden.water")
        await login.begin()
        page = await login.browser.sign_in("bob")
        assert "<li>Look at the beds</li></ul>" in page.text
        tokens = (await login.exchange((await login.browser.choose())["code"])).json
        assert (await call(here, tokens["access_token"])).json["result"]["content"][0]["text"].startswith("bob ")
    for name in ("google.secret", "github.secret"):
        (tmp_path / name).write_text("s3cret")
    login_server("dev", Server("garden"), Options(http=":8080")).close()
    login = LoginServer(written(tmp_path, providers), public_url="https://garden.example.com/mcp")
    google = login.server.core.upstreams["google"]
    assert f"{login.server.core.issuer}/oauth/sign-in/google/callback" in text
    assert (google.label, "github" in login.server.core.upstreams) == ("Google", True)
    login.close()


def test_secrets_that_others_can_read_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """AUTH-147, AUTH-214: files that come from elsewhere have modes that nobody chose; what is in them is not shown."""
    users = users_file(tmp_path)
    (tmp_path / "google.secret").write_text("secret-of-google", encoding="utf-8")
    table = "[sign-in.google]\nclient-id = 'x'\nissuer = 'https://a.example'\nallow = ['a@b']\n"
    (tmp_path / "auth.toml").write_text(
        f"state = ''\n[sign-in.users]\nfile = 'users.toml'\n{table}client-secret-file = 'google.secret'\n",
        encoding="utf-8",
    )
    for mode, told in ((0o644, ["google.secret", "users.toml"]), (0o600, [])):
        caplog.clear()
        for path in (users, tmp_path / "google.secret"):
            path.chmod(mode)
        LoginServer(str(tmp_path / "auth.toml")).close()
        said = [record.getMessage() for record in caplog.records if "other users" in record.getMessage()]
        assert sorted(line.split(" holds secrets")[0].rpartition("/")[2] for line in said) == told
        assert all("chmod 600" in line for line in said)
        assert "secret-of-google" not in caplog.text


async def test_below_a_path_all_of_it_is_there(tmp_path: Path) -> None:
    """AUTH-120, AUTH-164: the issuer has the path, its metadata are where clients look, also inside of a mount."""
    public = "https://tools.example/a/b/mcp"
    async with stage(users_file(tmp_path), public_url=public) as here:
        assert here.issuer == "https://tools.example/a/b"
        login = await here.login()
        page = await login.begin()
        assert 'action="/a/b/oauth/sign-in"' in page.text
        claims = claims_of((await login.tokens())["access_token"])
        assert (claims["iss"], claims["aud"]) == (here.issuer, public)

        for path in ("/.well-known/oauth-authorization-server/a/b", "/.well-known/openid-configuration"):
            document = (await here.ask("GET", path)).json
            assert document["issuer"] == here.issuer
            assert document["token_endpoint"] == f"{here.issuer}/oauth/token"
        assert document["subject_types_supported"] == ["public"]
        for path in ("a", "a/b/c", "a/b/c/d/e", "b/a"):
            assert (await here.ask("GET", f"/.well-known/oauth-authorization-server/{path}")).status == 404
