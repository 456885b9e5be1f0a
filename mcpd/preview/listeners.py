"""The two ports of a preview, both on this machine only: the page with its API, and the sandbox."""

from __future__ import annotations

from mcpd.http.core import HttpSettings
from mcpd.http.listener import HttpListener
from mcpd.http.pages import MakeEndpoint, PageApp
from mcpd.preview.origins import Origins
from mcpd.preview.page_files import PageFiles
from mcpd.preview.sandbox import Sandbox
from mcpd.protocol.channel import Channel, Receiver
from mcpd.transports.accepting import ConnectionLimit

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
