"""What is known of mounted servers, and kept between two starts.

A file of the user's cache has the lists of a server and what it says about itself, so that the next start need not wait
for them. It has no values of variables, no results and no contents of resources.

With `pin`, mcpd.lock has a digest of each tool. A tool that has changed is withheld until `mcpd mounts accept NAME`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b, sha256
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.json import Encoder, decode, encode

from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Implementation, ServerCapabilities
from mcpd.protocol.versions.table import Version

if TYPE_CHECKING:
    from mcpd.client.target import Target
    from mcpd.protocol.types.features import Tool

log = logging.getLogger("mcpd.mounts")

# Changed when the format of the file changes.
_FORMAT = 1


class Listed(Struct):
    """One list of the server, from all its pages."""

    page: dict[str, Raw]
    """The members of its first page."""
    entries: list[Raw]
    """The entries as the server sent them."""
    version: Version | None = None
    """The protocol version in which it was fetched."""
    until: float = 0.0
    """When it must be fetched again, in seconds of the event loop's clock."""
    valid: list[tuple[Raw, Any]] | None = None
    """The entries without invalid ones, also as structs, made by `entries.valid_entries`."""
    raw: Raw | None = None
    """The whole list in one page, made when a client needs it."""

    @property
    def has_ui(self) -> bool:
        """Whether an entry belongs to an app."""
        return any(b'"ui' in bytes(entry) for entry in self.entries)


class About(Struct):
    """The description that the server gives of itself."""

    has_sessions: bool
    """Whether it is of an era with sessions, so that an instance belongs to one client."""
    capabilities: ServerCapabilities
    info: Implementation | None = None
    instructions: str | None = None


class ListManifest(Struct):
    """One list: the members of its first page, all entries, and its protocol version."""

    page: dict[str, Raw]
    entries: list[Raw]
    version: str
    is_plain: bool = False
    """Whether every client gets all entries, as they are."""


class Manifest(Struct, kw_only=True):
    """The file of one mounted server."""

    format: int = _FORMAT
    has_sessions: bool
    capabilities: ServerCapabilities
    info: Implementation | None
    instructions: str | None
    lists: dict[str, ListManifest]


def path_for(target: Target, protocol: str = "auto") -> str | None:
    """Return the path of the file of a server; None for a server that is not started and not at a URL.

    A server has one file for each `protocol` in which it is mounted, because its lists and its sessions depend on that.
    """
    if isinstance(target, CommandTarget):
        parts: tuple[object, ...] = (target.command, sorted(target.env or ()), target.cwd)
    elif isinstance(target, UrlTarget):
        parts = (target.url, sorted(target.headers), target.socket)
    elif isinstance(target, (list, tuple, str)):
        parts = (target,)
    else:
        return None

    if protocol != "auto":
        parts = (*parts, protocol)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    cache = cache if cache.startswith("/") else os.path.expanduser("~/.cache")
    return os.path.join(cache, "mcpd", "mounts", f"{blake2b(repr(parts).encode(), digest_size=16).hexdigest()}.json")


def load(target: Target, protocol: str = "auto") -> Manifest | None:
    """Return the manifest of a server; None without a file that can be read."""
    path = path_for(target, protocol)
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            found = decode(file.read(), type=Manifest)
    except (OSError, *MALFORMED):
        return None
    return found if found.format == _FORMAT else None


def save(target: Target, manifest: Manifest, protocol: str = "auto") -> None:
    """Write the file of a server, for the next start. A failure is only logged."""
    path = path_for(target, protocol)
    if path is None:
        return

    try:
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        written, new = mkstemp(dir=folder)  # only this user can read it
        try:
            with open(written, "wb") as file:
                file.write(encode(manifest))
            os.replace(new, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(new)
            raise
    except OSError as error:
        log.debug("the lists of a mounted server cannot be kept: %s", printable(error))


# -------------------------------------------------------------------------------------------- pins

LOCK = "mcpd.lock"

_write_sorted = Encoder(order="deterministic").encode


class Pins:
    """The accepted definitions of the tools of one mount, in a file that all mounts of a folder share.

    The first definitions are accepted. Later ones are withheld until somebody accepts them.
    """

    def __init__(self, mount: str, path: str = LOCK) -> None:
        self._mount = mount
        self._path = Path(path)

    def withheld(self, tools: list[Tool]) -> set[str]:
        """Return the names of the tools whose definition is not the accepted one, and write them into the file."""
        now = {tool.name: f"sha256:{sha256(_write_sorted(tool)).hexdigest()}" for tool in tools}
        document = read_lock(self._path)
        accepted = document["accepted"].setdefault(self._mount, now)
        changed = {name: digest for name, digest in now.items() if accepted.get(name) != digest}
        before = document["withheld"].get(self._mount, {})
        document["withheld"][self._mount] = changed
        if accepted is now or changed != before:
            write_lock(self._path, document)
        for name in changed.keys() - before.keys():
            text = "mount %s: the tool %s has changed and is withheld: read it, then run mcpd mounts accept %s"
            log.warning(text, printable(self._mount), printable(name), printable(self._mount))
        return set(changed)


def accept(mount: str, path: str = LOCK) -> list[str]:
    """Accept the withheld tools of a mount, and return their names. Raises ConfigurationError for an unknown mount."""
    file = Path(path)
    document = read_lock(file)
    if mount not in document["accepted"]:
        known = ", ".join(document["accepted"]) or "none"
        raise ConfigurationError(f"{file}: no mount {mount!r} is pinned; pinned mounts: {known}")
    changed = document["withheld"].pop(mount, {})
    document["accepted"][mount].update(changed)
    write_lock(file, document)
    return sorted(changed)


def read_lock(file: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Return the content of a lock file, empty without a file. Raises ConfigurationError for an unreadable one."""
    empty: dict[str, dict[str, dict[str, str]]] = {"accepted": {}, "withheld": {}}
    try:
        found = decode(file.read_bytes())
        return {**empty, **{name: dict(found[name]) for name in empty if name in found}}
    except FileNotFoundError:
        return empty
    except (OSError, TypeError, ValueError, *MALFORMED) as error:
        raise ConfigurationError(f"{file} cannot be read: {error}; delete it to accept all tools anew") from None


def write_lock(file: Path, document: Mapping[str, Any]) -> None:
    """Write a lock file, at once or not at all."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.write_bytes(_write_sorted(document) + b"\n")
    temporary.replace(file)
