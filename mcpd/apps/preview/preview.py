"""A preview: the session with the server, and the ports on which browsers reach it."""

from __future__ import annotations

import asyncio
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from .session import PreviewSession, SessionOptions

if TYPE_CHECKING:
    from .front import Front
    from .sandbox import Origins

# After this time the process of the server has been started.
_STARTED_SECONDS = 0.05


class Preview:
    """`async with Preview(options) as preview:` connects to the server and listens. Port 0 uses any free one."""

    def __init__(self, options: SessionOptions, *, port: int = 0, folder: str | None = None) -> None:
        self.session = PreviewSession(options)
        self.token = token_urlsafe(24)
        """A page has to send this token."""
        self.origins: Origins
        """The origins of the page and the sandbox, once the ports are open."""
        self._port = port
        self._folder = folder
        self._front: Front | None = None

    @property
    def url(self) -> str:
        return self.origins.url(self.token)

    @property
    def plain_url(self) -> str:
        """The address for browsers that do not resolve names under `localhost`."""
        return self.origins.url(self.token, is_plain=True)

    async def __aenter__(self) -> Preview:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to the server, then listen. Raises what `Host.open` raises, ConfigurationError for the port."""
        connecting = asyncio.create_task(self.session.connect(self.session.options.version))
        try:
            # The HTTP server is loaded while the server of the user starts in its process.
            await asyncio.wait((connecting,), timeout=_STARTED_SECONDS)
            from .front import Front

            await connecting
            self._front = Front(self.session, self.token, self._folder)
            self.origins = await self._front.open(self._port)
        except BaseException:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            await self.aclose()
            raise

    async def aclose(self) -> None:
        try:
            await self.session.aclose()
        finally:
            if self._front is not None:
                await self._front.aclose()
