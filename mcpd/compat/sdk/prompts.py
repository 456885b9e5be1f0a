"""Functions as prompts, and the messages that they return."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, Self

import pydantic_core
from pydantic import BaseModel, ConfigDict, TypeAdapter, validate_call

from mcpd.compat.contents import Audio, Image
from mcpd.compat.errors import McpError
from mcpd.compat.lowlevel.handlers import is_input_required
from mcpd.compat.sdk.functions import call, context_parameter, func_metadata, function_name, is_async
from mcpd.compat.types.base import ContentBlock, Icon, Role, TextContent
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")


class Message(BaseModel):
    """A message. A string becomes a text block."""

    model_config = ConfigDict(defer_build=True)

    role: Role
    content: ContentBlock

    def __init__(self, content: Any, **members: Any) -> None:
        super().__init__(content=TextContent(text=content) if isinstance(content, str) else content, **members)


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


def _block(content: Any) -> Any:
    if isinstance(content, Image):
        return content.to_image_content()
    return content.to_audio_content() if isinstance(content, Audio) else content


class Message2(Message):
    """A message of version 2, where images and sounds become blocks, too."""

    def __init__(self, content: Any, **members: Any) -> None:
        super().__init__(_block(content), **members)


class UserMessage2(Message2, UserMessage):
    """A message of the user."""

    role: Role = "user"


class AssistantMessage2(Message2, AssistantMessage):
    """A message of the assistant."""

    role: Role = "assistant"


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
    ) -> Self:
        """Return a function as a prompt. Its parameters are the arguments."""
        name = function_name(fn, name)
        context_kwarg = context_kwarg or context_parameter(fn)
        schema = func_metadata(fn, [context_kwarg] if context_kwarg else []).arg_model.model_json_schema()
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

    def _values(self, arguments: dict[str, Any] | None, context: Any) -> dict[str, Any]:
        values = dict(arguments or {})
        missing = {argument.name for argument in self.arguments or () if argument.required} - set(values)
        if missing:
            raise ValueError(f"Missing required arguments: {missing}")

        if self.context_kwarg and context is not None:
            values[self.context_kwarg] = context
        return values

    async def render(self, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Return the messages. Raises ValueError for missing arguments, and with the message of an exception."""
        values = self._values(arguments, context)
        try:
            result = self.fn(**values)
            if inspect.isawaitable(result):
                result = await result
            return [_message(item) for item in (result if isinstance(result, (list, tuple)) else [result])]
        except Exception as error:
            raise ValueError(f"Error rendering prompt {self.name}: {error}") from error


class Prompt2(Prompt):
    """A prompt of version 2."""

    async def render(self, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Return the messages. Raises ValueError, and McpError unchanged."""
        values = self._values(arguments, context)
        try:
            function = functools.partial(self.fn, **values)
            result = await call(function, is_async=is_async(self.fn), in_thread=True)
            if is_input_required(result):
                return result
            return [_message2(item) for item in (result if isinstance(result, (list, tuple)) else [result])]
        except McpError:
            raise
        except Exception as error:
            raise ValueError(f"Error rendering prompt {self.name}") from error


_adapters: list[TypeAdapter[Any]] = []


def _message(item: Any) -> Message:
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


def _message2(item: Any) -> Message:
    kinds: tuple[Any, ...] = (Image, Audio, *ContentBlock.__args__)
    return UserMessage2(content=_block(item)) if isinstance(item, kinds) else _message(item)


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
