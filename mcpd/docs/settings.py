"""`DocsSettings`: what of a folder is read, and how much."""

from __future__ import annotations

from msgspec import Struct


class DocsSettings(Struct, frozen=True, kw_only=True):
    """Limits and choices of a library. What goes beyond a limit is left out and named in `Library.left_out`."""

    title: str = ""
    """What the documents are called; by default the title of the first page at the top, else the folder's name."""
    include: tuple[str, ...] = ()
    """The only files that are read, as `"*.md"` or `"guides/*"`; without any all are."""
    exclude: tuple[str, ...] = ()
    """Files that are not read, as `"*.bak"` or `"drafts/*"`."""
    max_files: int = 50_000
    """How many documents are read."""
    max_bytes: int = 4 * 1024 * 1024
    """The largest file that is read, in bytes; of PDF files four times as much."""
    max_depth: int = 24
    """How many folders deep documents may lie."""
    seconds_per_file: float = 10.0
    """How long the reading of one file may take."""
    search_wait: float = 3.0
    """How many seconds a search waits for the pages that are not indexed yet, before it does without them."""
