"""What the first lines of a file say of it, for lists: nobody waits until all pages are indexed.

Lists show the same before and after that, as most hosts ask for them once, and at the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from ...docs.opening import Opener
from ...docs.settings import DocsSettings

__all__ = ["NO_HEAD", "Head", "head_of"]

_MOST_BYTES = 4096
_SETTINGS = DocsSettings()
_MOST_CHARS = 300

# Compiled by `re` when they are first needed.
_KEY = r"(?m)^(title|description|slug):[ \t]*(.*?)[ \t]*$"
_TITLE = r"(?m)^#[ \t]+(.+?)[ \t#]*$"
_HTML_TITLE = r"(?is)<title[^>]*>(.*?)</title>"
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
    front, body = _split(text)
    said: dict[str, str] = {}
    for key, value in re.findall(_KEY, front):
        said.setdefault(key, _plain(value))
    return _head(said.get("title") or _first(_TITLE, body), said.get("description", ""), said.get("slug", ""))


def _html(text: str) -> Head:
    title = _first(_HTML_TITLE, text)
    if "&" in title:
        from html import unescape  # few titles need it

        title = unescape(title)
    return _head(title)


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


def _split(text: str) -> tuple[str, str]:
    """What stands between the lines of `---` at the beginning, and what comes after."""
    if not text.startswith("---\n"):
        return "", text
    end = text.find("\n---", 3)
    return (text[4:end], text[end + 4 :]) if end > 0 else ("", text)


def _plain(value: str) -> str:
    """A text without its quotes; "" for one that goes on in the next lines, which is read when the page is."""
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1].replace('\\"', '"') if value[0] == '"' else value[1:-1].replace("''", "'")
    return "" if value[:1] in "|>&*[{" else value.partition(" #")[0].rstrip()


_READERS: dict[str, Callable[[str], Head]] = {
    ".md": _markdown, ".mdx": _markdown, ".markdown": _markdown,
    ".html": _html, ".htm": _html, ".xhtml": _html,
    ".rst": _rst, ".rest": _rst,
    ".ipynb": _notebook,
}  # fmt: skip
