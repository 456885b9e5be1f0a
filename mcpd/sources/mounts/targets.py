"""The servers to mount that a command line or a file names.

https://host/mcp, ws://host/mcp, unix:/path    a running server.
FILE.json                                      all servers of an mcpServers file; FILE.json:NAME is one of them.
the words behind --                            a command.
[mounts.NAME] in mcpd.toml                     a command or URL, and settings.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from mcpd.client.names import server_names
from mcpd.client.targets.configurations import (
    Variables,
    is_disabled,
    read_entry,
    read_servers,
    split_file,
)
from mcpd.client.targets.named import CommandTarget, UrlTarget, is_url, read_url
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from .settings import MountSettings, MountTable, read_settings, settings_of

log = logging.getLogger("mcpd.mounts")

_ALLOW = ("includeTools", "enabled_tools", "tools")
_DENY = ("excludeTools", "disabled_tools")
_RUNNERS = re.compile(
    r"(python[\d.]*|node|npx|bunx?|deno|uvx?|pipx|docker|podman|run|exec|dlx|x|tool|-m)(\.exe|\.cmd)?"
)


class Wanted(Struct, frozen=True):
    """A server to mount. `problem` says why it cannot be mounted; then the others are."""

    name: str
    target: CommandTarget | UrlTarget | None
    settings: MountSettings = MountSettings()
    secrets: frozenset[str] = frozenset()
    """The values of variables in it."""
    problem: str = ""


def wanted_by(targets: Sequence[str], command: Sequence[str] = (), others: Sequence[Wanted] = ()) -> list[Wanted]:
    """Return the servers that the words of a command line name, after `others`. Raises ConfigurationError."""
    found = list(others)
    for text in targets:
        if is_url(text):
            found.append(Wanted(_name_of_url(text), read_url(text)))
            continue
        named = split_file(text)
        if named is None:
            raise ConfigurationError(f"{text} cannot be mounted; name a URL, or a file with mcpServers")
        found += servers_in(*named)

    if command:
        found.append(Wanted(_name_of_command(command), CommandTarget(tuple(command))))
    return _with_names(found)


def _with_names(found: list[Wanted]) -> list[Wanted]:
    # A name that is used twice gets a number.
    taken: set[str] = set()
    named = []
    for each in found:
        name, number = each.name, 1
        while name in taken:
            number += 1
            name = f"{each.name[:28]}-{number}"
        taken.add(name)
        named.append(replace(each, name=name))
    return named


def _mended(text: str) -> str:
    try:
        return next(iter(server_names([text]).values()))
    except ConfigurationError:
        return "server"


def _name_of_url(text: str) -> str:
    parts = urlsplit(text)
    return _mended(parts.netloc.rpartition("@")[2] or os.path.basename(parts.path).partition(".")[0])


def _name_of_command(command: Sequence[str]) -> str:
    # The program, without what starts it: `npx -y @scope/some-server@1.2` is some-server.
    names = [os.path.basename(word) for word in command if not word.startswith("-")]
    name = next((each for each in names if not _RUNNERS.fullmatch(each)), names[0] if names else command[0])
    return _mended(re.sub(r"(?<=.)@.*|\.(py|js|mjs|ts|sh|exe)$", "", name))


def servers_in(path: str, name: str = "") -> list[Wanted]:
    """Return the servers of an mcpServers file, or the one of this name. Raises ConfigurationError."""
    servers = read_servers(path)
    if name and name not in servers:
        raise ConfigurationError(f"{path}:{name}: no such server; available: {', '.join(servers)}")
    entries = {name: servers[name]} if name else {each: servers[each] for each in servers}
    entries = {each: entry for each, entry in entries.items() if name or not is_disabled(entry)}
    if not entries:
        raise ConfigurationError(f"{path}: {'all its servers are disabled' if servers else 'contains no servers'}")
    if any(isinstance(entry, dict) and "timeout" in entry for entry in entries.values()):
        text = "%s: timeout is not read, because hosts disagree on its unit; use [mounts.NAME] in mcpd.toml"
        log.info(text, printable(path))
    folder = os.path.dirname(os.path.abspath(os.path.expanduser(path)))
    return [_of_host(mended, entries[own], f"{path}:{own}", folder) for own, mended in server_names(entries).items()]


def _of_host(name: str, entry: Any, where: str, folder: str) -> Wanted:
    settings: dict[str, Any] = {}
    for key, members in (("allow", _ALLOW), ("deny", _DENY)):
        given = next((entry[each] for each in members if isinstance(entry, dict) and each in entry), None)
        if isinstance(given, list) and "*" not in given:
            settings[key] = [str(each) for each in given]
    return _wanted(name, entry, read_settings(name, settings), where, folder)


def of_table(tables: Mapping[str, Mapping[str, Any]], file: str) -> list[Wanted]:
    """Return the servers in the `[mounts]` of an mcpd.toml. Raises ConfigurationError."""
    folder = os.path.dirname(os.path.abspath(file))
    found = []
    for name, table in tables.items():
        read = read_settings(name, table, MountTable)
        place = {"command": read.command, "args": list(read.args), "env": read.env, "envFile": read.env_file}
        place |= {"cwd": read.cwd, "url": read.url, "headers": read.headers}
        place["command"] = list(read.command) if isinstance(read.command, tuple) else read.command
        place = {key: value for key, value in place.items() if value}
        found.append(_wanted(name, place, settings_of(read), f"{printable(file)}, mounts.{name}", folder))
    return found


def _wanted(name: str, entry: Any, found: MountSettings, where: str, folder: str) -> Wanted:
    variables = Variables("strict", os.environ, where, folder=folder)
    try:
        target = read_entry(entry, variables, where)
    except ConfigurationError as error:
        return Wanted(name, None, found, problem=str(error))

    if isinstance(target, CommandTarget):
        cwd = os.path.join(folder, os.path.expanduser(target.cwd or ""))
        target = replace(target, cwd=os.path.normpath(cwd), name=name)
    else:
        target = replace(target, name=name)

    secrets = frozenset(each for each in variables.used if each)
    return Wanted(name, target, found, secrets)


def named_here(name: str) -> Wanted | None:
    """Return the mount of this name in the mcpd.toml that is here or above; None without one."""
    from mcpd.sources.configuration import read
    from mcpd.sources.lookup import folder_here

    place = folder_here() if name.isascii() and name.replace("-", "").isalnum() else None
    tables = read(place.file).mounts if place is not None and place.file else {}
    return of_table({name: tables[name]}, place.file)[0] if place is not None and name in tables else None
