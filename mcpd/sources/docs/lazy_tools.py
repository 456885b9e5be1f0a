"""Tools that are made when they are first listed or called: a start waits for none of that."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from mcpd.context.exchange import Exchange
from mcpd.registry.entries import ToolEntry
from mcpd.registry.pages import ActiveExtensions
from mcpd.registry.tools import ToolMeta
from mcpd.types.tools import CallToolResult, Tool

if TYPE_CHECKING:
    from mcpd.protocol.wire.headers import Mirror


class LazyTool(ToolEntry):
    """A tool of which the name is known, and what makes it."""

    def __init__(self, name: str, make: Callable[[], ToolEntry], *, requires: str | None = None) -> None:
        self.key = name
        self.requires = requires
        self._make = make
        self._made: ToolEntry | None = None

    def made(self) -> ToolEntry:
        """The tool itself. Raises what making it raises."""
        if self._made is None:
            self._made = self._make()
        return self._made

    @property
    def extension_meta(self) -> Mapping[str, ToolMeta]:
        """What extensions add to it; nothing before it was first listed or called, which nobody has seen."""
        return {} if self._made is None else self._made.extension_meta

    @property
    def mirrors(self) -> Sequence[Mirror]:
        """The arguments that HTTP headers repeat."""
        return self.made().mirrors

    def listed(self, active: ActiveExtensions) -> Tool:
        """The tool as lists show it."""
        return self.made().listed(active)

    def run(self, arguments: Raw, exchange: Exchange) -> Coroutine[Any, Any, CallToolResult]:
        """Call it."""
        return self.made().run(arguments, exchange)
