"""What a parameter or a return annotation is read as: by msgspec wherever it can, else by pydantic.

`argument` makes a parameter a field of the struct that takes a function's arguments; `readable` brings one hint to a
form that msgspec decodes. Never sees values. Raises RegistrationError with what to write instead.
"""

from __future__ import annotations

import sys
import typing
from inspect import Parameter as Slot
from typing import Annotated, Any

import msgspec

from mcpd.errors import RegistrationError
from mcpd.registry.annotations import PLAIN_TYPES
from mcpd.registry.metadata import BeyondMsgspecError, in_msgspec_terms, is_field_info, optional
from mcpd.registry.msgspec_hooks import UNION, is_pydantic_here, problem
from mcpd.registry.records import record_type
from mcpd.registry.type_adapter import stand_in

# Types whose defaults are JSON as they are.
_JSON = frozenset((bool, int, float, str))
_INSTALL = "; or install pydantic, which reads it: pip install pydantic"


def argument(slot: Slot, hint: Any, where: str) -> tuple[Any, ...]:
    """A parameter as a field for msgspec.defstruct. `where` names it in a RegistrationError."""
    default = slot.default
    _refuse_others(default, hint, where)
    if is_field_info(default):
        hint = Annotated[Any if hint is Slot.empty else hint, default]
        default = Slot.empty

    options: dict[str, Any] = {} if default is Slot.empty else _default(default)
    if typing.get_origin(hint) is Annotated:
        hint, said = _field_options(hint, where)
        options = {**said, **options}  # what stands after = is Python's default

    hint = readable(hint, where, has_none_default="default" in options and options["default"] is None)
    if not options:
        return (slot.name, hint)
    if options.keys() == {"default"}:
        return (slot.name, hint, options["default"])
    return (slot.name, hint, msgspec.field(**options))


def _refuse_others(default: Any, hint: Any, where: str) -> None:
    """Refuse another library's dependency: taken for a default, it would be the client's to give."""
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
    """A default that the author wrote as a value, as a factory; schemas show it, and no other factory's values."""

    def __init__(self, value: Any) -> None:
        self.value = value
        try:
            hash(value)
        except TypeError:
            self.is_shared = False
        else:
            self.is_shared = True

    def __call__(self) -> Any:
        """The value; a copy of one that calls could change, which Python would share between them."""
        if self.is_shared:
            return self.value
        from copy import deepcopy  # noqa: PLC0415 - most defaults are values

        return deepcopy(self.value)


def _field_options(hint: Any, where: str) -> tuple[Any, dict[str, Any]]:
    """A hint whose `Field`s only say what its values are, and what else they said: a default, another name."""
    options: dict[str, Any] = {}
    metadata = []
    for item in hint.__metadata__:
        if not is_field_info(item):
            metadata.append(item)
            continue

        name = item.validation_alias if item.validation_alias is not None else item.alias
        if name is not None:
            if not isinstance(name, str):
                raise RegistrationError(f"{where}: Field(validation_alias=…) takes one name here, as a str")
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
        raise RegistrationError(f"{where}: Field(default_factory=…) takes a function without parameters here")
    return {"default_factory": info.default_factory}


def _without_options(info: Any) -> Any:
    from copy import copy  # noqa: PLC0415 - whoever has pydantic has it loaded

    plain = copy(info)
    plain.default = type(info)().default
    plain.default_factory = plain.alias = plain.validation_alias = plain.serialization_alias = None
    return plain


def readable(hint: Any, where: str, *, has_none_default: bool = False) -> Any:
    """A hint as msgspec reads it; with a stand-in for what pydantic has to read.

    `object` and no annotation mean anything. A default of None admits null although the annotation does not
    say so: a model reads the default in the schema and sends it.
    """
    if hint is object or hint is Slot.empty:
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

    if not is_pydantic_here() or reason.startswith("Can only set"):  # a limit of Meta's beside a type without it
        raise RegistrationError(f"{where}: {reason}{_INSTALL if is_beyond or reason.startswith(UNION) else ''}")
    try:
        return stand_in(hint)
    except TypeError as error:
        raise RegistrationError(f"{where}: {f'{reason}: {error}' if is_beyond else reason}") from error


def readable_output(hint: Any) -> Any:
    """A return annotation as msgspec reads it, or a stand-in; None if neither can read and show it.

    Imports pydantic only for unions: any other class that msgspec does not know is mostly no data at all.
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
