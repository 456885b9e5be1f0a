"""Prompts: a description to list, and a function that turns string arguments into messages; and completion.

Spec: 2026-07-28 server/prompts, server/utilities/completion.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mcpd.errors import InternalError, McpdError, RegistrationError, as_told
from mcpd.protocol.printable import printable
from mcpd.protocol.schemas import Schema
from mcpd.protocol.types.features import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent
from mcpd.protocol.types.interaction import Completion
from mcpd.server.context.context import Context
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.peer import is_failure
from mcpd.server.functions.annotations import Function, find_kind, plain_function, resolved
from mcpd.server.functions.arguments import admitted_types, follow
from mcpd.server.functions.signature import Callee, bind
from mcpd.server.functions.threads import run_in_thread
from .content import BLOCKS
from .entries import ActiveExtensions, Entry

if TYPE_CHECKING:
    from mcpd.server.functions.dependencies import Overrides

log = logging.getLogger("mcpd")

MAX_VALUES = 100


class Completer:
    """Completes one argument. The function takes the text so far and, with a second parameter, a dict of the other
    arguments.

    It returns candidates, which are matched and ranked here, or a finished `Completion`. It may also take a Context and
    dependencies; `overrides` replaces dependencies.
    """

    def __init__(self, function: Function, overrides: Overrides | None = None) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._callee: Callee | None = None
        self._names = tuple(inspect.signature(function).parameters)
        if _wants_more(function):
            self._callee = callee = bind(function, context_type=lambda: Context, overrides=overrides)
            self._names = callee.arguments.__struct_fields__
            self._is_async = callee.is_async

    async def complete(self, value: str, others: Mapping[str, str], exchange: Exchange | None = None) -> Completion:
        """Return the suggestions; none if the function fails, which is logged."""
        function: Function = self._function
        arguments: tuple[Any, ...] = (value, dict(others)) if len(self._names) > 1 else (value,)
        if self._callee is not None:
            function, arguments = self._callee.call_values, (dict(zip(self._names, arguments, strict=False)), exchange)
        try:
            if self._is_async:
                suggestions = await function(*arguments)
            else:
                suggestions = await run_in_thread(function, *arguments, exchange=exchange)
            return suggestions if isinstance(suggestions, Completion) else rank(suggestions, value)
        except BaseException as error:
            if not is_failure(error):
                raise
            log.error("completion failed", exc_info=as_told(error))
            return Completion(values=[])


def _wants_more(function: Function) -> bool:
    parameters = inspect.signature(function).parameters.values()
    try:
        hints = resolved(plain_function(function), "completion")
    except RegistrationError:
        return len(parameters) > 2  # `bind` reports the problem
    depends = sys.modules.get("mcpd.server.functions.dependencies")
    return any(
        find_kind(hint := hints.get(parameter.name), Context) is not None
        or (depends is not None and depends.dependency_of(parameter, hint) is not None)
        for parameter in parameters
    )


def rank(candidates: Iterable[Any], value: str) -> Completion:
    """Return the candidates that begin with `value`, then those that contain it, ignoring case, in the given order."""
    typed = value.casefold()
    begin: list[str] = []
    contain: list[str] = []
    for candidate in dict.fromkeys(map(str, candidates)):
        folded = candidate.casefold()
        if folded.startswith(typed):
            begin.append(candidate)
        elif typed in folded:
            contain.append(candidate)
    values = begin + contain
    return Completion(values=values[:MAX_VALUES], total=len(values), has_more=len(values) > MAX_VALUES)


def choices(schema: Schema, name: str) -> list[str]:
    """Return the values that a schema lists for a parameter (enum, const, boolean); [] if it lists none."""
    member = schema.get("properties", {}).get(name, {})
    values: list[str] = []
    for node in (member, *member.get("anyOf", ())):
        target = follow(node, schema) or {}
        if target.get("type") == "boolean":
            values += ["true", "false"]
        values += [str(value) for value in target.get("enum", ()) if value is not None]
    return values


class FunctionPrompt(Entry):
    """One prompt. Its arguments are the function's parameters; their values are strings."""

    def __init__(self, prompt: Prompt, callee: Callee) -> None:
        self.key = prompt.name
        self.prompt = prompt
        self.callee = callee

    def listed(self, active: ActiveExtensions) -> Prompt:
        """Return the prompt as `prompts/list` shows it."""
        if self.prompt.arguments is None:
            schema = self.callee.input_schema
            required = schema.get("required", ())
            arguments = [
                PromptArgument(
                    name=name,
                    title=_text_of(member, "title"),
                    description=_described(_text_of(member, "description"), member, schema),
                    required=name in required,
                )
                for name, member in schema.get("properties", {}).items()
            ]
            self.prompt = structs.replace(self.prompt, arguments=arguments)
        return self.prompt

    @property
    def arguments(self) -> Collection[str]:
        """The parameters of the function."""
        return self.callee.parameters

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        """Return the values that the parameter's annotation allows."""
        return rank(choices(self.callee.input_schema, argument), value)

    async def run(self, arguments: dict[str, str | None], exchange: Exchange) -> GetPromptResult:
        """Return the messages. Raises InvalidParams for a missing or unknown argument."""
        try:
            if self.callee.is_async:
                value = await self.callee.call_strings(arguments, exchange)
            else:
                value = await run_in_thread(self.callee.call_strings, arguments, exchange, exchange=exchange)
            return self._result(value)
        except McpdError:
            raise
        except BaseException as error:
            if not is_failure(error):
                raise
            log.error(
                "prompt %s (request %s) failed", self.key, printable(exchange.request_id), exc_info=as_told(error)
            )
            raise InternalError("The prompt could not be made; details are in the server's log") from error

    def _result(self, value: Any) -> GetPromptResult:
        if isinstance(value, GetPromptResult):
            return value
        values = value if isinstance(value, list) else [value]
        messages = [_message(item) for item in values]
        return GetPromptResult(messages=messages, description=self.prompt.description)


def _message(value: Any) -> PromptMessage:
    if isinstance(value, PromptMessage):
        return value
    if isinstance(value, str):
        return PromptMessage("user", TextContent(str.__str__(value)))
    if isinstance(value, BLOCKS):
        return PromptMessage("user", value)

    if isinstance(value, tuple) and len(value) == 2 and value[0] in ("user", "assistant"):
        content = TextContent(str.__str__(value[1])) if isinstance(value[1], str) else value[1]
        if isinstance(content, BLOCKS):
            return PromptMessage(value[0], content)

    raise TypeError(
        f"a prompt returns text, content blocks, (role, content) or PromptMessage, not {type(value).__name__}"
    )


def _text_of(member: Schema, key: str) -> str | None:
    for node in (member, *member.get("anyOf", ())):
        if "$ref" not in node and key in node:
            return node[key]  # type: ignore[no-any-return]
    return None


_WRITTEN = {
    frozenset(("boolean",)): "true or false",
    frozenset(("integer",)): "an integer",
    frozenset(("integer", "number")): "a number",
    frozenset(("array",)): "a JSON array",
    frozenset(("object",)): "a JSON object",
}


def _described(description: str | None, schema: Schema, root: Schema) -> str | None:
    # Return an argument's description, and how to write a value that is not text.
    admitted = admitted_types(schema, root) - {"null"}
    if not admitted or "string" in admitted:
        return description
    text = _WRITTEN.get(admitted, "JSON")
    whole = follow(schema, root) or {}
    branches = [follow(branch, root) or {} for branch in whole.get("anyOf", (whole,))]
    items = [branch["items"] for branch in branches if "items" in branch]
    if admitted == {"array"} and items and all(admitted_types(item, root) == {"string"} for item in items):
        text += ' of strings, such as ["a", "b"]'
    return f"{description or ''} (write {text})".strip()
