"""One preview, put together: the server's session, the two ports, and what each page works on."""

from __future__ import annotations

from secrets import token_urlsafe

from ..transports.accepting import ConnectionLimit
from ..transports.websocket_server import Endpoint, WebSocketLimits
from .api import ApiEndpoint, PageConnection
from .listeners import Listeners
from .methods import PageRequestHandler
from .origins import Origins
from .page_files import PageFiles, page_folder
from .sandbox import Sandbox
from .session import PreviewSession, SessionOptions
from .views import PageViews

__all__ = ["Preview"]

MOST_FRAME_BYTES = 64 * 1024 * 1024
"""Of a message of the page, which may hold one of a View, or what a user gave in a model's place."""


class Preview:
    """`async with Preview(options) as preview:` listens and is connected. `folder` has the page's files."""

    def __init__(self, options: SessionOptions, *, port: int = 0, folder: str | None = None) -> None:
        self.session = PreviewSession(options)
        self.sandbox = Sandbox()
        self.token = token_urlsafe(24)
        """What a page has to know to be let in."""
        self.origins: Origins
        """Where it is listened, once it is."""
        self._port = port
        files = PageFiles(page_folder() if folder is None else folder)

        self._listeners = Listeners(files, self.sandbox, self._new_endpoint)

    @property
    def url(self) -> str:
        """What the user opens."""
        return self.origins.url(self.token)

    @property
    def plain_url(self) -> str:
        """The same for browsers that find no names under `localhost`."""
        return self.origins.url(self.token, is_plain=True)

    async def __aenter__(self) -> Preview:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to the server, then listen. Raises what `Host.open` raises, ConfigurationError for the port."""
        try:
            await self.session.connect(self.session.options.version)
            self.origins = await self._listeners.open(self._port)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close all Views, leave the server, listen no more."""
        try:
            await self.session.aclose()
        finally:
            await self._listeners.aclose()

    def _new_endpoint(self, limits: WebSocketLimits, connection_limit: ConnectionLimit) -> Endpoint:
        wide = WebSocketLimits(max_frame_bytes=MOST_FRAME_BYTES, max_connections=limits.max_connections)
        return ApiEndpoint(self._is_page, self.token, self._new_handler, wide, connection_limit)

    def _is_page(self, host: str | None, origin: str | None) -> bool:
        return self.origins.is_page(host, origin)

    def _new_handler(self, page: PageConnection, page_origin: str) -> PageRequestHandler:
        views = PageViews(self.session, page, self.sandbox, self.origins, page_origin)
        return PageRequestHandler(self.session, page, views, self.origins.sandbox(page_origin))
