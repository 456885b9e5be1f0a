"""Decides whether a server of another MCP library runs with `mcpd.compat` or with its own library.

mcpd.compat starts faster, so it serves a server if it has every name that the server uses. Otherwise, if the library is
installed, the server runs in a child process (`own_library`) that is mounted. The decision needs only the text of the
files; none of their code runs before.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from glob import glob
from importlib.machinery import PathFinder
from typing import NamedTuple
from zlib import crc32

from mcpd.client.names import server_names
from mcpd.client.targets.named import CommandTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.sources.files import stamp_of
from mcpd.sources.mounts.settings import MountSettings
from mcpd.sources.mounts.targets import Wanted
from .loading import environments
from .needs import read_needs
from .programs import file_of, find_command

log = logging.getLogger("mcpd")

# Importing a library and what it needs may take long on a busy machine.
_START_SECONDS = 60.0
_RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "own_library.py")
# The libraries print a banner, and ask the package index for newer versions.
_QUIET = {"FASTMCP_SHOW_SERVER_BANNER": "false", "FASTMCP_SHOW_CLI_BANNER": "false", "FASTMCP_CHECK_FOR_UPDATES": "off"}


class Child(NamedTuple):
    """A server that runs with its own library: its files, and how it is mounted with the files as they are now."""

    files: Sequence[str]
    wanted: Callable[[], Wanted]
    # Whether it checks tokens itself. It does not do that on stdio, by which it is mounted.
    has_login: bool


class _Library(NamedTuple):
    """A library that is installed: its name and version, the Python that has it, and further folders of modules."""

    name: str
    python: str
    paths: Sequence[str] = ()


class _Code(NamedTuple):
    """The code of a target: how the child finds it, its main files, and the folder that they are imported from."""

    target: str
    files: list[str]
    base: str


def child_of(place: str, attribute: str, arguments: Sequence[str], *, always: bool) -> Child | None:
    """Return how a target runs with its own library; None if mcpd.compat runs it.

    Raises ConfigurationError if `always` is given and the library is not installed.
    """
    sites = [
        each for name in environments(place) for each in glob(os.path.join(name, "lib", "python3*", "site-packages"))
    ]
    code = _code_of(place, attribute, sites)
    if code is None:
        return None
    needs = read_needs(code.files, code.base)
    # A module that only another environment has can only run there.
    always = always or code.base in sites
    if not (always or (needs.libraries and needs.missing)):
        return None
    library = _find(sorted(needs.libraries) or ["mcp"], sites)
    if library is None:
        if not always:
            return None
        names = " and ".join(sorted(needs.libraries)) or "mcp"
        where = f"where mcpd runs ({sys.executable}), nor in a .venv beside {place}"
        raise ConfigurationError(f"--library always: {names} is not installed {where}")

    why = "" if always else f", because mcpd.compat has no {needs.missing}"
    log.info("%s runs with its own library, %s%s", printable(place), printable(library.name), printable(why, 500))
    name = os.path.basename(place).removesuffix(".py")
    mount = server_names([name])[name]
    settings = MountSettings(inherit_env=True, start_timeout=_START_SECONDS)

    def wanted() -> Wanted:
        # Python ignores this option. With changed files it is another command, which replaces the running one.
        state = f"mcpd={crc32(repr((library, [stamp_of(path) for path in needs.files])).encode())}"
        command = (library.python, "-X", state, _RUNNER, os.pathsep.join(library.paths), code.target, *arguments)
        return Wanted(mount, CommandTarget(command, env=_QUIET, cwd=os.getcwd(), name=place), settings)

    return Child(needs.files, wanted, needs.has_login or "FASTMCP_SERVER_AUTH" in os.environ)


def _code_of(place: str, attribute: str, sites: Sequence[str]) -> _Code | None:
    after = f":{attribute}" if attribute else ""
    if os.path.isfile(place):
        path = os.path.abspath(place)
        return _Code(path + after, [path], os.path.dirname(path))
    is_module = all(part.isidentifier() for part in place.split("."))
    searched = (None, *([site] for site in sites)) if is_module else ()
    found = next(filter(None, (file_of(place, each) for each in searched)), None)
    files = [found] if found else []
    with suppress(ConfigurationError):  # it has several commands, which loading it reports if it needs one
        command = None if attribute or (found and not found.endswith("__init__.py")) else find_command(place)
        if command is not None:
            files += filter(None, [file_of(command.module)])
            place, after = (place, after) if found else (command.module, f":{command.attr}")

    if not files:
        return None
    base = files[0]
    for _ in range(place.count(".") + 1 + base.endswith("__init__.py")):
        base = os.path.dirname(base)
    if found:
        files.append(os.path.join(os.path.dirname(found), "__main__.py"))
    return _Code(place + after, files, base)


def _find(names: Sequence[str], sites: Sequence[str]) -> _Library | None:
    for site in sites:
        if all(os.path.isdir(os.path.join(site, name)) for name in names):
            return _Library(
                _version(site, names), os.path.normpath(os.path.join(site, *[os.pardir] * 3, "bin", "python"))
            )
    origins = [spec.origin for name in names if (spec := PathFinder.find_spec(name)) and spec.origin]
    if len(origins) < len(names):
        return None
    return _Library(_version(os.path.dirname(os.path.dirname(origins[0])), names), sys.executable, sys.path)


def _version(site: str, names: Sequence[str]) -> str:
    name = next((each for each in ("fastmcp", "mcp") if each in names), names[0])
    found = glob(os.path.join(site, f"{name}-*.dist-info"))
    return f"{name} {os.path.basename(found[0])[len(name) + 1 : -len('.dist-info')]}" if found else name
