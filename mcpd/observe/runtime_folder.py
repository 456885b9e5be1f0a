"""Where the control sockets of this user's servers are: a folder of the user's own, that nobody else may look into."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mcpd.errors import ConfigurationError

MOST_PATH_BYTES = 100
"""What the kernel takes as the path of a socket is 108 bytes, or 104."""

_PREFIX, _SUFFIX = "control-", ".sock"


def folder_path() -> Path:
    """`$XDG_RUNTIME_DIR/mcpd`, else one of this user's in the folder for temporary files."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        return Path(runtime, "mcpd")
    return Path(os.environ.get("TMPDIR") or "/tmp", f"mcpd-{os.getuid()}")


def checked_folder(*, make: bool) -> Path | None:
    """The folder, which is this user's, and no link; None if there is none and none is to be made.

    Raises ConfigurationError for one that others may have made or may look into: a socket in it may be anybody's.
    """
    folder = folder_path()
    try:
        if make:
            try:
                folder.mkdir(mode=0o700, parents=False)
            except FileExistsError:
                pass
        found = os.lstat(folder)
    except OSError as error:
        if not make and isinstance(error, FileNotFoundError):
            return None
        raise ConfigurationError(f"{folder}: {error.strerror}; set XDG_RUNTIME_DIR to a folder of yours") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigurationError(
            f"{folder} is no folder of yours with mode 0700, so that nothing in it is trusted; "
            "remove it, or set XDG_RUNTIME_DIR to a folder of yours"
        )
    return folder


def control_path(folder: Path) -> str:
    """The path of this process's control socket. Raises ConfigurationError if it is too long for one."""
    path = str(folder / f"{_PREFIX}{os.getpid()}{_SUFFIX}")
    if len(os.fsencode(path)) > MOST_PATH_BYTES:
        raise ConfigurationError(
            f"{path} is too long for a socket; set XDG_RUNTIME_DIR to a folder with a shorter name"
        )
    return path


def control_sockets(folder: Path) -> dict[int, str]:
    """The sockets in the folder, by the process that made them, which may have ended; what is no socket is left out."""
    found: dict[int, str] = {}
    for entry in os.scandir(folder):
        number = entry.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        try:
            seen = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if number.isdecimal() and stat.S_ISSOCK(seen.st_mode) and seen.st_uid == os.getuid():
            found[int(number)] = entry.path
    return dict(sorted(found.items()))
