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

__all__ = ["HOSTS", "Files", "Host", "places", "system"]


class Files(Struct, frozen=True):
    """Places of a host's file on each system, the likeliest first; none where it does not run."""

    macos: tuple[str, ...] = ()
    linux: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()


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


def _everywhere(*found: str) -> Files:
    return Files(found, found, found)


def _vscode(rest: str, name: str = "Code") -> Files:
    return Files(
        (f"{{support}}/{name}/User/{rest}",),
        (f"{{config}}/{name}/User/{rest}",),
        (f"{{roaming}}/{name}/User/{rest}",),
    )


def _home(id: str, name: str, file: str, project: str = "", **more: str) -> Host:
    return Host(id, name, _everywhere(file), (project,) if project else (), **more)


_CODING = "~/Library/Developer/Xcode/CodingAssistant"

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
    ),
    _home("claude-code", "Claude Code", "~/.claude.json", ".mcp.json", folders="projects", variables="braces"),
    _home("cursor", "Cursor", "~/.cursor/mcp.json", ".cursor/mcp.json", variables="env"),
    Host(
        "vscode",
        "VS Code",
        _vscode("mcp.json"),
        project=(".vscode/mcp.json",),
        format="jsonc",
        key="servers",
        variables="env",
    ),
    Host(
        "vscode-insiders",
        "VS Code Insiders",
        _vscode("mcp.json", "Code - Insiders"),
        project=(".vscode/mcp.json",),
        format="jsonc",
        key="servers",
        variables="env",
    ),
    _home(
        "codex", "Codex", "{CODEX_HOME:-~/.codex}/config.toml", ".codex/config.toml", format="toml", key="mcp_servers"
    ),
    _home(
        "gemini-cli",
        "Gemini CLI",
        "~/.gemini/settings.json",
        ".gemini/settings.json",
        format="jsonc",
        variables="shell",
    ),
    Host(
        "antigravity",
        "Google Antigravity",
        _everywhere("~/.gemini/config/mcp_config.json", "~/.gemini/antigravity/mcp_config.json"),
        project=(".agents/mcp_config.json",),
    ),
    Host(
        "goose",
        "Goose",
        Files(
            ("{config}/goose/config.yaml",),
            ("{config}/goose/config.yaml",),
            ("{roaming}/Block/goose/config/config.yaml",),
        ),
        format="yaml",
        key="extensions",
    ),
    Host(
        "zed",
        "Zed",
        Files(("{config}/zed/settings.json",), ("{config}/zed/settings.json",), ("{roaming}/Zed/settings.json",)),
        (".zed/settings.json",),
        format="jsonc",
        key="context_servers",
    ),
    Host(
        "devin",
        "Devin",
        Files(
            ("{config}/devin/mcp_config.json",),
            ("{config}/devin/mcp_config.json",),
            ("{roaming}/devin/mcp_config.json",),
        ),
    ),
    _home("windsurf", "Windsurf", "~/.codeium/windsurf/mcp_config.json", variables="env"),
    _home("cline", "Cline", "{CLINE_MCP_SETTINGS_PATH:-~/.cline/data/settings/cline_mcp_settings.json}"),
    Host(
        "cline-legacy",
        "Cline before summer 2026",
        _vscode("globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    ),
    _home("copilot-cli", "GitHub Copilot CLI", "~/.copilot/mcp-config.json", variables="braces"),
    Host(
        "visual-studio",
        "Visual Studio",
        Files(windows=("~/.mcp.json",)),
        project=(".mcp.json",),
        format="jsonc",
        key="servers",
        variables="env",
    ),
    Host(
        "copilot-jetbrains",
        "GitHub Copilot in JetBrains IDEs",
        Files(
            ("{support}/github-copilot/intellij/mcp.json",),
            ("{config}/github-copilot/intellij/mcp.json", "~/.local/share/github-copilot/intellij/mcp.json"),
            ("{local}/github-copilot/intellij/mcp.json",),
        ),
        key="servers",
    ),
    _home("junie", "JetBrains Junie", "~/.junie/mcp/mcp.json", ".junie/mcp/mcp.json"),
    Host(
        "opencode",
        "OpenCode",
        _everywhere("{config}/opencode/opencode.json", "{config}/opencode/opencode.jsonc"),
        project=("opencode.json", "opencode.jsonc"),
        format="jsonc",
        key="mcp",
        variables="curly",
    ),
    Host(
        "kilo",
        "Kilo Code",
        _everywhere("{config}/kilo/kilo.jsonc"),
        project=(".kilo/kilo.jsonc", "kilo.jsonc"),
        format="jsonc",
        key="mcp",
        variables="curly",
    ),
    Host(
        "roo",
        "Roo Code",
        _vscode("globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
        project=(".roo/mcp.json",),
        variables="env",
    ),
    _home("kiro", "Kiro", "~/.kiro/settings/mcp.json", ".kiro/settings/mcp.json", variables="braces"),
    _home("lm-studio", "LM Studio", "~/.lmstudio/mcp.json"),
    _home("continue", "Continue", "~/.continue/config.yaml", format="yaml", variables="secrets"),
    _home("amazon-q", "Amazon Q Developer", "~/.aws/amazonq/mcp.json", ".amazonq/mcp.json"),
    _home("qwen-code", "Qwen Code", "~/.qwen/settings.json", ".qwen/settings.json", format="jsonc", variables="shell"),
    Host(
        "xcode-claude", "Xcode with Claude", Files((f"{_CODING}/ClaudeAgentConfig/.claude.json",)), variables="braces"
    ),
    Host("xcode-codex", "Xcode with Codex", Files((f"{_CODING}/codex/config.toml",)), format="toml", key="mcp_servers"),
)

HOSTS: dict[str, Host] = {host.id: host for host in _ALL}
"""By id, the word before the colon of a target."""

_VARIABLE = re.compile(r"\{(\w+)(?::-([^}]*))?\}")


def system() -> str:
    """`macos`, `linux` (any other Unix too) or `windows`."""
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")


def places(host: Host, environment: Mapping[str, str], system: str) -> list[str]:
    """Where this host keeps its file, the likeliest first, files that are not there among them.

    A pattern gives what it matches; a pattern that matches nothing gives nothing.
    """
    found = []
    for place in getattr(host.files, system):
        path = _path(place, environment, system)
        found += sorted(glob.glob(path)) if "*" in place else [path]
    return found


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
