"""One preview, put together: the server's session, and what browsers reach of it."""

from __future__ import annotations

import asyncio
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from mcpd.apps.preview.sandbox import Origins
from mcpd.apps.preview.session import PreviewSession, SessionOptions

if TYPE_CHECKING:
    from mcpd.apps.preview.front import Front

_BEGUN_SECONDS = 0.05
"""Until then the server's process is there."""


class Preview:
    """`async with Preview(options) as preview:` listens and is connected. `folder` has the page's files."""

    def __init__(self, options: SessionOptions, *, port: int = 0, folder: str | None = None) -> None:
        self.session = PreviewSession(options)
        self.token = token_urlsafe(24)
        """What a page has to know to be let in."""
        self.origins: Origins
        """Where it is listened, once it is."""
        self._port = port
        self._folder = folder
        self._front: Front | None = None

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
        connecting = asyncio.create_task(self.session.connect(self.session.options.version))
        try:
            # The server starts in a process of its own: what listens is loaded when that has begun, and while it does.
            await asyncio.wait((connecting,), timeout=_BEGUN_SECONDS)
            from mcpd.apps.preview.front import Front

            await connecting
            self._front = Front(self.session, self.token, self._folder)
            self.origins = await self._front.open(self._port)
        except BaseException:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close all Views, leave the server, listen no more."""
        try:
            await self.session.aclose()
        finally:
            if self._front is not None:
                await self._front.aclose()
