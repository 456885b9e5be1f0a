"""`Page`, a document that was read, what paths say about pages, and the results and settings of a `Library`."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from mcpd.errors import McpdError
from mcpd.protocol.printable import printable

Kind = Literal["markdown", "mdx", "rst", "html", "text", "notebook", "pdf"]


class UnreadablePage(McpdError):
    """A document cannot be read; the message says why."""


class Heading(Struct, frozen=True):
    """A heading. `text[start:end]` of the page is its section, including deeper headings."""

    level: int
    """From 1 to 6."""
    title: str
    """Without markup."""
    anchor: str
    """The fragment of links to it, unique within the page."""
    start: int
    end: int


class CodeBlock(Struct, frozen=True):
    language: str
    """In lower case; empty if the author did not name it."""
    text: str
    before: str
    """The line of text that introduces it; may be empty."""
    start: int


class Page(Struct, frozen=True):
    path: str
    """Relative to the folder, with `/`, such as `02-guides/units.mdx`."""
    title: str
    section: str
    """The top-level folder without its number; empty for pages at the top."""
    description: str
    """The author's description, or the first sentences; may be empty."""
    order: int
    """The author's order, or the number in the file name, otherwise 1,000,000."""
    text: str
    """Markdown, or plain text according to `mime_type`."""
    mime_type: str
    """text/markdown or text/plain."""
    kind: Kind
    headings: tuple[Heading, ...] = ()
    code: tuple[CodeBlock, ...] = ()


NO_ORDER = 1_000_000

_KINDS: dict[str, Kind] = {
    ".md": "markdown", ".markdown": "markdown", ".mdown": "markdown", ".mkd": "markdown",
    ".mdx": "mdx",
    ".rst": "rst", ".rest": "rst",
    ".html": "html", ".htm": "html", ".xhtml": "html",
    ".txt": "text", ".text": "text",
    ".ipynb": "notebook",
    ".pdf": "pdf",
}  # fmt: skip
_INDEXES = ("index", "readme", "_index", "overview")

_NUMBER = re.compile(r"(\d{1,6})[-_. ]+(?=\S)")


def kind_of(path: str) -> Kind | None:
    """Return the format of a file by its suffix, or None if it is not a document."""
    dot = path.rfind(".")
    return None if dot < 0 else _KINDS.get(path[dot:].lower())


def mime_type_of(kind: Kind) -> str:
    return "text/plain" if kind in ("text", "pdf") else "text/markdown"


def without_number(name: str) -> str:
    """Return a file or folder name without its number: `02-guides` becomes `guides`."""
    found = _NUMBER.match(name)
    return name[found.end() :] if found else name


def site_path(path: str) -> str:
    """Return the path of a page on a site: without suffix and numbers, and for an index page the folder."""
    *folders, name = (without_number(part) for part in path.split("/"))
    stem = name.rsplit(".", 1)[0]
    return "/".join(folders if stem.lower() in _INDEXES[:3] else [*folders, stem])


def section_of(path: str) -> str:
    return without_number(path.split("/", 1)[0]) if "/" in path else ""


def folder_of(path: str) -> str:
    """Return the folders of a page without their numbers, such as `features/units`."""
    return "/".join(without_number(part) for part in path.split("/")[:-1])


def order_of(path: str) -> int:
    # An index page comes first.
    name = path.rsplit("/", 1)[-1]
    found = _NUMBER.match(name)
    if found:
        return int(found[1])
    return 0 if name.rsplit(".", 1)[0].lower() in _INDEXES else NO_ORDER


def title_of(path: str) -> str:
    """Return a title made from a file name, or for an index page from the folder's name."""
    parts = path.split("/")
    stem = parts[-1].rsplit(".", 1)[0] or parts[-1]
    if len(parts) > 1 and stem.lower() in _INDEXES[:3]:
        stem = parts[-2]
    words = re.sub(r"[-_\s]+", " ", without_number(stem)).strip()
    return words[:1].upper() + words[1:] if words else stem


def titled_page(text: str) -> str:
    """Return the `<title>` of an HTML page without the name of the site at its end."""
    return re.split(r"\s+[—–|·-]\s+(?!.*\s[—–|·-]\s)", " ".join(text.split()), maxsplit=1)[0].strip(" ¶#")


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
    kind: Kind
    size: int
    """In bytes."""
    order: int
    modified_ns: int


class Place(Struct, frozen=True):
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
    hits: list[SearchHit]
    total: int
    """The number of matching pages, at most 100."""
    next_cursor: str | None
    corrected: str | None
    """The query that was used instead, if words of the original are not in any page."""
    progress: Progress


class CodeHit(Place, frozen=True):
    language: str
    text: str
    before: str


class CodeResult(Struct, frozen=True):
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
    max_bytes: int = 4 * 1024 * 1024
    """The largest file in bytes; PDF files may be four times as large."""
    max_depth: int = 24
    seconds_per_file: float = 10.0
    search_wait: float = 3.0
    """How many seconds a search waits for pages that are not indexed yet."""
