"""Folders that are servers, for tests: written from text, opened in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from mcpd import Server
from mcpd.sources.docs.library import Library
from mcpd.sources.docs.page import Progress
from mcpd.sources.folder import Folder
from mcpd.sources.lookup import folder_at

__all__ = ["indexed", "opened", "problems", "write"]


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below `root`, by their path, and give `root`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def opened(root: Path, files: Mapping[str, str | bytes] | None = None) -> Server:
    """The server that a folder is, after these files were written into it."""
    return Folder(folder_at(str(write(root, files or {})))).server


def problems(server: Server) -> list[str]:
    """What its source left out or found odd, each in a line."""
    return [f"{problem}" for found in server.catalog.source_problems.values() for problem in found]


async def indexed(library: Library, seconds: float = 600) -> Progress:
    """Wait until all known changes of documents are indexed, at most this long."""
    await asyncio.to_thread(library._index.wait, seconds)
    return library.progress
