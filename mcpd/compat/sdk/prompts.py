"""Functions as prompts, and the messages that they return."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Self

import pydantic_core
from pydantic import BaseModel, ConfigDict, TypeAdapter, validate_call

from mcpd.compat.contents import Audio, Image, as_block
from mcpd.compat.errors import McpError
from mcpd.compat.lowlevel.handlers import is_input_required
from mcpd.compat.sdk.functions import Component, func_metadata
from mcpd.compat.types.base import ContentBlock, Icon, Role, TextContent
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")


class Message(BaseModel):
    """A message. A string, an image or a sound becomes a block."""

    model_config = ConfigDict(defer_build=True)

    role: Role
    content: ContentBlock

    def __init__(self, content: Any, **members: Any) -> None:
        super().__init__(
            content=TextContent(text=content) if isinstance(content, str) else as_block(content), **members
        )


class UserMessage(Message):
    """A message of the user."""

    role: Role = "user"

    def __init__(self, content: Any, **members: Any) -> None:
        super().__init__(content=content, **members)


class AssistantMessage(Message):
    """A message of the assistant."""

    role: Role = "assistant"

    def __init__(self, content: Any, **members: Any) -> None:
        super().__init__(content=content, **members)


class PromptArgument(BaseModel):
    """An argument of a prompt."""

    model_config = ConfigDict(defer_build=True)

    name: str
    description: str | None = None
    required: bool = False


class Prompt(Component):
    """A function as a prompt."""

    arguments: list[PromptArgument] | None = None

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: list[Icon] | None = None,
        context_kwarg: str | None = None,
    ) -> Self:
        """Return a function as a prompt. Its parameters are the arguments."""
        made = cls._of_function(fn, name, description, context_kwarg, title=title, icons=icons)
        schema = func_metadata(fn, made._skipped).arg_model.model_json_schema()
        required = schema.get("required", ())
        made.arguments = [
            PromptArgument(name=key, description=member.get("description"), required=key in required)
            for key, member in schema.get("properties", {}).items()
        ]
        made.fn = validate_call(fn)
        return made

    async def render(self, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Return the messages. Raises ValueError for missing arguments and failures; version 2 also McpError."""
        values = dict(arguments or {})
        missing = {argument.name for argument in self.arguments or () if argument.required} - set(values)
        if missing:
            raise ValueError(f"Missing required arguments: {missing}")

        try:
            result = await self._call(values, context)
            if is_input_required(result):
                return result
            items = result if isinstance(result, (list, tuple)) else [result]
            return [_message(item, self.is_second) for item in items]
        except Exception as error:
            if self.is_second and isinstance(error, McpError):
                raise
            detail = "" if self.is_second else f": {error}"
            raise ValueError(f"Error rendering prompt {self.name}{detail}") from error


class Prompt2(Prompt):
    """A prompt of version 2."""

    is_second = True


_adapters: list[TypeAdapter[Any]] = []


def _message(item: Any, is_second: bool) -> Message:
    blocks: tuple[Any, ...] = (Image, Audio, *ContentBlock.__args__)
    if is_second and isinstance(item, blocks):
        return UserMessage(content=item)
    try:
        if isinstance(item, Message):
            return item
        if isinstance(item, dict):
            if not _adapters:
                _adapters.append(TypeAdapter(UserMessage | AssistantMessage))
            message: Message = _adapters[0].validate_python(item)
            return message
        if isinstance(item, str):
            return UserMessage(content=item)
        return Message(content=pydantic_core.to_json(item, fallback=str, indent=2).decode(), role="user")
    except Exception as error:
        raise ValueError(f"Could not convert prompt result to message: {item}") from error


class PromptManager:
    """The prompts of a server by name. The first prompt of a name stays."""

    def __init__(self, warn_on_duplicate_prompts: bool = True) -> None:
        self.warn_on_duplicate_prompts = warn_on_duplicate_prompts
        self._prompts: dict[str, Prompt] = {}

    def get_prompt(self, name: str) -> Prompt | None:
        return self._prompts.get(name)

    def list_prompts(self) -> list[Prompt]:
        return list(self._prompts.values())

    def add_prompt(self, prompt: Prompt) -> Prompt:
        """Add a prompt. Returns the prompt that has its name."""
        if prompt.name in self._prompts and self.warn_on_duplicate_prompts:
            log.warning("Prompt already exists: %s", printable(prompt.name))
        return self._prompts.setdefault(prompt.name, prompt)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt. Raises ValueError for an unknown one."""
        if self._prompts.pop(name, None) is None:
            raise ValueError(f"Unknown prompt: {name}")

    async def render_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Return the messages of a prompt. Raises ValueError."""
        prompt = self.get_prompt(name)
        if prompt is None:
            raise ValueError(f"Unknown prompt: {name}")
        return await prompt.render(arguments, context=context)
