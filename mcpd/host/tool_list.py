"""The server's tools as last listed, and when they are listed again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Raw

from mcpd.client import Client
from mcpd.protocol.printable import printable
from mcpd.protocol.types.tools import Tool


class ToolList:
    """All tools of one server by name, whoever may call them. `was_read` is called with each list that was read."""

    def __init__(self, client: Client, was_read: Callable[[Iterable[Tool]], None]) -> None:
        self.tools: dict[str, Tool] = {}
        self.entries: Sequence[Raw] = ()
        """The same as the server wrote them, with those that cannot be read."""
        self._read_at = 0.0
        self._client = client
        self._was_read = was_read
        self._listing = asyncio.Lock()
        self._times_asked = self._times_read = 0
        self._has_changed = False
        self._is_followed = False

    async def refresh(self) -> None:
        """List them again. Raises what the client does."""
        self._times_asked += 1
        asked = self._times_asked
        # One after the other, or an older list could arrive last. Whoever comes meanwhile shares the next one.
        async with self._listing:
            if self._times_read >= asked:
                return
            begun = self._times_asked
            tools, self.entries = await self._client.list_tools_as_sent()
            self.tools = {tool.name: tool for tool in tools}
            self._times_read, self._read_at = begun, asyncio.get_running_loop().time()
            self._was_read(self.tools.values())

    async def refresh_after(self, seconds: float) -> None:
        """The same, unless they were listed less than so many seconds ago."""
        async with self._listing:
            is_fresh = self._times_read > 0 and asyncio.get_running_loop().time() - self._read_at < seconds
        if not is_fresh:
            await self.refresh()

    def changed(self) -> bool:
        """The server says that there are others now; whether `follow` has to be started for it."""
        self._has_changed = True
        was_followed, self._is_followed = self._is_followed, True
        return not was_followed

    async def follow(self, announce: Callable[[], Awaitable[None]]) -> None:
        """List them until nothing has changed meanwhile; `announce` is awaited after each time, successful or not."""
        faults = self._client.faults
        try:
            while self._has_changed:
                self._has_changed = False
                try:
                    await self.refresh()
                except Exception as error:
                    text = "the server's tools have changed and cannot be listed; the old list holds: %s"
                    faults.say(logging.WARNING, text, printable(error))
                try:
                    await announce()
                except Exception as error:
                    faults.say(logging.ERROR, "the callback for a changed list failed", error=error)
        finally:
            self._is_followed = False
