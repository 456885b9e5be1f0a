"""Dataclasses as decoded by msgspec, with the defaults that it leaves to the class.

msgspec sets no default that the class has as an attribute, and writes only what an instance has itself: such an
argument would lose its defaults when it is returned, stored or shown by `vars`. Only functions that take
such classes pay for the second look. Never sees JSON.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec import Struct, inspect as types

from mcpd.registry.annotations import written_annotations
from mcpd.registry.msgspec_hooks import parts_of

_LEAVES = frozenset((str, int, float, bool, bytes, type(None)))


def needs_completion(hint: Any) -> bool:
    """Whether a value of a hint that msgspec reads may hold a dataclass with such defaults."""
    if not any(map(_has_fields, _classes(hint))):
        return False
    return any(
        isinstance(found, types.DataclassType) and bool(_defaults(found.cls))
        for found in parts_of(types.type_info(hint), set())
    )


def completed(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A decoder whose values have their defaults."""

    def decode_and_complete(raw: Any) -> Any:
        value = decode(raw)
        complete(value)
        return value

    return decode_and_complete


def complete(value: Any) -> None:
    """Give the dataclasses in a value that was just decoded their defaults; these themselves are left alone."""
    kind = value.__class__
    if kind in _LEAVES:
        return

    if kind is list or kind is tuple or kind is set or kind is frozenset:
        for item in value:
            complete(item)
    elif kind is dict:
        for item in value.values():
            complete(item)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            complete(getattr(value, name))
    elif hasattr(value, "__dataclass_fields__"):
        own = getattr(value, "__dict__", {})
        # Only what was given is looked into: a default may be shared, and stays as it is.
        given = list(own.values())
        for name, default in _defaults(kind):
            own.setdefault(name, default)
        for item in given:
            complete(item)
    elif isinstance(value, tuple):  # a NamedTuple
        for item in value:
            complete(item)


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    if not hasattr(kind, "__dict__") or "__slots__" in vars(kind) or not hasattr(kind, "__dataclass_fields__"):
        return ()
    import dataclasses  # whoever has such a class has loaded it; for all others it costs start-up

    fields = dataclasses.fields(kind)
    return tuple((field.name, field.default) for field in fields if field.default is not dataclasses.MISSING)


def _classes(hint: Any) -> list[Any]:
    parts = typing.get_args(hint)
    return [found for part in parts for found in _classes(part)] if parts else [hint]


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and bool(written_annotations(kind))
