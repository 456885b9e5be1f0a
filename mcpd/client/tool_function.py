"""What a tool is as a function: see `functions`, which makes them."""

from __future__ import annotations

from collections.abc import Coroutine
from inspect import Signature
from typing import Any, Protocol, TypeAlias, TypeVar

from mcpd.types.tools import Tool

__all__ = ["AwaitedToolFunction", "ToolFunction"]

Answer_co = TypeVar("Answer_co", covariant=True)


class ToolFunction(Protocol[Answer_co]):
    """A tool as a function. Arguments are given by position or name, also by the names that the schema has for them."""

    __name__: str
    __qualname__: str
    __module__: str
    __doc__: str | None
    __annotations__: dict[str, Any]
    __signature__: Signature
    schema: dict[str, Any]
    """The JSON Schema of the arguments, as the server gave it."""
    tool: Tool
    """The tool, as it was listed: its own name, title, description, annotations."""

    def __call__(self, *args: Any, **kwargs: Any) -> Answer_co:
        """What the tool returned, as JSON has it.

        Raises ToolError with its text if it failed, TypeError for arguments that it does not have, and what
        `Client.call_tool` raises.
        """


AwaitedToolFunction: TypeAlias = ToolFunction[Coroutine[Any, Any, Any]]
"""One whose call is awaited."""
