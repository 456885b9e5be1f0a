"""The files of a folder that are served: regular ones, in the order of their paths, and no more than so many.

Whoever may put something into the folder publishes what stands in it, and nothing else of the machine: links that lead
out are left out, links to folders are not followed, pipes and devices are never opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice

from msgspec import Struct

from mcpd.folder_files import is_below
from mcpd.sources.reports import Report

MOST_LOOKED_AT = 200_000
"""How many names in one folder and all below it are looked at."""

MOST_OF_A_KIND = 1000
"""How many Python files of tools, pages or prompts a folder may have."""

_PASSED_OVER = ("__pycache__", "node_modules")


class File(Struct, frozen=True):
    """One file. `parts` is its path below the folder."""

    path: str
    parts: tuple[str, ...]
    size: int
    modified_ns: int

    @property
    def stem(self) -> str:
        """Its name without the last suffix."""
        return os.path.splitext(self.parts[-1])[0]

    @property
    def suffix(self) -> str:
        """Its last suffix, as `.md`, in lower case."""
        return os.path.splitext(self.parts[-1])[1].lower()


def files_of(
    folder: str, report: Report, *, most: int, is_wanted: Callable[[tuple[str, ...]], bool] | None = None
) -> list[File]:
    """The files below a folder that `is_wanted` says are, by their path; hidden ones are passed over.

    What is passed over for another reason is reported, and so are all after the first `most`.
    """
    found: list[File] = []
    for entry, parts in _entries(folder, report):
        if is_wanted is not None and not is_wanted(parts):
            continue
        file = _file(entry, parts, folder, report)
        if file is None:
            continue
        if len(found) == most:
            report.error(folder, f"has more than {most} files; the first {most} are served")
            break
        found.append(file)
    return found


def _entries(folder: str, report: Report) -> Iterator[tuple[os.DirEntry[str], tuple[str, ...]]]:
    """All that is no folder, each folder's own before those of folders in it."""
    left: list[tuple[str, tuple[str, ...]]] = [(folder, ())]
    looked_at = 0
    while left:
        path, above = left.pop()
        try:
            with os.scandir(path) as entries:
                here = sorted(islice(entries, MOST_LOOKED_AT - looked_at + 1), key=lambda entry: entry.name)
        except OSError as error:
            report.error(path, f"cannot be read ({error.strerror}); it is left out")
            continue

        looked_at += len(here)
        if looked_at > MOST_LOOKED_AT:
            report.error(folder, f"has more than {MOST_LOOKED_AT} names in it; what is behind these is left out")
            return
        below: list[tuple[str, tuple[str, ...]]] = []
        for entry in here:
            if entry.name.startswith(".") or entry.name in _PASSED_OVER or entry.name.endswith("~"):
                continue
            if entry.is_dir(follow_symlinks=False):
                below.append((entry.path, (*above, entry.name)))
            else:
                yield entry, (*above, entry.name)
        left += reversed(below)


def _file(entry: os.DirEntry[str], parts: tuple[str, ...], folder: str, report: Report) -> File | None:
    try:
        found = entry.stat()
    except OSError as error:
        report.error(entry.path, f"cannot be read ({error.strerror}); it is left out")
        return None
    if entry.is_symlink():
        if stat.S_ISDIR(found.st_mode):
            report.warning(entry.path, "is a link to a folder; links are not followed into folders")
            return None
        if not is_below(entry.path, folder):
            report.error(entry.path, "is a link that leads out of the folder; it is left out")
            return None

    if not stat.S_ISREG(found.st_mode):
        report.error(entry.path, "is no regular file; it is left out")
        return None
    if not os.access(entry.path, os.R_OK):
        report.error(entry.path, "cannot be read (Permission denied); it is left out")
        return None
    return File(entry.path, parts, found.st_size, found.st_mtime_ns)
