"""The hosts that start MCP servers, and where each keeps its configuration: `HOSTS`, for reading and writing.

The table is in `assets/hosts.json`, in the order in which commands list the hosts.

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
from msgspec.json import decode

from mcpd.transports.files import bundled_folder


class Files(Struct, frozen=True, forbid_unknown_fields=True):
    """Paths of a host's file on each system, the likeliest first. Empty where the host does not run."""

    macos: tuple[str, ...] = ()
    linux: tuple[str, ...] = ()
    windows: tuple[str, ...] = ()


class HostLimits(Struct, frozen=True, forbid_unknown_fields=True):
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


class Host(Struct, frozen=True, forbid_unknown_fields=True):
    """One host. It reads the first of `files` that exists; `project` are files that a project adds."""

    id: str
    name: str
    files: tuple[str, ...] | Files
    """Paths on all systems, or on each."""
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

    def files_on(self, system: str) -> tuple[str, ...]:
        """Return the paths on one system."""
        return self.files if isinstance(self.files, tuple) else getattr(self.files, system)


def _read_hosts() -> dict[str, Host]:
    with open(os.path.join(bundled_folder(), "hosts.json"), "rb") as file:
        return {host.id: host for host in decode(file.read(), type=list[Host])}


HOSTS = _read_hosts()
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
    for place in host.files_on(system):
        path = _path(place, environment, system)
        if "*" not in place:
            found.append(path)
            continue
        folder, star, name = path.partition("*")
        pattern, separator, below = name.partition(os.sep)
        found += [path + separator + below for path in sorted(glob.glob(folder + star + pattern))]
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
        # A folder of the user may contain characters that a pattern would interpret.
        escaped = folders[name] if default is None else environment.get(name) or default
        return glob.escape(escaped) if "*" in place else escaped

    path = _VARIABLE.sub(folder, place)
    if path.startswith("~/"):
        path = home + path[1:]
    return os.path.normpath(path)
