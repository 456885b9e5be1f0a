"""The results and settings of a `Library`."""

from __future__ import annotations

from msgspec import Struct

from mcpd.errors import McpdError
from mcpd.protocol.printable import printable
from mcpd.sources.docs.page import Kind


class UnknownPage(McpdError):
    """There is no such page. `near` has similar paths, best first."""

    def __init__(self, path: str, near: list[str]) -> None:
        super().__init__(f"page not found: '{printable(path)}'")
        self.path = path
        self.near = near


class UnknownSection(McpdError):
    """There is no such section. `near` has similar names, or all names if there are few."""

    def __init__(self, section: str, near: list[str]) -> None:
        super().__init__(f"section not found: '{printable(section)}'")
        self.section = section
        self.near = near


class BadCursor(McpdError):
    """The cursor is malformed, belongs to another query, or is out of date. Search again without it."""


class LeftOut(Struct, frozen=True):
    """A file that is not a page, with the reason."""

    path: str
    reason: str


class Progress(Struct, frozen=True):
    """The progress of indexing: `done` of `total` pages can be found."""

    done: int
    total: int

    @property
    def is_complete(self) -> bool:
        return self.done >= self.total


class Section(Struct, frozen=True):
    """A top-level folder."""

    name: str
    """The value for `section=`; empty for the pages at the top."""
    title: str
    pages: int


class Overview(Struct, frozen=True):
    title: str
    sections: list[Section]
    pages: int
    progress: Progress


class PageInfo(Struct, frozen=True):
    """A page in a list. Until it is indexed, its title is made from its name and its description is empty."""

    path: str
    title: str
    section: str
    description: str
    mime_type: str
    """The MIME type of its text: text/markdown or text/plain."""
    kind: Kind
    size: int
    """In bytes."""
    order: int
    modified_ns: int


class Place(Struct, frozen=True):
    """A place in a page."""

    path: str
    title: str
    section: str
    heading: str
    """The heading at that place; may be empty."""
    anchor: str


class SearchHit(Place, frozen=True):
    """A page that matches, with the best place in it."""

    snippet: str
    """The text at that place on one line, with about 300 characters."""
    highlights: list[tuple[int, int]]
    """The positions (start, end) of matching words in the snippet."""


class SearchResult(Struct, frozen=True):
    """The matching pages, best first."""

    hits: list[SearchHit]
    total: int
    """The number of matching pages, at most 100."""
    next_cursor: str | None
    corrected: str | None
    """The query that was used instead, if words of the original are not in any page."""
    progress: Progress


class CodeHit(Place, frozen=True):
    """A matching block of code."""

    language: str
    text: str
    before: str


class CodeResult(Struct, frozen=True):
    """The matching blocks of code, best first."""

    hits: list[CodeHit]
    total: int
    """The number of matching blocks, at most 100."""
    next_cursor: str | None
    languages: list[str]
    """The existing languages, most used first, if nothing matched."""
    progress: Progress


class Entry(Place, frozen=True):
    """A place where a command or setting is described. `heading` is empty if the whole page describes it."""

    text: str
    """The description in Markdown, at most about 4,000 characters."""


class EntryResult(Struct, frozen=True):
    """The descriptions of a name, best first. Without any, `near` has similar names."""

    entries: list[Entry]
    near: list[str]
    progress: Progress


class DocsSettings(Struct, frozen=True, kw_only=True):
    """The settings of a library. Files beyond a limit are left out and listed in `Library.left_out`."""

    title: str = ""
    """The title of the documents; by default the title of the first page, or the folder's name."""
    include: tuple[str, ...] = ()
    """Patterns of the files to read, such as `"*.md"` or `"guides/*"`; by default all."""
    exclude: tuple[str, ...] = ()
    """Patterns of files to leave out, such as `"*.bak"` or `"drafts/*"`."""
    max_files: int = 50_000
    """The largest number of documents."""
    max_bytes: int = 4 * 1024 * 1024
    """The largest file in bytes; PDF files may be four times as large."""
    max_depth: int = 24
    """The largest depth of folders."""
    seconds_per_file: float = 10.0
    """The time limit for reading one file."""
    search_wait: float = 3.0
    """How many seconds a search waits for pages that are not indexed yet."""
