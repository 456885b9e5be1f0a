"""What a server says of its apps: tools, resources, documents, read once by a host of Apps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from mcpd.client import Client
from mcpd.errors import ConfigurationError, McpdError
from mcpd.extensions.ui.constants import SCHEME, is_app_type
from mcpd.extensions.ui.uris import unversioned
from mcpd.protocol.types.resources import Resource
from mcpd.protocol.types.tools import Tool
from mcpd.verdict.metadata import App, linked_uri, plain

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
        fits = [app for app in apps if (unversioned(name) or name) in _names(app)]
        if not fits:
            known = ", ".join(sorted(unversioned(app.uri) or app.uri for app in apps)[:20])
            raise ConfigurationError(f"there is no app {name!r}, and no tool of that name opens one; there are {known}")
        found.update({app.uri: app for app in fits})
    return list(found.values())


def _names(app: App) -> set[str]:
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
