"""The hosts that start MCP servers, and where each keeps its configuration: one table, used for reading and writing.

A path is written with `/`, below a folder that the operating system or an environment variable names:

    ~           the home folder            {config}    $XDG_CONFIG_HOME, or ~/.config
    {support}   ~/Library/Application Support (macOS)   {roaming}, {local}   %APPDATA%, %LOCALAPPDATA% (Windows)
    {NAME:-~/x} the environment variable NAME, or that path

A `*` matches anything. Only `places` looks at the file system.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Mapping

from msgspec import Struct


class Files(Struct, frozen=True):
    """Paths of a host's file on each system, the likeliest first. Empty where the host does not run."""

    macos: tuple[str, ...] = ()
    linux: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()


class HostLimits(Struct, frozen=True):
    """The limits of a host; None means no known limit."""

    tool_name: int | None = None
    """Maximum length of a tool name, including `prefix`."""
    prefix: str = ""
    """The prefix that the host adds to tool names; `{server}` is the name of the server."""
    tools: int | None = None
    """Maximum number of tools of all servers together."""
    instructions: int | None = None
    """Number of characters of `instructions` that the host uses."""
    start_seconds: float = 60.0
    """Seconds within which a server must send its first response."""


class Host(Struct, frozen=True):
    """One host. It reads the first of `files` that exists; `project` are files that a project adds."""

    id: str
    name: str
    files: Files
    project: tuple[str, ...] = ()
    """Paths below the folder of a project."""
    format: str = "json"
    """`json`, `jsonc` (with comments and trailing commas), `toml` or `yaml`."""
    key: str = "mcpServers"
    """The member with the servers: an object by name, or a list of objects with a `name`."""
    folders: str = ""
    """The member with settings of single folders, by path. Each has `key` again. "" if there is no such member."""
    variables: str = "none"
    """The syntax of variables in values: a dialect of `entries.Variables`."""
    shape: str = "plain"
    """The format of an entry: a name in `mcpd install`'s table of shapes."""
    notice: str = "restart {host}"
    """Advice to the user after the file has changed; `{host}` is the name of the host."""
    asks: bool = False
    """Whether it asks the user before it starts the servers of a project's file."""
    link: str = ""
    """The kind of link that adds a server: `cursor`, `vscode`, `vscode-insiders` or `goose`; "" for none."""
    environment: str = "sdk"
    """Which environment variables it passes to servers: `sdk` (as the official libraries), `codex` (fewer on
    Windows), `filtered` (all whose names do not look like secrets) or `whole`."""
    rewrites: bool = False
    """Whether it overwrites its file while it runs, which loses changes of others."""
    processes: tuple[str, ...] = ()
    """Names of its processes, without `.exe`; set for hosts that overwrite their file."""
    program: str = ""
    """Its command on PATH, which shows that it is installed although it has no file yet; "" for none."""
    has_apps: bool = False
    """Whether it supports MCP Apps."""
    limits: HostLimits = HostLimits()


def _all_systems(*found: str) -> Files:
    return Files(found, found, found)


def _each_system(macos: str, linux: str, windows: str) -> Files:
    return Files((macos,), (linux,), (windows,))


def _config(path: str, windows: str) -> Files:
    return _each_system(f"{{config}}/{path}", f"{{config}}/{path}", f"{{roaming}}/{windows}")


def _vscode(path: str, name: str = "Code") -> Files:
    place = f"{name}/User/{path}"
    return _each_system(f"{{support}}/{place}", f"{{config}}/{place}", f"{{roaming}}/{place}")


def _vscode_host(id: str, name: str, folder: str, program: str) -> Host:
    return Host(
        id,
        name,
        _vscode("mcp.json", folder),
        (".vscode/mcp.json",),
        format="jsonc",
        key="servers",
        variables="env",
        shape="typed",
        notice="{host} reads the change at once; start the server there with MCP: List Servers",
        asks=True,
        link=id,
        environment="whole",
        has_apps=True,
        limits=HostLimits(tools=128),
        program=program,
    )


_XCODE = "~/Library/Developer/Xcode/CodingAssistant"

_AT_ONCE = "{host} reads the change at once"
_NEW_CHAT = "restart {host}; its command /mcp shows whether the server is connected"
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
        notice="quit {host} from its menu or tray icon (closing the window is not enough), then start it again",
        rewrites=True,
        processes=("Claude", "claude-desktop"),
        has_apps=True,
    ),
    Host(
        "claude-code",
        "Claude Code",
        _all_systems("{CLAUDE_CONFIG_DIR:-~}/.claude.json"),
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
        _all_systems("~/.cursor/mcp.json"),
        (".cursor/mcp.json",),
        variables="env",
        link="cursor",
        has_apps=True,
        limits=HostLimits(tool_name=60, prefix="{server}:"),
        program="cursor",
    ),
    _vscode_host("vscode", "VS Code", "Code", "code"),
    _vscode_host("vscode-insiders", "VS Code Insiders", "Code - Insiders", "code-insiders"),
    Host(
        "codex",
        "Codex",
        _all_systems("{CODEX_HOME:-~/.codex}/config.toml"),
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
        _all_systems("~/.gemini/settings.json"),
        (".gemini/settings.json",),
        format="jsonc",
        variables="shell",
        shape="http-url",
        notice="restart {host} in a folder that it trusts; its command /mcp shows whether the server is connected",
        environment="filtered",
        limits=HostLimits(tool_name=63, start_seconds=600.0),
        program="gemini",
    ),
    Host(
        "antigravity",
        "Google Antigravity",
        _all_systems("~/.gemini/config/mcp_config.json", "~/.gemini/antigravity/mcp_config.json"),
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
        _all_systems("~/.codeium/windsurf/mcp_config.json"),
        variables="env",
        shape="server-url",
        limits=HostLimits(tools=100),
        program="windsurf",
    ),
    Host(
        "cline",
        "Cline",
        _all_systems("{CLINE_MCP_SETTINGS_PATH:-~/.cline/data/settings/cline_mcp_settings.json}"),
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
        _all_systems("~/.copilot/mcp-config.json"),
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
    Host("junie", "JetBrains Junie", _all_systems("~/.junie/mcp/mcp.json"), (".junie/mcp/mcp.json",), program="junie"),
    Host(
        "opencode",
        "OpenCode",
        _all_systems("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc"),
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
        _all_systems("{config}/kilo/kilo.jsonc"),
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
        _all_systems("~/.kiro/settings/mcp.json"),
        (".kiro/settings/mcp.json",),
        variables="braces",
        shape="streamable-http",
        notice=_AT_ONCE,
        program="kiro",
    ),
    Host("lm-studio", "LM Studio", _all_systems("~/.lmstudio/mcp.json"), notice=_AT_ONCE, program="lms"),
    Host(
        "continue",
        "Continue",
        _all_systems("~/.continue/config.yaml"),
        format="yaml",
        variables="secrets",
        shape="continue",
        notice=_AT_ONCE,
        program="cn",
    ),
    Host(
        "amazon-q", "Amazon Q Developer", _all_systems("~/.aws/amazonq/mcp.json"), (".amazonq/mcp.json",), program="q"
    ),
    Host(
        "qwen-code",
        "Qwen Code",
        _all_systems("~/.qwen/settings.json"),
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
        Files((f"{_XCODE}/ClaudeAgentConfig/.claude.json",)),
        variables="braces",
        shape="typed",
        rewrites=True,
        processes=("Xcode",),
    ),
    Host(
        "xcode-codex",
        "Xcode with Codex",
        Files((f"{_XCODE}/codex/config.toml",)),
        format="toml",
        key="mcp_servers",
        shape="codex",
        environment="codex",
        limits=_CODEX_LIMITS,
    ),
)

HOSTS: dict[str, Host] = {host.id: host for host in _ALL}
"""Hosts by id, which is the word before the colon of a target."""

_VARIABLE = re.compile(r"\{(\w+)(?::-([^}]*))?\}")


def system() -> str:
    """Return `macos`, `windows`, or `linux` for any other Unix."""
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")


def places(host: Host, environment: Mapping[str, str], system: str) -> list[str]:
    """Return the paths of this host's file, the likeliest first, including files that do not exist.

    A pattern is replaced by the paths of the folders that it matches.
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
    """Return the paths of this host's file in the folder of a project, the likeliest first."""
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
