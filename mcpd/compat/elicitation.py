"""Forms for users: for the fields of a pydantic model (the official SDK), or for any value (`fastmcp`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from mcpd.compat.sdk.functions import dereferenced, remove_titles

T = TypeVar("T")
ElicitSchemaModelT = TypeVar("ElicitSchemaModelT", bound=BaseModel)

_PRIMITIVES = (str, int, float, bool)


class AcceptedElicitation(BaseModel, Generic[ElicitSchemaModelT]):
    """The user filled in the form."""

    action: Literal["accept"] = "accept"
    data: ElicitSchemaModelT


class DeclinedElicitation(BaseModel):
    """The user refused."""

    action: Literal["decline"] = "decline"

    def __bool__(self) -> bool:
        return False  # otherwise `if await ctx.elicit(…):` would go on although the user refused


class CancelledElicitation(BaseModel):
    """The user closed the form."""

    action: Literal["cancel"] = "cancel"

    def __bool__(self) -> bool:
        return False


class AcceptedUrlElicitation(BaseModel):
    """The user agreed to visit the page."""

    action: Literal["accept"] = "accept"


ElicitationResult: TypeAlias = AcceptedElicitation[ElicitSchemaModelT] | DeclinedElicitation | CancelledElicitation
UrlElicitationResult: TypeAlias = AcceptedUrlElicitation | DeclinedElicitation | CancelledElicitation


def _refusal(action: str) -> DeclinedElicitation | CancelledElicitation:
    return DeclinedElicitation() if action == "decline" else CancelledElicitation()


# -- the official SDK ------------------------------------------------------------------------


async def elicit_with_validation(
    session: Any, message: str, schema: type[ElicitSchemaModelT], related_request_id: Any = None
) -> ElicitationResult[ElicitSchemaModelT]:
    """Ask with a form. Raises TypeError for a model with fields that forms do not support."""
    for name, field in schema.model_fields.items():
        if not _is_primitive(field.annotation):
            raise TypeError(
                f"Elicitation schema field '{name}' must be a primitive type {_PRIMITIVES}, a sequence of strings "
                "(list[str], etc.), or Optional of these types. Nested models and complex types are not allowed."
            )

    response = await session.elicit_form(message, schema.model_json_schema(), related_request_id)
    if response.action != "accept":
        return _refusal(response.action)
    # The data are valid already. Validating the instance again would run the model's validators twice.
    return AcceptedElicitation.model_construct(action="accept", data=schema.model_validate(response.content))


async def elicit_url(
    session: Any, message: str, url: str, elicitation_id: str, related_request_id: Any = None
) -> UrlElicitationResult:
    response = await session.elicit_url(message, url, elicitation_id, related_request_id)
    return AcceptedUrlElicitation() if response.action == "accept" else _refusal(response.action)


def _is_primitive(hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return all(map(_is_primitive, arguments))
    is_texts = isinstance(origin, type) and issubclass(origin, Sequence) and arguments == (str,)
    return is_texts or hint in (None, NoneType, *_PRIMITIVES)


# -- fastmcp ---------------------------------------------------------------------------------

_PRIMITIVE_NAMES = {"string", "number", "integer", "boolean"}


@dataclass
class ScalarElicitationType(Generic[T]):
    """A form with one field."""

    value: T


async def elicit(session: Any, message: str, response_type: Any, title: str | None, description: str | None) -> Any:
    """Ask with a form for a value, a choice, a model or a dataclass. Raises TypeError for other types."""
    if response_type is None:
        # Version 4 has no default any more, because an empty form cannot be distinguished from a confirmation.
        raise TypeError("ctx.elicit() requires a response_type. Use `bool` for a confirmation.")

    schema, kind = _form(response_type)
    texts = {name: text for name, text in (("title", title), ("description", description)) if text is not None}
    if texts and get_origin(kind) is not ScalarElicitationType:
        raise TypeError("response_title and response_description are for forms with one field only.")
    if texts:
        schema["properties"]["value"].update(texts)
    _check(schema)

    response = await session.elicit_form(message, schema)
    if response.action != "accept":
        return _refusal(response.action)
    data = TypeAdapter(kind).validate_python(response.content)
    return AcceptedElicitation[Any](data=data.value if isinstance(data, ScalarElicitationType) else data)


def _form(response_type: Any) -> tuple[dict[str, Any], Any]:
    # Returns the schema of a form, and the type that its response is validated as.
    if isinstance(response_type, (dict, list)) and get_origin(response_type) is None:
        return _choices(response_type)
    is_scalar = response_type in _PRIMITIVES or get_origin(response_type) in (Literal, list)
    if not is_scalar and not (isinstance(response_type, type) and issubclass(response_type, Enum)):
        return _schema(response_type), response_type

    kind: Any = ScalarElicitationType[response_type]
    schema = _schema(kind)
    # The title would be the name of our own class, and users would see it.
    schema.pop("title", None)
    return schema, kind


def _schema(hint: Any) -> dict[str, Any]:
    # Enumerations are inlined, since forms have no references. Users see the other titles as labels of fields.
    schema = TypeAdapter(hint).json_schema()
    for definition in schema.get("$defs", {}).values():
        remove_titles(definition)
    return dereferenced(schema)


def _choices(choices: Any) -> tuple[dict[str, Any], Any]:
    # Returns the schema and type of a choice: of these strings, or of several if they are in a nested list.
    # A dict has a title for each string.
    is_multiple = isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], (list, dict))
    options = choices[0] if is_multiple else choices
    if not options or not all(isinstance(name, str) for name in options):
        raise ValueError(f"Invalid response_type format. Received: {choices}")

    names = tuple(options)
    kind: Any = Literal[names]
    value: dict[str, Any]
    if isinstance(options, dict):
        titled = [{"const": name, "title": options[name].get("title", name)} for name in names]
        value = {"anyOf": titled} if is_multiple else {"oneOf": titled, "type": "string"}
    else:
        value = {"enum": list(names), "type": "string"}
        if not is_multiple:
            value["title"] = "Value"
    if is_multiple:
        value, kind = {"type": "array", "items": value}, list[kind]
    schema = {"type": "object", "properties": {"value": value}, "required": ["value"]}
    return schema, ScalarElicitationType[kind]


def _check(schema: dict[str, Any]) -> None:
    if schema.get("type") != "object":
        raise TypeError(f"Elicitation schema must be an object schema, got type '{schema.get('type')}'.")

    # Forms have flat fields of primitive types, since clients show an input for each one (2025-11-25
    # client/elicitation).
    for name, member in schema.get("properties", {}).items():
        if not {"const", "enum", "oneOf"}.isdisjoint(member):
            continue
        kinds = {part.get("type") for part in member.get("anyOf", [member])} - {"null"}
        is_choice = kinds == {"array"} and not {"enum", "anyOf"}.isdisjoint(member.get("items", {}))
        if not is_choice and not kinds <= _PRIMITIVE_NAMES:
            kind = ", ".join(sorted(map(str, kinds)))
            raise TypeError(f"Elicitation schema field '{name}' has type '{kind}' which is not a primitive type.")
