"""`fastmcp.tools`: functions as tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import Field, ValidationError as PydanticValidationError
from pydantic.json_schema import GenerateJsonSchema

from mcpd.compat.errors import McpError, ToolError, ValidationError
from mcpd.compat.fastmcp.components import Component, given, mark, options_of, unmarked
from mcpd.compat.fastmcp.functions import Function, described, dropped_lines
from mcpd.compat.fastmcp.results import ToolResult, dereferenced, is_object, output_schema, pruned, tool_result
from mcpd.compat.missing import refuse
from mcpd.compat.types import features
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")


class _NotSet:
    def __repr__(self) -> str:
        return "NotSet"


NotSet: Any = _NotSet()
"""The default of `output_schema`: the schema of the return annotation."""


class Tool(Component):
    """A tool. Subclasses implement `run`."""

    KEY_PREFIX: ClassVar[str] = "tool"

    parameters: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: features.ToolAnnotations | None = None
    execution: Any = None
    timeout: float | None = None
    return_type: Any = Field(default=None, exclude=True)
    serializer: Any = Field(default=None, exclude=True)

    @classmethod
    def from_function(
        cls,
        fn: Any,
        *,
        name: str | None = None,
        annotations: Any = None,
        output_schema: Any = NotSet,
        exclude_args: list[str] | None = None,
        task: Any = None,
        **options: Any,
    ) -> FunctionTool:
        """Return a function as a tool, with the options of `@mcp.tool`. Raises ValueError."""
        marked = options_of(fn, "tool")
        if marked is not None:
            own = given({"name": name, "annotations": annotations, "exclude_args": exclude_args, **options})
            return cls.from_function(unmarked(fn), **{"output_schema": output_schema, **marked, **own})

        function = Function(fn, "tools", name=name)
        if task not in (None, False) and getattr(task, "mode", None) == "required":
            refuse("a tool with task=required", "fastmcp")
        if isinstance(annotations, dict):
            annotations = features.ToolAnnotations(**annotations)
        for hidden in exclude_args or ():
            _hide(function, hidden)

        description, parameters = _input_schema(function)
        schema = _output_schema(function) if output_schema is NotSet else output_schema
        if isinstance(schema, dict) and not is_object(schema):
            raise ValueError(
                f"Output schemas must represent object types due to MCP spec limitations. Received: {schema!r}"
            )

        made = FunctionTool(
            fn=function.fn,
            name=function.component_name,
            parameters=parameters,
            output_schema=schema or None,
            annotations=annotations,
            return_type=function.returns,
            **{"description": description, **given(options)},
        )
        made._function = function
        return made

    @classmethod
    def from_tool(cls, tool: Any, **options: Any) -> Tool:
        """Return a copy of a tool with some members changed. Raises NotHere for changed arguments."""
        if options.get("transform_args") or options.get("transform_fn"):
            refuse("Tool.from_tool(transform_args, transform_fn)", "fastmcp")

        made = tool if isinstance(tool, Tool) else cls.from_function(tool)
        return made.model_copy(update={key: value for key, value in given(options).items() if value is not NotSet})

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        raise NotImplementedError("Subclasses must implement run()")

    def convert_result(self, raw_value: Any) -> ToolResult:
        """Return the value of a function as a result. Raises ToolError if it does not match the output schema."""
        schema = self.output_schema
        if self.serializer is not None and not isinstance(raw_value, (str, ToolResult)) and schema is None:
            return ToolResult(self.serializer(raw_value))
        try:
            return tool_result(raw_value, schema, self.return_type)
        except ValueError as error:
            raise ToolError(
                f"Could not serialize the return value of tool {self.name!r} for its output schema: {error}. If this "
                "is unexpected, set the tool's output_schema to None to disable automatic serialization."
            ) from error

    def to_mcp_tool(self, **changed: Any) -> features.Tool:
        name = changed.get("name", self.name)
        title = self.title or (self.annotations.title if self.annotations else None)
        schemas = {"inputSchema": self.parameters, "outputSchema": self.output_schema}
        return self._listed(
            features.Tool,
            changed,
            title=title or name.replace("_", " ").replace("-", " ").title(),
            annotations=self.annotations,
            execution=self.execution,
            **{key: schema and dereferenced(schema) for key, schema in schemas.items()},
        )


class FunctionTool(Tool):
    """A function as a tool."""

    fn: Callable[..., Any] = Field(exclude=True)
    run_in_thread: bool = True

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Call the function. Raises ValidationError for invalid arguments, and McpError after its `timeout`."""
        try:
            values = self._function.validated(arguments)
        except PydanticValidationError as error:
            raise ValidationError(str(error), log_level=logging.WARNING) from error

        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                return self.convert_result(await self._function.call(values, in_thread=self.run_in_thread))
        except TimeoutError:
            if not limit.expired():
                raise
            raise McpError(-32000, f"Tool '{self.name}' execution timed out after {self.timeout}s") from None


def _hide(function: Function, name: str) -> None:
    parameter = function.signature.parameters.get(name)
    if parameter is None:
        raise ValueError(f"Parameter '{name}' in exclude_args does not exist in function.")
    if parameter.default is parameter.empty:
        raise ValueError(f"Parameter '{name}' in exclude_args must have a default value.")
    function.arguments.pop(name, None)


def _input_schema(function: Function) -> tuple[str | None, dict[str, Any]]:
    """Return the description, and the schema of the arguments, which the docstring may describe."""
    description, texts = described(function.doc)
    for line in dropped_lines(function.doc):
        text = 'function %s: the line %r of its docstring reaches no client, since it is not "name: text"'
        log.warning(text, printable(function.name), printable(line))

    # Titles that pydantic derives from names are removed, and titles that the author wrote are restored.
    raw = function.adapter.json_schema()
    titles = {
        name: member.get("title") for name, member in raw.get("properties", {}).items() if isinstance(member, dict)
    }
    schema = pruned(raw)
    default_title = GenerateJsonSchema().get_title_from_name
    for name, member in schema.get("properties", {}).items():
        if isinstance(titles.get(name), str) and titles[name] != default_title(name):
            member["title"] = titles[name]
        if name in texts and "description" not in member:
            member["description"] = texts[name]
    return description, schema


def _output_schema(function: Function) -> dict[str, Any] | None:
    returns = function.returns
    return None if returns is function.signature.empty else output_schema(returns)


def tool(name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
    """Mark a function as a tool for `mcp.add_tool`: `@tool`, `@tool("name")` or `@tool(name=…)`."""
    return mark("tool", name_or_fn, name, options)
