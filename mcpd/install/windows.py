"""Paths as every host on Windows can start them: some hand the whole command to the shell there, and quote nothing.

A path with spaces falls apart then. Its parts with spaces are written by their short names (`PROGRA~1`), which the file
system keeps beside the long ones, unless that is switched off.
"""

from __future__ import annotations

import ntpath
import sys
from collections.abc import Callable, Sequence

from mcpd.protocol.printable import printable


def plain_words(
    words: Sequence[str], *, platform: str = sys.platform, short: Callable[[str], str] | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words of a command with short names for what has spaces in its paths, and what to know of the others.

    `short` gives the whole short path of one that is there, "" for none. On other systems the words stay.
    """
    if platform != "win32":
        return (*words,), ()
    found, warnings = [], []

    for at, word in enumerate(words):
        plain = _plain(word, short or short_name)
        found.append(plain)
        if " " in plain and at == 0:
            warnings.append(
                f"{printable(plain, 500)} has a space in it, and no short name here: hosts that start it by a shell "
                "cannot; if yours says that it is not recognized, install mcpd into a folder without spaces"
            )

    return (*found,), (*warnings,)


def short_name(path: str) -> str:
    """The path with the short names of all its parts, as Windows has them; "" for one that is not there."""
    if sys.platform == "win32":
        from ctypes import create_unicode_buffer, windll

        length = windll.kernel32.GetShortPathNameW(path, None, 0)
        buffer = create_unicode_buffer(length + 1)
        if windll.kernel32.GetShortPathNameW(path, buffer, length + 1):
            return buffer.value
    return ""


def _plain(word: str, short: Callable[[str], str]) -> str:
    """A path that is there, by the short names of those of its parts that have spaces; all other words as they are."""
    if " " not in word or not ntpath.isabs(word):
        return word
    path, behind = word, ""
    if not short(word):  # a file and the name of a server in it
        path, colon, name = word.rpartition(":")
        behind = colon + name

    if not ntpath.isabs(path) or not short(path):
        return word

    drive, rest = ntpath.splitdrive(path)
    so_far = made = drive + rest[0]

    for part in rest[1:].replace("/", "\\").split("\\"):
        so_far = ntpath.join(so_far, part)
        made = ntpath.join(made, ntpath.basename(short(so_far)) if " " in part else part)
    return made + behind
