"""Carries out the requests of a View: asks the program's hooks, calls the View's server, adds to the conversation.

The machine has checked each of them before (`requests`, `policy`); what gets here is well formed, visible to
Views, and within the limits. Rules APP-H-03, -04, -17 to -22.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcpd.client import Client
from mcpd.host.conversation import Conversation, ViewMessage
from mcpd.host.hooks import Hooks, settle
from mcpd.host.shown import ShownView
from mcpd.host.view.events import (
    Ask,
    ChatMessage,
    Download,
    Event,
    Forward,
    ModeChange,
    ModelContextUpdate,
    OpenLink,
    Sample,
)
from mcpd.host.view.refusals import Denied
from mcpd.protocol.types.tools import Tool

log = logging.getLogger("mcpd.host")


class _Arguments(Struct):
    arguments: Raw = Raw(b"{}")


_read_arguments = Decoder(_Arguments).decode


class ViewRequestHandler:
    """Handles the requests of all Views of one host.

    `find_tool` gives a tool as listed; `on_leave` hears of each View that is gone.
    """

    def __init__(
        self,
        client: Client,
        hooks: Hooks,
        conversation: Conversation,
        find_tool: Callable[[str], Tool | None],
        on_leave: Callable[[ShownView], None],
    ) -> None:
        self._client = client
        self._hooks = hooks
        self._conversation = conversation
        self._find_tool = find_tool
        self._on_leave = on_leave

    async def handle(self, view: ShownView, ask: Ask) -> Any:
        """See `shown.RequestHandler`."""
        hooks = self._hooks
        if isinstance(ask, Forward):
            return await self._forward(view, ask)

        if isinstance(ask, OpenLink) and hooks.open_link is not None:
            _check(await settle(hooks.open_link(view, ask.url)), "The host did not open the link")
        elif isinstance(ask, Download) and hooks.download is not None:
            _check(await settle(hooks.download(view, ask.items)), "The host did not save the files")
        elif isinstance(ask, ChatMessage):
            if hooks.message is not None:
                _check(await settle(hooks.message(view, ask.content)), "The host did not take the message")
            # What cannot be kept is denied, whatever the hook has said.
            self._conversation.add_message(ViewMessage(view.id, view.call.name, ask.content))
        elif isinstance(ask, ModelContextUpdate):
            if hooks.model_context is not None:
                _check(await settle(hooks.model_context(view, ask)), "The host did not take the context")
        elif isinstance(ask, ModeChange) and hooks.display_mode is not None:
            mode = await settle(hooks.display_mode(view, ask.mode))
            if mode is None:
                raise Denied("The host keeps the display mode")
            return mode
        elif isinstance(ask, Sample) and hooks.sample is not None:
            return await settle(hooks.sample(view, ask.params))
        else:
            raise Denied("The host has no way to do this")

        return None

    async def _forward(self, view: ShownView, ask: Forward) -> Raw:
        """To the View's own server and no other: there is only one here (APP-H-04)."""
        if ask.method == "tools/call" and self._hooks.call_tool is not None:
            tool = self._find_tool(ask.target)
            if tool is None:
                raise Denied(f"The tool {ask.target!r} is gone")
            arguments = _read_arguments(ask.params).arguments
            _check(await settle(self._hooks.call_tool(view, tool, arguments)), "The host did not allow the call")

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            view.progress(ask.ask_id, progress, total, message)

        return await self._client.request(
            ask.method, ask.params, on_progress=on_progress if ask.wants_progress else None
        )

    def keep_context(self, view: ShownView, update: ModelContextUpdate) -> None:
        """See `shown.RequestHandler`."""
        self._conversation.set_context(view.id, view.call.name, update)

    def notice(self, view: ShownView, event: Event) -> None:
        """See `shown.RequestHandler`."""
        if self._hooks.event is not None:
            try:
                self._hooks.event(view, event)
            except Exception:
                log.exception("%s: the hook for events failed", view.id)

    def leave(self, view: ShownView) -> None:
        """See `shown.RequestHandler`."""
        self._on_leave(view)


def _check(answer: bool | None, reason: str) -> None:
    """A hook that gives nothing back has said yes: only False is a no."""
    if answer is False:
        raise Denied(reason)
