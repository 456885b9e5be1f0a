"""Hints that pydantic reads: a stand-in for each, which msgspec takes for a class of ours and hands to a hook.

pydantic is imported here, and only when a function is registered whose hints msgspec cannot read as they are meant.
Its reading is the one that its users know: lax, from JSON. Never decides which hints those are (`hints`).
"""

from __future__ import annotations

import re
import typing
from typing import Annotated, Any

from msgspec import Meta

from mcpd.registry.metadata import LIMITS, is_third_party, rebuilt
from mcpd.registry.msgspec_hooks import StandIn


def stand_in(hint: Any) -> StandIn:
    """A class that stands for `hint`. TypeError, with a text for the author, if pydantic cannot read or show it."""
    import pydantic  # noqa: PLC0415 - an extra of the author's

    try:
        adapter = pydantic.TypeAdapter(_in_pydantic_terms(hint, pydantic.Field))
        for mode in ("validation", "serialization"):
            adapter.json_schema(mode=mode)
    except Exception as error:  # pydantic's own, and what the author's code raises
        text = str(error).partition("\n")[0].partition(". Set `arbitrary_types_allowed")[0]
        raise TypeError(f"pydantic cannot read {_name(hint)}: {text}") from error
    name = _name(hint)
    return StandIn(name, (), {"adapter": adapter, "__module__": "pydantic", "__qualname__": name})


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else re.sub(r"\b[\w.]+\.", "", str(hint))


def _in_pydantic_terms(hint: Any, field: Any) -> Any:
    """A hint with what msgspec and type checkers know of metadata as pydantic's `Field`."""
    if typing.get_origin(hint) is Annotated:
        items = [_as_field(item, field) for item in hint.__metadata__]
        return Annotated[(_in_pydantic_terms(hint.__origin__, field), *items)]
    return rebuilt(hint, lambda part: _in_pydantic_terms(part, field))


def _as_field(item: Any, field: Any) -> Any:
    if isinstance(item, str):
        return field(description=item)
    if isinstance(item, Meta):
        names = (*LIMITS, "title", "description", "examples")
        said = {name: value for name in names if (value := getattr(item, name)) is not None}
        return field(**said, json_schema_extra=item.extra_json_schema)
    documentation = getattr(item, "documentation", None)
    if isinstance(documentation, str) and not is_third_party(type(item)):
        return field(description=documentation)
    return item
