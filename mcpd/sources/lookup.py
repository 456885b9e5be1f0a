"""Finds the folder to serve, by names only; no code or configuration is loaded.

Without a target, the folder is the first of these: the folder of the nearest `mcpd.toml`, here or above; the folder of
the nearest `pyproject.toml` with `[tool.mcpd]`; the current folder, if it has one of the known sub-folders and contains
no other server. `docs/` does not count in a repository or Python project, because most of these have one.
"""

from __future__ import annotations

import os
import re

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

FILE = "mcpd.toml"
FOLDERS = ("tools", "apps", "resources", "prompts", "skills", "docs")
"""Sub-folders that make a folder a server."""

# Matches a file that imports a library for servers and creates a server.
_SERVER = re.compile(
    rb"^\s*(?:from|import)\s+(?:mcpd|mcp|fastmcp)\b(?s:.*)\b(?:Server|FastMCP|MCPServer)(?:\[\w+\])?\(", re.MULTILINE
)

_MAX_LISTED = 200
_MAX_FILE_BYTES = 64 * 1024
_PROJECT = "pyproject.toml"
_MAX_PROJECT_BYTES = 1024 * 1024


class ServerFolder(Struct, frozen=True):
    root: str
    """The absolute path."""
    file: str = ""
    """The path of the configuration file, or ""."""
    # Code is imported only if the folder was named, or has a configuration file (D9).
    is_trusted: bool = True
    # A configuration file that was ignored because it belongs to another user.
    ignored_file: str = ""


def folder_at(folder: str) -> ServerFolder:
    root = os.path.abspath(folder)
    return ServerFolder(root, _own(root) or _project(root))


def folder_here(*, has_demo: bool = True) -> ServerFolder | None:
    # Configuration files of other users are ignored, because everybody may write to folders such as `/tmp`. If another
    # server is here, ConfigurationError is raised; it mentions `--demo` if the command `has_demo`.
    try:
        here = os.getcwd()
    except OSError:  # the current folder was deleted
        return None
    others = ""
    for find in (_own, _project):
        for folder in _upwards(here):
            file = find(folder)
            if file and _is_ours(file):
                return ServerFolder(folder, file)
            others = others or file

    named = [name for name in FOLDERS if name != "docs" or not _is_project(here)]
    is_folder = any(os.path.isdir(os.path.join(here, name)) for name in named)
    beside = _servers_in(here)
    if beside:
        which = f"{beside[0]}, which is here" if len(beside) == 1 else f"one of these: {', '.join(beside[:5])}"
        which += ", or . for this folder" if is_folder else ""
        demo = ", or write --demo for the demo server of mcpd" if has_demo else ""
        raise ConfigurationError(f"no server was named; name {printable(which)}{demo}")

    return ServerFolder(here, is_trusted=False, ignored_file=others) if is_folder else None


def is_openapi(target: str) -> bool:
    """Return whether a target is an OpenAPI document: `openapi:PLACE`, a JSON or YAML file, or the URL of one."""
    if "://" in target or target.startswith("openapi:"):
        return True
    try:
        with open(target, "rb") as file:
            return re.search(rb"""["']?(?:openapi|swagger)["']?\s*:\s*["']?\d""", file.read()) is not None
    except OSError:
        return False


def _servers_in(folder: str) -> list[str]:
    # Return the names of Python files that create a server and of folders with an `mcpd.toml`.
    try:
        names = sorted(name for name in os.listdir(folder) if name[0] not in "._")[:_MAX_LISTED]
    except OSError:
        return []
    paths = {name: os.path.join(folder, name) for name in names}
    return [name for name, path in paths.items() if _own(path) or _makes_server(path)]


def _makes_server(path: str) -> bool:
    # A pipe is never opened.
    if not path.endswith(".py") or os.path.basename(path).startswith("test_") or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return _SERVER.search(file.read(_MAX_FILE_BYTES)) is not None
    except OSError:
        return False


def _is_project(folder: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, name)) for name in (".git", _PROJECT))


def _upwards(folder: str) -> list[str]:
    found = [folder]
    while (above := os.path.dirname(folder)) != folder:
        found.append(folder := above)
    return found


def _own(folder: str) -> str:
    path = os.path.join(folder, FILE)
    return path if os.path.isfile(path) else ""


def _project(folder: str) -> str:
    path = os.path.join(folder, _PROJECT)
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            return path if b"tool.mcpd" in file.read(_MAX_PROJECT_BYTES) else ""
    except OSError:
        return ""


def _is_ours(path: str) -> bool:
    if not hasattr(os, "getuid"):
        return True
    try:
        return os.stat(path).st_uid in (0, os.getuid())
    except OSError:
        return False
