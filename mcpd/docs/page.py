"""`Page`: one document, read. What is shown of it, what is searched, and what it is made of."""

from __future__ import annotations

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
