"""What Views add to the conversation: messages on the user's behalf, and context for the model's next turn.

The program takes both when it puts together the next turn; nothing here reaches a model by itself. What was taken is
forgotten here; what is not taken is bounded: further requests of a View are refused, as a user may refuse them.

Spec: MCP Apps 2026-01-26, `ui/message`, `ui/update-model-context`; rules APP-H-18 and -19.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from mcpd.apps.host.view.events import ModelContextUpdate
from mcpd.apps.host.view.policy import Denied
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.types.content import ContentBlock


class ViewMessage(Struct, frozen=True):
    """A message that a View put in the user's mouth: it stands in the conversation with the role `user`."""

    view: str
    tool: str
    content: Sequence[ContentBlock]
    role: str = "user"


class ViewContext(Struct, frozen=True):
    """What a View last said for the model; empty if it took back what it said before."""

    view: str
    tool: str
    content: Sequence[ContentBlock]
    structured_content: dict[str, Any] | None


class Conversation:
    """One conversation. Several hosts may share it, one for each server.

    `max_messages` and `max_bytes` are how much waits for `take_messages`, and `max_bytes` again for `take_context`;
    of more contexts those said longest ago are dropped.
    """

    def __init__(self, *, max_messages: int = 1000, max_bytes: int = 16 * 1024 * 1024) -> None:
        self.messages: list[ViewMessage] = []
        """The messages since they were last taken, in order."""
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._news: OrderedDict[str, tuple[ViewContext, int]] = OrderedDict()
        self._news_bytes = 0
        self._views = 0

    def name_view(self) -> str:
        """An id for a View, never given twice: what Views say is kept apart by it, whichever host shows them."""
        self._views += 1
        return f"view-{self._views}"

    @property
    def contexts(self) -> list[ViewContext]:
        """What `take_context` would give now."""
        return [context for context, _ in self._news.values()]

    def add_message(self, message: ViewMessage) -> None:
        """A View spoke for the user. Raises Denied if too much waits to be taken."""
        size = len(encode(message.content))
        if len(self.messages) >= self._max_messages or self._bytes + size > self._max_bytes:
            raise Denied("Too many messages wait to be taken into the conversation")
        self.messages.append(message)
        self._bytes += size

    def set_context(self, view: str, tool: str, update: ModelContextUpdate) -> None:
        """A View told something for the model; it replaces what the same View told before."""
        _, size = self._news.pop(view, (None, 0))  # in the order of the last word
        self._news_bytes -= size
        size = len(encode((update.content, update.structured_content)))
        self._news[view] = ViewContext(view, tool, update.content, update.structured_content), size
        self._news_bytes += size
        while len(self._news) > 1 and (self._news_bytes > self._max_bytes or len(self._news) > self._max_messages):
            _, (_, size) = self._news.popitem(last=False)
            self._news_bytes -= size

    def take_messages(self) -> list[ViewMessage]:
        """The messages since the last call."""
        taken, self.messages, self._bytes = self.messages, [], 0
        return taken

    def take_context(self) -> list[ViewContext]:
        """What is new for the model since the last call: for each View only its last word.

        Spec: "If multiple updates are received before the next user message, Host SHOULD only send the last".
        """
        taken = self.contexts
        self._news.clear()
        self._news_bytes = 0
        return taken
