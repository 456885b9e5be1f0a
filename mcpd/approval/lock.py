"""The approval file: JSON that people read, in alphabetical order, so that differences are small."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec.json import decode, encode, format

from mcpd.approval.changes import Change, compare
from mcpd.approval.offerings import KINDS, Offerings, offerings
from mcpd.errors import ConfigurationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.server import Server

_FORMAT = "mcpdLock"
_VERSION = 1
_MAX_BYTES = 64 * 1024 * 1024
"""More is no approval file: a device may have no end."""


def write_lock(server: Server, path: str | os.PathLike[str]) -> list[Change]:
    """Write what a server offers to a file, in place of what was there: gives what changed, nothing for a new file.

    Raises ConfigurationError if it cannot be written.
    """
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
    """What changed since the file was written, [] if nothing did; None if there is no such file.

    Raises ConfigurationError for a file that cannot be read.
    """
    try:
        return compare(_read(path), _locked(server))
    except FileNotFoundError:
        return None


def _locked(server: Server) -> Offerings:
    """What is approved: all but the server's version, which says nothing of what it offers."""
    found = offerings(server)
    found["server"].pop("version", None)
    return found


def _keyed(found: Offerings) -> dict[str, Any]:
    """Entries by their names: beside each other they are told apart, and one that is new moves no other."""
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
        if len(data) > _MAX_BYTES:
            raise ValueError(f"more than {_MAX_BYTES} bytes")
        keyed = decode(data)
        if keyed[_FORMAT] != _VERSION:
            raise ConfigurationError(f"{path} was written by a newer mcpd; write it anew")
        found: Offerings = {"server": dict(keyed["server"])}
        for kind, member in KINDS.items():
            found[kind] = [{member: key, **entry} for key, entry in keyed.get(kind, {}).items()]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from None
    except (*MALFORMED, LookupError, TypeError, AttributeError, ValueError):
        raise ConfigurationError(f"{path} is no approval file of mcpd; write it anew") from None
    return found
