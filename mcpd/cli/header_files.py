"""Which files of what is served say in a PEP 723 header (`# /// script`) what they need. Looks at bytes only.

Loaded at each start, so it is little: what the headers say is read in `script_headers`, for files that have one.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from mcpd.cli.target import Found, split

_MARK = b"# /// script"
_MOST_HEADER_BYTES = 1024 * 1024
_MOST_FILES = 1000  # `MOST_OF_A_KIND` of `sources.tree`, which most starts do not load


def surroundings(targets: Sequence[Found]) -> dict[str, str]:
    """See to it that what the headers of these targets ask for is there: the process may become another one.

    The result says of which files of folders it is not, and why. Raises ConfigurationError if a target needs it.
    """
    files = [path for target in targets for path in _files_of(target)]
    below = [path for target in targets for path in _files_below(target)]
    if not files and not below:
        return {}

    from mcpd.cli.script_environment import enter

    return enter(files, below)


def _files_of(target: Found) -> list[str]:
    """The files without which a target is not served: its own, or what a folder's tools share; those with a header."""
    place, configuration = target.place, target.configuration
    if place is None:
        path = "" if target.name is None else split(target.name)[0]
        return [path] if path.endswith(".py") and _has_header(path) else []
    said = "lifespan.py" if configuration is None else configuration.lifespan or "lifespan.py"
    path = os.path.join(place.root, said.partition(":")[0])
    return [path] if place.is_trusted and _has_header(path) else []


def _files_below(target: Found) -> list[str]:
    """The files of a folder's tools that have a header."""
    place, configuration = target.place, target.configuration
    if place is None or not place.is_trusted:
        return []
    if configuration is not None and not configuration.tools.enabled:
        return []
    folder = "tools" if configuration is None else configuration.tools.folder

    top = os.path.normpath(os.path.join(place.root, folder))
    found: list[str] = []
    looked_at = 0

    for above, folders, names in os.walk(top):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith("."):
                looked_at += 1
                path = os.path.join(above, name)
                if looked_at <= _MOST_FILES and _has_header(path) and _is_of(top, path):
                    found.append(path)
    return found


def _is_of(folder: str, path: str) -> bool:
    """Whether it is no link that leads out of the folder: such a file is not imported either."""
    if not os.path.islink(path):
        return True
    from mcpd.server.folder_files import is_below

    return is_below(path, folder)


def _has_header(path: str) -> bool:
    try:
        # A pipe would never be opened.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb", buffering=0) as file:
            return _MARK in (file.read(_MOST_HEADER_BYTES) or b"")
    except OSError:
        return False  # who loads it says so
