"""What Views add to the conversation: messages of the user, and context for the next turn of the model.

The program takes both for the next turn; nothing here reaches a model otherwise. Both queues are bounded: further
messages of Views are denied, as a user may deny them.

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
from mcpd.protocol.types.features import ContentBlock


class ViewMessage(Struct, frozen=True):
    """A message that a View adds to the conversation with the role `user`."""

    view: str
    tool: str
    content: Sequence[ContentBlock]
    role: str = "user"


class ViewContext(Struct, frozen=True):
    """The last context of a View for the model; empty if the View removed it."""

    view: str
    tool: str
    content: Sequence[ContentBlock]
    structured_content: dict[str, Any] | None


class Conversation:
    """One conversation. Several hosts may share it, one for each server.

    `max_messages` and `max_bytes` bound what waits for `take_messages`, and separately what waits for `take_context`.
    If there is more context, the least recent is dropped.
    """

    def __init__(self, *, max_messages: int = 1000, max_bytes: int = 16 * 1024 * 1024) -> None:
        self.messages: list[ViewMessage] = []
        """The messages since they were last taken, in order."""
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._contexts: OrderedDict[str, tuple[ViewContext, int]] = OrderedDict()
        self._context_bytes = 0
        self._views = 0

    def name_view(self) -> str:
        """Return an id for a View that is never used again, whichever host shows the View."""
        self._views += 1
        return f"view-{self._views}"

    @property
    def contexts(self) -> list[ViewContext]:
        """What `take_context` would return now."""
        return [context for context, _ in self._contexts.values()]

    def add_message(self, message: ViewMessage) -> None:
        """Add a message of a View. Raises Denied if too much waits to be taken."""
        size = len(encode(message.content))
        if len(self.messages) >= self._max_messages or self._bytes + size > self._max_bytes:
            raise Denied("Too many messages wait to be taken into the conversation")
        self.messages.append(message)
        self._bytes += size

    def set_context(self, view: str, tool: str, update: ModelContextUpdate) -> None:
        """Set the context of a View for the model, instead of its previous one."""
        _, size = self._contexts.pop(view, (None, 0))
        self._context_bytes -= size
        size = len(encode((update.content, update.structured_content)))
        self._contexts[view] = ViewContext(view, tool, update.content, update.structured_content), size
        self._context_bytes += size
        while len(self._contexts) > 1 and (
            self._context_bytes > self._max_bytes or len(self._contexts) > self._max_messages
        ):
            _, (_, size) = self._contexts.popitem(last=False)
            self._context_bytes -= size

    def take_messages(self) -> list[ViewMessage]:
        """Return the messages since the last call."""
        taken, self.messages, self._bytes = self.messages, [], 0
        return taken

    def take_context(self) -> list[ViewContext]:
        """Return the contexts that are new since the last call, one for each View.

        Spec: "If multiple updates are received before the next user message, Host SHOULD only send the last".
        """
        taken = self.contexts
        self._contexts.clear()
        self._context_bytes = 0
        return taken
