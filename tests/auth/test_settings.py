"""Authorization by flags and by `[auth]` of mcpd.toml, and what is refused of it before anything is served."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Child

from mcpd import Principal, Server
from mcpd.auth.issuers import Jwt
from mcpd.auth.settings import StaticTokens
from mcpd.cli.listening import protection_of as protection_of_options, settings_of_table
from mcpd.errors import ConfigurationError
from mcpd.server.listening import host_of, listeners_of
from mcpd.server.serving import serve
from mcpd.server.settings import Options, Settings
from mcpd.sources.configuration import read
from mcpd.sources.lookup import ServerFolder

PUBLIC = "https://tools.example.com/mcp"
ISSUER = "https://idp.example.com"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    file.write_text('[ada]\ntoken = "0123456789abcdef"\nscopes = ["use"]\n')
    file.chmod(0o600)
    return file


def written(tmp_path: Path, text: str) -> dict[str, Any]:
    """What an `[auth]` of a file says, as settings."""
    path = tmp_path / "mcpd.toml"
    path.write_text(f"[auth]\n{text}")
    found = read(str(path)).auth
    assert found is not None
    return settings_of_table(found, ServerFolder(str(tmp_path), str(path)))


def protection_of(options: Options) -> Any:
    return protection_of_options(options, Server("garden"))


def test_flags_make_a_jwt() -> None:
    auth = protection_of(Options(issuer=(ISSUER,), audience=("tools",), scope=("use",), public_url=PUBLIC))
    assert isinstance(auth, Jwt)
    assert (auth.authorization_servers, auth.scopes, auth.public_url) == ((ISSUER,), ("use",), PUBLIC)
    assert auth._sources[ISSUER].checks.audience == {"tools"}
    assert host_of(auth) == ("tools.example.com",)
    assert protection_of(Options()) is None
    assert host_of(None) == ()


def test_a_file_says_the_same_and_more(tmp_path: Path, tokens: Path) -> None:
    table = written(
        tmp_path,
        f"""
        public-url = "{PUBLIC}"
        issuer = ["{ISSUER}", "https://other.example"]
        audience = ["a", "b"]
        scopes = ["use"]
        skew = 5
        strict = true
        algorithms = ["ES256"]
        implies.files = ["files.read"]
        expect.azp = "web"
        resource-name = "Tools"
        """,
    )
    auth = protection_of(Options(auth_table=table))
    assert isinstance(auth, Jwt)
    assert auth.authorization_servers == (ISSUER, "https://other.example")
    assert auth._sources[ISSUER].checks.expect == {"azp": {"web"}}
    assert json.loads(auth.metadata())["resource_name"] == "Tools"
    assert auth.hierarchy.expanded(["files"]) == {"files", "files.read"}

    # Flags go before it.
    auth = protection_of(Options(auth_table=table, scope=("admin",), issuer=(ISSUER,)))
    assert isinstance(auth, Jwt)
    assert (auth.scopes, auth.authorization_servers) == (("admin",), (ISSUER,))
    assert isinstance(protection_of(Options(auth_table=table, tokens_file=str(tokens))), StaticTokens)


def test_paths_are_those_from_the_file_on(tmp_path: Path, tokens: Path) -> None:
    table = written(tmp_path, 'tokens-file = "tokens.toml"')
    auth = protection_of(Options(auth_table=table))
    assert isinstance(auth, StaticTokens)
    assert isinstance(protection_of(Options(auth_table=table, issuer=(ISSUER,))), Jwt)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"audience": ("a",)}, "an issuer is missing"),
        ({"auth_table": {"issuer": ISSUER, "tokens_file": "x"}}, "cannot be combined"),
        ({"issuer": (ISSUER,), "token_file": "x"}, "one token for all"),
        ({"issuer": ("idp",)}, "write its URL"),
        ({"issuer": (ISSUER,), "scope": ("offline_access",)}, "offline_access"),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        protection_of(Options(**options))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('issuers = "x"', "did you mean issuer"),
        ('issuer = "idp"', "auth.issuer"),
        ('scopes = ["a b"]', "auth.scopes"),
        ("skew = 301", "auth.skew"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        written(tmp_path, text)


@pytest.mark.parametrize("transport", ["http", "ws"])
async def test_beyond_this_machine_it_needs_an_https_url(transport: str) -> None:
    """AUTH-007, AUTH-025: with an issuer; tokens that were handed out need none."""
    for address in ("0.0.0.0:0", "[::]:0"):
        for url, said in (("", "--public-url"), ("http://tools.example.com/mcp", "https")):
            settings = Settings(**{transport: address}, auth=Jwt(ISSUER, public_url=url))
            with pytest.raises(ConfigurationError, match=said):
                await asyncio.wait_for(serve(Server("t"), settings), 10)
    static = StaticTokens({"0123456789abcdef": Principal("ada")})
    for auth in (Jwt(ISSUER, public_url=PUBLIC), static):
        listening = asyncio.Event()
        settings = Settings(**{transport: "0.0.0.0:0"}, auth=auth, announce=lambda url, event=listening: event.set())
        task = asyncio.ensure_future(serve(Server("t"), settings))
        await asyncio.wait_for(listening.wait(), 10)
        task.cancel()
        await asyncio.wait([task])


def test_an_unix_socket_has_no_url(tmp_path: Path) -> None:
    (listener,) = listeners_of(Server("t"), Settings(http=f"unix:{tmp_path}/s", auth=Jwt(ISSUER)))
    with pytest.raises(ConfigurationError, match="--public-url"):
        asyncio.run(listener.start(lambda channel: None))  # type: ignore[arg-type, return-value]


async def test_the_command_asks_for_tokens(tokens: Path, child: Child, tmp_path: Path) -> None:
    """`mcpd serve --tokens-file`, as a process: nobody without a token, by whatever is said at the start."""
    (tmp_path / "server.py").write_text(
        "from mcpd import Context, Server\n"
        "server = Server('t')\n"
        "@server.tool(scopes=['use'])\n"
        "async def who(ctx: Context) -> str:\n"
        "    return ctx.user.subject\n"
    )
    process = await asyncio.create_subprocess_exec(
        *child.mcpd("serve", "--http", "127.0.0.1:0", "--tokens-file", str(tokens), "server.py"),
        cwd=tmp_path, env=child.env, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            line = (await process.stderr.readline()).decode()
            while "listening on" not in line:
                assert line, "it ended"
                line = (await process.stderr.readline()).decode()
        port = int(line.split("127.0.0.1:")[1].split("/")[0])
        for header, status in (("", 401), ("Authorization: Bearer 0123456789abcdef\r\n", 200)):
            assert await _ask(port, header) == status
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), 60)


async def _ask(port: int, header: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who", "arguments": {}}})
    accept = "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
    head = f"POST /mcp HTTP/1.1\r\nHost: localhost\r\n{header}{accept}Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body.encode())
    status = int((await asyncio.wait_for(reader.readline(), 60)).split()[1])
    writer.close()
    return status


def test_without_http_none_of_it_is_loaded(child: Child, tokens: Path) -> None:
    """AUTH-022: on stdio there is no OAuth, and nothing of it is read."""
    hello = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    done = subprocess.run(
        child.mcpd("serve", "--stdio", "--tokens-file", os.devnull),
        input=hello, env=child.env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "has no effect" in done.stderr
    assert '"id":1' in done.stdout
