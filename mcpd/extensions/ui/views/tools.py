"""`view=` of a tool: its bundled page, registered and linked as an app of the author's would be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcpd.errors import RegistrationError
from mcpd.extensions.ui.apps import Apps
from mcpd.extensions.ui.constants import has_ui
from mcpd.extensions.ui.tools import ToolUi, Visibility
from mcpd.extensions.ui.views.entry import view_entry
from mcpd.extensions.ui.views.view import view_of


def view_tool(
    apps: Apps,
    name: str,
    given: object,
    others: tuple[str | None, Visibility | None, Callable[..., Any] | None],
    meta: dict[str, Any] | None,
) -> ToolUi:
    """What is added to a tool that is being registered with `view=`; `others` are `ui`, `visibility` and `ui_when`.

    Raises RegistrationError for two Views at once, and for a form that may not call its tool.
    """
    uri, visibility, when = others
    where = f"tool {name}"
    if uri is not None:
        raise RegistrationError(f"{where}: give view= or ui=, but not both: a tool has one View")
    if has_ui(meta):
        raise RegistrationError(f"{where}: give view=, or _meta with a View, but not both")

    try:
        view = view_of(given)
    except RegistrationError as error:
        raise RegistrationError(f"{where}: {error}") from None

    if view.view == "form" and visibility is not None and "app" not in visibility:
        raise RegistrationError(f'{where}: its form calls it, so visibility= needs "app"')
    entry = view_entry(apps.catalog, apps.namespace, name, view)
    ui = apps.tool_ui(name, (entry.key, visibility, when), meta)
    ui.view = view
    if apps.catalog.resources.find(entry.key) is not entry:
        apps.add_view(entry)
    return ui
