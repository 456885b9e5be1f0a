"""Checks results of tools against the output schemas of the listed tools.

Spec: 2026-07-28 server/tools, output schema: "Clients SHOULD validate structured results against this schema." Requires
jsonschema-rs (`mcpd-server[schema]`). Schemas come from the server, so their cost is limited: `cost_of` refuses schemas
that could take forever, and patterns are matched in linear time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw
from msgspec.json import decode

from mcpd.errors import RegistrationError
from mcpd.protocol.printable import printable
from mcpd.protocol.schemas import target_of
from mcpd.protocol.types.features import CallToolResult, Tool
from .limits import Faults

if TYPE_CHECKING:
    from mcpd.server.functions.json_schema import JsonSchema

# Maximum number of parts of a schema, counting each reference to a part.
_MOST_PARTS = 10_000
_MOST_REFERRED = 300
# Maximum number of parts times values, which takes about a second.
_MOST_WORK = 5_000_000


class OutputSchemas:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.listed: dict[str, Any] = {}
        """The schemas by the names of their tools."""
        self._ready: dict[str, tuple[JsonSchema, int] | None] = {}

    def set_tools(self, tools: Iterable[Tool]) -> None:
        """Replace the schemas, after the tools were listed."""
        self.listed = {tool.name: tool.output_schema for tool in tools if tool.output_schema is not None}
        self._ready = {}

    def problem(self, name: str, result: CallToolResult) -> str | None:
        """Return why a result does not match the output schema; None if it does, or cannot be checked."""
        if name not in self.listed or result.is_error:
            return None
        if name not in self._ready:
            self._ready[name] = self._compile(name)
        ready = self._ready[name]
        if ready is None:
            return None

        found = result.structured_content
        if found is UNSET:
            return "the tool has an outputSchema, but returned no structured content"

        schema, cost = ready
        most = _MOST_WORK // cost
        if sum(1 for _ in islice(_values(found), most)) >= most or not schema.can_check(found):
            return None

        try:
            problems = schema.problems(found, is_flat=True)
        except (ValueError, RecursionError):
            return None  # the value cannot be checked

        problem = f"the result does not match its outputSchema: {printable('; '.join(problems[:3]), 500)}"
        return problem if problems else None

    def _compile(self, name: str) -> tuple[JsonSchema, int] | None:
        if not _can_check():
            return None
        from mcpd.server.functions.json_schema import JsonSchema  # imports an optional library

        given = self.listed[name]
        try:
            schema = decode(given) if isinstance(given, Raw) else given
            cost = cost_of(schema)
            return JsonSchema(schema, "outputSchema", is_ours=False), cost
        except (RegistrationError, ValueError, RecursionError) as error:
            text = "results of the tool %s cannot be checked against its schema: %s"
            self._faults.log(logging.INFO, text, printable(name), printable(error, 300))
            return None


@cache
def _can_check() -> bool:
    from importlib.util import find_spec

    return find_spec("jsonschema_rs") is not None


def cost_of(schema: Mapping[str, Any]) -> int:
    """Return how many parts of a schema may be applied to one value, at most.

    Raises ValueError for a schema that could take forever: too many parts, a part that refers to itself in more than
    one way (the work would double with each level of a value), or references that cannot be resolved statically.
    """
    # Schemas come from the server, which may be hostile: each reference is followed only once.
    parts, sizes = _parts(schema)

    # How many parts apply to one value, for each part that is referred to.
    weights: dict[str, int] = {}
    for at in _order(parts):
        # A reference back is not counted again, because it applies to another value; the check below ensures that.
        weights[at] = sizes[at] + sum(weights.get(to, 0) for to in parts[at])
        if weights[at] > _MOST_PARTS:
            raise ValueError(f"more than {_MOST_PARTS} of its parts apply to one value")

    reached = {at: _reached(parts, at) for at in parts}
    if any(sum(at in reached[one] for one in to) > 1 for at, to in parts.items()):
        raise ValueError("a part of it refers to itself in more than one way")
    return max(weights["#"], 1)


def _parts(schema: Mapping[str, Any]) -> tuple[dict[str, list[str]], dict[str, int]]:
    # Return the references and the size of the whole schema, and of each part that is referred to.
    parts: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    left = ["#"]
    while left:
        at = left.pop()
        if at in parts:
            continue

        part = target_of(at, schema)
        if part is None:
            raise ValueError(f"the reference {at!r} does not exist in this schema")
        nodes = list(_nodes(part, is_whole=at == "#"))
        objects = [node for node in nodes if isinstance(node, dict)]
        parts[at] = [str(node["$ref"]) for node in objects if "$ref" in node]
        sizes[at] = len(nodes)
        if any("$dynamicRef" in node or "$recursiveRef" in node for node in objects):
            raise ValueError("it has dynamic references")

        if len(parts) > _MOST_REFERRED or sum(sizes.values()) > _MOST_PARTS:
            raise ValueError("it has too many parts")
        left.extend(parts[at])
    return parts, sizes


def _order(parts: Mapping[str, list[str]]) -> list[str]:
    # Return the parts, each after the parts that it refers to, except for references back.
    found: list[str] = []
    seen = {"#"}
    left: list[tuple[str, Iterator[str]]] = [("#", iter(parts["#"]))]
    while left:
        at, others = left[-1]

        following = next((one for one in others if one not in seen), None)
        if following is None:
            left.pop()
            found.append(at)
        else:
            seen.add(following)
            left.append((following, iter(parts[following])))
    return found


def _reached(parts: Mapping[str, list[str]], start: str) -> set[str]:
    # Return all parts that a part refers to, directly or not, including itself.
    seen, left = {start}, [start]
    while left:
        following = [to for to in parts[left.pop()] if to not in seen]
        seen.update(following)
        left.extend(following)
    return seen


def _nodes(part: Any, *, is_whole: bool) -> Iterator[Any]:
    # Return everything in a part; for the whole schema, without its definitions.
    if is_whole:
        part = {key: value for key, value in part.items() if key not in ("$defs", "definitions")}

    return _values(part)


def _values(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
