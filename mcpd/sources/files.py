"""The files of a served folder, and the problems found in it.

Everything that somebody puts into the folder is published, but nothing else of the machine: links that lead out of the
folder are left out, links to folders are not followed, and pipes and devices are never opened.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TypeAlias
from urllib.parse import quote

from msgspec import Struct

from mcpd.protocol.printable import printable
from mcpd.server.folder_files import is_below
from mcpd.server.registry.entries import Problem

log = logging.getLogger("mcpd")

MAX_LOGGED = 50
"""How many problems of one folder are logged one by one."""

# Exempts these messages from the rate limit of the log: there are few, and each names a different file.
_ONCE = {"mcpd_told_once": True}

# Changes in further folders are not noticed.
MAX_FOLDERS = 2000
_MAX_NAMES = 20_000
_NOT_WATCHED = frozenset(("__pycache__", "__pypackages__", "node_modules", "site-packages", "venv", "env"))


class Report:
    """The problems of one folder, in the order in which they were found. File names in it are printable."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.problems: list[Problem] = []

    def error(self, path: str, text: str, line: int | None = None) -> None:
        """Add a problem that causes something to be left out."""
        self._add(path, text, line, is_error=True)

    def warning(self, path: str, text: str, line: int | None = None) -> None:
        """Add a problem with something that is served, but perhaps not as its author intended."""
        self._add(path, text, line, is_error=False)

    def log_problems(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            level = logging.ERROR if problem.is_error else logging.WARNING
            log.log(level, "%s", printable(problem, 2500), extra=_ONCE)

    @property
    def found(self) -> list[Problem]:
        # The errors come before the warnings, because only the first problems are logged.
        found = sorted(self.problems, key=lambda problem: not problem.is_error)
        if len(found) <= MAX_LOGGED:
            return found
        return [*found[:MAX_LOGGED], Problem(printable(self.root), f"and {len(found) - MAX_LOGGED} more problems")]

    def _add(self, path: str, text: str, line: int | None, *, is_error: bool) -> None:
        where = printable(os.path.relpath(path, self.root) if os.path.isabs(path) else path, 300)
        if line is not None:
            where = f"{where}, line {line}"
        self.problems.append(Problem(where, printable(text, 2000), is_error))


MAX_ENTRIES = 200_000
"""How many directory entries of a folder, including its sub-folders, are examined."""

MAX_PER_KIND = 1000
"""How many Python files of tools, how many apps and how many prompts a folder may have."""

# Tools make these folders, and nobody means to publish them.
_SKIPPED = ("__pycache__", "node_modules")


Stamp: TypeAlias = tuple[int, int]
"""The size and the modification time (ns) of a file."""


def stamp_of(path: str) -> Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


class Stamped:
    """An entry that equals another of its class if key and `stamp`, the state of its files, are the same."""

    key: str
    stamp: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and (self.key, self.stamp) == (other.key, other.stamp)

    def __hash__(self) -> int:
        return hash(self.key)


class File(Struct, frozen=True):
    """One file. `parts` is its path below the folder."""

    path: str
    parts: tuple[str, ...]
    size: int
    modified_ns: int

    @property
    def stamp(self) -> Stamp:
        return self.size, self.modified_ns

    @property
    def stem(self) -> str:
        return os.path.splitext(self.parts[-1])[0]

    @property
    def suffix(self) -> str:
        """Its last suffix in lower case, such as `.md`."""
        return os.path.splitext(self.parts[-1])[1].lower()


def files_of(folder: str, report: Report, *, limit: int, is_wanted: Callable[[str], bool]) -> list[File]:
    """Return the files below a folder that are wanted, ordered by path. Reports those that cannot be served."""
    found: list[File] = []

    def leave_out(path: str, reason: str) -> None:
        report.error(os.path.join(folder, path), f"{reason}; it is left out" if path else reason)

    for entry, path in walk(folder, leave_out, skipped=_SKIPPED, max_entries=MAX_ENTRIES):
        if path.endswith("~") or not is_wanted(path):
            continue
        if entry.is_symlink() and os.path.isdir(entry.path):
            report.warning(entry.path, "is a link to a folder; links are not followed into folders")
            continue
        status = served_status(entry.path, folder)
        if isinstance(status, str):
            leave_out(path, status)
            continue
        if len(found) == limit:
            report.error(folder, f"has more than {limit} files; the first {limit} are served")
            break
        found.append(File(entry.path, tuple(path.split("/")), status.st_size, status.st_mtime_ns))

    return found


def matching(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return a function that matches a path or its last part against the patterns."""
    if not patterns:
        return lambda path: False
    from fnmatch import translate

    match = re.compile("|".join(map(translate, patterns))).match
    return lambda path: bool(match(path) or match(path.rsplit("/", 1)[-1]))


def walk(
    folder: str,
    problem: Callable[[str, str], None],
    *,
    skipped: Collection[str],
    max_entries: int,
    max_depth: int = 1000,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[os.DirEntry[str], str]]:
    # The files of a folder come before those below it. `problem` receives the path of what is left out, "" for the
    # folder itself, and the reason.
    waiting = [(folder, "", 0)]
    count = 0
    while waiting and not is_cancelled():
        place, above, depth = waiting.pop()
        try:
            with os.scandir(place) as entries:
                here = sorted(islice(entries, max_entries - count + 1), key=lambda entry: entry.name)
        except OSError as error:
            problem(above, f"cannot be read ({error.strerror})")
            continue

        count += len(here)
        if count > max_entries:
            problem("", f"contains more than {max_entries} files and folders; the rest is left out")
            return
        below: list[tuple[str, str, int]] = []
        for entry in here:
            path = above + entry.name
            if entry.name.startswith(".") or entry.name in skipped:
                continue
            if not entry.is_dir(follow_symlinks=False):
                yield entry, path
            elif depth < max_depth:
                below.append((entry.path, f"{path}/", depth + 1))
            else:
                problem(path, f"is more than {max_depth} folders deep")
        waiting += reversed(below)


def served_status(path: str, folder: str) -> os.stat_result | str:
    """Return the status of a file that may be served, after links, or why it may not be."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            status = os.stat(path)
            if not is_below(path, folder):
                return "is a link that leads out of the folder"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"

    # For most files the mode grants access to everybody, which saves a system call.
    if status.st_mode & 0o444 != 0o444 and not os.access(path, os.R_OK):
        return "cannot be read (Permission denied)"
    return status


def escaped(part: str) -> str:
    # RFC 3986 section 3.3, byte by byte if the name is not UTF-8.
    return quote(os.fsencode(part), safe="")


def uri_name(name: str) -> str:
    # URIs cannot contain every character of a name.
    return re.sub("[^A-Za-z0-9._~-]+", "-", name).strip("-.").lower() or "folder"


def folders_below(roots: Iterable[str], limit: int = MAX_FOLDERS) -> list[str]:
    """Return at most `limit` folders, level by level, without links, hidden folders and installed packages."""
    found = list(dict.fromkeys(roots))
    known = set(found)
    for folder in found:  # grows in the loop
        try:
            with os.scandir(folder) as entries:
                below = sorted(entry.path for entry in islice(entries, _MAX_NAMES) if _is_walked(entry))
        except OSError:
            continue
        for path in below:
            if path not in known and len(found) < limit:
                known.add(path)
                found.append(path)

    return found[:limit]


def _is_walked(entry: os.DirEntry[str]) -> bool:
    return entry.name[:1] != "." and entry.name not in _NOT_WATCHED and entry.is_dir(follow_symlinks=False)
