"""Servers out of configuration files: `FILE.json:NAME`, and `HOST:NAME` from what an installed host is set up with.

Files are read, never written. Of a host its user's own file is read and not what a project folder brings along: that
is somebody else's until its host has asked, and a file like any other (`.mcp.json:NAME`) for who means it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from mcpd.client.targets.documents import format_of, read_document
from mcpd.client.targets.entries import read_entry
from mcpd.client.targets.hosts import HOSTS, Host, places, system
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.client.targets.variables import Variables
from mcpd.errors import ConfigurationError

_KEYS = ("mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "extensions")
_MOST_NAMES = 12


def split_file(text: str) -> tuple[str, str] | None:
    """The file and the name in `FILE.json:NAME`; the name is "" without one. None if no such file is meant."""
    colon = len(text)
    while True:
        place = text[:colon]
        if format_of(place) is not None and os.path.basename(place):
            return place, text[colon + 1 :]
        colon = text.rfind(":", 0, colon)
        if colon < 0:
            return None


def read_file(path: str, name: str, environment: Mapping[str, str] = os.environ) -> CommandTarget | UrlTarget:
    """The server of this name in a configuration file; without a name the only one. Raises ConfigurationError."""
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
    """The targets of all servers of a configuration file, or of an installed host, by name; not what is switched off.

    Raises ConfigurationError for a file that is not there or cannot be read, and for a text that names neither.
    """
    host = HOSTS.get(text)
    servers: dict[str, Any] = {}
    if host is not None:
        for path in host_files(host):
            servers = {**host_servers(host, path), **servers}
    else:
        kind, full = format_of(text), os.path.expanduser(text)
        if kind is None:
            raise ConfigurationError(f"{text}: neither a configuration file nor one of the hosts {', '.join(HOSTS)}")
        if not os.path.isfile(full):
            raise ConfigurationError(f"{text}: no such file{_near_file(full)}")
        servers = _servers(read_document(full, kind), text)

    is_off = [name for name, entry in servers.items() if isinstance(entry, dict) and _is_off(entry)]
    found = {name: f"{text}:{name}" for name in servers if name not in is_off}
    if not found:
        raise ConfigurationError(f"{text}: there is no server in it" + (" that is not switched off" if is_off else ""))
    return found


def _is_off(entry: dict[str, Any]) -> bool:
    return entry.get("disabled") is True or entry.get("enabled") is False


def host_files(host: Host, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The files of this host that are there, the likeliest first."""
    return [path for path in places(host, environment, system()) if os.path.isfile(path)]


def host_servers(host: Host, path: str) -> dict[str, Any]:
    """The entries of all servers in a file of this host, by name. Raises ConfigurationError for a file that is bad."""
    return servers_in(host, read_document(path, _kind(host)))


def servers_in(host: Host, document: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a file that was read already."""
    servers = _by_name(document.get(host.key))
    folders = document.get(host.folders) if host.folders else None
    if isinstance(folders, dict):
        # What belongs to one folder goes before what belongs to all.
        found: dict[str, Any] = next(
            (folders[each] for each in _upwards(os.getcwd()) if isinstance(folders.get(each), dict)), {}
        )
        servers = {**servers, **_by_name(found.get(host.key))}
    return servers


def read_host(host: Host, name: str, environment: Mapping[str, str] = os.environ) -> CommandTarget | UrlTarget:
    """The server that this host calls so. Raises ConfigurationError that says what the host has."""
    files = host_files(host, environment)
    if not files:
        looked = " and ".join(places(host, environment, system())) or "nowhere: it does not run on this system"
        raise ConfigurationError(f"{host.id}:{name}: {host.name} has no configuration here (looked at {looked})")

    found: dict[str, Any] = {}
    for path in files:
        found = {**host_servers(host, path), **found}
    if name not in found:
        for project in host.project:
            if os.path.isfile(project) and name in _by_name(read_document(project, _kind(host)).get(host.key)):
                raise ConfigurationError(
                    f"{host.id}:{name}: {host.name} has it for this folder only; if you trust {project}, "
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
        return f"{place}: there are no servers in it"
    names = sorted(servers)
    listed = ", ".join(names[:_MOST_NAMES]) + (f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else "")
    if not name:
        return f"{place}: name one of its servers, as {place}:{names[0]}; there are {listed}"
    near = get_close_matches(name, names, 1)
    if near:
        return f"{place}:{name}: there is no server of this name; did you mean {place}:{near[0]}? There are {listed}"
    return f"{place}:{name}: there is no server of this name; there are {listed}"


def _servers(document: dict[str, Any], path: str) -> dict[str, Any]:
    """The servers of a file whose host is not known: by the first key that is there, or the file is one entry."""
    for key in _KEYS:
        if key in document:
            return _by_name(document[key])
    raise ConfigurationError(f"{path}: there is no mcpServers in it, nor servers, context_servers, mcp_servers or mcp")


def _by_name(found: Any) -> dict[str, Any]:
    if isinstance(found, list):
        return {str(each.get("name")): each for each in found if isinstance(each, dict) and each.get("name")}
    return {str(name): entry for name, entry in found.items()} if isinstance(found, dict) else {}


def _upwards(folder: str) -> list[str]:
    """This folder and all that it is in, as Claude Code writes them."""
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
