"""Questions to the user, which the pages show: of the server, and of Views.

What a View asks goes to the page that shows it; what the server asks to all pages, of which the first answer counts.
Where no page is open nobody can be asked, and the answer is no.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from mcpd.errors import McpdError
from mcpd.protocol.jsonrpc import MALFORMED, read_object


class Page(Protocol):
    """A page that is connected."""

    def notify(self, method: str, params: object) -> None:
        """Tell it something."""

    async def request(self, method: str, params: object) -> Any:
        """Ask it something: the raw result. Raises RemoteError, ConnectionLost."""


class NobodyAnswers(McpdError):
    """No page is open, or none that was asked gave an answer."""


class Asks:
    """The questions of one preview. `pages` are those that are connected, as they come and go."""

    def __init__(self, pages: Iterable[Page]) -> None:
        self._pages = pages
        self._last = 0

    async def ask(self, kind: str, members: Mapping[str, Any], page: Page | None = None) -> dict[str, Any]:
        """Ask one page, or all that are open. Raises NobodyAnswers."""
        asked = [page] if page is not None else list(self._pages)
        self._last += 1
        ask_id = f"ask-{self._last}"
        params = {"askId": ask_id, "kind": kind, **members}

        waiting = {asyncio.ensure_future(each.request("ask", params)): each for each in asked}

        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del waiting[task]
                    answer = _answer(task)
                    if answer is not None:
                        return answer
            raise NobodyAnswers("no page of the preview is open, or none answered")
        finally:
            # Answered elsewhere, or not wanted any more.
            for task, each in waiting.items():
                task.cancel()
                each.notify("ask/cancelled", {"askId": ask_id})

    async def allows(self, kind: str, members: Mapping[str, Any], page: Page | None = None) -> bool:
        """Whether the user allows it."""
        try:
            return (await self.ask(kind, members, page)).get("allow") is True
        except NobodyAnswers:
            return False


def _answer(task: asyncio.Future[Any]) -> dict[str, Any] | None:
    """What a page answered; None if it has no answer."""
    if task.cancelled() or task.exception() is not None:
        return None
    try:
        return read_object(task.result(), "the answer")
    except (McpdError, *MALFORMED):
        return None
