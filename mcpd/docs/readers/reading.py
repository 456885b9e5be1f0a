"""`read_page`: the reader for each kind, found by the name of the file."""

from __future__ import annotations

from collections.abc import Callable

from ..names import kind_of
from ..page import Kind, Page, UnreadablePage
from .markdown import read_markdown
from .mdx import read_mdx
from .plain import read_text

__all__ = ["read_page"]

_READERS: dict[Kind, Callable[[str, bytes, bool], Page]] = {
    "markdown": read_markdown,
    "mdx": read_mdx,
    "text": read_text,
}


def read_page(path: str, data: bytes, *, with_links: bool = True) -> Page:
    """The page that a file is. `path` is below its folder, with `/`. An index needs no links.

    Raises UnreadablePage, with the reason, for what cannot be read.
    """
    kind = kind_of(path)
    reader = None if kind is None else _READERS.get(kind)
    if reader is None:
        raise UnreadablePage("is no document")
    return reader(path, data, with_links)
