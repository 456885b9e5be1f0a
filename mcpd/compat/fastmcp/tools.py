"""`fastmcp.tools`: functions as tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr, ValidationError as PydanticValidationError
from pydantic.json_schema import GenerateJsonSchema

from mcpd.compat.exceptions import McpError
from mcpd.compat.fastmcp.components import Component
from mcpd.compat.fastmcp.docstrings import described, unread
from mcpd.compat.fastmcp.errors import ToolError, ValidationError
from mcpd.compat.fastmcp.functions import Function
from mcpd.compat.fastmcp.marks import Marked, mark
from mcpd.compat.fastmcp.results import ToolResult, result_of
from mcpd.compat.fastmcp.schemas import WRAPS, dereferenced, is_object, output_schema, pruned
from mcpd.compat.missing import refuse
from mcpd.compat.types import tools
from mcpd.compat.types.errors import ErrorData
from mcpd.protocol.printable import printable

__all__ = ["FunctionTool", "NotSet", "Tool", "ToolResult", "tool"]

log = logging.getLogger("mcpd")


class _NotSet:
    def __repr__(self) -> str:
        return "NotSet"


NotSet: Any = _NotSet()
"""Not said: the output schema is that of the return annotation."""


class Tool(Component):
    """A tool; a class of one's own has `run`."""

    KEY_PREFIX: ClassVar[str] = "tool"

    parameters: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: tools.ToolAnnotations | None = None
    execution: Any = None
    timeout: float | None = None
    return_type: Any = Field(default=None, exclude=True)
    serializer: Any = Field(default=None, exclude=True)

    @classmethod
    def from_function(cls, fn: Any, *, name: str | None = None, **options: Any) -> FunctionTool:
        """A tool of a function, with the options of `@mcp.tool`. Raises ValueError for one that cannot be one."""
        return FunctionTool.made_of(fn, name=name, **options)

    @classmethod
    def from_tool(cls, tool: Any, **options: Any) -> Tool:
        """A tool like another one, with a few things changed. Raises NotHere for changed arguments."""
        if options.get("transform_args") or options.get("transform_fn"):
            refuse("Tool.from_tool(transform_args, transform_fn)", "fastmcp")
        made = tool if isinstance(tool, Tool) else cls.from_function(tool)
        named = {key: value for key, value in options.items() if value is not None and value is not NotSet}
        return made.model_copy(update=named)

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Call it."""
        raise NotImplementedError("Subclasses must implement run()")

    def convert_result(self, raw_value: Any) -> ToolResult:
        """What a function gave as a result. Raises ToolError for what is no JSON, where a schema asks for it."""
        schema = self.output_schema
        if self.serializer is not None and not isinstance(raw_value, (str, ToolResult)) and schema is None:
            return ToolResult(self.serializer(raw_value))
        try:
            return result_of(raw_value, schema, bool(schema and schema.get(WRAPS)), self.return_type)
        except ValueError as error:
            raise ToolError(
                f"Could not serialize the return value of tool {self.name!r} for its output schema: {error}. If this "
                "is unexpected, set the tool's output_schema to None to disable automatic serialization."
            ) from error

    def to_mcp_tool(self, **changed: Any) -> tools.Tool:
        """As clients see it."""
        name = changed.get("name", self.name)
        annotations = changed.get("annotations", self.annotations)
        title = self.title or (annotations.title if annotations else None)
        return tools.Tool(
            name=name,
            title=changed.get("title", title or name.replace("_", " ").replace("-", " ").title()),
            description=changed.get("description", self.description),
            inputSchema=dereferenced(changed.get("inputSchema", self.parameters)),
            outputSchema=_dereferenced(changed.get("outputSchema", self.output_schema)),
            icons=changed.get("icons", self.icons),
            annotations=annotations,
            execution=changed.get("execution", self.execution),
            _meta=changed.get("_meta", self.get_meta()),  # type: ignore[call-arg]
        )


def _dereferenced(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if schema is None else dereferenced(schema)


class FunctionTool(Tool):
    """A function as a tool."""

    fn: Callable[..., Any] = Field(exclude=True)
    run_in_thread: bool = True

    _function: Function = PrivateAttr()

    @classmethod
    def made_of(
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
        """A tool of a function. Raises ValueError for one that cannot be one."""
        marked = getattr(fn, "__fastmcp__", None)
        if isinstance(marked, Marked) and marked.kind == "tool":
            said = {"name": name, "annotations": annotations, "exclude_args": exclude_args, **options}
            said = {key: value for key, value in said.items() if value is not None}
            return cls.made_of(marked.bare(fn), **{"output_schema": output_schema, **marked.options, **said})
        function = Function(fn, "tools")
        if (name or function.name) == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        if task not in (None, False) and getattr(task, "mode", None) == "required":
            refuse("a tool with task=required", "fastmcp")
        if isinstance(annotations, dict):
            annotations = tools.ToolAnnotations(**annotations)
        for hidden in exclude_args or ():
            _hide(function, hidden)
        description, parameters = _input_schema(function)
        found = _output_schema(function) if output_schema is NotSet else output_schema
        if isinstance(found, dict) and not is_object(found):
            raise ValueError(
                f"Output schemas must represent object types due to MCP spec limitations. Received: {found!r}"
            )
        told = options.pop("description", None)
        made = cls(
            fn=function.fn,
            name=name or function.name,
            description=description if told is None else told,
            parameters=parameters,
            output_schema=found or None,
            annotations=annotations,
            return_type=function.returns,
            **{key: value for key, value in options.items() if value is not None},
        )
        made._function = function
        return made

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Call it. Raises ValidationError for arguments that do not fit, McpError when its time is over."""
        try:
            values = self._function.read(arguments)
        except PydanticValidationError as error:
            raise ValidationError(str(error), log_level=logging.WARNING) from error
        call = self._function.call(values, in_thread=self.run_in_thread)
        if self.timeout is None:
            return self.convert_result(await call)
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                return self.convert_result(await call)
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"Tool '{self.name}' execution timed out after {self.timeout}s"
            raise McpError(ErrorData(code=-32000, message=message)) from None


def _hide(function: Function, name: str) -> None:
    parameter = function.signature.parameters.get(name)
    if parameter is None:
        raise ValueError(f"Parameter '{name}' in exclude_args does not exist in function.")
    if parameter.default is parameter.empty:
        raise ValueError(f"Parameter '{name}' in exclude_args must have a default value.")
    function.given.pop(name, None)


def _input_schema(function: Function) -> tuple[str | None, dict[str, Any]]:
    """The description, and the schema of the arguments, whose own descriptions may be in the docstring."""
    description, texts = described(function.doc)
    for line in unread(function.doc):
        text = 'function %s: the line %r of its docstring reaches no client, since it is not "name: text"'
        log.warning(text, printable(function.name), printable(line))
    raw = function.adapter.json_schema()
    titles = {name: one.get("title") for name, one in raw.get("properties", {}).items() if isinstance(one, dict)}
    schema = pruned(raw)
    usual = GenerateJsonSchema().get_title_from_name
    for name, member in schema.get("properties", {}).items():
        if isinstance(titles.get(name), str) and titles[name] != usual(name):
            member["title"] = titles[name]
        if name in texts and "description" not in member:
            member["description"] = texts[name]
    return description, schema


def _output_schema(function: Function) -> dict[str, Any] | None:
    returns = function.returns
    return None if returns is function.signature.empty else output_schema(returns, (ToolResult,))


def tool(name_or_fn: Any = None, *, name: str | None = None, **options: Any) -> Any:
    """Mark a function as a tool, for `mcp.add_tool`: `@tool`, `@tool("name")` or `@tool(name=…)`."""
    return mark("tool", name_or_fn, name, options)
