"""The command by which a host starts us, next month too: environments that are made for one run are not named in it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping

from mcpd import __version__

_SERVE = ("serve", "--stdio")
_AGAIN = {
    "uvx": ("--from", f"mcpd-server[all]=={__version__}", "mcpd"),
    "pipx": ("run", "--spec", f"mcpd-server[all]=={__version__}", "mcpd"),
}


def serving_command(
    executable: str | None = None, environment: Mapping[str, str] = os.environ
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words before TARGET, the first an absolute path; and what the user should know of them, in sentences."""
    # Of a file with a header another Python runs us, which has no mcpd of its own.
    executable = executable or environment.get("_MCPD_PYTHON", sys.executable)
    maker = made_for_one_run_by(executable, environment)
    again = shutil.which(maker, path=environment.get("PATH")) if maker in _AGAIN else None
    if again is not None:
        text = (
            f"this mcpd is in an environment that {maker} made for one run, so the host is told to start it by {maker}"
        )
        return (os.path.abspath(again), *_AGAIN[maker], *_SERVE), (text,)

    own = _beside(executable)
    command = (own, *_SERVE) if own is not None else (os.path.abspath(executable), "-m", "mcpd", *_SERVE)
    if not maker:
        return command, ()
    text = (
        f"this mcpd is in a temporary folder ({os.path.dirname(executable)}), and the host will not find it once that "
        "is gone; install it for good (pip install mcpd-server, or pipx install mcpd-server), and say this again there"
    )
    return command, (text,)


def made_for_one_run_by(executable: str, environment: Mapping[str, str] = os.environ) -> str:
    """`uvx` or `pipx` for an interpreter in an environment that these keep in a cache, `temporary` for one below a
    temporary folder, "" for all others."""
    path = os.path.abspath(executable).replace("\\", "/")
    parts = path.lower().split("/")
    uv_cache = environment.get("UV_CACHE_DIR")
    if any(part.startswith(("archive-v", "environments-v", "builds-v")) for part in parts):
        return "uvx"
    if uv_cache and _is_below(path, uv_cache):
        return "uvx"
    if "pipx" in parts and {".cache", "cache"} & set(parts):
        return "pipx"
    return "temporary" if _is_below(path, tempfile.gettempdir()) else ""


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(os.path.abspath(folder).replace("\\", "/").rstrip("/") + "/")


def _beside(executable: str) -> str | None:
    """The `mcpd` command of the installation that this interpreter is of."""
    folder = os.path.dirname(os.path.abspath(executable))
    for name in ("mcpd", "mcpd.exe"):
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None
