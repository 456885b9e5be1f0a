"""Types that msgspec does not know: pydantic models, paths, plain classes and subclasses of built-in types.

msgspec calls `dec_hook`, `enc_hook` and `output_hook` through `results`. pydantic is never imported here: a class with
`model_validate_json` and `model_json_schema` is one of its models, or a stand-in for a hint that it reads (`hints`).
Paths are strings in JSON. Plain classes with annotated attributes are records, for results only, as in the official
SDK. `problem` finds the types that no hook can read when a function is registered.
"""

from __future__ import annotations

import datetime
import logging
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from decimal import Decimal
from functools import cache
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct, inspect as types

from mcpd.protocol.schemas import Schema
from .annotations import written_annotations


def attributes(value: Any) -> dict[str, Any] | None:
    """Return the annotated public attributes that an object has; None if it has none or is of another kind of class."""
    kind: type = type(value)
    names = _annotated(kind)
    return {name: getattr(value, name) for name in names if hasattr(value, name)} or None


def record_type(kind: Any) -> Any:
    """Return a TypedDict of the attributes that such a class annotates; None for any other hint."""
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
    # Classes with another metaclass (enums, protocols, stand-ins, models) are handled elsewhere.
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


_log = logging.getLogger("mcpd.registry")

_KNOWN = (
    "use str, int, float, bool, bytes, list, tuple, set, dict, Literal, Enum, datetime types, UUID, Decimal, Path, "
    "a dataclass, TypedDict, NamedTuple, msgspec Struct, attrs class or pydantic model"
)

# msgspec's message for a union whose members it cannot tell apart, with a list of the refused types; then ours.
_UNION = r"(?s)((?:If a t|T)ype union.*) - type `(.*)` is not supported"
UNION = "the members of the union"
# Marks an empty schema while schemas are generated.
ANYTHING = "$mcpd-anything"
_TAG = "give each Struct a tag, as in class Dog(Struct, tag=True)"
_FIELD = "take one class with all their fields, or two parameters"

# msgspec writes these classes, but not their subclasses. The base class's method is called, because the value counts,
# not how the subclass shows itself.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    bytes: memoryview,
    bytearray: memoryview,
    int: int.__int__,
    float: float.__float__,
    Decimal: Decimal,
    datetime.datetime: lambda value: value.isoformat(),
    datetime.date: lambda value: value.isoformat(),
    datetime.time: lambda value: value.isoformat(),
    datetime.timedelta: lambda value: datetime.timedelta(value.days, value.seconds, value.microseconds),
}

# msgspec writes these, except as keys of a dict; then it calls the hook.
_NEVER_KEYS = frozenset((tuple, list, dict, set, frozenset))


def is_model(kind: Any) -> bool:
    """Return whether a class is a pydantic model or a stand-in."""
    return hasattr(kind, "model_validate_json") and hasattr(kind, "model_json_schema")


def _is_by_alias(kind: Any) -> bool:
    # Return whether a model is written with its aliases, the default here.
    return getattr(kind, "model_config", {}).get("serialize_by_alias") is not False


def is_own(kind: Any) -> bool:
    """Return whether a class of mcpd, such as `File`, describes and reads itself."""
    return hasattr(kind, "mcpd_schema") and hasattr(kind, "mcpd_read")


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, os.PathLike) and kind is not os.PathLike


_CALLABLES = (type, FunctionType, MethodType, BuiltinFunctionType, MethodDescriptorType, ModuleType)


def _kind_of(value: object) -> str:
    return "a class" if isinstance(value, type) else "a module" if isinstance(value, ModuleType) else "a function"


class StandIn(type):
    """The metaclass of stand-ins. To msgspec each is a class of its own; its values are whatever pydantic returns."""

    adapter: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return True  # the adapter has checked it

    def model_validate_json(cls, text: bytes) -> Any:
        return cls.adapter.validate_json(text)

    def model_json_schema(cls, **options: Any) -> Any:
        return cls.adapter.json_schema(**options)

    def dump(cls, value: Any) -> Any:
        """Return a value as JSON types, by its declared type; unchanged if it is not of that type."""
        try:
            return cls.adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        except Exception:  # an error of pydantic or of an author's serializer: written as any other value
            return value

    @property
    def has_functions(cls) -> bool:
        """Whether the author's code validates or serializes, so that a result may not be a valid input."""
        return "'type': 'function-" in repr(cls.adapter.core_schema)


def is_pydantic_here() -> bool:
    """Return whether pydantic can be imported."""
    if "pydantic" in sys.modules:
        return True
    from importlib.util import find_spec  # where it is needed at all

    return find_spec("pydantic") is not None


def dec_hook(kind: Any, value: Any) -> Any:
    """Make a `kind` of decoded JSON. Raises ValueError, with a text for the model, if it does not fit."""
    if is_model(kind):
        try:
            # As JSON, because strict models accept "2026-01-01" as a date only there.
            return kind.model_validate_json(msgspec.json.encode(value))
        except ValueError as error:
            raise ValueError(_model_errors(error)) from error
    if _is_path(kind):
        if not isinstance(value, str):
            raise ValueError("Expected `str`")
        return kind(value)
    if is_own(kind):
        return kind.mcpd_read(value)
    raise NotImplementedError(f"{kind.__qualname__} cannot be read from JSON; {_KNOWN}")


def output_hook(kind: Any, value: Any) -> Any:
    """`dec_hook` for a check of a result. Raises ValueError if it does not fit.

    A model whose output differs from its input (aliases, computed fields) cannot be read again; only its required
    members are checked.
    """
    if is_model(kind):
        required = _required_output(kind)
        if isinstance(kind, StandIn):
            return value if required is not None or kind.has_functions else dec_hook(kind, value)
        if required is not None:
            missing = [name for name in required if not isinstance(value, dict) or name not in value]
            if missing:
                raise ValueError(f"missing: {', '.join(missing)}")
            return kind.model_construct()  # any instance is accepted
    return dec_hook(kind, value)


@cache
def _required_output(kind: Any) -> Sequence[str] | None:
    # Return the members that a model's output must have; None if a model accepts its own output.
    try:
        read = kind.model_json_schema(mode="validation")
        options = {} if _is_by_alias(kind) else {"by_alias": False}
        written = kind.model_json_schema(mode="serialization", **options)
    except Exception:  # the model is shown as any object
        return ()
    return None if read == written else written.get("required", ())


def _model_errors(error: ValueError) -> str:
    # Return pydantic's errors in one line, without its links and its echo of the input.
    if not hasattr(error, "errors"):
        return str(error)
    lines = []
    for entry in error.errors():
        # pydantic includes parts of its own schema, such as "function-wrap[…]".
        where = ".".join(str(step) for step in entry.get("loc", ()) if "[" not in str(step) or "-" not in str(step))
        lines.append(f"{where}: {entry.get('msg')}" if where else str(entry.get("msg")))
    return "; ".join(lines)


def enc_hook(value: Any) -> Any:
    """Return what msgspec writes for a type it does not know. Raises TypeError if there is nothing sensible."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]  # only for keys: written as json.dumps does
    if isinstance(value, _CALLABLES):
        raise TypeError(f"{value.__name__} is {_kind_of(value)}, not a value: a call may lack its parentheses")
    if hasattr(value, "model_dump") and is_model(type(value)):
        return value.model_dump(mode="json", by_alias=_is_by_alias(type(value)))
    if type(value).__module__.partition(".")[0] in ("pydantic", "pydantic_core", "pydantic_extra_types"):
        return sys.modules["pydantic_core"].to_jsonable_python(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value) in _NEVER_KEYS:
        raise TypeError(f"{type(value).__name__} cannot be a key of a JSON object; use str, int, float or Enum keys")

    for kind in type(value).__mro__:
        if kind in _PLAIN:
            return _PLAIN[kind](value)
    if hasattr(value, "tolist"):  # arrays and numbers of numpy and similar libraries
        plain = value.tolist()
        if type(plain) is not type(value):
            return plain

    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (Sequence, Set, ValuesView)):
        return list(value)
    if (record := attributes(value)) is not None:
        return record

    if isinstance(value, CoroutineType):
        value.close()  # otherwise Python warns later, at an unrelated line
        raise TypeError(f"{value.__qualname__}() was not awaited: write await before it, in an async function")
    if isinstance(value, (GeneratorType, AsyncGeneratorType)):
        raise TypeError(f"{value.__qualname__}() is a generator: return a list of what it yields")
    raise TypeError(f"{type(value).__qualname__} cannot be written as JSON; {_KNOWN}")


class Definitions:
    """Collects the `$defs` that pydantic models bring into a schema; `hook` is msgspec's `schema_hook`.

    `mode` is "validation" for arguments, "serialization" for results. If two models have one name, or a model has a
    name in `taken`, the name gets the module's name in front.
    """

    def __init__(self, mode: Literal["validation", "serialization"], taken: frozenset[str] = frozenset()) -> None:
        self.found: dict[str, Any] = {}
        self._mode = mode
        self._taken = taken

    def hook(self, kind: type) -> Schema:
        if _is_path(kind):
            return {"type": "string", "format": "path"}
        if is_own(kind):
            return dict(kind.mcpd_schema)  # type: ignore[attr-defined]  # `is_own` has checked it
        if not is_model(kind):
            raise NotImplementedError

        try:
            schema, definitions = self._definitions(kind, "")
            if any(self._is_other(key, value) for key, value in definitions.items()):
                prefix = re.sub(r"[^\w.-]", "_", f"{kind.__module__}.{kind.__qualname__}.")
                schema, definitions = self._definitions(kind, prefix)
        except Exception:  # pydantic and the model's own hooks may raise anything; the tool still works
            _log.warning("no JSON schema for %s: any object is shown as valid", kind.__qualname__, exc_info=True)
            return {"type": "object"}

        self.found.update(definitions)
        return schema or {ANYTHING: True}  # msgspec refuses an empty schema from a hook

    def _is_other(self, name: str, schema: Any) -> bool:
        return name in self._taken or (name in self.found and self.found[name] != schema)

    def _definitions(self, kind: Any, prefix: str) -> tuple[Schema, Schema]:
        is_by_alias = self._mode == "validation" or _is_by_alias(kind)
        options = {} if is_by_alias else {"by_alias": False}
        schema = kind.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}", mode=self._mode, **options)
        definitions = {prefix + name: value for name, value in schema.pop("$defs", {}).items()}
        # A recursive model is a reference into its own $defs. Only stand-ins for records have a name.
        if schema.keys() == {"$ref"} or (isinstance(kind, StandIn) and "properties" not in schema):
            return schema, definitions
        name = prefix + re.sub(r"[^\w.-]", "_", kind.__name__)
        return {"$ref": f"#/$defs/{name}"}, {**definitions, name: schema}


def problem(hint: Any) -> str | None:
    """Return why values of this type cannot be read from JSON or shown in a schema; None if they can."""
    try:
        for info in parts_of(types.type_info(hint), set()):
            if isinstance(info, types.CustomType) and not (
                is_model(info.cls) or _is_path(info.cls) or is_own(info.cls)
            ):
                return f"{getattr(info.cls, '__qualname__', info.cls)} cannot be read from JSON; {_KNOWN}"
            if isinstance(info, types.Field) and info.default is not msgspec.NODEFAULT:
                # msgspec's schemas include defaults, so this one must be encodable.
                msgspec.to_builtins(info.default, str_keys=True)
        # type_info accepts some unions that a decoder does not.
        msgspec.json.Decoder(hint, dec_hook=dec_hook)
    except NameError as error:
        return f"the name {error.name!r} in its definition is not defined"
    except (TypeError, ValueError, NotImplementedError, RuntimeError) as error:
        if match := re.match(_UNION, str(error)):
            for part in typing.get_args(hint):
                if reason := problem(part):
                    return reason
            return f"{UNION} {match[2]} cannot be told apart in JSON; {_TAG if 'Struct types' in match[1] else _FIELD}"
        return f"{error}; {_KNOWN}"
    return None


def parts_of(found: Any, seen: set[Any]) -> Iterator[Any]:
    """Yield a type as msgspec sees it, and all types and fields inside it."""
    yield found
    if isinstance(found, (types.StructType, types.DataclassType, types.TypedDictType, types.NamedTupleType)):
        if found.cls in seen:
            return
        seen.add(found.cls)
    for name in found.__struct_fields__:
        value = getattr(found, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, (types.Type, types.Field)):
                yield from parts_of(part, seen)


_LEAVES = frozenset((str, int, float, bool, bytes, type(None)))


def needs_completion(hint: Any) -> bool:
    """Return whether a value that msgspec decodes may hold a dataclass whose defaults msgspec does not set.

    msgspec leaves defaults that the class has as attributes unset. Such an argument would lose its defaults when it is
    returned, stored or shown by `vars`.
    """
    return any(
        isinstance(found, types.DataclassType) and bool(_defaults(found.cls))
        for found in parts_of(types.type_info(hint), set())
    )


def completed(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decoder whose values have their defaults."""

    def decode_and_complete(raw: Any) -> Any:
        value = decode(raw)
        complete(value)
        return value

    return decode_and_complete


def complete(value: Any) -> None:
    """Set the defaults of the dataclasses in a decoded value. Default values themselves are not changed."""
    kind = value.__class__
    if kind in _LEAVES:
        return

    inner: Iterable[Any] = ()
    if isinstance(value, (list, tuple, set, frozenset)):
        inner = value
    elif isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, Struct):
        inner = [getattr(value, name) for name in value.__struct_fields__]
    elif hasattr(value, "__dataclass_fields__"):
        own = getattr(value, "__dict__", {})
        # Only given values are examined: a default may be shared and must not change.
        inner = list(own.values())
        for name, default in _defaults(kind):
            own.setdefault(name, default)
    for item in inner:
        complete(item)


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    if not hasattr(kind, "__dict__") or "__slots__" in vars(kind) or not hasattr(kind, "__dataclass_fields__"):
        return ()
    import dataclasses  # loaded with the author's dataclass

    fields = dataclasses.fields(kind)
    return tuple((field.name, field.default) for field in fields if field.default is not dataclasses.MISSING)
