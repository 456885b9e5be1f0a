"""Arguments for a tool that nobody gave any for, from its schema: defaults, examples, else something sensible.

They are made to be taken by the tool, not to mean much. Spec: JSON Schema 2020-12, what of it tools use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcpd.protocol.references import target_of

_MOST_DEEP: Final = 8
_FORMATS: Final = {
    "date": "2026-03-01",
    "date-time": "2026-03-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "color": "#336699",
}
# What is asked for under these names, or names that end so, if the schema says no more than that it is a text.
_NAMES: Final = {
    "city": "Oslo",
    "location": "Oslo",
    "place": "Oslo",
    "country": "Norway",
    "date": "2026-03-01",
    "time": "12:00",
    "url": "https://example.com/",
    "uri": "https://example.com/",
    "link": "https://example.com/",
    "email": "ada@example.com",
    "expression": "1 + 1",
    "code": "1 + 1",
    "color": "#336699",
    "colour": "#336699",
    "language": "en",
    "locale": "en-GB",
    "timezone": "UTC",
    "currency": "EUR",
    "symbol": "ACME",
    "ticker": "ACME",
    "latitude": 59.91,
    "lat": 59.91,
    "longitude": 10.75,
    "lon": 10.75,
    "lng": 10.75,
    "year": 2026,
    "month": 3,
    "day": 1,
}


def make_arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that fit the schema of a tool: what it requires, and what it has defaults or examples for."""
    made = _Maker(schema).value(schema, "", 0)
    return made if isinstance(made, dict) else {}


class _Maker:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def value(self, schema: object, name: str, depth: int) -> Any:
        """A value for one place; None where nothing sensible is to be had."""
        if depth > _MOST_DEEP:
            return None
        schema = self._whole(schema, depth)
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
            whole = self._whole(inner, depth)
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

    def _whole(self, schema: object, depth: int) -> Mapping[str, Any]:
        """A schema with what it refers to, the first of its alternatives that is not null, and all parts in one."""
        for _ in range(_MOST_DEEP):
            if not isinstance(schema, Mapping):
                return {}
            made = dict(schema)
            if isinstance(reference := made.pop("$ref", None), str):
                schema = {**self._found(reference), **made}
                continue
            alternatives = made.pop("anyOf", None) or made.pop("oneOf", None)
            if isinstance(alternatives, Sequence) and alternatives and _given(made) is None:
                chosen = next((one for one in alternatives if not _is_null(one)), alternatives[0])
                schema = {**made, **(chosen if isinstance(chosen, Mapping) else {})}
                continue
            if isinstance(parts := made.pop("allOf", None), Sequence) and depth <= _MOST_DEEP:
                schema = self._joined(made, parts, depth)
                continue
            return made
        return {}

    def _joined(self, schema: Mapping[str, Any], parts: Sequence[object], depth: int) -> Mapping[str, Any]:
        made = dict(schema)
        for part in parts:
            inner = self._whole(part, depth + 1)
            properties = {**inner.get("properties", {}), **made.get("properties", {})}
            required = [*inner.get("required", []), *made.get("required", [])]
            made = {**inner, **made, **({"properties": properties, "required": required} if properties else {})}
        return made

    def _found(self, reference: str) -> Mapping[str, Any]:
        """What a reference within the schema names."""
        found = target_of(reference, self._root)
        return found if isinstance(found, Mapping) else {}


def _given(schema: Mapping[str, Any]) -> tuple[Any] | None:
    """The value that a schema gives itself: the only one there is, the default, an example, the first of several."""
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
    lowered = name.lower()
    if lowered in _NAMES:
        return _NAMES[lowered]
    return next((value for known, value in _NAMES.items() if len(known) > 3 and lowered.endswith(known)), None)


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
    text = _FORMATS.get(str(schema.get("format"))) or (wanted if isinstance(wanted, str) else "example")
    shortest, longest = schema.get("minLength"), schema.get("maxLength")
    if isinstance(shortest, int) and len(text) < shortest <= 100_000:
        text = (text * (shortest // len(text) + 1))[:shortest]
    return text[:longest] if isinstance(longest, int) else text
