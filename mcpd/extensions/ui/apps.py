"""The Views of one server, and the tools that open them.

A View is a resource like any other in the catalog, under its plain URI; what is listed and linked is the URI
with the hash of what it holds now. Every form it ever had is answered, with what it holds now, because that
is what fits the tool that is called now. Spec: MCP Apps 2026-01-26, "UI Resource Format".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import convert, structs

from ...context import Context
from ...errors import RegistrationError
from ...registry.catalog import Catalog
from ...registry.pages import Audience
from ...registry.problems import Problem
from ...registry.resources import Finisher, ResourceEntry
from ...registry.tools import ToolEntry
from ...types.base import Icon
from ...types.content import TextResourceContents
from ...types.resources import ReadResourceResult, Resource
from .assets import AppFile, load_folder
from .gate import MIME_TYPE, UI, UiExtension, is_app_type
from .html import html_problems
from .meta import Csp, Permissions, ViewMeta, read_view_meta, view_meta
from .tools import ToolUi, Visibility, tool_ui
from .uris import SCHEME, app_uri, checked_uri, unversioned, versioned

__all__ = ["AppEntry", "Apps"]

log = logging.getLogger("mcpd.apps")

FRESH_MS: Final = 24 * 60 * 60 * 1000
"""How long a client may keep what it read under a URI with the hash of just that: a day, though it never changes."""


class AppEntry(ResourceEntry):
    """The HTML of one View with its metadata; `resource.uri` is the plain URI."""

    def __init__(self, resource: Resource, html: str, meta: ViewMeta, problems: Iterable[Problem] = ()) -> None:
        super().__init__(resource, content=html, requires=UI)
        self.html = html
        self.meta = meta
        self.problems = tuple(problems)
        self._listed: Resource | None = None

    def listed(self, audience: Audience) -> Resource:
        """The resource with the URI of its content."""
        if self._listed is None:
            resource = self.resource
            self._listed = structs.replace(resource, uri=versioned(resource.uri, self.html, resource.meta))
        return self._listed

    @property
    def versioned_uri(self) -> str:
        """The URI that is listed and linked."""
        return self.listed(frozenset()).uri

    def read(self, uri: str, ctx: Context) -> ReadResourceResult:
        """The HTML, as text, with the metadata that the listing has too (APP-S-03, APP-S-10)."""
        item = TextResourceContents(uri, self.html, MIME_TYPE, meta=self.resource.meta)
        result = ReadResourceResult(contents=[item])
        if uri == self.versioned_uri:
            result.ttl_ms = FRESH_MS
        return result


class Apps:
    """What a server knows about MCP Apps, over its catalog. `namespace` is for Views that are given by name."""

    def __init__(self, catalog: Catalog, namespace: str) -> None:
        self.catalog = catalog
        self.namespace = namespace
        self.extension = UiExtension()
        self._found: dict[str, list[Problem]] = {}
        self._told: set[tuple[str, str]] = set()
        catalog.registered_uri = self._registered_uri

    def use(self, extension: UiExtension, *, strict_list: bool) -> None:
        """Who gets Apps, and whether app-only tools are left out of every list."""
        self.extension = extension
        self.catalog.gates[UI] = extension.admits
        self.catalog.extensions[UI] = extension.settings()
        self.catalog.offer("resources")  # even while there are none: a host may give up if it cannot list them
        tools = self.catalog.tools
        hides = _is_app_only if strict_list else None
        if tools.hides is not hides:
            tools.hides = hides
            if len(tools):
                tools.changed()

    # -- Views -------------------------------------------------------------------------------

    @property
    def entries(self) -> list[AppEntry]:
        """All Views with fixed HTML, in order of registration."""
        return [entry for entry in self.catalog.resources if isinstance(entry, AppEntry)]

    def add_html(
        self,
        app: str,
        html: str | bytes,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Iterable[Icon | Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
        csp: Csp | None = None,
        permissions: Permissions | None = None,
        domain: str | None = None,
        prefers_border: bool | None = None,
        replace: bool = False,
    ) -> tuple[str, AppEntry | None]:
        """Add a View: (its URI, the one it replaces). Raises RegistrationError for what no host could show."""
        uri = checked_uri("app", app, self.namespace)
        where = f"app {uri}"
        others = dict(meta or {})
        if "ui" not in others:
            ui = view_meta(where, csp=csp, permissions=permissions, domain=domain, prefers_border=prefers_border)
        elif csp is None and permissions is None and domain is None and prefers_border is None:
            ui = read_view_meta(where, others.pop("ui"))
        else:
            raise RegistrationError(f"{where}: give csp=, permissions= and the like, or _meta.ui, but not both")
        text = _as_text(where, html)
        found = html_problems(where, text)
        for problem in found:
            if problem.is_error:
                raise RegistrationError(str(problem))
        resource = Resource(
            uri=uri,
            name=name or uri.rpartition("/")[2] or uri.removeprefix(SCHEME),
            title=title,
            description=description,
            icons=[convert(icon, Icon) if isinstance(icon, Mapping) else icon for icon in icons] or None,
            meta=others,
        )
        return uri, self._add(resource, text, ui, [*ui.problems, *found], replace)

    def add_file(self, file: AppFile, namespace: str | None, *, replace: bool) -> tuple[str, AppEntry | None] | None:
        """Add a View from a folder: (its URI, the one it replaces), None if another app has that URI."""
        uri = app_uri(namespace or self.namespace, file.name)
        if uri in self.catalog.resources and not replace:
            problem = Problem(f"app {file.path}", f"there is an app {uri} already; this one is left out")
            self._report(file.path, [problem])
            return None
        problems = [*file.problems, *html_problems(f"app {file.path}", file.html)]
        self._found.pop(file.path, None)
        resource = Resource(uri=uri, name=file.name, title=file.title, description=file.description)
        return uri, self._add(resource, file.html, file.meta, problems, replace)

    def add_folder(self, folder: str, namespace: str | None, *, replace: bool) -> tuple[list[str], list[AppEntry]]:
        """Add every HTML file of a folder: (URIs, the Views that were replaced). Never raises (APP-S-18)."""
        files, problems = load_folder(folder)
        self._found.pop(folder, None)
        if problems:
            self._report(folder, problems)
        added = [self.add_file(file, namespace, replace=replace) for file in files]
        done = [one for one in added if one is not None]
        return [uri for uri, _ in done], [old for _, old in done if old is not None]

    def _add(
        self, resource: Resource, html: str, meta: ViewMeta, problems: list[Problem], replace: bool
    ) -> AppEntry | None:
        before = self.catalog.resources.find(resource.uri)
        whole = {**(resource.meta or {}), **(meta.meta() or {})}
        described = structs.replace(resource, mime_type=MIME_TYPE, size=len(html.encode()), meta=whole or None)
        self.catalog.resources.add(AppEntry(described, html, meta, problems), replace=replace)
        _say(problems)
        self.links_changed(resource.uri)
        return before if isinstance(before, AppEntry) else None

    def links_changed(self, uri: str) -> None:
        """The View of that URI came, went or holds something else: the tools that link it are listed otherwise."""
        is_template = "{" in uri
        if any(ui.uri is not None and (is_template or ui.uri == uri) for ui in self.tools.values()):
            self.catalog.tools.changed()

    def removed(self, uri: str) -> None:
        """There is no resource or template of that URI any more."""
        self._found.pop(uri, None)
        self.links_changed(uri)

    def dynamic(
        self, uri: str, mime_type: str | None, meta: dict[str, Any] | None
    ) -> tuple[str, dict[str, Any] | None, Finisher]:
        """For a View whose HTML a function makes: its type, its `_meta`, and what finishes its content.

        Raises RegistrationError for a MIME type that is not the one of Apps.
        """
        if mime_type is not None and not is_app_type(mime_type):
            raise RegistrationError(f"resource {uri!r}: what is under ui:// is {MIME_TYPE}, not {mime_type}")
        others = dict(meta or {})
        found = read_view_meta(f"resource {uri}", others.pop("ui", None))
        _say(found.problems)
        self._found[uri] = list(found.problems)
        whole = {**others, **(found.meta() or {})} or None

        def finish(part: Any) -> Any:
            if isinstance(part, dict):
                return {**part, "mimeType": MIME_TYPE, "_meta": {**(whole or {}), **(part.get("_meta") or {})}}
            return structs.replace(part, mime_type=MIME_TYPE, meta={**(whole or {}), **(part.meta or {})} or None)

        return MIME_TYPE, whole, finish

    def _registered_uri(self, uri: str) -> str | None:
        plain = unversioned(uri)
        if plain is None:
            return None
        return plain if isinstance(self.catalog.resources.find(plain), AppEntry) else None

    # -- tools -------------------------------------------------------------------------------

    @property
    def tools(self) -> dict[str, ToolUi]:
        """What Apps add to each tool that has something to do with them, by its name."""
        return {entry.key: ui for entry in self.catalog.tools if isinstance(ui := entry.extras.get(UI), ToolUi)}

    def tool_ui(
        self,
        name: str,
        given: tuple[str | None, Visibility | None, Callable[..., Any] | None],
        meta: dict[str, Any] | None,
    ) -> ToolUi:
        """What Apps add to a tool that is being registered; takes what is theirs out of `meta`."""
        ui = tool_ui(name, given, meta, self.namespace, self.link)
        _say(ui.problems)
        return ui

    def link(self, tool: str, uri: str) -> str | None:
        """The URI to send for a tool's View, with the hash of what it holds where that is known.

        None for a View that is not there, which is logged: no tool links what cannot be read (APP-S-05, APP-S-18).
        """
        entry = self.catalog.resources.find(uri)
        if isinstance(entry, AppEntry):
            return entry.versioned_uri
        if self.catalog.has_resource(uri, frozenset((UI,))):
            return uri
        if (tool, uri) not in self._told:
            from .checks import dangling  # on the way to an error only

            self._told.add((tool, uri))
            log.error("%s", dangling(self, tool, uri))
        return None

    @property
    def load_problems(self) -> list[Problem]:
        """What could not be loaded."""
        return [problem for problems in self._found.values() for problem in problems]

    def _report(self, key: str, problems: list[Problem]) -> None:
        """Something is missing altogether."""
        self._found[key] = problems
        for problem in problems:
            log.error("%s", problem)


def _as_text(where: str, html: str | bytes) -> str:
    """HTML is always sent as text (APP-S-03): official hosts decode a blob as Latin-1, or refuse it."""
    if isinstance(html, str):
        return html.removeprefix("\ufeff")
    try:
        return html.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RegistrationError(f"{where}: the HTML is not UTF-8 (byte {error.start})") from None


def _is_app_only(entry: ToolEntry) -> bool:
    ui = entry.extras.get(UI)
    return isinstance(ui, ToolUi) and ui.is_app_only


def _say(problems: Iterable[Problem]) -> None:
    """What is left out or unusual, for the log; the rest is served."""
    for problem in problems:
        log.warning("%s", problem)
