"""`Tool` and `ToolManager` of the official SDK."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin

from pydantic import ValidationError

from mcpd.compat.contents import Audio, Image
from mcpd.compat.errors import (
    McpError,
    ResourceError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
    UrlElicitationRequiredError,
)
from mcpd.compat.lowlevel.handlers import is_input_required
from mcpd.compat.sdk.functions import (
    Component,
    FuncMetadata,
    FuncMetadata2,
    is_async,
)
from mcpd.compat.types.base import ContentBlock
from mcpd.compat.types.features import CallToolResult
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")


class Tool(Component):
    """A function as a tool."""

    fn_metadata: FuncMetadata
    is_async: bool = False

    @cached_property
    def parameters(self) -> dict[str, Any]:
        return self.fn_metadata.arg_model.model_json_schema(by_alias=True)

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        return self.fn_metadata.output_schema

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        context_kwarg: str | None = None,
        structured_output: bool | None = None,
        **members: Any,
    ) -> Self:
        """Return a function as a tool. Raises InvalidSignature, and ValueError for a lambda without a name."""
        made = cls._of_function(fn, name, description, context_kwarg, title=title, is_async=is_async(fn), **members)
        made._set_metadata(structured_output)
        return made

    def _set_metadata(self, structured_output: bool | None) -> None:
        self.fn_metadata = FuncMetadata(self.fn, self._skipped, structured_output)

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> Any:
        """Call the function. Raises ToolError with a message for the model."""
        direct = {self.context_kwarg: context} if self.context_kwarg else None
        try:
            result = await self.fn_metadata.call_fn_with_arg_validation(self.fn, self.is_async, arguments, direct)
            return self.fn_metadata.convert_result(result) if convert_result else result
        except UrlElicitationRequiredError:
            raise
        except Exception as error:
            raise ToolError(f"Error executing tool {self.name}: {error}") from error


class Tool2(Tool):
    """A tool of version 2, which may have parameters with `Resolve`."""

    is_second = True
    _resolver: Any = None

    def _set_metadata(self, structured_output: bool | None) -> None:
        from mcpd.compat.sdk.resolve import Resolver

        self._resolver = Resolver(self.fn)
        skipped = [*self._resolver.parameters, *self._skipped]
        self.fn_metadata = FuncMetadata2(self.fn, skipped, structured_output)
        if structured_output is None and _is_content(self.fn_metadata.returns):
            self.fn_metadata = FuncMetadata2(self.fn, skipped, False)

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> Any:
        """Call the function. Raises ToolError with a message for the model, and McpError unchanged."""
        prefix = f"Error executing tool {self.name}"
        try:
            values = self.fn_metadata.validated(arguments)
        except ValidationError as error:
            raise ToolError(f"{prefix}: {error}") from error

        try:
            values |= await self._resolver.values(values, context)
            result = await self._call(values, context)
            return self._converted(result) if convert_result else result
        except McpError:
            raise
        except (UnexpectedToolError, UnexpectedResourceError) as error:
            raise UnexpectedToolError(f"{prefix}: {error}") from error
        except (ToolError, ResourceError) as error:
            raise ToolError(f"{prefix}: {error}") from error
        except Exception as error:
            raise UnexpectedToolError(prefix) from error

    def _converted(self, result: Any) -> Any:
        if is_input_required(result):
            return result

        found = self.fn_metadata.convert_result(result)
        if isinstance(found, CallToolResult):
            return found
        if isinstance(found, tuple):
            return CallToolResult(content=found[0], structuredContent=found[1])
        return CallToolResult(content=found)


_CONTENT = (*ContentBlock.__args__, Image, Audio)


def _is_content(hint: Any) -> bool:
    """Return whether a return annotation contains content blocks, which are not structured output in version 2."""
    origin = get_origin(hint)
    if origin is None:
        return isinstance(hint, type) and issubclass(hint, _CONTENT)
    if origin is Annotated:
        return _is_content(get_args(hint)[0])
    if origin in (Union, UnionType) or (isinstance(origin, type) and issubclass(origin, (list, tuple, Sequence))):
        return any(map(_is_content, get_args(hint)))
    return False


class ToolManager:
    """The tools of a server by name. The first tool of a name stays."""

    tool_type: ClassVar[type[Tool]] = Tool

    def __init__(self, warn_on_duplicate_tools: bool = True, *, tools: Iterable[Tool] | None = None) -> None:
        self.warn_on_duplicate_tools = warn_on_duplicate_tools
        self._tools: dict[str, Tool] = {}
        for tool in tools or ():
            self._warn_of_duplicate(tool.name)
            self._tools[tool.name] = tool

    def _warn_of_duplicate(self, name: str) -> None:
        if name in self._tools and self.warn_on_duplicate_tools:
            log.warning("Tool already exists: %s", printable(name))

    def get_tool(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def list_tools(self) -> list[Tool]:
        return list(self._tools.values())

    def add_tool(self, fn: Callable[..., Any], name: str | None = None, **options: Any) -> Tool:
        """Add a function. Returns the tool that has its name."""
        tool = self.tool_type.from_function(fn, name, **options)
        self._warn_of_duplicate(tool.name)
        return self._tools.setdefault(tool.name, tool)

    def remove_tool(self, name: str) -> None:
        """Remove a tool. Raises ToolError for an unknown one."""
        if self._tools.pop(name, None) is None:
            raise ToolError(f"Unknown tool: {name}")

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Any = None, convert_result: bool = False
    ) -> Any:
        """Call a tool. Raises ToolError."""
        tool = self.get_tool(name)
        if tool is None:
            raise ToolError(f"Unknown tool: {name}")
        return await tool.run(arguments, context=context, convert_result=convert_result)


class ToolManager2(ToolManager):
    """The tools of a server of version 2."""

    tool_type = Tool2
