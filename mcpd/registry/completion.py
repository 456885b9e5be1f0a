"""Completion: candidates from a function, or from the values a parameter may have; ranked, at most 100.

Spec: 2026-07-28 server/utilities/completion.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..context.exchange import Exchange
from ..context.input_required import is_failure
from ..errors import as_told
from ..types.completion import Completion
from .threads import run_in_thread

__all__ = ["MAX_VALUES", "Completer", "choices", "rank"]

log = logging.getLogger("mcpd")

MAX_VALUES = 100


class Completer:
    """Completes one argument. The function takes the text so far and, if it has a second parameter, the other
    arguments as a dict; it gives candidates (matched and ranked here) or a `Completion` as it stands."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._wants_others = len(inspect.signature(function).parameters) > 1
        self._is_async = inspect.iscoroutinefunction(function)

    async def complete(self, value: str, others: Mapping[str, str], exchange: Exchange | None = None) -> Completion:
        """The suggestions; none if the function fails, which is logged."""
        arguments = (value, dict(others)) if self._wants_others else (value,)
        try:
            if self._is_async:
                found = await self._function(*arguments)
            else:
                found = await run_in_thread(self._function, *arguments, exchange=exchange)
            return found if isinstance(found, Completion) else rank(found, value)
        except BaseException as error:
            if not is_failure(error):
                raise
            log.error("completion failed", exc_info=as_told(error))
            return Completion(values=[])


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
