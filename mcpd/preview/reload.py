"""A View is stale when its document or its tool is another one now: its page shows it again, with input and result.

What changes is heard of from the server: changed lists, changed resources (each View's is subscribed to where that can
be), and a connection that was lost and is there again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mcpd.errors import McpdError
from mcpd.host.host import Host
from mcpd.host.shown import ShownView
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd.preview")


class Freshness:
    """Looks after the Views of one host. `stale` is told of each that is out of date, with why, once."""

    def __init__(self, host: Host, stale: Callable[[ShownView, str], None]) -> None:
        self._host = host
        self._stale = stale
        self._told: set[str] = set()
        self._uris: set[str] = set()
        self._looking: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._again = False

    def look(self) -> None:
        """Something has changed: look at all Views soon. What changes meanwhile is looked at afterwards."""
        self._again = True
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())
            self._tasks.add(self._looking)
            self._looking.add_done_callback(self._tasks.discard)

    async def _look(self) -> None:
        while self._again:
            self._again = False
            for view in self._host.views:
                why = await self._why(view)
                if why and view.id not in self._told and not view.is_over:
                    self._told.add(view.id)
                    self._stale(view, why)

    async def _why(self, view: ShownView) -> str:
        """Why it is out of date; "" if it is not."""
        tool = self._host.find_tool(view.call.name)
        if tool is None:
            return ""  # it has gone: what is shown is all there is

        try:
            uri = view.document.uri
            if tool != view.call.tool:
                view.call.follow(tool)
                if view.call.view_uri is None:
                    return ""
                uri = view.call.view_uri
            document = await self._host.find_document(uri)
        except McpdError as error:
            log.warning("%s: %s", view.id, printable(error, 1000))
            return ""
        if document.digest != view.document.digest:
            return "its document has changed"

        return "" if document == view.document else "what is declared for its document has changed"

    def watch(self, view: ShownView) -> None:
        """Hear of changes of its resource, where the server tells of them, as long as this server is connected."""
        uri = view.document.uri
        resources = self._host.client.server_capabilities.resources
        if resources is None or not resources.subscribe or uri in self._uris:
            return

        self._uris.add(uri)
        task = asyncio.get_running_loop().create_task(self._subscribe(uri))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _subscribe(self, uri: str) -> None:
        try:
            await self._host.client.subscribe(uri)
        except McpdError as error:
            log.info("%s: changes are not told: %s", printable(uri), printable(error))

    async def aclose(self) -> None:
        """Look no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
