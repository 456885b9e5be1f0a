"""Files as arguments: a `Path` for a parameter that takes a file becomes what the server can read.

A small file becomes a data URI. A server in a process of this machine gets the path of a larger one, and opens it if
its folder is allowed.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
from base64 import b64encode
from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from mcpd.errors import ConfigurationError
from mcpd.protocol.types.features import Tool

_MOST_INLINE_BYTES = 256 << 10


def has_paths(arguments: Any) -> bool:
    """Return whether arguments have a path, or a list of paths."""
    return isinstance(arguments, Mapping) and any(
        isinstance(value, PurePath)
        or (isinstance(value, list) and bool(value) and all(isinstance(item, PurePath) for item in value))
        for value in arguments.values()
    )


def file_parameters(tool: Tool | None) -> Collection[str]:
    """Return the names of the parameters of a tool that take files."""
    names = None if tool is None else (tool.meta or {}).get("openai/fileParams")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


async def with_files(arguments: Mapping[str, Any], tool: Tool | None, *, is_local: bool) -> dict[str, Any]:
    """Return arguments with what the server reads in place of each path of a file.

    Raises ConfigurationError for a file that cannot be sent, OSError for one that cannot be read.
    """
    sent = dict(arguments)
    for name in file_parameters(tool):
        value = sent.get(name)
        if isinstance(value, PurePath):
            sent[name] = await asyncio.to_thread(_written, value, is_local)
        elif isinstance(value, list):
            sent[name] = [
                await asyncio.to_thread(_written, item, is_local) if isinstance(item, PurePath) else item
                for item in value
            ]
    return sent


def _written(path: PurePath, is_local: bool) -> str:
    size = os.stat(path).st_size
    if size > _MOST_INLINE_BYTES:
        if is_local:
            return os.path.abspath(path)
        raise ConfigurationError(
            f"{path}: a file of {size:,} bytes must be uploaded first: POST to /files below the endpoint, PUT the "
            "bytes to the url of the answer, and pass its id"
        )
    with open(path, "rb") as file:
        data = file.read()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return f"data:{kind};name={quote(path.name, safe='')};base64,{b64encode(data).decode()}"
