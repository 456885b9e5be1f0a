"""Checks of what a server says of its apps: tools and resources, their links, types, visibility, permissions.

All is looked at as it came over the wire. Rules: APP-S-01 to -16 of docs/rules.toml.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, to_builtins

from mcpd.apps.verdict.report import Check, Finding, checked
from mcpd.client import Client
from mcpd.errors import ConfigurationError, McpdError
from mcpd.extensions.ui.constants import FLAT_URI, MIME_TYPE, SCHEME, UI, is_app_type
from mcpd.extensions.ui.csp_sources import read_csp, read_permissions, validate_csp
from mcpd.extensions.ui.uris import unversioned
from mcpd.protocol.types.resources import Resource
from mcpd.protocol.types.tools import Tool

_RESOURCE_MEMBERS: Final = ("csp", "permissions", "domain", "prefersBorder")
_TOOL_MEMBERS: Final = ("resourceUri", "visibility")
_CSP_MEMBERS: Final = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
_PERMISSIONS: Final = ("camera", "microphone", "geolocation", "clipboardWrite")
_DANGEROUS: Final = {
    "camera": "sees what stands before the camera",
    "microphone": "hears the room",
    "geolocation": "knows where the user is",
}


class App(Struct, kw_only=True):
    """A `ui://` resource as listed, as read, and the tools that open it."""

    uri: str
    tools: list[Tool]
    listed: Resource | None = None
    contents: Sequence[Mapping[str, Any]] = ()
    """What `resources/read` gave, as plain dicts."""
    error: str = ""
    """Why it could not be read."""


def linked_uri(tool: Tool) -> str | None:
    """The URI that a tool names for its app, right or wrong; the nested member wins."""
    ui, meta = _ui(tool.meta), tool.meta or {}
    uri = ui.get("resourceUri", meta.get(FLAT_URI))
    return uri if isinstance(uri, str) else None


def server_checks(
    tools: Sequence[Tool], apps: Sequence[App], extensions: Mapping[str, Any] | None, resources_error: str
) -> list[Check]:
    """What is about the server as a whole."""

    def found() -> Iterator[Finding]:
        if UI not in (extensions or {}):
            text = f"the server does not say that it has {UI}"
            yield _note(text, "answer it in capabilities.extensions when the client offers it")
        if resources_error:
            text = f"resources/list fails: {resources_error}"
            yield _failure(text, "answer it, if only with an empty list: one host gives up otherwise", "APP-S-09")
        for app in apps:
            if not app.tools:
                yield _warning(f"no tool opens {app.uri}", "name it in a tool's _meta.ui.resourceUri, or remove it")
        hidden = [tool.name for tool in tools if _ui(tool.meta).get("visibility") == ["app"]]
        if hidden and not any(app.tools for app in apps):
            yield _warning(f"only an app may call {', '.join(hidden)}, and no tool opens one", "give a tool an app")

    return [
        checked(
            "server",
            "The server offers its apps",
            found(),
            f"{len(apps)} app{'' if len(apps) == 1 else 's'}",
            ["APP-S-07", "APP-S-09"],
        )
    ]


def tool_checks(app: App) -> list[Check]:
    """What the tools of an app say."""

    def visibility() -> Iterator[Finding]:
        for tool in app.tools:
            yield from _of_visibility(tool)
        if app.tools and all(not _is_for(tool, "model") for tool in app.tools):
            yield _warning(
                "no tool that opens it is for the model", 'leave "model" in the visibility of one', "APP-S-13"
            )

    def links() -> Iterator[Finding]:
        if not app.uri.startswith(SCHEME):
            yield _failure(f"{app.uri} does not begin with {SCHEME}", f"write {SCHEME}name/page", "APP-S-01")
        if app.error:
            yield _failure(f"{app.uri} cannot be read: {app.error}", "serve it under exactly this URI", "APP-S-05")
        for tool in app.tools:
            yield from _of_link(tool)

    return [
        checked("link", "Tools and resource belong together", links(), _names(app.tools), ["APP-S-01", "APP-S-05"]),
        checked("visibility", "Who may call the tools is said right", visibility(), _seen(app.tools), ["APP-S-13"]),
    ]


def resource_checks(app: App) -> list[Check]:
    """What the resource says of itself, as listed and as read."""
    item = app_item(app)
    ui = _ui(item.get("_meta")) or _ui(None if app.listed is None else app.listed.meta)
    return [
        checked("type", "Type and form of the resource", _of_type(app, item), MIME_TYPE, ["APP-S-02", "APP-S-03"]),
        checked("metadata", "_meta.ui is valid", _of_metadata(app, item, ui), _declared(ui), ["APP-S-10", "APP-S-08"]),
        checked("permissions", "Permissions are few", _of_permissions(ui), "none asked for", []),
    ]


def _of_visibility(tool: Tool) -> Iterator[Finding]:
    said = _ui(tool.meta).get("visibility")
    if said is None:
        return
    if not isinstance(said, list) or not said:
        yield _failure(
            f"{tool.name}: visibility is {said!r}", 'it is an array of "model" and "app", with at least one', "APP-S-13"
        )
    elif unknown := [who for who in said if who not in ("model", "app")]:
        yield _failure(f"{tool.name}: visibility names {unknown!r}", 'there are "model" and "app"', "APP-S-13")


def _of_link(tool: Tool) -> Iterator[Finding]:
    ui, meta = _ui(tool.meta), tool.meta or {}
    flat, nested = meta.get(FLAT_URI), ui.get("resourceUri")
    if nested is None:
        yield _warning(
            f"{tool.name} names its app only in _meta[{FLAT_URI!r}], the older form",
            "write _meta.ui.resourceUri too", "APP-S-11",
        )  # fmt: skip
    elif flat is not None and flat != nested:
        yield _failure(
            f"{tool.name} names two apps: {nested!r} and, in the older form, {flat!r}", "write one", "APP-S-11"
        )
    for name in ("csp", "permissions"):
        if name in ui:
            yield _failure(
                f"{tool.name}: _meta.ui.{name} means nothing on a tool", "write it on the resource", "APP-S-12"
            )
    for name in sorted(set(ui) - {*_TOOL_MEMBERS, "csp", "permissions"}):
        yield _note(f"{tool.name}: hosts do not know _meta.ui.{name}", "")


def _of_type(app: App, item: Mapping[str, Any]) -> Iterator[Finding]:
    if app.error:
        return
    types = [entry.get("mimeType") for entry in app.contents]
    if not item:
        yield _failure(f"nothing is {MIME_TYPE}; the server sent {types or 'nothing'}", "give it this type", "APP-S-02")
        return
    if item.get("mimeType") != MIME_TYPE:
        yield _failure(f"the type is {item.get('mimeType')!r}", f"write exactly {MIME_TYPE}", "APP-S-02")
    if len(app.contents) != 1:
        yield _warning(f"{len(app.contents)} contents under one URI", "send one: some hosts take no other", "APP-S-03")
    if item.get("uri") != app.uri:
        yield _warning(f"the content says that it is {item.get('uri')!r}", f"say {app.uri!r}", "APP-S-05")
    if not isinstance(item.get("text"), str):
        yield _warning("the HTML comes as a blob", "send it as text: one host refuses a blob", "APP-S-03")
    if app.listed is None:
        yield _note("it is not in resources/list", "list it, so that hosts can read it before it is needed")
    elif app.listed.mime_type is not None and not is_app_type(app.listed.mime_type):
        yield _failure(f"it is listed as {app.listed.mime_type!r}", f"list it as {MIME_TYPE}", "APP-S-02")


def _of_metadata(app: App, item: Mapping[str, Any], ui: Mapping[str, Any]) -> Iterator[Finding]:
    for where, meta in (("content", item.get("_meta")), ("listing", None if app.listed is None else app.listed.meta)):
        said = meta.get("ui") if isinstance(meta, Mapping) else None
        if said is not None and not isinstance(said, Mapping):
            yield _failure(f"_meta.ui of the {where} is {said!r}", "it is an object", "APP-S-10")
    listed = _ui(None if app.listed is None else app.listed.meta)
    if listed and _ui(item.get("_meta")) != listed:
        yield _warning("_meta.ui is another one in resources/list and in resources/read", "say the same", "APP-S-10")
    for name in sorted(set(ui) - set(_RESOURCE_MEMBERS)):
        yield _note(f"hosts do not know _meta.ui.{name}", f"there are {', '.join(_RESOURCE_MEMBERS)}")
    if ui.get("prefersBorder") not in (None, True, False):
        yield _failure(f"prefersBorder is {ui['prefersBorder']!r}", "write true or false", "APP-S-10")
    if ui.get("domain") is not None:
        yield _warning(
            f"domain is {ui['domain']!r}: a host that expects another format shows nothing", "leave it out", "APP-S-08"
        )
    yield from _of_csp(ui.get("csp"))


def _of_csp(said: object) -> Iterator[Finding]:
    csp, problems = read_csp(said)
    if isinstance(said, Mapping):
        for name in sorted(set(said) - set(_CSP_MEMBERS)):
            yield _failure(f"csp has no member {name!r}", f"there are {', '.join(_CSP_MEMBERS)}", "APP-H-05")
    if csp is not None:
        problems = [*problems, *validate_csp(csp)[1]]
    for problem in problems:
        severity = _failure if problem.dropped else _warning
        yield severity(
            f"csp.{problem.kind}: {problem.source!r} {problem.reason}", "write scheme://host[:port]", "APP-H-05"
        )
    if csp is None:
        return
    for kind in ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"):
        for source in csp.sources(kind):
            if source.startswith(("http://", "ws://")) and "localhost" not in source and "127.0.0.1" not in source:
                yield _warning(f"csp.{kind}: {source} is not encrypted", "use https or wss")
            elif "://*." in source:
                yield _note(f"csp.{kind}: {source} lets in every host below it", "name those that are needed")


def _of_permissions(ui: Mapping[str, Any]) -> Iterator[Finding]:
    said = ui.get("permissions")
    if said is None:
        return
    if not isinstance(said, Mapping):
        yield _failure(f"permissions is {said!r}", "it is an object with a member {} for each", "APP-S-10")
        return
    for name in sorted(set(said) - set(_PERMISSIONS)):
        yield _failure(f"there is no permission {name!r}", f"there are {', '.join(_PERMISSIONS)}", "APP-S-10")
    for name, value in said.items():
        if name in _PERMISSIONS and not isinstance(value, Mapping):
            yield _failure(f"permissions.{name} is {value!r}", "write {}", "APP-S-10")
    asked = read_permissions(said)
    for name in asked.names() if asked is not None else ():
        if name in _DANGEROUS:
            text = f"it asks for {name}, with which it {_DANGEROUS[name]}"
            yield _warning(text, "ask only if it cannot work without; hosts deny it unless the user allows it")
        else:
            yield _note(f"it asks for {name}", "it has to work where that is denied")


# ------------------------------------------------------------------------------------------ small things


def app_item(app: App) -> Mapping[str, Any]:
    """The content that is the app, {} if there is none: of several the one with its URI; {} if none has the type."""
    apps = [entry for entry in app.contents if is_app_type(entry.get("mimeType"))]
    return next((entry for entry in apps if entry.get("uri") == app.uri), apps[0] if apps else {})


def _ui(meta: object) -> Mapping[str, Any]:
    ui = meta.get("ui") if isinstance(meta, Mapping) else None
    return ui if isinstance(ui, Mapping) else {}


def _is_for(tool: Tool, who: str) -> bool:
    said = _ui(tool.meta).get("visibility")
    return said is None or (isinstance(said, list) and who in said)


def _names(tools: Iterable[Tool]) -> str:
    names = ", ".join(tool.name for tool in tools)
    return f"opened by {names}" if names else "opened by no tool"


def _seen(tools: Iterable[Tool]) -> str:
    return ", ".join(f"{tool.name} for {' and '.join(_sides(tool))}" for tool in tools) or "no tool"


def _sides(tool: Tool) -> list[str]:
    return [who for who in ("model", "app") if _is_for(tool, who)] or ["nobody"]


def _declared(ui: Mapping[str, Any]) -> str:
    csp = ui.get("csp")
    if not isinstance(csp, Mapping):
        return "declares nothing: the strictest policy"
    count = sum(len(value) for value in csp.values() if isinstance(value, list))
    return f"{count} sources declared"


def plain(entry: object) -> Mapping[str, Any]:
    """A struct of the wire as a dict."""
    made = to_builtins(entry)
    return made if isinstance(made, Mapping) else {}


def _failure(text: str, advice: str, rule: str = "") -> Finding:
    return Finding(severity="failure", text=text, advice=advice, rule=rule)


def _warning(text: str, advice: str, rule: str = "") -> Finding:
    return Finding(severity="warning", text=text, advice=advice, rule=rule)


def _note(text: str, advice: str) -> Finding:
    return Finding(severity="note", text=text, advice=advice)


_MOST_APPS = 200


class Gathered(Struct, kw_only=True):
    """What a server offers that is about apps."""

    tools: list[Tool]
    apps: list[App]
    resources_error: str
    """Why resources could not be listed; "" if they could, or if the server has none."""


async def gather(client: Client, wanted: Sequence[str] = (), called: Iterable[str] = ()) -> Gathered:
    """Ask a server for its apps: those that `wanted` names by URI, name or tool, or all.

    `called` are the tools that somebody gave arguments for. Raises ConfigurationError if there is no app, or if one of
    these names is nothing's, and what a client raises.
    """
    tools = await client.list_tools()
    resources, error = await _resources(client)
    listed = {resource.uri: resource for resource in resources if _is_app(resource)}

    apps: dict[str, App] = {}
    for tool in tools:
        if (uri := linked_uri(tool)) is not None:
            apps.setdefault(uri, App(uri=uri, tools=[], listed=listed.get(uri))).tools.append(tool)
    for uri, resource in listed.items():
        apps.setdefault(uri, App(uri=uri, tools=[], listed=resource))
    if not apps:
        raise ConfigurationError("the server has no apps: no tool names one, and no resource is one; see mcpd list")

    _openers(tools, called)
    chosen = _chosen(list(apps.values()), wanted)
    await asyncio.gather(*(_read(client, app) for app in chosen))
    return Gathered(tools=tools, apps=chosen, resources_error=error)


async def _resources(client: Client) -> tuple[list[Resource], str]:
    try:
        return await client.list_resources(), ""
    except McpdError as error:
        return [], str(error)


def _is_app(resource: Resource) -> bool:
    return resource.uri.startswith(SCHEME) or is_app_type(resource.mime_type)


def _openers(tools: Sequence[Tool], called: Iterable[str]) -> None:
    """Raises ConfigurationError if one of the names is not a tool that opens an app: its arguments would go unused."""
    known = [tool.name for tool in tools if linked_uri(tool) is not None]
    for name in called:
        if name not in known:
            there = f"there are {', '.join(known[:20])}" if known else "there is none"
            raise ConfigurationError(
                f"arguments are given for {name!r}, but no tool of that name opens an app; {there}"
            )


def _chosen(apps: list[App], wanted: Sequence[str]) -> list[App]:
    """The apps that are meant. Raises ConfigurationError for a name that is none's."""
    if not wanted:
        return apps[:_MOST_APPS]
    found: dict[str, App] = {}
    for name in wanted:
        fits = [app for app in apps if (unversioned(name) or name) in _names_of(app)]
        if not fits:
            known = ", ".join(sorted(unversioned(app.uri) or app.uri for app in apps)[:20])
            raise ConfigurationError(f"there is no app {name!r}, and no tool of that name opens one; there are {known}")
        found.update({app.uri: app for app in fits})
    return list(found.values())


def _names_of(app: App) -> set[str]:
    plain = unversioned(app.uri) or app.uri
    return {app.uri, plain, plain.rpartition("/")[2], *(tool.name for tool in app.tools)}


async def _read(client: Client, app: App) -> None:
    try:
        result = await client.read_resource(app.uri)
    except McpdError as error:
        app.error = str(error)
        return
    contents: list[Any] = [plain(item) for item in result.contents]
    app.contents = contents
