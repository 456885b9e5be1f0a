"""What is said of a tool whose View is not there: when it is listed, and by `mcpd check`."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from mcpd.extensions.ui.constants import SCHEME
from mcpd.server.registry.entries import Problem

if TYPE_CHECKING:
    from mcpd.server.registry.catalog import Catalog


def dangling(catalog: Catalog, tool: str, uri: str) -> Problem:
    """A tool names a View that is not there, and is listed without one (APP-S-05)."""
    known = [entry.key for entry in catalog.resources if entry.key.startswith(SCHEME)]
    near = get_close_matches(uri, known, 1)
    others = f"there is {', '.join(known)}" if known else "there is no app at all"
    hint = f"did you mean {near[0]}?" if near else others
    text = f"its View {uri} is not registered: {hint}; add it with server.app() or server.add_apps()"
    return Problem(f"tool {tool}", text)
