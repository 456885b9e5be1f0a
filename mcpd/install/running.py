"""Whether a host runs that writes its file from memory: what is put into the file meanwhile is gone again.

Processes are told by the names in the table of hosts, read where the system has them: /proc, `ps` or `tasklist`.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress

from msgspec import Struct

from mcpd.client.targets.hosts import Host
from mcpd.errors import ConfigurationError
from mcpd.transports.child import run_program

_PROC = "/proc"
_SECONDS = 10.0
_INTERPRETERS = ("node", "bun", "deno", "python", "electron")
"""Programs whose next word is what people call the process."""


class Process(Struct, frozen=True):
    """One process of this user."""

    pid: int
    names: frozenset[str]
    """The names of its files, without folders and `.exe`."""
    home: str = ""
    """Its home folder, "" if that cannot be seen."""


def running(host: Host, environment: Mapping[str, str] = os.environ, *, platform: str = sys.platform) -> Process | None:
    """The process of a host that rewrites its file, None if none is seen. One with another home has another file."""
    if not host.rewrites:
        return None
    home = environment.get("HOME", "")

    for process in processes(platform):
        is_elsewhere = process.home and home and os.path.realpath(process.home) != os.path.realpath(home)
        if process.names & {*host.processes} and process.pid != os.getpid() and not is_elsewhere:
            return process

    return None


def refuse_running(host: Host, *, force: bool) -> None:
    """Raise ConfigurationError for a host that would take back what is written, unless `force` is said."""
    process = None if force else running(host)
    if process is not None:
        raise ConfigurationError(
            f"{host.name} is running (process {process.pid}), and writes its file from memory, so that what is changed "
            "now may be lost; quit it, then say this again (--force writes at once)"
        )


def processes(platform: str = sys.platform) -> list[Process]:
    """The processes of this user; [] where that cannot be seen."""
    with suppress(OSError):
        if platform == "win32":
            return list(_of_tasklist())
        if platform.startswith("linux"):
            return list(_of_proc())
        return list(_of_ps())
    return []


def _of_proc() -> Iterator[Process]:
    for entry in os.listdir(_PROC):
        if not entry.isdecimal():
            continue
        with suppress(OSError):  # it has ended meanwhile
            place = os.path.join(_PROC, entry)
            if hasattr(os, "getuid") and os.stat(place).st_uid != os.getuid():
                continue

            words = _fields(place, "cmdline")
            (comm,) = _fields(place, "comm")
            yield Process(int(entry), frozenset({comm.strip(), *_called(words)}), _home(place))


def _fields(place: str, name: str) -> list[str]:
    with open(os.path.join(place, name), "rb") as file:
        return file.read().rstrip(b"\0").decode("utf-8", "replace").split("\0")


def _home(place: str) -> str:
    with suppress(OSError):
        found = (each for each in _fields(place, "environ") if each.startswith("HOME="))
        return next(found, "").removeprefix("HOME=")
    return ""


def _of_ps() -> Iterator[Process]:
    """Of this user alone: the whole path of each program, which may have spaces."""
    for line in _said("ps", "-xo", "pid=,comm=").splitlines():
        pid, _, path = line.strip().partition(" ")
        if pid.isdecimal():
            yield Process(int(pid), frozenset(_called([path.strip()])))


def _of_tasklist() -> Iterator[Process]:
    for row in csv.reader(_said("tasklist", "/fo", "csv", "/nh").splitlines()):
        if len(row) > 1 and row[1].isdecimal():
            yield Process(int(row[1]), frozenset(_called([row[0]])))


def _said(*words: str) -> str:
    return run_program(words, seconds=_SECONDS).stdout


def _called(words: list[str]) -> list[str]:
    """What people call a process of these words."""
    names = [word.replace("\\", "/").rpartition("/")[2].removesuffix(".exe") for word in words[:2]]
    return names if names[0].rstrip("0123456789.") in _INTERPRETERS else names[:1]
