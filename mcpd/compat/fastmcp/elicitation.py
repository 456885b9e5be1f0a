"""`Context.elicit`: forms for a value, a choice, a model or a dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, TypeVar, get_origin

from pydantic import BaseModel, TypeAdapter

from mcpd.compat.elicitation import CancelledElicitation, DeclinedElicitation
from mcpd.compat.fastmcp.schemas import dereferenced, pruned

__all__ = ["AcceptedElicitation", "CancelledElicitation", "DeclinedElicitation", "ScalarElicitationType", "elicit"]

T = TypeVar("T")

_PRIMITIVES = {"string", "number", "integer", "boolean"}


class AcceptedElicitation(BaseModel, Generic[T]):
    """The user has filled in the form."""

    action: Literal["accept"] = "accept"
    data: T


@dataclass
class ScalarElicitationType(Generic[T]):
    """A form of one field."""

    value: T


class _Form:
    """The schema of a form, and what reads its answer."""

    def __init__(self, wanted: Any) -> None:
        self._is_value = True
        self._reads: Any = None
        self._is_bare = False
        if isinstance(wanted, (dict, list)) and get_origin(wanted) is None:
            self.schema, self._reads = _choices(wanted)
            self._is_bare = True
        elif wanted in (bool, int, float, str) or get_origin(wanted) in (Literal, list) or _is_enum(wanted):
            self._reads = ScalarElicitationType[wanted]
            self.schema = _schema(self._reads)
            self.schema.pop("title", None)
        else:
            self._is_value, self._reads = False, wanted
            self.schema = _schema(wanted)

    def name_it(self, title: str | None, description: str | None) -> None:
        """Say what the value is. Raises TypeError for forms of several fields."""
        if title is None and description is None:
            return
        if not self._is_value:
            raise TypeError(
                "response_title and response_description are only supported when response_type is a scalar, Literal, "
                "Enum, or the dict/list shorthand forms."
            )
        said = {"title": title, "description": description}
        self.schema["properties"]["value"].update({key: one for key, one in said.items() if one is not None})

    def read(self, answer: Any) -> Any:
        """What was filled in. Raises ValueError for what does not fit."""
        if self._is_bare:
            if not isinstance(answer, dict) or "value" not in answer:
                raise ValueError("Elicitation response missing required 'value' field.")
            return TypeAdapter(self._reads).validate_python(answer["value"])
        found = TypeAdapter(self._reads).validate_python(answer)
        return found.value if isinstance(found, ScalarElicitationType) else found


async def elicit(session: Any, message: str, wanted: Any, title: str | None, description: str | None) -> Any:
    """Ask by a form. Raises TypeError for what no form has."""
    if wanted is None:
        raise TypeError(
            "ctx.elicit() requires a response_type. Pass a type describing the data you expect back — use `bool` for "
            "a confirmation."
        )
    form = _Form(wanted)
    form.name_it(title, description)
    _check(form.schema)
    answer = await session.elicit_form(message, form.schema)
    if answer.action == "accept":
        return AcceptedElicitation[Any](data=form.read(answer.content))
    return DeclinedElicitation() if answer.action == "decline" else CancelledElicitation()


def _is_enum(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, Enum)


def _schema(wanted: Any) -> dict[str, Any]:
    """Enumerations are written where they are used: forms have no references."""
    schema = TypeAdapter(wanted).json_schema()
    titles = {name: one.get("title") for name, one in schema.get("properties", {}).items()}
    whole = schema.get("title")
    schema = dereferenced(pruned(schema))
    for name, one in schema.get("properties", {}).items():
        if titles.get(name):
            one.setdefault("title", titles[name])
    if whole:
        schema["title"] = whole
    return schema


def _choices(wanted: Any) -> tuple[dict[str, Any], Any]:
    """One of these texts, or several where they are in a list of their own; a dict has a title for each."""
    many = isinstance(wanted, list) and len(wanted) == 1 and isinstance(wanted[0], (list, dict))
    given = wanted[0] if many else wanted
    if not given or not all(isinstance(one, str) for one in given):
        raise ValueError(f"Invalid response_type format. Received: {wanted}")
    names = tuple(given)
    one_of: Any = Literal[names]
    if isinstance(given, dict):
        titled = [{"const": name, "title": given[name].get("title", name)} for name in names]
        value: dict[str, Any] = {"anyOf": titled} if many else {"oneOf": titled, "type": "string"}
    else:
        value = (
            {"type": "string", "enum": list(names)}
            if many
            else {"enum": list(names), "title": "Value", "type": "string"}
        )
    if many:
        value = {"type": "array", "items": value}
    return {"type": "object", "properties": {"value": value}, "required": ["value"]}, list[one_of] if many else one_of


def _check(schema: dict[str, Any]) -> None:
    if schema.get("type") != "object":
        raise TypeError(
            f"Elicitation schema must be an object schema, got type '{schema.get('type')}'. "
            "Elicitation schemas are limited to flat objects with primitive properties only."
        )
    for name, one in schema.get("properties", {}).items():
        if not {"const", "enum", "oneOf"}.isdisjoint(one):
            continue
        kinds = {each.get("type") for each in one["anyOf"]} if "anyOf" in one else {one.get("type")}
        if kinds == {"array"} and not {"enum", "anyOf"}.isdisjoint(one.get("items", {})):
            continue
        if not kinds - {"null"} <= _PRIMITIVES:
            kind = ", ".join(sorted(map(str, kinds - {"null"})))
            raise TypeError(
                f"Elicitation schema field '{name}' has type '{kind}' which is not a primitive type. "
                f"Only {_PRIMITIVES} are allowed in elicitation schemas."
            )
