"""Completion: candidates from a function, or from the values a parameter may have; ranked, at most 100.

Spec: 2026-07-28 server/utilities/completion.
"""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mcpd.context.context import Context
from mcpd.context.exchange import Exchange
from mcpd.context.input_required import is_failure
from mcpd.errors import RegistrationError, as_told
from mcpd.protocol.types.interaction import Completion
from mcpd.registry.annotations import find_kind, plain_function, resolved
from mcpd.registry.signature import Callee, bind
from mcpd.registry.threads import run_in_thread

if TYPE_CHECKING:
    from mcpd.registry.dependencies import Overrides

log = logging.getLogger("mcpd")

MAX_VALUES = 100


class Completer:
    """Completes one argument. The function takes the text so far and, if it has a second parameter, the other
    arguments as a dict; it gives candidates (matched and ranked here) or a `Completion` as it stands. Beside these it
    may have a Context and dependencies; of those `overrides` names what is called instead."""

    def __init__(self, function: Callable[..., Any], overrides: Overrides | None = None) -> None:
        self._function = function
        self._is_async = inspect.iscoroutinefunction(function)
        self._callee: Callee | None = None
        self._names = tuple(inspect.signature(function).parameters)
        if _wants_more(function):
            self._callee = callee = bind(function, context_type=lambda: Context, overrides=overrides)
            self._names = callee.arguments.__struct_fields__
            self._is_async = callee.is_async

    async def complete(self, value: str, others: Mapping[str, str], exchange: Exchange | None = None) -> Completion:
        """The suggestions; none if the function fails, which is logged."""
        function: Callable[..., Any] = self._function
        arguments: tuple[Any, ...] = (value, dict(others)) if len(self._names) > 1 else (value,)
        if self._callee is not None:
            function, arguments = self._callee.call_values, (dict(zip(self._names, arguments, strict=False)), exchange)
        try:
            if self._is_async:
                found = await function(*arguments)
            else:
                found = await run_in_thread(function, *arguments, exchange=exchange)
            return found if isinstance(found, Completion) else rank(found, value)
        except BaseException as error:
            if not is_failure(error):
                raise
            log.error("completion failed", exc_info=as_told(error))
            return Completion(values=[])


def _wants_more(function: Callable[..., Any]) -> bool:
    """Whether a function has a Context or dependencies beside what it completes."""
    slots = inspect.signature(function).parameters.values()
    try:
        hints = resolved(plain_function(function), "completion")
    except RegistrationError:
        return len(slots) > 2  # what is wrong with it is said then
    depends = sys.modules.get(f"{__package__}.depends")
    return any(
        find_kind(hint := hints.get(slot.name), Context) is not None
        or (depends is not None and depends.dependency_of(slot, hint) is not None)
        for slot in slots
    )


def rank(candidates: Iterable[Any], value: str) -> Completion:
    """Those that begin with `value`, then those that contain it, whatever the case; each in the order given."""
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


def choices(schema: Mapping[str, Any], name: str) -> list[str]:
    """The values that a parameter may have by its schema: enum, const, boolean; [] if they are not listed."""
    member = schema.get("properties", {}).get(name, {})
    definitions = schema.get("$defs", {})
    found: list[str] = []
    for node in (member, *member.get("anyOf", ())):
        target = definitions.get(node.get("$ref", "").rpartition("/")[2], node)
        if target.get("type") == "boolean":
            found += ["true", "false"]
        found += [str(value) for value in target.get("enum", ()) if value is not None]
    return found
