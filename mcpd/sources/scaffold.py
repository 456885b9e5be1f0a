"""The example folder that `mcpd init` writes. This module is never loaded by a server.

`assets/init` has its files, and `assets/mcpd.schema.json` is the JSON Schema of `mcpd.toml`.
"""

from __future__ import annotations

import os
from pathlib import Path

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.files import bundled_folder

_SCHEMA = ".mcpd.schema.json"


def shipped_file() -> str:
    return os.path.join(bundled_folder(), "mcpd.schema.json")


def write_folder(folder: str) -> list[str]:
    """Write the example and return the paths below the folder. Raises ConfigurationError if one of the files exists."""
    files = _files(_name(folder))
    there = [path for path in files if os.path.lexists(os.path.join(folder, path))]
    if there:
        path = printable(os.path.join(folder, there[0]))
        raise ConfigurationError(f"{path} already exists, so nothing was written; name another folder")

    try:
        for path, content in files.items():
            whole = os.path.join(folder, path)
            os.makedirs(os.path.dirname(whole), exist_ok=True)
            with open(whole, "xb") as file:
                file.write(content)
    except OSError as error:
        raise ConfigurationError(f"{printable(error.filename or folder)} cannot be written: {error.strerror}") from None

    return list(files)


def _files(name: str) -> dict[str, bytes]:
    top = Path(bundled_folder(), "init")
    files = [
        path
        for path in sorted(top.rglob("*"), key=lambda path: (path.parent != top, path))
        if path.is_file() and path.parent.name != "__pycache__"
    ]
    found = {str(path.relative_to(top)): path.read_bytes() for path in files}
    found["mcpd.toml"] = found["mcpd.toml"].replace(b"NAME", name.encode())
    return {**found, _SCHEMA: Path(shipped_file()).read_bytes()}


def _name(folder: str) -> str:
    # Return the folder's name with characters that can be written between quotes.
    plain = "".join(c if c.isalnum() or c in "-_." else " " for c in os.path.basename(os.path.abspath(folder)))
    return "-".join(plain.split()) or "notes"
