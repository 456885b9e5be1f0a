"""Hosts that start MCP servers, and where each keeps them: one table of data, for whoever reads or writes them.

A place is a path with `/`, below a folder that the operating system or the host's own variable names:

    ~           the home folder            {config}    $XDG_CONFIG_HOME, else ~/.config
    {support}   ~/Library/Application Support (macOS)   {roaming}, {local}   %APPDATA%, %LOCALAPPDATA% (Windows)
    {NAME:-~/x} the variable NAME, else that path

A `*` in it stands for anything. Nothing here is read but by `places`.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Mapping

from msgspec import Struct


class Files(Struct, frozen=True):
    """Places of a host's file on each system, the likeliest first; none where it does not run."""

    macos: tuple[str, ...] = ()
    linux: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()


class HostLimits(Struct, frozen=True):
    """What a host takes of a server; None where it has no limit that is known."""

    tool_name: int | None = None
    """Characters of a tool's whole name, `prefix` included."""
    prefix: str = ""
    """What the host puts before the name of a tool, with `{server}` for the server's."""
    tools: int | None = None
    """Of all servers together."""
    instructions: int | None = None
    """Characters of `instructions` that are sure to be read."""
    start_seconds: float = 60.0
    """How long a server has for its first answer."""


class Host(Struct, frozen=True):
    """One host. The first file that is there holds what it starts; `project` is what one project adds for itself."""

    id: str
    name: str
    files: Files
    project: tuple[str, ...] = ()
    """Places below a project's folder."""
    format: str = "json"
    """`json`, `jsonc` (with comments and trailing commas), `toml` or `yaml`."""
    key: str = "mcpServers"
    """The member of the file that holds the servers: an object by name, or a list of objects with a `name`."""
    folders: str = ""
    """The member with what belongs to one folder only, by its path; "" for none. It has `key` again."""
    variables: str = "none"
    """How variables are written in values: a dialect of `variables`."""
    shape: str = "plain"
    """How it writes an entry: a name in `mcpd.install.shapes`."""
    notice: str = "start {host} again"
    """What its user does so that it sees a change of its file; `{host}` is its name."""
    asks: bool = False
    """It asks its user before it starts what a project's file says."""
    link: str = ""
    """The kind of link that adds a server to it: `cursor`, `vscode`, `vscode-insiders` or `goose`; "" for none."""
    environment: str = "sdk"
    """Which of its own variables it gives a server: `sdk` (those of the official libraries), `codex` (fewer on
    Windows), `filtered` (all whose names do not look like secrets) or `whole`."""
    rewrites: bool = False
    """It writes its file from memory while it runs: what others have put in meanwhile is lost."""
    processes: tuple[str, ...] = ()
    """What its processes are called, without `.exe`; known of hosts that rewrite their file."""
    program: str = ""
    """Its command on a PATH, by which it is known to be there before it has a file; "" for none."""
    has_apps: bool = False
    """It shows MCP Apps."""
    limits: HostLimits = HostLimits()


def _everywhere(*found: str) -> Files:
    return Files(found, found, found)


def _apart(macos: str, linux: str, windows: str) -> Files:
    return Files((macos,), (linux,), (windows,))


def _config(rest: str, windows: str) -> Files:
    return _apart(f"{{config}}/{rest}", f"{{config}}/{rest}", f"{{roaming}}/{windows}")


def _vscode(rest: str, name: str = "Code") -> Files:
    place = f"{name}/User/{rest}"
    return _apart(f"{{support}}/{place}", f"{{config}}/{place}", f"{{roaming}}/{place}")


_CODING = "~/Library/Developer/Xcode/CodingAssistant"

_AT_ONCE = "{host} sees it at once"
_NEW_CHAT = "start {host} again; /mcp in it shows whether the server is connected"
_CODEX_LIMITS = HostLimits(tool_name=64, prefix="mcp__{server}__", instructions=512, start_seconds=10.0)

_ALL = (
    Host(
        "claude-desktop",
        "Claude Desktop",
        Files(
            ("{support}/Claude/claude_desktop_config.json",),
            ("{config}/Claude/claude_desktop_config.json",),
            (
                "{local}/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json",
                "{roaming}/Claude/claude_desktop_config.json",
            ),
        ),
        shape="no-url",
        notice="quit {host} (from its menu or tray icon: closing the window is not enough) and start it again",
        rewrites=True,
        processes=("Claude", "claude-desktop"),
        has_apps=True,
    ),
    Host(
        "claude-code",
        "Claude Code",
        _everywhere("{CLAUDE_CONFIG_DIR:-~}/.claude.json"),
        (".mcp.json",),
        folders="projects",
        variables="braces",
        shape="typed",
        notice=_NEW_CHAT,
        asks=True,
        limits=HostLimits(tool_name=128, prefix="mcp__{server}__", start_seconds=30.0),
        program="claude",
        rewrites=True,
        processes=("claude",),
        environment="whole",
    ),
    Host(
        "cursor",
        "Cursor",
        _everywhere("~/.cursor/mcp.json"),
        (".cursor/mcp.json",),
        variables="env",
        link="cursor",
        has_apps=True,
        limits=HostLimits(tool_name=60, prefix="{server}:"),
        program="cursor",
    ),
    Host(
        "vscode",
        "VS Code",
        _vscode("mcp.json"),
        (".vscode/mcp.json",),
        format="jsonc",
        key="servers",
        variables="env",
        shape="typed",
        notice="{host} sees it at once; start the server from the line above its entry, or from MCP: List Servers",
        asks=True,
        link="vscode",
        environment="whole",
        has_apps=True,
        limits=HostLimits(tools=128),
        program="code",
    ),
    Host(
        "vscode-insiders",
        "VS Code Insiders",
        _vscode("mcp.json", "Code - Insiders"),
        (".vscode/mcp.json",),
        format="jsonc",
        key="servers",
        variables="env",
        shape="typed",
        notice="{host} sees it at once; start the server from the line above its entry, or from MCP: List Servers",
        asks=True,
        link="vscode-insiders",
        environment="whole",
        has_apps=True,
        limits=HostLimits(tools=128),
        program="code-insiders",
    ),
    Host(
        "codex",
        "Codex",
        _everywhere("{CODEX_HOME:-~/.codex}/config.toml"),
        (".codex/config.toml",),
        format="toml",
        key="mcp_servers",
        shape="codex",
        asks=True,
        environment="codex",
        limits=_CODEX_LIMITS,
        program="codex",
    ),
    Host(
        "gemini-cli",
        "Gemini CLI",
        _everywhere("~/.gemini/settings.json"),
        (".gemini/settings.json",),
        format="jsonc",
        variables="shell",
        shape="http-url",
        notice="start {host} again, in a folder that it trusts; /mcp in it shows whether the server is connected",
        environment="filtered",
        limits=HostLimits(tool_name=63, start_seconds=600.0),
        program="gemini",
    ),
    Host(
        "antigravity",
        "Google Antigravity",
        _everywhere("~/.gemini/config/mcp_config.json", "~/.gemini/antigravity/mcp_config.json"),
        (".agents/mcp_config.json",),
        shape="server-url",
        program="agy",
    ),
    Host(
        "goose",
        "Goose",
        _config("goose/config.yaml", "Block/goose/config/config.yaml"),
        format="yaml",
        key="extensions",
        shape="goose",
        link="goose",
        environment="whole",
        has_apps=True,
        limits=HostLimits(start_seconds=300.0),
        program="goose",
    ),
    Host(
        "zed",
        "Zed",
        _config("zed/settings.json", "Zed/settings.json"),
        (".zed/settings.json",),
        format="jsonc",
        key="context_servers",
        notice=_AT_ONCE,
        environment="whole",
        program="zed",
    ),
    Host(
        "devin",
        "Devin",
        _config("devin/mcp_config.json", "devin/mcp_config.json"),
        (".devin/mcp_config.json",),
        shape="transport",
        program="devin",
    ),
    Host(
        "windsurf",
        "Windsurf",
        _everywhere("~/.codeium/windsurf/mcp_config.json"),
        variables="env",
        shape="server-url",
        limits=HostLimits(tools=100),
        program="windsurf",
    ),
    Host(
        "cline",
        "Cline",
        _everywhere("{CLINE_MCP_SETTINGS_PATH:-~/.cline/data/settings/cline_mcp_settings.json}"),
        shape="cline",
        notice=_AT_ONCE,
        program="cline",
    ),
    Host(
        "cline-legacy",
        "Cline before summer 2026",
        _vscode("globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        shape="cline",
        notice=_AT_ONCE,
    ),
    Host(
        "copilot-cli",
        "GitHub Copilot CLI",
        _everywhere("~/.copilot/mcp-config.json"),
        variables="braces",
        shape="copilot-cli",
        program="copilot",
    ),
    Host(
        "visual-studio",
        "Visual Studio",
        Files(windows=("~/.mcp.json",)),
        (".mcp.json",),
        format="jsonc",
        key="servers",
        variables="env",
        shape="typed",
        asks=True,
    ),
    Host(
        "copilot-jetbrains",
        "GitHub Copilot in JetBrains IDEs",
        Files(
            ("{support}/github-copilot/intellij/mcp.json", "{config}/github-copilot/intellij/mcp.json"),
            ("{config}/github-copilot/intellij/mcp.json", "~/.local/share/github-copilot/intellij/mcp.json"),
            ("{local}/github-copilot/intellij/mcp.json",),
        ),
        key="servers",
        shape="request-init",
        notice=_AT_ONCE,
    ),
    Host("junie", "JetBrains Junie", _everywhere("~/.junie/mcp/mcp.json"), (".junie/mcp/mcp.json",), program="junie"),
    Host(
        "opencode",
        "OpenCode",
        _everywhere("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc"),
        ("opencode.json", "opencode.jsonc"),
        format="jsonc",
        key="mcp",
        variables="curly",
        shape="local-remote",
        program="opencode",
        environment="whole",
    ),
    Host(
        "kilo",
        "Kilo Code",
        _everywhere("{config}/kilo/kilo.jsonc"),
        (".kilo/kilo.jsonc", "kilo.jsonc"),
        format="jsonc",
        key="mcp",
        variables="curly",
        shape="local-remote",
        program="kilo",
        environment="whole",
    ),
    Host(
        "roo",
        "Roo Code",
        _vscode("globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
        (".roo/mcp.json",),
        variables="env",
        shape="streamable-http",
        notice=_AT_ONCE,
    ),
    Host(
        "kiro",
        "Kiro",
        _everywhere("~/.kiro/settings/mcp.json"),
        (".kiro/settings/mcp.json",),
        variables="braces",
        shape="streamable-http",
        notice=_AT_ONCE,
        program="kiro",
    ),
    Host("lm-studio", "LM Studio", _everywhere("~/.lmstudio/mcp.json"), notice=_AT_ONCE, program="lms"),
    Host(
        "continue",
        "Continue",
        _everywhere("~/.continue/config.yaml"),
        format="yaml",
        variables="secrets",
        shape="continue",
        notice=_AT_ONCE,
        program="cn",
    ),
    Host("amazon-q", "Amazon Q Developer", _everywhere("~/.aws/amazonq/mcp.json"), (".amazonq/mcp.json",), program="q"),
    Host(
        "qwen-code",
        "Qwen Code",
        _everywhere("~/.qwen/settings.json"),
        (".qwen/settings.json",),
        format="jsonc",
        variables="shell",
        shape="http-url",
        notice=_NEW_CHAT,
        program="qwen",
        environment="whole",
    ),
    Host(
        "xcode-claude",
        "Xcode with Claude",
        Files((f"{_CODING}/ClaudeAgentConfig/.claude.json",)),
        variables="braces",
        shape="typed",
        rewrites=True,
        processes=("Xcode",),
    ),
    Host(
        "xcode-codex",
        "Xcode with Codex",
        Files((f"{_CODING}/codex/config.toml",)),
        format="toml",
        key="mcp_servers",
        shape="codex",
        environment="codex",
        limits=_CODEX_LIMITS,
    ),
)

HOSTS: dict[str, Host] = {host.id: host for host in _ALL}
"""By id, the word before the colon of a target."""

_VARIABLE = re.compile(r"\{(\w+)(?::-([^}]*))?\}")


def system() -> str:
    """`macos`, `linux` (any other Unix too) or `windows`."""
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")


def places(host: Host, environment: Mapping[str, str], system: str) -> list[str]:
    """Where this host keeps its file, the likeliest first, files that are not there among them.

    A pattern gives a path for each folder that it matches; one that matches none gives nothing.
    """
    found = []
    for place in getattr(host.files, system):
        path = _path(place, environment, system)
        if "*" not in place:
            found.append(path)
            continue
        folder, star, name = path.partition("*")
        behind, sign, rest = name.partition(os.sep)
        found += [each + sign + rest for each in sorted(glob.glob(folder + star + behind))]
    return found


def project_places(host: Host, folder: str) -> list[str]:
    """Where this host looks for what one project adds, the likeliest first; [] for a host that has no such file."""
    return [os.path.join(folder, *place.split("/")) for place in host.project]


def _path(place: str, environment: Mapping[str, str], system: str) -> str:
    home = environment.get("USERPROFILE" if system == "windows" else "HOME") or os.path.expanduser("~")
    folders = {
        "config": environment.get("XDG_CONFIG_HOME") or f"{home}/.config",
        "support": f"{home}/Library/Application Support",
        "roaming": environment.get("APPDATA") or f"{home}/AppData/Roaming",
        "local": environment.get("LOCALAPPDATA") or f"{home}/AppData/Local",
    }

    def folder(match: re.Match[str]) -> str:
        name, default = match.groups()
        escaped = folders[name] if default is None else environment.get(name) or default
        return glob.escape(escaped) if "*" in place else escaped

    path = _VARIABLE.sub(folder, place)
    if path.startswith("~/"):
        path = home + path[1:]
    return os.path.normpath(path)
