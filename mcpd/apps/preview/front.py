"""The two ports of a preview, both on this machine only: the page with its API, and the sandbox.

Loaded while the server of the user starts in a process of its own (`preview`), because both take about as long.
"""

from __future__ import annotations

import os

from mcpd.apps.preview.api import ApiEndpoint
from mcpd.apps.preview.methods import PageRequestHandler
from mcpd.apps.preview.sandbox import Origins, PageFiles, Sandbox
from mcpd.apps.preview.session import Page, PreviewSession
from mcpd.apps.preview.views import PageViews
from mcpd.protocol.channel import Channel, Receiver
from mcpd.server.extensions.ui.assets import bundled_folder
from mcpd.server.http.core import HttpSettings
from mcpd.server.http.listener import HttpListener
from mcpd.server.http.pages import PageApp
from mcpd.transports.accepting import ConnectionLimit
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""For a message of the page, which may contain one of a View, or an answer that the user wrote instead of a model."""
MAX_HEAD_BYTES = 1024 * 1024
"""Room for all cookies that a browser stores for one site: a View may set them, and the page must still load."""


class Front:
    """Serves the page and the sandbox of a session. A page has to send `token`; `folder` has its files."""

    def __init__(self, session: PreviewSession, token: str, folder: str | None) -> None:
        self._session = session
        self._token = token
        self._sandbox = Sandbox()
        self._files = PageFiles(os.path.join(bundled_folder(), "host") if folder is None else folder)
        self._origins: Origins | None = None
        self._limit = ConnectionLimit()
        self._listeners: list[HttpListener] = []

    async def open(self, port: int) -> Origins:
        """Listen with the page on this port; 0 uses any free one. Raises ConfigurationError if that is impossible."""
        settings = HttpSettings(path="/", max_head_bytes=MAX_HEAD_BYTES)
        try:
            sandbox_port = await self._listen(PageApp(self._sandbox.answer, settings=settings), 0)
            page_port = await self._listen(PageApp(self._files.answer, self._new_endpoint, settings), port)
        except BaseException:
            await self.aclose()
            raise
        self._origins = self._files.origins = Origins(page_port, sandbox_port)
        return self._origins

    async def aclose(self) -> None:
        """Stop listening and close the connections of pages."""
        self._sandbox.close()
        while self._listeners:
            await self._listeners.pop().aclose()

    async def _listen(self, app: PageApp, port: int) -> int:
        listener = HttpListener(app, f":{port}", connection_limit=self._limit)
        await listener.start(_no_receiver)
        self._listeners.append(listener)
        return int(listener.url.rpartition(":")[2].rstrip("/"))

    def _new_endpoint(self, limits: WebSocketLimits, connection_limit: ConnectionLimit) -> Endpoint:
        wide = WebSocketLimits(max_frame_bytes=MAX_FRAME_BYTES, max_connections=limits.max_connections)
        return ApiEndpoint(self._is_page, self._token, self._new_handler, wide, connection_limit)

    def _is_page(self, host: str | None, origin: str | None) -> bool:
        return self._origins is not None and self._origins.is_page(host, origin)

    def _new_handler(self, page: Page, page_origin: str) -> PageRequestHandler:
        assert self._origins is not None
        views = PageViews(self._session, page, self._sandbox, self._origins, page_origin)
        return PageRequestHandler(self._session, page, views, self._origins.sandbox(page_origin))


def _no_receiver(channel: Channel) -> Receiver:
    raise AssertionError("`ApiEndpoint` takes all connections")
