"""Types msgspec does not know: pydantic models, paths and subclasses of plain types, to and from JSON.

pydantic is never imported here: a class that has `model_validate_json` and `model_json_schema` is one
of its models, and its dataclasses are brought to that form. Paths travel as strings. msgspec calls the
three hooks for a type of its own accord; `problem` finds, when a function is registered, the types
for which no hook would help.
"""

from __future__ import annotations

import datetime
import logging
import os
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence, Set, ValuesView
from decimal import Decimal
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import inspect as types

__all__ = ["Definitions", "dec_hook", "enc_hook", "output_hook", "parts_of", "problem", "to_builtins", "validated"]

_log = logging.getLogger("mcpd.registry")

_KNOWN = (
    "use str, int, float, bool, bytes, list, tuple, set, dict, Literal, Enum, datetime types, UUID, Decimal, Path, "
    "a dataclass, TypedDict, NamedTuple, msgspec Struct, attrs class or pydantic model"
)


# msgspec writes these classes themselves, and not what is derived from them. Called on the class, so that no method
# of the subclass has a say: they are what is written for the value, not what it looks like.
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


def _is_model(kind: Any) -> bool:
    return hasattr(kind, "model_validate_json") and hasattr(kind, "model_json_schema")


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, os.PathLike) and kind is not os.PathLike


def dec_hook(kind: Any, value: Any) -> Any:
    """Make a `kind` of decoded JSON. ValueError, with a text for the model, if it does not fit."""
    if _is_model(kind):
        try:
            # As JSON, not as Python objects: strict models take "2026-01-01" for a date only there.
            return kind.model_validate_json(msgspec.json.encode(value))
        except ValueError as error:
            raise ValueError(_model_errors(error)) from error
    if _is_path(kind):
        if not isinstance(value, str):
            raise ValueError("Expected `str`")
        return kind(value)
    raise NotImplementedError(f"{kind.__qualname__} cannot be read from JSON; {_KNOWN}")


def output_hook(kind: Any, value: Any) -> Any:
    """`dec_hook` for a check of what goes out. ValueError if it does not fit.

    A model that writes itself otherwise than it reads itself (aliases, computed fields) cannot read that again:
    what its schema requires has to be there.
    """
    if _is_model(kind):
        required = _required_output(kind)
        if required is not None:
            missing = [name for name in required if not isinstance(value, dict) or name not in value]
            if missing:
                raise ValueError(f"missing: {', '.join(missing)}")
            return kind.model_construct()  # any instance will do
    return dec_hook(kind, value)


@cache
def _required_output(kind: Any) -> Sequence[str] | None:
    """What the output of a model has to have; None if a model takes what it gives."""
    try:
        read, written = (kind.model_json_schema(mode=mode) for mode in ("validation", "serialization"))
    except Exception:  # such a model is shown as any object
        return ()
    return None if read == written else written.get("required", ())


def _model_errors(error: ValueError) -> str:
    """pydantic's findings in one line, without its links and its echo of the input."""
    if not hasattr(error, "errors"):
        return str(error)
    lines = []
    for entry in error.errors():
        where = ".".join(map(str, entry.get("loc", ())))
        lines.append(f"{where}: {entry.get('msg')}" if where else str(entry.get("msg")))
    return "; ".join(lines)


def enc_hook(value: Any) -> Any:
    """What msgspec writes for a value it does not know. TypeError if there is nothing sensible."""
    if hasattr(value, "model_dump") and _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    for kind in type(value).__mro__:
        if kind in _PLAIN:
            return _PLAIN[kind](value)
    if hasattr(value, "tolist"):  # arrays and numbers of numpy and its like
        plain = value.tolist()
        if type(plain) is not type(value):
            return plain
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (Sequence, Set, ValuesView)):
        return list(value)
    raise TypeError(f"{type(value).__qualname__} cannot be written as JSON; {_KNOWN}")


def to_builtins(value: Any) -> Any:
    """`value` as what JSON has: None, bool, int, float, str, list, dict with string keys."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=enc_hook)


class Definitions:
    """The `$defs` that pydantic models bring into a schema; `hook` is msgspec's `schema_hook`.

    `mode` is "validation" for what comes in, "serialization" for what goes out. Two models of one
    name, or a model named like one of `taken`, get their module's name in front.
    """

    def __init__(self, mode: Literal["validation", "serialization"], taken: frozenset[str] = frozenset()) -> None:
        self.found: dict[str, Any] = {}
        self._mode = mode
        self._taken = taken

    def hook(self, kind: type) -> dict[str, Any]:
        if _is_path(kind):
            return {"type": "string", "format": "path"}
        if not _is_model(kind):
            raise NotImplementedError
        try:
            name, definitions = self._definitions(kind, "")
            if any(self._is_other(key, value) for key, value in definitions.items()):
                prefix = re.sub(r"[^\w.-]", "_", f"{kind.__module__}.{kind.__qualname__}.")
                name, definitions = self._definitions(kind, prefix)
        except Exception:  # pydantic and the model's own hooks may raise anything; the tool still works
            _log.warning("no JSON schema for %s: any object is shown as valid", kind.__qualname__, exc_info=True)
            return {"type": "object"}
        self.found.update(definitions)
        return {"$ref": f"#/$defs/{name}"}

    def _is_other(self, name: str, schema: Any) -> bool:
        return name in self._taken or (name in self.found and self.found[name] != schema)

    def _definitions(self, kind: Any, prefix: str) -> tuple[str, dict[str, Any]]:
        schema = kind.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}", mode=self._mode)
        definitions = {prefix + name: value for name, value in schema.pop("$defs", {}).items()}
        # A model that contains itself is given as a reference into its own $defs.
        if schema.keys() == {"$ref"}:
            return schema["$ref"].removeprefix("#/$defs/"), definitions
        name = prefix + re.sub(r"[^\w.-]", "_", kind.__name__)
        return name, {**definitions, name: schema}


class _StandIn(type):
    """The class of stand-ins for pydantic's dataclasses, which msgspec would read itself, without their validators."""

    kind: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.kind)

    def model_validate_json(cls, text: bytes) -> Any:
        return cls.kind.__pydantic_validator__.validate_json(text)

    def model_json_schema(cls, **options: Any) -> Any:
        return sys.modules["pydantic"].TypeAdapter(cls.kind).json_schema(**options)


def _is_pydantic_dataclass(kind: Any) -> bool:
    return isinstance(kind, type) and "__pydantic_validator__" in vars(kind) and not _is_model(kind)


@cache
def _stand_in(kind: Any) -> _StandIn:
    return _StandIn(kind.__name__, (), {"kind": kind, "__module__": kind.__module__, "__qualname__": kind.__qualname__})


def validated(hint: Any) -> Any:
    """A hint in which pydantic itself reads its dataclasses, as it does its models.

    TypeError, with a text for the author, for what else of pydantic would not run.
    """
    if _is_pydantic_dataclass(hint):
        return _stand_in(hint)
    if typing.get_origin(hint) is Annotated:
        for item in hint.__metadata__:
            _refuse_unread(item)
        inner = validated(hint.__origin__)
        return hint if inner is hint.__origin__ else Annotated[(inner, *hint.__metadata__)]
    parts = typing.get_args(hint)
    if not parts or typing.get_origin(hint) is Literal:
        return hint
    read = tuple(map(validated, parts))
    if all(new is old for new, old in zip(read, parts, strict=True)):
        return hint
    if isinstance(hint, UnionType):
        return Union[read]  # noqa: UP007 - of as many as there are
    return hint.copy_with(read) if hasattr(hint, "copy_with") else typing.get_origin(hint)[read]


def _refuse_unread(item: Any) -> None:
    """TypeError for what pydantic would do with an annotation, and nobody else does."""
    name = type(item).__name__
    if not type(item).__module__.startswith("pydantic"):
        return
    if hasattr(item, "func"):
        raise TypeError(
            f"{name} in Annotated would not run; check in the function, or make it a pydantic model's field"
        )
    if name == "FieldInfo":
        if item.alias is not None or item.validation_alias is not None:
            raise TypeError("Field(alias=…) in Annotated would be ignored; name the parameter so")
        if not item.is_required():
            raise TypeError("Field(default=…) in Annotated would be ignored; write the default after =")


def problem(hint: Any, *, is_input: bool = False) -> str | None:
    """Why values of this type cannot be read from JSON or be shown in a schema; None if they can."""
    try:
        for found in parts_of(types.type_info(hint), set()):
            if is_input and isinstance(found, types.DataclassType) and _is_pydantic_dataclass(found.cls):
                return (
                    f"{found.cls.__qualname__} is a pydantic dataclass inside a type that pydantic does not read, "
                    "so its validation would not run; make one of them a pydantic model"
                )
            if isinstance(found, types.CustomType) and not (_is_model(found.cls) or _is_path(found.cls)):
                return f"{getattr(found.cls, '__qualname__', found.cls)} cannot be read from JSON; {_KNOWN}"
            if isinstance(found, types.Field) and found.default is not msgspec.NODEFAULT:
                # msgspec's schemas show defaults, and it would fail on this one when they are asked for.
                msgspec.to_builtins(found.default, str_keys=True)
        # What type_info lets pass: some unions.
        msgspec.json.Decoder(hint, dec_hook=dec_hook)
    except NameError as error:
        return f"the name {error.name!r} in its definition is not defined"
    except (TypeError, ValueError, NotImplementedError, RuntimeError) as error:
        return f"{error}; {_KNOWN}"
    return None


def parts_of(found: Any, seen: set[Any]) -> Iterator[Any]:
    """A type as msgspec sees it, and all types and fields inside it."""
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
