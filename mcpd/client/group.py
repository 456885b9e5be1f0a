"""`ClientGroup`: several servers as one, their tools, resources and prompts in one list of each.

What names look like is in `group_names`, how a server comes and goes in `group_member`, how lists become one in
`group_lists`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any, Literal, Self, TypeAlias

from msgspec import Raw
from msgspec.structs import replace

from mcpd.client.callbacks import Callbacks, ListKind
from mcpd.client.client import Client, ToolCalls
from mcpd.client.group_members import Collision, GroupLists, Member, Prefix, server_names
from mcpd.client.http.options import HttpOptions
from mcpd.client.limits import ClientLimits
from mcpd.client.session import OnProgress
from mcpd.client.target import Target
from mcpd.errors import ConfigurationError, LocalProtocolError, McpdError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Implementation, LogLevel
from mcpd.protocol.types.interaction import CompleteResult, PromptReference, ResourceTemplateReference
from mcpd.protocol.types.prompts import GetPromptResult, Prompt
from mcpd.protocol.types.resources import ReadResourceResult, Resource, ResourceTemplate
from mcpd.protocol.types.tools import CallToolResult, Tool

log = logging.getLogger("mcpd.client")

_NO_CALLBACKS = Callbacks()
_DEFAULT_LIMITS = ClientLimits()
_TOGETHER_SECONDS = 0.05
"""Changes that come so close together are told once."""

OnServer: TypeAlias = Callable[[str, McpdError | None], object]


class ClientGroup(ToolCalls):
    """Several servers: `async with ClientGroup({"git": [...], "web": "https://…"}) as group:`.

    `servers` are targets by name, or a text: an mcpServers file or an installed host (`claude-code`), with all that it
    has. Tools and prompts are called `{server}_{name}`, URIs `{server}+scheme://rest`; with `prefixes=False` all are
    called as they are, and of two that are called alike the one of the earlier server counts: see `collisions`.

    All are opened at once, and waited for at most `opening_seconds`. A server that does not come, or is lost, is
    reported (`errors`, the log, `on_server`) and tried again, after seconds first and after a minute in the end;
    the others serve. `on_server` is called with the name of a server and None when it comes, with the error when it
    goes. `callbacks` are for all servers, or a function gives those of a server by its name; `list_changed` is told
    once of each kind of list, whichever servers have changed, come or gone. Header fields for one server are in its
    target (`UrlTarget(url, headers=…)`); those in `http` are said to all. All else is as with `Client`.
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
            raise ConfigurationError("a group needs a server: give at least one target with its name")
        self._members: dict[str, Member] = {}
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
        self._telling: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------------------------------- opening

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Open all servers at once, and wait until each has come or failed to, `opening_seconds` at most."""
        if self._members:
            raise LocalProtocolError("a ClientGroup is opened once; make another one")
        for name, target in self._targets.items():
            prefix = Prefix(self._names[name], is_used=self._prefixes)
            self._members[self._names[name]] = Member(
                self._names[name], prefix, self._maker(name, target, prefix), self._told
            )
        try:
            for member in self._members.values():
                member.start()
            async with asyncio.timeout(self.opening_seconds):
                for member in self._members.values():
                    await member.tried.wait()
        except TimeoutError:
            pass  # who is late comes later
        except BaseException:
            await self.aclose()
            raise
        self._is_open = True

    async def aclose(self) -> None:
        """Close all, at once. Safe to call twice."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
        others = [task for task in self._telling if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        closing = [asyncio.create_task(member.aclose()) for member in self._members.values()]
        if closing:
            await asyncio.wait([*closing, *others])

    def _maker(self, name: str, target: Target, prefix: Prefix) -> Callable[[], Client]:
        given = self._callbacks[name]
        own: dict[str, Any] = {}
        if given.list_changed is not None:
            own["list_changed"] = self._list_changed
        if (updated := given.resource_updated) is not None:
            own["resource_updated"] = lambda uri: updated(prefix.uri(uri))
        callbacks = replace(given, **own)
        return lambda: Client(target, callbacks, **self._options)

    # ------------------------------------------------------------------------- who is there, and who not

    @property
    def clients(self) -> dict[str, Client]:
        """The clients of the servers that are there, by name."""
        return {name: member.client for name, member in self._members.items() if member.client is not None}

    @property
    def errors(self) -> dict[str, McpdError]:
        """Why each of the servers that are not there is not, by name; those that were not yet tried are left out."""
        return {name: member.error for name, member in self._members.items() if member.error is not None}

    @property
    def collisions(self) -> list[Collision]:
        """What has the name of another, and therefore cannot be reached: of the lists that were asked for last."""
        return self._lists.collisions

    def client(self, server: str) -> Client:
        """The client of one server, by its name. Raises ConnectionLost if it is not there, ConfigurationError."""
        member = self._members.get(self._names.get(server, server))
        if member is None:
            raise ConfigurationError(f"there is no server {server!r} in this group; there are {', '.join(self._names)}")
        return member.require()

    def _told(self, member: Member, error: McpdError | None) -> None:
        """A server has come, or gone, or did not come once more."""
        if self._is_there.get(member.name) is (error is None):
            return
        self._is_there[member.name] = error is None
        if error is not None:
            log.warning("the server %s is not there, and is tried again: %s", printable(member.name), printable(error))
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
                self._timer = asyncio.get_running_loop().call_later(_TOGETHER_SECONDS, self._tell_changes)

    def _tell_changes(self) -> None:
        self._timer = None
        task = asyncio.get_running_loop().create_task(self._tell(sorted(self._changed)))
        self._changed.clear()
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, kinds: list[ListKind]) -> None:
        hear = list(
            {id(one): one for given in self._callbacks.values() if (one := given.list_changed) is not None}.values()
        )
        for kind in kinds:
            for callback in hear:
                try:
                    if isawaitable(told := callback(kind)):
                        await told
                except Exception:
                    log.exception("list_changed failed")

    # ------------------------------------------------------------------------------------------ tools

    async def list_tools(self, *, fresh: bool = False) -> list[Tool]:
        """The tools of all servers that are there, in the order of the servers."""
        return await self._lists.tools(fresh=fresh)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        on_progress: OnProgress | None = None,
        timeout: float | None | Literal["default"] = "default",
    ) -> CallToolResult:
        """Call a tool of the server that has it. Raises as `Client.call_tool`, ConnectionLost if it is not there."""
        member, own = await self._lists.owner_of_tool(name)
        result = await member.require().call_tool(own, arguments, on_progress=on_progress, timeout=timeout)
        return replace(result, content=[member.prefix.content(block) for block in result.content])

    # -------------------------------------------------------------------------------------- resources

    async def list_resources(self, *, fresh: bool = False) -> list[Resource]:
        """The resources of all servers that are there."""
        return await self._lists.resources(fresh=fresh)

    async def list_resource_templates(self, *, fresh: bool = False) -> list[ResourceTemplate]:
        """The resource templates of all servers that are there."""
        return await self._lists.templates(fresh=fresh)

    async def read_resource(self, uri: str, *, fresh: bool = False) -> ReadResourceResult:
        """What a resource holds, of the server whose name its URI has, or which lists it."""
        member, own = await self._lists.owner_of_uri(uri)
        result = await member.require().read_resource(own, fresh=fresh)
        return replace(result, contents=[member.prefix.content(entry) for entry in result.contents])

    async def subscribe(self, uri: str) -> None:
        """Hear of changes of a resource, through `Callbacks.resource_updated`; also when its server comes again."""
        member, own = await self._lists.owner_of_uri(uri)
        await member.watch(own)

    async def unsubscribe(self, uri: str) -> None:
        """Hear of them no longer."""
        member, own = await self._lists.owner_of_uri(uri)
        await member.unwatch(own)

    # ---------------------------------------------------------------------------- prompts, completion

    async def list_prompts(self, *, fresh: bool = False) -> list[Prompt]:
        """The prompts of all servers that are there."""
        return await self._lists.prompts(fresh=fresh)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """A prompt, filled in, of the server that has it."""
        member, own = await self._lists.owner_of_prompt(name)
        result = await member.require().get_prompt(own, arguments)
        messages = [replace(one, content=member.prefix.content(one.content)) for one in result.messages]
        return replace(result, messages=messages)

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        known: Mapping[str, str] | None = None,
    ) -> CompleteResult:
        """Suggestions for an argument of which `value` is typed so far; `known` are the others."""
        if isinstance(ref, PromptReference):
            member, own = await self._lists.owner_of_prompt(ref.name)
            return await member.require().complete(replace(ref, name=own), argument, value, known)
        member, own = await self._lists.owner_of_uri(ref.uri)
        return await member.require().complete(replace(ref, uri=own), argument, value, known)

    # ------------------------------------------------------------------------------------------- rest

    async def set_log_level(self, level: LogLevel) -> None:
        """Hear of log messages of this level and above from all servers that have any, through `Callbacks.log`."""
        await asyncio.gather(*(member.set_log_level(level) for member in self._members.values()))


def _all_of(text: str) -> dict[str, Target]:
    """All servers of a configuration file or of an installed host, each as its own target."""
    from mcpd.client.targets.configurations import all_servers

    return dict(all_servers(text))
