"""The URIs of pages, sections and the overview, the URLs of published pages, and the way back from either."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from mcpd.sources.docs.files import Opener
from mcpd.sources.docs.page import titled_page
from mcpd.sources.docs.results import DocsSettings
from mcpd.sources.front_matter import split_page, text_in

_SEGMENT = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
_PATH = _SEGMENT + "/"

_INDEXES = ("index", "readme", "_index")


class Addresses(Struct, frozen=True):
    """How one tree of documents is addressed. `slug_of` gives what the head of a page says of its address, or ""."""

    base: str
    """What the URIs begin with, as `docs://handbook/`."""
    base_url: str
    """Where the pages are published; "" if nobody said."""
    page_form: str
    """A page's URI behind the base: `{path}`, or with `{url}` its URL, as one segment."""
    section_form: str
    """A section's URI behind the base, with `{section}`."""
    slug_of: Callable[[str], str]
    shown: Callable[[str], str]
    """A folder's or file's name without the number before it."""

    @property
    def overview(self) -> str:
        """The URI of the overview. No page is called like it: pages have a suffix."""
        return f"{self.base}overview"

    def page(self, path: str) -> str:
        """The URI of a page."""
        if "{url}" in self.page_form:
            return self.base + self.page_form.replace("{url}", quoted(self.url(path) or path, _SEGMENT))
        return self.base + self.page_form.replace("{path}", quoted(path))

    def section(self, name: str) -> str:
        """The URI of a section; for the pages that are in none, of the overview, which lists them."""
        return self.base + self.section_form.replace("{section}", quoted(name)) if name else self.overview

    def url(self, path: str) -> str:
        """Where a page is published; "" if nobody said."""
        return self.base_url and self.base_url + published(path, self.slug_of(path), self.shown)

    def path_in(self, said: str) -> tuple[str, str]:
        """The page that a path, a URI or a URL names, as a path or as a URL below the base, and what is behind `#`."""
        from urllib.parse import unquote  # not at the start

        place, _, fragment = said.partition("#")
        place = place.strip()
        for form in (self.base + self.page_form.partition("{")[0], self.base):
            if place.startswith(form):
                place = unquote(place[len(form) :])
                break
        return place, unquote(fragment)


def published(path: str, slug: str, shown: Callable[[str], str]) -> str:
    """The address of a page below that of all: its slug, or its path without suffix and numbers; ends in `/`."""
    if not slug:
        parts = [shown(part) for part in path.split("/")]
        stem = parts.pop().rpartition(".")[0]
        slug = "/".join(parts if stem.lower() in _INDEXES else [*parts, stem])
    slug = slug.strip("/")
    return f"{quoted(slug)}/" if slug else ""


def quoted(text: str, plain: str = _PATH) -> str:
    """A text as a part of a URI (RFC 3986 section 2.1), in which `plain` characters stay what they are."""
    if not text.strip(plain):
        return text
    return "".join(
        char if char in plain else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
        for char in text
    )


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
