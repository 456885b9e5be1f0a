"""Finds the hosts on this machine, the file of each, and whether it is running. Their table is in
`client.targets.hosts`.
"""

from __future__ import annotations

import csv
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches

from msgspec import Struct

from mcpd.client.targets.hosts import HOSTS, Host, places, project_places, system
from mcpd.errors import ConfigurationError
from mcpd.transports.child import run_program

# Google Antigravity reads its newer file if this one exists.
_MIGRATED = "~/.gemini/config/.migrated"

_TWINS = {"windsurf": "devin", "devin": "windsurf"}


class Found(Struct, frozen=True):
    """A host on this machine, and its file, which may not exist yet."""

    host: Host
    path: str


def find_host(text: str) -> Host:
    """Return the host of this id. Raises ConfigurationError that suggests the nearest one."""
    name = "-".join(text.lower().split())
    host = HOSTS.get(name)
    if host is not None:
        return host
    near = [each for each in HOSTS if name and name in each][:2] or get_close_matches(name, HOSTS, 1)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known hosts are {', '.join(HOSTS)}"
    raise ConfigurationError(f"{text}: no such host; {hint}")


def file_of(host: Host, *, project: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the absolute path of the file that this host reads: the user's file, or the file of the folder `project`.

    Raises ConfigurationError if it has none, or if it may read either of two existing files.
    """
    if project is not None:
        below = project_places(host, os.path.abspath(project))
        if not below:
            raise ConfigurationError(f"{host.name} has no configuration file per project; leave out --project")
        return next((path for path in below if os.path.lexists(path)), below[0])

    found = places(host, environment, system())
    if not found:
        raise ConfigurationError(f"{host.name} does not run on this system")
    if host.id == "antigravity":
        return found[0] if os.path.exists(_at_home(_MIGRATED, environment)) else found[1]
    there = [path for path in found if os.path.lexists(path)]
    if len(there) > 1:
        raise ConfigurationError(
            f"{host.name} has {len(there)} files here, {' and '.join(there)}; name the one that it reads "
            "with --file FILE"
        )
    return next((path for path in (*there, *found) if os.path.isdir(os.path.dirname(path))), found[0])


def is_here(host: Host, path: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the host seems to be installed: its file, the folder of that, or its command exists."""
    folder = os.path.dirname(path)
    is_own_folder = folder != os.path.normpath(_at_home("~", environment))
    if os.path.lexists(path) or (is_own_folder and os.path.isdir(folder)):
        return True
    return bool(host.program) and shutil.which(host.program, path=environment.get("PATH")) is not None


def with_other_versions(host: Host) -> list[Host]:
    """Return the host, and the host of another name that is the same program in another version, if both have a folder.

    It is then not known which of the two files is read.
    """
    twin = HOSTS.get(_TWINS.get(host.id, ""))
    if twin is None:
        return [host]
    both = [host, twin]
    return both if all(map(has_folder, both)) else [host]


def has_folder(host: Host) -> bool:
    """Return whether the folder of its user's file exists."""
    return any(os.path.isdir(os.path.dirname(path)) for path in places(host, os.environ, system()))


def found_hosts(environment: Mapping[str, str] = os.environ) -> list[Found]:
    """Return all hosts on this machine, with each file that they may read."""
    found = []
    for host in HOSTS.values():
        below = places(host, environment, system())
        there = [path for path in below if os.path.lexists(path)]
        likely = there or [path for path in below if is_here(host, path, environment)][:1]
        found += [Found(host, path) for path in likely]
    return found


def _at_home(place: str, environment: Mapping[str, str]) -> str:
    home = environment.get("USERPROFILE" if system() == "windows" else "HOME") or os.path.expanduser("~")
    return home + place[1:].replace("/", os.sep)


_PROC = "/proc"
_SECONDS = 10.0
# Programs whose first argument names the process.
_INTERPRETERS = ("node", "bun", "deno", "python", "electron")


class Process(Struct, frozen=True):
    """A process of this user."""

    pid: int
    # The names of its files, without folders and `.exe`.
    names: frozenset[str]
    # Its home folder; "" if that is unknown.
    home: str = ""


def running(host: Host, environment: Mapping[str, str] = os.environ, *, platform: str = sys.platform) -> Process | None:
    """Return the running process of a host that rewrites its file; None if it does not run."""
    # A process with another home folder has another file.
    if not host.rewrites:
        return None
    home = environment.get("HOME", "")

    for process in processes(platform):
        is_elsewhere = process.home and home and os.path.realpath(process.home) != os.path.realpath(home)
        if process.names & {*host.processes} and process.pid != os.getpid() and not is_elsewhere:
            return process

    return None


def refuse_running(host: Host, *, force: bool) -> None:
    """Raise ConfigurationError if the host is running and would overwrite the change, unless `force` is given."""
    process = None if force else running(host)
    if process is not None:
        raise ConfigurationError(
            f"{host.name} is running (process {process.pid}) and may overwrite this change, because it "
            "writes its file from memory; quit it and try again (--force writes anyway)"
        )


def processes(platform: str = sys.platform) -> list[Process]:
    """Return the processes of this user, from /proc, `ps` or `tasklist`; an empty list if that fails."""
    readers = {"win32": _of_tasklist, "linux": _of_proc}
    with suppress(OSError):
        return list(readers.get(platform, _of_ps)())
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
            yield Process(int(entry), frozenset({comm.strip(), *_process_names(words)}), _home(place))


def _fields(place: str, name: str) -> list[str]:
    with open(os.path.join(place, name), "rb") as file:
        return file.read().rstrip(b"\0").decode("utf-8", "replace").split("\0")


def _home(place: str) -> str:
    with suppress(OSError):
        found = (each for each in _fields(place, "environ") if each.startswith("HOME="))
        return next(found, "").removeprefix("HOME=")
    return ""


def _of_ps() -> Iterator[Process]:
    # `ps` prints the absolute path of each program, which may contain spaces.
    for line in _output_of("ps", "-xo", "pid=,comm=").splitlines():
        pid, _, path = line.strip().partition(" ")
        if pid.isdecimal():
            yield Process(int(pid), frozenset(_process_names([path.strip()])))


def _of_tasklist() -> Iterator[Process]:
    for row in csv.reader(_output_of("tasklist", "/fo", "csv", "/nh").splitlines()):
        if len(row) > 1 and row[1].isdecimal():
            yield Process(int(row[1]), frozenset(_process_names([row[0]])))


def _output_of(*words: str) -> str:
    return run_program(words, seconds=_SECONDS).stdout


def _process_names(words: list[str]) -> list[str]:
    names = [word.replace("\\", "/").rpartition("/")[2].removesuffix(".exe") for word in words[:2]]
    return names if names[0].rstrip("0123456789.") in _INTERPRETERS else names[:1]
