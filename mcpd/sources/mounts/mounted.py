"""The mounts of one server: their entries in its catalog, and their start and end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from copy import copy
from functools import partial
from operator import is_not
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from mcpd.client.names import Prefix
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.methods import METHODS
from mcpd.protocol.printable import printable
from mcpd.protocol.types.tasks import TASKS
from mcpd.server.context.exchange import Exchange, Handler, finished
from mcpd.server.extensions.base import Extension, ExtensionHost
from mcpd.server.extensions.skills import METHODS as SKILLS_METHODS, SKILLS
from mcpd.server.extensions.ui.constants import UI
from mcpd.server.registry.entries import Entries, Problem
from .entries import entries_of
from .routes import follow_tasks, routing
from .settings import MountSettings, read_settings
from .upstream import SKILLS_LIST, Upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mcpd.client.target import Target
    from mcpd.server import Server
    from mcpd.server.extensions.skills import SkillsExtension
    from mcpd.server.extensions.tasks.extension import TasksExtension
    from mcpd.server.extensions.ui.extension import AppsExtension
    from mcpd.server.observe.report import MountStatus
    from mcpd.server.registry.catalog import Catalog, Kind
    from .targets import Wanted

log = logging.getLogger("mcpd.mounts")

_ID = "mcpd/mounts"
_MOST_INSTRUCTIONS = 2048
_MOST_PARTS = 64
_KINDS: tuple[Kind, ...] = ("tools", "resources", "prompts")
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


def mount(server: Server, name: str, target: Target, **settings: Any) -> Upstream:
    """Mount a server on another one; see `Server.mount`. Raises ConfigurationError."""
    return mounts_of(server).add(name, target, read_settings(name, settings))


LINE = "command line"


def mounts_of(server: Server) -> Mounts:
    """Return the mounts of a server, which may have none yet."""
    found = server.extensions.get(_ID)
    if found is None:
        found = Mounts(server)
        server.add_extension(found)
    assert isinstance(found, Mounts)
    return found


class Mounts(Extension):
    """All mounts of one server. Clients do not see it: it is an extension to be started and ended with the server."""

    def __init__(self, server: Server) -> None:
        super().__init__(_ID)
        self._host = server
        self.by_name: dict[str, Upstream] = {}
        self.refused: dict[str, str] = {}
        """The mounts that cannot be used, with the reasons."""
        # The mounts of each command line or file.
        self._groups: dict[str, dict[str, Wanted]] = {}
        self._prefixes: dict[str, str] = {}
        # The mounts whose first lists have arrived since the last request for a list.
        self._arrived: list[str] = []
        self.only: tuple[str, ...] | None = None
        """The only mounts that are offered; None for all."""
        self._parts: dict[tuple[tuple[str, ...] | None, str], tuple[list[object], Catalog]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        # Mounts that were removed, and whose instances have not ended yet.
        self._ending: set[Upstream] = set()

    def bind(self, server: ExtensionHost) -> None:
        """Let lists wait for mounted servers whose lists are not known yet."""
        self.server = server
        server.handlers.wrap(self._wrapped)
        server.handlers.wrap(routing(self, server.catalog))
        server.catalog.part_for = self._part_for
        if server.catalog.on_rules is not None:
            server.catalog.on_rules()

    @property
    def parts(self) -> Collection[str]:  # type: ignore[override]
        """The names of the mounts."""
        return self.by_name

    def offered(self, name: str, exchange: Exchange) -> Upstream | None:
        """Return a mount as the user of a request sees it; None if the request may not use it."""
        opening = exchange.call.session.opening
        names, found = opening.part or self.only, self.by_name.get(name)
        return None if found is None or (names and name not in names) else found.for_user(opening.principal)

    def _part_for(self, exchange: Exchange) -> Catalog | None:
        # Return the catalog of a request that names mounts, or whose user has lists of its own.
        opening = exchange.call.session.opening
        names = opening.part or self.only
        own = [
            upstream
            for each in (self.by_name.values() if opening.principal else ())
            if (upstream := each.for_user(opening.principal)) is not each
        ]
        if names is None and not own:
            return None
        catalog = self._host.catalog
        lists = ("tools", "resources", "templates", "prompts")
        state: list[object] = [catalog, *(getattr(catalog, each).generation for each in lists)]
        state += [listed.entries for upstream in own for listed in upstream.lists.values()]
        key = names, opening.principal if own else ""
        kept = self._parts.get(key)
        if kept is None or len(kept[0]) != len(state) or any(map(is_not, kept[0], state)):
            part, replaced = copy(catalog), {each.name for each in own}

            def keep(entry: Any) -> bool:
                mount = getattr(entry, "mount", None)
                return mount not in replaced and (names is None or mount in names)

            for each in lists:
                listing = getattr(catalog, each).restricted(keep)
                for upstream in own:
                    for entry in getattr(entries_of(upstream), each) or ():
                        if (names is None or upstream.name in names) and entry.key not in listing:
                            listing.add(entry)
                setattr(part, each, listing)
            if len(self._parts) >= _MOST_PARTS:
                self._parts.clear()
            kept = self._parts[key] = state, part

        return kept[1]

    def admits(self, client: ClientIdentity) -> bool:
        """No client has it."""
        return False

    def _admits_apps(self, client: ClientIdentity) -> bool:
        return self._host.extensions[UI].admits(client)

    def mounts(self) -> Sequence[MountStatus]:
        """Return the status of all mounted servers."""
        from mcpd.server.observe.report import MountStatus

        refused = (
            MountStatus(name=name, target="", state="refused", last_error=why) for name, why in self.refused.items()
        )
        return [*(each.status for each in self.by_name.values()), *refused]

    def leave(self, server: ExtensionHost) -> None:
        """Hand the mounts of files and of the command line to the program that was loaded again."""
        mounts_of(cast("Server", server)).succeed(self)

    def succeed(self, other: Extension) -> None:
        """Take over the mounts of the command line and of files, and those that are as they were."""
        assert isinstance(other, Mounts)
        self._loop, self._ending = other._loop, other._ending
        for name, upstream in other.by_name.items():
            group = next((group for group, found in other._groups.items() if name in found), None)
            mine = self.by_name.get(name)
            if mine is None and group is not None:
                self._groups.setdefault(group, {})[name] = other._groups[group][name]
            elif mine is None or (mine.target, mine.settings) != (upstream.target, upstream.settings):
                other._end(upstream)
                continue
            self.by_name[name] = upstream
            upstream.on_lists, upstream.admits_apps = self._lists_changed, self._admits_apps
            upstream.events = {}  # to be offered by this server
            if upstream.lists:
                self._lists_changed(upstream)

        self._prefixes = other._prefixes

    def problems(self) -> list[Problem]:
        """Return the mounts that cannot be used, for `mcpd check`."""
        found = {**{name: each.last_error for name, each in self.by_name.items() if each.last_error}, **self.refused}
        return [Problem(f"mount {name}", why) for name, why in found.items()]

    def update(self, group: str, wanted: Sequence[Wanted], prefix: str | None = None) -> None:
        """Mount the servers of a file or command line, which may have changed. Safe to call from any thread.

        Mounts that are the same as before stay as they are, with their instances and calls. Raises ConfigurationError,
        and changes nothing, for a name that another group has.
        """
        if prefix is not None:
            self._prefixes[group] = prefix
        before, now = self._groups.get(group, {}), {each.name: each for each in wanted}
        for name in now:
            if name not in before and name in self.by_name:
                raise ConfigurationError(f"mount {name!r} exists already: choose another name")
        for name, each in before.items():
            if now.get(name) != each:
                self.remove(name)
        self._groups[group] = now
        for name, each in now.items():
            if before.get(name) == each:
                continue
            if each.target is None:
                log.error("mount %s: %s", printable(name), printable(each.problem))
                self.refused[name] = each.problem
            elif each.settings.enabled:
                settings = each.settings
                if self._prefixes.get(group) == "never" and settings.prefix is None:
                    settings = replace(settings, prefix="")
                upstream = self.add(name, each.target, settings, each.secrets)
                if self._loop is not None:
                    asyncio.run_coroutine_threadsafe(
                        upstream.ready(), self._loop
                    )  # clients are notified of what it offers

    def remove(self, name: str) -> None:
        """End a mount, and remove what it offers."""
        self.refused.pop(name, None)
        upstream = self.by_name.pop(name, None)
        if upstream is None:
            return
        self._host.replace(f"mount {name}", Entries(tools=(), resources=(), templates=(), prompts=()))
        self._offer_extensions(upstream)
        self._end(upstream)

    def _end(self, upstream: Upstream) -> None:
        self._ending.add(upstream)
        loop = self._loop or upstream.loop
        if loop is not None and not loop.is_closed():
            ended = asyncio.run_coroutine_threadsafe(upstream.aclose(), loop)
            ended.add_done_callback(lambda _: self._ending.discard(upstream))

    def add(
        self, name: str, target: Target, settings: MountSettings, secrets: frozenset[str] = frozenset()
    ) -> Upstream:
        """Mount a server; `secrets` are texts that must not be shown.

        Raises ConfigurationError for a name that is invalid or taken.
        """
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"mount {name!r}: the name must begin with a-z and may contain a-z, 0-9 and -, at most 31 characters"
            )

        if name in self.by_name:
            raise ConfigurationError(f"mount {name!r} exists already: choose another name")
        prefix = name if settings.prefix is None else settings.prefix
        if isinstance(target, (list, tuple)):
            target = CommandTarget(tuple(target))
        if isinstance(target, (CommandTarget, UrlTarget)):
            target = replace(target, name=name)  # for messages
        upstream = Upstream(name, target, settings, Prefix(prefix, is_used=bool(prefix)), self._lists_changed)
        upstream.secrets, upstream.admits_apps = secrets, self._admits_apps
        if settings.enabled:
            self.by_name[name] = upstream
            for kind in ("tools", "resources", "prompts", "completions"):
                self._host.catalog.offer(kind)
            upstream.remember()

        return upstream

    def _sort(self) -> None:
        # Bring the first lists, which arrive in any order, into the order of the mounts. No client knows them yet.
        arrived, self._arrived = self._arrived, []
        names = [name for name in self.by_name if name in arrived]
        catalog = self._host.catalog
        if names == arrived or any(each.has_pages for kind in _KINDS for each in catalog.listings(kind)):
            return
        for name in names:
            nothing = Entries(tools=(), resources=(), templates=(), prompts=())
            catalog.replace(f"mount {name}", nothing, is_known=False)
        for name in names:
            self._lists_changed(self.by_name[name], is_first=True)

    def _lists_changed(self, upstream: Upstream, *, is_first: bool = False) -> None:
        catalog, owner = self._host.catalog, f"mount {upstream.name}"
        self._offer_extensions(upstream)
        found, problems = entries_of(upstream), []

        def free(listing: Any, entries: Any) -> list[Any]:
            # Leave out names that this server or an earlier mount has.
            kept = []
            for entry in entries:
                try:
                    listing.check(owner, [entry])
                    kept.append(entry)
                except RegistrationError as error:
                    log.warning("mount %s: %s", printable(upstream.name), printable(error))
                    problems.append(Problem(owner, str(error)))
            return kept

        entries = Entries(
            tools=free(catalog.tools, found.tools),
            resources=free(catalog.resources, found.resources),
            templates=free(catalog.templates, found.templates),
            prompts=free(catalog.prompts, found.prompts),
            problems=problems,
        )
        has_pages = any(each.has_pages for kind in _KINDS for each in catalog.listings(kind))
        if not is_first and (owner in catalog.source_problems or has_pages):
            self._host.replace(owner, entries)
            return
        catalog.replace(owner, entries, is_known=False)
        if not is_first:
            self._arrived.append(upstream.name)

    def _offer_extensions(self, upstream: Upstream) -> None:
        # Announce what the mounted server brings: Views, and tasks.
        if _has_apps(upstream):
            cast("AppsExtension", self._host.extensions[UI]).apps  # noqa: B018  # the first use announces it
        if (skills := upstream.lists.get(SKILLS_LIST)) is not None and skills.entries:
            cast("SkillsExtension", self._host.extensions[SKILLS]).offer()
        about = upstream.about
        if about is not None and (upstream.settings.task or TASKS in (about.capabilities.extensions or {})):
            cast("TasksExtension", self._host.extensions[TASKS]).carry(partial(follow_tasks, self))
        listed = upstream.lists.get("events/list")
        if upstream.events or (listed is not None and listed.entries):
            from .events import offer_events  # few mounted servers have events

            offer_events(self._host, upstream, self.by_name.get(upstream.name) is upstream)

    def _wrapped(self, method: str, handler: Handler) -> Handler:
        if method in ("initialize", "server/discover"):

            async def begin(exchange: Exchange, params: Any) -> Any:
                result = await finished(handler(exchange, params))
                names = exchange.call.session.opening.part or self.only
                result.instructions = self._instructions(result.instructions, names)
                return result

            return begin

        if method == "resources/read":
            return lambda exchange, params: handler(exchange, self._with_whole_uri(params))
        if method == "tools/call":
            return lambda exchange, params: handler(exchange, self._with_whole_name(params))
        is_list = method in SKILLS_METHODS or (method in METHODS and METHODS[method].is_list)
        if not is_list:
            return handler

        async def handle(exchange: Exchange, params: Any) -> Any:
            self._loop = exchange.peer.loop
            await asyncio.gather(*(self._ready(each, exchange) for each in self.by_name.values()))
            if self._arrived:
                self._sort()
            return await finished(handler(exchange, params))

        return handle

    def _with_whole_uri(self, params: Any) -> Any:
        # The script of a View names resources as its own server does. That is served if only one server has them.
        catalog, uri = self._host.catalog, params.uri
        active = frozenset(catalog.extensions)
        if not isinstance(uri, str) or catalog.has_resource(uri, active):
            return params
        prefixes = [each.prefix for each in self.by_name.values() if each.prefix.is_used]
        found = [whole for prefix in prefixes if catalog.has_resource(whole := prefix.uri(uri), active)]
        return replace(params, uri=found[0]) if len(found) == 1 else params

    def _with_whole_name(self, params: Any) -> Any:
        # It calls tools in the same way.
        catalog, name = self._host.catalog, params.name
        active = frozenset(catalog.extensions)
        if catalog.tools.get(name, active) is not None:
            return params
        prefixes = [each.prefix for each in self.by_name.values() if each.prefix.is_used and _has_apps(each)]
        found = [whole for prefix in prefixes if catalog.tools.get(whole := prefix.name(name), active) is not None]
        return replace(params, name=found[0]) if len(found) == 1 else params

    async def _ready(self, upstream: Upstream, exchange: Exchange) -> None:
        await upstream.ready(exchange)
        own = upstream.for_user(exchange.call.session.opening.principal)
        if own is not upstream:
            await own.ready(exchange)

    def _instructions(self, own: str | None, names: Collection[str] | None) -> str | None:
        # Add the instructions of the mounted servers that are known, each under its name.
        texts = [own] if own and names is None else []
        for name, upstream in self.by_name.items():
            if not upstream.prefix.is_used or (names is not None and name not in names):
                continue
            if upstream.about is not None and upstream.about.instructions:
                texts.append(f"# {name}\n\n{upstream.about.instructions[:_MOST_INSTRUCTIONS]}")
        return "\n\n".join(texts) or None

    async def start(self) -> None:
        """Start the mounted servers that are `eager`."""
        self._loop = asyncio.get_running_loop()
        for upstream in self.by_name.values():
            if upstream.settings.eager:
                upstream.begin()

    async def list_once(self) -> None:
        """Start the mounted servers, fetch their lists, and end them."""
        for upstream in self.by_name.values():
            upstream.lists.clear()  # of an earlier start
        try:
            await asyncio.gather(*(each.ready() for each in self.by_name.values()))
            self._sort()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """End all mounted servers, at the same time."""
        await asyncio.gather(*(upstream.aclose() for upstream in (*self.by_name.values(), *self._ending)))


def _has_apps(upstream: Upstream) -> bool:
    return any(each.has_ui for each in upstream.lists.values())


def offer_only(server: Server, names: Sequence[str]) -> None:
    """Offer only these mounts. Raises ConfigurationError for an unknown one."""
    mounts = mounts_of(server)
    unknown = [name for name in names if name not in mounts.by_name and name not in mounts.refused]
    if unknown:
        known = ", ".join(mounts.by_name) or "none"
        raise ConfigurationError(f"--only {unknown[0]}: there is no such mount; the mounts are: {known}")
    mounts.only = tuple(names)


class WatchedMounts:
    """Mounts that `read` returns anew when one of the files changes; implements `Watched` of `sources.watch`."""

    def __init__(self, server: Server, files: Sequence[str], read: Callable[[], Sequence[Wanted]]) -> None:
        self._server = server
        self._read = read
        self._files = [os.path.abspath(each) for each in files]
        self.name = self._files[0]

    def folders(self) -> Sequence[str]:
        """The folders of the files."""
        return list(dict.fromkeys(map(os.path.dirname, self._files)))

    def files(self) -> Iterable[str]:
        """The files that the mounts depend on."""
        return self._files

    def concerns(self, path: str) -> bool:
        """Whether it is one of the files."""
        return path in self._files

    def refresh(self, paths: set[str]) -> None:
        """Mount the servers of the files as they are now."""
        mounts_of(self._server).update(LINE, self._read())
