"""`Page`: one document, read. What is shown of it, what is searched, and what it is made of."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from mcpd.errors import McpdError

Kind = Literal["markdown", "mdx", "rst", "html", "text", "notebook", "pdf"]
"""What a document was written in."""


class UnreadablePage(McpdError):
    """A document cannot be read; the text says why, for its author."""


class Heading(Struct, frozen=True):
    """A heading. `text[start:end]` of its page is its section: the heading, what is below it, and deeper headings."""

    level: int
    """From 1 to 6."""
    title: str
    """Without markup."""
    anchor: str
    """What a link to it has behind `#`; each is there once in a page."""
    start: int
    end: int


class CodeBlock(Struct, frozen=True):
    """A block of code."""

    language: str
    """In lower case, as its author named it; empty if it is not named."""
    text: str
    heading: str
    """The title of the heading it stands under; empty above the first one."""
    before: str
    """The line of text that introduces it; may be empty."""
    start: int
    """Where it begins in the text of its page."""


class Link(Struct, frozen=True):
    """A link, with its target as it was written."""

    text: str
    target: str


class Page(Struct, frozen=True):
    """One document of a folder."""

    path: str
    """Below the folder, with `/`: `02-guides/units.mdx`."""
    title: str
    section: str
    """The folder at the top that it is in, without a number before its name; empty at the top."""
    description: str
    """One or two sentences: its author's, or the first ones of its text; may be empty."""
    order: int
    """Its place among its neighbours: its author's, or the number before its name; 1,000,000 if neither is there."""
    text: str
    """What is read and searched: Markdown, or plain text if `mime_type` says so."""
    mime_type: str
    """Of `text`: text/markdown or text/plain."""
    kind: Kind
    headings: tuple[Heading, ...] = ()
    code: tuple[CodeBlock, ...] = ()
    links: tuple[Link, ...] = ()
    front: dict[str, object] = {}
    """What the head of the file says, between lines of `---`."""


NO_ORDER = 1_000_000
"""The place of what has none."""

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
    """What a file is written in, by its suffix; None for what is no document."""
    dot = path.rfind(".")
    return None if dot < 0 else _KINDS.get(path[dot:].lower())


def mime_type_of(kind: Kind) -> str:
    """The type of the text of such pages."""
    return "text/plain" if kind in ("text", "pdf") else "text/markdown"


def shown(name: str) -> str:
    """The name of a folder or file without the number before it: `02-guides` is `guides`."""
    found = _NUMBER.match(name)
    return name[found.end() :] if found else name


def section_of(path: str) -> str:
    """The section of a page: its folder at the top; empty at the top itself."""
    return shown(path.split("/", 1)[0]) if "/" in path else ""


def folder_of(path: str) -> str:
    """The folders that a page is in, each without its number: `features/units`."""
    return "/".join(shown(part) for part in path.split("/")[:-1])


def order_of(path: str) -> int:
    """The number before the name of a page; an index comes first."""
    name = path.rsplit("/", 1)[-1]
    found = _NUMBER.match(name)
    if found:
        return int(found[1])
    return 0 if name.rsplit(".", 1)[0].lower() in _INDEXES else NO_ORDER


def title_of(path: str) -> str:
    """A title made of the name: `01-getting-started` is `Getting started`; of an index, its folder's."""
    parts = path.split("/")
    stem = parts[-1].rsplit(".", 1)[0] or parts[-1]
    if len(parts) > 1 and stem.lower() in _INDEXES[:3]:
        stem = parts[-2]
    words = re.sub(r"[-_\s]+", " ", shown(stem)).strip()
    return words[:1].upper() + words[1:] if words else stem


def titled_page(text: str) -> str:
    """The `<title>` of an HTML page without the name of the site after its last dash or bar."""
    return re.split(r"\s+[—–|·-]\s+(?!.*\s[—–|·-]\s)", " ".join(text.split()), maxsplit=1)[0].strip(" ¶#")
