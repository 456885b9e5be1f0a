"""Problems that hosts would have with the apps of one server, for `mcpd check`.

Registration refuses most of them. This module finds problems of data, problems that appear only when everything is
registered, and results that a bundled view cannot show. Rules: APP-S-01 to APP-S-18 of docs/rules.toml.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mcpd.protocol.schemas import Schema
from mcpd.server.functions.arguments import inside
from mcpd.server.registry.entries import Problem
from mcpd.server.registry.tools import FunctionTool, metadata_of
from .apps import AppEntry, Apps, ToolUi, missing_view_problem
from .constants import MIME_TYPE, SCHEME, UI, has_ui, is_app_type
from .view import View


def app_problems(apps: Apps) -> list[Problem]:
    """Return all problems, grouped by View and tool."""
    problems = list(apps.load_problems)
    tools = apps.tools
    for entry in apps.entries:
        problems += entry.problems
        problems += _view_problems(entry, tools)

    problems += _resource_problems(apps)
    for name, ui in tools.items():
        problems += ui.problems
        problems += _tool_problems(apps, name, ui)

    for tool in apps.catalog.tools:
        if UI not in tool.extension_meta and has_ui(metadata_of(tool).meta):
            text = "its _meta has members of MCP Apps, which all clients receive; use ui= and visibility= instead"
            problems.append(Problem(f"tool {tool.key}", text))

    problems += _server_problems(apps)
    return problems


def _view_problems(entry: AppEntry, tools: dict[str, ToolUi]) -> Iterator[Problem]:
    where = f"app {entry.key}"
    if all(ui.uri != entry.key for ui in tools.values()):
        yield Problem(where, f"no tool opens it; register one with ui={entry.key!r}", is_error=False)
    domain = entry.meta.domain
    if domain is not None:
        text = f"domain {domain!r}: a host that expects another format refuses the app; leave it out for such hosts"
        yield Problem(where, text, is_error=False)


def _resource_problems(apps: Apps) -> Iterator[Problem]:
    # Check other resources. Registration checks them too, but a source may add entries to the catalog directly.
    for entry in apps.catalog.resources:
        if isinstance(entry, AppEntry):
            continue
        resource = entry.listed(frozenset())

        where, kind = f"resource {entry.key}", resource.mime_type
        if not entry.key.startswith(SCHEME):
            if is_app_type(kind):
                yield Problem(where, f"is {kind}, so its URI must begin with ui://")
            elif has_ui(resource.meta):
                yield Problem(where, "_meta.ui has an effect under ui:// only", is_error=False)
        elif kind != MIME_TYPE:
            yield Problem(where, f"is under ui://, so its type must be {MIME_TYPE}, not {kind}")


def _tool_problems(apps: Apps, name: str, ui: ToolUi) -> Iterator[Problem]:
    where, uri = f"tool {name}", ui.uri
    entry = apps.catalog.tools.find(name)
    if ui.view is not None and isinstance(entry, FunctionTool):
        yield from view_problems(entry, ui.view)
    if uri is not None and not apps.catalog.has_resource(uri, frozenset((UI,))):
        yield missing_view_problem(apps.catalog, name, uri)
    if ui.is_required and not any(other.uri is not None for other in apps.tools.values()):
        text = 'only an app may call it, but no tool opens an app: add ui= to a tool, or "model" to visibility='
        yield Problem(where, text, is_error=False)


def _server_problems(apps: Apps) -> Iterator[Problem]:
    extension = apps.extension
    if extension.mode == "never" and (apps.entries or apps.tools):
        by = "MCP_APPS_ENABLED=false" if os.environ.get("MCP_APPS_ENABLED") else "apps='never'"
        yield Problem("apps", f"are off ({by}): every client gets text only", is_error=False)
    hidden = [name for name, ui in apps.tools.items() if ui.is_required]
    if apps.catalog.tools.is_unlisted is not None and hidden:
        text = f"the list leaves out {', '.join(hidden)}: hosts that look tools up in the list cannot call them"
        yield Problem("strict model list", text, is_error=False)


_PLAIN: Final = frozenset(("integer", "number", "boolean", "null"))
_TEXT: Final = (str, bytes, type(None))
_WANTS: Final = {
    "table": "a table is made of a list of objects, of lists, or of a dict of lists",
    "chart": "a chart is made of a list of objects, of lists, or of a dict of lists, with numbers in it",
    "markdown": "Markdown is text",
    "image": "an image is image content, base64 with its type, or an address",
}


def view_problems(tool: FunctionTool, view: View) -> list[Problem]:
    """Return the results of a tool that the view could not show."""
    where, kind = f"tool {tool.key}", view.view
    if kind == "form":
        return []

    schema = tool.tool.output_schema or tool.callee.output_schema
    if not isinstance(schema, dict):
        returns = tool.callee.returns
        if kind in ("table", "chart") and any(returns is text for text in _TEXT):
            gives = "nothing" if returns in (None, type(None)) else returns.__name__
            return [_problem(where, kind, gives)]
        return []

    shape = inside(schema, schema)
    if not shape or _can_be(shape, schema, kind):
        return list(_unknown_columns(where, shape, schema, view))
    return [_problem(where, kind, _named(shape))]


def _problem(where: str, kind: str, gives: str) -> Problem:
    text = f"view={kind!r} cannot show {gives}: {_WANTS[kind]}. Return that, or use another view"
    return Problem(where, text, is_error=False)


def _can_be(shape: Schema, root: Schema, kind: str) -> bool:
    types = _types(shape)
    if kind in ("markdown", "image"):
        return not types or not types <= (_PLAIN | ({"array"} if kind == "markdown" else set()))
    if types and not types & {"array", "object"}:
        return False
    columns = _columns(shape, root)
    return kind == "table" or columns is None or any(_may_be_number(each, root) for each in columns.values())


def _columns(shape: Schema, root: Schema) -> Schema | None:
    if "array" in _types(shape):
        return _of_items(inside(shape.get("items"), root), root)
    members = {name: inside(member, root) for name, member in (shape.get("properties") or {}).items()}
    if not members or shape.get("additionalProperties"):
        return None
    lists = {name: member for name, member in members.items() if "array" in _types(member)}
    if len(lists) == 1:
        return _of_items(inside(next(iter(lists.values())).get("items"), root), root)
    if len(lists) == len(members):
        return {name: member.get("items", {}) for name, member in lists.items()}
    return None


def _of_items(items: Schema, root: Schema) -> Schema | None:
    types = _types(items)
    if types and not types & {"object", "array"}:
        return {"value": items}
    properties = items.get("properties")
    additional = items.get("additionalProperties")
    if isinstance(properties, Mapping) and properties and not additional:
        return dict(properties)
    if not properties and isinstance(additional, Mapping) and not _may_be_number(additional, root):
        return {"": additional}
    return None


def _unknown_columns(where: str, shape: Schema, root: Schema, view: View) -> Iterator[Problem]:
    # Find columns that the view names, but the schema lacks.
    if "rows" in view.options or view.view not in ("table", "chart"):
        return
    columns = _columns(shape, root)
    if columns is None or "" in columns:
        return

    named: Sequence[str] = [*view.options.get("columns", ()), *view.options.get("y", ())]
    for name in [*named, *([view.options["x"]] if "x" in view.options else [])]:
        if name not in columns:
            text = f"view={view.view!r} names the column {name!r}; results have {', '.join(columns)}"
            yield Problem(where, text, is_error=False)

    for name in view.options.get("y", ()):
        if name in columns and not _may_be_number(columns[name], root):
            yield Problem(where, f"view='chart' draws {name!r}, which is not a number", is_error=False)


def _may_be_number(schema: object, root: Schema) -> bool:
    shape = inside(schema, root)
    types = _types(shape)
    if "array" in types:
        return _may_be_number(shape.get("items"), root)
    return not types or bool(types & {"number", "integer"}) or ("anyOf" in shape and not shape.get("type"))


def _types(shape: Schema) -> set[str]:
    kind = shape.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, Sequence):
        return set(map(str, kind)) - {"null"}
    return {name for branch in shape.get("anyOf", ()) for name in _types(branch)}


def _named(shape: Schema) -> str:
    types = sorted(_types(shape))
    if types in (["array"], ["object"]):
        return f"this {types[0]}: it has no numbers" if types == ["array"] else "this object"
    return " or ".join(types) or "what it gives"
