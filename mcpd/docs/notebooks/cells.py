"""What a notebook is made of. Encoded as JSON each cell and output says its `kind`; that is what the page shows."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from mcpd.errors import McpdError


class UnreadableNotebook(McpdError):
    """A file is no notebook that can be shown; the text says why."""


class _Part(Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """A cell or an output."""


class TextOutput(_Part, frozen=True, tag="text"):
    """What was printed, or a value as text; codes of terminals are in it as they came."""

    text: str
    stream: str = ""
    """`stderr`, or empty."""


class ErrorOutput(_Part, frozen=True, tag="error"):
    """An exception, with its traceback as `text`."""

    name: str
    value: str
    text: str = ""


class HtmlOutput(_Part, frozen=True, tag="html"):
    """HTML of others, as a table of pandas; `text` is the same as text, if there is that."""

    html: str
    text: str = ""


class ImageOutput(_Part, frozen=True, tag="image"):
    """An image as base64. `type` is image/png, image/jpeg, image/gif, image/webp or image/svg+xml."""

    type: str
    data: str
    alt: str = ""
    width: int | None = None
    """In pixels, if its author said so."""


class MarkdownOutput(_Part, frozen=True, tag="markdown"):
    """Markdown, or mathematics in dollars; `html` is what became of it."""

    source: str
    html: str | None = None


class OmittedOutput(_Part, frozen=True, tag="omitted"):
    """Something that is not shown: what it is, or why."""

    reason: str


Output: TypeAlias = TextOutput | ErrorOutput | HtmlOutput | ImageOutput | MarkdownOutput | OmittedOutput


class MarkdownCell(_Part, frozen=True, tag="markdown"):
    """Text. `attachments` are images by the name that the text has for them, as `data:` addresses."""

    source: str
    html: str | None = None
    attachments: dict[str, str] = {}


class CodeCell(_Part, frozen=True, tag="code"):
    """Code, with what it gave when somebody ran it. `count` says when it ran."""

    source: str
    language: str = ""
    """If it is another one than the notebook's."""
    count: int | None = None
    outputs: tuple[Output, ...] = ()


class RawCell(_Part, frozen=True, tag="raw"):
    """Text that is neither."""

    source: str


class BrokenCell(_Part, frozen=True, tag="broken"):
    """A cell that cannot be read, and why."""

    reason: str


Cell: TypeAlias = MarkdownCell | CodeCell | RawCell | BrokenCell


class Notebook(Struct, frozen=True):
    """A notebook."""

    title: str
    """Its first heading; empty without one."""
    language: str
    """Of its code, in lower case; empty if it does not say."""
    cells: tuple[Cell, ...]
