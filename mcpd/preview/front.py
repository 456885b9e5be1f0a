"""What browsers reach of one preview: the two ports, the sandbox, the page's files and API.

Loaded while the server starts (`preview.py`): the server is another process, and the two take as long.
"""

from __future__ import annotations

from mcpd.preview.api import ApiEndpoint, PageConnection
from mcpd.preview.listeners import Listeners
from mcpd.preview.methods import PageRequestHandler
from mcpd.preview.origins import Origins
from mcpd.preview.page_files import PageFiles, page_folder
from mcpd.preview.sandbox import Sandbox
from mcpd.preview.session import PreviewSession
from mcpd.preview.views import PageViews
from mcpd.transports.accepting import ConnectionLimit
from mcpd.transports.websocket.server import Endpoint, WebSocketLimits

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

    def _new_handler(self, page: PageConnection, page_origin: str) -> PageRequestHandler:
        assert self._origins is not None
        views = PageViews(self._session, page, self._sandbox, self._origins, page_origin)
        return PageRequestHandler(self._session, page, views, self._origins.sandbox(page_origin))
