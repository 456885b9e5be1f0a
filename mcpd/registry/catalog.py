"""All that one server offers, and which parts of it a client gets to see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..context import Context
from ..session import Client
from ..types.lifecycle import Implementation
from ..types.resources import ListResourcesResult, ListResourceTemplatesResult
from ..types.tools import ListToolsResult
from .pages import Audience, Listing
from .resources import ResourceEntry, TemplateEntry
from .tools import ToolEntry

__all__ = ["Catalog"]

_EVERYONE: Audience = frozenset()


class Catalog:
    """The registries of one server. `gates` maps an extension's id to the test whether a client has it."""

    def __init__(self, identity: Implementation, instructions: str | None, page_size: int) -> None:
        self.identity = identity
        self.instructions = instructions
        self.offers: set[str] = set()
        """The capabilities in use: tools, resources … Once offered, a capability stays."""
        self.on_offer: Callable[[], None] | None = None
        self.tools: Listing[ToolEntry] = Listing(
            "tool", lambda items, cursor: ListToolsResult(tools=items, next_cursor=cursor), page_size
        )
        self.resources: Listing[ResourceEntry] = Listing(
            "resource", lambda items, cursor: ListResourcesResult(resources=items, next_cursor=cursor), page_size
        )
        self.templates: Listing[TemplateEntry] = Listing(
            "resource template",
            lambda items, cursor: ListResourceTemplatesResult(resource_templates=items, next_cursor=cursor),
            page_size,
        )
        self.tools.on_change = lambda: self._offer("tools")
        self.resources.on_change = self.templates.on_change = lambda: self._offer("resources")
        self.gates: dict[str, Callable[[Client], bool]] = {}
        self.extensions: dict[str, dict[str, Any]] = {}
        """Extension id -> the settings this server announces for it."""

    def audience(self, ctx: Context) -> Audience:
        """The extensions in force for this request."""
        if not self.gates:
            return _EVERYONE
        client = ctx.client
        return frozenset([name for name, admits in self.gates.items() if admits(client)])

    def _offer(self, capability: str) -> None:
        if capability not in self.offers:
            self.offers.add(capability)
            if self.on_offer is not None:
                self.on_offer()
