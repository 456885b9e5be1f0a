"""Texts as targets: every form there is, and what is said of a text that is none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from mcpd import Client
from mcpd.client.target import resolve
from mcpd.client.targets.grammar import from_words, parse
from mcpd.client.targets.named import CommandTarget, FileTarget, UrlTarget, command_of
from mcpd.errors import ConfigurationError

SERVER = """
import mcpd

server = mcpd.Server("there")


@server.tool
def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://example.com/mcp", "https://example.com/mcp"),
        ("HTTP://EXAMPLE.com:8080", "http://example.com:8080/"),
        ("ws://127.0.0.1:1/mcp?a=b", "ws://127.0.0.1:1/mcp?a=b"),
        ("wss://[::1]:9/x#part", "wss://[::1]:9/x"),
    ],
)
def test_urls(text: str, url: str) -> None:
    assert parse(text) == UrlTarget(url)


def test_a_password_goes_into_a_header_and_is_not_shown() -> None:
    found = parse("https://me:s%3Acret@example.com/mcp?key=hidden")
    assert isinstance(found, UrlTarget)
    assert found.url == "https://example.com/mcp?key=hidden"
    assert found.headers == {"Authorization": "Basic bWU6czpjcmV0"}
    assert str(found) == "https://example.com/mcp"
    assert repr(found) == "UrlTarget(https://example.com/mcp, headers: Authorization)"


@pytest.mark.parametrize(
    ("text", "url", "socket"),
    [
        ("unix:/run/a.sock", "http://localhost/mcp", "/run/a.sock"),
        ("unix:///run/a.sock#/x/mcp", "http://localhost/x/mcp", "/run/a.sock"),
        ("unix:/run/a.sock:/other", "http://localhost/other", "/run/a.sock"),
        ("ws+unix:/run/a.sock", "ws://localhost/mcp", "/run/a.sock"),
    ],
)
def test_unix_sockets(text: str, url: str, socket: str) -> None:
    assert parse(text) == UrlTarget(url, socket=socket)
    assert str(parse(text)) == f"unix:{socket}"


def test_files_folders_and_modules(here: Path) -> None:
    (here / "package").mkdir()
    (here / "package" / "__init__.py").touch()
    assert parse("server.py") == FileTarget(str(here / "server.py"))
    assert parse("server.py:make") == FileTarget(str(here / "server.py"), "make")
    assert parse("./package") == FileTarget(str(here / "package"))
    with pytest.raises(ConfigurationError, match=r"server: no .*; did you mean server\.py\?"):
        parse("server")  # as `mcpd serve` takes it
    assert parse("json") == FileTarget("json")
    assert parse("package.module:server") == FileTarget("package.module", "server")
    assert resolve(Path("server.py")) == command_of(FileTarget(str(here / "server.py")))


def test_a_file_is_served_by_a_child_of_this_python(here: Path) -> None:
    target = command_of(FileTarget(str(here / "server.py"), "server"))
    assert target.command == (sys.executable, "-m", "mcpd", "serve", "--stdio", f"{here / 'server.py'}:server")
    assert str(target) == "server.py:server"


def test_words_of_a_command_line() -> None:
    assert from_words(None, ["npx", "-y", "some server"]) == CommandTarget(("npx", "-y", "some server"))
    assert str(from_words(None, ["npx", "-y", "some server"])) == "npx -y 'some server'"
    starter = from_words(None)
    assert isinstance(starter, CommandTarget)
    assert starter.command[1:] == ("-m", "mcpd", "serve", "--stdio")
    with pytest.raises(ConfigurationError, match=r"server\.py or a command after --, not both"):
        from_words("server.py", ["npx"])


def test_a_file_wins_over_nothing_and_a_configuration_over_a_file(here: Path) -> None:
    (here / "mcp.json").write_text(json.dumps({"mcpServers": {"one": {"command": "run"}}}), encoding="utf-8")
    assert parse("mcp.json:one") == CommandTarget(("run",), name="mcp.json:one")
    assert parse("mcp.json") == parse("mcp.json:one")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the target is empty"),
        ("sever.py", r"sever\.py: no such file; did you mean server\.py\?"),
        ("nowhere/else.py", r"nowhere/else\.py: no such file in /"),
        ("/nowhere/at/all.py", r"/nowhere/at/all\.py: no such file$"),
        ("ftp://example.com", "ftp://example.com: unknown scheme; use http://"),
        ("https://me:secret@", r"^https://…: the host is missing"),
        ("http://example.com:port/", "is not a URL"),
        ("http://me:secret@\u2100.example/", "is not a URL$"),
        ("https:///mcp", "the host is missing; use https://HOST/mcp"),
        ("http://exa mple.com/", "a URL cannot contain spaces"),
        ("unix:", "the path of the socket is missing"),
        ("localhost:8080", "use the whole URL: http://localhost:8080/mcp"),
        ("127.0.0.1:8080/x", "use the whole URL: http://127.0.0.1:8080/x"),
        ("npx -y server", "to run a command, put its words after --"),
        ("cluade-code:github", "no such host; did you mean claude-code:github"),
        ("cursor", "cursor is a host with no servers in its configuration"),
        ("cursor:github", "Cursor has no configuration file at .*mcp.json"),
        ("librechat:clock", "LibreChat keeps its servers in the librechat.yaml .*: use librechat.yaml:clock$"),
        ("chatgpt:clock", "ChatGPT keeps its servers in its settings, not in a file: use the URL"),
        ("nomodule:server", "nomodule:server: no such file, folder or module$"),
        ("sever", r"sever: no such file, .*; did you mean server\.py\?"),
        ("jsn.decoder:server", r"; did you mean json\.decoder:server\?"),
        ("json.decodr:server", r"; did you mean json\.decoder:server\?"),
        ("mcp.json:github", r"mcp\.json: no such file"),
    ],
)
def test_what_names_nothing(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        parse(text)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_what_is_no_python_file(here: Path) -> None:
    (here / "server.js").touch()
    with pytest.raises(
        ConfigurationError, match=r"server\.js is not a Python file; to run it as a command, use .* -- server\.js"
    ):
        parse("server.js")


async def test_what_is_nothing_to_connect_to() -> None:
    with pytest.raises(ConfigurationError, match="42 is not a target"):
        await Client(42).open()  # type: ignore[arg-type]


@pytest.mark.medium
@pytest.mark.parametrize("target", ["server.py", Path("server.py"), "server:server", FileTarget("server.py")])
async def test_a_client_of_a_file(target: str | Path | FileTarget) -> None:
    async with Client(target) as client:
        assert await client.call("add", a=1, b=2) == 3
        assert client.server_info is not None
        assert client.server_info.name == "there"
