"""The parameters of a function as a pydantic model. Clients see its schema, and it validates their arguments."""

from __future__ import annotations

import functools
import inspect
import json
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, get_args, get_origin, get_type_hints, is_typeddict

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from mcpd.compat.errors import InvalidSignature
from mcpd.compat.install import serves_in_threads
from mcpd.compat.lowlevel.context import SharedContext, current_exchange
from mcpd.compat.types.features import CallToolResult
from mcpd.protocol.printable import printable
from mcpd.server.functions.annotations import untyped_context

if TYPE_CHECKING:
    from mcpd.compat.sdk.results import OutputPlan
    from mcpd.compat.types.base import Icon

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
        self, function: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None
    ) -> None:
        self._name = getattr(function, "__name__", type(function).__name__)
        self._skipped = set(skip_names)
        self._structured_output = structured_output
        try:
            self._signature = inspect.signature(function, eval_str=True)
        except NameError as error:
            raise InvalidSignature(f"Unable to evaluate type annotations for callable {self._name!r}") from error
        for name in self._signature.parameters:
            if name.startswith("_"):
                raise InvalidSignature(f"Parameter {name} of {self._name} cannot start with '_'; rename it")
        if structured_output:
            _ = self._plan  # raises at once if the return annotation does not allow it

    @property
    def returns(self) -> Any:
        return self._signature.return_annotation

    @cached_property
    def arg_model(self) -> type[ArgModelBase]:
        fields: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            if parameter.name not in self._skipped:
                name, field = _field(parameter)
                fields[name] = field
        return create_model(f"{self._name}Arguments", __base__=ArgModelBase, **fields)

    @cached_property
    def _plan(self) -> OutputPlan:
        from mcpd.compat.sdk.results import output_plan  # not needed before the first list or call

        return output_plan(self.returns, self._name, self._structured_output)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of structured results, or None."""
        return self._plan.schema

    @property
    def output_model(self) -> type[BaseModel] | None:
        return self._plan.model

    @property
    def wrap_output(self) -> bool:
        """Whether a result is the member `result` of an object."""
        return self._plan.wraps

    @cached_property
    def _texts(self) -> dict[str, bool]:
        """Whether the parameter is a plain `str`, by each name that its argument may have."""
        fields = self.arg_model.model_fields.items()
        return {known: field.annotation is str for name, field in fields for known in (name, field.alias) if known}

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Parse the JSON that some models send as a string instead of a list or object."""
        parsed = dict(data)
        for name, value in data.items():
            if isinstance(value, str) and not self._texts.get(name, True):
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

    async def call_fn_with_arg_validation(
        self,
        fn: Callable[..., Any],
        fn_is_async: bool,
        arguments_to_validate: dict[str, Any],
        arguments_to_pass_directly: dict[str, Any] | None,
    ) -> Any:
        """Call the function. Raises pydantic's ValidationError for invalid arguments."""
        arguments = {**self.validated(arguments_to_validate), **(arguments_to_pass_directly or {})}
        return await call(functools.partial(fn, **arguments), is_async=fn_is_async, in_thread=serves_in_threads())

    def convert_result(self, result: Any) -> Any:
        """Return what a low-level handler returns: content blocks, or a pair of them and the structured content."""
        from mcpd.compat.sdk.results import content_blocks

        plan = self._plan
        if isinstance(result, CallToolResult):
            if plan.model is not None:
                plan.model.model_validate(result.structuredContent)
            return result

        blocks = content_blocks(result)
        if plan.model is None:
            return blocks
        validated = plan.model.model_validate({"result": result} if plan.wraps else result)
        return blocks, validated.model_dump(mode="json", by_alias=True)


class FuncMetadata2(FuncMetadata):
    """The same for version 2: members that a TypedDict may omit are omitted, and not null."""

    @cached_property
    def _plan(self) -> OutputPlan:
        plan = super()._plan
        # Version 1 writes null for such members, which its own schema does not allow.
        if plan.schema is not None and is_typeddict(self.returns):
            members = plan.schema.get("properties", {})
            for name in members.keys() - set(plan.schema.get("required", ())):
                members[name].pop("default", None)
        return plan

    def convert_result(self, result: Any) -> Any:
        found = super().convert_result(result)
        if isinstance(found, tuple) and is_typeddict(self.returns):
            return found[0], {name: value for name, value in found[1].items() if name in result}
        return found


def func_metadata(
    func: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None
) -> FuncMetadata:
    """Return the metadata of a function. Raises InvalidSignature."""
    return FuncMetadata(func, skip_names, structured_output)


def _field(parameter: inspect.Parameter) -> tuple[str, Any]:
    """Return a parameter as the field of a model. A name that models use for a method gets an alias."""
    is_bare = parameter.annotation is inspect.Parameter.empty
    annotation: Any = Any if is_bare else parameter.annotation
    name, alias = parameter.name, None
    marks = [WithJsonSchema({"title": name, "type": "string"})] if is_bare else []
    if callable(getattr(BaseModel, name, None)):
        name, alias = f"field_{name}", name
    hint: Any = Annotated[(annotation, *marks, Field(alias=alias))]
    return name, hint if parameter.default is inspect.Parameter.empty else (hint, parameter.default)


class Component:
    """A function as a tool, prompt or template, and what clients see of it. Members are passed by keyword."""

    fn: Callable[..., Any]
    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    annotations: Any = None
    meta: dict[str, Any] | None = None
    context_kwarg: str | None = None

    is_second: ClassVar[bool] = False
    """Whether it behaves like version 2, where clients do not receive the messages of unexpected exceptions."""

    def __init__(self, **members: Any) -> None:
        vars(self).update(members)

    @classmethod
    def _of_function(
        cls,
        fn: Callable[..., Any],
        name: str | None,
        description: str | None,
        context_kwarg: str | None,
        **members: Any,
    ) -> Self:
        return cls(
            fn=fn,
            name=function_name(fn, name),
            description=description or fn.__doc__ or "",
            context_kwarg=context_kwarg or context_parameter(fn),
            **members,
        )

    async def _call(self, values: dict[str, Any], context: Any) -> Any:
        if self.context_kwarg and context is not None:
            values = {**values, self.context_kwarg: context}
        function = functools.partial(self.fn, **values)
        return await call(function, is_async=is_async(self.fn), in_thread=self.is_second)

    @property
    def _skipped(self) -> list[str]:
        """The parameters that clients do not see."""
        return [self.context_kwarg] if self.context_kwarg else []


def function_name(function: Callable[..., Any], name: str | None) -> str:
    """Return the given name or the function's. Raises ValueError for a lambda without a name."""
    found = name or function.__name__
    if found == "<lambda>":
        raise ValueError("You must provide a name for lambda functions")
    return found


def context_parameter(function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter that receives the `Context`, which may be a part of its annotation."""
    try:
        hints = get_type_hints(function)
    except Exception:  # a name that cannot be found yet
        return None

    for name, hint in hints.items():
        for part in (hint, get_origin(hint), *get_args(hint)):
            kind = get_origin(part) or part
            if name != "return" and isinstance(kind, type) and issubclass(kind, SharedContext):
                return name
    warn_of_untyped_context(function, getattr(function, "__name__", function))
    return None


def warn_of_untyped_context(function: Callable[..., Any], name: Any) -> None:
    """Log that a parameter looks like the context but lacks the annotation."""
    if context := untyped_context(function, "Context"):
        text = "function %s: parameter %s has no annotation, so clients must fill it in; %s"
        log.warning(text, printable(name), printable(context[0]), printable(context[1]))


def is_async(function: Any) -> bool:
    """Return whether calling the function returns a coroutine."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def call(function: Callable[[], Any], *, is_async: bool, in_thread: bool) -> Any:
    """Call a function, and await what it returns. A plain function runs in a thread, or blocks the event loop."""
    if is_async or not in_thread:
        result = function()
    else:
        from mcpd.server.functions.threads import run_in_thread

        result = await run_in_thread(function, exchange=current_exchange.get(None))
    return await result if inspect.isawaitable(result) else result
