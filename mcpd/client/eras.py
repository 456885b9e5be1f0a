"""The two eras of the protocol, from the client's side: sessions (legacy), and independent requests (2026-07-28 and
later).

`agree` negotiates the version and selects the era of a connection. Servers that are known to be legacy servers are not
probed again. Spec: 2026-07-28 basic/versioning; basic/patterns/{mrtr,subscriptions}; 2025-11-25 basic/lifecycle,
server/utilities.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from msgspec import Raw

from mcpd.client.callbacks import Callbacks, complete_rounds, read_input_required
from mcpd.client.connection import ClientConnection
from mcpd.client.limits import ClientLimits
from mcpd.client.messages import read_discovery
from mcpd.client.subscriptions import Interests, Subscription
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import ConfigurationError, HttpError, ProtocolError, RemoteError, RequestTimeout, UnsupportedVersion
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import LogLevel
from mcpd.protocol.versions import table

log = logging.getLogger("mcpd.client")


async def agree(
    connection: ClientConnection,
    callbacks: Callbacks,
    limits: ClientLimits,
    *,
    wanted: str | None,
    timeout: float | None,
    probe_seconds: float | None,
    skips_probe: bool = False,
) -> ClientEra:
    """Negotiate a protocol version, `wanted` or the newest common one, and return its era.

    A server that does not answer within `probe_seconds` is treated as a legacy server; None waits as for any request.
    `skips_probe` connects to a server that is known to be a legacy server.

    Raises ConfigurationError if the server does not support `wanted`, UnsupportedVersion if there is no common version,
    and the errors of a request.
    """
    session = connection.session
    name = table.NEWEST_LEGACY if skips_probe and wanted is None else wanted
    if name is None or name in table.MODERN:
        # If each request has its own connection, silence means a slow server, not a legacy one. If `wanted` is given,
        # there is no other era to choose.
        may_be_old = connection.channel.is_multiplexed and wanted is None and probe_seconds is not None
        seconds = probe_seconds if may_be_old else timeout
        agreed = read_discovery(await _probe(connection, seconds, must_be_modern=wanted is not None))
        if not agreed.is_whole and agreed.version in table.MODERN:
            # Spec: 2026-07-28 basic/versioning: "select a mutually supported version … and retry the request".
            agreed = read_discovery(await _probe(connection, seconds, agreed.version, must_be_modern=True))
            if not agreed.is_whole:
                raise ProtocolError(f"The server refuses protocol version {agreed.version} although it announces it")
        name = agreed.version
        _check(name, wanted)
        if name in table.MODERN:
            session.accept_probe(agreed)
            return ModernEra(connection, callbacks, limits)

    try:
        result = await connection.answer(session.initialize(name), timeout)
    except RemoteError as error:
        # A modern server that started more slowly than the probe waits has read the probe by now, and refuses this.
        if error.code != UnsupportedVersion.code or wanted is not None or probe_seconds is None:
            raise
        return await agree(connection, callbacks, limits, wanted=None, timeout=timeout, probe_seconds=None)
    _check(session.accept_initialize(result), wanted)
    connection.flush()
    return LegacyEra(connection)


async def _probe(
    connection: ClientConnection, seconds: float | None, version: str | None = None, *, must_be_modern: bool
) -> Raw | RemoteError | None:
    """Return the response to the probe; None without a response, and for an invalid one."""
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


_UNRELATED_STATUSES = (407, 429)
"""Statuses that do not depend on the era: proxy authentication, and rate limits."""


def _check(name: str, wanted: str | None) -> None:
    if wanted is not None and name != wanted:
        raise ConfigurationError(f"the server does not support {wanted}; the newest common version is {name}")


class LegacyEra:
    """A session: subscriptions belong to the connection, and the server sends requests of its own."""

    ping_method = "ping"
    log_method = "logging/setLevel"
    """The method that sets the log level; "" if each request contains the level."""
    has_cache_hints = False
    """Whether results contain their lifetime."""
    supports_discover = False
    """Whether the next connection to the same server should begin with `server/discover`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def begin(self, interests: Interests, timeout: float | None) -> None:
        """Request the notifications that the program wants. Refusals are logged."""
        try:
            if interests.log_level is not None:
                await self.set_log_level(interests.log_level, timeout)
            for uri in sorted(interests.uris):
                await self.subscribe(uri, timeout)
        except (RemoteError, RequestTimeout, ProtocolError) as error:
            log.warning("not all subscriptions could be renewed: %s", printable(error))

    async def subscribe(self, uri: str, timeout: float | None) -> None:
        """Subscribe to changes of a resource. Raises the errors of a request."""
        await self.connection.request("resources/subscribe", {"uri": uri}, timeout=timeout)

    async def unsubscribe(self, uri: str, timeout: float | None) -> None:
        """End the subscription to a resource."""
        await self.connection.request("resources/unsubscribe", {"uri": uri}, timeout=timeout)

    async def end(self) -> None:
        """Subscriptions end with the connection."""

    async def set_log_level(self, level: LogLevel, timeout: float | None) -> None:
        """Request log messages of this level and above."""
        await self.connection.request("logging/setLevel", {"level": level}, timeout=timeout)

    def roots_changed(self) -> None:
        """Notify the server that the roots have changed."""
        self.connection.session.notify("notifications/roots/list_changed")
        self.connection.flush()

    def is_complete(self, result: Raw) -> bool:
        """Whether a result is final, as all results are."""
        return True

    async def complete(self, method: str, ask: Callable[[Any], Awaitable[Raw]], params: Any, result: Raw) -> Raw:
        """Return the final result of a request whose first result was not final."""
        return result


class ModernEra:
    """Each request is independent: it contains the client's capabilities, and its result may ask for input."""

    ping_method = "server/discover"
    log_method = ""
    has_cache_hints = True
    supports_discover = True

    def __init__(self, connection: ClientConnection, callbacks: Callbacks, limits: ClientLimits) -> None:
        self.connection = connection
        self._callbacks = callbacks
        self._limits = limits
        self._subscription = Subscription(connection, callbacks)
        self.subscribe = self._subscription.subscribe
        self.unsubscribe = self._subscription.unsubscribe
        self.end = self._subscription.end

    async def begin(self, interests: Interests, timeout: float | None) -> None:
        """Request the notifications that the program wants. Refusals are logged."""
        if interests.log_level is not None:
            await self.set_log_level(interests.log_level, timeout)
        await self._subscription.begin(interests)

    async def set_log_level(self, level: LogLevel, timeout: float | None) -> None:
        """Add the level to all further requests."""
        envelope = self.connection.session.envelope
        assert envelope is not None
        envelope.set_log_level(level)

    def roots_changed(self) -> None:
        """Modern servers request the roots when they need them."""

    def is_complete(self, result: Raw) -> bool:
        """Whether a result is final. Raises ProtocolError for an unknown type of result."""
        return read_input_required(result) is None

    async def complete(self, method: str, ask: Callable[[Any], Awaitable[Raw]], params: Any, result: Raw) -> Raw:
        """Return the final result of a request whose first result asks for input."""
        return await complete_rounds(
            method, ask, params, result, self._callbacks, self._limits, self.connection.session.faults
        )


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
    _legacy.pop(key, None)
    if not supports_discover:
        _legacy[key] = None
        if len(_legacy) > _MAX_ENTRIES:
            del _legacy[next(iter(_legacy))]


def forget_eras() -> None:
    """Probe all servers again."""
    _legacy.clear()


def _key(target: CommandTarget | UrlTarget) -> object:
    if isinstance(target, CommandTarget):
        return target.command, target.cwd, tuple(sorted((target.env or {}).items()))
    return target.url, target.socket
