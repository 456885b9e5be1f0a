"""`mcp.server.elicitation`: forms whose fields are those of a pydantic model."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Generic, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel

__all__ = [
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "CancelledElicitation",
    "DeclinedElicitation",
    "ElicitSchemaModelT",
    "ElicitationResult",
    "UrlElicitationResult",
    "elicit_url",
    "elicit_with_validation",
]

ElicitSchemaModelT = TypeVar("ElicitSchemaModelT", bound=BaseModel)

_PRIMITIVES = (str, int, float, bool)


class AcceptedElicitation(BaseModel, Generic[ElicitSchemaModelT]):
    """The user has filled in the form."""

    action: Literal["accept"] = "accept"
    data: ElicitSchemaModelT


class DeclinedElicitation(BaseModel):
    """The user has said no."""

    action: Literal["decline"] = "decline"

    def __bool__(self) -> bool:
        return False  # otherwise `if await ctx.elicit(…):` would go on although the user said no


class CancelledElicitation(BaseModel):
    """The user has not answered."""

    action: Literal["cancel"] = "cancel"

    def __bool__(self) -> bool:
        return False


class AcceptedUrlElicitation(BaseModel):
    """The user will visit the page."""

    action: Literal["accept"] = "accept"


ElicitationResult: TypeAlias = AcceptedElicitation[ElicitSchemaModelT] | DeclinedElicitation | CancelledElicitation
UrlElicitationResult: TypeAlias = AcceptedUrlElicitation | DeclinedElicitation | CancelledElicitation


async def elicit_with_validation(
    session: Any, message: str, schema: type[ElicitSchemaModelT], related_request_id: Any = None
) -> ElicitationResult[ElicitSchemaModelT]:
    """Ask by a form. Raises TypeError for a model with fields that no form has."""
    for name, field in schema.model_fields.items():
        if not _is_plain(field.annotation):
            raise TypeError(
                f"Elicitation schema field '{name}' must be a primitive type {_PRIMITIVES}, a sequence of strings "
                "(list[str], etc.), or Optional of these types. Nested models and complex types are not allowed."
            )
    answer = await session.elicit_form(message, schema.model_json_schema(), related_request_id)
    if answer.action == "accept" and answer.content is not None:
        # Made at once: what the model reads may be more than its fields.
        return AcceptedElicitation.model_construct(action="accept", data=schema.model_validate(answer.content))
    return _not_accepted(answer.action)


async def elicit_url(
    session: Any, message: str, url: str, elicitation_id: str, related_request_id: Any = None
) -> UrlElicitationResult:
    """Ask to visit a page."""
    answer = await session.elicit_url(message, url, elicitation_id, related_request_id)
    return AcceptedUrlElicitation() if answer.action == "accept" else _not_accepted(answer.action)


def _not_accepted(action: str) -> DeclinedElicitation | CancelledElicitation:
    if action == "decline":
        return DeclinedElicitation()
    if action == "cancel":
        return CancelledElicitation()
    raise ValueError(f"Unexpected elicitation action: {action}")


def _is_plain(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return all(_is_plain(one) for one in get_args(hint))
    return hint in (None, NoneType, *_PRIMITIVES) or _is_texts(hint)


def _is_texts(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Sequence) and get_args(hint) == (str,)
