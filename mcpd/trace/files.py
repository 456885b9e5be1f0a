"""The folder of traces that `mcpd trace` writes by default, and which old traces are removed from it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from mcpd.errors import ConfigurationError
from mcpd.transports.files import state_folder, try_lock

MOST_KEPT = 20
"""How many traces the default folder keeps; the oldest go. Those that are written just now stay."""

_NAME = re.compile(r"[\w.+-]{1,40}-\d{8}-\d{6}-\d{1,10}\.jsonl(\.1)?")


def default_folder() -> Path:
    """The folder `traces` of mcpd's state folder."""
    return Path(state_folder()) / "traces"


def new_default_path(command: str) -> Path:
    """A name for the trace of a command, in the default folder, which is made; old traces there are removed.

    Raises ConfigurationError if the folder cannot be made.
    """
    folder = default_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be made: {error.strerror}; name a file: --file FILE") from error
    _remove_old(folder)
    name = re.sub(r"[^\w.+-]", "_", os.path.basename(command))[:40] or "server"
    return folder / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}.jsonl"


def newest_trace() -> Path | None:
    """The trace in the default folder that was written last."""
    found = [path for path, _ in _traces(default_folder()) if path.suffix == ".jsonl"]
    return found[0] if found else None


def _traces(folder: Path) -> list[tuple[Path, float]]:
    """Our files in a folder, newest first, with when they were written."""
    found = []
    with suppress(OSError):
        for path in folder.iterdir():
            if _NAME.fullmatch(path.name):
                with suppress(OSError):
                    found.append((path, path.stat().st_mtime))
    return sorted(found, key=lambda each: each[1], reverse=True)


def _remove_old(folder: Path) -> None:
    runs = [path for path, _ in _traces(folder) if path.suffix == ".jsonl"]
    for path in runs[MOST_KEPT - 1 :]:
        with suppress(OSError), path.open("rb") as file:
            if try_lock(file.fileno()):  # a trace that is being written is locked
                path.unlink()
                path.with_name(path.name + ".1").unlink(missing_ok=True)
