"""What would not work for hosts in the Apps of one server, for `mcpd check`.

Registration refuses most of it; what comes from data, or only shows once all is registered, is found here.
Rules: APP-S-01 to APP-S-18 of docs/rules.toml.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from mcpd.extensions.ui.apps import AppEntry, Apps
from mcpd.extensions.ui.constants import MIME_TYPE, SCHEME, UI, has_ui, is_app_type
from mcpd.extensions.ui.dangling import dangling
from mcpd.extensions.ui.tools import ToolUi
from mcpd.server.registry.entries import Problem, metadata_of
from mcpd.server.registry.tools import FunctionTool


def app_problems(apps: Apps) -> list[Problem]:
    """All of it, what is about one thing together."""
    found = list(apps.load_problems)
    tools = apps.tools
    for entry in apps.entries:
        found += entry.problems
        found += _of_view(entry, tools)

    found += _of_other_resources(apps)
    for name, ui in tools.items():
        found += ui.problems
        found += _of_tool(apps, name, ui)

    for tool in apps.catalog.tools:
        if UI not in tool.extension_meta and has_ui(metadata_of(tool).meta):
            text = "its _meta speaks of MCP Apps, and is sent to clients that have none; use ui= and visibility="
            found.append(Problem(f"tool {tool.key}", text))

    found += _of_server(apps)
    return found


def _of_view(entry: AppEntry, tools: dict[str, ToolUi]) -> Iterator[Problem]:
    where = f"app {entry.key}"
    if all(ui.uri != entry.key for ui in tools.values()):
        yield Problem(where, f"no tool opens it; register one with ui={entry.key!r}", is_error=False)
    domain = entry.meta.domain
    if domain is not None:
        text = f"domain {domain!r}: a host that expects another format refuses the app; leave it out for such hosts"
        yield Problem(where, text, is_error=False)


def _of_other_resources(apps: Apps) -> Iterator[Problem]:
    """Resources that did not come as apps: registration sees to these, but a source may add to the catalog itself."""
    for entry in apps.catalog.resources:
        if isinstance(entry, AppEntry):
            continue
        resource = entry.listed(frozenset())

        where, kind = f"resource {entry.key}", resource.mime_type
        if not entry.key.startswith(SCHEME):
            if is_app_type(kind):
                yield Problem(where, f"is {kind}, so its URI has to begin with ui://")
            elif has_ui(resource.meta):
                yield Problem(where, "_meta.ui means something under ui:// only", is_error=False)
        elif kind != MIME_TYPE:
            yield Problem(where, f"is under ui://, so its type has to be {MIME_TYPE}, not {kind}")


def _of_tool(apps: Apps, name: str, ui: ToolUi) -> Iterator[Problem]:
    where, uri = f"tool {name}", ui.uri
    entry = apps.catalog.tools.find(name)
    if ui.view is not None and isinstance(entry, FunctionTool):
        from mcpd.extensions.ui.views.fits import misfits

        yield from misfits(entry, ui.view)
    if uri is not None and not apps.catalog.has_resource(uri, frozenset((UI,))):
        yield dangling(apps.catalog, name, uri)
    if ui.is_app_only and not any(other.uri is not None for other in apps.tools.values()):
        text = "only an app may call it, and no tool opens one: give a tool ui=, or this one the model"
        yield Problem(where, text, is_error=False)


def _of_server(apps: Apps) -> Iterator[Problem]:
    extension = apps.extension
    if extension.mode == "never" and (apps.entries or apps.tools):
        by = "MCP_APPS_ENABLED=false" if os.environ.get("MCP_APPS_ENABLED") else "apps='never'"
        yield Problem("apps", f"are off ({by}): every client gets text only", is_error=False)
    hidden = [name for name, ui in apps.tools.items() if ui.is_app_only]
    if apps.catalog.tools.is_unlisted is not None and hidden:
        text = f"the list leaves out {', '.join(hidden)}: hosts that look tools up in the list cannot call them"
        yield Problem("strict model list", text, is_error=False)
