"""`fastmcp.prompts`: functions as prompts, and their messages."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import pydantic_core
from pydantic import BaseModel, Field, TypeAdapter

from mcpd.compat.errors import FastMCPError, PromptError, ValidationError
from mcpd.compat.fastmcp.components import Component, check_items, given, mark, options_of, public_meta, unmarked
from mcpd.compat.fastmcp.functions import Function, described
from mcpd.compat.fastmcp.results import pruned
from mcpd.compat.sdk.components import PromptArgument
from mcpd.compat.types import features
from mcpd.compat.types.base import ContentBlock, TextContent

PromptMessage = features.PromptMessage


class Message(BaseModel):
    """A message. A string becomes a text block, and data become one with their JSON."""

    role: Literal["user", "assistant"]
    content: Any

    def __init__(self, content: Any, role: Literal["user", "assistant"] = "user") -> None:
        if not isinstance(content, ContentBlock):
            text = content if isinstance(content, str) else pydantic_core.to_json(content, fallback=str).decode()
            content = TextContent(text=text)
        super().__init__(role=role, content=content)

    def to_mcp_prompt_message(self) -> PromptMessage:
        return PromptMessage(role=self.role, content=self.content)


class PromptResult(BaseModel):
    """The messages of a prompt, a description, and `_meta`."""

    messages: list[Message]
    description: str | None = None
    meta: dict[str, Any] | None = None

    def __init__(self, messages: Any, description: str | None = None, meta: dict[str, Any] | None = None) -> None:
        if isinstance(messages, str):
            messages = [Message(messages)]
        check_items("messages", messages, Message, "str or")
        super().__init__(messages=messages, description=description, meta=meta)

    def to_mcp_prompt_result(self) -> features.GetPromptResult:
        messages = [message.to_mcp_prompt_message() for message in self.messages]
        return features.GetPromptResult(description=self.description, messages=messages, meta=self.meta)


class Prompt(Component):
    """A prompt. Subclasses implement `render`."""

    KEY_PREFIX: ClassVar[str] = "prompt"

    arguments: list[PromptArgument] | None = None

    @classmethod
    def from_function(cls, fn: Any, *, name: str | None = None, **options: Any) -> FunctionPrompt:
        """Return a function as a prompt. Its parameters are the arguments. Raises ValueError."""
        marked = options_of(fn, "prompt")
        if marked is not None:
            return cls.from_function(unmarked(fn), **{**marked, **given({"name": name, **options})})

        function = Function(fn, "prompts", name=name)
        description, texts = described(function.doc)
        schema = pruned(function.adapter.json_schema())
        required = schema.get("required", ())
        arguments = [
            PromptArgument(
                name=key,
                description=_argument_description(function, key, member.get("description") or texts.get(key)),
                required=key in required,
            )
            for key, member in schema.get("properties", {}).items()
        ]
        options = {"description": description, **given(options)}
        made = FunctionPrompt(fn=function.fn, name=function.component_name, arguments=arguments, **options)
        made._function = function
        return made

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError("Subclasses must implement render()")

    def convert_result(self, raw_value: Any) -> PromptResult:
        if isinstance(raw_value, PromptResult):
            return raw_value
        if isinstance(raw_value, (str, Message, PromptMessage)):
            raw_value = [raw_value]
        if not isinstance(raw_value, (list, tuple)):
            raise TypeError(f"Prompt must return str, list[Message], or PromptResult, got {type(raw_value).__name__}")

        messages = [_message(at, item) for at, item in enumerate(raw_value)]
        return PromptResult(messages, description=self.description, meta=public_meta(self.meta))

    async def result(self, arguments: dict[str, Any] | None) -> PromptResult:
        return self.convert_result(await self.render(arguments))

    def to_mcp_prompt(self, **changed: Any) -> features.Prompt:
        arguments = [features.PromptArgument(**argument.model_dump()) for argument in self.arguments or ()]
        return self._listed(features.Prompt, changed, arguments=arguments)


def _message(at: int, item: Any) -> Message:
    if isinstance(item, Message):
        return item
    if isinstance(item, str):
        return Message(item)
    if isinstance(item, PromptMessage):
        return Message(item.content, item.role)
    raise TypeError(
        f"messages[{at}] must be Message or str, got {type(item).__name__}. Use Message({item!r}) to wrap the value."
    )


class FunctionPrompt(Prompt):
    """A function as a prompt."""

    fn: Callable[..., Any] = Field(exclude=True)

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Call the function. Raises ValidationError for missing arguments, and otherwise PromptError."""
        sent = arguments or {}
        missing = {argument.name for argument in self.arguments or () if argument.required} - sent.keys()
        if missing:
            raise ValidationError(f"Missing required arguments: {missing}", log_level=logging.WARNING)

        try:
            known = self._function.arguments
            values = self._function.validated({key: self._parsed(key, sent[key]) for key in sent if key in known})
            return self.convert_result(await self._function.call(values))
        except FastMCPError:
            raise
        except Exception as error:
            raise PromptError(f"Error rendering prompt {self.name!r}: {error}") from error

    def _parsed(self, name: str, value: Any) -> Any:
        """Return an argument, which clients send as text. Values of other types are JSON."""
        hint, written = self._function.hints.get(name), self._function.arguments[name].annotation
        if hint is None or hint is str or not isinstance(value, str):
            return value

        adapter: TypeAdapter[Any] = TypeAdapter(hint)
        try:
            try:
                parsed = adapter.validate_python(value)
            except ValueError:
                return adapter.validate_json(value)
            # What is more than a text is JSON if it can be: "[1]" for `list[int] | str`.
            try:
                return parsed if isinstance(parsed, str) else adapter.validate_json(value)
            except ValueError:
                return parsed
        except (ValueError, TypeError) as error:
            raise PromptError(
                f"Could not convert argument '{name}' with value '{value}' to expected type {written}. Error: {error}"
            ) from error


def _argument_description(function: Function, name: str, text: str | None) -> str | None:
    """Return the description of an argument. For other types than text it includes the JSON schema."""
    written = function.arguments[name].annotation
    if written in (str, function.signature.empty):
        return text

    # The annotation as written: here the text in `Annotated[int, "text"]` is not part of the schema.
    hint = function.hints.get(name, written) if isinstance(written, str) else written
    try:
        schema = json.dumps(TypeAdapter(hint).json_schema(), separators=(",", ":"))
    except Exception:  # a type without a schema
        return text
    note = f"Provide a value matching the following JSON schema: {schema}. Encode non-string values as JSON."
    return f"{text}\n\n{note}" if text else note


def prompt(name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
    """Mark a function as a prompt for `mcp.add_prompt`."""
    return mark("prompt", name_or_fn, name, options)
