"""The tool call that opens an app: chooses the tool, makes up arguments from its schema, and checks the result.

The arguments are made so that the tool accepts them; they need not make sense. Spec: JSON Schema 2020-12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import Raw, Struct
from msgspec.json import decode

from mcpd.apps.host.host import Host
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.tool_metadata import is_for_model
from mcpd.errors import McpdError, RemoteError
from mcpd.protocol.schemas import target_of
from mcpd.protocol.types.features import CallToolResult, Tool
from .browser import read_asset
from .metadata import App
from .report import Check, Finding, checked, failure, skipped, warning

_MAX_DEPTH: Final = 8


class _Examples(Struct):
    """Values by the format of a schema, and by names of properties or their ends if the schema has no format."""

    formats: dict[str, str]
    names: dict[str, Any]


@cache
def _examples() -> _Examples:
    return decode(read_asset("examples.json"), type=_Examples)


def make_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that fit the schema of a tool: all required ones, and those with a default or an example."""
    value = _Generator(schema).value(schema, "", 0)
    return value if isinstance(value, dict) else {}


class _Generator:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def value(self, schema: object, name: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            return None
        schema = self._resolved(schema, depth)
        if (given := _given(schema)) is not None:
            return given[0]
        kinds = schema.get("type")
        kind = next((k for k in kinds if k != "null"), "null") if isinstance(kinds, list) else kinds
        if kind == "object" or "properties" in schema:
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, name, depth)
        if kind in ("integer", "number"):
            return _number(schema, name, is_integer=kind == "integer")
        if kind == "boolean":
            return False
        return _text(schema, name) if kind in ("string", None) else None

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        required = schema.get("required")
        wanted = set(required) if isinstance(required, list) else set()
        properties = schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, Mapping) else ():
            whole = self._resolved(inner, depth)
            given = _given(whole)
            if name in wanted:
                made[name] = self.value(whole, name, depth + 1)
            elif given is not None and given[0] is not None:
                made[name] = given[0]

        return made

    def _array(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        count = schema.get("minItems")
        count = min(count, 20) if isinstance(count, int) else 1
        return [self.value(schema.get("items", {}), name.removesuffix("s"), depth + 1) for _ in range(count)]

    def _resolved(self, schema: object, depth: int) -> Mapping[str, Any]:
        # Return a schema with its reference, its first alternative other than null, and its parts merged into it.
        for _ in range(_MAX_DEPTH):
            if not isinstance(schema, Mapping):
                return {}
            made = dict(schema)
            if isinstance(reference := made.pop("$ref", None), str):
                found = target_of(reference, self._root)
                schema = {**(found if isinstance(found, Mapping) else {}), **made}
                continue

            alternatives = made.pop("anyOf", None) or made.pop("oneOf", None)
            if isinstance(alternatives, Sequence) and alternatives and _given(made) is None:
                chosen = next((one for one in alternatives if not _is_null(one)), alternatives[0])
                schema = {**made, **(chosen if isinstance(chosen, Mapping) else {})}
                continue

            if isinstance(parts := made.pop("allOf", None), Sequence) and depth <= _MAX_DEPTH:
                schema = self._joined(made, parts, depth)
                continue
            return made
        return {}

    def _joined(self, schema: Mapping[str, Any], parts: Sequence[object], depth: int) -> Mapping[str, Any]:
        made = dict(schema)
        for part in parts:
            inner = self._resolved(part, depth + 1)
            properties = {**inner.get("properties", {}), **made.get("properties", {})}
            required = [*inner.get("required", []), *made.get("required", [])]
            made = {**inner, **made, **({"properties": properties, "required": required} if properties else {})}
        return made


def _given(schema: Mapping[str, Any]) -> tuple[Any] | None:
    # Return the value that a schema states itself: constant, default, first example, or first of an enumeration.
    if "const" in schema:
        return (schema["const"],)
    if schema.get("default") is not None:
        return (schema["default"],)
    for name in ("examples", "enum"):
        values = schema.get(name)
        if isinstance(values, list) and values:
            return (values[0],)

    return None


def _is_null(schema: object) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _by_name(name: str) -> Any:
    lowered, names = name.lower(), _examples().names
    if lowered in names:
        return names[lowered]
    return next((value for known, value in names.items() if len(known) > 3 and lowered.endswith(known)), None)


def _number(schema: Mapping[str, Any], name: str, *, is_integer: bool) -> float:
    low = _bound(schema, "minimum", "exclusiveMinimum", 1)
    high = _bound(schema, "maximum", "exclusiveMaximum", -1)
    step = schema.get("multipleOf")
    step = step if isinstance(step, (int, float)) and step > 0 else 1

    wanted = _by_name(name)
    value: float = wanted if isinstance(wanted, (int, float)) else step
    if low is not None and value < low:
        value = low if low % step == 0 else (low // step + 1) * step
    if high is not None and value > high:
        value = high - high % step
    return int(value) if is_integer else value


def _bound(schema: Mapping[str, Any], name: str, exclusive: str, inward: int) -> float | None:
    if isinstance(value := schema.get(name), (int, float)):
        return value
    return value + inward if isinstance(value := schema.get(exclusive), (int, float)) else None


def _text(schema: Mapping[str, Any], name: str) -> str:
    wanted = _by_name(name)
    text = _examples().formats.get(str(schema.get("format"))) or (wanted if isinstance(wanted, str) else "example")
    shortest, longest = schema.get("minLength"), schema.get("maxLength")
    if isinstance(shortest, int) and len(text) < shortest <= 100_000:
        text = (text * (shortest // len(text) + 1))[:shortest]
    return text[:longest] if isinstance(longest, int) else text


_CALL = ("call", "Its tool can be called")
_FALLBACK = ("text-fallback", "Hosts without Apps receive a text")


class CalledTool(NamedTuple):
    call: ToolCall | None
    """None if no tool was called."""
    arguments: dict[str, Any]
    checks: list[Check]


async def call_app_tool(host: Host, app: App, given: Mapping[str, Mapping[str, Any]]) -> CalledTool:
    # A tool that declares itself destructive is called only with arguments that the user gave.
    tool, why = _choose_tool(app, given)
    if tool is None:
        return CalledTool(None, {}, [skipped(*_CALL, why), skipped(*_FALLBACK, why, ["APP-S-06"])])

    is_generated = tool.name not in given
    arguments = make_arguments(_schema(tool)) if is_generated else dict(given[tool.name])
    call = host.begin_call(tool.name)
    try:
        result = await call.run(arguments)
    except McpdError as error:
        finding = _error_finding(tool, error, is_generated)
        return CalledTool(call, arguments, [
            checked(*_CALL, [finding], ""),
            skipped(*_FALLBACK, "the call failed", ["APP-S-06"]),
        ])  # fmt: skip

    ok = f"{tool.name} {'with arguments made from its schema' if is_generated and arguments else 'was called'}"
    return CalledTool(call, arguments, [
        checked(*_CALL, _result_findings(tool, result, is_generated), ok),
        checked(*_FALLBACK, _fallback_findings(tool, result), "the result has content for the model", ["APP-S-06"]),
    ])  # fmt: skip


def _choose_tool(app: App, given: Mapping[str, Mapping[str, Any]]) -> tuple[Tool | None, str]:
    # Return the tool to call, or None and the reason.
    tools = [tool for tool in app.tools if is_for_model(tool)]
    if not tools:
        return None, "only an app may call its tools" if app.tools else "no tool opens it"
    for tool in tools:
        if tool.name in given:
            return tool, ""
    for tool in tools:
        if tool.annotations is None or not tool.annotations.destructive_hint:
            return tool, ""

    return None, f"{tools[0].name} is declared destructive: to call it, add --call '{tools[0].name}={{…}}'"


def _schema(tool: Tool) -> Mapping[str, Any]:
    return decode(tool.input_schema, type=dict[str, Any]) if isinstance(tool.input_schema, Raw) else tool.input_schema


def _error_finding(tool: Tool, error: McpdError, is_generated: bool) -> Finding:
    text = error.message if isinstance(error, RemoteError) else str(error)
    if is_generated:
        return warning(f"{tool.name} did not accept arguments made from its schema: {text}", _advice(tool))
    return failure(f"{tool.name} gave an error: {text}", "correct the tool, or give other arguments by --call")


def _result_findings(tool: Tool, result: CallToolResult, is_generated: bool) -> Iterator[Finding]:
    if result.is_error:
        content = " ".join(str(getattr(block, "text", "")) for block in result.content)[:300]
        yield warning(f"{tool.name} failed: {content}", _advice(tool) if is_generated else "give other arguments")


def _advice(tool: Tool) -> str:
    return f"give valid arguments by --call '{tool.name}={{…}}'"


def _fallback_findings(tool: Tool, result: CallToolResult) -> Iterator[Finding]:
    blocks = list(result.content)
    if not blocks:
        advice = "return a text with the same content: hosts without Apps show it, and the model reads it"
        yield failure(f"{tool.name} returns no content", advice, "APP-S-06")
    elif all(getattr(block, "text", None) == "" for block in blocks):
        text = f"the only content of {tool.name} is an empty text"
        yield failure(text, "describe in words what the app shows", "APP-S-06")
