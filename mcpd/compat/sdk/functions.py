"""An author's function: a model of its parameters, and the conversion of what it returns.

Clients see the schema of the model, which validates their arguments. Results become content blocks, and structured
content according to the return annotation.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints, is_typeddict

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, RootModel, WithJsonSchema, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from mcpd.compat.contents import as_block
from mcpd.compat.errors import InvalidSignature
from mcpd.compat.lowlevel.session import SharedContext, current_exchange
from mcpd.compat.types.features import CallToolResult, ContentBlock, TextContent
from mcpd.protocol.printable import printable
from mcpd.protocol.schemas import subschemas
from mcpd.server.functions.annotations import is_coroutine_function, plain_function, untyped_context
from mcpd.server.functions.plain_schema import inlined

log = logging.getLogger("mcpd")


class ArgModelBase(BaseModel):
    """The arguments of a call."""

    model_config = ConfigDict(arbitrary_types_allowed=True, defer_build=True)

    def model_dump_one_level(self) -> dict[str, Any]:
        """Return the arguments by the names of the parameters. Models among them stay models."""
        fields = type(self).model_fields
        return {field.alias or name: getattr(self, name) for name, field in fields.items()}


class FuncMetadata:
    """The model of a function's arguments, and the conversion of its results. Both are made when first needed.

    Raises InvalidSignature for a function that cannot be served.
    """

    def __init__(
        self, func: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None
    ) -> None:
        self._name = getattr(func, "__name__", type(func).__name__)
        self._skipped = set(skip_names)
        self._structured_output = structured_output
        try:
            self._signature = inspect.signature(func, eval_str=True)
        except NameError as error:
            raise InvalidSignature(f"Unable to evaluate type annotations for callable {self._name!r}") from error

        self.returns = self._signature.return_annotation
        for name in self._signature.parameters:
            if name.startswith("_"):
                raise InvalidSignature(f"Parameter {name} of {self._name} cannot start with '_'; rename it")
        if structured_output:
            _ = self._plan  # raises at once if the return annotation does not allow it

    @cached_property
    def arg_model(self) -> type[ArgModelBase]:
        parameters = self._signature.parameters.values()
        fields: Any = dict(_field(parameter) for parameter in parameters if parameter.name not in self._skipped)
        return create_model(f"{self._name}Arguments", __base__=ArgModelBase, **fields)

    @cached_property
    def _plan(self) -> OutputPlan:
        return _output_plan(self.returns, self._name, self._structured_output)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        return self._plan.schema

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Parse the JSON that some models send as a string instead of a list or object."""
        fields = {field.alias or name: field for name, field in self.arg_model.model_fields.items()}
        parsed = dict(data)
        for name, value in data.items():
            # A parameter of type `str` may hold JSON that the author wants as text.
            if isinstance(value, str) and name in fields and fields[name].annotation is not str:
                try:
                    inner = json.loads(value)
                except ValueError:
                    continue
                if not isinstance(inner, (str, int, float)):
                    parsed[name] = inner
        return parsed

    def validated(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call. Raises pydantic's ValidationError."""
        return self.arg_model.model_validate(self.pre_parse_json(arguments)).model_dump_one_level()

    def convert_result(self, result: Any) -> Any:
        """Return what a low-level handler returns: content blocks, or a pair of them and the structured content."""
        plan = self._plan
        # The author made the whole result, so only its structured content is checked.
        if isinstance(result, CallToolResult):
            if plan.model is not None:
                plan.model.model_validate(result.structuredContent)
            return result

        blocks = content_blocks(result)
        if plan.model is None:
            return blocks
        validated = plan.model.model_validate({"result": result} if plan.wraps else result)
        return blocks, validated.model_dump(mode="json", by_alias=True)


func_metadata = FuncMetadata


def _field(parameter: inspect.Parameter) -> tuple[str, Any]:
    # Returns a parameter as the field of a model. A name that models use for a method gets an alias.
    is_bare = parameter.annotation is inspect.Parameter.empty
    annotation: Any = Any if is_bare else parameter.annotation
    name, alias = parameter.name, None
    marks = [WithJsonSchema({"title": name, "type": "string"})] if is_bare else []
    # A field named `copy` or `json` would hide a method of the model.
    if callable(getattr(BaseModel, name, None)):
        name, alias = f"field_{name}", name
    hint: Any = Annotated[(annotation, *marks, Field(alias=alias))]
    return name, hint if parameter.default is inspect.Parameter.empty else (hint, parameter.default)


def function_name(function: Callable[..., Any], name: str | None) -> str:
    """Return the given name or the function's. Raises ValueError for a lambda without a name."""
    chosen = name or function.__name__
    if chosen == "<lambda>":
        raise ValueError("You must provide a name for lambda functions")
    return chosen


def type_hints(function: Any) -> dict[str, Any]:
    """Return the annotations of a function, {} if a name in them cannot be found yet."""
    try:
        return get_type_hints(plain_function(function), include_extras=True)
    except Exception:
        return {}


def context_parameter(function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter that receives the `Context`. The annotation may be a union with it."""
    for name, hint in type_hints(function).items():
        if name != "return" and includes(hint, SharedContext):
            return name
    warn_of_untyped_context(function, getattr(function, "__name__", function))
    return None


def warn_of_untyped_context(function: Callable[..., Any], name: Any) -> None:
    """Log that a parameter looks like the context but lacks the annotation."""
    if context := untyped_context(function, "Context"):
        text = "function %s: parameter %s has no annotation, so clients must fill it in; %s"
        log.warning(text, printable(name), printable(context[0]), printable(context[1]))


def includes(hint: Any, kinds: type | tuple[type, ...], *, in_lists: bool = False) -> bool:
    """Return whether a type is a subclass of these, or one type of a union. With `in_lists`, also an item of a list."""
    origin = get_origin(hint)
    is_list = in_lists and isinstance(origin, type) and issubclass(origin, Sequence)
    if is_list or origin in (Union, UnionType):
        return any(includes(part, kinds, in_lists=in_lists) for part in get_args(hint))
    if origin is Annotated:
        return includes(get_args(hint)[0], kinds, in_lists=in_lists)

    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, kinds)


async def call(function: Callable[[], Any], *, in_thread: bool) -> Any:
    """Call a function, and await what it returns. A plain function runs in a thread, or blocks the event loop."""
    if not in_thread or is_coroutine_function(function):
        result = function()
    else:
        from mcpd.server.functions.threads import run_in_thread

        result = await run_in_thread(function, exchange=current_exchange.get(None))
    return await result if inspect.isawaitable(result) else result


# -- results ---------------------------------------------------------------------------------

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


def _output_plan(annotation: Any, name: str, is_wanted: bool | None) -> OutputPlan:
    # Returns the plan for a return annotation. Raises InvalidSignature if `is_wanted` but not possible.
    if is_wanted is False:
        return OutputPlan()
    if annotation is inspect.Signature.empty and is_wanted:
        raise InvalidSignature(f"Function {name}: return annotation required for structured output")

    hint, *marks = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    if get_origin(hint) in (Union, UnionType) and includes(hint, CallToolResult):
        raise InvalidSignature(
            f"Function {name}: CallToolResult cannot be used in Union or Optional types. "
            "To return empty results, use: CallToolResult(content=[])"
        )

    # `Annotated[CallToolResult, Model]`: the tool returns a complete result, whose structured content is a Model.
    if isinstance(hint, type) and issubclass(hint, CallToolResult):
        if not marks:
            return OutputPlan()
        hint, annotation = marks[0], marks[0] if len(marks) == 1 else Annotated[(marks[0], *marks[1:])]
    plan = OutputPlan()
    try:
        model, wraps = _model(annotation, hint, name)
        if model is not None:
            plan = OutputPlan(model, model.model_json_schema(schema_generator=_Strict), wraps)
    except _UNFIT:
        pass
    if plan.model is None and is_wanted:
        raise InvalidSignature(f"Function {name}: return type {hint} is not serializable for structured output")
    return plan


def _model(annotation: Any, hint: Any, name: str) -> tuple[type[BaseModel] | None, bool]:
    # Returns the model for a type, and whether the result is its member `result`.
    arguments = get_args(hint)
    if isinstance(hint, GenericAlias) and get_origin(hint) is dict and len(arguments) == 2 and arguments[0] is str:
        members = {"__module__": __name__, "__qualname__": f"{name}DictOutput"}
        return type(f"{name}DictOutput", (RootModel[hint],), members), False
    if get_origin(hint) is not None or not isinstance(hint, type) or hint in _PRIMITIVES:
        return create_model(f"{name}Output", result=annotation), True
    if issubclass(hint, BaseModel):
        return hint, False
    hints = get_type_hints(hint)
    if is_typeddict(hint) or type(hint).__name__ == "_TypedDictMeta":
        # Members that may be absent are null by default.
        defaults = dict.fromkeys(hints.keys() - getattr(hint, "__required_keys__", hints.keys()))
    else:
        hints = {key: part for key, part in hints.items() if not key.startswith("_")}
        defaults = {key: getattr(hint, key) for key in hints if hasattr(hint, key)}
    if not hints:
        return None, False

    fields: dict[str, Any] = {key: (part, defaults[key]) if key in defaults else part for key, part in hints.items()}
    return create_model(hint.__name__, __config__=ConfigDict(from_attributes=True), **fields), False


# -- schemas ---------------------------------------------------------------------------------

_KEYWORDS = frozenset(["type", "properties", "$ref", "items", "allOf", "oneOf", "anyOf", "required"])
_NAMING = frozenset(["title", "description", "deprecated", "readOnly", "writeOnly"])


def dereferenced(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace references by their definitions, except in definitions that contain themselves."""
    definitions = schema.get("$defs")
    if not definitions:
        return schema
    return inlined({name: value for name, value in schema.items() if name != "$defs"}, definitions)


def remove_titles(node: dict[str, Any]) -> None:
    """Remove titles from a schema, but not members that are called "title"."""
    if isinstance(node.get("title"), str) and (not _KEYWORDS.isdisjoint(node) or _NAMING.issuperset(node)):
        del node["title"]
    for child in subschemas(node):
        remove_titles(child)
