"""The pages of bundled views as resources: HTML documents that are assembled from the styles and scripts in
assets/views.

A page is created when it is first listed or read. Indentation and comment lines of its parts are removed, so scripts
and styles must not depend on them. Options are JSON in an element of their own. Tools with the same kind and without
options share a page. A tool with options has its own page that contains them, because some hosts drop other data
(APP-S-16); so has a form, with the tool's name and schema.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from msgspec.json import encode

from mcpd.errors import RegistrationError
from mcpd.protocol.types.base import Meta
from mcpd.protocol.types.features import Resource
from mcpd.server.extensions.builtin import FILE_PARAMS
from mcpd.server.functions.annotations import Function
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.entries import ActiveExtensions, ResourceEntry
from mcpd.server.registry.tools import FunctionTool
from mcpd.transports.files import bundled_folder
from .apps import AppEntry, Apps, ToolUi
from .constants import MIME_TYPE, app_uri, has_ui
from .meta import Visibility, view_meta
from .view import View, view_of

# The parts of each kind besides the base: a chart includes a table of its rows, and a form shows any result.
#
# The last two are not kinds of `view=`: they belong to tools of mcpd, and call other tools.
PARTS: Final = {
    "table": ("table",),
    "chart": ("table", "chart"),
    "markdown": ("markdown",),
    "image": ("image",),
    "form": ("table", "markdown", "form"),
    "reader": ("markdown", "image", "page", "reader"),
    "notebook": ("markdown", "image", "page", "notebook"),
}

_PAGE: Final = """\
<!doctype html>
<html lang="en" data-phase="connecting" data-view="{kind}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style id="fonts"></style>
<style>
{style}
</style>
</head>
<body>
<main aria-busy="true"><p class="state" role="status">Connecting</p></main>
<script type="application/json" id="spec">{spec}</script>
<script>
(() => {{
"use strict";
{script}
connect();
}})();
</script>
</body>
</html>
"""


def page(kind: str, options: Mapping[str, Any], tool: Mapping[str, Any] | None = None) -> str:
    """Return the document of one kind with its options; `tool` is the tool that a form calls."""
    spec = {"view": kind, **options}
    if tool is not None:
        spec["tool"] = tool
    names = ("base", *PARTS[kind])
    return _PAGE.format(
        kind=kind,
        title=kind.capitalize(),
        spec=_in_script(spec),
        style="\n".join(_part(f"{name}.css") for name in names),
        script="\n".join(_part(f"{name}.js") for name in names),
    )


def _in_script(value: Any) -> str:
    # Return JSON that is safe inside a script element, whatever texts it contains.
    text = encode(value).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


@cache
def _part(name: str) -> str:
    path = os.path.join(bundled_folder(), "views", name)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return "\n".join(_without_comments(text))


def _without_comments(text: str) -> list[str]:
    # Return the lines without indentation and comments. A comment is a whole line, or begins after two spaces.
    kept = []
    is_comment = False
    for line in map(str.strip, text.splitlines()):
        is_comment = is_comment or line.startswith("/*")
        if is_comment:
            is_comment = not line.endswith("*/")
        elif line and not line.startswith("//"):
            kept.append(line.partition("  // ")[0])
    return kept


class BundledEntry(AppEntry):
    """A page of mcpd, created when it is first used."""

    def __init__(self, where: str, resource: Resource, images: list[str], make: Callable[[str | None], str]) -> None:
        """`make` returns the document for a name of the tool that it calls; None for the tool's own name."""
        csp = {"resourceDomains": images} if images else None
        meta = view_meta(f"{where}, images of its view", csp=csp, prefers_border=True)
        resource.meta = meta.meta()
        super().__init__(resource, "", meta, meta.problems)
        self._make = make

    @property
    def html(self) -> str:
        """The document."""
        if not self._html:
            self._html = self._make(None)
        return self._html

    def calling(self, name: str) -> ResourceEntry:
        """Return the page for a server on which its tool has another name."""
        return _Renamed(self, name, self._make)


class ViewEntry(BundledEntry):
    """The page of a `view=`, for one kind or for one tool."""

    def __init__(self, where: str, resource: Resource, view: View, make: Callable[[str | None], str]) -> None:
        super().__init__(where, resource, view.images, make)
        self.view = view

    def calling(self, name: str) -> ResourceEntry:
        """Return the page for another name of its tool, which only forms call."""
        return super().calling(name) if self.view.view == "form" else self


class _Renamed(AppEntry):
    # A page that calls its tool by another name, with the URI of the original page.
    def __init__(self, entry: BundledEntry, name: str, make: Callable[[str | None], str]) -> None:
        super().__init__(entry.resource, "", entry.meta, entry.problems)
        self.of_tool = name
        self._entry = entry
        self._make = make

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Renamed) and (self.of_tool, self._entry) == (other.of_tool, other._entry)

    def __hash__(self) -> int:
        return hash(self.of_tool)

    @property
    def html(self) -> str:
        if not self._html:
            self._html = self._make(self.of_tool)
        return self._html

    def listed(self, active: ActiveExtensions) -> Resource:
        # Return the resource as on its own server, whose tool links it.
        return self._entry.listed(active)


def bundled_page(
    namespace: str, kind: str, calls: str, options: Mapping[str, Any], named: tuple[str, str, str]
) -> BundledEntry:
    """Return the page of a kind without `view=`, such as the notebook; `calls` is the tool that it calls.

    `named` are its name for `ui=`, its title and its description.
    """
    name, title, description = named
    uri = app_uri(namespace, name)
    resource = Resource(uri=uri, name=name, title=title, description=description, mime_type=MIME_TYPE)

    def make(called: str | None) -> str:
        return page(kind, {**options, "calls": called or calls})

    entry = BundledEntry(f"app {uri}", resource, [], make)
    entry.of_tool = calls
    return entry


def view_entry(catalog: Catalog, namespace: str, tool: str, view: View) -> ViewEntry:
    """Return the page for a tool, shared by its kind or its own. Raises RegistrationError."""
    is_own = bool(view.options) or view.view == "form"
    name = f"view-{view.view}-{tool}" if is_own else f"view-{view.view}"
    uri = app_uri(namespace, name)
    there = catalog.resources.find(uri)
    if isinstance(there, ViewEntry) and there.view == view and not is_own:
        return there
    if there is not None and not isinstance(there, ViewEntry):
        raise RegistrationError(f"tool {tool}: its view is {uri}, which is another app; rename that app")

    resource = Resource(
        uri=uri,
        name=name,
        title=view.options.get("title") or view.view.capitalize(),
        description=f"Shows results of {tool}" if is_own else f"Shows results as {view.view}",
        mime_type=MIME_TYPE,
    )

    def make(called: str | None) -> str:
        described = _described(catalog, tool, view)
        return page(view.view, view.options, {**described, "name": called or tool} if described else None)

    entry = ViewEntry(f"tool {tool}", resource, view, make)
    entry.of_tool = tool if is_own else ""
    return entry


def _described(catalog: Catalog, name: str, view: View) -> Mapping[str, Any] | None:
    # Return the tool of a form as the page describes it. Data of the host takes precedence.
    if view.view != "form":
        return None
    entry = catalog.tools.find(name)
    if not isinstance(entry, FunctionTool):
        return {"name": name, "inputSchema": {"type": "object"}}

    tool = entry.tool
    schema = tool.input_schema or entry.callee.input_schema
    files = (tool.meta or {}).get(FILE_PARAMS)
    return {
        "name": name,
        "inputSchema": schema,
        **({"title": tool.title} if tool.title else {}),
        **({"description": tool.description} if tool.description else {}),
        **({"_meta": {FILE_PARAMS: files}} if files else {}),
    }


def view_tool(
    apps: Apps,
    name: str,
    given: object,
    others: tuple[str | None, Visibility | None, Function | None],
    meta: Meta,
) -> ToolUi:
    """Return the part of MCP Apps in a tool with `view=`; `others` are `ui`, `visibility` and `ui_when`.

    Raises RegistrationError for two Views at once, and for a form that may not call its tool.
    """
    uri, visibility, when = others
    where = f"tool {name}"
    if uri is not None:
        raise RegistrationError(f"{where}: use view= or ui=, but not both: a tool has one View")
    if has_ui(meta):
        raise RegistrationError(f"{where}: use view=, or _meta with a View, but not both")

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
        apps.catalog.add_part(entry)
        apps.changed(entry.key)
    return ui
