"""The URIs of pages and sections, the URLs of published pages, and the first lines of files that both depend on."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote, unquote

from msgspec import Struct

from mcpd.sources.front_matter import split_page, text_in
from .files import read_beginning
from .page import Kind, kind_of, site_path, titled_page


class Addresses(Struct, frozen=True):
    """Computes the URIs and URLs of one folder of documents. `slug_of` returns the slug in front matter, or ""."""

    base: str
    """The prefix of all URIs, such as `docs://handbook/`."""
    base_url: str
    """The URL below which the pages are published, or ""."""
    page_form: str
    """The URI of a page after the base, with `{path}`, or with `{url}` for the escaped URL of the page."""
    section_form: str
    """The URI of a section after the base, with `{section}`."""
    slug_of: Callable[[str], str]

    def page(self, path: str) -> str:
        if "{url}" in self.page_form:
            return self.base + self.page_form.replace("{url}", quoted(self.url(path) or path, ""))
        return self.base + self.page_form.replace("{path}", quoted(path))

    def section(self, name: str) -> str:
        """Return the URI of a section. Pages outside sections are listed in the overview, so "" gives its URI."""
        # The overview cannot have the URI of a page, because pages have a suffix.
        return self.base + (self.section_form.replace("{section}", quoted(name)) if name else "overview")

    def url(self, path: str) -> str:
        return self.base_url and self.base_url + self.published(path)

    def published(self, path: str) -> str:
        """Return the address of a page relative to the base URL, with a final `/`: its slug, or made from its path."""
        slug = (self.slug_of(path) or site_path(path)).strip("/")
        return f"{quoted(slug)}/" if slug else ""

    def path_in(self, said: str) -> tuple[str, str]:
        """Return the path or published address in a path, URI or URL, and its fragment."""
        place, _, fragment = said.partition("#")
        place = place.strip()
        for form in (self.base + self.page_form.partition("{")[0], self.base):
            if place.startswith(form):
                place = unquote(place[len(form) :])
                break
        return place, unquote(fragment)


def quoted(text: str, safe: str = "/") -> str:
    # RFC 3986 section 2.1. A name that is not UTF-8 keeps its bytes.
    return quote(text.encode("utf-8", "surrogateescape"), safe)


_MAX_BYTES = 4096
_MAX_CHARS = 300

# `re` compiles these when they are first needed.
_TITLE = r"(?m)^#[ \t]+(.+?)[ \t#]*$"
_HTML_TITLE = r"(?is)<title[^>]*>(.*?)</title>"
_HTML_HEADING = r"(?is)<h1[^>]*>(.*?)</h1>"
_RST_TITLE = r"(?m)^(?!\.\. |:)(\S.*)\n([=*#~^\"'-])\2{2,}[ \t]*$"
_NOTEBOOK_TITLE = r'"#[ ]+([^"\\]+)'
_MARKS = r"[`*]|\[([^\]]*)\]\([^)]*\)"


class PageHead(Struct, frozen=True):
    title: str = ""
    description: str = ""
    slug: str = ""


def page_head(folder: str, path: str) -> PageHead:
    # Lists use the first lines, so that they need not wait for the index.
    read = _READERS.get(kind_of(path))
    if read is None:
        return PageHead()
    try:
        data = read_beginning(folder, path, _MAX_BYTES)
    except OSError:
        return PageHead()
    return read(data.decode("utf-8-sig", "replace").replace("\r\n", "\n"))


def _markdown(text: str) -> PageHead:
    front, body = split_page(text)
    return _head(text_in(front, "title") or _first(_TITLE, body), text_in(front, "description"), text_in(front, "slug"))


def _html(text: str) -> PageHead:
    title = _first(_HTML_TITLE, text) or re.sub("<[^>]*>", "", _first(_HTML_HEADING, text))
    if "&" in title:
        from html import unescape  # few titles need it

        title = unescape(title)
    return _head(titled_page(title))


def _head(title: str, description: str = "", slug: str = "") -> PageHead:
    title = re.sub(_MARKS, lambda mark: mark[1] or "", title)
    return PageHead(" ".join(title.split())[:_MAX_CHARS], description[:_MAX_CHARS], slug)


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else ""


_READERS: dict[Kind | None, Callable[[str], PageHead]] = {
    "markdown": _markdown,
    "mdx": _markdown,
    "html": _html,
    "rst": lambda text: _head(_first(_RST_TITLE, text)),
    "notebook": lambda text: _head(_first(_NOTEBOOK_TITLE, text)),
}
