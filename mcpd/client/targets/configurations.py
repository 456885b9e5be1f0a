"""Servers from configuration files: `FILE.json:NAME`, and `HOST:NAME` from the configuration of an installed host.

Files are only read. For a host, only the user's own file is read. A project's file comes from somebody else, so the
user must name it as a file (`.mcp.json:NAME`). Errors never show values of a file, because they may be tokens.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from mcpd.client.targets.entries import Variables, read_entry
from mcpd.client.targets.hosts import HOSTS, Host, places, system
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import ConfigurationError

FORMATS = {".json": "json", ".jsonc": "json", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
"""The format of a file by its suffix. JSON may always contain comments, as most hosts allow them."""

MOST_BYTES = 64 * 1024 * 1024

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_NOT_A_LINE_END = re.compile(r"[^\n]")


def format_of(path: str) -> str | None:
    """The format of a file by its name; None if it is not a configuration file."""
    return FORMATS.get(os.path.splitext(path)[1].lower())


def read_document(path: str, kind: str) -> dict[str, Any]:
    """Read a file of this format as an object. Raises ConfigurationError, with the position of a syntax error."""
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise ConfigurationError(f"{path} is too large for a configuration file: more than {MOST_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not valid UTF-8: byte {error.start}") from None

    found = _READERS[kind](text, path) if text.strip() else {}
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path}: the file must contain an object, not a {type(found).__name__}")
    return found


def without_comments(text: str) -> str:
    """Replace comments and trailing commas of JSON by blanks. All other text keeps its line and column."""
    return _COMMA.sub(_blank, _COMMENT.sub(_blank, text))


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else _NOT_A_LINE_END.sub(" ", found)


def _json(text: str, path: str) -> Any:
    try:
        return json.loads(without_comments(text))
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: the file is nested too deeply") from None


def _toml(text: str, path: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _yaml(text: str, path: str) -> Any:
    load, problem = _yaml_library(path)
    try:
        return load(text)
    except (problem, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise ConfigurationError(f"{path}{place}: {getattr(error, 'problem', None) or 'invalid YAML'}") from None


def _yaml_library(path: str) -> tuple[Callable[[str], Any], type[Exception]]:
    """Return a YAML loader and its exception: from PyYAML, or from ruamel.yaml, which `mcpd install` uses."""
    try:
        yaml: Any = import_module("yaml")
        return yaml.safe_load, yaml.YAMLError
    except ImportError:
        pass
    try:
        ruamel: Any = import_module("ruamel.yaml")
    except ImportError:
        raise ConfigurationError(f"{path}: YAML needs a package: pip install 'mcpd-server[install]'") from None
    return ruamel.YAML(typ="safe", pure=True).load, ruamel.error.YAMLError


_READERS = {"json": _json, "toml": _toml, "yaml": _yaml}

_KEYS = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "extensions")
_MOST_NAMES = 12


def split_file(text: str) -> tuple[str, str] | None:
    """Split `FILE.json:NAME` into file and name. The name is "" if it is missing; None if no such file is meant."""
    colon = len(text)
    while True:
        place = text[:colon]
        if format_of(place) is not None and os.path.basename(place):
            return place, text[colon + 1 :]
        colon = text.rfind(":", 0, colon)
        if colon < 0:
            return None


def read_file(path: str, name: str, environment: Mapping[str, str] = os.environ) -> CommandTarget | UrlTarget:
    """Return the server of this name in a configuration file. Without a name, the file must have exactly one server.

    Raises ConfigurationError.
    """
    kind = format_of(path)
    assert kind is not None
    full = os.path.expanduser(path)
    if not os.path.isfile(full):
        raise ConfigurationError(f"{path}: no such file{_near_file(full)}")
    servers = _servers(read_document(full, kind), path)
    if not name and len(servers) == 1:
        (name,) = servers
    return _read(servers, name, path, "file", environment)


def all_servers(text: str) -> dict[str, str]:
    """Return the targets of all enabled servers of a configuration file or an installed host, by name.

    Raises ConfigurationError for a file that is missing or invalid, and for a text that names neither.
    """
    host = HOSTS.get(text)
    servers: dict[str, Any] = {}
    if host is not None:
        for path in host_files(host):
            servers = {**host_servers(host, path), **servers}
    else:
        kind, full = format_of(text), os.path.expanduser(text)
        if kind is None:
            raise ConfigurationError(f"{text}: not a configuration file, and none of the hosts {', '.join(HOSTS)}")
        if not os.path.isfile(full):
            raise ConfigurationError(f"{text}: no such file{_near_file(full)}")
        servers = _servers(read_document(full, kind), text)

    is_off = [name for name, entry in servers.items() if isinstance(entry, dict) and _is_off(entry)]
    found = {name: f"{text}:{name}" for name in servers if name not in is_off}
    if not found:
        raise ConfigurationError(f"{text}: " + ("all its servers are disabled" if is_off else "contains no servers"))
    return found


def _is_off(entry: dict[str, Any]) -> bool:
    return entry.get("disabled") is True or entry.get("enabled") is False


def host_files(host: Host, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The existing configuration files of this host, the likeliest first."""
    return [path for path in places(host, environment, system()) if os.path.isfile(path)]


def host_servers(host: Host, path: str) -> dict[str, Any]:
    """Return the entries of all servers in a file of this host, by name. Raises ConfigurationError."""
    return servers_in(host, read_document(path, _kind(host)))


def servers_in(host: Host, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of all servers in a file of this host that was already read, by name."""
    servers = _by_name(document.get(host.key))
    folders = document.get(host.folders) if host.folders else None
    if isinstance(folders, dict):
        # Entries of one folder take precedence over the entries for all folders.
        found: dict[str, Any] = next(
            (folders[each] for each in _upwards(os.getcwd()) if isinstance(folders.get(each), dict)), {}
        )
        servers = {**servers, **_by_name(found.get(host.key))}
    return servers


def read_host(host: Host, name: str, environment: Mapping[str, str] = os.environ) -> CommandTarget | UrlTarget:
    """Return the server of this name in the host's configuration. Raises ConfigurationError."""
    files = host_files(host, environment)
    if not files:
        paths = " and ".join(places(host, environment, system()))
        problem = f"has no configuration file at {paths}" if paths else "does not run on this system"
        raise ConfigurationError(f"{host.id}:{name}: {host.name} {problem}")

    found: dict[str, Any] = {}
    for path in files:
        found = {**host_servers(host, path), **found}
    if name not in found:
        for project in host.project:
            if os.path.isfile(project) and name in _by_name(read_document(project, _kind(host)).get(host.key)):
                raise ConfigurationError(
                    f"{host.id}:{name}: {host.name} uses this server in this folder only; if you trust {project}, "
                    f"write {project}:{name}"
                )
    return _read(found, name, host.id, host.variables, environment)


def _kind(host: Host) -> str:
    return "json" if host.format == "jsonc" else host.format


def _read(
    servers: dict[str, Any], name: str, place: str, dialect: str, environment: Mapping[str, str]
) -> CommandTarget | UrlTarget:
    where = f"{place}:{name}"
    if name not in servers:
        raise ConfigurationError(_no_server(servers, name, place))
    variables = Variables(dialect, environment, where, is_windows=sys.platform == "win32")
    return read_entry(servers[name], variables, where)


def _no_server(servers: dict[str, Any], name: str, place: str) -> str:
    if not servers:
        return f"{place} contains no servers"
    names = sorted(servers)
    listed = ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else "")
    if not name:
        return f"{place}: add the name of a server, for example {place}:{names[0]}; available: {listed}"
    near = get_close_matches(name, names, 1)
    if near:
        return f"{place}:{name}: no such server; did you mean {place}:{near[0]}? Available: {listed}"
    return f"{place}:{name}: no such server; available: {listed}"


def _servers(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The servers of a file of an unknown host, from the first known key."""
    for key in _KEYS:
        if key in document:
            return _by_name(document[key])
    raise ConfigurationError(f"{path}: no mcpServers, servers, context_servers, mcp_servers or mcp in this file")


def _by_name(found: Any) -> dict[str, Any]:
    if isinstance(found, list):
        return {str(each.get("name")): each for each in found if isinstance(each, dict) and each.get("name")}
    return {str(name): entry for name, entry in found.items()} if isinstance(found, dict) else {}


def _upwards(folder: str) -> list[str]:
    """The folder and its parents, as Claude Code writes them."""
    found = [folder]
    while (folder := os.path.dirname(found[-1])) != found[-1]:
        found.append(folder)
    return [path.replace(os.sep, "/") for path in found]


def _near_file(path: str) -> str:
    folder, name = os.path.split(path)
    try:
        there = [each for each in os.listdir(folder or ".") if format_of(each) is not None]
    except OSError:
        return ""
    near = get_close_matches(name, there, 1)
    return f"; did you mean {os.path.join(folder, near[0])}?" if near else ""
