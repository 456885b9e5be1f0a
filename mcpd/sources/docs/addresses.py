"""The URIs of pages, sections and the overview, the URLs of published pages, and the way back from either."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

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
