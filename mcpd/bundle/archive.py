"""The zip file of a bundle: the same bytes for the same files, whenever and wherever it is written."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping

from mcpd.errors import ConfigurationError
from mcpd.transports.files import replacing

_WHEN = (1980, 1, 1, 0, 0, 0)
"""The oldest time that a zip file can hold."""
_MODE = 0o100644


def write_archive(path: str, files: Mapping[str, bytes | str]) -> int:
    """Write files, by their path in the bundle, as bytes or as the path of a file to read; gives the size in bytes.

    The file is there whole or not at all. Raises ConfigurationError.
    """
    try:
        with (
            replacing(path, mode=0o644) as out,
            zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        ):
            for name in sorted(files):
                archive.writestr(_entry(name), _content(files[name]), compresslevel=9)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    return os.path.getsize(path)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _WHEN)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3
    entry.external_attr = _MODE << 16
    return entry


def _content(source: bytes | str) -> bytes:
    if isinstance(source, bytes):
        return source
    with open(source, "rb") as file:
        return file.read()
