"""The declarations of a server about its apps, and their checks: links, types, visibility, metadata, permissions.

`read_apps` lists the tools and resources of a server and reads the documents once. The checks look at the values as
they came over the wire. Rules APP-S-01 to -16 of docs/rules.toml.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, to_builtins

from mcpd.apps.host.document import app_content
from mcpd.apps.tool_metadata import is_for_app, is_for_model, linked_uri, tool_problems, ui_member
from mcpd.client import Client
from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.types.features import Resource, Tool
from mcpd.server.extensions.ui.constants import MIME_TYPE, SCHEME, UI, is_app_type, unversioned
from mcpd.server.extensions.ui.csp_sources import SOURCE_KINDS, read_csp, read_permissions, validate_csp
from .report import Check, Finding, checked, failure, note, warning

_MAX_APPS: Final = 200
_RESOURCE_MEMBERS: Final = ("csp", "permissions", "domain", "prefersBorder")
_TOOL_MEMBERS: Final = ("resourceUri", "visibility")
_PERMISSIONS: Final = ("camera", "microphone", "geolocation", "clipboardWrite")
_SENSITIVE: Final = {
    "camera": "it can film the user",
    "microphone": "it can record the user",
    "geolocation": "it can locate the user",
}


class App(Struct, kw_only=True):
    """A `ui://` resource as listed and as read, and the tools that open it."""

    uri: str
    tools: list[Tool]
    listed: Resource | None = None
    contents: Sequence[Mapping[str, Any]] = ()
    """The contents of the answer to `resources/read`."""
    error: str = ""
    """Why the resource could not be read."""

    @property
    def item(self) -> Mapping[str, Any]:
        """The content that is the app; empty without one."""
        return app_content(self.uri, self.contents)

    @property
    def listed_meta(self) -> dict[str, Any] | None:
        return None if self.listed is None else self.listed.meta


class ServerApps(Struct, kw_only=True):
    tools: list[Tool]
    apps: list[App]
    resources_error: str
    """Why resources could not be listed; empty if they could, or if the server has none."""


# ------------------------------------------------------------------------------------------ reading


async def read_apps(client: Client, wanted: Sequence[str] = (), called: Iterable[str] = ()) -> ServerApps:
    """Read the apps of a server, or those that `wanted` names by URI, name or tool. Raises ConfigurationError."""
    tools = await client.list_tools()
    resources: list[Resource] = []
    error = ""
    try:
        resources = await client.list_resources()
    except McpdError as refusal:
        error = str(refusal)
    listed = {each.uri: each for each in resources if each.uri.startswith(SCHEME) or is_app_type(each.mime_type)}

    apps: dict[str, App] = {}
    for tool in tools:
        if (uri := linked_uri(tool)) is not None:
            apps.setdefault(uri, App(uri=uri, tools=[], listed=listed.get(uri))).tools.append(tool)

    for uri, resource in listed.items():
        apps.setdefault(uri, App(uri=uri, tools=[], listed=resource))
    if not apps:
        raise ConfigurationError("the server has no apps: no tool names one, and no resource is one; see `mcpd list`")

    _check_called(tools, called)
    chosen = _choose(list(apps.values()), wanted)
    await asyncio.gather(*(_read(client, app) for app in chosen))
    return ServerApps(tools=tools, apps=chosen, resources_error=error)


def _check_called(tools: Sequence[Tool], called: Iterable[str]) -> None:
    known = [tool.name for tool in tools if linked_uri(tool) is not None]
    for name in called:
        if name not in known:
            there = f"there are {', '.join(known[:20])}" if known else "there is none"
            raise ConfigurationError(f"arguments are given for {name!r}, but no such tool opens an app; {there}")


def _choose(apps: list[App], wanted: Sequence[str]) -> list[App]:
    if not wanted:
        return apps[:_MAX_APPS]
    found: dict[str, App] = {}
    for name in wanted:
        matching = [app for app in apps if (unversioned(name) or name) in _names(app)]
        if not matching:
            known = ", ".join(sorted(unversioned(app.uri) or app.uri for app in apps)[:20])
            raise ConfigurationError(f"no app is named {name!r}, and no such tool opens one; the apps are {known}")
        found.update({app.uri: app for app in matching})

    return list(found.values())


def _names(app: App) -> set[str]:
    plain = unversioned(app.uri) or app.uri
    return {app.uri, plain, plain.rpartition("/")[2], *(tool.name for tool in app.tools)}


async def _read(client: Client, app: App) -> None:
    try:
        result = await client.read_resource(app.uri)
    except McpdError as error:
        app.error = str(error)
    else:
        app.contents = to_builtins(list(result.contents))


# ------------------------------------------------------------------------------------------- checks


def server_checks(server: ServerApps, extensions: Mapping[str, Any] | None) -> list[Check]:
    """Return the checks of the server as a whole; `extensions` is a member of its capabilities."""
    apps = server.apps

    def found() -> Iterator[Finding]:
        if UI not in (extensions or {}):
            text = f"the server does not say that it has {UI}"
            yield note(text, "declare it in capabilities.extensions when the client offers it")

        if server.resources_error:
            text = f"resources/list fails: {server.resources_error}"
            yield failure(text, "answer it, if only with an empty list: one host gives up otherwise", "APP-S-09")
        for app in apps:
            if not app.tools:
                yield warning(f"no tool opens {app.uri}", "name it in a tool's _meta.ui.resourceUri, or remove it")

        hidden = [tool.name for tool in server.tools if ui_member(tool.meta).get("visibility") == ["app"]]
        if hidden and not any(app.tools for app in apps):
            yield warning(f"only an app may call {', '.join(hidden)}, and no tool opens one", "give a tool an app")

    count = f"{len(apps)} app{'' if len(apps) == 1 else 's'}"
    return [checked("server", "The server offers its apps", found(), count, ["APP-S-07", "APP-S-09"])]


def tool_checks(app: App) -> list[Check]:
    def found(*, of_visibility: bool) -> Iterator[Finding]:
        for tool in app.tools:
            for problem in tool_problems(tool.meta):
                # A URI of another scheme is a problem of the app, below.
                if problem.rule != "APP-S-01" and (problem.rule == "APP-S-13") is of_visibility:
                    finding = failure if problem.is_error else warning
                    yield finding(f"{tool.name}: {problem.text}", problem.advice, problem.rule)

    def visibility() -> Iterator[Finding]:
        yield from found(of_visibility=True)
        if app.tools and all("model" not in _audience(tool) for tool in app.tools):
            text = "the model may call no tool that opens the app"
            yield warning(text, 'leave "model" in the visibility of one tool', "APP-S-13")

    def links() -> Iterator[Finding]:
        if not app.uri.startswith(SCHEME):
            yield failure(f"{app.uri} does not begin with {SCHEME}", f"write {SCHEME}name/page", "APP-S-01")
        if app.error:
            yield failure(f"{app.uri} cannot be read: {app.error}", "serve it under exactly this URI", "APP-S-05")
        yield from found(of_visibility=False)
        for tool in app.tools:
            for name in sorted(set(ui_member(tool.meta)) - {*_TOOL_MEMBERS, "csp", "permissions"}):
                yield note(f"{tool.name}: hosts do not know _meta.ui.{name}")

    opened = f"opened by {', '.join(tool.name for tool in app.tools) or 'no tool'}"
    seen = ", ".join(f"{tool.name} for {' and '.join(_audience(tool)) or 'nobody'}" for tool in app.tools)
    return [
        checked("link", "Tools and resource belong together", links(), opened, ["APP-S-01", "APP-S-05"]),
        checked("visibility", "The visibility of tools is valid", visibility(), seen or "no tool", ["APP-S-13"]),
    ]


def resource_checks(app: App) -> list[Check]:
    ui = ui_member(app.item.get("_meta")) or ui_member(app.listed_meta)
    csp = ui.get("csp")
    declared = "declares nothing: the strictest policy"
    if isinstance(csp, Mapping):
        declared = f"{sum(len(value) for value in csp.values() if isinstance(value, list))} sources declared"
    return [
        checked("type", "Type and form of the resource", _type_findings(app), MIME_TYPE, ["APP-S-02", "APP-S-03"]),
        checked("metadata", "_meta.ui is valid", _metadata_findings(app, ui), declared, ["APP-S-10", "APP-S-08"]),
        checked("permissions", "Permissions are few", _permission_findings(ui), "asks for none", []),
    ]


def _type_findings(app: App) -> Iterator[Finding]:
    if app.error:
        return
    item = app.item
    if not item:
        types = [entry.get("mimeType") for entry in app.contents]
        text = f"nothing is {MIME_TYPE}; the server sent {types or 'nothing'}"
        yield failure(text, "send the resource with this type", "APP-S-02")
        return

    if item.get("mimeType") != MIME_TYPE:
        yield failure(f"the type is {item.get('mimeType')!r}", f"write exactly {MIME_TYPE}", "APP-S-02")
    if len(app.contents) != 1:
        text = f"{len(app.contents)} contents under one URI"
        yield warning(text, "send one content: some hosts accept no more", "APP-S-03")

    if item.get("uri") != app.uri:
        yield warning(f"the URI of the content is {item.get('uri')!r}", f"write {app.uri!r}", "APP-S-05")
    if not isinstance(item.get("text"), str):
        yield warning("the HTML comes as a blob", "send it as text: one host refuses a blob", "APP-S-03")
    if app.listed is None:
        yield note("the resource is not in resources/list", "list it, so that hosts can read it in advance")
    elif app.listed.mime_type is not None and not is_app_type(app.listed.mime_type):
        yield failure(f"the resource is listed as {app.listed.mime_type!r}", f"list it as {MIME_TYPE}", "APP-S-02")


def _metadata_findings(app: App, ui: Mapping[str, Any]) -> Iterator[Finding]:
    for where, meta in (("content", app.item.get("_meta")), ("listing", app.listed_meta)):
        member = meta.get("ui") if isinstance(meta, Mapping) else None
        if member is not None and not isinstance(member, Mapping):
            yield failure(f"_meta.ui of the {where} is {member!r}", "write an object", "APP-S-10")

    listed = ui_member(app.listed_meta)
    if listed and ui_member(app.item.get("_meta")) != listed:
        text = "_meta.ui differs between resources/list and resources/read"
        yield warning(text, "send the same in both", "APP-S-10")

    for name in sorted(set(ui) - set(_RESOURCE_MEMBERS)):
        yield note(f"hosts do not know _meta.ui.{name}", f"they know {', '.join(_RESOURCE_MEMBERS)}")
    if ui.get("prefersBorder") not in (None, True, False):
        yield failure(f"prefersBorder is {ui['prefersBorder']!r}", "write true or false", "APP-S-10")
    if ui.get("domain") is not None:
        text = f"domain is {ui['domain']!r}: a host that expects another format shows nothing"
        yield warning(text, "leave it out", "APP-S-08")

    yield from _csp_findings(ui.get("csp"))


def _csp_findings(declared: object) -> Iterator[Finding]:
    csp, problems = read_csp(declared)
    if isinstance(declared, Mapping):
        for name in sorted(set(declared) - set(SOURCE_KINDS)):
            yield failure(f"csp has no member {name!r}", f"there are {', '.join(SOURCE_KINDS)}", "APP-H-05")

    if csp is not None:
        problems = [*problems, *validate_csp(csp)[1]]
    for problem in problems:
        finding = failure if problem.dropped else warning
        text = f"csp.{problem.kind}: {problem.source!r} {problem.reason}"
        yield finding(text, "write scheme://host[:port]", "APP-H-05")
    if csp is None:
        return

    for kind in SOURCE_KINDS:
        for source in csp.sources(kind):
            if source.startswith(("http://", "ws://")) and "localhost" not in source and "127.0.0.1" not in source:
                yield warning(f"csp.{kind}: {source} is not encrypted", "use https or wss")
            elif "://*." in source:
                yield note(f"csp.{kind}: {source} allows every host below it", "name the hosts that the app needs")


def _permission_findings(ui: Mapping[str, Any]) -> Iterator[Finding]:
    permissions = ui.get("permissions")
    if permissions is None:
        return
    if not isinstance(permissions, Mapping):
        text = f"permissions is {permissions!r}"
        yield failure(text, "write an object with a member {} for each permission", "APP-S-10")
        return

    for name in sorted(set(permissions) - set(_PERMISSIONS)):
        yield failure(f"unknown permission {name!r}", f"there are {', '.join(_PERMISSIONS)}", "APP-S-10")
    for name, value in permissions.items():
        if name in _PERMISSIONS and not isinstance(value, Mapping):
            yield failure(f"permissions.{name} is {value!r}", "write {}", "APP-S-10")

    asked = read_permissions(permissions)
    for name in asked.names() if asked is not None else ():
        if name in _SENSITIVE:
            text = f"the app asks for {name}, with which {_SENSITIVE[name]}"
            yield warning(text, "ask only if the app cannot work without; hosts deny it unless the user allows it")
        else:
            yield note(f"the app asks for {name}", "it must also work where this is denied")


def _audience(tool: Tool) -> list[str]:
    return [name for name, is_for in (("model", is_for_model), ("app", is_for_app)) if is_for(tool)]
