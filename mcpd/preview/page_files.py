"""The page's own files, from `assets/host`: read anew for each request, and given to who asks the page's own host.

They hold no secret: the token of the API is behind the `#` of the address that the user was given.
"""

from __future__ import annotations

import os
import re

from mcpd.extensions.ui.assets import bundled_folder
from mcpd.http.pages import PageAnswer
from mcpd.http.request import HttpRequest
from mcpd.preview.origins import Origins
from mcpd.preview.sandbox import forget_cookies
from mcpd.transports.authentication import Refusal

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
}
# No dot but the one of the suffix: nothing above the folder can be named.
_is_file = re.compile(rf"/[\w-]+(?:/[\w-]+)*\.({'|'.join(_TYPES)})", re.ASCII).fullmatch

_NOWHERE = Refusal(404, "There is no such file of the preview.\n")
_FOREIGN = Refusal(403, "The preview is not reached by this name; open the address that it printed.\n")


def page_folder() -> str:
    """Where the page's files are, in an installed package or in a checkout."""
    return os.path.join(bundled_folder(), "host")


class PageFiles:
    """Answers for the page's port; `folder` has an index.html."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.origins: Origins | None = None
        """Set once the ports are known; nothing is given before."""

    async def answer(self, request: HttpRequest) -> PageAnswer | Refusal:
        """A request for a file."""
        origin = self.origins.page_origin(request.header(b"host")) if self.origins is not None else None
        if origin is None or self.origins is None:
            return _FOREIGN
        if request.method not in ("GET", "HEAD"):
            return Refusal(405, "The page's files are read with GET.\n", (("Allow", "GET, HEAD"),))
        if request.path == "/favicon.ico":  # browsers ask for it unasked
            return PageAnswer(status=204)

        found = _is_file("/index.html" if request.path == "/" else request.path)
        if found is None:
            return _NOWHERE
        body = self._read(found[0])
        if body is None:
            return _NOWHERE
        headers = (*_headers(origin, self.origins), *forget_cookies(request))
        return PageAnswer(body=body, content_type=_TYPES[found[1]], headers=headers)

    def _read(self, path: str) -> bytes | None:
        place = os.path.join(self._folder, *path.split("/"))
        try:
            # On Windows a name such as con.js may be a device, whose reading does not end.
            if not os.path.isfile(place):
                return None
            with open(place, "rb") as file:
                return file.read()
        except OSError:
            return None


def _headers(origin: str, origins: Origins) -> tuple[tuple[str, str], ...]:
    policy = "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data: blob:",
            "media-src data: blob:",
            f"connect-src {origin.replace('http:', 'ws:')}/api",
            f"frame-src {origins.sandbox(origin)}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )

    return (
        ("Content-Security-Policy", policy),
        ("X-Content-Type-Options", "nosniff"),
        ("Referrer-Policy", "no-referrer"),
        ("Cache-Control", "no-store"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Origin-Agent-Cluster", "?1"),
    )
