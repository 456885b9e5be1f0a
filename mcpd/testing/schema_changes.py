"""Describes the changes between two JSON schemas in words, and says which of them break callers.

A narrower schema of arguments rejects calls that worked before. A wider schema of results allows values that callers do
not expect. Keywords that are not understood count as both. References are followed; `anyOf`, `oneOf` and lists of types
are alternatives, which are compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec.json import encode

from mcpd.protocol.schemas import target_of

# The text of a change, and whether it breaks callers.
Found: TypeAlias = tuple[str, bool]

_MINIMA = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MAXIMA = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_ANNOTATIONS = ("title", "description", "examples", "deprecated", "$comment", "default")
_READ = frozenset(
    (*_MINIMA, *_MAXIMA, *_ANNOTATIONS, "type", "enum", "const", "properties", "required", "items", "prefixItems",
     "$defs", "definitions", "additionalProperties", "$ref", "$schema", "$id", "anyOf", "oneOf")
)  # fmt: skip
_NO_PART = ("$ref", "$defs", "definitions", "$schema", "$id")
_MOST_SHOWN = 60
_MOST_STEPS = 20_000

_NARROWER, _WIDER, _BOTH, _NEITHER = "narrower", "wider", "both", "neither"


def compare_schemas(old: Any, new: Any, *, is_input: bool) -> list[Found]:
    """All changes, in the order of the new schema. `is_input` is true for arguments, false for results."""
    if old == new:
        return []
    try:
        found = dict(_Comparison(old, new, is_input).compare(old, new, ""))
    except (TypeError, AttributeError, LookupError, ValueError, RecursionError):
        # A file may be written by hand, and a few references can expand to millions of schemas.
        subject = "the arguments" if is_input else "the result"
        return [(f"the schema of {subject} changed, and one of the two is too complex to compare", True)]
    return list(found.items())


def shown(value: Any) -> str:
    """The beginning of a JSON value."""
    text = encode(value).decode()
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


class _Comparison:
    """The comparison of two schemas, each with the document of its references."""

    def __init__(self, old_root: Any, new_root: Any, is_input: bool) -> None:
        self._old_root = old_root
        self._new_root = new_root
        self._is_input = is_input
        # Pairs that are being compared: a schema may contain itself.
        self._open: set[tuple[int, int]] = set()
        self._steps = 0

    def compare(self, old: Any, new: Any, place: str) -> Iterator[Found]:
        written = id(old), id(new)
        old, new = _resolved(old, self._old_root), _resolved(new, self._new_root)
        # Also compare the schemas before resolving: keywords beside a reference make a new schema each time.
        here = {written, (id(old), id(new))}
        if here & self._open:
            return
        self._open |= here
        self._step()

        yield from self._annotations(old, new, place)
        olds, news = self._alternatives(old, self._old_root), self._alternatives(new, self._new_root)
        pairs = _pairs(olds, news)
        gone = [each for each in olds if not any(each is one for one, _ in pairs)]
        come = [each for each in news if not any(each is one for _, one in pairs)]
        yield from self._exchanged(gone, come, place)

        for one, other in pairs:
            for compare in (self._values, self._limits, self._members, self._additional, self._items):
                yield from compare(one, other, place)
        self._open -= here

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise ValueError("too many parts")

    def _alternatives(self, schema: dict[str, Any], root: Any) -> list[dict[str, Any]]:
        self._step()
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list):
                # Keywords beside the alternatives apply to each; a keyword of the alternative takes precedence.
                rest = {key: value for key, value in schema.items() if key != word and key not in _ANNOTATIONS}
                found = [each for one in schema[word] for each in self._alternatives(_resolved(one, root), root)]
                return [{**rest, **each} if rest else each for each in found]

        if isinstance(schema.get("type"), list):
            return [{**schema, "type": kind} for kind in schema["type"]]
        return [schema]

    def _found(self, text: str, change: str) -> Found:
        return text, change == _BOTH or change == (_NARROWER if self._is_input else _WIDER)

    def _subject(self, place: str) -> str:
        if self._is_input:
            return f"argument {place}" if place else "the arguments"
        return f"result {place}" if place else "the result"

    def _annotations(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        subject = self._subject(place)
        for word in _ANNOTATIONS:
            before, now = old.get(word, ...), new.get(word, ...)
            if before == now:
                continue
            if word == "default":
                text = "was removed" if now is ... else f"is {shown(now)} now"
                yield self._found(f"the default of {subject} {text}", _NEITHER)
            elif place or word != "title":  # the title of the root is the name of a Python function or class
                yield self._found(f"the {word.removeprefix('$')} of {subject} changed", _NEITHER)

    def _exchanged(self, gone: list[dict[str, Any]], come: list[dict[str, Any]], place: str) -> Iterator[Found]:
        # These are alternatives that only one of the two schemas has.
        subject = self._subject(place)
        if len(gone) == len(come) == 1:
            before, now = _kind(gone[0]), _kind(come[0])
            change = _BOTH
            if (before, now) == ("integer", "number") or now == "anything":
                change = _WIDER
            elif (before, now) == ("number", "integer") or before == "anything":
                change = _NARROWER
            yield self._found(f"{subject} was {before}, is {now} now", change)
            return

        for schema in gone:
            yield self._found(f"{subject} may no longer be {_kind(schema)}", _NARROWER)
        for schema in come:
            yield self._found(f"{subject} may be {_kind(schema)} too", _WIDER)

    def _values(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        before, now, subject = _choices(old), _choices(new), self._subject(place)
        if before is None and now is not None:
            yield self._found(f"{subject} may only be {', '.join(map(shown, now))} now", _NARROWER)
        elif now is None and before is not None:
            yield self._found(f"{subject} may be any {_kind(new)} now", _WIDER)
        elif before is not None and now is not None:
            for value in (one for one in before if one not in now):
                yield self._found(f"{subject} may no longer be {shown(value)}", _NARROWER)
            for value in (one for one in now if one not in before):
                yield self._found(f"{subject} may be {shown(value)} too", _WIDER)

    def _limits(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        for word in sorted((old.keys() | new.keys()) - _READ) + [*_MINIMA, *_MAXIMA]:
            before, now = old.get(word), new.get(word)
            if before == now:
                continue
            change = _BOTH
            if before is None:
                change = _NARROWER
            elif now is None:
                change = _WIDER
            elif word in (*_MINIMA, *_MAXIMA):
                change = _NARROWER if (now > before) == (word in _MINIMA) else _WIDER

            value = "was removed" if now is None else f"is {shown(now)} now"
            was = "" if before is None else f"was {shown(before)}, "
            yield self._found(f"{word} of {self._subject(place)} {was}{value}", change)

    def _members(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        before, now = old.get("properties") or {}, new.get("properties") or {}
        were_required, are_required = set(old.get("required", ())), set(new.get("required", ()))
        for name in before:
            if name not in now:
                yield f"{self._subject(_at(place, name))} was removed", True
        for name, member in now.items():
            there = _at(place, name)
            subject = self._subject(there)
            if name not in before:
                is_breaking = self._is_input and name in are_required
                yield f"{subject} is new{' and required' if is_breaking else ''}", is_breaking
                continue

            if name in are_required - were_required:
                text = "is now required" if self._is_input else "is always there now"
                yield self._found(f"{subject} {text}", _NARROWER)
            elif name in were_required - are_required:
                text = "is no longer required" if self._is_input else "may be missing now"
                yield self._found(f"{subject} {text}", _WIDER)
            yield from self.compare(before[name], member, there)

    def _additional(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        before, now = old.get("additionalProperties", True), new.get("additionalProperties", True)
        if before == now and not isinstance(now, dict):
            return
        if before is False:
            yield self._found(f"{self._subject(place)} may have other members too", _WIDER)
        elif now is False:
            yield self._found(f"{self._subject(place)} may have no other members now", _NARROWER)
        else:
            yield from self.compare(before, now, _at(place, "*"))

    def _items(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        if "items" in old or "items" in new:
            yield from self.compare(old.get("items", True), new.get("items", True), f"{place}[]")

        before, now = old.get("prefixItems", []), new.get("prefixItems", [])
        if len(before) != len(now):
            yield self._found(f"{self._subject(place)} had {len(before)} places, has {len(now)} now", _BOTH)
        for number, (one, other) in enumerate(zip(before, now, strict=False)):
            yield from self.compare(one, other, f"{place}[{number}]")


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _resolved(schema: Any, root: Any) -> dict[str, Any]:
    # A schema with its references resolved; `true` allows any value, `false` allows none.
    seen: set[str] = set()
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and schema["$ref"] not in seen:
        seen.add(schema["$ref"])
        target = target_of(schema["$ref"], root)
        rest = {key: value for key, value in schema.items() if key not in _NO_PART}
        schema = target if not rest else {**(target if isinstance(target, dict) else {}), **rest}
    return schema if isinstance(schema, dict) else {"not": {}} if schema is False else {}


def _pairs(olds: list[dict[str, Any]], news: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    # Alternatives of the same kind are compared: by type and title, then by type alone, in their order.
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    left, right = list(olds), list(news)
    for key in (lambda schema: (_kind(schema), schema.get("title")), _kind):
        for one in list(left):
            other = next((each for each in right if key(each) == key(one)), None)
            if other is not None:
                pairs.append((one, other))
                left.remove(one)
                right.remove(other)
    return pairs


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, str):
        return kind
    if (values := _choices(schema)) and all(isinstance(value, str) for value in values):
        return "string"
    return "object" if "properties" in schema else "array" if "items" in schema else "anything"


def _choices(schema: dict[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None
