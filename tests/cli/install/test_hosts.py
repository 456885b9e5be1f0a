"""Every host in every system's layout: where its file is, how an entry looks in it, and that nothing else changes."""

from __future__ import annotations

import json
import os
import tomllib
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

from mcpd.cli.install.entry import Entry, shaped
from mcpd.cli.install.files import Journal, read
from mcpd.cli.install.formats import format_named
from mcpd.cli.install.hosts import file_of, find_host, found_hosts
from mcpd.cli.install.operations import apply, entries_of, plan_install, plan_uninstall
from mcpd.client.targets.hosts import HOSTS, Host
from mcpd.errors import ConfigurationError

FIXTURES = Path(__file__).parent / "fixtures"
INSTALLED = Path(__file__).parent / "installed.diff"
SYSTEMS = ("macos", "linux", "windows")

SUPPORT, ROAMING, LOCAL = "Library/Application Support", "AppData/Roaming", "AppData/Local"
DESKTOP = "Claude/claude_desktop_config.json"
MSIX = f"{LOCAL}/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/{DESKTOP}"
CLINE = "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
ROO = "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"

# As ../shared/design/hosts.md has them, below the home folder: macOS, Linux, Windows; one for all three.
PLACES: dict[str, tuple[str, ...]] = {
    "claude-desktop": (
        f"{SUPPORT}/Claude/claude_desktop_config.json",
        ".config/Claude/claude_desktop_config.json",
        MSIX,
    ),
    "claude-code": (".claude.json",),
    "cursor": (".cursor/mcp.json",),
    "vscode": (f"{SUPPORT}/Code/User/mcp.json", ".config/Code/User/mcp.json", f"{ROAMING}/Code/User/mcp.json"),
    "vscode-insiders": tuple(f"{place}/Code - Insiders/User/mcp.json" for place in (SUPPORT, ".config", ROAMING)),
    "codex": (".codex/config.toml",),
    "gemini-cli": (".gemini/settings.json",),
    "antigravity": (".gemini/antigravity/mcp_config.json",),
    "goose": (".config/goose/config.yaml", ".config/goose/config.yaml", f"{ROAMING}/Block/goose/config/config.yaml"),
    "zed": (".config/zed/settings.json", ".config/zed/settings.json", f"{ROAMING}/Zed/settings.json"),
    "devin": (".config/devin/mcp_config.json", ".config/devin/mcp_config.json", f"{ROAMING}/devin/mcp_config.json"),
    "windsurf": (".codeium/windsurf/mcp_config.json",),
    "cline": (".cline/data/settings/cline_mcp_settings.json",),
    "cline-legacy": (f"{SUPPORT}/{CLINE}", f".config/{CLINE}", f"{ROAMING}/{CLINE}"),
    "copilot-cli": (".copilot/mcp-config.json",),
    "visual-studio": ("", "", ".mcp.json"),
    "copilot-jetbrains": (
        f"{SUPPORT}/github-copilot/intellij/mcp.json",
        ".config/github-copilot/intellij/mcp.json",
        f"{LOCAL}/github-copilot/intellij/mcp.json",
    ),
    "junie": (".junie/mcp/mcp.json",),
    "opencode": (".config/opencode/opencode.json",),
    "kilo": (".config/kilo/kilo.jsonc",),
    "roo": (f"{SUPPORT}/{ROO}", f".config/{ROO}", f"{ROAMING}/{ROO}"),
    "kiro": (".kiro/settings/mcp.json",),
    "lm-studio": (".lmstudio/mcp.json",),
    "continue": (".continue/config.yaml",),
    "amazon-q": (".aws/amazonq/mcp.json",),
    "qwen-code": (".qwen/settings.json",),
    "xcode-claude": ("Library/Developer/Xcode/CodingAssistant/ClaudeAgentConfig/.claude.json", "", ""),
    "xcode-codex": ("Library/Developer/Xcode/CodingAssistant/codex/config.toml", "", ""),
}

COMMAND = Entry(command="/opt/mcpd/bin/mcpd", args=("serve", "--stdio", "/home/someone/my server.py"), env={"BED": "1"})
URL = Entry(url="http://127.0.0.1:8080/mcp", headers={"X-Bed": "1"}, transport="http")
PLAIN = {"command": COMMAND.command, "args": [*COMMAND.args], "env": {"BED": "1"}}
HEADERS = {"headers": {"X-Bed": "1"}}

# How an entry looks, by host: for the command, and for the URL (None: it takes none).
SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "claude-desktop": (PLAIN, None),
    "claude-code": ({"type": "stdio", **PLAIN}, {"type": "http", "url": URL.url, **HEADERS}),
    "cursor": (PLAIN, {"url": URL.url, **HEADERS}),
    "vscode": ({"type": "stdio", **PLAIN}, {"type": "http", "url": URL.url, **HEADERS}),
    "codex": (PLAIN, {"url": URL.url, "http_headers": {"X-Bed": "1"}}),
    "gemini-cli": (PLAIN, {"httpUrl": URL.url, **HEADERS}),
    "antigravity": (PLAIN, {"serverUrl": URL.url, **HEADERS}),
    "goose": (
        {"type": "stdio", "name": "new", "cmd": COMMAND.command, "args": [*COMMAND.args], "envs": {"BED": "1"},
         "enabled": True, "timeout": 300},
        {"type": "streamable_http", "name": "new", "uri": URL.url, **HEADERS, "enabled": True, "timeout": 300},
    ),
    "zed": (PLAIN, {"url": URL.url, **HEADERS}),
    "devin": (PLAIN, {"url": URL.url, "transport": "http", **HEADERS}),
    "windsurf": (PLAIN, {"serverUrl": URL.url, **HEADERS}),
    "cline": (PLAIN, {"type": "streamableHttp", "url": URL.url, **HEADERS}),
    "copilot-cli": (
        {"type": "local", **PLAIN, "tools": ["*"]}, {"type": "http", "url": URL.url, **HEADERS, "tools": ["*"]},
    ),
    "copilot-jetbrains": (PLAIN, {"url": URL.url, "requestInit": HEADERS}),
    "opencode": (
        {"type": "local", "command": [COMMAND.command, *COMMAND.args], "environment": {"BED": "1"}, "enabled": True},
        {"type": "remote", "url": URL.url, **HEADERS, "enabled": True},
    ),
    "roo": (PLAIN, {"type": "streamable-http", "url": URL.url, **HEADERS}),
    "continue": (
        {"name": "new", **PLAIN}, {"name": "new", "type": "streamable-http", "url": URL.url, "requestOptions": HEADERS},
    ),
}  # fmt: skip
LIKE = {
    "vscode-insiders": "vscode", "cline-legacy": "cline", "visual-studio": "vscode", "junie": "cursor",
    "kilo": "opencode", "kiro": "roo", "lm-studio": "cursor", "amazon-q": "cursor", "qwen-code": "gemini-cli",
    "xcode-claude": "claude-code", "xcode-codex": "codex",
}  # fmt: skip


def fixture(host: Host) -> str:
    """A file as this host's users have them: by hand, after what its makers document."""
    (path,) = FIXTURES.glob(f"{host.id}.*")
    return path.read_bytes().decode()


class Home:
    """A home folder in the layout of one system, and the variables that say where it is."""

    def __init__(self, folder: Path, system: str) -> None:
        self.folder, self.system = folder, system
        self.environment = {"HOME": str(folder), "USERPROFILE": str(folder), "PATH": ""}

    def path(self, host: Host) -> Path | None:
        """Where the file of this host is; None where it does not run."""
        found = PLACES[host.id]
        place = found[SYSTEMS.index(self.system)] if len(found) > 1 else found[0]
        return self.folder / place if place else None

    def write(self, host: Host, data: bytes) -> Path:
        """Its file with this content."""
        path = self.path(host)
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return home_of("linux", tmp_path, monkeypatch)


def home_of(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The functions that ask which system this is are told."""
    monkeypatch.setattr("mcpd.cli.install.hosts.system", lambda: system)
    return Home(tmp_path, system)


def test_the_tables_here_are_whole() -> None:
    assert set(PLACES) == set(HOSTS)
    assert set(SHAPES) | set(LIKE) == set(HOSTS)
    assert sorted(path.stem for path in FIXTURES.iterdir()) == sorted(HOSTS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_where_the_files_are(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = home_of(system, tmp_path, monkeypatch)
    assert found_hosts(home.environment) == []
    for host in HOSTS.values():
        path = home.path(host)
        if path is None:
            with pytest.raises(ConfigurationError, match="does not run on this system"):
                file_of(host, environment=home.environment)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        assert file_of(host, environment=home.environment) == str(path), host.id
        path.write_text("")
        assert file_of(host, environment=home.environment) == str(path), host.id
    assert {each.host.id for each in found_hosts(home.environment)} == {
        host.id for host in HOSTS.values() if home.path(host) is not None
    }


def test_variables_say_where_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = home_of("linux", tmp_path, monkeypatch)
    said = {
        **home.environment, "XDG_CONFIG_HOME": "/x", "CODEX_HOME": "/c", "CLINE_MCP_SETTINGS_PATH": "/l.json",
        "CLAUDE_CONFIG_DIR": "/d",
    }  # fmt: skip
    wanted = {
        "zed": "/x/zed/settings.json", "codex": "/c/config.toml", "cline": "/l.json",
        "cursor": f"{tmp_path}/.cursor/mcp.json", "claude-code": "/d/.claude.json",
    }  # fmt: skip
    assert {id: file_of(HOSTS[id], environment=said) for id in wanted} == wanted
    home_of("windows", tmp_path, monkeypatch)
    said = {**home.environment, "APPDATA": "/r", "LOCALAPPDATA": "/l"}
    assert file_of(HOSTS["zed"], environment=said) == "/r/Zed/settings.json"


def test_two_files_of_one_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one it reads is its user's to say; Antigravity says it itself."""
    home = home_of("windows", tmp_path, monkeypatch)
    desktop = HOSTS["claude-desktop"]
    first = home.write(desktop, b"{}")
    second = tmp_path / ROAMING / "Claude" / "claude_desktop_config.json"
    second.parent.mkdir(parents=True)
    assert file_of(desktop, environment=home.environment) == str(first)
    second.write_text("{}")
    with pytest.raises(ConfigurationError, match=r"2 files here, .*Claude_pzs8.* and .*; name the one .*--file"):
        file_of(desktop, environment=home.environment)

    (tmp_path / ".gemini" / "config").mkdir(parents=True)
    (tmp_path / ".gemini" / "config" / ".migrated").touch()
    assert file_of(HOSTS["antigravity"], environment=home.environment).endswith("/config/mcp_config.json")


def test_files_of_a_project(tmp_path: Path) -> None:
    assert file_of(HOSTS["vscode"], project=str(tmp_path)) == str(tmp_path / ".vscode" / "mcp.json")
    (tmp_path / "opencode.jsonc").touch()
    assert file_of(HOSTS["opencode"], project=str(tmp_path)) == str(tmp_path / "opencode.jsonc")
    with pytest.raises(ConfigurationError, match="no configuration file per project"):
        file_of(HOSTS["windsurf"], project=str(tmp_path))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("curser", "did you mean cursor"),
        ("copilot", "copilot-cli"),
        ("claude", "did you mean claude-desktop or"),
        ("teapot", "known hosts are"),
    ],
)
def test_a_host_that_is_none(text: str, hint: str) -> None:
    with pytest.raises(ConfigurationError, match=hint):
        find_host(text)


@pytest.mark.parametrize("id", HOSTS)
def test_how_an_entry_looks(id: str) -> None:
    host = HOSTS[id]
    command, url = SHAPES[LIKE.get(id, id)]
    assert list(shaped(host, "new", COMMAND).items()) == list(command.items())
    if url is None:
        with pytest.raises(ConfigurationError, match="Connectors"):
            shaped(host, "new", URL)
    else:
        assert shaped(host, "new", URL) == url
    ws = Entry(url="ws://127.0.0.1:8080/mcp", transport="ws")
    if id in ("claude-code", "xcode-claude"):
        assert shaped(host, "new", ws) == {"type": "ws", "url": ws.url}
    else:
        with pytest.raises(ConfigurationError, match="does not support WebSocket|Connectors"):
            shaped(host, "new", ws)


def variants(text: str) -> dict[str, bytes]:
    """The file as different editors and systems leave it."""
    crlf = text.replace("\n", "\r\n").encode()
    return {
        "as it is": text.encode(),
        "with CRLF": crlf,
        "with a mark": b"\xef\xbb\xbf" + text.encode(),
        "with both": b"\xef\xbb\xbf" + crlf,
        "without a last line end": text.rstrip("\n").encode(),
    }


def holds_all_of(longer: bytes, data: bytes) -> bool:
    """Whether every byte of the shorter is in the longer, in its order, but for what was put between."""
    at = 0
    for byte in data:
        at = longer.find(byte, at) + 1
        if not at:
            return False
    return True


RUNS_ON = [
    (id, system) for id, found in PLACES.items() for system, place in zip(SYSTEMS, found * 3, strict=False) if place
]


@pytest.mark.parametrize(("id", "system"), RUNS_ON)
def test_nothing_else_changes(id: str, system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install, again, uninstall, and back by undo: the difference is our entry, then nothing, then the bytes are those
    of before. As every editor leaves the file on the first system, on the others as it is."""
    host = HOSTS[id]
    home = home_of(system, tmp_path, monkeypatch)
    journal = Journal(home.environment)
    is_first = (id, system) == next(each for each in RUNS_ON if each[0] == id)
    for what, data in variants(fixture(host)).items() if is_first else [("as it is", fixture(host).encode())]:
        path = home.write(host, data)
        assert file_of(host, environment=home.environment) == str(path)
        before = entries_of(host, read(str(path)))
        assert before, what

        plan = plan_install(host, "new", COMMAND, str(path), journal=journal)
        assert plan.change == "added"
        assert path.read_bytes() == data  # a plan is a plan
        assert apply(plan, journal, by_host=False).backup
        longer = path.read_bytes()
        assert holds_all_of(longer, data), what
        assert (
            longer.count(b"\n") - longer.count(b"\r\n") == data.count(b"\n") - data.count(b"\r\n") or b"\r" not in data
        )
        assert entries_of(host, read(str(path))) == {**before, "new": shaped(host, "new", COMMAND)}

        again = plan_install(host, "new", COMMAND, str(path), journal=journal)
        assert (again.change, again.data) == ("none", longer), what

        # By the text alone, as after somebody else's change; and by the copy.
        assert plan_uninstall(host, "new", str(path)).data == data, what
        apply(plan_uninstall(host, "new", str(path), journal=journal), journal, by_host=False)
        assert path.read_bytes() == data, what
        for wanted in (longer, data):
            journal.undo(host.id, str(path))
            assert path.read_bytes() == wanted, what


def test_every_byte_that_is_put_into_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`installed.diff` has what an entry changes in each host's file; after a change that is meant: MCPD_WRITE=1."""
    said = []
    for host in HOSTS.values():
        before = fixture(host)
        path = tmp_path / host.id
        path.write_bytes(before.encode())
        after = plan_install(host, "new", COMMAND, str(path)).data
        assert after is not None
        lines = unified_diff(
            before.splitlines(keepends=True), after.decode().splitlines(keepends=True), host.id, host.id, n=1
        )
        said += [line if line.endswith("\n") else f"{line}\n\\ no line end\n" for line in lines]
    if os.environ.get("MCPD_WRITE"):
        INSTALLED.write_text("".join(said), encoding="utf-8")
    assert "".join(said) == INSTALLED.read_text(encoding="utf-8")


@pytest.mark.parametrize("id", HOSTS)
@pytest.mark.parametrize("data", [None, b"", b"\xef\xbb\xbf", b"\n\n"])
def test_files_without_content(id: str, data: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = HOSTS[id]
    system = next(each for each in SYSTEMS if home_of(each, tmp_path, monkeypatch).path(host) is not None)
    home = home_of(system, tmp_path, monkeypatch)
    path = home.path(host)
    assert path is not None
    if data is not None:
        home.write(host, data)
    journal = Journal(home.environment)
    apply(plan_install(host, "new", COMMAND, str(path), journal=journal), journal, by_host=False)
    assert entries_of(host, read(str(path))) == {"new": shaped(host, "new", COMMAND)}
    assert plan_install(host, "new", COMMAND, str(path)).change == "none"
    apply(plan_uninstall(host, "new", str(path), journal=journal), journal, by_host=False)
    assert (path.read_bytes() if path.exists() else None) == data


@pytest.mark.parametrize("id", ["cursor", "vscode", "codex", "goose"])
def test_somebody_else_has_written_too(id: str, home: Home) -> None:
    """Then only our entry goes, and the member that we have made for it, if it is empty."""
    host = HOSTS[id]
    bare = {"json": '{\n  "x": 1\n}\n', "jsonc": '{\n  "x": 1, // y\n}\n', "toml": "x = 1\n", "yaml": "x: 1\n"}
    later = {"json": "\n\n", "jsonc": "// later\n", "toml": "# later\n", "yaml": "# later\n"}
    path = home.write(host, bare[host.format].encode())
    journal = Journal(home.environment)
    apply(plan_install(host, "new", COMMAND, str(path), journal=journal), journal)
    path.write_text(path.read_text() + later[host.format])
    apply(plan_uninstall(host, "new", str(path), journal=journal), journal)
    assert path.read_text() == bare[host.format] + later[host.format]


def test_a_large_file(home: Home) -> None:
    """Ten thousand entries of somebody else: all there, in seconds."""
    host = HOSTS["claude-code"]
    servers = {f"s{at}": {"command": "x", "args": ["}", str(at)]} for at in range(10_000)}
    text = json.dumps({"projects": {"/a": {"history": ["x" * 100] * 5000}}, "mcpServers": servers}, indent=2)
    path = home.write(host, text.encode())
    plan = plan_install(host, "new", COMMAND, str(path))
    assert plan.data is not None
    assert json.loads(plan.data)["mcpServers"] == {**servers, "new": {"type": "stdio", **PLAIN}}
    path.write_bytes(plan.data)
    assert plan_uninstall(host, "new", str(path)).data == text.encode()


@pytest.mark.parametrize("id", ["cursor", "vscode", "codex", "goose", "continue"])
def test_what_its_user_has_added_stays(id: str, home: Home) -> None:
    host = HOSTS[id]
    path = home.write(host, fixture(host).encode())
    plan = plan_install(host, "new", COMMAND, str(path))
    assert plan.data is not None
    path.write_bytes(plan.data)
    format = format_named(host.format)
    text = format.put(plan.data.decode(), (host.key, "new", "autoApprove"), ["plant"])
    path.write_text(text)

    moved = Entry(command="/usr/bin/mcpd", args=COMMAND.args, env={"SOIL": "dry"})
    plan = plan_install(host, "new", moved, str(path))
    assert plan.change == "updated"
    entry = entries_of(host, read_text(path, plan.data))["new"]
    assert entry["autoApprove"] == ["plant"]
    assert (entry.get("command") or entry["cmd"]) == "/usr/bin/mcpd"
    assert (entry.get("env") or entry["envs"]) == {"BED": "1", "SOIL": "dry"}

    # Another server of that name is asked about.
    other = Entry(command="/usr/bin/mcpd", args=("serve", "--stdio", "/home/someone/other.py"))
    with pytest.raises(ConfigurationError, match=r"'new', .*my server\.py; the new one is .*other\.py.*--force"):
        plan_install(host, "new", other, str(path))
    plan = plan_install(host, "new", other, str(path), force=True)
    entry = entries_of(host, read_text(path, plan.data))["new"]
    assert entry["autoApprove"] == ["plant"]
    assert "env" not in entry
    assert "envs" not in entry


def read_text(path: Path, data: bytes | None) -> Any:
    assert data is not None
    path.write_bytes(data)
    return read(str(path))


def test_entries_of_others_are_left_alone(home: Home) -> None:
    host = HOSTS["claude-desktop"]
    path = home.write(host, fixture(host).encode())
    with pytest.raises(ConfigurationError, match="another server named 'filesystem'"):
        plan_install(host, "filesystem", COMMAND, str(path))
    with pytest.raises(ConfigurationError, match="mcpd did not install 'filesystem', npx -y .*--force"):
        plan_uninstall(host, "filesystem", str(path))
    forced = plan_install(host, "filesystem", COMMAND, str(path), force=True)
    assert forced.data is not None
    assert json.loads(forced.data)["mcpServers"] == {"filesystem": PLAIN}
    assert plan_uninstall(host, "nothing", str(path)).change == "none"

    # What ran before comes back with it.
    journal = Journal(home.environment)
    apply(forced, journal)
    apply(plan_uninstall(host, "filesystem", str(path), journal=journal), journal)
    assert path.read_text() == fixture(host)


def test_a_program_of_somebody_elses_is_remembered(home: Home) -> None:
    host, entry = HOSTS["codex"], Entry(command="/usr/bin/npx", args=("-y", "x"))
    path = home.write(host, fixture(host).encode())
    journal = Journal(home.environment)
    apply(plan_install(host, "x", entry, str(path), journal=journal), journal)
    path.write_text(path.read_text() + "\n[more]\n")
    with pytest.raises(ConfigurationError, match="mcpd did not install"):
        plan_uninstall(host, "x", str(path))
    left = plan_uninstall(host, "x", str(path), journal=Journal(home.environment)).data
    assert left is not None
    assert left.decode() == fixture(host) + "\n[more]\n"
    assert set(tomllib.loads(left.decode())["mcp_servers"]) == {"docs"}


def test_what_would_be_replaced_is_said(home: Home) -> None:
    entry = Entry(command="/m", env={"A": "costs $HOME"})
    path = home.write(HOSTS["gemini-cli"], b"{}")
    assert plan_install(HOSTS["gemini-cli"], "n", entry, str(path)).has_variables
    assert not plan_install(HOSTS["cursor"], "n", entry, str(path)).has_variables
    assert os.path.exists(path)


def test_passwords_in_urls_are_shown_nowhere(home: Home) -> None:
    """Only they are hidden, in differences, in what is said of another server, and in `repr`."""
    host, url = HOSTS["cursor"], "postgres://ada:hunter22@db/beds"
    entry = Entry(command="/usr/bin/x", args=(url,), env={"DATABASE_URL": url})
    path = home.write(host, b"{}")
    plan = plan_install(host, "n", entry, str(path))
    journal = Journal(home.environment)
    apply(plan, journal, by_host=False)
    with pytest.raises(ConfigurationError) as caught:
        plan_install(host, "n", COMMAND, str(path))
    kept = (Path(journal.folder) / "installed.json").read_text()
    for text in (plan.difference, str(caught.value), repr(entry), repr(Entry(url="http://a:hunter22@h/mcp")), kept):
        assert "hunter22" not in text
    assert plan.difference.count("postgres://ada:<masked: 8 characters>@db/beds") == 2


def test_a_difference_shows_no_secrets(home: Home) -> None:
    """Neither ours nor those of the entry beside it; what is none by its name is shown."""
    beside = {"mcpServers": {"a": {"command": "x", "env": {"OPENAI_KEY": "beside-1"}}}}
    entry = Entry(command="/m", env={"DB_PASSWORD": 'quo"ted-2', "GARDEN_AUTH": "ours-3", "LEVEL": "quiet"})
    for host in ("cursor", "gemini-cli"):
        path = home.write(HOSTS[host], json.dumps(beside, indent=2).encode())
        shown = plan_install(HOSTS[host], "n", entry, str(path)).difference
        assert "quiet" in shown
        assert not any(each in shown for each in ("beside-1", "ted-2", "ours-3")), shown
    reached = Entry(url="http://h/mcp", headers={"X-Bed": "header-4"}, transport="http")
    for host in ("codex", "goose", "copilot-jetbrains", "continue"):
        plan = plan_install(HOSTS[host], "n", reached, str(home.folder / "new"))
        assert "X-Bed" in plan.difference
        assert "header-4" not in plan.difference
