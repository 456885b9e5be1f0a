"""What hosts, frameworks and model vendors accept, of what the specification allows: for `mcpd check` and `mcpd
doctor`.

Each rule has broken servers in some host. One schema that a vendor refuses often makes it refuse the whole request, so
that no tool of any server works. Reads what a server lists; nothing is run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mcpd.protocol.schemas import Schema, children, is_local, target_of
from .entries import Problem

_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_COMBINED = ("oneOf", "anyOf", "allOf")
_UNKNOWN_TO_GEMINI = (
    "not", "if", "then", "else", "patternProperties", "dependentSchemas", "dependentRequired", "propertyNames",
    "unevaluatedProperties", "unevaluatedItems", "contains", "$dynamicRef",
)  # fmt: skip
_DEEPEST = 100
_MOST_NAMED = 3


def input_schema_problems(where: str, schema: Any) -> Iterator[Problem]:
    """Yield the problems of a tool's input schema, which is unchecked JSON."""
    if not isinstance(schema, dict):
        remedy = 'for a tool without arguments use {"type": "object"}'
        yield Problem(where, f"no inputSchema: clients drop the tool, or the whole list; {remedy}")
        return
    if schema.get("type") != "object":
        yield Problem(where, 'its inputSchema is not of "type": "object": clients drop the tool, or the whole list')
    combined = [keyword for keyword in _COMBINED if keyword in schema]
    if combined:
        text = f"its inputSchema has {combined[0]} at the top: Claude's and OpenAI's models refuse it"
        yield warning(where, f"{text}; use one object whose differing members are optional")

    examination = _Examination(schema)
    examination.examine(schema, 0)
    yield from examination.problems(where)


# By kind of finding: the text, with the names or places that were found.
_FINDINGS = {
    "lost": "its inputSchema refers to {}, which does not exist",
    "undescribed": "its inputSchema requires {}, but does not describe it: models cannot know its meaning",
    "names": "its arguments {}: Claude's models refuse all tools if one has such a name; "
    "use 1 to 64 letters, digits, '_', '-' and '.'",
    "lists": "its inputSchema has a list without items {}: OpenAI's and Gemini's models refuse it; describe its items",
    "enums": "its inputSchema has an enum with values that are not strings {}: Gemini's models refuse it; use strings",
    "recursive": "its inputSchema refers to itself: Gemini's models and some hosts refuse it; "
    "write it out to a fixed depth",
    "outside": "its inputSchema refers to {}, which no host fetches; include it in the schema",
    "keywords": "its inputSchema has {}, which Gemini's models do not support: some hosts drop such tools; "
    "check it in the function instead",
}


class _Examination:
    # The findings in one schema, each kind once.
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._found: dict[str, dict[str, None]] = {kind: {} for kind in _FINDINGS}
        self._seen: set[str] = set()

    def examine(self, schema: Schema, depth: int, name: str = "", within: tuple[str, ...] = ()) -> None:
        # Examine a schema and its subschemas. `name` is the property's name, `within` are the references that led
        # here.
        if depth > _DEEPEST:
            return
        self._examine_one(schema, name)
        reference = schema.get("$ref")
        if isinstance(reference, str):
            self._follow(reference, depth, within)

        for keyword, key, child in children(schema):
            self.examine(child, depth + 1, key if keyword == "properties" else name, within)

    def _add(self, kind: str, names: Iterable[str]) -> None:
        self._found[kind].update(dict.fromkeys(names))

    def _examine_one(self, schema: Schema, name: str) -> None:
        properties = schema.get("properties")
        if isinstance(properties, dict):
            self._add("names", (key for key in properties if not _PROPERTY.fullmatch(key)))
            required = schema.get("required")
            if isinstance(required, list) and "additionalProperties" not in schema and "$ref" not in schema:
                self._add("undescribed", (str(key) for key in required if key not in properties))

        self._add("keywords", (keyword for keyword in _UNKNOWN_TO_GEMINI if keyword in schema))
        if schema.get("type") == "array" and "items" not in schema and "prefixItems" not in schema:
            self._add("lists", [name])
        values = schema.get("enum")
        if isinstance(values, list) and any(not isinstance(value, str) for value in values if value is not None):
            self._add("enums", [name])

    def _follow(self, reference: str, depth: int, within: tuple[str, ...]) -> None:
        # An anchor is assumed to exist.
        target = target_of(reference, self._root) if is_local(reference) else self._root
        if not reference.startswith("#"):
            self._add("outside", [reference])
        elif target is None:
            self._add("lost", [reference])
        elif reference in ("#", *within):
            self._add("recursive", [reference])
        elif reference not in self._seen and isinstance(target, dict):
            self._seen.add(reference)
            self.examine(target, depth + 1, "", (*within, reference))

    def problems(self, where: str) -> Iterator[Problem]:
        for kind, text in _FINDINGS.items():
            names = self._found[kind]
            if names:
                shown = _at(names) if kind in ("lists", "enums") else _named(names)
                yield Problem(where, text.format(shown), is_error=kind == "lost")


def _named(names: dict[str, None]) -> str:
    shown = ", ".join(repr(name) if not name.isidentifier() else name for name in list(names)[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"


def _at(names: dict[str, None]) -> str:
    named = {name: None for name in names if name}
    return f"in {_named(named)}" if named else "at its top"


def warning(where: str, text: str) -> Problem:
    """Return a problem that is worth fixing, but fails for no client."""
    return Problem(where, text, is_error=False)


# The number of tools that Windsurf accepts, of all servers together.
MOST_TOOLS_ANYWHERE = 100

# The number of tools that VS Code and OpenAI's models accept in one request.
_MOST_TOOLS = 128

# Claude Code cuts longer descriptions of tools and instructions.
_MOST_TEXT_BYTES = 2048

# Codex may show only this part of the instructions.
_ALONE_CHARACTERS = 512

# About 25,000 tokens, an eighth of the context of many models.
_MOST_LIST_BYTES = 100_000

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def tool_problems(tool: Mapping[str, Any], *, any_output: bool) -> Iterator[Problem]:
    """Yield the problems of a listed tool. `any_output` is for versions whose results need not be objects."""
    name = tool.get("name")
    where = f"tool {name}"
    yield from name_problems(where, str(name))
    yield from description_problems(where, tool.get("description"))
    yield from input_schema_problems(where, tool.get("inputSchema"))
    schema = tool.get("outputSchema")
    # Versions up to 2025-11-25 know only objects as structured content.
    if schema is not None and not any_output and (not isinstance(schema, dict) or schema.get("type") != "object"):
        yield Problem(where, 'its outputSchema is not of "type": "object": many clients drop the whole list of tools')


def name_problems(where: str, name: str) -> Iterator[Problem]:
    """Yield the problems of a tool's name."""
    if not _NAME.fullmatch(name):
        yield warning(where, "its name: some hosts accept only 1 to 64 letters, digits, '_' and '-'")


def description_problems(where: str, description: str | None) -> Iterator[Problem]:
    """Yield the problems of a tool's description."""
    if not (description or "").strip():
        yield warning(where, "no description: models choose tools by it; write a docstring")
    elif len((description or "").encode("utf-8", "replace")) > _MOST_TEXT_BYTES:
        yield warning(where, f"its description: Claude Code cuts it after {_MOST_TEXT_BYTES:,} bytes; shorten it")


def list_problems(tools: Sequence[str], size: int = 0) -> Iterator[Problem]:
    """Yield the problems of a list of tools: duplicate names, its length, and its size in bytes of JSON."""
    for name, times in Counter(tools).items():
        if times > 1:
            yield Problem(f"tool {name}", f"listed {times} times: hosts keep one of them, or none; use unique names")
    if len(tools) > MOST_TOOLS_ANYWHERE:
        text = f"{len(tools)} tools: Windsurf accepts at most {MOST_TOOLS_ANYWHERE}, including tools of other servers,"
        yield warning("tools", f"{text} VS Code and OpenAI's models at most {_MOST_TOOLS}; offer fewer")
    if size > _MOST_LIST_BYTES:
        text = f"their list has {size:,} bytes, about {size // 4000 * 1000:,} tokens of a model's context"
        yield warning("tools", f"{text}: some hosts search it instead of showing it; shorten descriptions and schemas")


def instructions_problems(instructions: str | None) -> Iterator[Problem]:
    """Yield the problems of a server's instructions."""
    text = instructions or ""
    if len(text.encode("utf-8", "replace")) > _MOST_TEXT_BYTES:
        yield warning("instructions", f"Claude Code cuts them after {_MOST_TEXT_BYTES:,} bytes; shorten them")
    elif len(text) > _ALONE_CHARACTERS:
        finding = f"{len(text)} characters: in Codex the first {_ALONE_CHARACTERS} must make sense alone"
        yield warning("instructions", f"{finding}; put the most important part there")


def resource_problems(resource: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems of a listed resource."""
    uri = resource.get("uri")
    if not isinstance(uri, str) or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
        yield Problem(f"resource {uri}", "its URI has no scheme: clients drop it; use for example file:///notes.txt")
