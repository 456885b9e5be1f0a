"""From a target, or from none, to the folder that is meant. Looks at names only; nothing is loaded here.

With no target: the folder of the next `mcpd.toml`, here or above; else that of the next `pyproject.toml` with a
`[tool.mcpd]`; else this one, if it has one of the sub-folders that are known by their names, and no file or folder in
it is a server. `docs/` alone says nothing in a repository or a Python project: most have one, and none means this by
it.
"""

from __future__ import annotations

import os
import re

from msgspec import Struct

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

FILE = "mcpd.toml"
FOLDERS = ("tools", "apps", "resources", "prompts", "skills", "docs")
"""The sub-folders that make a folder a server."""

_SERVER = re.compile(
    rb"^\s*(?:from|import)\s+(?:mcpd|mcp|fastmcp)\b(?s:.*)\b(?:Server|FastMCP|MCPServer)(?:\[\w+\])?\(", re.MULTILINE
)
"""A file that imports a library for servers and makes a server."""

_MOST_LISTED = 200
_MOST_FILE_BYTES = 64 * 1024
_PROJECT = "pyproject.toml"
_MOST_PROJECT_BYTES = 1024 * 1024


class ServerFolder(Struct, frozen=True):
    """A folder that is a server."""

    root: str
    """Its absolute path."""
    file: str = ""
    """The file that says how it is served; "" if there is none."""
    is_trusted: bool = True
    """Whether its code may be imported: it was named, or has a file that says it is a server (D9)."""
    others_file: str = ""
    """A file that was passed over, because it is another user's."""


def place_of(folder: str) -> ServerFolder:
    """The folder that was named."""
    root = os.path.abspath(folder)
    return ServerFolder(root, _file_in(root))


def place_here(*, has_demo: bool = True) -> ServerFolder | None:
    """The folder that is meant where no target was named; None if there is none.

    Raises ConfigurationError if a file or folder beside it is a server: its name was forgotten. The message offers the
    demo server if the command `has_demo`.

    A file of another user says nothing: in a folder where everybody may write, it would be anybody's.
    """
    try:
        here = os.getcwd()
    except OSError:  # somebody has removed it
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
    return ServerFolder(here, is_trusted=False, others_file=others) if is_folder else None


def _servers_in(folder: str) -> list[str]:
    """The Python files of a folder that make a server, and its folders that have an mcpd.toml."""
    try:
        names = sorted(name for name in os.listdir(folder) if name[0] not in "._")[:_MOST_LISTED]
    except OSError:
        return []
    return [name for name in names if _own(os.path.join(folder, name)) or _makes_server(folder, name)]


def _makes_server(folder: str, name: str) -> bool:
    path = os.path.join(folder, name)
    if not name.endswith(".py") or name.startswith("test_") or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return _SERVER.search(file.read(_MOST_FILE_BYTES)) is not None
    except OSError:
        return False


def _is_project(folder: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, name)) for name in (".git", _PROJECT))


def _upwards(folder: str) -> list[str]:
    found = [folder]
    while (above := os.path.dirname(folder)) != folder:
        found.append(folder := above)
    return found


def _file_in(root: str) -> str:
    return _own(root) or _project(root)


def _own(folder: str) -> str:
    path = os.path.join(folder, FILE)
    return path if os.path.isfile(path) else ""


def _project(folder: str) -> str:
    """The folder's pyproject.toml, if it says something to us."""
    path = os.path.join(folder, _PROJECT)
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            return path if b"tool.mcpd" in file.read(_MOST_PROJECT_BYTES) else ""
    except OSError:
        return ""


def _is_ours(path: str) -> bool:
    if not hasattr(os, "getuid"):
        return True
    try:
        return os.stat(path).st_uid in (0, os.getuid())
    except OSError:
        return False
