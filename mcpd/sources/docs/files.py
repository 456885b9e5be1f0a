"""Finds and opens the documents of a folder.

Links to folders and links that lead out of the folder are not followed. Pipes and devices are never opened. The
settings limit the number of files, their size and the depth of folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct

from mcpd.server.folder_files import is_below, read_within
from mcpd.sources.files import matching, served_status, walk
from .page import DocsSettings, Kind, LeftOut, UnreadablePage, kind_of

MAX_LEFT_OUT = 200
"""How many of the files that are left out are reported one by one."""

_MAX_ENTRIES = 500_000
# Folders of site generators with copies of the sources or with style sheets.
_TOOL_FOLDERS = frozenset(("__pycache__", "node_modules"))
_SKIPPED = _TOOL_FOLDERS | {"_sources", "_static"}


class File(Struct, frozen=True):
    path: str
    """Relative to the folder, with `/`."""
    kind: Kind
    size: int
    modified_ns: int


class Tree(Struct, frozen=True):
    files: dict[str, File]
    left_out: list[LeftOut]


def scan(folder: str, settings: DocsSettings, is_cancelled: Callable[[], bool] = lambda: False) -> Tree:
    # A folder that cannot be read is left out, and nothing is raised.
    found: dict[str, File] = {}
    left_out: list[LeftOut] = []
    is_excluded = _excluded(settings)
    more = 0

    def leave_out(path: str, reason: str) -> None:
        if len(left_out) < MAX_LEFT_OUT:
            left_out.append(LeftOut(path.rstrip("/"), reason))

    for entry, path in walk(
        folder,
        leave_out,
        skipped=_SKIPPED,
        max_entries=_MAX_ENTRIES,
        max_depth=settings.max_depth,
        is_cancelled=is_cancelled,
    ):
        kind = kind_of(path)
        if kind is None or is_excluded(path):
            continue
        if len(found) >= settings.max_files:
            more += 1
            continue
        file = _document(entry.path, path, kind, folder, settings)
        if isinstance(file, File):
            found[path] = file
        else:
            leave_out(path, file)

    if more:
        text = f"{more} documents beyond the limit of {settings.max_files} are left out"
        left_out.insert(0, LeftOut("", text))
    return Tree(found, left_out)


def file_at(folder: str, path: str, settings: DocsSettings) -> File | str:
    """Return the document at a path as a scan would find it, or the reason why it is not a document."""
    kind = kind_of(path)
    parts = path.split("/")
    if kind is None or is_hidden(path, settings) or not _SKIPPED.isdisjoint(parts):
        return "is not a document"
    if not is_below(os.path.join(folder, *parts[:-1]), folder):
        return "is reached through a link that leads out of the folder"
    return _document(os.path.join(folder, *parts), path, kind, folder, settings)


def is_hidden(path: str, settings: DocsSettings) -> bool:
    """Return whether a path must not be served: it is hidden, excluded, or not a path below the folder."""
    parts = path.split("/")
    is_odd = "" in parts or "\\" in path or "\0" in path
    return is_odd or any(part.startswith(".") or part in _TOOL_FOLDERS for part in parts) or _excluded(settings)(path)


def _excluded(settings: DocsSettings) -> Callable[[str], bool]:
    excluded, included = matching(settings.exclude), matching(settings.include)
    if not settings.include:
        return excluded
    return lambda path: excluded(path) or not included(path)


def _document(place: str, path: str, kind: Kind, folder: str, settings: DocsSettings) -> File | str:
    try:
        path.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    status = served_status(place, folder)
    if isinstance(status, str):
        return status
    limit = max_bytes(kind, settings)
    if status.st_size > limit:
        return f"is larger than {limit} bytes"
    return File(path, kind, status.st_size, status.st_mtime_ns)


def max_bytes(file_kind: Kind, settings: DocsSettings) -> int:
    return settings.max_bytes * (4 if file_kind == "pdf" else 1)


def read_document(folder: str, file: File, settings: DocsSettings) -> tuple[bytes, bytes]:
    """Return the content of a document and its hash. Raises UnreadablePage if it is gone or too large."""
    limit = max_bytes(file.kind, settings)
    try:
        data = read_beginning(folder, file.path, limit + 1)
    except OSError as error:
        raise UnreadablePage(f"cannot be read ({error.strerror or error})") from None

    if len(data) > limit:
        raise UnreadablePage(f"is larger than {limit} bytes")
    from hashlib import blake2b  # loads OpenSSL, which would slow down the start

    return data, blake2b(data, digest_size=16).digest()


def read_beginning(folder: str, path: str, size: int) -> bytes:
    """Return the first bytes of a document. Raises OSError if it is gone or not a regular file of the folder."""
    return read_within(os.path.join(folder, *path.split("/")), folder, size)
