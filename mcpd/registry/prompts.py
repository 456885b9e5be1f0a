"""Prompts: a description to list, and a function that turns string arguments into messages.

Spec: 2026-07-28 server/prompts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import structs

from mcpd.context.exchange import Exchange
from mcpd.context.input_required import is_failure
from mcpd.errors import InternalError, McpdError, as_told
from mcpd.protocol.printable import printable
from mcpd.protocol.types.content import TextContent
from mcpd.protocol.types.interaction import Completion
from mcpd.protocol.types.prompts import GetPromptResult, Prompt, PromptArgument, PromptMessage
from mcpd.registry.coercion import admitted_types, follow
from mcpd.registry.completion import choices, rank
from mcpd.registry.content import BLOCKS
from mcpd.registry.pages import ActiveExtensions
from mcpd.registry.signature import Callee
from mcpd.registry.threads import run_in_thread

if TYPE_CHECKING:
    from mcpd.registry.needs import Needs
    from mcpd.registry.rules import EntryRule

log = logging.getLogger("mcpd")


class FunctionPrompt:
    """One prompt. Its arguments are the function's parameters; their values come as strings."""

    requires: str | None = None
    tags: frozenset[str] = frozenset()
    is_enabled = True
    visible: EntryRule | None = None
    needs: Needs | None = None

    def __init__(self, prompt: Prompt, callee: Callee) -> None:
        self.key = prompt.name
        self.prompt = prompt
        self.callee = callee

    def listed(self, active: ActiveExtensions) -> Prompt:
        """The prompt as `prompts/list` shows it."""
        if self.prompt.arguments is None:
            schema = self.callee.input_schema
            arguments = [
                PromptArgument(
                    name=item.name,
                    title=item.title,
                    description=_described(item.description, schema["properties"][item.name], schema),
                    required=item.required,
                )
                for item in self.callee.argument_list
            ]
            self.prompt = structs.replace(self.prompt, arguments=arguments)
        return self.prompt

    @property
    def arguments(self) -> Collection[str]:
        """The parameters of the function."""
        return self.callee.parameters

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        """The values that the parameter may have by its annotation."""
        return rank(choices(self.callee.input_schema, argument), value)

    async def run(self, arguments: dict[str, str | None], exchange: Exchange) -> GetPromptResult:
        """The messages. Raises InvalidParams for a missing or unknown argument."""
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
        f"a prompt gives text, content blocks, (role, content) or PromptMessage, not {type(value).__name__}"
    )


_WRITTEN = {
    frozenset(("boolean",)): "true or false",
    frozenset(("integer",)): "an integer",
    frozenset(("integer", "number")): "a number",
    frozenset(("array",)): "a JSON array",
    frozenset(("object",)): "a JSON object",
}


def _described(description: str | None, schema: dict[str, Any], root: dict[str, Any]) -> str | None:
    """The description of an argument, and how people write a value that is no text."""
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
