"""What Views have to say in the conversation: messages of the user's, and context for the model's next turn.

The program takes both when it puts together the next turn; nothing here reaches a model by itself.

Spec: MCP Apps 2026-01-26, `ui/message`, `ui/update-model-context`; rules APP-H-18 and -19.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ..types.content import ContentBlock
from .events import ModelContextUpdate

__all__ = ["Conversation", "ViewContext", "ViewMessage"]


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
    """One conversation. Several hosts may share it, one for each server."""

    def __init__(self) -> None:
        self.messages: list[ViewMessage] = []
        """Every message so far, in order."""
        self._untaken: list[ViewMessage] = []
        self._news: dict[str, ViewContext] = {}
        self._views = 0

    def name_view(self) -> str:
        """An id for a View, never given twice: what Views say is kept apart by it, whichever host shows them."""
        self._views += 1
        return f"view-{self._views}"

    def add_message(self, message: ViewMessage) -> None:
        """A View spoke for the user."""
        self.messages.append(message)
        self._untaken.append(message)

    def set_context(self, view: str, tool: str, update: ModelContextUpdate) -> None:
        """A View told something for the model; it replaces what the same View told before."""
        self._news.pop(view, None)  # in the order of the last word
        self._news[view] = ViewContext(view, tool, update.content, update.structured_content)

    def take_messages(self) -> list[ViewMessage]:
        """The messages since the last call."""
        taken, self._untaken = self._untaken, []
        return taken

    def take_context(self) -> list[ViewContext]:
        """What is new for the model since the last call: for each View only its last word.

        Spec: "If multiple updates are received before the next user message, Host SHOULD only send the last".
        """
        taken, self._news = list(self._news.values()), {}
        return taken
