"""The two eras of the protocol for a client: sessions (legacy), and independent requests (2026-07-28 and later).

`agree` negotiates the version and selects the era of a connection. Servers that are known to be legacy servers are not
probed again. A modern server only sends notifications that were requested, so a client keeps one `subscriptions/listen`
request open. When the requested notifications change, a new request replaces the old one without a gap.

Spec: 2026-07-28 basic/versioning, basic/patterns/{mrtr,subscriptions}; 2025-11-25 basic/lifecycle, server/utilities.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Raw, Struct, field
from msgspec.json import Decoder, encode

from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import (
    ConfigurationError,
    ConnectionLost,
    HttpError,
    McpdError,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    TransportError,
    UnsupportedVersion,
)
from mcpd.protocol.envelope import SUBSCRIPTION_ID, Envelope
from mcpd.protocol.jsonrpc import MALFORMED, Id
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import LogLevel, ServerCapabilities
from mcpd.protocol.types.interaction import AcknowledgedParams, ListenParams, SubscriptionFilter
from mcpd.protocol.versions import table
from .callbacks import Callbacks, is_change
from .connection import ClientConnection
from .messages import read_discovery
from .session import NotificationReceived, OnProgress


class Interests:
    """The notifications that the program wants, which each new connection requests again."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self.uris: set[str] = set()
        self.log_level: LogLevel | None = None

    @property
    def is_listening(self) -> bool:
        """Whether the program receives notifications without sending requests."""
        receives_log = self._callbacks.log is not None and self.log_level is not None
        return self._callbacks.list_changed is not None or bool(self.uris) or receives_log

    def lists(self, capabilities: ServerCapabilities) -> list[str]:
        """Return the kinds of lists whose changes the program wants and the server reports."""
        if self._callbacks.list_changed is None:
            return []
        reported = {"tools": capabilities.tools, "prompts": capabilities.prompts, "resources": capabilities.resources}
        return [kind for kind, capability in reported.items() if capability is not None and capability.list_changed]

    def may_have_changed(self, capabilities: ServerCapabilities) -> Iterator[tuple[str, Raw]]:
        """Yield the notifications that may have been missed, as method and params."""
        for kind in self.lists(capabilities):
            yield f"notifications/{kind}/list_changed", Raw(b"{}")
        for uri in sorted(self.uris):
            yield "notifications/resources/updated", Raw(encode({"uri": uri}))


OnNotification: TypeAlias = Callable[[str, Raw], object]
"""Receives the method and params of a notification."""

log = logging.getLogger("mcpd.client")

ACKNOWLEDGED_SECONDS = 5.0
AGAIN_SECONDS = 1.0
LONGEST_PAUSE = 30.0
LASTED_SECONDS = 10.0


class _Meta(Struct):
    subscription: Id | None = field(name=SUBSCRIPTION_ID, default=None)


class _Notification(Struct):
    meta: _Meta | None = field(name="_meta", default=None)


_read_notification = Decoder(_Notification).decode
_read_acknowledged = Decoder(AcknowledgedParams).decode

_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TASK_CHANGED = "notifications/tasks"
"""The notification about one task, on a subscription to it."""
EVENT_PREFIX = "notifications/events/"
"""The notifications of an `events/stream` request."""


class Subscription:
    def __init__(self, connection: ClientConnection, callbacks: Callbacks) -> None:
        self._connection = connection
        self._callbacks = callbacks
        self._uris: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self._interests = Interests(callbacks)
        # Requests that replace a subscription which the server had ended.
        self._again: set[Id] = set()
        # Two changes at once would each replace the same old subscription.
        self._changing = asyncio.Lock()
        # The open requests, and what the server acknowledged for each; None if the acknowledgement is invalid.
        self._acknowledged: dict[Id, asyncio.Future[SubscriptionFilter | None]] = {}
        # The functions that receive the notifications of other subscriptions, by the ids of their requests.
        self.feeds: dict[Id, OnNotification] = {}
        connection.is_wanted = self._is_wanted

    async def begin(self, interests: Interests) -> None:
        """Request the notifications that the program wants. Refusals are logged."""
        self._interests = interests
        if self._callbacks.list_changed is not None or interests.uris:
            try:
                await self._listen_to(frozenset(interests.uris), ACKNOWLEDGED_SECONDS)
            except ConnectionLost:
                raise
            except McpdError as error:
                log.warning("notifications of changes cannot be received: %s", printable(error))

    async def subscribe(self, uri: str, timeout: float | None) -> None:
        """Subscribe to changes of a resource. If an error is raised, nothing has changed."""
        async with self._changing:
            if uri not in self._uris or self._task is None or self._task.done():
                await self._listen_to(self._uris | {uri}, timeout, added=uri)

    async def unsubscribe(self, uri: str, timeout: float | None) -> None:
        async with self._changing:
            if uri in self._uris:
                await self._listen_to(self._uris - {uri}, timeout)

    async def end(self) -> None:
        if self._task is not None:
            await _stop(self._task)

    def _filter(self, uris: frozenset[str]) -> SubscriptionFilter:
        lists = self._interests.lists(self._connection.session.server_capabilities)
        return SubscriptionFilter(
            tools_list_changed="tools" in lists,
            prompts_list_changed="prompts" in lists,
            resources_list_changed="resources" in lists,
            resource_subscriptions=sorted(uris) or None,
        )

    async def _listen_to(self, uris: frozenset[str], timeout: float | None, added: str | None = None) -> None:
        # Open the new subscription first, then end the old one, so that no notification is missed.
        # If the server refuses the new one, or leaves out `added`, the old one stays open. Raises RemoteError,
        # RequestTimeout, ConnectionLost, ProtocolError.
        wanted, task = self._filter(uris), None
        if wanted != SubscriptionFilter():
            acknowledged = self._connection.loop.create_future()
            task = self._connection.loop.create_task(self._listen(wanted, acknowledged))
            try:
                async with asyncio.timeout(timeout):
                    agreed = await acknowledged
                self._look_at(wanted, agreed, added)
            except TimeoutError:
                await _stop(task)
                raise RequestTimeout(
                    f"The server did not acknowledge subscriptions/listen within {timeout:g} s"
                ) from None
            except BaseException:
                await _stop(task)
                raise

        # Only now, because an error above must leave everything as it was.
        old, self._task, self._uris = self._task, task, uris
        if old is not None:
            await _stop(old)

    def _look_at(self, wanted: SubscriptionFilter, agreed: SubscriptionFilter | None, added: str | None) -> None:
        # Log what the server left out of its acknowledgement. Raises ProtocolError if `added` is missing.
        # Spec: "The client SHOULD check the acknowledged filter … and handle any unsupported types gracefully".
        if agreed is None:
            return
        told_of = agreed.resource_subscriptions or ()
        if added is not None and added not in told_of:
            raise ProtocolError(f"The server does not report changes of {added}: its acknowledgement leaves it out")

        missing = [uri for uri in wanted.resource_subscriptions or () if uri not in told_of]
        missing += [name.replace("_", " ") for name in _LISTS if getattr(wanted, name) and not getattr(agreed, name)]
        if missing:
            text = "the server does not report all changes that were requested: %s"
            self._connection.session.faults.log(logging.WARNING, text, printable(", ".join(missing), 300))

    async def _listen(
        self, wanted: SubscriptionFilter, acknowledged: asyncio.Future[SubscriptionFilter | None]
    ) -> None:
        # Keep a subscription open. If the server ends it, open it again while the connection lives.
        connection, params = self._connection, ListenParams(notifications=wanted)
        pause = AGAIN_SECONDS
        while True:
            request = connection.session.request("subscriptions/listen", params)
            # The id is the subscription id in notifications.
            self._acknowledged[request.id] = acknowledged
            began = connection.loop.time()
            if acknowledged.done():
                self._again.add(request.id)
            error: McpdError | None = None
            try:
                await connection.answer(request, None)
            except McpdError as raised:
                error = raised
            finally:
                del self._acknowledged[request.id]
                self._again.discard(request.id)

            if not acknowledged.done():
                acknowledged.set_exception(
                    error or ProtocolError("The server ended a subscription without acknowledging it")
                )
                return
            # A new connection opens its own subscription.
            if connection.is_lost:
                return
            if error is not None and not isinstance(error, TransportError):
                log.warning("notifications of changes are no longer received: %s", printable(error))
                return

            # If each request has its own connection, only the subscription's may be interrupted, again and again.
            pause = AGAIN_SECONDS if error is None or connection.loop.time() - began > LASTED_SECONDS else pause * 2
            await asyncio.sleep(min(pause, LONGEST_PAUSE))

    def _is_wanted(self, notification: NotificationReceived) -> bool:
        # Spec: on stdio "clients MUST use this field to correlate notifications with their originating subscription".
        # A modern server reports changes on a subscription only.
        method = notification.method
        if (
            method not in (_ACKNOWLEDGED, TASK_CHANGED)
            and not is_change(method)
            and not method.startswith(EVENT_PREFIX)
        ):
            return True

        try:
            meta = _read_notification(notification.params).meta
        except MALFORMED:
            meta = None
        subscription = None if meta is None else meta.subscription
        if subscription in self.feeds:
            self.feeds[subscription](notification.method, notification.params)
            return False

        acknowledged = None if subscription is None else self._acknowledged.get(subscription)
        if acknowledged is None:
            text = "the server sent a %s that belongs to no subscription"
            self._connection.session.faults.log(logging.INFO, text, printable(notification.method))
        elif notification.method != _ACKNOWLEDGED:
            return True
        elif not acknowledged.done():
            try:
                acknowledged.set_result(_read_acknowledged(notification.params).notifications)
            except MALFORMED:
                acknowledged.set_result(None)
        elif subscription in self._again:
            self._again.discard(subscription)
            self._connection.loop.call_soon(self._report_missed_changes)
        return False

    def _report_missed_changes(self) -> None:
        self._interests.uris.update(self._uris)
        for method, params in self._interests.may_have_changed(self._connection.session.server_capabilities):
            self._connection.report_change(method, params)


_LISTS = ("tools_list_changed", "prompts_list_changed", "resources_list_changed")


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def agree(
    connection: ClientConnection,
    callbacks: Callbacks,
    *,
    wanted: str | None,
    timeout: float | None,
    probe_seconds: float | None,
    skips_probe: bool = False,
) -> ClientEra:
    """Negotiate a protocol version, `wanted` or the newest common one, and return its era.

    A server that does not answer within `probe_seconds` is treated as a legacy server; None waits as for any request.
    If it answers later, the era returned has `supports_discover`: the next connection can be a modern one.
    `skips_probe` connects to a server that is known to be a legacy server.

    Raises ConfigurationError if the server does not support `wanted`, UnsupportedVersion if there is no common version,
    and the errors of a request.
    """
    session = connection.session
    name = table.NEWEST_LEGACY if skips_probe and wanted is None else wanted
    late: asyncio.Task[Raw | RemoteError | None] | None = None
    # Spec: 2026-07-28 basic/versioning: `server/discover` works in every modern version.
    if name is None or name in table.MODERN:
        # If each request has its own connection, silence means a slow server, not a legacy one. If `wanted` is given,
        # there is no other era to choose.
        may_be_old = connection.channel.is_multiplexed and wanted is None and probe_seconds is not None
        seconds = probe_seconds if may_be_old else timeout
        answer, late = await _first_probe(connection, seconds, may_be_old, must_be_modern=wanted is not None)
        agreed = read_discovery(answer)
        if not agreed.is_whole and agreed.version in table.MODERN:
            # Spec: 2026-07-28 basic/versioning: "select a mutually supported version … and retry the request".
            agreed = read_discovery(await _probe(connection, seconds, agreed.version, must_be_modern=True))
            if not agreed.is_whole:
                raise ProtocolError(f"The server refuses protocol version {agreed.version} although it announces it")
        name = agreed.version
        _check(name, wanted)
        if name in table.MODERN:
            session.accept_probe(agreed)
            return ModernEra(connection, callbacks)

    try:
        result = await connection.answer(session.initialize(name), timeout)
    except RemoteError as error:
        # A modern server that started more slowly than the probe waits has read the probe by now, and refuses this.
        if error.code != UnsupportedVersion.code or wanted is not None or probe_seconds is None:
            raise
        # Without `probe_seconds` the second probe waits as long as any request, so this happens once.
        return await agree(connection, callbacks, wanted=None, timeout=timeout, probe_seconds=None)
    finally:
        if late is not None and not late.cancel():
            late.exception()  # marks it as retrieved

    _check(session.accept_initialize(result), wanted)
    connection.flush()
    era = LegacyEra(connection)
    if late is not None and late.done() and not late.exception():
        era.supports_discover = read_discovery(late.result()).version != table.NEWEST_LEGACY
    return era


async def _first_probe(
    connection: ClientConnection, seconds: float | None, may_be_old: bool, *, must_be_modern: bool
) -> tuple[Raw | RemoteError | None, asyncio.Task[Raw | RemoteError | None] | None]:
    # Return the response, or None after `seconds`; then also the task that goes on waiting, if the server may be old.
    if not may_be_old:
        return await _probe(connection, seconds, must_be_modern=must_be_modern), None
    probe = connection.loop.create_task(_probe(connection, None, must_be_modern=must_be_modern))
    try:
        await asyncio.wait((probe,), timeout=seconds)
    except asyncio.CancelledError:
        probe.cancel()
        raise
    return (probe.result(), None) if probe.done() else (None, probe)


async def _probe(
    connection: ClientConnection, seconds: float | None, version: str | None = None, *, must_be_modern: bool
) -> Raw | RemoteError | None:
    # Return the response to the probe; None without a response, and for an invalid one.
    try:
        return await connection.answer(connection.session.probe(version), seconds)
    except RemoteError as error:
        return error
    except (RequestTimeout, ProtocolError):
        return None
    except HttpError as error:
        # Spec: 2026-07-28 basic/versioning: "a 4xx without a recognized modern error body" is a legacy server's.
        # A server before 2026-07-28 may refuse the unknown method, or a message without a session, by 401 or 403.
        is_refused = error.status in (401, 403) and (must_be_modern or error.is_challenge)
        if error.status in _UNRELATED_STATUSES or is_refused or 300 <= error.status < 400:
            raise
        return None


# Statuses that do not depend on the era: proxy authentication, and rate limits.
_UNRELATED_STATUSES = (407, 429)


def _check(name: str, wanted: str | None) -> None:
    if wanted is not None and name != wanted:
        raise ConfigurationError(f"the server does not support {wanted}; the newest common version is {name}")


class LegacyEra:
    """A session: subscriptions belong to the connection, and the server sends requests of its own."""

    ping_method = "ping"
    log_method = "logging/setLevel"
    """The method that sets the log level; "" if each request contains the level."""
    has_result_types = False
    """Whether results contain their type and their lifetime."""
    supports_discover = False
    """Whether the next connection to the same server should begin with `server/discover`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def begin(self, interests: Interests, timeout: float | None) -> None:
        try:
            if interests.log_level is not None:
                await self.set_log_level(interests.log_level, timeout)
            for uri in sorted(interests.uris):
                await self.subscribe(uri, timeout)
        except (RemoteError, RequestTimeout, ProtocolError) as error:
            log.warning("not all subscriptions could be renewed: %s", printable(error))

    async def subscribe(self, uri: str, timeout: float | None) -> None:
        await self.connection.request("resources/subscribe", {"uri": uri}, timeout=timeout)

    async def unsubscribe(self, uri: str, timeout: float | None) -> None:
        await self.connection.request("resources/unsubscribe", {"uri": uri}, timeout=timeout)

    async def end(self) -> None:
        """Subscriptions end with the connection."""

    async def start_task(
        self, params: Mapping[str, Any], timeout: float | None, on_progress: OnProgress | None
    ) -> tuple[Raw, OnProgress | None]:
        """Call a tool as a task, and return the result and a function for status messages of the task.

        The function does nothing once progress was notified, which says the same. Raises the errors of a request.
        """
        connection, is_notified = self.connection, False
        request = connection.begin("tools/call", {**params, "task": {}}, on_progress)
        if on_progress is None:
            return await connection.answer(request, timeout), None

        def report(*progress: Any) -> None:
            nonlocal is_notified
            is_notified = True
            on_progress(*progress)

        def report_status(*progress: Any) -> None:
            if not is_notified:
                on_progress(*progress)

        request.on_progress = report
        # Spec: 2025-11-25 basic/utilities/tasks: the token "MUST remain valid … throughout the task's lifetime".
        connection.session.keep_progress(request)
        return await connection.answer(request, timeout), report_status

    async def set_log_level(self, level: LogLevel, timeout: float | None) -> None:
        await self.connection.request("logging/setLevel", {"level": level}, timeout=timeout)

    def roots_changed(self) -> None:
        self.connection.session.notify("notifications/roots/list_changed")
        self.connection.flush()


class ModernEra:
    """Each request is independent: it contains the client's capabilities, and its result may ask for input."""

    ping_method = "server/discover"
    log_method = ""
    has_result_types = True
    supports_discover = True

    def __init__(self, connection: ClientConnection, callbacks: Callbacks) -> None:
        self.connection = connection
        self.reports_tasks = True
        """Whether a subscription to a task may be tried: no other was refused."""
        self._subscription = Subscription(connection, callbacks)
        self.subscribe = self._subscription.subscribe
        self.unsubscribe = self._subscription.unsubscribe
        self.end = self._subscription.end

    async def begin(self, interests: Interests, timeout: float | None) -> None:
        if interests.log_level is not None:
            await self.set_log_level(interests.log_level, timeout)
        await self._subscription.begin(interests)

    async def set_log_level(self, level: LogLevel, timeout: float | None) -> None:
        envelope = self.connection.session.envelope
        assert envelope is not None
        # Spec: 2026-07-28 server/utilities/logging: each request names the level, so nothing is sent now.
        envelope.set_log_level(level)

    @property
    def feeds(self) -> int:
        """The number of open subscriptions by `listen`."""
        return len(self._subscription.feeds)

    async def listen(
        self,
        params: ListenParams | Mapping[str, Any],
        on_notification: OnNotification,
        method: str = "subscriptions/listen",
        envelope: Envelope | None = None,
    ) -> None:
        """Keep another subscription open until the server ends it. Raises the errors of a request.

        `envelope` describes another client, for whom the subscription is.
        """
        request = self.connection.session.request(method, params, envelope=envelope)
        self._subscription.feeds[request.id] = on_notification
        try:
            await self.connection.answer(request, None)
        finally:
            del self._subscription.feeds[request.id]

    def roots_changed(self) -> None:
        """Modern servers request the roots when they need them."""


ClientEra: TypeAlias = LegacyEra | ModernEra


_MAX_ENTRIES = 1000
_legacy: dict[object, None] = {}


def is_known_legacy(target: CommandTarget | UrlTarget | None) -> bool:
    """Whether this server was a legacy server at the last connection."""
    return target is not None and _key(target) in _legacy


def remember_era(target: CommandTarget | UrlTarget | None, *, supports_discover: bool) -> None:
    """Record the era of a server, in memory.

    Spec: 2026-07-28 basic/versioning: "Clients SHOULD cache the result for the lifetime of the server process (stdio)
    or origin (HTTP)". A file would save one message per start, and would be wrong after each upgrade of a server.
    """
    if target is None:
        return
    key = _key(target)
    # Removed first, so that the dict stays in the order of use.
    _legacy.pop(key, None)
    if not supports_discover:
        _legacy[key] = None
        if len(_legacy) > _MAX_ENTRIES:
            del _legacy[next(iter(_legacy))]


def _key(target: CommandTarget | UrlTarget) -> object:
    if isinstance(target, CommandTarget):
        return target.command, target.cwd, tuple(sorted((target.env or {}).items()))
    return target.url, target.socket
