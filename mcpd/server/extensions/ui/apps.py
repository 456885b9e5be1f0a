"""The Views of one server, and the tools that open them.

A View is a resource of the catalog with its plain URI. Lists and tools contain the URI with a hash of the current
content. A request with an older hash is answered with the current content, because it fits the current tools.
Spec: MCP Apps 2026-01-26, "UI Resource Format".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct, convert, structs

from mcpd.errors import RegistrationError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Icon, Meta
from mcpd.protocol.types.features import ReadResourceResult, Resource, TextResourceContents
from mcpd.server.context.exchange import Exchange
from mcpd.server.extensions.base import ExtensionHost, ResourceAddition
from mcpd.server.functions.annotations import Function
from mcpd.server.registry.entries import ActiveExtensions, Problem
from mcpd.server.registry.resources import FixedResource
from .assets import AppFile, html_problems, load_folder
from .constants import (
    FLAT_URI,
    MIME_TYPE,
    SCHEME,
    UI,
    AppsMode,
    app_uri,
    checked_uri,
    has_ui,
    is_app_type,
    unversioned,
    versioned,
)
from .meta import (
    ViewMeta,
    Visibility,
    read_view_meta,
    read_visibility,
    view_meta,
    visibility_of,
)

if TYPE_CHECKING:
    from mcpd.server.extensions.options import AppOptions
    from mcpd.server.registry.catalog import Catalog
    from mcpd.server.registry.entries import ToolEntry
    from mcpd.server.registry.rules import Condition
    from .view import View


class ToolUi(Struct, eq=False, kw_only=True):
    """`_meta.ui` of one tool."""

    # Its View, without the hash.
    uri: str | None
    visibility: list[str] | None
    # Returns the URI to send for a View; None if the View does not exist.
    link: Callable[[str], str | None]
    condition: Condition | None
    # Members that this revision does not define.
    others: dict[str, Any]
    problems: list[Problem]
    # The bundled page, if the tool uses one.
    view: View | None = None

    @property
    def is_required(self) -> bool:
        """Whether the tool exists only for clients with MCP Apps, because it is hidden from the model."""
        return self.visibility is not None and "model" not in self.visibility

    def meta(self, active: ActiveExtensions) -> dict[str, Any]:
        """Return the `_meta` for clients with MCP Apps.

        Without a View, because its condition is false or it does not exist, the visibility still applies.
        """
        ui = dict(self.others)
        meta: dict[str, Any] = {"ui": ui}
        if self.uri is not None and (self.condition is None or self.condition.key in active):
            uri = self.link(self.uri)
            if uri is not None:
                ui["resourceUri"] = meta[FLAT_URI] = uri
        if self.visibility is not None:
            ui["visibility"] = self.visibility
        return meta if ui else {}


def _pop_raw(where: str, meta: dict[str, Any], problems: list[Problem]) -> tuple[object, dict[str, Any]]:
    # Return the View's URI and the other members of `_meta.ui`. The nested key takes precedence over the flat one.
    nested, flat = (meta.pop(key, None) for key in ("ui", FLAT_URI))
    if nested is not None and not isinstance(nested, Mapping):
        problems.append(Problem(where, "_meta.ui must be an object; it is left out"))
        nested = None

    others = dict(nested or {})
    for member in ("csp", "permissions"):
        if member in others:
            raise RegistrationError(
                f"{where}: {member} belongs to the UI resource, and hosts ignore it on a tool; give it to server.app()"
            )

    uri = others.pop("resourceUri", None)
    if uri is None:
        uri = flat
    elif flat is not None and flat != uri:
        problems.append(Problem(where, f"_meta.ui.resourceUri differs from {FLAT_URI}, and is used", is_error=False))

    for member in others.keys() - {"visibility"}:
        problems.append(Problem(where, f"_meta.ui of a tool has no {member!r}; it is passed on", is_error=False))
    return uri, others


log = logging.getLogger("mcpd.apps")

# How long clients may cache the content of a URI with its hash: a day, although it never changes.
FRESH_MS: Final = 24 * 60 * 60 * 1000


class AppEntry(FixedResource):
    """The HTML of one View with its metadata; `resource.uri` is the plain URI."""

    def __init__(self, resource: Resource, html: str, meta: ViewMeta, problems: Iterable[Problem] = ()) -> None:
        super().__init__(resource, html, requires=UI)
        self._html = html
        self.meta = meta
        self.problems = tuple(problems)
        self._listed: Resource | None = None

    @property
    def html(self) -> str:
        """The document."""
        return self._html

    def listed(self, active: ActiveExtensions) -> Resource:
        """Return the resource with the URI that contains the hash."""
        if self._listed is None:
            resource = self.resource
            self._listed = structs.replace(resource, uri=versioned(resource.uri, self.html, resource.meta))
        return self._listed

    @property
    def versioned_uri(self) -> str:
        """The URI with the hash, for lists and tools."""
        return self.listed(frozenset()).uri

    def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        """Return the HTML as text, with the metadata of the list (APP-S-03, APP-S-10)."""
        item = TextResourceContents(uri, self.html, MIME_TYPE, meta=self.resource.meta)
        result = ReadResourceResult(contents=[item])
        if uri == self.versioned_uri:
            result.ttl_ms = FRESH_MS
        return result


class AppsChoices(Protocol):
    """The options of MCP Apps, see `extension.AppsExtension`."""

    mode: AppsMode
    strict_list: bool


class Apps:
    """The Views of a server and their tools, in its catalog. Views with plain names are in the server's namespace."""

    def __init__(self, server: ExtensionHost, extension: AppsChoices) -> None:
        self.catalog = server.catalog
        self.namespace = server.name
        self.extension = extension
        self._server = server
        self._found: dict[str, list[Problem]] = {}
        self._reported: set[tuple[str, str]] = set()
        self.catalog.registered_uri = self._registered_uri

    def configured(self) -> None:
        """Apply changed options."""
        tools = self.catalog.tools
        is_unlisted = _is_app_only if self.extension.strict_list else None
        if tools.is_unlisted is not is_unlisted:
            tools.is_unlisted = is_unlisted
            if len(tools):
                tools.changed()

    # -- Views -------------------------------------------------------------------------------

    @property
    def entries(self) -> list[AppEntry]:
        """All Views with fixed HTML, in order of registration."""
        return [entry for entry in self.catalog.resources if isinstance(entry, AppEntry)]

    def add_html(self, app: str, html: str | bytes | os.PathLike[str], options: AppOptions) -> str:
        """Add a View, and return its URI. Raises RegistrationError for content that no host accepts."""
        if isinstance(html, os.PathLike):
            html = _read(html, f"app {app!r}")
        elif isinstance(html, str) and html.endswith((".html", ".htm")) and "<" not in html:
            raise RegistrationError(f"app {app!r}: {html!r} is not HTML; for the file of that name pass Path({html!r})")
        left: dict[str, Any] = {**options}
        uri = checked_uri("app", app, self.namespace)
        where = f"app {uri}"
        ui, others = _pop_meta(where, left)
        text = _as_text(where, html)
        problems = html_problems(where, text)
        for problem in problems:
            if problem.is_error:
                raise RegistrationError(str(problem))

        # Known options are removed; the others are mistakes.
        replace = left.pop("replace", False)
        icons = left.pop("icons", ())
        resource = Resource(
            uri=uri,
            name=left.pop("name", None) or uri.rpartition("/")[2] or uri.removeprefix(SCHEME),
            title=left.pop("title", None),
            description=left.pop("description", None),
            icons=[convert(icon, Icon) if isinstance(icon, Mapping) else icon for icon in icons] or None,
            meta=others,
        )
        if left:
            from mcpd.server.extensions import options as known_options  # on the way to an error only

            known = ", ".join(known_options.AppOptions.__annotations__)
            raise RegistrationError(f"{where}: unknown option {next(iter(left))!r}; use one of {known}")

        self._add(_entry(resource, text, ui, [*ui.problems, *problems]), replace)
        return uri

    def add_file(self, file: AppFile, namespace: str | None, *, replace: bool) -> str | None:
        """Add a View from a folder, and return its URI; None if another app has that URI."""
        uri = app_uri(namespace or self.namespace, file.name)
        if uri in self.catalog.resources and not replace:
            problem = Problem(f"app {file.path}", f"the app {uri} exists already; this one is left out")
            self._report(file.path, [problem])
            return None
        self._found.pop(file.path, None)
        self._add(self.file_entry(file, uri), replace)
        return uri

    def file_entry(self, file: AppFile, uri: str) -> AppEntry:
        """Return the View of a file without adding it. Problems are logged."""
        problems = [*file.problems, *html_problems(f"app {file.path}", file.html)]
        resource = Resource(uri=uri, name=file.name, title=file.title, description=file.description)
        return _entry(resource, file.html, file.meta, problems)

    def add_folder(self, folder: str, namespace: str | None, *, replace: bool) -> list[str]:
        """Add every HTML file of a folder, and return their URIs. Never raises (APP-S-18)."""
        files, problems = load_folder(folder)
        self._found.pop(folder, None)
        if problems:
            self._report(folder, problems)
        added = [self.add_file(file, namespace, replace=replace) for file in files]
        return [uri for uri in added if uri is not None]

    def _add(self, entry: AppEntry, replace: bool) -> None:
        before = self.catalog.resources.find(entry.key)
        self.catalog.resources.add(entry, replace=replace)
        self.changed(entry.key)
        if isinstance(before, AppEntry):
            # Tools contain the URI with the hash, so a client may have subscribed to either form.
            self._server.resource_updated(before.key)
            self._server.resource_updated(before.versioned_uri)

    def changed(self, uri: str, *, is_removed: bool = False) -> None:
        """Announce changed tools, if a tool has the View that was added, removed or changed."""
        if is_removed:
            self._found.pop(uri, None)
        is_template = "{" in uri
        if any(ui.uri is not None and (is_template or ui.uri == uri) for ui in self.tools.values()):
            self.catalog.tools.changed()

    def dynamic(self, uri: str, mime_type: str | None, meta: Meta) -> ResourceAddition:
        """Return the changes to a View whose HTML a function returns.

        Raises RegistrationError for another MIME type than that of MCP Apps.
        """
        if mime_type is not None and not is_app_type(mime_type):
            raise RegistrationError(f"resource {uri!r}: a resource under ui:// must be {MIME_TYPE}, not {mime_type}")
        others = dict(meta or {})
        view = read_view_meta(f"resource {uri}", others.pop("ui", None))
        _log_problems(view.problems)
        self._found[uri] = list(view.problems)
        whole = {**others, **(view.meta() or {})} or None

        def finish(part: Any) -> Any:
            if isinstance(part, dict):
                return {**part, "mimeType": MIME_TYPE, "_meta": {**(whole or {}), **(part.get("_meta") or {})}}
            return structs.replace(part, mime_type=MIME_TYPE, meta={**(whole or {}), **(part.meta or {})} or None)

        return ResourceAddition(mime_type=MIME_TYPE, meta=whole, finish=finish)

    def _registered_uri(self, uri: str) -> str | None:
        plain = unversioned(uri)
        if plain is None:
            return None
        return plain if isinstance(self.catalog.resources.find(plain), AppEntry) else None

    # -- tools -------------------------------------------------------------------------------

    @property
    def tools(self) -> dict[str, ToolUi]:
        """The tools with a View or a `visibility`, by name."""
        return {entry.key: ui for entry in self.catalog.tools if isinstance(ui := entry.extension_meta.get(UI), ToolUi)}

    def tool_ui(
        self,
        name: str,
        given: tuple[str | None, Visibility | None, Function | None],
        meta: Meta,
    ) -> ToolUi:
        """Return the part of MCP Apps in a tool that is being registered; removes its members from `meta`.

        `given` are `ui=`, `visibility=` and `ui_when=`. Raises RegistrationError for an invalid URI, a `csp` on a tool,
        and options together with members of `meta`.
        """
        uri: object
        uri, visibility, when = given
        where = f"tool {name}"
        problems: list[Problem] = []
        others: dict[str, Any] = {}
        if meta is not None and has_ui(meta):
            if uri is not None or visibility is not None:
                raise RegistrationError(f"{where}: use ui= and visibility=, or _meta with them, but not both")
            uri, others = _pop_raw(where, meta, problems)
            seen, more = read_visibility(where, others.pop("visibility", None))
            problems += more
        else:
            seen = visibility_of(where, visibility)

        checked = None if uri is None else checked_uri(f"{where}, ui", uri, self.namespace)
        condition = None
        if when is not None:
            if checked is None:
                raise RegistrationError(f"{where}: ui_when= requires ui=")
            from mcpd.server.registry.rules import Condition  # few tools have one

            condition = Condition(f"{UI}#{name}", when, UI, f"{where}: its ui_when function")

        _log_problems(problems)
        return ToolUi(
            uri=checked, visibility=seen, link=partial(self.link, name), condition=condition, others=others,
            problems=problems,
        )  # fmt: skip

    def link(self, tool: str, uri: str) -> str | None:
        """Return the URI of a tool's View, with the hash if the content is known.

        Returns None and logs it if the View does not exist: tools must not link unreadable Views (APP-S-05, APP-S-18).
        """
        entry = self.catalog.resources.find(uri)
        if isinstance(entry, AppEntry):
            return entry.versioned_uri
        if self.catalog.has_resource(uri, frozenset((UI,))):
            return uri
        if (tool, uri) not in self._reported:
            self._reported.add((tool, uri))
            log.error("%s", printable(missing_view_problem(self.catalog, tool, uri), 2000))
        return None

    @property
    def load_problems(self) -> list[Problem]:
        """Problems of files that could not be loaded."""
        return [problem for problems in self._found.values() for problem in problems]

    def _report(self, key: str, problems: list[Problem]) -> None:
        # Log and keep the problems of a missing View.
        self._found[key] = problems
        for problem in problems:
            log.error("%s", printable(problem, 2000))


def _entry(resource: Resource, html: str, meta: ViewMeta, problems: list[Problem]) -> AppEntry:
    whole = {**(resource.meta or {}), **(meta.meta() or {})}
    described = structs.replace(resource, mime_type=MIME_TYPE, size=len(html.encode()), meta=whole or None)
    _log_problems(problems)
    return AppEntry(described, html, meta, problems)


def _pop_meta(where: str, options: dict[str, Any]) -> tuple[ViewMeta, dict[str, Any]]:
    # Return the metadata of a View and the other members of `_meta`, and remove these options.
    others = dict(options.pop("meta", None) or {})
    members = {name: options.pop(name, None) for name in ("csp", "permissions", "domain", "prefers_border")}
    if "ui" not in others:
        return view_meta(where, **members), others
    if any(value is not None for value in members.values()):
        raise RegistrationError(f"{where}: use csp=, permissions= and so on, or _meta.ui, but not both")
    return read_view_meta(where, others.pop("ui")), others


def _as_text(where: str, html: str | bytes) -> str:
    # Decode HTML. It is always sent as text (APP-S-03): official hosts decode a blob as Latin-1, or refuse it.
    if isinstance(html, str):
        return html.removeprefix("\ufeff")
    try:
        return html.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise RegistrationError(f"{where}: the HTML is not UTF-8 (byte {error.start})") from None


def _is_app_only(entry: ToolEntry) -> bool:
    ui = entry.extension_meta.get(UI)
    return isinstance(ui, ToolUi) and ui.is_required


def _log_problems(problems: Iterable[Problem]) -> None:
    # Log problems. The rest of the View is served.
    for problem in problems:
        log.warning("%s", printable(problem, 2000))


def missing_view_problem(catalog: Catalog, tool: str, uri: str) -> Problem:
    """Return the problem of a tool whose View does not exist, and which is listed without a View (APP-S-05)."""
    from difflib import get_close_matches  # only needed for errors

    known = [entry.key for entry in catalog.resources if entry.key.startswith(SCHEME)]
    near = get_close_matches(uri, known, 1)
    others = f"the registered apps are {', '.join(known)}" if known else "no app is registered"
    hint = f"did you mean {near[0]}?" if near else others
    text = f"its View {uri} is not registered: {hint}; add it with server.app() or server.add_apps()"
    return Problem(f"tool {tool}", text)


def _read(path: os.PathLike[str], where: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        text = f"{where}: {os.path.abspath(path)}: {error.strerror}; hosts start servers in other folders: use a path"
        raise RegistrationError(f'{text} like Path(__file__).with_name("{os.path.basename(path)}")') from None
