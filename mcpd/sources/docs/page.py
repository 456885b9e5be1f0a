"""`Page`, a document that was read, and what paths say about pages."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from mcpd.errors import McpdError

Kind = Literal["markdown", "mdx", "rst", "html", "text", "notebook", "pdf"]
"""The format of a document."""


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
    """A block of code."""

    language: str
    """In lower case; empty if the author did not name it."""
    text: str
    before: str
    """The line of text that introduces it; may be empty."""
    start: int
    """Its position in the text of the page."""


class Page(Struct, frozen=True):
    """One document of a folder."""

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
"""The order of pages without one."""

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
    """Return the section of a page: its top-level folder, or "" at the top."""
    return without_number(path.split("/", 1)[0]) if "/" in path else ""


def folder_of(path: str) -> str:
    """Return the folders of a page without their numbers, such as `features/units`."""
    return "/".join(without_number(part) for part in path.split("/")[:-1])


def order_of(path: str) -> int:
    """Return the number at the beginning of a file name. An index page comes first."""
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
