"""`ClientGroup`: several servers as one, with all their tools, resources and prompts in one list each.

Tools and prompts are named `{server}_{name}`, URIs `{server}+scheme://rest`. Hosts require two schemes to stay the
same, so the name follows them: `ui://{server}/rest`. `http` and `https` URIs are unchanged, because hosts may fetch
them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import product
from pathlib import PurePath
from random import uniform
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from mcpd.client.http.options import HttpOptions
from mcpd.errors import (
    ConfigurationError,
    ConnectionLost,
    LocalProtocolError,
    McpdError,
    RegistrationError,
    RemoteError,
)
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
from .callbacks import Callbacks, ListKind, settled
from .client import Client, ToolCalls
from .limits import ClientLimits
from .names import Prefix, server_names
from .session import OnProgress
from .target import Target

if TYPE_CHECKING:
    from mcpd.protocol.types.tasks import DetailedTask
    from .tasks import TaskHandle

T = TypeVar("T")
log = logging.getLogger("mcpd.client")

FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 60.0
# After a connection of this length, the pause before the next attempt is short again.
_LIVED_SECONDS = 10.0


class GroupMember:
    """A server called `name`, which is connected again when it is lost.

    `make` creates a client. `on_change` is called each time the server connects or is lost.
    """

    def __init__(
        self,
        name: str,
        prefix: Prefix,
        make: Callable[[], Client],
        on_change: Callable[[GroupMember, McpdError | None], None],
    ) -> None:
        self.name = name
        self.prefix = prefix
        self.client: Client | None = None
        """The client while the server is connected."""
        self.error: McpdError | None = None
        """Why the server is unavailable; None while it is connected, and before the first attempt."""
        self.tried = asyncio.Event()
        """Set after the first attempt."""

        self._make = make
        self._on_change = on_change
        self._current: Client | None = None
        self._lost = asyncio.Event()
        self._uris: set[str] = set()
        self._level: LogLevel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def connected_client(self) -> Client:
        """Return the client. Raises ConnectionLost, with the reason, if the server is unavailable."""
        if self.client is None:
            why = "it has not connected yet" if self.error is None else str(self.error)
            raise ConnectionLost(f"the server {self.name} is unavailable: {why}")
        return self.client

    def _connection_lost(self, client: Client, error: McpdError) -> None:
        if client is self._current:
            self._current = self.client = None
            self.error = error
            self._lost.set()

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource, also after the server reconnects."""
        await self.connected_client().subscribe(uri)
        self._uris.add(uri)

    async def unsubscribe(self, uri: str) -> None:
        self._uris.discard(uri)
        if self.client is not None:
            await self.client.unsubscribe(uri)

    async def set_log_level(self, level: LogLevel) -> None:
        """Request log messages of this level and above, also after the server reconnects."""
        self._level = level
        if self.client is not None and self.client.server_capabilities.logging is not None:
            await self.client.set_log_level(level)

    async def _run(self) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            self._lost.clear()
            client = self._current = self._make()
            client.on_lost = lambda error, client=client: self._connection_lost(client, error)
            began = loop.time()
            try:
                await self._open(client)
                began = loop.time()
                await self._lost.wait()
            except (McpdError, OSError) as error:
                self.error = error if isinstance(error, McpdError) else ConnectionLost(str(error))
            except Exception as error:  # any error: `tried` must be set, and the server tried again
                log.exception("cannot connect to the server %s", printable(self.name))
                self.error = ConnectionLost(f"{type(error).__name__}: {error}")
            finally:
                self._current = self.client = None
                await self._close(client)

            self._report()
            # The exponent is limited, because a server may be away for days.
            failures = 1 if loop.time() - began > _LIVED_SECONDS else min(failures + 1, 20)
            most = min(FIRST_RETRY_SECONDS * 2 ** (failures - 1), LONGEST_RETRY_SECONDS)
            await asyncio.sleep(uniform(most / 2, most))  # random, because many servers may be lost at once

    async def _open(self, client: Client) -> None:
        await client.open()
        try:
            if self._level is not None and client.server_capabilities.logging is not None:
                await client.set_log_level(self._level)
            for uri in sorted(self._uris):
                await client.subscribe(uri)
        except RemoteError as error:
            log.warning("the server %s is connected again, but refuses a subscription: %s", self.name, printable(error))
        if not self._lost.is_set():
            self.client, self.error = client, None
            log.debug("the server %s is connected", self.name)
            self._report()

    async def _close(self, client: Client) -> None:
        # Nobody needs to be notified that a connection is lost while it is being closed.
        client.on_lost = None
        try:
            await client.aclose()
        except Exception as error:
            log.debug("the server %s cannot be closed: %s", self.name, printable(error))

    def _report(self) -> None:
        self.tried.set()
        self._on_change(self, self.error)


Kind: TypeAlias = Literal["tool", "resource", "template", "prompt"]

# The client's method that lists the entries of a kind, and the member that names them.
_LISTS: dict[Kind, tuple[str, str]] = {
    "tool": ("list_tools", "name"),
    "prompt": ("list_prompts", "name"),
    "resource": ("list_resources", "uri"),
    "template": ("list_resource_templates", "uri_template"),
}


class Collision(Struct, frozen=True):
    """Two servers have an entry of this name or URI: `server` is used, `hidden` is not."""

    kind: Kind
    name: str
    server: str
    hidden: str


class GroupLists:
    """The merged lists of these members, in order of precedence. Members that fail are left out and logged.

    With prefixes, a name shows its server. Otherwise the last list, or a new one, shows it.
    """

    def __init__(self, members: Mapping[str, GroupMember], *, has_prefixes: bool) -> None:
        self._members = members
        self._has_prefixes = has_prefixes
        self._owners: dict[Kind, dict[str, tuple[GroupMember, str]]] = {}
        self._collisions: dict[Kind, list[Collision]] = {}
        self._logged: set[Collision] = set()

    @property
    def collisions(self) -> list[Collision]:
        return [collision for collisions in self._collisions.values() for collision in collisions]

    async def entries(self, kind: Kind, *, fresh: bool = False) -> list[Any]:
        """Return all entries of a kind, with their names or URIs in the group, in the order of the servers."""
        method, key = _LISTS[kind]

        async def ask(member: GroupMember, client: Client) -> list[Any]:
            try:
                listed: list[Any] = await getattr(client, method)(fresh=fresh)
                return listed
            except McpdError as error:
                text = "the %ss of the server %s are left out: %s"
                log.warning(text, kind, printable(member.name), printable(error))
                return []

        connected = [(member, client) for member in self._members.values() if (client := member.client) is not None]
        lists = await asyncio.gather(*(ask(member, client) for member, client in connected))

        owners: dict[str, tuple[GroupMember, str]] = {}
        merged: list[Any] = []
        collisions: list[Collision] = []
        for (member, _), listed in zip(connected, lists, strict=True):
            for entry in listed:
                own = getattr(entry, key)
                name = member.prefix.name(own) if key == "name" else member.prefix.uri(own)
                first = owners.setdefault(name, (member, own))[0]
                if first is not member:
                    collisions.append(Collision(kind, name, first.name, member.name))
                elif kind == "tool":
                    merged.append(member.prefix.tool(entry))
                else:
                    merged.append(replace(entry, **{key: name}))

        for collision in collisions:
            if collision not in self._logged:
                self._logged.add(collision)
                entry = f"the {kind} {collision.name} of the server {collision.hidden}"
                log.warning(
                    "%s is hidden by an entry of %s with the same name", printable(entry), printable(collision.server)
                )
        self._owners[kind], self._collisions[kind] = owners, collisions
        return merged

    async def owner(self, kind: Literal["tool", "prompt"], name: str) -> tuple[GroupMember, str]:
        """Return the server of a tool or prompt, and the name there. Raises ConfigurationError for an unknown name."""
        if not self._has_prefixes:
            return await self._listed(kind, name) or self._missing(kind, name)
        for member in self._members.values():
            if (own := member.prefix.own_name(name)) is not None:
                return member, own
        return self._missing(kind, name)

    async def owner_of_uri(self, uri: str) -> tuple[GroupMember, str]:
        """Return the server of a resource, and its URI there: by the name in the URI, a list, or a template."""
        for member in self._members.values():
            if (own := member.prefix.own_uri(uri)) is not None:
                return member, own
        found = await self._listed("resource", uri) or await self._listed("template", uri)
        return found or self._matching_template(uri) or self._missing("resource", uri)

    async def _listed(self, kind: Kind, name: str) -> tuple[GroupMember, str] | None:
        if name not in self._owners.get(kind, {}):
            await self.entries(kind)
        return self._owners[kind].get(name)

    def _matching_template(self, uri: str) -> tuple[GroupMember, str] | None:
        from mcpd.server.registry.uri_template import UriTemplate

        for member, template in self._owners.get("template", {}).values():
            try:
                if UriTemplate(template).match(uri) is not None:
                    return member, uri
            except RegistrationError:
                continue  # not a valid template
        return None

    def _missing(self, kind: str, name: str) -> tuple[GroupMember, str]:
        # The entry may belong to a server that is not connected now.
        gone = [member.name for member in self._members.values() if member.client is None]
        if not self._has_prefixes and gone:
            raise ConnectionLost(f"no connected server has a {kind} {name!r}; unavailable: {', '.join(gone)}")
        mark = "+" if kind == "resource" else "_"
        how = f"names begin with the server's name and {mark}; " if self._has_prefixes else ""
        servers = ", ".join(self._members)
        raise ConfigurationError(f"no server of this group has a {kind} {name!r}; {how}servers: {servers}")


_NO_CALLBACKS = Callbacks()
_DEFAULT_LIMITS = ClientLimits()
# Changes within this time are reported once.
_TOGETHER_SECONDS = 0.05

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

        if not isinstance(servers, Mapping):
            from mcpd.client.targets.configurations import all_servers

            servers = all_servers(os.fspath(servers))
        self._targets: dict[str, Target] = dict(servers)
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

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Connect to all servers concurrently, and wait `opening_seconds` at most."""
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
        # Before that, the program has no list that could change.
        self._is_open = True

    async def aclose(self) -> None:
        """Close all connections concurrently. Safe to call twice."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        # A callback that closes the group must not cancel itself.
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
        """Return the client of one server. Raises ConnectionLost, and ConfigurationError for an unknown name."""
        member = self._members.get(self._names.get(server, server))
        if member is None:
            raise ConfigurationError(f"no server {server!r} in this group; available: {', '.join(self._names)}")
        return member.connected_client()

    def _on_change(self, member: GroupMember, error: McpdError | None) -> None:
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
        # Changes from now on belong to the next notification.
        self._changed.clear()
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    async def _notify(self, kinds: list[ListKind]) -> None:
        callbacks = {id(given.list_changed): given.list_changed for given in self._callbacks.values()}
        for kind, callback in product(kinds, callbacks.values()):
            if callback is not None:
                try:
                    await settled(callback(kind))
                except Exception:
                    log.exception("list_changed failed")

    # ------------------------------------------------------------------------------------------ tools

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """Return the tools of all connected servers, in the order of the servers."""
        return await self._lists.entries("tool", fresh=fresh)

    async def call_tool(
        self,
        /,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
        **files: PurePath | list[PurePath],
    ) -> CallToolResult:
        """Call a tool of its server. Raises the errors of `Client.call_tool`, such as ConnectionLost."""
        member, own = await self._lists.owner("tool", name)
        client = member.connected_client()
        result = await client.call_tool(own, arguments, on_progress=on_progress, timeout=timeout, **files)
        return replace(result, content=[member.prefix.content(block) for block in result.content])

    async def start_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> TaskHandle:
        """Call a tool of its server, and return the handle of its task. See `Client.start_tool`."""
        member, own = await self._lists.owner("tool", name)
        handle = await member.connected_client().start_tool(own, arguments, on_progress=on_progress, timeout=timeout)
        handle.change_block = member.prefix.content
        return handle

    async def list_tasks(self) -> dict[str, list[DetailedTask]]:
        """Return the tasks of all connected servers that list any, by the names of the servers. See `Tasks.list`."""
        found: dict[str, list[DetailedTask]] = {}
        for name, client in self.clients.items():
            with suppress(LocalProtocolError):  # it has no list of tasks
                found[name] = await client.tasks.list()
        return found

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
        """Subscribe to changes of a resource, also after its server reconnects. They call `resource_updated`."""
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
        """Return values of an argument that begin with `value`. `known` are the values of other arguments."""
        own_ref: PromptReference | ResourceTemplateReference
        if isinstance(ref, PromptReference):
            member, own = await self._lists.owner("prompt", ref.name)
            own_ref = replace(ref, name=own)
        else:
            member, own = await self._lists.owner_of_uri(ref.uri)
            own_ref = replace(ref, uri=own)
        return await member.connected_client().complete(own_ref, argument, value, known)

    async def set_log_level(self, level: LogLevel) -> None:
        """Request log messages of this level and above from all servers that send any, which call `Callbacks.log`."""
        await asyncio.gather(*(member.set_log_level(level) for member in self._members.values()))
