"""Results of tools as content blocks, and as structured content according to the return annotation."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints, is_typeddict

import pydantic_core
from pydantic import BaseModel, ConfigDict, RootModel, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from mcpd.compat.contents import as_block
from mcpd.compat.errors import InvalidSignature
from mcpd.compat.types.base import ContentBlock, TextContent
from mcpd.compat.types.features import CallToolResult

_PRIMITIVES = (str, int, float, bool, bytes, NoneType)
_UNFIT = (TypeError, ValueError, PydanticUserError, pydantic_core.SchemaError, pydantic_core.ValidationError)


class OutputPlan(NamedTuple):
    """The model of structured results, its schema, and whether a result is its member `result`."""

    model: type[BaseModel] | None = None
    schema: dict[str, Any] | None = None
    wraps: bool = False


class _Strict(GenerateJsonSchema):
    """Rejects types that a schema cannot describe completely. They have no structured output."""

    def emit_warning(self, kind: Any, detail: str) -> NoReturn:
        raise ValueError(f"JSON schema warning: {kind} - {detail}")


def content_blocks(result: Any) -> list[Any]:
    """Return a result as content blocks: each item of a list, a string as it is, other values as indented JSON."""
    if result is None:
        return []
    result = as_block(result)
    if isinstance(result, ContentBlock):
        return [result]
    if isinstance(result, (list, tuple)):
        return [block for item in result for block in content_blocks(item)]
    if not isinstance(result, str):
        result = pydantic_core.to_json(result, fallback=str, indent=2).decode()
    return [TextContent(text=result)]


def output_plan(annotation: Any, name: str, is_wanted: bool | None) -> OutputPlan:
    """Return the plan for a return annotation. Raises InvalidSignature if `is_wanted` but not possible."""
    if is_wanted is False:
        return OutputPlan()
    if annotation is inspect.Signature.empty and is_wanted:
        raise InvalidSignature(f"Function {name}: return annotation required for structured output")
    hint, marks = _bare(annotation)
    if get_origin(hint) in (Union, UnionType) and any(
        isinstance(part, type) and issubclass(part, CallToolResult) for part in get_args(hint)
    ):
        raise InvalidSignature(
            f"Function {name}: CallToolResult cannot be used in Union or Optional types. "
            "To return empty results, use: CallToolResult(content=[])"
        )

    # `Annotated[CallToolResult, Model]`: the tool returns a complete result, whose structured content is a Model.
    if isinstance(hint, type) and issubclass(hint, CallToolResult):
        if not marks:
            return OutputPlan()
        hint, annotation = marks[0], marks[0] if len(marks) == 1 else Annotated[(marks[0], *marks[1:])]
    plan = _plan(annotation, hint, name)
    if plan.model is None and is_wanted:
        raise InvalidSignature(f"Function {name}: return type {hint} is not serializable for structured output")
    return plan


def _bare(annotation: Any) -> tuple[Any, Sequence[Any]]:
    if get_origin(annotation) is Annotated:
        hint, *marks = get_args(annotation)
        return hint, marks
    return annotation, ()


def _plan(annotation: Any, hint: Any, name: str) -> OutputPlan:
    try:
        model, wraps = _model(annotation, hint, name)
        return (
            OutputPlan()
            if model is None
            else OutputPlan(model, model.model_json_schema(schema_generator=_Strict), wraps)
        )
    except _UNFIT:
        return OutputPlan()


def _model(annotation: Any, hint: Any, name: str) -> tuple[type[BaseModel] | None, bool]:
    """Return the model for a type, and whether the result is its member `result`."""
    arguments = get_args(hint)
    if isinstance(hint, GenericAlias) and get_origin(hint) is dict and len(arguments) == 2 and arguments[0] is str:
        return _named(f"{name}DictOutput", hint), False
    if get_origin(hint) is not None or not isinstance(hint, type) or hint in _PRIMITIVES:
        return create_model(f"{name}Output", result=annotation), True
    if issubclass(hint, BaseModel):
        return hint, False
    if is_typeddict(hint) or type(hint).__name__ == "_TypedDictMeta":
        return _of_typed_dict(hint), False
    hints = get_type_hints(hint)
    return (_of_class(hint, hints), False) if hints else (None, False)


def _named(name: str, hint: Any) -> type[BaseModel]:
    return type(name, (RootModel[hint],), {"__module__": __name__, "__qualname__": name})


def _of_typed_dict(hint: Any) -> type[BaseModel]:
    """Return a model in which members that may be absent are null by default."""
    hints = get_type_hints(hint)
    required = getattr(hint, "__required_keys__", set(hints))
    fields: dict[str, Any] = {key: one if key in required else (one, None) for key, one in hints.items()}
    return create_model(hint.__name__, **fields)


def _of_class(hint: Any, hints: dict[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for key, one in hints.items():
        if not key.startswith("_"):
            fields[key] = (one, getattr(hint, key)) if hasattr(hint, key) else one
    return create_model(hint.__name__, __config__=ConfigDict(from_attributes=True), **fields)
