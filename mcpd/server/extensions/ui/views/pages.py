"""A page for a kind of view: one HTML document, put together of the styles and scripts in assets/views.

Each part is read when a page with it is first asked for. Indentation and lines that are only a comment stay behind;
no line of a script or style there may depend on either. What the page is told comes as JSON in an element of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from msgspec.json import encode

from mcpd.errors import RegistrationError
from mcpd.protocol.types.resources import Resource
from mcpd.server.extensions.ui.apps import AppEntry, Apps
from mcpd.server.extensions.ui.assets import bundled_folder
from mcpd.server.extensions.ui.constants import MIME_TYPE, app_uri, has_ui
from mcpd.server.extensions.ui.meta import view_meta
from mcpd.server.extensions.ui.tools import ToolUi, Visibility
from mcpd.server.extensions.ui.views.view import View, view_of
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.entries import ResourceEntry
from mcpd.server.registry.listing import ActiveExtensions
from mcpd.server.registry.tools import FunctionTool

PARTS: Final = {
    "table": ("table",),
    "chart": ("table", "chart"),
    "markdown": ("markdown",),
    "image": ("image",),
    "form": ("table", "markdown", "form"),
    "reader": ("markdown", "image", "page", "reader"),
    "notebook": ("markdown", "image", "page", "notebook"),
}
"""What each kind is made of, beside the base: a chart has its rows as a table, a form shows results of all shapes.

The last two are no kinds of `view=`: each belongs to tools of mcpd's own, and calls another one of them.
"""

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
    """The document of one kind, with its options; `tool` is the one that a form calls."""
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
    """JSON that ends no script element, and no older JavaScript's line, whatever texts it has."""
    text = encode(value).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


@cache
def _part(name: str) -> str:
    """One file, without what is for its readers only."""
    path = os.path.join(bundled_folder(), "views", name)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return "\n".join(_without_comments(text))


def _without_comments(text: str) -> list[str]:
    """The lines that say something, without indentation. A comment has its own lines, or ends one, two spaces off."""
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
    """A page of mcpd's own, made when it is first asked for."""

    def __init__(self, where: str, resource: Resource, images: list[str], make: Callable[[str | None], str]) -> None:
        """`make` gives the document, by the name under which it calls its tool; None for the tool's own."""
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
        """The same page on a server that has its tool under another name."""
        return _Renamed(self, name, self._make)


class ViewEntry(BundledEntry):
    """The page of a `view=`, for one kind or for one tool."""

    def __init__(self, where: str, resource: Resource, view: View, make: Callable[[str | None], str]) -> None:
        super().__init__(where, resource, view.images, make)
        self.view = view

    def calling(self, name: str) -> ResourceEntry:
        """Only a form calls its tool."""
        return super().calling(name) if self.view.view == "form" else self


class _Renamed(AppEntry):
    """A page that calls a tool which has another name here. Its URI is the one that tools link."""

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
        """The document."""
        if not self._html:
            self._html = self._make(self.of_tool)
        return self._html

    def listed(self, active: ActiveExtensions) -> Resource:
        """As on its own server, whose tool links it."""
        return self._entry.listed(active)


def bundled_page(
    namespace: str, kind: str, calls: str, options: Mapping[str, Any], named: tuple[str, str, str]
) -> BundledEntry:
    """The page of a kind that no `view=` has, as the notebook's; `calls` is the tool that is there for it alone.

    `named` are its name, with which tools open it (`ui=`), its title and its description.
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
    """The page for a tool: the one of its kind, or one of its own. Raises RegistrationError."""
    is_own = bool(view.options) or view.view == "form"
    name = f"view-{view.view}-{tool}" if is_own else f"view-{view.view}"
    uri = app_uri(namespace, name)
    there = catalog.resources.find(uri)
    if isinstance(there, ViewEntry) and there.view == view and not is_own:
        return there
    if there is not None and not isinstance(there, ViewEntry):
        raise RegistrationError(f"tool {tool}: its view is {uri}, which is another app; give that another name")

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
    """What a form knows of its tool by itself; hosts that say more of it are believed first."""
    if view.view != "form":
        return None
    entry = catalog.tools.find(name)
    if not isinstance(entry, FunctionTool):
        return {"name": name, "inputSchema": {"type": "object"}}

    tool = entry.tool
    schema = tool.input_schema or entry.callee.input_schema
    return {
        "name": name,
        "inputSchema": schema,
        **({"title": tool.title} if tool.title else {}),
        **({"description": tool.description} if tool.description else {}),
    }


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
