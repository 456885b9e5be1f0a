"""What browsers reach of one preview: the two ports, the sandbox, the page's files and API.

Loaded while the server starts (`preview.py`): the server is another process, and the two take as long.
"""

from __future__ import annotations

import os
import re

from mcpd.apps.preview.api import ApiEndpoint
from mcpd.apps.preview.methods import PageRequestHandler
from mcpd.apps.preview.sandbox import Origins, Sandbox, forget_cookies
from mcpd.apps.preview.session import Page, PreviewSession
from mcpd.apps.preview.views import PageViews
from mcpd.extensions.ui.assets import bundled_folder
from mcpd.http.core import HttpSettings
from mcpd.http.listener import HttpListener
from mcpd.http.pages import MakeEndpoint, PageAnswer, PageApp
from mcpd.http.request import HttpRequest
from mcpd.protocol.channel import Channel, Receiver
from mcpd.transports.accepting import ConnectionLimit
from mcpd.transports.authentication import Refusal
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits

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


MOST_HEAD_BYTES = 1024 * 1024
"""All cookies that a browser keeps for one site fit: a View may set them for the page, which must still be found."""


class Listeners:
    """Opened by `open`, which gives where they listen. `make_endpoint` is who may connect to the API."""

    def __init__(self, files: PageFiles, sandbox: Sandbox, make_endpoint: MakeEndpoint) -> None:
        limit = ConnectionLimit()
        self._files = files
        self._sandbox = sandbox
        settings = HttpSettings(path="/", max_head_bytes=MOST_HEAD_BYTES)
        self._page_app = PageApp(files.answer, make_endpoint, settings)
        self._sandbox_app = PageApp(sandbox.answer, settings=settings)
        self._limit = limit
        self._open: list[HttpListener] = []

    async def open(self, port: int = 0) -> Origins:
        """Listen, the page on this port; 0 is any that is free. Raises ConfigurationError if that cannot be."""
        try:
            sandbox_port = await self._listen(self._sandbox_app, 0)
            origins = Origins(await self._listen(self._page_app, port), sandbox_port)
        except BaseException:
            await self.aclose()
            raise

        self._files.origins = origins
        return origins

    async def _listen(self, app: PageApp, port: int) -> int:
        listener = HttpListener(app, f":{port}", connection_limit=self._limit)
        await listener.start(_no_one)
        self._open.append(listener)
        return int(listener.url.rpartition(":")[2].rstrip("/"))

    async def aclose(self) -> None:
        """Listen no more; documents that wait for a frame wait no longer, pages lose their connection."""
        self._sandbox.close()
        while self._open:
            await self._open.pop().aclose()


def _no_one(channel: Channel) -> Receiver:
    raise AssertionError("whoever connects is taken by the endpoint that was given")


MOST_FRAME_BYTES = 64 * 1024 * 1024
"""Of a message of the page, which may hold one of a View, or what a user gave in a model's place."""


class Front:
    """Opened by `open`. `token` is what a page has to know to be let in, `folder` has its files."""

    def __init__(self, session: PreviewSession, token: str, folder: str | None) -> None:
        self._session = session
        self._token = token
        self._sandbox = Sandbox()
        self._origins: Origins | None = None

        files = PageFiles(page_folder() if folder is None else folder)
        self._listeners = Listeners(files, self._sandbox, self._new_endpoint)

    async def open(self, port: int) -> Origins:
        """Listen; 0 is any port that is free. Raises ConfigurationError if that cannot be."""
        self._origins = await self._listeners.open(port)
        return self._origins

    async def aclose(self) -> None:
        """Listen no more."""
        await self._listeners.aclose()

    def _new_endpoint(self, limits: WebSocketLimits, connection_limit: ConnectionLimit) -> Endpoint:
        wide = WebSocketLimits(max_frame_bytes=MOST_FRAME_BYTES, max_connections=limits.max_connections)
        return ApiEndpoint(self._is_page, self._token, self._new_handler, wide, connection_limit)

    def _is_page(self, host: str | None, origin: str | None) -> bool:
        return self._origins is not None and self._origins.is_page(host, origin)

    def _new_handler(self, page: Page, page_origin: str) -> PageRequestHandler:
        assert self._origins is not None
        views = PageViews(self._session, page, self._sandbox, self._origins, page_origin)
        return PageRequestHandler(self._session, page, views, self._origins.sandbox(page_origin))
