"""Finds and opens the documents of a folder.

Links to folders and links that lead out of the folder are not followed. Pipes and devices are never opened. The
settings limit the number of files, their size and the depth of folders.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator

from msgspec import Struct

from mcpd.server.folder_files import is_below, read_within
from mcpd.sources.docs.page import Kind, UnreadablePage, kind_of
from mcpd.sources.docs.results import DocsSettings, LeftOut

MAX_LEFT_OUT = 200
"""How many of the files that are left out are reported one by one."""

_MAX_NAMES = 500_000
# Folders of site generators with copies of the sources or with style sheets.
_TOOL_FOLDERS = frozenset(("__pycache__", "node_modules"))
_SKIPPED = _TOOL_FOLDERS | {"_sources", "_static"}


class File(Struct, frozen=True):
    """A document in the file system."""

    path: str
    """Relative to the folder, with `/`."""
    kind: Kind
    size: int
    modified_ns: int


class Tree(Struct, frozen=True):
    """The documents found by a scan, by path, and the files that were left out."""

    files: dict[str, File]
    left_out: list[LeftOut]


def scan(folder: str, settings: DocsSettings, is_cancelled: Callable[[], bool] = lambda: False) -> Tree:
    """Return the documents of a folder. A folder that cannot be read is left out; nothing is raised."""
    found: dict[str, File] = {}
    left_out: list[LeftOut] = []
    is_excluded = _excluded(settings)
    more = 0
    for entry, path in _entries(folder, settings, left_out, is_cancelled):
        kind = kind_of(path)
        if kind is None or is_excluded(path):
            continue
        if len(found) >= settings.max_files:
            more += 1
            continue
        file = _check_entry(entry, path, kind, folder, settings)
        if isinstance(file, File):
            found[path] = file
        else:
            _leave_out(left_out, path, file)

    if more:
        text = f"{more} documents beyond the limit of {settings.max_files} are left out"
        left_out.insert(0, LeftOut("", text))
    return Tree(found, left_out)


def file_at(folder: str, path: str, settings: DocsSettings) -> File | str:
    """Return the document at a path as a scan would find it, or the reason why it is not a document."""
    parts = path.split("/")
    hidden = any(part.startswith(".") or part in _SKIPPED for part in parts)
    kind = kind_of(path)
    if not path or hidden or "" in parts or "\\" in path or "\0" in path or kind is None or _excluded(settings)(path):
        return "is not a document"
    try:
        found = os.lstat(os.path.join(folder, *parts))
        if len(parts) > 1 and not is_below(os.path.join(folder, *parts[:-1]), folder):
            return "is reached through a link that leads out of the folder"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return _check_stat(os.path.join(folder, *parts), path, kind, found, folder, settings)


def is_hidden(path: str, settings: DocsSettings) -> bool:
    """Return whether a path must not be served: it is hidden, excluded, or not a path below the folder."""
    parts = path.split("/")
    is_odd = not path or "" in parts or "\\" in path or "\0" in path
    return is_odd or any(part.startswith(".") or part in _TOOL_FOLDERS for part in parts) or _excluded(settings)(path)


def _excluded(settings: DocsSettings) -> Callable[[str], bool]:
    excluded, included = _matching(settings.exclude), _matching(settings.include)
    if not settings.include:
        return excluded
    return lambda path: excluded(path) or not included(path)


def _matching(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that matches a path or its last part against the patterns."""
    if not patterns:
        return lambda path: False
    pattern = re.compile("|".join(f"(?:{fnmatch.translate(one)})" for one in patterns))
    return lambda path: bool(pattern.match(path) or pattern.match(path.rsplit("/", 1)[-1]))


def _leave_out(left_out: list[LeftOut], path: str, reason: str) -> None:
    if len(left_out) < MAX_LEFT_OUT:
        left_out.append(LeftOut(path, reason))


def _entries(
    folder: str, settings: DocsSettings, left_out: list[LeftOut], is_cancelled: Callable[[], bool]
) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield all entries that are not folders, sorted by name; the files of a folder come before the files of its
    sub-folders.
    """
    left: list[tuple[str, str, int]] = [(folder, "", 0)]
    count = 0
    while left and not is_cancelled():
        place, above, depth = left.pop()
        here: list[os.DirEntry[str]] = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    count += 1
                    if count > _MAX_NAMES:
                        break
                    if not entry.name.startswith(".") and entry.name not in _SKIPPED:
                        here.append(entry)
        except OSError as error:
            _leave_out(left_out, above.rstrip("/"), f"the folder cannot be read ({error.strerror})")
            continue

        here.sort(key=lambda entry: entry.name)
        below: list[tuple[str, str, int]] = []
        for entry in here:
            path = above + entry.name
            if not _is_folder(entry):
                yield entry, path
            elif depth < settings.max_depth:
                below.append((entry.path, path + "/", depth + 1))
            else:
                _leave_out(left_out, path, f"is more than {settings.max_depth} folders deep")
        left += reversed(below)
        if count > _MAX_NAMES:
            _leave_out(
                left_out, "", f"the folder contains more than {_MAX_NAMES} files and folders; the rest is left out"
            )
            return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _check_entry(entry: os.DirEntry[str], path: str, kind: Kind, folder: str, settings: DocsSettings) -> File | str:
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return _check_stat(entry.path, path, kind, found, folder, settings)


def _check_stat(
    place: str, path: str, kind: Kind, found: os.stat_result, folder: str, settings: DocsSettings
) -> File | str:
    try:
        path.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    if stat.S_ISLNK(found.st_mode):
        try:
            found = os.stat(place)
        except OSError as error:
            return f"is a broken link ({error.strerror})"
        if not is_below(place, folder):
            return "is a link that leads out of the folder"
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    # For most files the mode grants access to everybody, which saves a system call.
    if found.st_mode & 0o444 != 0o444 and not os.access(place, os.R_OK):
        return "cannot be read (Permission denied)"

    limit = max_bytes(kind, settings)
    if found.st_size > limit:
        return f"is larger than {limit} bytes"
    return File(path, kind, found.st_size, found.st_mtime_ns)


def max_bytes(file_kind: Kind, settings: DocsSettings) -> int:
    """Return the size limit of a document in bytes."""
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
