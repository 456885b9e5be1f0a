"""Which function serves which method, and which capability has to be offered for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from ..context import Context
from ..registry.catalog import Catalog
from . import lifecycle, resources, tools

__all__ = ["HANDLERS", "bind"]

BoundHandler: TypeAlias = Callable[[Context, Any], Any]

HANDLERS: dict[str, Callable[[Catalog, Context, Any], Any]] = {
    "initialize": lifecycle.initialize,
    "server/discover": lifecycle.discover,
    "ping": lifecycle.ping,
    "tools/list": tools.list_tools,
    "tools/call": tools.call_tool,
    "resources/list": resources.list_resources,
    "resources/read": resources.read_resource,
    "resources/templates/list": resources.list_resource_templates,
}

_ALWAYS = ("initialize", "server/discover", "ping")


class Handlers(dict[str, BoundHandler]):
    """The handlers of one server. A method whose capability is not offered is not there (S26-104, conformance)."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__({method: partial(handler, catalog) for method, handler in HANDLERS.items()})
        self._catalog = catalog

    def get(self, method: str, default: Any = None) -> Any:
        """The handler, None if the method is not offered now."""
        catalog = self._catalog
        if method.startswith("tools/"):
            offered = len(catalog.tools) > 0
        elif method.startswith("resources/"):
            offered = len(catalog.resources) > 0 or len(catalog.templates) > 0
        else:
            offered = True
        return super().get(method, default) if offered else default


def bind(catalog: Catalog) -> Handlers:
    """The handlers, bound to one server's catalog."""
    return Handlers(catalog)
