"""One mounted server: its running instances, what happens when they fail, and its lists.

An instance is a connection to the server. It is opened when the first request needs it, for the client, the user or
everybody (`MountSettings.instances`), and ended with its client. After a failure the next start waits, longer each
time; meanwhile requests are answered with the reason. Lists are fetched when a connection is opened and when the server
says that they changed, never for a call.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from math import ceil
from random import uniform
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from mcpd.client.names import Prefix
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import (
    CannotConnect,
    ConnectionLost,
    HttpError,
    McpdError,
    RequestTimeout,
    SessionLost,
    ToolError,
)
from mcpd.protocol.envelope import ClientIdentity, raw_capabilities
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import mask_command, mask_text, printable
from mcpd.protocol.types.base import Result
from mcpd.protocol.types.events import EventType
from mcpd.protocol.types.features import Prompt, Resource, ResourceTemplate, Tool
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.server.extensions.skills import SKILLS, Skill
from . import manifest
from .carried import Reads
from .manifest import About, Listed
from .settings import MOST_HOPS, MountSettings, hops_of

if TYPE_CHECKING:
    from mcpd.client.connection import ClientConnection
    from mcpd.client.eras import ClientEra
    from mcpd.client.link import ServerLink
    from mcpd.client.session import ClientSession
    from mcpd.client.target import Target
    from mcpd.server.context.exchange import Exchange
    from mcpd.server.observe.report import MountStatus

log = logging.getLogger("mcpd.mounts")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
# This number of failures within this number of seconds stops all attempts for the longest pause.
MOST_FAILURES, _FAILURES_SECONDS = 5, 60.0
MOST_INSTANCES = 32
# How long an instance whose client left during its start may be idle, before it ends.
_LEFT_SECONDS = 1.0
MOST_USERS = 256
PATIENCE_SECONDS = 2.0
"""How long a question to an unknown client may keep the calls of others waiting."""
# How long lists of older servers are fresh, which say nothing about that.
_LEGACY_SECONDS = 300.0

# The key of the instance that all clients share.
_SHARED: Final = "shared"

# By method: the capability, the member of the result, and its type.
LISTS: Mapping[str, tuple[str, str, type]] = {
    "tools/list": ("tools", "tools", Tool),
    "resources/list": ("resources", "resources", Resource),
    "resources/templates/list": ("resources", "resourceTemplates", ResourceTemplate),
    "prompts/list": ("prompts", "prompts", Prompt),
    "events/list": ("events", "events", EventType),
}
SKILLS_LIST = "skills/list"
ALL_LISTS = {**LISTS, SKILLS_LIST: ("resources", "skills", Skill)}
_KINDS = {"tools": ("tools/list",), "prompts": ("prompts/list",),
          "resources": ("resources/list", "resources/templates/list", SKILLS_LIST)}  # fmt: skip


class Unavailable(ToolError):
    """A mounted server cannot be used now. A tool answers with this text; other requests get the code -32603."""


class Occupied(McpdError):
    """A request would wait for the client of another request on this instance, so it needs another instance."""


class Connection(Struct, eq=False):
    """An open instance."""

    upstream: Upstream
    link: ServerLink
    key: object
    calls: int = 0
    used_at: float = 0.0
    is_over_http: bool = False
    """Whether its client uses HTTP, where a client may leave without a message."""
    parked: int = 0
    """The number of calls whose clients have to answer questions before they go on."""
    parked_at: float = 0.0

    def is_occupied(self, now: float) -> bool:
        """Whether a client has not answered a question for a while, on a stream that all calls share."""
        is_late = self.parked > 0 and now - self.parked_at >= PATIENCE_SECONDS
        return is_late and self.client.channel.is_multiplexed

    @property
    def client(self) -> ClientConnection:
        """The connection to the server, which sends requests."""
        return self.link.era.connection

    @property
    def session(self) -> ClientSession:
        """The client's session: the version, the capabilities of the server."""
        return self.client.session

    @property
    def era(self) -> ClientEra:
        return self.link.era

    @property
    def settings(self) -> MountSettings:
        return self.upstream.settings

    @property
    def prefix(self) -> Prefix:
        return self.upstream.prefix


class Upstream:
    """One mounted server. `on_lists` is called after its lists have changed."""

    def __init__(
        self, name: str, target: Target, settings: MountSettings, prefix: Prefix, on_lists: Callable[[Upstream], None]
    ) -> None:
        self.name = name
        self.target = target
        self.settings = settings
        self.prefix = prefix
        self.on_lists = on_lists
        self.admits_apps: Callable[[ClientIdentity], bool] = lambda _: True
        """Whether this server shows apps to a client."""
        self.about: About | None = None
        """None until it was first connected."""
        self.lists: dict[str, Listed] = {}
        self.reads = Reads()
        self.events: dict[str, EventType] = {}
        """The types of events that are offered of it."""
        self.secrets: frozenset[str] = frozenset()
        """Values of variables in its configuration, which must not be shown."""
        self.last_error = ""
        self.needs_login = self.was_open = False
        self.loop: asyncio.AbstractEventLoop | None = None
        """The event loop of its instances; None before the first one."""
        self.calls = self.failures = 0
        """Numbers of requests and of failures so far."""

        self._open: dict[object, Connection] = {}
        self._opening: dict[object, asyncio.Task[Connection]] = {}
        # While it is not known to work, one start after the other.
        self._trial = asyncio.Lock()
        self._is_proven = False
        self._failed_at: deque[float] = deque(maxlen=MOST_FAILURES)
        self._next_try = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._changed: set[str] = set()
        self.is_private = settings.identity == "upstream"
        """Whether its lists are for one user only: then each user has an `Upstream`, see `for_user`."""
        self._users: dict[str, Upstream] = {}
        # The user for whom lists are fetched.
        self._principal = ""
        # The number of mounts that a request for lists has passed after this one.
        self._hops = 1
        self._is_closed = False
        # Whether it serves one user only.
        self._is_own = False
        # Whether the lists come from a manifest, so that they must be fetched once.
        self._is_remembered = False

    def remember(self) -> None:
        """Take the lists from the manifest of an earlier start, if there is one."""
        found = manifest.load(self.target, self.settings.protocol)
        if found is None:
            return
        self.about = About(found.has_sessions, found.capabilities, found.info, found.instructions)
        for method, each in found.lists.items():
            if method in ALL_LISTS and each.version in SUPPORTED:
                self.lists[method] = Listed(each.page, each.entries, table.get(each.version), until=float("inf"))
                self.is_private = self.is_private or _says_private(each.page)
        self._is_remembered = True
        self.on_lists(self)

    def for_user(self, principal: str) -> Upstream:
        """Return the server as this user sees it; the same for all users if its lists are not private."""
        if not principal or not self.is_private:
            return self
        found = self._users.get(principal)
        if found is None:
            if len(self._users) >= MOST_USERS:
                self._start(self._users.pop(next(iter(self._users))).aclose())
            found = Upstream(self.name, self.target, self.settings, self.prefix, lambda _: None)
            found.secrets, found._is_own = self.secrets, True
            found.admits_apps = lambda client: self.admits_apps(client)
            self._users[principal] = found
        return found

    def _save(self) -> None:
        about = self.about
        if about is None or self._is_own or self._principal:
            return
        lists = {
            method: manifest.ListManifest(
                each.page,
                each.entries,
                each.version.name,
                is_plain=len(each.valid or ()) == len(each.entries) and not each.has_ui,
            )
            for method, each in self.lists.items()
            if each.version is not None
        }
        found = manifest.Manifest(
            has_sessions=about.has_sessions, capabilities=about.capabilities, info=about.info,
            instructions=about.instructions, lists=lists,
        )  # fmt: skip
        manifest.save(self.target, found, self.settings.protocol)

    @property
    def status(self) -> MountStatus:
        """The status that `mcpd mounts` shows."""
        from mcpd.server.observe.report import MountStatus

        about = self.about
        # Read on another thread, too, where there is no event loop.
        if self._opening or self._open:
            state = "running" if self._open else "starting"
        elif self.needs_login:
            state = "needs a login"
        elif self.last_error:
            state = "failed"
        else:
            state = "not started" if about is None or not self.was_open else "idle"
        return MountStatus(
            name=self.name,
            target=shown(self.target),
            state=state,
            era="" if about is None else "legacy" if about.has_sessions else "modern",
            instances=len(self._open),
            calls=self.calls,
            failures=self.failures,
            last_error=self.last_error,
        )

    # -- requests ----------------------------------------------------------------------------

    async def call(
        self, exchange: Exchange, send: Callable[[Connection], Awaitable[Result]], *, is_repeatable: bool = True
    ) -> Result:
        """Pass a request on with `send`, and return its result. Raises Unavailable, and the error of the server.

        It is sent again once if it was not sent, or if it `is_repeatable`.
        """
        self.calls += 1
        while True:
            try:
                return await self._call(exchange, send, is_repeatable)
            except Occupied:
                pass  # nothing was sent; there is another instance for it by now

    async def _call(
        self, exchange: Exchange, send: Callable[[Connection], Awaitable[Result]], is_repeatable: bool
    ) -> Result:
        for is_last in (False, True):
            connection = await self.connection(exchange)
            connection.calls += 1
            try:
                return await send(connection)
            except ConnectionLost as error:
                may_repeat = is_repeatable or isinstance(error, (CannotConnect, SessionLost))
                if is_last or not may_repeat:
                    raise self._unavailable(error) from None
            except (HttpError, RequestTimeout) as error:
                raise self._unavailable(error) from None
            finally:
                connection.calls -= 1
                connection.used_at = asyncio.get_running_loop().time()
                self.release(connection)
        raise AssertionError("unreachable")

    def release(self, connection: Connection) -> None:
        """End an instance for one call, when nothing needs it any more."""
        if self.settings.instances == "call" and not connection.calls and not connection.parked:
            self._close(connection)

    # -- instances ---------------------------------------------------------------------------

    async def connection(self, exchange: Exchange | None = None) -> Connection:
        """Return an open instance for the client of a request. Raises Unavailable."""
        from .opening import sender  # a start with a manifest needs none of it

        sender.set(exchange)
        found = self._open.get(self._key(exchange))
        return await self._opened(exchange) if found is None else found

    def begin(self) -> None:
        """Start the server before the first request."""
        self._start(self._begin())

    async def _begin(self) -> None:
        with suppress(Unavailable):
            connection = await self.connection()
            if self._refreshing is not None:
                await asyncio.shield(self._refreshing)
            if self._key(None) != connection.key or (self.about is not None and self.about.has_sessions):
                self._close(connection)  # each client has an instance of its own

    def _key(self, exchange: Exchange | None) -> object:
        has_sessions = self.about is None or self.about.has_sessions or self.settings.protocol == "legacy"
        mode = self.settings.instances or ("client" if has_sessions else "shared")
        if exchange is None or (mode == "shared" and self.settings.identity == "proxy"):
            return _SHARED
        session = exchange.call.session
        opening = session.opening
        if self.settings.identity == "upstream" or (mode == "principal" and opening.principal):
            return "principal", opening.principal
        # A connection of one request belongs to its user. An instance declares the capabilities of one client.
        of_one_request = opening.version is not None and opening.version.is_modern
        if opening.subscribes and not opening.is_stateless and not of_one_request:
            return session
        key = "principal", opening.principal, raw_capabilities(exchange.call.meta)
        return key if opening.principal else self._unoccupied(key, exchange)

    def _unoccupied(self, key: tuple[Any, ...], exchange: Exchange) -> object:
        # Clients that cannot be told apart share an instance. While one of them does not answer, another one is used,
        # because it is unknown which client the next question belongs to.
        now, number = asyncio.get_running_loop().time(), 0
        if getattr(exchange.call.params, "request_state", None) is None:
            while (other := self._open.get((*key, number))) is not None and other.is_occupied(now):
                number += 1
        return *key, number

    async def _opened(self, exchange: Exchange | None) -> Connection:
        if self._is_proven:
            return await self._wait_for(exchange)
        async with self._trial:
            found = self._open.get(self._key(exchange))
            return await self._wait_for(exchange) if found is None else found

    async def _wait_for(self, exchange: Exchange | None) -> Connection:
        key = self._key(exchange)
        task = self._opening.get(key)
        if task is None:
            self._check_pause()
            self._make_room()
            task = self._opening[key] = self._start(self._open_for(key, exchange))
            task.add_done_callback(lambda _: self._opening.pop(key, None))
        # Shielded, because others may wait for the same instance.
        return await asyncio.shield(task)

    async def _open_for(self, key: object, exchange: Exchange | None) -> Connection:
        from .opening import new_link  # a start with a manifest needs no client

        settings, loop = self.settings, asyncio.get_running_loop()
        link = new_link(
            self.name,
            self.target,
            settings,
            None if key == _SHARED else exchange,
            lambda kind: self._list_changed(link, kind),
            skips_probe=self._is_legacy,
        )
        connection = Connection(self, link, key, used_at=loop.time())
        link.on_lost = lambda error: self._lost(connection, error)
        try:
            async with asyncio.timeout(settings.start_timeout):
                await link.open()
        except TimeoutError:
            self._failed(f"it did not start within {settings.start_timeout:g} s")
            raise self._unavailable(None) from None
        except (McpdError, OSError) as error:
            self._failed(str(error), needs_login=isinstance(error, HttpError) and error.status in (401, 403))
            raise self._unavailable(None) from None
        self._is_proven = self.was_open = True
        self.needs_login, self.last_error = False, ""
        session = connection.session
        about = About(
            not link.era.has_result_types, session.server_capabilities, session.server_info, session.instructions
        )
        self.about = about
        if settings.instances == "call":
            return connection
        before, key = key, self._key(exchange)
        if before == _SHARED != key:
            # It was modern before, and received no capabilities of the client that it belongs to.
            link.on_lost = None
            await link.aclose()
            return await self._open_for(key, exchange)
        connection.key = key
        other = self._open.setdefault(key, connection)
        if other is not connection:
            self._close(connection)
        elif exchange is not None and key is exchange.call.session:
            exchange.peer.on_closed(lambda _: self._close(connection))
            ended = getattr(exchange.peer, "ended", None)
            if ended is not None and ended.done():
                self._start(self._close_when_idle(connection))  # nothing else would end it
        connection.is_over_http = key != _SHARED and exchange is not None and exchange.origin.transport == "http"
        if connection.is_over_http and settings.instance_idle:
            self._end_when_idle(connection)
        if self._is_remembered:
            self._is_remembered = False
            self._refresh(other, ALL_LISTS)
        self._set_mirrors(other)
        self._refresh_stale(other)
        return other

    @property
    def _is_legacy(self) -> bool:
        known = self.about is not None and self.about.has_sessions
        return self.settings.protocol == "legacy" or (known and self.settings.protocol == "auto")

    def _end_when_idle(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        left = connection.used_at + self.settings.instance_idle - loop.time()
        if self._open.get(connection.key) is not connection:
            return
        if left <= 0 and not connection.calls:
            self._close(connection)
        else:
            loop.call_later(max(left, 1.0), self._end_when_idle, connection)

    def _make_room(self) -> None:
        if len(self._open) + len(self._opening) < MOST_INSTANCES:
            return
        idle = [each for each in self._open.values() if not each.calls and not each.parked]
        if not idle:
            raise Unavailable(
                f"mount {self.name!r} is busy: all {MOST_INSTANCES} instances are in use; try again later"
            )
        self._close(min(idle, key=lambda each: each.used_at))

    def _close(self, connection: Connection) -> None:
        if self._open.get(connection.key) is connection:
            del self._open[connection.key]
        connection.link.on_lost = None
        self._start(connection.link.aclose())

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        self.loop = asyncio.get_running_loop()
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the requests that wait for it have it

    def forgive(self) -> None:
        """Forget the failures so far, so that the next request tries again."""
        self._failed_at.clear()
        self._next_try = 0.0

    async def _close_when_idle(self, connection: Connection) -> None:
        # The client sends nothing more, but earlier requests are answered, as on stdio if its input is a file.
        while True:
            await asyncio.sleep(_LEFT_SECONDS)
            if not connection.calls and self._refreshing is None:
                self._close(connection)
                return

    async def aclose(self) -> None:
        """End all instances, at the same time."""
        self._is_closed = True
        for task in self._opening.values():
            task.cancel()
        for connection in list(self._open.values()):
            self._close(connection)
        if self._users:
            await asyncio.gather(*(each.aclose() for each in self._users.values()))
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    @property
    def is_open(self) -> bool:
        """Whether it was not ended."""
        return not self._is_closed

    def connections(self) -> list[Connection]:
        """Return the open instances."""
        return list(self._open.values())

    # -- failures ----------------------------------------------------------------------------

    def _lost(self, connection: Connection, error: McpdError) -> None:
        if self._open.get(connection.key) is connection:
            self._failed(str(error))
            self._close(connection)

    def _failed(self, why: str, *, needs_login: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        self.failures += 1
        self._is_proven, self.needs_login = False, needs_login
        self.last_error = self.masked(why.removeprefix(f"{self.name}: "))
        log.warning("mount %s: %s", printable(self.name), printable(self.last_error, 1500))
        if now < self._next_try:
            return  # one failure may end many instances
        self._failed_at.append(now)
        recent = sum(now - each < _FAILURES_SECONDS for each in self._failed_at)
        pause = FIRST_PAUSE * 2 ** (recent - 1)
        is_broken = recent >= MOST_FAILURES or needs_login
        self._next_try = now + (LONGEST_PAUSE if is_broken else uniform(0.9, 1.1) * min(pause, LONGEST_PAUSE))

    def _check_pause(self) -> None:
        if self._is_closed:
            raise Unavailable(f"mount {self.name!r} is not available: the server is stopping")
        if asyncio.get_running_loop().time() < self._next_try:
            raise self._unavailable(None)

    def _unavailable(self, error: McpdError | None) -> Unavailable:
        why = self.last_error if error is None else self.masked(str(error).removeprefix(f"{self.name}: "))
        seconds = self._next_try - asyncio.get_running_loop().time()
        later = f"; next try in {ceil(seconds)} s" if seconds > 0 else ""
        return Unavailable(f'mount "{self.name}" is not available: {printable(why, 1000)}{later}')

    def masked(self, text: str) -> str:
        """Return a text without the secrets of the configuration."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return mask_text(text)

    # -- lists -------------------------------------------------------------------------------

    async def ready(self, exchange: Exchange | None = None) -> None:
        """Wait until the lists are known, at most as long as its start may take. Never raises for a failure."""
        if not self._stale():
            return
        connection = None
        hops = 0 if exchange is None else hops_of(exchange)
        if hops and (self._refreshing is not None or hops >= MOST_HOPS):
            return  # mounts go in a circle: this request is a part of the one that is waited for
        if self.last_error:
            # It has failed: others do not wait for it again, and clients are notified of its lists when it is back.
            if not self._opening and asyncio.get_running_loop().time() >= self._next_try:
                self._start(self._try(exchange))
            return
        self._hops = hops + 1
        self._principal = "" if exchange is None else exchange.call.session.opening.principal
        try:
            async with asyncio.timeout(self.settings.start_timeout):
                connection = await self.connection(exchange)
                self._refresh_stale(connection)
                if self._refreshing is not None:
                    await asyncio.shield(self._refreshing)
        except TimeoutError:
            log.warning("mount %s: its lists did not arrive in time", printable(self.name))
        except Unavailable:
            pass  # it was logged, and the lists that are known stay
        finally:
            if connection is not None and self.settings.instances == "call":
                self._close(connection)

    async def _try(self, exchange: Exchange | None) -> None:
        with suppress(Unavailable):
            await self.connection(exchange)

    def _stale(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        return [method for method in ALL_LISTS if method not in self.lists or self.lists[method].until <= now]

    def _list_changed(self, link: ServerLink, kind: str) -> None:
        connection = next((each for each in self._open.values() if each.link is link), None)
        if connection is not None:
            self._refresh(connection, _KINDS[kind])

    def _refresh_stale(self, connection: Connection) -> None:
        if self._refreshing is None and (stale := self._stale()):
            self._refresh(connection, stale)

    def _refresh(self, connection: Connection, methods: Any) -> None:
        self._changed.update(methods)
        if self._refreshing is None:
            self._refreshing = self._start(self._fetch_all(connection))

    async def _fetch_all(self, connection: Connection) -> None:
        try:
            while self._changed:
                methods = [method for method in ALL_LISTS if method in self._changed]
                self._changed.clear()  # a change from now on counts again
                before = {method: self.lists.get(method) for method in methods}
                for method in methods:
                    await self._fetch(connection, method)
                if any(_entries(self.lists.get(method)) != _entries(each) for method, each in before.items()):
                    self.on_lists(self)
                    self._save()
        finally:
            self._refreshing, self._hops = None, 1

    async def _fetch(self, connection: Connection, method: str) -> None:
        from .opening import offers, read_all

        capability, member, kind = ALL_LISTS[method]
        loop = asyncio.get_running_loop()
        # The methods of skills pass through a single mount as they are.
        extensions = connection.session.server_capabilities.extensions or {}
        has_list = method != SKILLS_LIST or (self.prefix.is_used and SKILLS in extensions)
        if not has_list or not offers(connection.era, capability):
            self.lists[method] = Listed({}, [], connection.session.version, until=float("inf"))
            return
        try:
            page, entries = await read_all(connection.client, method, member, kind, self.settings, self._hops)
        except McpdError as error:
            if self.settings.instances != "call" and self._open.get(connection.key) is not connection:
                return  # its client has left, or the failure of the whole instance was logged
            log.warning("mount %s: %s failed: %s", printable(self.name), printable(method), printable(error, 500))
            if connection.client.is_lost:
                return
            page, entries = {}, self.lists[method].entries if method in self.lists else []
        if _says_private(page):
            self.is_private = True
            if self._principal and not self._is_own:
                page, entries = {}, []  # it is fetched again for this user alone
        self.lists[method] = Listed(page, entries, connection.session.version)
        self.lists[method].until = loop.time() + self._fresh_seconds(connection, method)
        if method == "tools/list":
            for each in {connection, *self._open.values()}:
                self._set_mirrors(each)

    def _set_mirrors(self, connection: Connection) -> None:
        # Over HTTP some arguments are repeated in headers, which the tool names.
        headings, listed = connection.session.headings, self.lists.get("tools/list")
        if headings is None or listed is None:
            return
        tools = []
        for entry in listed.entries:
            with suppress(*MALFORMED):
                tools.append(_read_tool(entry))
        headings.set_tools(tools)

    def _fresh_seconds(self, connection: Connection, method: str) -> float:
        if method == "events/list":
            return _LEGACY_SECONDS
        capability = getattr(connection.session.server_capabilities, ALL_LISTS[method][0])
        if connection.era.has_result_types and not capability.list_changed:
            ttl = self.lists[method].page.get("ttlMs")
            return max(0.0, float(_number(ttl)) / 1000) if ttl is not None else 0.0
        return float("inf") if capability.list_changed else _LEGACY_SECONDS


def shown(target: Target) -> str:
    """Return a command or URL without secrets."""
    if isinstance(target, CommandTarget):
        return shlex.join(mask_command(target.command))
    if isinstance(target, UrlTarget):
        return str(replace(target, name=""))
    return mask_text(target) if isinstance(target, str) else type(target).__name__


def _says_private(page: Mapping[str, Raw]) -> bool:
    # Spec: 2026-07-28 server/utilities/caching: such a result "MUST NOT be shared" between users.
    return bytes(page.get("cacheScope", b"")) == b'"private"'


def _entries(listed: Listed | None) -> list[bytes] | None:
    return None if listed is None else list(map(bytes, listed.entries))


_number = Decoder(float).decode
_read_tool = Decoder(Tool).decode
