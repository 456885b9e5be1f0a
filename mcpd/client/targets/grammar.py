"""Reads the text of a target, for `Client` and for every command.

    https://host/mcp, ws://host/mcp     a running server.
    unix:/path, ws+unix:/path           a running server on a unix socket.
    HOST:NAME                           a server of an installed host: claude-code:github.
    FILE.json:NAME                      an entry of an mcpServers file.
    server.py, server.py:object, folder, package.module:object    served by a child process.
    some-server                         a console script of an installed Python package, served by a child process.

The forms are tried in this order. A command is a list of words: a list in Python, or the words behind `--` on a command
line.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules

from mcpd.errors import ConfigurationError
from mcpd.protocol.defaults import DEMO
from .configurations import (
    host_files,
    listed,
    read_file,
    read_host,
    servers_of_host,
    split_file,
)
from .hosts import HOSTS
from .named import CommandTarget, FileTarget, NamedTarget, command_of, is_url, read_url


class UnknownTarget(ConfigurationError):
    """There is no such target. The text suggests similar names; commands add a hint to their help."""


def parse(text: str) -> NamedTarget:
    """Return the target that a text names. Reads files and configurations, but starts nothing and runs no user code.

    Raises ConfigurationError, with suggestions.
    """
    text = text.strip()
    if not text:
        raise UnknownTarget("the target is empty")
    if is_url(text):
        return read_url(text)
    # Before anything else, because a file or package may have the same name.
    if text == DEMO:
        return FileTarget(DEMO)

    host, colon, name = text.partition(":")
    if colon and host in HOSTS:
        return read_host(HOSTS[host], name)
    # Before files and modules: `mcp.json:github` is no Python file.
    found = split_file(text)
    if found is not None:
        return read_file(*found)
    return _file(text)


def from_words(target: str | None, command_words: Sequence[str] = ()) -> NamedTarget:
    """Return the target of a command line: the words behind `--` are a command; otherwise TARGET, or the default.

    Raises ConfigurationError if both are given.
    """
    if command_words:
        if target is not None:
            raise ConfigurationError(f"use either the target {target} or a command after --, not both")
        return CommandTarget(tuple(command_words))
    return command_of(None) if target is None else parse(target)


def _file(text: str) -> FileTarget:
    place, colon, attribute = text.rpartition(":")
    if not colon or attribute.endswith(".py") or os.sep in attribute or "/" in attribute:
        place, attribute = text, ""
    path = os.path.expanduser(place)
    # Like `mcpd serve`: the name of a package in this folder is a module.
    is_package = place.isidentifier() and os.path.isfile(os.path.join(path, "__init__.py"))
    if (os.path.isdir(path) and not is_package) or (os.path.isfile(path) and path.endswith(".py")):
        return FileTarget(os.path.abspath(path), attribute)

    is_module = all(part.isidentifier() for part in place.split("."))
    is_file = os.path.exists(path) or (not attribute and os.path.isfile(f"{path}.py"))
    is_misspelt = "." in place and bool(_near_module(place))
    if is_module and (is_package or not is_file) and _has_top(place) and not is_misspelt:
        return FileTarget(place, attribute)
    if not attribute and not is_file and installed_commands(place):
        return FileTarget(place)
    raise UnknownTarget(_why_not(text, place, path))


def _has_top(name: str) -> bool:
    # Whether the outermost package or module of that name exists. It is not imported.
    top, dot, _ = name.partition(".")
    try:
        spec = PathFinder.find_spec(top, [os.getcwd(), *sys.path])
    except (ImportError, ValueError):
        return False
    return spec is not None and (not dot or spec.submodule_search_locations is not None)


def installed_commands(name: str) -> list[EntryPoint]:
    """The console script of this name, or all console scripts of the package of this name."""
    wanted = _normalized(name)
    found = []
    for each in entry_points(group="console_scripts"):
        if _normalized(each.name) == wanted:
            return [each]
        if wanted in (_normalized(each.module.partition(".")[0]), each.dist and _normalized(each.dist.name)):
            found.append(each)
    return found


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def near_target(place: str, attribute: str = "") -> str:
    """Return `; did you mean …?` with the nearest file, folder or module; "" if nothing is near."""
    folder, base = os.path.split(os.path.expanduser(place))
    known = {}
    for name in listed(folder):
        if name.startswith((".", "_")):
            continue
        if name.endswith(".py"):
            known[name] = known[name.removesuffix(".py")] = name
        elif not attribute and os.path.isdir(os.path.join(folder, name)):
            known[name] = name

    near = get_close_matches(base, known, 1)
    found = os.path.join(os.path.dirname(place), known[near[0]]) if near else ""
    if not found and not folder and (attribute or "." in place):
        found = _near_module(place)
    return f"; did you mean {found}{f':{attribute}' if attribute else ''}?" if found else ""


def _near_module(name: str) -> str:
    # The module nearest to a dotted name with one typo; "" if nothing is near.
    parts = name.split(".")
    search = [os.getcwd(), *sys.path]
    for at, part in enumerate(parts):
        spec = PathFinder.find_spec(part, search)
        if spec is None:
            near = get_close_matches(part, [module.name for module in iter_modules(search)], 1, 0.75)
            return ".".join([*parts[:at], *near, *parts[at + 1 :]]) if near else ""
        search = list(spec.submodule_search_locations or ())
    return ""


def _why_not(text: str, place: str, path: str) -> str:
    if os.path.isfile(path):
        return f"{place} is not a Python file; to run it as a command, use mcpd … -- {place}, or [{place!r}] in Python"
    if place in HOSTS or text in HOSTS:
        return _of_host(text)
    if " " in text:
        return f"{text}: no such file; to run a command, put its words after -- on the command line, or in a list"
    first, _, last = text.rpartition(":")
    port = last.partition("/")[0]
    if port.isdigit() and first and "/" not in first:
        return f"{text}: use the whole URL: http://{first}:{last if '/' in last else f'{last}/mcp'}"

    if path.endswith(".py") or os.sep in place:
        where = "" if os.path.isabs(path) else f" in {os.getcwd()}"
        return f"{place}: no such file{near_target(place) or where}"

    first, _, name = text.partition(":")
    if first in _WITHOUT_FILE:
        return f"{text}: {_WITHOUT_FILE[first].replace('NAME', name or 'NAME')}"
    near = get_close_matches(first, HOSTS, 1)
    if near and ":" in text:
        return f"{text}: no such host; did you mean {near[0]}:{text.partition(':')[2]}?"
    near_name = near_target(place, text[len(place) + 1 :]) or install_hint(text)
    return f"{text}: no such file, folder or module{near_name}"


def install_hint(text: str) -> str:
    """Return how to install the command of a package, if the text looks like a package name (mcp-server-time)."""
    if not _COMMAND.fullmatch(text):
        return ""
    return f"; if it is the command of a Python package, install it: {sys.executable} -m pip install {text}"


_COMMAND = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_IN_SETTINGS = "keeps its servers in its settings, not in a file: use the URL or the command from there"
# Hosts without a configuration file on the user's machine, and what to do.
_WITHOUT_FILE = {
    "librechat": "LibreChat keeps its servers in the librechat.yaml of its deployment: use librechat.yaml:NAME",
    "jetbrains-ai": f"JetBrains AI Assistant {_IN_SETTINGS}",
    "chatgpt": f"ChatGPT {_IN_SETTINGS}",
    "claude-ai": f"claude.ai {_IN_SETTINGS}",
    "open-webui": f"Open WebUI {_IN_SETTINGS}",
}


def _of_host(text: str) -> str:
    host = HOSTS[text]
    names = sorted(servers_of_host(host, host_files(host)))
    if not names:
        return f"{text} is a host with no servers in its configuration"
    listed = ", ".join(names)
    return f"{text} is a host: add the name of a server, for example {text}:{names[0]}; available: {listed}"
