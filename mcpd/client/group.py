"""`ClientGroup`: several servers as one, with all their tools, resources and prompts in one list each.

`group_members` has the servers, the prefixes of their names, and the merged lists.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from inspect import isawaitable
from itertools import product
from typing import Any, Literal, Self, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from mcpd.client.callbacks import Callbacks, ListKind
from mcpd.client.client import Client, ToolCalls
from mcpd.client.group_members import Collision, GroupLists, GroupMember, Prefix, server_names
from mcpd.client.http.options import HttpOptions
from mcpd.client.limits import ClientLimits
from mcpd.client.session import OnProgress
from mcpd.client.target import Target
from mcpd.errors import ConfigurationError, LocalProtocolError, McpdError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Implementation, LogLevel
from mcpd.protocol.types.features import (
    CallToolResult,
    GetPromptResult,
    Prompt,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    Tool,
)
from mcpd.protocol.types.interaction import CompleteResult, PromptReference, ResourceTemplateReference

log = logging.getLogger("mcpd.client")

_NO_CALLBACKS = Callbacks()
_DEFAULT_LIMITS = ClientLimits()
_TOGETHER_SECONDS = 0.05
"""Changes within this time are reported once."""

OnServer: TypeAlias = Callable[[str, McpdError | None], object]


class ClientGroup(ToolCalls):
    """Several servers: `async with ClientGroup({"git": [...], "web": "https://…"}) as group:`.

    `servers`: targets by name, or the name of an mcpServers file or an installed host (`claude-code`) for all its
    servers.

    `callbacks`: for all servers, or a function that returns the callbacks of a server by its name. `list_changed` is
    called once for each kind of list, however many servers have changed, connected or been lost.

    `prefixes`: tools and prompts are named `{server}_{name}`, URIs `{server}+scheme://rest`. If False, names are
    unchanged, and the first server has precedence if a name is used twice: see `collisions`.

    `on_server`: called with the name of a server and None when it connects, and with the error when it is lost.

    `opening_seconds`: seconds that `open` waits for the servers, which connect concurrently. Servers that fail or are
    lost are reported in `errors`, the log and `on_server`, and tried again after seconds, later after a minute.

    `http`: options for all servers; header fields of one server belong in its target (`UrlTarget(url, headers=…)`). All
    other parameters are those of `Client`.
    """

    def __init__(
        self,
        servers: Mapping[str, Target] | str | os.PathLike[str],
        callbacks: Callbacks | Callable[[str], Callbacks] = _NO_CALLBACKS,
        *,
        prefixes: bool = True,
        on_server: OnServer | None = None,
        opening_seconds: float = 30.0,
        info: Implementation | None = None,
        extensions: Mapping[str, Any] | None = None,
        version: str | None = None,
        timeout: float | None = 60.0,
        limits: ClientLimits = _DEFAULT_LIMITS,
        cache: bool = True,
        check_results: bool = True,
        http: HttpOptions | None = None,
    ) -> None:
        self.opening_seconds = opening_seconds
        self._on_server = on_server
        self._options: dict[str, Any] = {
            "info": info, "extensions": extensions, "version": version, "timeout": timeout, "limits": limits,
            "cache": cache, "check_results": check_results, "http": http, "reconnect": False,
        }  # fmt: skip

        self._targets = dict(servers) if isinstance(servers, Mapping) else _all_of(os.fspath(servers))
        if not self._targets:
            raise ConfigurationError("a group needs at least one server")
        self._members: dict[str, GroupMember] = {}
        self._names = server_names(self._targets)
        self._callbacks = {
            name: callbacks if isinstance(callbacks, Callbacks) else callbacks(name) for name in self._names
        }
        self._prefixes = prefixes
        self._lists = GroupLists(self._members, has_prefixes=prefixes)

        self._is_open = False
        self._is_there: dict[str, bool] = {}
        self._changed: set[ListKind] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._notifying: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------------------------- opening

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to all servers concurrently, and wait at most `opening_seconds` until each has connected or
        failed.
        """
        if self._members:
            raise LocalProtocolError("a ClientGroup can be opened only once; create another one")
        for name, target in self._targets.items():
            prefix = Prefix(self._names[name], is_used=self._prefixes)
            self._members[self._names[name]] = GroupMember(
                self._names[name], prefix, self._client_factory(name, target, prefix), self._on_change
            )
        try:
            for member in self._members.values():
                member.start()
            async with asyncio.timeout(self.opening_seconds):
                for member in self._members.values():
                    await member.tried.wait()
        except TimeoutError:
            pass  # the other servers may connect later
        except BaseException:
            await self.aclose()
            raise
        self._is_open = True

    async def aclose(self) -> None:
        """Close all connections concurrently. Safe to call twice."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        others = [task for task in self._notifying if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        closing = [asyncio.create_task(member.aclose()) for member in self._members.values()]
        if closing:
            await asyncio.wait([*closing, *others])

    def _client_factory(self, name: str, target: Target, prefix: Prefix) -> Callable[[], Client]:
        given = self._callbacks[name]
        own: dict[str, Any] = {}
        if given.list_changed is not None:
            own["list_changed"] = self._list_changed
        if (updated := given.resource_updated) is not None:
            own["resource_updated"] = lambda uri: updated(prefix.uri(uri))
        callbacks = replace(given, **own)
        return lambda: Client(target, callbacks, **self._options)

    # --------------------------------------------------------------------------------- connected servers

    @property
    def clients(self) -> dict[str, Client]:
        """The clients of connected servers, by name."""
        return {name: member.client for name, member in self._members.items() if member.client is not None}

    @property
    def errors(self) -> dict[str, McpdError]:
        """Why servers are unavailable, by name. Servers that have not been tried yet are left out."""
        return {name: member.error for name, member in self._members.items() if member.error is not None}

    @property
    def collisions(self) -> list[Collision]:
        """Entries of the last lists that are hidden because another server has an entry of the same name."""
        return self._lists.collisions

    def client(self, server: str) -> Client:
        """Return the client of one server. Raises ConnectionLost if it is unavailable, ConfigurationError for an
        unknown name.
        """
        member = self._members.get(self._names.get(server, server))
        if member is None:
            raise ConfigurationError(f"no server {server!r} in this group; available: {', '.join(self._names)}")
        return member.connected_client()

    def _on_change(self, member: GroupMember, error: McpdError | None) -> None:
        """Handle a server that has connected, was lost, or failed again."""
        if self._is_there.get(member.name) is (error is None):
            return
        self._is_there[member.name] = error is None
        if error is not None:
            log.warning("the server %s is unavailable; trying again: %s", printable(member.name), printable(error))
        if self._on_server is not None:
            try:
                self._on_server(member.name, error)
            except Exception:
                log.exception("on_server failed")
        for kind in ("tools", "resources", "prompts"):
            self._list_changed(kind)

    def _list_changed(self, kind: ListKind) -> None:
        if self._is_open:
            self._changed.add(kind)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_TOGETHER_SECONDS, self._notify_changes)

    def _notify_changes(self) -> None:
        self._timer = None
        task = asyncio.get_running_loop().create_task(self._notify(sorted(self._changed)))
        self._changed.clear()
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def _notify(self, kinds: list[ListKind]) -> None:
        callbacks = {id(given.list_changed): given.list_changed for given in self._callbacks.values()}
        for kind, callback in product(kinds, callbacks.values()):
            if callback is not None:
                try:
                    if isawaitable(result := callback(kind)):
                        await result
                except Exception:
                    log.exception("list_changed failed")

    # ------------------------------------------------------------------------------------------ tools

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """Return the tools of all connected servers, in the order of the servers."""
        return await self._lists.entries("tool", fresh=fresh)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> CallToolResult:
        """Call a tool of its server. Raises the errors of `Client.call_tool`, and ConnectionLost if the server is
        unavailable.
        """
        member, own = await self._lists.owner("tool", name)
        result = await member.connected_client().call_tool(own, arguments, on_progress=on_progress, timeout=timeout)
        return replace(result, content=[member.prefix.content(block) for block in result.content])

    # -------------------------------------------------------------------------------------- resources

    async def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """Return the resources of all connected servers."""
        return await self._lists.entries("resource", fresh=fresh)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """Return the resource templates of all connected servers."""
        return await self._lists.entries("template", fresh=fresh)

    async def read_resource(self, uri: str, *, fresh: bool = False) -> ReadResourceResult:
        """Return the contents of a resource, from the server that its URI names, or that lists it."""
        member, own = await self._lists.owner_of_uri(uri)
        result = await member.connected_client().read_resource(own, fresh=fresh)
        return replace(result, contents=[member.prefix.content(entry) for entry in result.contents])

    async def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource, which call `Callbacks.resource_updated`. Renewed when its server
        reconnects.
        """
        member, own = await self._lists.owner_of_uri(uri)
        await member.subscribe(own)

    async def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource."""
        member, own = await self._lists.owner_of_uri(uri)
        await member.unsubscribe(own)

    # ---------------------------------------------------------------------------- prompts, completion

    async def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """Return the prompts of all connected servers."""
        return await self._lists.entries("prompt", fresh=fresh)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Return the messages of a prompt of its server."""
        member, own = await self._lists.owner("prompt", name)
        result = await member.connected_client().get_prompt(own, arguments)
        messages = [replace(message, content=member.prefix.content(message.content)) for message in result.messages]
        return replace(result, messages=messages)

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        known: Mapping[str, str] | None = None,
    ) -> CompleteResult:
        """Return suggestions for an argument whose value begins with `value`. `known` are the values of other
        arguments.
        """
        own_ref: PromptReference | ResourceTemplateReference
        if isinstance(ref, PromptReference):
            member, own = await self._lists.owner("prompt", ref.name)
            own_ref = replace(ref, name=own)
        else:
            member, own = await self._lists.owner_of_uri(ref.uri)
            own_ref = replace(ref, uri=own)
        return await member.connected_client().complete(own_ref, argument, value, known)

    # -------------------------------------------------------------------------------------- log level

    async def set_log_level(self, level: LogLevel) -> None:
        """Request log messages of this level and above from all servers that send any, which call `Callbacks.log`."""
        await asyncio.gather(*(member.set_log_level(level) for member in self._members.values()))


def _all_of(text: str) -> dict[str, Target]:
    """Return the targets of all servers of a configuration file or an installed host."""
    from mcpd.client.targets.configurations import all_servers

    return dict(all_servers(text))
