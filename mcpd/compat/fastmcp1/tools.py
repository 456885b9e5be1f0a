"""`Tool` and `ToolManager`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mcpd.compat.exceptions import UrlElicitationRequiredError
from mcpd.compat.fastmcp1.errors import ToolError
from mcpd.compat.fastmcp1.signature import FuncMetadata, context_parameter, func_metadata, is_async
from mcpd.compat.types.content import Icon
from mcpd.compat.types.tools import ToolAnnotations
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.compat.fastmcp1.context import Context

__all__ = ["Tool", "ToolManager"]

log = logging.getLogger("mcpd")


class Tool:
    """A function as a tool."""

    def __init__(
        self,
        *,
        fn: Callable[..., Any],
        name: str,
        description: str,
        fn_metadata: FuncMetadata,
        is_async: bool,
        title: str | None = None,
        context_kwarg: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        self.fn = fn
        self.name = name
        self.title = title
        self.description = description
        self.fn_metadata = fn_metadata
        self.is_async = is_async
        self.context_kwarg = context_kwarg
        self.annotations = annotations
        self.icons = icons
        self.meta = meta
        if parameters is not None:
            self.parameters = parameters

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return self.fn_metadata.arg_model.model_json_schema(by_alias=True)

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """The JSON schema of structured results."""
        return self.fn_metadata.output_schema

    @classmethod
    def from_function(
        cls,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        context_kwarg: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
    ) -> Tool:
        """A tool of a function. Raises InvalidSignature, and ValueError for a lambda without a name."""
        name = name or fn.__name__
        if name == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        context_kwarg = context_kwarg or context_parameter(fn)
        return cls(
            fn=fn,
            name=name,
            title=title,
            description=description or fn.__doc__ or "",
            fn_metadata=func_metadata(fn, [context_kwarg] if context_kwarg else [], structured_output),
            is_async=is_async(fn),
            context_kwarg=context_kwarg,
            annotations=annotations,
            icons=icons,
            meta=meta,
        )

    async def run(
        self, arguments: dict[str, Any], context: Context[Any, Any, Any] | None = None, convert_result: bool = False
    ) -> Any:
        """Call it. Raises ToolError, with a text for the model."""
        given = {self.context_kwarg: context} if self.context_kwarg else None
        try:
            result = await self.fn_metadata.call_fn_with_arg_validation(self.fn, self.is_async, arguments, given)
            return self.fn_metadata.convert_result(result) if convert_result else result
        except UrlElicitationRequiredError:
            raise
        except Exception as error:
            raise ToolError(f"Error executing tool {self.name}: {error}") from error


class ToolManager:
    """The tools of a server, by name. The first one of a name stays."""

    def __init__(self, warn_on_duplicate_tools: bool = True, *, tools: Iterable[Tool] | None = None) -> None:
        self.warn_on_duplicate_tools = warn_on_duplicate_tools
        self._tools: dict[str, Tool] = {}
        for tool in tools or ():
            if warn_on_duplicate_tools and tool.name in self._tools:
                log.warning("Tool already exists: %s", printable(tool.name))
            self._tools[tool.name] = tool

    def get_tool(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    def list_tools(self) -> list[Tool]:
        """All tools."""
        return list(self._tools.values())

    def add_tool(self, fn: Callable[..., Any], name: str | None = None, **options: Any) -> Tool:
        """Add a function; gives the tool that has its name."""
        tool = Tool.from_function(fn, name, **options)
        if tool.name in self._tools and self.warn_on_duplicate_tools:
            log.warning("Tool already exists: %s", printable(tool.name))
        return self._tools.setdefault(tool.name, tool)

    def remove_tool(self, name: str) -> None:
        """Take a tool away. Raises ToolError if there is none."""
        if self._tools.pop(name, None) is None:
            raise ToolError(f"Unknown tool: {name}")

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        context: Context[Any, Any, Any] | None = None,
        convert_result: bool = False,
    ) -> Any:
        """Call a tool. Raises ToolError."""
        tool = self.get_tool(name)
        if tool is None:
            raise ToolError(f"Unknown tool: {name}")
        return await tool.run(arguments, context=context, convert_result=convert_result)
