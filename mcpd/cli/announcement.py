"""What `mcpd serve` says when it listens: where, and what Claude Desktop wants in its configuration."""

from __future__ import annotations

import os
import sys
from typing import Any

from msgspec.json import encode, format

from .launch import Options
from .target import split

__all__ = ["claude_desktop", "lines"]


def lines(url: str, name: str, options: Options) -> list[str]:
    """The lines for one address. Who serves stdio too was started by a host, and needs no word on Claude Desktop."""
    found = [f"mcpd: listening on {url} (Ctrl-C ends it)"]
    if not options.stdio:
        block = {"mcpServers": {name: claude_desktop(options.target)}}
        found.append(
            "mcpd: Claude Desktop starts its servers itself, over stdio. For this one, put the next line into its"
        )
        found.append("mcpd: claude_desktop_config.json (Settings > Developer > Edit Config) and start it again:")
        found.append(format(encode(block), indent=0).decode())
    return found


def claude_desktop(target: str | None) -> dict[str, Any]:
    """The entry of one server in claude_desktop_config.json.

    Every path is absolute: Claude Desktop starts programs in another folder and with another PATH.
    """
    entry: dict[str, Any] = {"command": sys.executable, "args": ["-m", "mcpd", "serve", "--stdio"]}
    command = _installed_command()
    if command is not None:
        entry = {"command": command, "args": ["serve", "--stdio"]}
    if target is not None:
        place, attribute = split(target)
        if os.path.isfile(place):
            place = os.path.abspath(place)
        elif _is_found_here(place):
            entry["env"] = {"PYTHONPATH": os.getcwd()}
        entry["args"].append(f"{place}:{attribute}" if attribute else place)
    return entry


def _installed_command() -> str | None:
    """The `mcpd` script of this very installation, if it has one."""
    beside = os.path.join(os.path.dirname(sys.executable), "mcpd")
    for candidate in (os.path.abspath(sys.argv[0]), beside):
        if os.path.basename(candidate) == "mcpd" and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    return None


def _is_found_here(module: str) -> bool:
    """Whether a module was imported from the current folder, which Claude Desktop does not know."""
    path = getattr(sys.modules.get(module), "__file__", None)
    return path is not None and os.path.abspath(path).startswith(os.getcwd() + os.sep)
