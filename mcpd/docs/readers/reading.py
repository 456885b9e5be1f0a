"""`read_page`: the reader for each kind, found by the name of the file."""

from __future__ import annotations

from collections.abc import Callable

from mcpd.docs.names import kind_of
from mcpd.docs.page import Kind, Page, UnreadablePage
from mcpd.docs.readers.apart import APART, Apart
from mcpd.docs.readers.markdown import read_markdown
from mcpd.docs.readers.mdx import read_mdx
from mcpd.docs.readers.notebook import read_notebook
from mcpd.docs.readers.plain import read_text

_READERS: dict[Kind, Callable[[str, bytes, bool], Page]] = {
    "markdown": read_markdown,
    "mdx": read_mdx,
    "notebook": read_notebook,
    "text": read_text,
}


def read_page(path: str, data: bytes, *, with_links: bool = True, apart: Apart | None = None) -> Page:
    """The page that a file is. `path` is below its folder, with `/`. An index needs no links.

    HTML, reStructuredText and PDF are read in a process of their own: that of `apart`, or one for this file, which may
    take ten seconds. Raises UnreadablePage, with the reason, for what cannot be read.
    """
    kind = kind_of(path)
    if kind in APART:
        if apart is not None:
            return apart.read_page(path, data, with_links=with_links)
        once = Apart(10.0)
        try:
            return once.read_page(path, data, with_links=with_links)
        finally:
            once.close()

    reader = None if kind is None else _READERS.get(kind)
    if reader is None:
        raise UnreadablePage("is no document")
    try:
        return reader(path, data, with_links)
    except UnreadablePage:
        raise
    except RecursionError:
        raise UnreadablePage("is nested too deep") from None
    except Exception as error:  # a reader that fails is a page that is missing, and nothing else
        raise UnreadablePage(f"cannot be read ({type(error).__name__})") from None
