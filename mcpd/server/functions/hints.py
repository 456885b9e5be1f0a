"""Which library reads a parameter or return annotation, msgspec or pydantic, and in which form.

`argument` makes a parameter a field of the struct that holds a function's arguments; `readable` converts one hint to a
form that msgspec decodes. Metadata in `Annotated`, also from pydantic's `Field` and annotated-types, becomes msgspec's
`Meta`. If `Meta` cannot express it, pydantic reads the hint through a stand-in class. Neither library is imported
before it is needed: their objects are recognized by the modules of their classes. Never sees values.
"""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Callable, Iterable
from inspect import Parameter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import Meta
from msgspec.inspect import type_info

from mcpd.errors import RegistrationError
from .annotations import PLAIN_TYPES, written_annotations
from .type_hooks import UNION, StandIn, is_model, is_pydantic_here, problem, record_type

LIMITS = ("ge", "gt", "le", "lt", "max_length", "min_length", "multiple_of", "pattern")

_TEXTS = ("title", "description", "examples")
_LIBRARIES = ("pydantic", "pydantic_core", "pydantic_extra_types", "annotated_types")
# Classes of annotated-types that only express limits.
_PLAIN_LIMITS = ("Ge", "Gt", "Le", "Lt", "Interval", "MultipleOf", "MinLen", "MaxLen", "Len", "DocInfo", "Unit")


class BeyondMsgspecError(Exception):
    """msgspec cannot read this hint as it is meant. The text names the reason."""


def in_msgspec_terms(hint: Any) -> Any:
    """Return a hint with all metadata as `Meta`. Limits go to the members of a union that they fit.

    Raises BeyondMsgspecError, or TypeError or ValueError if the metadata contradict each other.
    """
    if reason := _foreign_type(hint):
        raise BeyondMsgspecError(reason)

    if typing.get_origin(hint) is Annotated:
        inner = in_msgspec_terms(hint.__origin__)
        metadata = hint.__metadata__
        if typing.get_origin(inner) is Annotated and typing.get_origin(hint.__origin__) in (Union, UnionType):
            # Metadata of the union itself applies here, unless a description is given here.
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
    # Copy the texts of an optional type to the whole, as msgspec drops them for a record beside None.
    members = [part for part in typing.get_args(hint) if part is not NoneType]
    if typing.get_origin(hint) not in (Union, UnionType) or len(members) != 1:
        return hint

    (member,) = members
    if typing.get_origin(member) is not Annotated:
        return hint

    words: dict[str, Any] = {}
    for item in member.__metadata__:
        if isinstance(item, Meta):
            words |= _given(item, _TEXTS)
    return Annotated[hint, Meta(**words)] if words else hint


def rebuilt(hint: Any, change: Callable[[Any], Any]) -> Any:
    """Return a generic type or union with `change` applied to its parts; the same object if nothing changes."""
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
    """Return a hint that admits None too. Metadata of the parameter stays outside."""
    if hint is Any or hint is None or hint is NoneType:
        return hint
    if typing.get_origin(hint) is Annotated and not any(map(_beyond_meta, hint.__metadata__)):
        return Annotated[(optional(hint.__origin__), *hint.__metadata__)]
    return typing.Optional[hint]  # noqa: UP045 - the only spelling that takes any form of hint


def is_field_info(value: Any) -> bool:
    """Return whether a value is the result of pydantic's `Field()`."""
    return any(kind.__module__ == "pydantic.fields" and kind.__name__ == "FieldInfo" for kind in type(value).__mro__)


def is_third_party(kind: type) -> bool:
    """Return whether a class belongs to pydantic or annotated-types, or tells pydantic how to read it."""
    return kind.__module__.partition(".")[0] in _LIBRARIES or hasattr(kind, "__get_pydantic_core_schema__")


# -- Annotated ---------------------------------------------------------------------------------


def _annotated(inner: Any, metadata: tuple[Any, ...]) -> Any:
    for item in metadata:
        if _beyond_meta(item):
            raise BeyondMsgspecError(f"{type(item).__name__} in Annotated")
    try:
        return _with_meta(inner, metadata, _meta_of(metadata))
    except (TypeError, ValueError) as error:
        if any(is_third_party(type(item)) for item in metadata):  # for example a limit that is a date
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


def _beyond_meta(item: Any) -> bool:
    # Return whether metadata of pydantic or annotated-types expresses what `Meta` cannot.
    kind = type(item)
    if is_field_info(item):
        return (
            item.discriminator is not None or callable(item.json_schema_extra) or any(map(_beyond_meta, item.metadata))
        )
    if not is_third_party(kind) or isinstance(item, type):
        return isinstance(item, type) and is_third_party(item)
    if kind.__name__ == "_PydanticGeneralMetadata":
        return vars(item).keys() != {"pattern"} or not isinstance(item.pattern, str)
    return kind.__name__ not in _PLAIN_LIMITS or kind.__module__.partition(".")[0] != "annotated_types"


def _limits(metadata: tuple[Any, ...]) -> dict[str, Any]:
    limits = {name: value for name, value in _meta_of(metadata).items() if name in LIMITS}
    for item in metadata:
        if isinstance(item, Meta):
            limits |= _given(item, (*LIMITS, "tz"))
    return limits


def _limited(union: Any, limits: dict[str, Any], metadata: tuple[Any, ...]) -> Any:
    # Return a union with each limit at the members that it fits.
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
        return True  # reported later, by name
    return True


def _without_limits(meta: Meta) -> Meta | None:
    kept = _given(meta, (*_TEXTS, "extra_json_schema", "extra"))
    return Meta(**kept) if kept else None


def _given(meta: Meta, names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(meta, name)) is not None}


def _meta_of(metadata: tuple[Any, ...]) -> dict[str, Any]:
    # Return metadata that is not `Meta` in its terms. The first value of each kind counts.
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

        # pydantic keeps constraints in a list of such objects.
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
    # On a class or a str these names are methods.
    return value if isinstance(value, str) and not isinstance(item, (str, type)) else None


def texts_beside(hint: Any) -> dict[str, Any]:
    """Return description, title and examples of a type from metadata other than `Meta`."""
    if typing.get_origin(hint) is not Annotated:
        return {}
    texts = _meta_of(hint.__metadata__)
    return {name: texts[name] for name in _TEXTS if name in texts}


# -- types -------------------------------------------------------------------------------------


def _foreign_type(hint: Any, seen: frozenset[type] = frozenset()) -> str | None:
    # Return why pydantic must read a class, or None. Models have a hook of their own.
    kind = typing.get_origin(hint) or hint
    if not isinstance(kind, type) or is_model(kind):
        return None
    if is_third_party(kind) or "__pydantic_validator__" in vars(kind):
        return kind.__qualname__
    return beyond_msgspec(kind, seen)


def beyond_msgspec(kind: type, seen: frozenset[type] = frozenset()) -> str | None:
    """Return what msgspec would not enforce in the fields of a class such as a dataclass; None if nothing."""
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
    except Exception:  # an annotation is any expression; msgspec reports errors
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
            if limits or _beyond_meta(item):
                return f"{type(item).__name__} in Annotated"
        return _inside(hint.__origin__, seen)

    if found := _foreign_type(hint, seen):
        return found
    return next((found for part in typing.get_args(hint) if (found := _inside(part, seen))), None)


def stand_in(hint: Any) -> StandIn:
    """Return a class for msgspec that represents `hint`. Raises TypeError if pydantic cannot read it."""
    import pydantic  # installed by the author

    try:
        adapter = pydantic.TypeAdapter(_in_pydantic_terms(hint, pydantic.Field))
        for mode in ("validation", "serialization"):
            adapter.json_schema(mode=mode)
    except Exception as error:  # pydantic's own errors, and any that the author's code raises
        text = str(error).partition("\n")[0].partition(". Set `arbitrary_types_allowed")[0]
        raise TypeError(f"pydantic cannot read {_name(hint)}: {text}") from error
    name = _name(hint)
    return StandIn(name, (), {"adapter": adapter, "__module__": "pydantic", "__qualname__": name})


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else re.sub(r"\b[\w.]+\.", "", str(hint))


def _in_pydantic_terms(hint: Any, field: Any) -> Any:
    if typing.get_origin(hint) is Annotated:
        items = [_as_field(item, field) for item in hint.__metadata__]
        return Annotated[(_in_pydantic_terms(hint.__origin__, field), *items)]
    return rebuilt(hint, lambda part: _in_pydantic_terms(part, field))


def _as_field(item: Any, field: Any) -> Any:
    if isinstance(item, str):
        return field(description=item)
    if isinstance(item, Meta):
        return field(**_given(item, (*LIMITS, *_TEXTS)), json_schema_extra=item.extra_json_schema)
    documentation = getattr(item, "documentation", None)
    if isinstance(documentation, str) and not is_third_party(type(item)):
        return field(description=documentation)
    return item


# Types whose values are JSON.
_JSON = frozenset((bool, int, float, str))
_INSTALL = "; or install pydantic, which reads it: pip install pydantic"


def argument(parameter: Parameter, hint: Any, where: str) -> tuple[Any, ...]:
    """Return a parameter as a field for msgspec.defstruct. `where` names it in a RegistrationError."""
    default = parameter.default
    _refuse_others(default, hint, where)
    if is_field_info(default):
        hint = Annotated[Any if hint is Parameter.empty else hint, default]
        default = Parameter.empty

    options: dict[str, Any] = {} if default is Parameter.empty else _default(default)
    if typing.get_origin(hint) is Annotated:
        hint, texts = _field_options(hint, where)
        options = {**texts, **options}  # the default after = wins

    hint = readable(hint, where, has_none_default="default" in options and options["default"] is None)
    if not options:
        return (parameter.name, hint)
    if options.keys() == {"default"}:
        return (parameter.name, hint, options["default"])
    return (parameter.name, hint, msgspec.field(**options))


def _refuse_others(default: Any, hint: Any, where: str) -> None:
    # Refuse a dependency of another library, which would otherwise become a default that clients can replace.
    for item in (default, *getattr(hint, "__metadata__", ())):
        kind = type(item)
        if kind.__name__.lstrip("_") in ("Depends", "Resolve", "Security"):
            raise RegistrationError(
                f"{where}: {kind.__module__} is another library's; write `from mcpd import Depends`"
            )


def _default(default: Any) -> dict[str, Any]:
    if default is None or type(default) in _JSON:
        return {"default": default}
    return {"default_factory": WrittenDefault(default)}


class WrittenDefault:
    """A factory for a default that is written as a value. Schemas show only such defaults, no other factory's."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        """Return the value, or a copy of a mutable one, which calls would share otherwise."""
        try:
            hash(self.value)
        except TypeError:
            pass
        else:
            return self.value
        from copy import deepcopy  # most defaults are values

        return deepcopy(self.value)


def _field_options(hint: Any, where: str) -> tuple[Any, dict[str, Any]]:
    # Return a hint without the options of its `Field`s, and these options: a default, another name.
    options: dict[str, Any] = {}
    metadata = []
    for item in hint.__metadata__:
        if not is_field_info(item):
            metadata.append(item)
            continue

        name = item.validation_alias if item.validation_alias is not None else item.alias
        if name is not None:
            if not isinstance(name, str):
                raise RegistrationError(f"{where}: Field(validation_alias=…) must be one name, a str")
            options["name"] = name

        if not item.is_required():
            options.pop("default", None)
            options.pop("default_factory", None)
            options.update(_field_default(item, where))
        metadata.append(_without_options(item))
    return Annotated[(hint.__origin__, *metadata)], options


def _field_default(info: Any, where: str) -> dict[str, Any]:
    if info.default_factory is None:
        return _default(info.default)
    if getattr(info, "default_factory_takes_validated_data", False):
        raise RegistrationError(f"{where}: Field(default_factory=…) must be a function without parameters")
    return {"default_factory": info.default_factory}


def _without_options(info: Any) -> Any:
    from copy import copy  # loaded by pydantic

    plain = copy(info)
    plain.default = type(info)().default
    plain.default_factory = plain.alias = plain.validation_alias = plain.serialization_alias = None
    return plain


def readable(hint: Any, where: str, *, has_none_default: bool = False) -> Any:
    """Return a hint as msgspec reads it, or a stand-in if pydantic must read it.

    `object` and a missing annotation mean any value. A default of None admits null even if the annotation does not,
    because models read the default in the schema and send it.
    """
    if hint is object or hint is Parameter.empty:
        return Any
    if has_none_default:
        hint = optional(hint)

    try:
        read = in_msgspec_terms(hint)
        reason = None if read in PLAIN_TYPES else problem(read)
        if reason is None:
            return read
        is_beyond = False
    except BeyondMsgspecError as error:
        reason, is_beyond = str(error), True
    except (TypeError, ValueError) as error:
        raise RegistrationError(f"{where}: {error}") from error

    if not is_pydantic_here() or reason.startswith("Can only set"):  # a limit in Meta beside a type that has none
        raise RegistrationError(f"{where}: {reason}{_INSTALL if is_beyond or reason.startswith(UNION) else ''}")
    try:
        return stand_in(hint)
    except TypeError as error:
        raise RegistrationError(f"{where}: {f'{reason}: {error}' if is_beyond else reason}") from error


def readable_output(hint: Any) -> Any:
    """Return a return annotation as msgspec reads it, or a stand-in; None if neither can read and show it.

    Imports pydantic only for unions, because other classes that msgspec does not know are rarely data.
    """
    is_union = False
    try:
        read = in_msgspec_terms(hint)
        if problem(read) is not None:
            read = record_type(read) or read
        reason = problem(read)
        if reason is None:
            return read
        is_union = reason.startswith(UNION)
    except BeyondMsgspecError:
        pass
    except (TypeError, ValueError):
        return None

    if "pydantic" not in sys.modules and not (is_union and is_pydantic_here()):
        return None
    try:
        return stand_in(hint)
    except TypeError:
        return None
