"""`Tool` and `ToolManager`: as in version 1, in threads, and without the texts of unexpected errors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, is_typeddict

from pydantic import ValidationError

from mcpd.compat.exceptions import McpError
from mcpd.compat.fastmcp1 import tools as first
from mcpd.compat.fastmcp1.media import Audio, Image
from mcpd.compat.fastmcp1.outputs import OutputPlan
from mcpd.compat.fastmcp1.signature import FuncMetadata, context_parameter, is_async
from mcpd.compat.lowlevel.context import current_exchange
from mcpd.compat.mcpserver.errors import ResourceError, ToolError, UnexpectedResourceError, UnexpectedToolError
from mcpd.compat.mcpserver.resolve import Resolver
from mcpd.compat.types.content import ContentBlock, TextContent
from mcpd.compat.types.tools import CallToolResult
from mcpd.protocol.printable import printable
from mcpd.server.functions.threads import run_in_thread

__all__ = ["Tool", "ToolManager", "failed"]

_CONTENT = (*ContentBlock.__args__, Image, Audio)


class Tool(first.Tool):
    """A function as a tool."""

    resolver: Resolver | None = None

    @classmethod
    def from_function(cls, fn: Callable[..., Any], name: str | None = None, **options: Any) -> Tool:  # type: ignore[override]
        """A tool of a function. Raises InvalidSignature, and ValueError for a lambda without a name."""
        name = name or fn.__name__
        if name == "<lambda>":
            raise ValueError("You must provide a name for lambda functions")
        context = options.pop("context_kwarg", None) or context_parameter(fn)
        resolver = Resolver(fn)
        structured = options.pop("structured_output", None)
        if structured is None and _gives_content(_returned(fn)):
            structured = False
        description = options.pop("description", None)
        skipped = [*resolver.parameters, *([context] if context else [])]
        made = cls(
            fn=fn,
            name=name,
            description=description or fn.__doc__ or "",
            fn_metadata=_Metadata(fn, skipped, structured),
            is_async=is_async(fn),
            context_kwarg=context,
            **options,
        )
        made.resolver = resolver if resolver.parameters else None
        return made

    async def run(self, arguments: dict[str, Any], context: Any = None, convert_result: bool = False) -> Any:
        """Call it. Raises ToolError with a text for the model, and McpError as it was raised."""
        prefix = f"Error executing tool {self.name}"
        try:
            metadata = self.fn_metadata
            values = metadata.arg_model.model_validate(metadata.pre_parse_json(arguments)).model_dump_one_level()
        except ValidationError as error:
            raise ToolError(f"{prefix}: {error}") from error
        try:
            if self.resolver is not None:
                values |= await self.resolver.values(values, context)
            if self.context_kwarg:
                values[self.context_kwarg] = context
            call = functools.partial(self.fn, **values)
            result = await (call() if self.is_async else run_in_thread(call, exchange=current_exchange.get(None)))
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
        if getattr(result, "resultType", None) == "input_required":
            return result
        found = self.fn_metadata.convert_result(result)
        if isinstance(found, CallToolResult):
            return found
        if isinstance(found, tuple):
            return CallToolResult(content=found[0], structuredContent=found[1])
        return CallToolResult(content=found)


class _Metadata(FuncMetadata):
    """What is known of a function; members that a TypedDict may leave out are left out."""

    @cached_property
    def _plan(self) -> OutputPlan:
        plan = super()._plan
        if plan.schema is not None and is_typeddict(_returned(self._function)):
            members = plan.schema.get("properties", {})
            for name in members.keys() - set(plan.schema.get("required", ())):
                members[name].pop("default", None)
        return plan

    def convert_result(self, result: Any) -> Any:
        """As in version 1, but for those members."""
        found = super().convert_result(result)
        if isinstance(found, tuple) and is_typeddict(_returned(self._function)):
            return found[0], {name: value for name, value in found[1].items() if name in result}
        return found


def _returned(fn: Any) -> Any:
    try:
        return inspect.signature(fn, eval_str=True).return_annotation
    except (NameError, TypeError, ValueError):
        return None


def _gives_content(hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is None:
        return isinstance(hint, type) and issubclass(hint, _CONTENT)
    if origin is Annotated:
        return _gives_content(get_args(hint)[0])
    if origin in (Union, UnionType) or (isinstance(origin, type) and issubclass(origin, (list, tuple, Sequence))):
        return any(_gives_content(one) for one in get_args(hint))
    return False


class ToolManager(first.ToolManager):
    """The tools of a server, by name."""

    def add_tool(self, fn: Callable[..., Any], name: str | None = None, **options: Any) -> Any:
        """Add a function; gives the tool that has its name."""
        tool = Tool.from_function(fn, name, **options)
        if tool.name in self._tools and self.warn_on_duplicate_tools:
            first.log.warning("Tool already exists: %s", printable(tool.name))
        return self._tools.setdefault(tool.name, tool)

    def remove_tool(self, name: str) -> None:
        """Take a tool away. Raises ToolError if there is none."""
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


def failed(error: Exception) -> CallToolResult:
    """What a client is told of it."""
    return CallToolResult(content=[TextContent(text=str(error))], isError=True)
