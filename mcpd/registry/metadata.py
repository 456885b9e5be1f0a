"""What stands beside a type in `Annotated`, brought to msgspec's `Meta`, at any depth of a hint.

Descriptions, titles, examples and limits of pydantic's `Field` and of annotated-types are said by
`Meta` in other words, and then msgspec enforces and shows them. What it has no word for raises
BeyondMsgspecError: pydantic reads such a hint (`type_adapter`). Imports neither library: their objects are
known by the modules of their classes. Never sees values.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

from msgspec import Meta
from msgspec.inspect import type_info

from mcpd.registry.annotations import written_annotations

LIMITS = ("ge", "gt", "le", "lt", "max_length", "min_length", "multiple_of", "pattern")

_LIBRARIES = ("pydantic", "pydantic_core", "pydantic_extra_types", "annotated_types")
# What of these libraries is a limit and nothing else.
_PLAIN_LIMITS = ("Ge", "Gt", "Le", "Lt", "Interval", "MultipleOf", "MinLen", "MaxLen", "Len", "DocInfo", "Unit")


class BeyondMsgspecError(Exception):
    """msgspec cannot read this hint as it is meant; the text says what it is about."""


def in_msgspec_terms(hint: Any) -> Any:
    """A hint with all metadata as `Meta`; limits go to the members of a union that they fit.

    Raises BeyondMsgspecError, or TypeError or ValueError if the metadata contradict themselves.
    """
    if reason := _foreign_type(hint):
        raise BeyondMsgspecError(reason)

    if typing.get_origin(hint) is Annotated:
        inner = in_msgspec_terms(hint.__origin__)
        metadata = hint.__metadata__
        if typing.get_origin(inner) is Annotated and typing.get_origin(hint.__origin__) in (Union, UnionType):
            # What was said inside is said here, unless something is said here already.
            is_described = any(isinstance(item, str) or _text(item, "description") for item in metadata)
            metadata = metadata if is_described else (*inner.__metadata__, *metadata)
            inner = inner.__origin__
        return _annotated(inner, metadata)

    if hasattr(hint, "__supertype__") or hasattr(hint, "__value__"):  # NewType, type statements
        inner = hint.__supertype__ if hasattr(hint, "__supertype__") else hint.__value__
        read = in_msgspec_terms(inner)
        return hint if read is inner else read

    return _with_words_outside(rebuilt(hint, in_msgspec_terms))


def _with_words_outside(hint: Any) -> Any:
    """An optional type with what is said of it at the whole: msgspec forgets it of a record that stands beside None."""
    members = [part for part in typing.get_args(hint) if part is not NoneType]
    if typing.get_origin(hint) not in (Union, UnionType) or len(members) != 1:
        return hint

    (member,) = members
    if typing.get_origin(member) is not Annotated:
        return hint

    words = {
        name: value
        for item in member.__metadata__
        if isinstance(item, Meta)
        for name in ("title", "description", "examples")
        if (value := getattr(item, name)) is not None
    }
    return Annotated[hint, Meta(**words)] if words else hint


def rebuilt(hint: Any, change: Callable[[Any], Any]) -> Any:
    """A generic type or union with `change` applied to its parts; the same object if they stay the same."""
    parts = typing.get_args(hint)
    if not parts or typing.get_origin(hint) is Literal:
        return hint
    read = tuple(map(change, parts))
    if all(new is old for new, old in zip(read, parts, strict=True)):
        return hint
    if isinstance(hint, UnionType):
        return Union[read]  # noqa: UP007 - of as many as there are
    return hint.copy_with(read) if hasattr(hint, "copy_with") else typing.get_origin(hint)[read]


def optional(hint: Any) -> Any:
    """A hint that admits None too; what is said of the parameter stays outside, at the parameter."""
    if hint is Any or hint is None or hint is NoneType:
        return hint
    if typing.get_origin(hint) is Annotated and not any(map(_does_more, hint.__metadata__)):
        return Annotated[(optional(hint.__origin__), *hint.__metadata__)]
    return typing.Optional[hint]  # noqa: UP045 - the only spelling that takes any form of hint


def is_field_info(value: Any) -> bool:
    """Whether a value is what pydantic's `Field()` gives."""
    return any(kind.__module__ == "pydantic.fields" and kind.__name__ == "FieldInfo" for kind in type(value).__mro__)


def is_third_party(kind: type) -> bool:
    """Whether a class is of pydantic or annotated-types, or tells pydantic how to read it."""
    return kind.__module__.partition(".")[0] in _LIBRARIES or hasattr(kind, "__get_pydantic_core_schema__")


# -- Annotated ---------------------------------------------------------------------------------


def _annotated(inner: Any, metadata: tuple[Any, ...]) -> Any:
    for item in metadata:
        if _does_more(item):
            raise BeyondMsgspecError(f"{type(item).__name__} in Annotated")
    try:
        return _with_meta(inner, metadata, _meta_of(metadata))
    except (TypeError, ValueError) as error:
        if any(is_third_party(type(item)) for item in metadata):  # such as a limit that is a date
            raise BeyondMsgspecError(str(error)) from error
        raise


def _with_meta(inner: Any, metadata: tuple[Any, ...], found: dict[str, Any]) -> Any:
    is_union = typing.get_origin(inner) in (Union, UnionType)
    if is_union:
        limits = _limits(metadata)
        inner = _limited(inner, limits, metadata)
        found = {name: value for name, value in found.items() if name not in LIMITS}
        own = (_without_limits(item) if isinstance(item, Meta) else item for item in metadata)
        metadata = tuple(item for item in own if item is not None)

    read = Annotated[(inner, *metadata, Meta(**found))] if found else inner
    if not found and metadata:
        read = Annotated[(inner, *metadata)]

    is_limited = any(is_third_party(type(item)) for item in metadata) and not found.keys().isdisjoint(LIMITS)
    if is_limited and not _is_readable(read):
        raise BeyondMsgspecError(f"limits on {getattr(inner, '__name__', inner)}")
    return read


def _does_more(item: Any) -> bool:
    """Whether a piece of metadata of pydantic's or annotated-types' says what `Meta` has no word for."""
    kind = type(item)
    if is_field_info(item):
        return item.discriminator is not None or callable(item.json_schema_extra) or any(map(_does_more, item.metadata))
    if not is_third_party(kind) or isinstance(item, type):
        return isinstance(item, type) and is_third_party(item)
    if kind.__name__ == "_PydanticGeneralMetadata":
        return vars(item).keys() != {"pattern"} or not isinstance(item.pattern, str)
    return kind.__name__ not in _PLAIN_LIMITS or kind.__module__.partition(".")[0] != "annotated_types"


def _limits(metadata: tuple[Any, ...]) -> dict[str, Any]:
    found = {name: value for name, value in _meta_of(metadata).items() if name in LIMITS}
    for item in metadata:
        if isinstance(item, Meta):
            found.update({name: value for name in (*LIMITS, "tz") if (value := getattr(item, name)) is not None})
    return found


def _limited(union: Any, limits: dict[str, Any], metadata: tuple[Any, ...]) -> Any:
    """A union with each limit at the members that it fits."""
    if not limits:
        return union

    members = []
    placed: set[str] = set()
    for member in typing.get_args(union):
        fitting = {
            name: value for name, value in limits.items() if _is_readable(Annotated[member, Meta(**{name: value})])
        }
        placed.update(fitting)
        members.append(Annotated[member, Meta(**fitting)] if fitting else member)

    if stray := limits.keys() - placed:
        text = f"{', '.join(sorted(stray))} fits no member of {union}"
        if any(is_third_party(type(item)) for item in metadata):
            raise BeyondMsgspecError(text)
        raise TypeError(text)
    return Union[tuple(members)]  # noqa: UP007 - of as many as there are


def _is_readable(hint: Any) -> bool:
    try:
        type_info(hint)
    except TypeError:
        return False
    except NameError:
        return True  # it is told later, by name
    return True


def _without_limits(meta: Meta) -> Meta | None:
    names = ("title", "description", "examples", "extra_json_schema", "extra")
    rest = {name: value for name in names if (value := getattr(meta, name)) is not None}
    return Meta(**rest) if rest else None


def _meta_of(metadata: tuple[Any, ...]) -> dict[str, Any]:
    """What others than `Meta` say, in its words; the first to say something has it."""
    found: dict[str, Any] = {}
    for item in metadata:
        if isinstance(item, Meta):
            continue

        description = item if isinstance(item, str) else _text(item, "description") or _text(item, "documentation")
        if description:
            found.setdefault("description", description)
        if title := _text(item, "title"):
            found.setdefault("title", title)
        if is_field_info(item):
            _add_schema_texts(item, found)

        # pydantic keeps its constraints in a list of such objects.
        inner = getattr(item, "metadata", None)
        for part in (item, *inner) if isinstance(inner, list) else (item,):
            for name in LIMITS:
                value = getattr(part, name, None)
                if value is not None and not callable(value):
                    found.setdefault(name, value)

    if any(isinstance(item, Meta) and item.description is not None for item in metadata):
        found.pop("description", None)
    return found


def _add_schema_texts(info: Any, found: dict[str, Any]) -> None:
    if info.examples:
        found.setdefault("examples", list(info.examples))
    extra = dict(info.json_schema_extra or {})
    if info.deprecated:
        extra.setdefault("deprecated", True)
    if extra:
        found.setdefault("extra_json_schema", extra)


def _text(item: Any, name: str) -> str | None:
    value = getattr(item, name, None)
    # A class or a str has attributes of these names that are methods.
    return value if isinstance(value, str) and not isinstance(item, (str, type)) else None


def texts_beside(hint: Any) -> dict[str, Any]:
    """What is said of a type beside it, by others than `Meta`: description, title, examples."""
    if typing.get_origin(hint) is not Annotated:
        return {}
    said = _meta_of(hint.__metadata__)
    return {name: said[name] for name in ("title", "description", "examples") if name in said}


# -- types -------------------------------------------------------------------------------------


def _is_model(kind: Any) -> bool:
    return hasattr(kind, "model_validate_json") and hasattr(kind, "model_json_schema")


def _foreign_type(hint: Any) -> str | None:
    """Why a class in a hint needs pydantic to read it; None if it does not. Models have a hook of their own."""
    kind = typing.get_origin(hint) or hint
    if not isinstance(kind, type) or _is_model(kind):
        return None
    if is_third_party(kind) or "__pydantic_validator__" in vars(kind):
        return kind.__qualname__
    return beyond_msgspec(kind)


def beyond_msgspec(kind: type, seen: frozenset[type] = frozenset()) -> str | None:
    """What msgspec would not enforce in the fields of a class, such as a dataclass or TypedDict; None if nothing."""
    is_possible = "pydantic" in sys.modules or "annotated_types" in sys.modules
    if not is_possible or kind in seen or not written_annotations(kind):
        return None

    marks = ("__dataclass_fields__", "__total__", "_fields", "__struct_fields__", "__attrs_attrs__")
    if not any(hasattr(kind, mark) for mark in marks):
        return None

    for name, field in getattr(kind, "__dataclass_fields__", {}).items():
        if is_field_info(field.default):
            return f"Field() in {kind.__qualname__}.{name}"

    try:
        hints = typing.get_type_hints(kind, include_extras=True)
    except Exception:  # an annotation is any expression; msgspec tells what is wrong with it
        return None
    for name, hint in hints.items():
        if found := _inside(hint, seen | {kind}):
            text = f"{found} in {kind.__qualname__}.{name}"
            return f"{text} (write msgspec.Meta in a Struct)" if hasattr(kind, "__struct_fields__") else text
    return None


def _inside(hint: Any, seen: frozenset[type]) -> str | None:
    if typing.get_origin(hint) is Annotated:
        for item in hint.__metadata__:
            limits = is_third_party(type(item)) and not _meta_of((item,)).keys().isdisjoint(LIMITS)
            if limits or _does_more(item):
                return f"{type(item).__name__} in Annotated"
        return _inside(hint.__origin__, seen)

    kind = typing.get_origin(hint) or hint
    if isinstance(kind, type) and not _is_model(kind):
        if is_third_party(kind) or "__pydantic_validator__" in vars(kind):
            return kind.__qualname__
        if found := beyond_msgspec(kind, seen):
            return found
    return next((found for part in typing.get_args(hint) if (found := _inside(part, seen))), None)
