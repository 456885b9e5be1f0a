"""What changed between two JSON schemas, in words, and whether it breaks who relies on the old one.

A narrower schema of arguments refuses calls that worked; a wider one of results gives what callers do not expect. What
is not understood counts as both. References are followed; `anyOf`, `oneOf` and lists of types are ways that a value may
be, compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from msgspec.json import encode

from mcpd.protocol.references import target_of

Found: TypeAlias = tuple[str, bool]
"""What changed, and whether it breaks callers."""

_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_WORDS = ("title", "description", "examples", "deprecated", "$comment", "default")
_READ = frozenset(
    (*_LEAST, *_MOST, *_WORDS, "type", "enum", "const", "properties", "required", "items", "prefixItems", "$defs",
     "definitions", "additionalProperties", "$ref", "$schema", "$id", "anyOf", "oneOf")
)  # fmt: skip
_NO_PART = ("$ref", "$defs", "definitions", "$schema", "$id")
_MOST_SHOWN = 60
_MOST_STEPS = 20_000

_NARROWER, _WIDER, _BOTH, _NEITHER = "narrower", "wider", "both", "neither"


def compare_schemas(old: Any, new: Any, *, is_input: bool) -> list[Found]:
    """All that changed, in the order of the new schema. `is_input` for arguments, else it is that of results."""
    if old == new:
        return []
    try:
        found = dict(_Comparison(old, new, is_input).compare(old, new, ""))
    except (TypeError, AttributeError, LookupError, ValueError, RecursionError):
        # A file may have been written by hand, and a schema with few references can mean millions of them.
        subject = "the arguments" if is_input else "the result"
        return [(f"the schema of {subject} is another one now, and one of the two cannot be followed", True)]
    return list(found.items())


def shown(value: Any) -> str:
    """A JSON value, as much of it as is read in passing."""
    text = encode(value).decode()
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


class _Comparison:
    """Two schemas with what their references mean."""

    def __init__(self, old_root: Any, new_root: Any, is_input: bool) -> None:
        self._old_root = old_root
        self._new_root = new_root
        self._is_input = is_input
        self._open: set[tuple[int, int]] = set()
        """Pairs that are being compared: a schema may hold itself."""
        self._steps = 0

    def compare(self, old: Any, new: Any, place: str) -> Iterator[Found]:
        """All that changed at a place, such as `days[].high`."""
        written = id(old), id(new)
        old, new = _resolved(old, self._old_root), _resolved(new, self._new_root)
        # As they are written too: what stands beside a reference makes another schema of it each time.
        here = {written, (id(old), id(new))}
        if here & self._open:
            return
        self._open |= here
        self._step()

        yield from self._words(old, new, place)
        olds, news = self._ways(old, self._old_root), self._ways(new, self._new_root)
        pairs = _pairs(olds, news)
        gone = [way for way in olds if not any(way is one for one, _ in pairs)]
        come = [way for way in news if not any(way is one for _, one in pairs)]
        yield from self._exchanged(gone, come, place)
        for one, other in pairs:
            yield from self._same_kind(one, other, place)
        self._open -= here

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise ValueError("too many parts")

    def _ways(self, schema: dict[str, Any], root: Any) -> list[dict[str, Any]]:
        """The ways that a value may be, each a schema of one type."""
        self._step()
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list):
                # What stands beside the alternatives holds for each; a member of their own goes before.
                rest = {key: value for key, value in schema.items() if key != word and key not in _WORDS}
                ways = [way for one in schema[word] for way in self._ways(_resolved(one, root), root)]
                return [{**rest, **way} if rest else way for way in ways]
        if isinstance(schema.get("type"), list):
            return [{**schema, "type": kind} for kind in schema["type"]]
        return [schema]

    def _found(self, text: str, change: str) -> Found:
        return text, change == _BOTH or change == (_NARROWER if self._is_input else _WIDER)

    def _subject(self, place: str) -> str:
        if self._is_input:
            return f"argument {place}" if place else "the arguments"
        return f"result {place}" if place else "the result"

    def _words(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        """What is said of a value, and refuses none."""
        subject = self._subject(place)
        for word in _WORDS:
            before, now = old.get(word, ...), new.get(word, ...)
            if before == now:
                continue
            if word == "default":
                text = "is gone" if now is ... else f"is {shown(now)} now"
                yield self._found(f"the default of {subject} {text}", _NEITHER)
            elif place or word != "title":  # that of the root is the name of a Python function or class
                yield self._found(f"the {word.removeprefix('$')} of {subject} changed", _NEITHER)

    def _exchanged(self, gone: list[dict[str, Any]], come: list[dict[str, Any]], place: str) -> Iterator[Found]:
        """Ways that a value may be which only one of the schemas has."""
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
        for way in gone:
            yield self._found(f"{subject} may no longer be {_kind(way)}", _NARROWER)
        for way in come:
            yield self._found(f"{subject} may be {_kind(way)} too", _WIDER)

    def _same_kind(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        yield from self._values(old, new, place)
        yield from self._limits(old, new, place)
        yield from self._members(old, new, place)
        yield from self._others(old, new, place)
        yield from self._items(old, new, place)

    def _values(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        """`enum` and `const`."""
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
        for word in sorted((old.keys() | new.keys()) - _READ) + [*_LEAST, *_MOST]:
            before, now = old.get(word), new.get(word)
            if before == now:
                continue
            change = _BOTH
            if before is None:
                change = _NARROWER
            elif now is None:
                change = _WIDER
            elif word in (*_LEAST, *_MOST):
                change = _NARROWER if (now > before) == (word in _LEAST) else _WIDER
            said = "is gone" if now is None else f"is {shown(now)} now"
            was = "" if before is None else f"was {shown(before)}, "
            yield self._found(f"{word} of {self._subject(place)} {was}{said}", change)

    def _members(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        """`properties` and `required`."""
        before, now = old.get("properties") or {}, new.get("properties") or {}
        were_required, are_required = set(old.get("required", ())), set(new.get("required", ()))
        for name in before:
            if name not in now:
                yield f"{self._subject(_at(place, name))} is gone", True
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

    def _others(self, old: dict[str, Any], new: dict[str, Any], place: str) -> Iterator[Found]:
        """`additionalProperties`."""
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
    """A schema with what its references say; `true` is any value, `false` none."""
    seen: set[str] = set()
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str) and schema["$ref"] not in seen:
        seen.add(schema["$ref"])
        target = target_of(schema["$ref"], root)
        rest = {key: value for key, value in schema.items() if key not in _NO_PART}
        schema = target if not rest else {**(target if isinstance(target, dict) else {}), **rest}
    if isinstance(schema, dict):
        return schema
    return {"not": {}} if schema is False else {}


def _pairs(olds: list[dict[str, Any]], news: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The ways that are the same kind of thing: by type and title, then by type alone, in their order."""
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    left, right = list(olds), list(news)
    for key in (lambda way: (_kind(way), way.get("title")), _kind):
        for one in list(left):
            other = next((way for way in right if key(way) == key(one)), None)
            if other is not None:
                pairs.append((one, other))
                left.remove(one)
                right.remove(other)
    return pairs


def _kind(way: dict[str, Any]) -> str:
    """The type of a value, as far as it is said."""
    kind = way.get("type")
    if isinstance(kind, str):
        return kind
    values = _choices(way)
    if values and all(isinstance(value, str) for value in values):
        return "string"
    if "properties" in way:
        return "object"
    return "array" if "items" in way else "anything"


def _choices(way: dict[str, Any]) -> list[Any] | None:
    if "const" in way:
        return [way["const"]]
    values = way.get("enum")
    return values if isinstance(values, list) else None
