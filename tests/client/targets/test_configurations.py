"""Servers out of configuration files and of hosts, as those write them."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest

from mcpd import Client
from mcpd.client.targets.configurations import MOST_BYTES, Variables, read_document, without_comments
from mcpd.client.targets.grammar import parse
from mcpd.client.targets.hosts import HOSTS, places
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import ConfigurationError

HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLINE_MCP_SETTINGS_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("mcpd.client.targets.configurations.system", lambda: "linux")
    return folder


def write(path: Path, text: str | object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------- files


def test_an_mcp_servers_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO", "me")
    write(
        tmp_path / "mcp.json",
        """\ufeff{
          // what hosts take besides JSON
          "mcpServers": {
            "files": {"command": "npx", "args": ["-y", "server://x", "${WHO}", 7], "cwd": "/srv",
                      "env": {"A": "${WHO:-b}", "N": 1, "T": true},},
            "api": {"type": "http", "url": "https://example.com/${NONE:-mcp}",
                    "headers": {"X": "${env:WHO}"}},
            "new": {"httpUrl": "https://example.com/new", "url": "https://example.com/sse"},
            "surf": {"serverUrl": "https://example.com/surf"},
            "socket": {"type": "ws", "url": "http://example.com/mcp"}, /* a comment */
          }
        }""",
    )
    assert parse("mcp.json:files") == CommandTarget(
        ("npx", "-y", "server://x", "me", "7"), {"A": "me", "N": "1", "T": "true"}, "/srv", "mcp.json:files"
    )
    assert parse("mcp.json:api") == UrlTarget("https://example.com/mcp", {"X": "me"}, name="mcp.json:api")
    assert parse("mcp.json:new") == UrlTarget("https://example.com/new", name="mcp.json:new")
    assert parse("mcp.json:surf") == UrlTarget("https://example.com/surf", name="mcp.json:surf")
    assert parse("mcp.json:socket") == UrlTarget("ws://example.com/mcp", name="mcp.json:socket")
    assert "me" not in repr(parse("mcp.json:files")).replace("name", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", r"line 1, column 2: "),
        ('{"mcpServers": {"a": nonsense}}', "line 1, column 22"),
        ("[]", "the file must contain an object, not a list"),
        ("{}", "no mcpServers, servers"),
        ('{"mcpServers": {}}', "contains no servers"),
        ('{"mcpServers": {"github": {"command": "a"}, "git": {"command": "b"}}}',
         r"did you mean mcp\.json:github\? Available: git, github"),
        ('{"mcpServers": {"githup": 3}}', "the entry must be an object"),
        ('{"mcpServers": {"githup": {"args": []}}}', "the entry has neither command nor url, only: args"),
        ('{"mcpServers": {"githup": {"command": "a", "args": "b"}}}', "args must be a list of strings"),
        ('{"mcpServers": {"githup": {"command": "a", "env": {"TOKEN": ["secret"]}}}}', r"env\.TOKEN must be a string"),
        ('{"mcpServers": {"githup": {"url": "ftp://secret@x"}}}', "githup: ftp://…x: unknown scheme; use"),
        ('{"servers": {"githup": {"command": "a", "args": ["${input:secret-id}"]}}}', "the host asks its user for"),
        ('{"mcpServers": {"githup": {"url": "https://x", "bearer_token_env_var": "NO_SUCH"}}}', "NO_SUCH, which"),
        ("[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_files_that_are_wrong(tmp_path: Path, text: str, said: str) -> None:
    write(tmp_path / "mcp.json", text)
    with pytest.raises(ConfigurationError, match=said) as raised:
        parse("mcp.json:githup")
    assert "\n" not in str(raised.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_bytes(b'{"mcpServers": "\xff"}')
    with pytest.raises(ConfigurationError, match="is not valid UTF-8: byte 16"):
        parse("mcp.json:a")
    with (tmp_path / "mcp.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(ConfigurationError, match="is too large for a configuration file: more than"):
        parse("mcp.json:a")


def test_a_name_that_is_near(tmp_path: Path) -> None:
    write(tmp_path / "mcp.json", {"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}})
    with pytest.raises(ConfigurationError, match=r"did you mean .*mcp\.json\?"):
        parse("mpc.json:a")
    with pytest.raises(
        ConfigurationError, match=r"mcp\.json: add the name of a server, for example mcp\.json:a; available: a, b"
    ):
        parse("mcp.json")


def test_comments_keep_lines_and_columns() -> None:
    text = '{"a": "// no comment, }", /* one\ntwo */ "b": [1,], // last\n}'
    bare = without_comments(text)
    assert json.loads(bare) == {"a": "// no comment, }", "b": [1]}
    assert len(bare) == len(text)
    assert [i for i, c in enumerate(bare) if c == "\n"] == [i for i, c in enumerate(text) if c == "\n"]


def test_other_formats(tmp_path: Path) -> None:
    write(tmp_path / "config.toml", '[mcp_servers.docs]\ncommand = "npx"\nargs = ["-y", "docs"]\n')
    assert parse("config.toml:docs") == CommandTarget(("npx", "-y", "docs"), name="config.toml:docs")
    write(tmp_path / "bad.toml", "\na = ?")
    with pytest.raises(ConfigurationError, match=r"bad\.toml: .*line 2"):
        parse("bad.toml:docs")


# ---------------------------------------------------------------------------------------- variables


@pytest.mark.parametrize(
    ("dialect", "text", "expanded"),
    [
        ("none", "${A} $A", "${A} $A"),
        ("braces", "${A} $A ${B:-x} ${E:-y} ${A:-z} ${B}", "a $A x y a ${B}"),
        ("shell", "${A} $A ${B}$B.", "a a ."),
        ("env", "${env:A} ${A} ${env:B}.", "a ${A} ."),
        ("file", "${env:A} ${A} ${B:-}", "a a "),
        ("curly", "{env:A} ${A} {env:B}", "a ${A} "),
        ("secrets", "${{ secrets.A }}", "a"),
    ],
)
def test_variables_as_each_host_has_them(dialect: str, text: str, expanded: str) -> None:
    assert Variables(dialect, {"A": "a", "E": ""}, "x:y").expand(text) == expanded


def test_variables_of_windows() -> None:
    assert Variables("shell", {"A": "a"}, "x:y", is_windows=True).expand("%A% %B% $A") == "a  a"


def test_one_that_is_not_set_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    variables = Variables("braces", {}, "mcp.json:api")
    with caplog.at_level(logging.WARNING, "mcpd.client"):
        variables.expand("${TOKEN} ${TOKEN}")
    assert [record.getMessage() for record in caplog.records] == [
        "mcp.json:api: the variable TOKEN is not set; ${TOKEN} is left unchanged"
    ]


# -------------------------------------------------------------------------------------------- hosts


def test_the_table_is_the_page(home: Path) -> None:
    assert len(HOSTS) == 28
    for host in HOSTS.values():
        assert any(map(host.files_on, ("macos", "linux", "windows"))), host.id
        for system in ("macos", "linux", "windows"):
            for path in places(
                host, {"HOME": "/h", "USERPROFILE": "/h", "LOCALAPPDATA": "/l", "APPDATA": "/r"}, system
            ):
                assert path.startswith(("/h/", "/l/", "/r/")), path
                assert "{" not in path


@pytest.mark.parametrize(
    ("host", "system", "environment", "path"),
    [
        ("claude-desktop", "macos", {"HOME": "/h"}, "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", {"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/x/Claude/claude_desktop_config.json"),
        ("claude-desktop", "windows", {"APPDATA": "/r"}, "/r/Claude/claude_desktop_config.json"),
        ("vscode", "linux", {"HOME": "/h"}, "/h/.config/Code/User/mcp.json"),
        ("vscode-insiders", "windows", {"USERPROFILE": "/u"}, "/u/AppData/Roaming/Code - Insiders/User/mcp.json"),
        ("codex", "linux", {"HOME": "/h", "CODEX_HOME": "/c"}, "/c/config.toml"),
        ("codex", "macos", {"HOME": "/h"}, "/h/.codex/config.toml"),
        ("cline", "linux", {"CLINE_MCP_SETTINGS_PATH": "/c/settings.json"}, "/c/settings.json"),
        ("goose", "windows", {"APPDATA": "/r"}, "/r/Block/goose/config/config.yaml"),
    ],
)
def test_places(host: str, system: str, environment: dict[str, str], path: str) -> None:
    assert path in places(HOSTS[host], environment, system)


def test_the_folder_of_a_windows_package_is_found(tmp_path: Path) -> None:
    file = write(tmp_path / "Packages/Claude_x1/LocalCache/Roaming/Claude/claude_desktop_config.json", {})
    found = places(HOSTS["claude-desktop"], {"LOCALAPPDATA": str(tmp_path), "APPDATA": "/r"}, "windows")
    assert found == [str(file), "/r/Claude/claude_desktop_config.json"]


def test_servers_of_hosts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t")
    write(
        home / ".claude.json",
        {
            "numStartups": 3,
            "mcpServers": {
                "hub": {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}
            },
        },
    )
    assert parse("claude-code:hub") == UrlTarget("https://h/mcp", {"Authorization": "Bearer t"}, name="claude-code:hub")

    write(home / ".config/Code/User/mcp.json", '{"servers": {"a": {"type": "stdio", "command": "${userHome}/a"}, }}')
    assert parse("vscode:a") == CommandTarget((f"{home}/a",), name="vscode:a")

    write(
        home / ".codex/config.toml",
        '[mcp_servers.b]\nurl = "https://b/mcp"\nbearer_token_env_var = "TOKEN"\nenv_http_headers = {X = "TOKEN"}\n',
    )
    assert parse("codex:b") == UrlTarget("https://b/mcp", {"X": "t", "Authorization": "Bearer t"}, name="codex:b")

    write(
        home / ".config/opencode/opencode.jsonc",
        '{"mcp": {"c": {"type": "local", "command": ["bun", "c"], "environment": {"T": "{env:TOKEN}"}}}}',
    )
    assert parse("opencode:c") == CommandTarget(("bun", "c"), {"T": "t"}, name="opencode:c")

    write(
        home / ".config/zed/settings.json",
        '{"theme": "x", // mine\n "context_servers": {"d": {"command": "d", "args": ["$TOKEN"]}}}',
    )
    assert parse("zed:d") == CommandTarget(("d", "$TOKEN"), name="zed:d")

    write(home / ".gemini/settings.json", {"mcpServers": {"e": {"httpUrl": "https://e/$TOKEN"}}})
    assert parse("gemini-cli:e") == UrlTarget("https://e/t", name="gemini-cli:e")

    write(
        home / ".config/github-copilot/intellij/mcp.json",
        {"servers": {"f": {"url": "https://f/mcp", "requestInit": {"headers": {"A": "b"}}}}},
    )
    assert parse("copilot-jetbrains:f") == UrlTarget("https://f/mcp", {"A": "b"}, name="copilot-jetbrains:f")


def test_hosts_with_yaml(home: Path) -> None:
    yaml = pytest.importorskip("yaml")
    write(
        home / ".config/goose/config.yaml",
        yaml.safe_dump({"extensions": {"g": {"type": "stdio", "cmd": "g", "args": [], "envs": {"A": "1"}}}}),
    )
    assert parse("goose:g") == CommandTarget(("g",), {"A": "1"}, name="goose:g")
    write(
        home / ".continue/config.yaml",
        yaml.safe_dump({"mcpServers": [{"name": "h", "type": "streamable-http", "url": "https://h/"}]}),
    )
    assert parse("continue:h") == UrlTarget("https://h/", name="continue:h")
    write(home / ".continue/config.yaml", "a: [")
    with pytest.raises(ConfigurationError, match=r"config\.yaml, line \d+, column \d+: "):
        parse("continue:h")


def test_yaml_says_what_to_install(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two libraries reads it: PyYAML, or what `mcpd install` needs."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = home / ".config/goose/config.yaml"
    write(path, "extensions: {g: {uri: 'http://h/'}}")
    assert parse("goose:g") == UrlTarget("http://h/", name="goose:g")
    write(path, "a: [")
    with pytest.raises(ConfigurationError, match=r"config\.yaml, line \d+, column \d+: "):
        parse("goose:g")
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    with pytest.raises(ConfigurationError, match=r"YAML needs a package: pip install 'mcpd-server\[install\]'"):
        parse("goose:g")


def test_what_belongs_to_one_folder_goes_first(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "project" / "src"
    below.mkdir(parents=True)
    write(home / ".claude.json", {
        "mcpServers": {"a": {"command": "all"}, "b": {"command": "b"}},
        "projects": {str(tmp_path / "project"): {"mcpServers": {"a": {"command": "mine"}}}},
    })  # fmt: skip
    assert parse("claude-code:a") == CommandTarget(("all",), name="claude-code:a")
    monkeypatch.chdir(below)
    assert parse("claude-code:a") == CommandTarget(("mine",), name="claude-code:a")
    assert parse("claude-code:b") == CommandTarget(("b",), name="claude-code:b")


def test_what_a_folder_brings_along_is_not_started_unasked(home: Path, tmp_path: Path) -> None:
    write(home / ".claude.json", {"mcpServers": {"mine": {"command": "mine"}}})
    write(tmp_path / ".mcp.json", {"mcpServers": {"theirs": {"command": "theirs"}}})
    with pytest.raises(ConfigurationError, match=r"if you trust \.mcp\.json, write \.mcp\.json:theirs"):
        parse("claude-code:theirs")
    assert parse(".mcp.json:theirs") == CommandTarget(("theirs",), name=".mcp.json:theirs")
    with pytest.raises(
        ConfigurationError, match="claude-code is a host: add the name of a server, for example claude-code:mine"
    ):
        parse("claude-code")


def test_variables_out_of_a_file(home: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "vars", "# none\nexport A='1 2'\nB = \"3\"\nC=\n")
    write(home / ".cursor/mcp.json", {"mcpServers": {"a": {"command": "a", "envFile": str(file), "env": {"B": "4"}}}})
    assert parse("cursor:a") == CommandTarget(("a",), {"A": "1 2", "B": "4", "C": ""}, name="cursor:a")


@pytest.mark.medium
async def test_a_client_of_a_host_s_server(home: Path, tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-m", "mcpd", "serve", "--stdio"], "env": {"PYTHONUTF8": "1"}}
    write(home / ".cursor/mcp.json", {"mcpServers": {"starter": entry}})
    before = (home / ".cursor/mcp.json").read_bytes()
    async with Client("cursor:starter") as client:
        assert await client.list_tools()
    assert (home / ".cursor/mcp.json").read_bytes() == before


def test_read_document_takes_an_empty_file(tmp_path: Path) -> None:
    assert read_document(str(write(tmp_path / "empty.json", " \n")), "json") == {}
