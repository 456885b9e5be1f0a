"""Approval files: compare what a server offers with a file that was written and approved earlier.

`mcpd check --lock` and the pytest fixture `mcpd_lock` use them. A change is breaking if calls that worked before fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.json import decode, encode, format

from mcpd.errors import ConfigurationError
from mcpd.protocol.jsonrpc import MALFORMED, encode as encode_message
from mcpd.server import Server
from .schema_changes import Found, compare_schemas, shown

_FORMAT = "mcpdLock"
_VERSION = 1
# A larger file is not an approval file: a device may have no end.
_MAX_BYTES = 64 * 1024 * 1024

# The kinds of entries, and the member that identifies an entry.
KINDS = {"tools": "name", "resources": "uri", "resourceTemplates": "uriTemplate", "prompts": "name"}

_NAMES = {"tools": "tool", "resources": "resource", "resourceTemplates": "resource template", "prompts": "prompt"}

# `server`, and a list of entries for each of `KINDS`.
Offerings: TypeAlias = dict[str, Any]


class Change(Struct, frozen=True):
    """A change, such as `tool add: argument b is now required`."""

    # The entry that changed, such as `tool add`.
    where: str
    text: str
    is_breaking: bool

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


def write_lock(server: Server, path: str | os.PathLike[str]) -> list[Change]:
    """Write an approval file; returns the changes since the previous file. Raises ConfigurationError."""
    now = _locked(server)
    try:
        changes = compare(_read(path), now)
    except (FileNotFoundError, ConfigurationError):
        changes = []

    try:
        Path(path).write_bytes(format(encode(_keyed(now), order="sorted"), indent=2) + b"\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from None
    return changes


def check_lock(server: Server, path: str | os.PathLike[str]) -> list[Change] | None:
    """The changes since a file was written; None without a file. Raises ConfigurationError."""
    try:
        return compare(_read(path), _locked(server))
    except FileNotFoundError:
        return None


def _locked(server: Server) -> Offerings:
    found = offerings(server)
    found["server"].pop("version", None)
    return found


def _keyed(found: Offerings) -> dict[str, Any]:
    # A new entry is then a small difference in the file.
    keyed: dict[str, Any] = {_FORMAT: _VERSION, "server": found["server"]}
    for kind, member in KINDS.items():
        keyed[kind] = {
            entry[member]: {key: value for key, value in entry.items() if key != member} for entry in found[kind]
        }
    return keyed


def _read(path: str | os.PathLike[str]) -> Offerings:
    try:
        with open(path, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
        keyed: Any = decode(data) if len(data) <= _MAX_BYTES else None
        if keyed[_FORMAT] != _VERSION:
            raise ConfigurationError(f"{path} was written by a newer mcpd; write it again")
        found: Offerings = {"server": dict(keyed["server"])}
        for kind, member in KINDS.items():
            found[kind] = [{member: key, **entry} for key, entry in keyed.get(kind, {}).items()]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    except (*MALFORMED, LookupError, TypeError, AttributeError, ValueError):
        raise ConfigurationError(f"{path} is not an approval file of mcpd; write it again") from None
    return found


def offerings(server: Server) -> Offerings:
    """Everything that a server offers as JSON, as listed to a client with every extension in the newest version."""
    # Entries that cannot be listed are left out.
    catalog = server.catalog
    everything = frozenset(extension.id for extension in server.extensions.values())
    identity = decode(encode_message(server.identity))
    if catalog.instructions is not None:
        identity["instructions"] = catalog.instructions

    found: Offerings = {"server": identity}
    listings: Sequence[Iterable[Any]] = (catalog.tools, catalog.resources, catalog.templates, catalog.prompts)
    for kind, listing in zip(KINDS, listings, strict=True):
        entries = found[kind] = []
        for entry in listing:
            try:
                entries.append(decode(encode_message(entry.listed(everything))))
            except Exception:  # `Server.problems` reports errors of the author's code
                continue
    return found


def compare(old: Offerings, new: Offerings) -> list[Change]:
    """All changes between two states, breaking ones first. A different order of entries is not a change."""
    found = [Change("server", text, is_breaking) for text, is_breaking in _members(old["server"], new["server"], ())]
    for kind, member in KINDS.items():
        before = {entry[member]: entry for entry in old.get(kind, ())}
        now = {entry[member]: entry for entry in new.get(kind, ())}
        for key in sorted(before.keys() | now.keys()):
            where = f"{_NAMES[kind]} {key}"
            if key not in now:
                found.append(Change(where, "removed", True))
            elif key not in before:
                found.append(Change(where, "added", False))
            else:
                found += [Change(where, *change) for change in _entry(kind, before[key], now[key])]
    return sorted(found, key=lambda change: not change.is_breaking)


def _entry(kind: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Found]:
    if kind == "tools":
        yield from compare_schemas(old.get("inputSchema", True), new.get("inputSchema", True), is_input=True)
        before, now = old.get("outputSchema"), new.get("outputSchema")
        if before is not None and now is None:
            yield "no longer has an output schema", True
        elif before is None and now is not None:
            yield "has an output schema now", False
        elif before is not None:
            yield from compare_schemas(before, now, is_input=False)
    elif kind == "prompts":
        yield from _arguments(old.get("arguments") or [], new.get("arguments") or [])

    breaking = {"tools": ("execution",), "resources": ("mimeType",), "resourceTemplates": ("mimeType",)}.get(kind, ())
    yield from _members(old, new, breaking)


def _arguments(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[Found]:
    before, now = {one["name"]: one for one in old}, {one["name"]: one for one in new}
    for name in before:
        if name not in now:
            yield f"argument {name} was removed", True
    for name, argument in now.items():
        is_required = argument.get("required", False)
        if name not in before:
            yield f"argument {name} is new{' and required' if is_required else ''}", is_required
            continue
        if is_required != before[name].get("required", False):
            yield f"argument {name} is {'now' if is_required else 'no longer'} required", is_required
        if argument.get("description") != before[name].get("description"):
            yield f"the description of argument {name} changed", False


_COMPARED_ELSEWHERE = ("inputSchema", "outputSchema", "arguments")


def _members(old: dict[str, Any], new: dict[str, Any], breaking: tuple[str, ...]) -> Iterator[Found]:
    for name in sorted((old.keys() | new.keys()) - set(_COMPARED_ELSEWHERE)):
        before, now = old.get(name), new.get(name)
        if before == now:
            continue
        if isinstance(before or {}, dict) and isinstance(now or {}, dict):
            yield from ((f"{name}.{text}", name in breaking) for text, _ in _members(before or {}, now or {}, breaking))
        elif isinstance(now, bool | int) or isinstance(before, bool | int) or name in (*breaking, "title", "name"):
            value = "was removed" if now is None else f"is {shown(now)} now"
            yield f"{name} {'' if before is None else f'was {shown(before)}, '}{value}", name in breaking
        else:
            how = "was removed" if now is None else "is new" if before is None else "changed"
            yield f"{name} {how}", name in breaking
