"""The page of a view as a resource: made when it is first listed or read, and versioned by what it then holds.

Tools that use a kind without options share its page. One with options has a page of its own that holds them: what
a host passes on beside the page, `_meta` or what it says of the tool, is dropped by some (APP-S-16). So is that
of a form, with the tool's name and schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcpd.errors import RegistrationError
from mcpd.extensions.ui.apps import AppEntry
from mcpd.extensions.ui.constants import MIME_TYPE
from mcpd.extensions.ui.meta import view_meta
from mcpd.extensions.ui.uris import app_uri
from mcpd.extensions.ui.views.pages import page
from mcpd.extensions.ui.views.view import View
from mcpd.protocol.types.resources import Resource
from mcpd.server.registry.catalog import Catalog
from mcpd.server.registry.entries import ResourceEntry
from mcpd.server.registry.listing import ActiveExtensions
from mcpd.server.registry.tools import FunctionTool


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
