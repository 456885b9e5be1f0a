"""The lists of a mounted server from an earlier start, so that the next start need not wait for them.

A file of the user's cache has the lists of a server and what it says about itself. It has no values of variables, no
results and no contents of resources.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

from msgspec import Raw, Struct
from msgspec.json import decode, encode

from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Implementation, ServerCapabilities

if TYPE_CHECKING:
    from mcpd.client.target import Target

log = logging.getLogger("mcpd.mounts")

# Changed when the format of the file changes.
_FORMAT = 1


class ListManifest(Struct):
    """One list: the members of its first page, all entries, and its protocol version."""

    page: dict[str, Raw]
    entries: list[Raw]
    version: str


class Manifest(Struct, kw_only=True):
    """The file of one mounted server."""

    format: int = _FORMAT
    has_sessions: bool
    capabilities: ServerCapabilities
    info: Implementation | None
    instructions: str | None
    lists: dict[str, ListManifest]


def path_for(target: Target) -> Path | None:
    """Return the path of the file of a server; None for a server that is not started and not at a URL."""
    if isinstance(target, CommandTarget):
        parts: tuple[object, ...] = (target.command, sorted(target.env or ()), target.cwd)
    elif isinstance(target, UrlTarget):
        parts = (target.url, sorted(target.headers), target.socket)
    elif isinstance(target, (list, tuple, str)):
        parts = (target,)
    else:
        return None
    cache = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(cache if cache.startswith("/") else os.path.expanduser("~/.cache"), "mcpd", "mounts")
    return folder / f"{blake2b(repr(parts).encode(), digest_size=16).hexdigest()}.json"


def load(target: Target) -> Manifest | None:
    """Return the manifest of a server; None without a file that can be read."""
    path = path_for(target)
    try:
        found = None if path is None else decode(path.read_bytes(), type=Manifest)
    except (OSError, *MALFORMED):
        return None
    return found if found is not None and found.format == _FORMAT else None


def save(target: Target, manifest: Manifest) -> None:
    """Write the file of a server, for the next start. A failure is only logged."""
    path = path_for(target)
    if path is None:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written, new = mkstemp(dir=path.parent)  # only this user can read it
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
