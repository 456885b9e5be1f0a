"""Where the index of a folder's documents is kept."""

from __future__ import annotations

import os
from hashlib import sha256


def index_file(said: str, folder: str, root: str) -> str | None:
    """The file of the index; None for one in memory. `said` is `disk`, `memory`, or a path that begins at `root`.

    `disk` is a file in the user's cache, one for each folder. Where there is no home, the index is in memory.
    """
    if said == "memory":
        return None
    if said != "disk":
        return os.path.join(root, said)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        home = os.path.expanduser("~")
        if not os.path.isabs(home) or not os.path.isdir(home):
            return None
        cache = os.path.join(home, ".cache")
    name = sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return os.path.join(cache, "mcpd", "docs", f"{name}.sqlite")
