"""Files that hold secrets of the operator's: read whole, and told of if other users of the machine can read them.

They may come from elsewhere with a mode that nobody chose, as a volume of Kubernetes does, so that this is a warning;
what mcpd writes itself is refused then.
"""

from __future__ import annotations

import logging
import os
import stat

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")

_MOST_BYTES = 4096


def secret_in(path: str, what: str) -> str:
    """The text of a file that holds a secret, without space round it; "" for no file. `what` names it in errors.

    Raises ConfigurationError.
    """
    if not path:
        return ""

    try:
        with open(path, encoding="utf-8") as file:
            secret = file.read(_MOST_BYTES).strip()
            warn_if_shared(path, os.fstat(file.fileno()))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigurationError(f"{what}: {printable(path)}: {why}; write the secret into that file") from None

    if not secret:
        raise ConfigurationError(f"{what}: {printable(path)} is empty; write the secret into it")
    return secret


def warn_if_shared(path: str, found: os.stat_result) -> None:
    """Log a warning if others than its owner can read a file."""
    if os.name == "posix" and stat.S_IMODE(found.st_mode) & 0o077:
        text = "%s holds secrets, and other users of this machine can read it; run: chmod 600 %s"
        log.warning(text, printable(path), printable(path))
