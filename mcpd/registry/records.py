"""Plain classes with annotated attributes, as the official SDK takes them for results: records of these attributes.

Only for what goes out; arguments are dataclasses and the like, which say how they are made.
"""

from __future__ import annotations

import typing
from functools import cache
from typing import Any, ClassVar

from mcpd.registry.annotations import written_annotations


def attributes(value: Any) -> dict[str, Any] | None:
    """The annotated public attributes that an object has; None if there are none, or its class is no such class."""
    kind: type = type(value)
    names = _annotated(kind)
    return {name: getattr(value, name) for name in names if hasattr(value, name)} or None


def record_type(kind: Any) -> Any:
    """A TypedDict of the attributes that such a class annotates; None for any other hint."""
    names = _annotated(kind) if isinstance(kind, type) else ()
    if not names:
        return None
    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except Exception:  # an annotation is any expression
        return None
    return typing.TypedDict(kind.__name__, {name: hints[name] for name in names})  # type: ignore[operator]


@cache
def _annotated(kind: type) -> tuple[str, ...]:
    # Classes of other metaclasses (enums, protocols, stand-ins, models) have a way of their own.
    if type(kind) is not type or issubclass(kind, (BaseException, dict, tuple)):
        return ()
    names: dict[str, None] = {}
    for base in reversed(kind.__mro__):
        for name, hint in written_annotations(base).items():
            is_class_variable = typing.get_origin(hint) is ClassVar or str(hint).startswith(
                ("ClassVar", "typing.ClassVar")
            )
            if not name.startswith("_") and not is_class_variable:
                names[name] = None
    return tuple(names)
