"""What the first lines of a file say of it, for lists: nobody waits until all pages are indexed.

Lists show the same before and after that, as most hosts ask for them once, and at the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from mcpd.docs.front_matter import split_page, text_in
from mcpd.docs.names import titled_page
from mcpd.docs.opening import Opener
from mcpd.docs.settings import DocsSettings

_MOST_BYTES = 4096
_SETTINGS = DocsSettings()
_MOST_CHARS = 300

# Compiled by `re` when they are first needed.
_TITLE = r"(?m)^#[ \t]+(.+?)[ \t#]*$"
_HTML_TITLE = r"(?is)<title[^>]*>(.*?)</title>"
_HTML_HEADING = r"(?is)<h1[^>]*>(.*?)</h1>"
_RST_TITLE = r"(?m)^(?!\.\. |:)(\S.*)\n([=*#~^\"'-])\2{2,}[ \t]*$"
_NOTEBOOK_TITLE = r'"#[ ]+([^"\\]+)'
_MARKS = r"[`*]|\[([^\]]*)\]\([^)]*\)"


class Head(Struct, frozen=True):
    """What is known of a page before it is read; "" where it says nothing."""

    title: str = ""
    description: str = ""
    slug: str = ""


NO_HEAD = Head()


def head_of(folder: str, path: str) -> Head:
    """The head of a file. One that cannot be read has none."""
    suffix = path[path.rfind(".") :].lower()
    if suffix not in _READERS:
        return NO_HEAD
    opener = Opener(folder, _SETTINGS)
    try:
        data = opener.beginning(path, _MOST_BYTES)
    except OSError:
        return NO_HEAD
    finally:
        opener.close()
    return _READERS[suffix](data.decode("utf-8-sig", "replace").replace("\r\n", "\n"))


def _markdown(text: str) -> Head:
    front, body = split_page(text)
    return _head(text_in(front, "title") or _first(_TITLE, body), text_in(front, "description"), text_in(front, "slug"))


def _html(text: str) -> Head:
    title = _first(_HTML_TITLE, text) or re.sub("<[^>]*>", "", _first(_HTML_HEADING, text))
    if "&" in title:
        from html import unescape  # few titles need it

        title = unescape(title)
    return _head(titled_page(title))


def _rst(text: str) -> Head:
    return _head(_first(_RST_TITLE, text))


def _notebook(text: str) -> Head:
    return _head(_first(_NOTEBOOK_TITLE, text))


def _head(title: str, description: str = "", slug: str = "") -> Head:
    title = re.sub(_MARKS, lambda mark: mark[1] or "", title)
    return Head(" ".join(title.split())[:_MOST_CHARS], description[:_MOST_CHARS], slug)


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""


_READERS: dict[str, Callable[[str], Head]] = {
    ".md": _markdown, ".mdx": _markdown, ".markdown": _markdown,
    ".html": _html, ".htm": _html, ".xhtml": _html,
    ".rst": _rst, ".rest": _rst,
    ".ipynb": _notebook,
}  # fmt: skip
