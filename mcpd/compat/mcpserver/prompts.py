"""Prompts: as in version 1, in threads, with pictures and sounds, and without the texts of unexpected errors."""

from __future__ import annotations

import functools
from typing import Any

from mcpd.compat.exceptions import McpError
from mcpd.compat.fastmcp1 import prompts as first
from mcpd.compat.fastmcp1.media import Audio, Image
from mcpd.compat.fastmcp1.signature import is_async
from mcpd.compat.lowlevel.context import current_exchange
from mcpd.compat.types.content import ContentBlock
from mcpd.server.functions.threads import run_in_thread

__all__ = ["AssistantMessage", "Message", "Prompt", "PromptManager", "UserMessage"]


def _block(content: Any) -> Any:
    if isinstance(content, Image):
        return content.to_image_content()
    return content.to_audio_content() if isinstance(content, Audio) else content


class Message(first.Message):
    """A message; a text, picture or sound becomes a block."""

    def __init__(self, content: Any, **members: Any) -> None:
        super().__init__(_block(content), **members)


class UserMessage(Message, first.UserMessage):
    """A message of the user."""

    role: Any = "user"


class AssistantMessage(Message, first.AssistantMessage):
    """A message of the assistant."""

    role: Any = "assistant"


class Prompt(first.Prompt):
    """A function as a prompt."""

    async def render(self, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Its messages. Raises ValueError, and McpError as it was raised."""
        given = {**(arguments or {})}
        missing = {one.name for one in self.arguments or () if one.required} - given.keys()
        if missing:
            raise ValueError(f"Missing required arguments: {missing}")
        if self.context_kwarg:
            given[self.context_kwarg] = context
        call = functools.partial(self.fn, **given)
        try:
            result = await (call() if is_async(self.fn) else run_in_thread(call, exchange=current_exchange.get(None)))
            if getattr(result, "resultType", None) == "input_required":
                return result
            return [_message(one) for one in (result if isinstance(result, (list, tuple)) else [result])]
        except McpError:
            raise
        except Exception as error:
            raise ValueError(f"Error rendering prompt {self.name}") from error


def _message(given: Any) -> Any:
    kinds: tuple[Any, ...] = (Image, Audio, *ContentBlock.__args__)
    if isinstance(given, kinds):
        return UserMessage(content=_block(given))
    return first._message(given)


class PromptManager(first.PromptManager):
    """The prompts of a server, by name."""

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away. Raises ValueError if there is none."""
        if self._prompts.pop(name, None) is None:
            raise ValueError(f"Unknown prompt: {name}")
