"""What a library answers: values, made for people and models alike."""

from __future__ import annotations

from msgspec import Struct

from mcpd.errors import McpdError
from mcpd.protocol.printable import printable
from mcpd.sources.docs.page import Kind


class UnknownPage(McpdError):
    """There is no such page; `near` are paths that look like it, best first."""

    def __init__(self, path: str, near: list[str]) -> None:
        super().__init__(f"there is no page '{printable(path)}'")
        self.path = path
        self.near = near


class UnknownSection(McpdError):
    """There is no such section; `near` are names that look like it, or all of them if there are few."""

    def __init__(self, section: str, near: list[str]) -> None:
        super().__init__(f"there is no section '{printable(section)}'")
        self.section = section
        self.near = near


class BadCursor(McpdError):
    """A cursor that is none of ours, of another query, or from before the pages changed: search again without it."""


class LeftOut(Struct, frozen=True):
    """A file that is no page, and why."""

    path: str
    reason: str


class Progress(Struct, frozen=True):
    """How far indexing is: `done` of `total` pages can be found."""

    done: int
    total: int

    @property
    def is_complete(self) -> bool:
        """Whether every page can be found."""
        return self.done >= self.total


class Section(Struct, frozen=True):
    """A folder at the top."""

    name: str
    """What `section=` takes; empty for the pages at the top themselves."""
    title: str
    pages: int


class Overview(Struct, frozen=True):
    """The whole of a library."""

    title: str
    sections: list[Section]
    pages: int
    progress: Progress


class PageInfo(Struct, frozen=True):
    """A page in a list. Before it is indexed its title is made of its name, and its description is empty."""

    path: str
    title: str
    section: str
    description: str
    mime_type: str
    """Of the text that reading it gives: text/markdown or text/plain."""
    kind: Kind
    size: int
    """Of the file, in bytes."""
    order: int
    modified_ns: int


class SearchHit(Struct, frozen=True):
    """A page that was found, with the place in it that fits best."""

    path: str
    title: str
    section: str
    heading: str
    """The heading at that place; empty above the first one."""
    anchor: str
    snippet: str
    """A piece of the text there, on one line, at most some 300 characters."""
    highlights: list[tuple[int, int]]
    """Where in the snippet words of the query stand: (start, end)."""
    score: float
    """Larger is better; to be compared within one result only."""
    kind: Kind


class SearchResult(Struct, frozen=True):
    """The pages that fit a query, best first, each once."""

    query: str
    hits: list[SearchHit]
    total: int
    """How many pages were found; no more than the best hundred are counted."""
    next_cursor: str | None
    corrected: str | None
    """The query that was searched instead, if words of it are nowhere in the pages."""
    progress: Progress


class CodeHit(Struct, frozen=True):
    """A block of code that was found."""

    path: str
    title: str
    section: str
    heading: str
    anchor: str
    language: str
    text: str
    before: str
    score: float


class CodeResult(Struct, frozen=True):
    """Blocks of code, best first."""

    words: str
    hits: list[CodeHit]
    total: int
    """How many blocks were found; no more than the best hundred are counted."""
    next_cursor: str | None
    languages: list[str]
    """The languages that there are, most used first: for a miss."""
    progress: Progress


class Entry(Struct, frozen=True):
    """Where a command or a setting is described."""

    path: str
    title: str
    section: str
    heading: str
    """Empty if the page as a whole is about it."""
    anchor: str
    text: str
    """What is said of it there: Markdown, cut at some 4,000 characters."""
    is_exact: bool
    """Whether the page, the heading or the item bears this very name."""


class EntryResult(Struct, frozen=True):
    """What was found for a name, best first; `near` has names that look like it if nothing was."""

    name: str
    entries: list[Entry]
    near: list[str]
    progress: Progress


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
