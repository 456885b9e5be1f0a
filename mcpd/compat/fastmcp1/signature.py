"""A function's parameters as a pydantic model, whose schema clients see and which reads their arguments."""

from __future__ import annotations

import functools
import inspect
import json
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from mcpd.compat.fastmcp1.context import Context
from mcpd.compat.fastmcp1.errors import InvalidSignature
from mcpd.compat.install import serves_in_threads
from mcpd.compat.lowlevel.context import current_exchange
from mcpd.compat.types.tools import CallToolResult
from mcpd.protocol.printable import printable
from mcpd.server.functions.annotations import untyped_context

if TYPE_CHECKING:
    from mcpd.compat.fastmcp1.outputs import OutputPlan

__all__ = ["ArgModelBase", "FuncMetadata", "call_plain", "context_parameter", "func_metadata", "is_async"]


log = logging.getLogger("mcpd")


class ArgModelBase(BaseModel):
    """The arguments of a call."""

    model_config = ConfigDict(arbitrary_types_allowed=True, defer_build=True)

    def model_dump_one_level(self) -> dict[str, Any]:
        """The arguments by the names of the function's parameters; models among them stay models."""
        fields = type(self).model_fields
        return {field.alias or name: getattr(self, name) for name, field in fields.items()}


class FuncMetadata:
    """A function's model of arguments, and what becomes of its result. Both are made when they are needed first."""

    def __init__(
        self, function: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None
    ) -> None:
        self._function = function
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
            _ = self._plan

    @cached_property
    def arg_model(self) -> type[ArgModelBase]:
        """The arguments."""
        fields: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            if parameter.name not in self._skipped:
                name, field = _field(parameter)
                fields[name] = field
        return create_model(f"{self._name}Arguments", __base__=ArgModelBase, **fields)

    @cached_property
    def _plan(self) -> OutputPlan:
        from mcpd.compat.fastmcp1.outputs import output_plan  # before the first list or call nobody needs it

        return output_plan(self._signature.return_annotation, self._name, self._structured_output)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema of structured results, None if they have none."""
        return self._plan.schema

    @property
    def output_model(self) -> type[BaseModel] | None:
        """The model of structured results."""
        return self._plan.model

    @property
    def wrap_output(self) -> bool:
        """Whether a result is the member `result` of an object."""
        return self._plan.wraps

    @cached_property
    def _texts(self) -> dict[str, bool]:
        """For each name that an argument may come by: whether its parameter is a plain `str`."""
        found: dict[str, bool] = {}
        for name, field in self.arg_model.model_fields.items():
            for known in (name, field.alias):
                if known:
                    found[known] = field.annotation is str
        return found

    def pre_parse_json(self, data: dict[str, Any]) -> dict[str, Any]:
        """Read JSON out of texts that some models write in the place of lists and objects."""
        read = dict(data)
        for name, value in data.items():
            if isinstance(value, str) and not self._texts.get(name, True):
                try:
                    inner = json.loads(value)
                except ValueError:
                    continue
                if not isinstance(inner, (str, int, float)):
                    read[name] = inner
        return read

    async def call_fn_with_arg_validation(
        self,
        fn: Callable[..., Any],
        fn_is_async: bool,
        arguments_to_validate: dict[str, Any],
        arguments_to_pass_directly: dict[str, Any] | None,
    ) -> Any:
        """Call the function. Raises pydantic's ValidationError for arguments that do not fit."""
        model = self.arg_model.model_validate(self.pre_parse_json(arguments_to_validate))
        arguments = {**model.model_dump_one_level(), **(arguments_to_pass_directly or {})}
        if fn_is_async:
            return await fn(**arguments)
        return await call_plain(functools.partial(fn, **arguments))

    def convert_result(self, result: Any) -> Any:
        """The result as a low-level handler gives it: content blocks, and the structured content if there is one."""
        from mcpd.compat.fastmcp1.outputs import content_blocks

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


def func_metadata(
    func: Callable[..., Any], skip_names: Sequence[str] = (), structured_output: bool | None = None
) -> FuncMetadata:
    """What is known of a function. Raises InvalidSignature."""
    return FuncMetadata(func, skip_names, structured_output)


def _field(parameter: inspect.Parameter) -> tuple[str, Any]:
    """A parameter as the field of a model; one named like a method of all models goes by an alias."""
    is_bare = parameter.annotation is inspect.Parameter.empty
    annotation: Any = Any if is_bare else parameter.annotation
    name, alias = parameter.name, None
    marks = [WithJsonSchema({"title": name, "type": "string"})] if is_bare else []
    if callable(getattr(BaseModel, name, None)):
        name, alias = f"field_{name}", name
    hint: Any = Annotated[(annotation, *marks, Field(alias=alias))]
    return name, hint if parameter.default is inspect.Parameter.empty else (hint, parameter.default)


def context_parameter(function: Callable[..., Any]) -> str | None:
    """The parameter that is given the `Context`: by its annotation, of which it may be a part."""
    try:
        hints = get_type_hints(function)
    except Exception:  # a name that cannot be found here may be found later
        return None
    for name, hint in hints.items():
        for one in (hint, get_origin(hint), *get_args(hint)):
            one = get_origin(one) or one
            if name != "return" and isinstance(one, type) and issubclass(one, Context):
                return name
    if context := untyped_context(function, "Context"):
        text = "function %s: parameter %s has no annotation, so clients are asked for it; %s"
        found = getattr(function, "__name__", function)
        log.warning(text, printable(found), printable(context[0]), printable(context[1]))
    return None


def is_async(function: Any) -> bool:
    """Whether a call of it is to be awaited."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def call_plain(function: Callable[[], Any]) -> Any:
    """Call a plain function: here, so that one runs after another, or in a thread if that was asked for."""
    if serves_in_threads():
        from mcpd.server.functions.threads import run_in_thread

        return await run_in_thread(function, exchange=current_exchange.get(None))
    return function()
