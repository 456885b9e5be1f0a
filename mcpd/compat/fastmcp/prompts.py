"""`fastmcp.prompts`: functions as prompts, and their messages."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import pydantic_core
from pydantic import BaseModel, Field, PrivateAttr, TypeAdapter

from mcpd.compat.fastmcp.components import Component, public
from mcpd.compat.fastmcp.docstrings import described
from mcpd.compat.fastmcp.errors import FastMCPError, PromptError, ValidationError
from mcpd.compat.fastmcp.functions import Function
from mcpd.compat.fastmcp.marks import Marked, mark
from mcpd.compat.fastmcp.schemas import pruned
from mcpd.compat.types import prompts
from mcpd.compat.types.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent

__all__ = ["FunctionPrompt", "Message", "Prompt", "PromptArgument", "PromptMessage", "PromptResult", "prompt"]

PromptMessage = prompts.PromptMessage

_CONTENT = (TextContent, ImageContent, AudioContent, EmbeddedResource, ResourceLink)


class Message(BaseModel):
    """A message; a text becomes a text block, and data JSON in one."""

    role: Literal["user", "assistant"]
    content: Any

    def __init__(self, content: Any, role: Literal["user", "assistant"] = "user") -> None:
        if not isinstance(content, _CONTENT):
            text = content if isinstance(content, str) else pydantic_core.to_json(content, fallback=str).decode()
            content = TextContent(text=text)
        super().__init__(role=role, content=content)

    def to_mcp_prompt_message(self) -> PromptMessage:
        """The same as the protocol has it."""
        return PromptMessage(role=self.role, content=self.content)


class PromptArgument(BaseModel):
    """An argument of a prompt."""

    name: str
    description: str | None = None
    required: bool = False


class PromptResult(BaseModel):
    """What a prompt gives: messages, a description, `_meta`."""

    messages: list[Message]
    description: str | None = None
    meta: dict[str, Any] | None = None

    def __init__(self, messages: Any, description: str | None = None, meta: dict[str, Any] | None = None) -> None:
        if isinstance(messages, str):
            messages = [Message(messages)]
        if not isinstance(messages, list):
            raise TypeError(f"messages must be str or list[Message], got {type(messages).__name__}")
        for at, one in enumerate(messages):
            if not isinstance(one, Message):
                raise TypeError(
                    f"messages[{at}] must be Message, got {type(one).__name__}. Use Message({one!r}) to wrap the value."
                )
        super().__init__(messages=messages, description=description, meta=meta)

    def to_mcp_prompt_result(self) -> prompts.GetPromptResult:
        """The same as the protocol's result."""
        messages = [one.to_mcp_prompt_message() for one in self.messages]
        return prompts.GetPromptResult(description=self.description, messages=messages, _meta=self.meta)  # type: ignore[call-arg]


class Prompt(Component):
    """A prompt; a class of one's own has `render`."""

    KEY_PREFIX: ClassVar[str] = "prompt"

    arguments: list[PromptArgument] | None = None

    @classmethod
    def from_function(cls, fn: Any, *, name: str | None = None, **options: Any) -> FunctionPrompt:
        """A prompt of a function; its parameters are the arguments."""
        return FunctionPrompt.made_of(fn, name=name, **options)

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Its messages."""
        raise NotImplementedError("Subclasses must implement render()")

    def convert_result(self, raw_value: Any) -> PromptResult:
        """What a function gave as a result."""
        if isinstance(raw_value, PromptResult):
            return raw_value
        if isinstance(raw_value, (str, Message, PromptMessage)):
            raw_value = [raw_value]
        if not isinstance(raw_value, (list, tuple)):
            raise TypeError(f"Prompt must return str, list[Message], or PromptResult, got {type(raw_value).__name__}")
        messages = [_message(at, one) for at, one in enumerate(raw_value)]
        return PromptResult(messages, description=self.description, meta=public(self.meta))

    async def result(self, arguments: dict[str, Any] | None) -> PromptResult:
        """Its messages, as a result."""
        return self.convert_result(await self.render(arguments))

    def to_mcp_prompt(self, **changed: Any) -> prompts.Prompt:
        """As clients see it."""
        return prompts.Prompt(
            name=changed.get("name", self.name),
            title=self.title,
            description=self.description,
            arguments=[
                prompts.PromptArgument(name=one.name, description=one.description, required=one.required)
                for one in self.arguments or ()
            ],
            icons=self.icons,
            _meta=self.get_meta(),  # type: ignore[call-arg]
        )


def _message(at: int, given: Any) -> Message:
    if isinstance(given, Message):
        return given
    if isinstance(given, str):
        return Message(given)
    if isinstance(given, PromptMessage):
        return Message(given.content, given.role)
    raise TypeError(
        f"messages[{at}] must be Message or str, got {type(given).__name__}. Use Message({given!r}) to wrap the value."
    )


class FunctionPrompt(Prompt):
    """A function as a prompt."""

    fn: Callable[..., Any] = Field(exclude=True)

    _function: Function = PrivateAttr()

    @classmethod
    def made_of(cls, fn: Any, *, name: str | None = None, **options: Any) -> FunctionPrompt:
        """A prompt of a function. Raises ValueError for one that cannot be one."""
        marked = getattr(fn, "__fastmcp__", None)
        if isinstance(marked, Marked) and marked.kind == "prompt":
            said = {key: value for key, value in {"name": name, **options}.items() if value is not None}
            return cls.made_of(marked.bare(fn), **{**marked.options, **said})
        function = Function(fn, "prompts")
        if (name or function.name) == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        description, texts = described(function.doc)
        schema = pruned(function.adapter.json_schema())
        required = schema.get("required", ())
        arguments = [
            PromptArgument(
                name=key, description=_text_of(function, key, member, texts.get(key)), required=key in required
            )
            for key, member in schema.get("properties", {}).items()
        ]
        options = {key: value for key, value in options.items() if value is not None}
        options.setdefault("description", description)
        made = cls(fn=function.fn, name=name or function.name, arguments=arguments, **options)
        made._function = function
        return made

    async def render(self, arguments: dict[str, Any] | None = None) -> Any:
        """Call the function. Raises ValidationError for arguments that are missing, PromptError for all else."""
        given = {**(arguments or {})}
        missing = {one.name for one in self.arguments or () if one.required} - given.keys()
        if missing:
            raise ValidationError(f"Missing required arguments: {missing}", log_level=logging.WARNING)
        try:
            known = self._function.given
            values = self._function.read({key: self._read_as(key, given[key]) for key in given if key in known})
            return self.convert_result(await self._function.call(values))
        except FastMCPError:
            raise
        except Exception as error:
            raise PromptError(f"Error rendering prompt {self.name!r}: {error}") from error

    def _read_as(self, name: str, value: Any) -> Any:
        """Values of other types than text come as JSON."""
        hint, written = self._function.hints.get(name), self._function.given[name].annotation
        if hint is None or hint is str or not isinstance(value, str):
            return value
        reads: TypeAdapter[Any] = TypeAdapter(hint)
        try:
            try:
                found = reads.validate_python(value)
            except ValueError:
                return reads.validate_json(value)
            if isinstance(found, str):
                return found
            try:
                return reads.validate_json(value)
            except ValueError:
                return found
        except (ValueError, TypeError) as error:
            raise PromptError(
                f"Could not convert argument '{name}' with value '{value}' to expected type {written}. Error: {error}"
            ) from error


def _text_of(function: Function, name: str, member: dict[str, Any], text: str | None) -> str | None:
    """The description of an argument; for other types than text with what its JSON has to be."""
    said: str | None = member.get("description") or text
    written = function.given[name].annotation
    if written in (str, function.signature.empty):
        return said
    # As it is written: the text in `Annotated[int, "text"]` is no part of the schema here.
    hint = function.hints.get(name, written) if isinstance(written, str) else written
    try:
        schema = json.dumps(TypeAdapter(hint).json_schema(), separators=(",", ":"))
    except Exception:  # no schema, no hint
        return said
    note = f"Provide a value matching the following JSON schema: {schema}. Encode non-string values as JSON."
    return f"{said}\n\n{note}" if said else note


def prompt(name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
    """Mark a function as a prompt, for `mcp.add_prompt`."""
    return mark("prompt", name_or_fn, name, options)
