"""Images that stand beside documents: read from their folder alone, known by their first bytes, and of bounded size."""

from __future__ import annotations

import os
import posixpath
import re
from base64 import b64encode
from urllib.parse import unquote

from mcpd.docs.page import UnreadablePage
from mcpd.docs.results import UnknownPage
from mcpd.docs.settings import DocsSettings
from mcpd.docs.tree import hides
from mcpd.folder_files import read_within

MOST_BYTES = 4 * 1024 * 1024
"""The largest image that is served."""

MOST_SHOWN_BYTES = 1024 * 1024
"""How many bytes of images one page is shown with; of the others the words are."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_LONGEST_ADDRESS = 2000


def read_image(folder: str, path: str, settings: DocsSettings, most: int = MOST_BYTES) -> tuple[bytes, str]:
    """What an image of a folder holds, and its MIME type: PNG, JPEG, GIF or WebP, which run nothing.

    Raises UnknownPage where there is none, and UnreadablePage for one of more than `most` bytes.
    """
    if hides(path, settings):
        raise UnknownPage(path, [])
    try:
        data = read_within(os.path.join(folder, *path.split("/")), folder, most + 1)
    except (OSError, ValueError):
        raise UnknownPage(path, []) from None

    kind = _kind(data)
    if kind is None:
        raise UnknownPage(path, [])
    if len(data) > most:
        raise UnreadablePage(f"is larger than {most} bytes")
    return data, kind


class PageImages:
    """The images of one page, as addresses that have them in themselves; for `rendering.render`."""

    def __init__(self, folder: str, page: str, settings: DocsSettings) -> None:
        self._folder = folder
        self._page = page
        self._settings = settings
        self._left = MOST_SHOWN_BYTES

    def __call__(self, source: str) -> str | None:
        """The `data:` address of the image that the page names so; None if it cannot be shown. Blocks to read it."""
        if len(source) > _LONGEST_ADDRESS or _SCHEME.match(source):
            return None

        address = unquote(source.partition("#")[0].partition("?")[0])
        base = "" if address.startswith("/") else posixpath.dirname(self._page)
        path = posixpath.normpath(posixpath.join(base, address.lstrip("/")))
        try:
            data, kind = read_image(self._folder, path, self._settings, self._left)
        except (UnknownPage, UnreadablePage):
            return None
        self._left -= len(data)
        return f"data:{kind};base64,{b64encode(data).decode('ascii')}"


def _kind(data: bytes) -> str | None:
    """The MIME type, whatever the name says."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
