"""Which file of a host is written: `client.targets.hosts` has the table, this picks from it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Literal, TypeAlias

from msgspec import Struct

from mcpd.client.targets.hosts import HOSTS, Host, places, project_places, system
from mcpd.errors import ConfigurationError

Scope: TypeAlias = Literal["user", "project"]

_MIGRATED = "~/.gemini/config/.migrated"
"""Google Antigravity reads its newer file once this is there."""

_TWINS = {"windsurf": "devin", "devin": "windsurf"}


class Found(Struct, frozen=True):
    """A host that is on this machine, and its file, which may not be there yet."""

    host: Host
    path: str


def find_host(text: str) -> Host:
    """The host of this id. Raises ConfigurationError that names the nearest."""
    name = "-".join(text.lower().split())
    host = HOSTS.get(name)
    if host is not None:
        return host
    near = [each for each in HOSTS if name and name in each][:2] or get_close_matches(name, HOSTS, 1)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(HOSTS)}"
    raise ConfigurationError(f"{text}: there is no host of this name; {hint}")


def file_of(host: Host, *, project: str | None = None, environment: Mapping[str, str] = os.environ) -> str:
    """The absolute path of the file that this host reads: its user's, or the one in the folder `project`.

    Raises ConfigurationError where it has none, and where two are there of which it may read either.
    """
    if project is not None:
        below = project_places(host, os.path.abspath(project))
        if not below:
            raise ConfigurationError(f"{host.name} has no file for one project; leave --project out")
        return next((path for path in below if os.path.lexists(path)), below[0])

    found = places(host, environment, system())
    if not found:
        raise ConfigurationError(f"{host.name} does not run on this system")
    if host.id == "antigravity":
        return found[0] if os.path.exists(_at_home(_MIGRATED, environment)) else found[1]
    there = [path for path in found if os.path.lexists(path)]
    if len(there) > 1:
        raise ConfigurationError(
            f"{host.name} has {len(there)} files here, {' and '.join(there)}; say which one it reads with --file FILE"
        )
    return next((path for path in (*there, *found) if os.path.isdir(os.path.dirname(path))), found[0])


def is_here(host: Host, path: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether there is a sign of this host: its file, the folder of that, or its command."""
    folder = os.path.dirname(path)
    is_own_folder = folder != os.path.normpath(_at_home("~", environment))
    if os.path.lexists(path) or (is_own_folder and os.path.isdir(folder)):
        return True
    return bool(host.program) and shutil.which(host.program, path=environment.get("PATH")) is not None


def with_twin(host: Host, environment: Mapping[str, str] = os.environ) -> list[Host]:
    """The host, and the one of another name that is the same program in another version, if both have a folder here:
    which of the two files is read is not known."""
    twin = HOSTS.get(_TWINS.get(host.id, ""))
    if twin is None:
        return [host]
    both = [host, twin]
    return both if all(has_folder(each, environment) for each in both) else [host]


def has_folder(host: Host, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether there is a folder for its user's file."""
    return any(os.path.isdir(os.path.dirname(path)) for path in places(host, environment, system()))


def found_hosts(environment: Mapping[str, str] = os.environ) -> list[Found]:
    """All hosts that are on this machine, with each file that they may read."""
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
