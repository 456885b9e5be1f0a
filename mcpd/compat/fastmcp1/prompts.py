"""`mcp.server.fastmcp.prompts`: functions as prompts, and their messages."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pydantic_core
from pydantic import BaseModel, ConfigDict, TypeAdapter, validate_call

from mcpd.compat.fastmcp1.signature import context_parameter, func_metadata
from mcpd.compat.types.base import Role
from mcpd.compat.types.content import ContentBlock, Icon, TextContent
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.compat.fastmcp1.context import Context

__all__ = ["AssistantMessage", "Message", "Prompt", "PromptArgument", "PromptManager", "UserMessage"]

log = logging.getLogger("mcpd")


class Message(BaseModel):
    """A message; a text becomes a text block."""

    model_config = ConfigDict(defer_build=True)

    role: Role
    content: ContentBlock

    def __init__(self, content: str | ContentBlock, **members: Any) -> None:
        super().__init__(content=TextContent(text=content) if isinstance(content, str) else content, **members)


class UserMessage(Message):
    """A message of the user."""

    role: Role = "user"

    def __init__(self, content: str | ContentBlock, **members: Any) -> None:
        super().__init__(content=content, **members)


class AssistantMessage(Message):
    """A message of the assistant."""

    role: Role = "assistant"

    def __init__(self, content: str | ContentBlock, **members: Any) -> None:
        super().__init__(content=content, **members)


class PromptArgument(BaseModel):
    """An argument of a prompt."""

    model_config = ConfigDict(defer_build=True)

    name: str
    description: str | None = None
    required: bool = False


class Prompt:
    """A function as a prompt."""

    def __init__(
        self,
        *,
        fn: Callable[..., Any],
        name: str,
        title: str | None = None,
        description: str | None = None,
        arguments: list[PromptArgument] | None = None,
        icons: list[Icon] | None = None,
        context_kwarg: str | None = None,
    ) -> None:
        self.fn = fn
        self.name = name
        self.title = title
        self.description = description
        self.arguments = arguments
        self.icons = icons
        self.context_kwarg = context_kwarg

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        context_kwarg: str | None = None,
    ) -> Prompt:
        """A prompt of a function; its parameters are the arguments."""
        name = name or fn.__name__
        if name == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        context_kwarg = context_kwarg or context_parameter(fn)
        model = func_metadata(fn, [context_kwarg] if context_kwarg else []).arg_model
        schema = model.model_json_schema()
        required = schema.get("required", ())
        arguments = [
            PromptArgument(name=key, description=member.get("description"), required=key in required)
            for key, member in schema.get("properties", {}).items()
        ]
        return cls(
            fn=validate_call(fn),
            name=name,
            title=title,
            description=description or fn.__doc__ or "",
            arguments=arguments,
            icons=icons,
            context_kwarg=context_kwarg,
        )

    async def render(
        self, arguments: dict[str, Any] | None = None, context: Context[Any, Any, Any] | None = None
    ) -> list[Message]:
        """Its messages. Raises ValueError for arguments that are missing, and with the function's error's text."""
        given = dict(arguments or {})
        missing = {one.name for one in self.arguments or () if one.required} - set(given)
        if missing:
            raise ValueError(f"Missing required arguments: {missing}")
        if self.context_kwarg and context is not None:
            given[self.context_kwarg] = context
        try:
            result = self.fn(**given)
            if inspect.isawaitable(result):
                result = await result
            return [_message(one) for one in (result if isinstance(result, (list, tuple)) else [result])]
        except Exception as error:
            raise ValueError(f"Error rendering prompt {self.name}: {error}") from error


_MESSAGES: list[TypeAdapter[Any]] = []


def _message(given: Any) -> Message:
    try:
        if isinstance(given, Message):
            return given
        if isinstance(given, dict):
            if not _MESSAGES:
                _MESSAGES.append(TypeAdapter(UserMessage | AssistantMessage))
            message: Message = _MESSAGES[0].validate_python(given)
            return message
        if isinstance(given, str):
            return UserMessage(content=given)
        return Message(content=pydantic_core.to_json(given, fallback=str, indent=2).decode(), role="user")
    except Exception as error:
        raise ValueError(f"Could not convert prompt result to message: {given}") from error


class PromptManager:
    """The prompts of a server, by name. The first one of a name stays."""

    def __init__(self, warn_on_duplicate_prompts: bool = True) -> None:
        self.warn_on_duplicate_prompts = warn_on_duplicate_prompts
        self._prompts: dict[str, Prompt] = {}

    def get_prompt(self, name: str) -> Prompt | None:
        """The prompt of that name."""
        return self._prompts.get(name)

    def list_prompts(self) -> list[Prompt]:
        """All prompts."""
        return list(self._prompts.values())

    def add_prompt(self, prompt: Prompt) -> Prompt:
        """Add a prompt; gives the one that has its name."""
        if prompt.name in self._prompts and self.warn_on_duplicate_prompts:
            log.warning("Prompt already exists: %s", printable(prompt.name))
        return self._prompts.setdefault(prompt.name, prompt)

    async def render_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any, Any] | None = None
    ) -> list[Message]:
        """The messages of a prompt. Raises ValueError."""
        prompt = self.get_prompt(name)
        if prompt is None:
            raise ValueError(f"Unknown prompt: {name}")
        return await prompt.render(arguments, context=context)
