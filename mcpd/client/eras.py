"""What a client does in one way on a legacy session and in another in modern versions. Chosen once, by `agree`.

Spec: 2026-07-28 basic/versioning; basic/patterns/{mrtr,subscriptions}; 2025-11-25 basic/lifecycle, server/utilities.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from msgspec import Raw

from mcpd.client.callbacks import Callbacks, needed, run_rounds
from mcpd.client.connection import ClientConnection
from mcpd.client.limits import ClientLimits
from mcpd.client.messages import read_discovery
from mcpd.client.subscriptions import Subscription, Wishes
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
    """Agree with the server on a version, `wanted` or the newest in common: gives the way of its era.

    A server that says nothing for `probe_seconds` is taken for a legacy one; None waits for it as for any request.
    `skips_probe` for one that is known to be of the legacy era.

    Raises ConfigurationError if it is not the wanted one, UnsupportedVersion if there is none in common, and what a
    request raises.
    """
    session = connection.session
    name = table.NEWEST_LEGACY if skips_probe and wanted is None else wanted
    if name is None or name in table.MODERN:
        # Where each request has its own connection silence says nothing of the era: a slow server is not an old one.
        # Nor does it where no other era is wanted.
        may_be_old = connection.channel.is_multiplexed and wanted is None and probe_seconds is not None
        seconds = probe_seconds if may_be_old else timeout
        agreed = read_discovery(await _probe(connection, seconds, must_be_modern=wanted is not None))
        if not agreed.is_whole and agreed.version in table.MODERN:
            # Spec: 2026-07-28 basic/versioning: "select a mutually supported version … and retry the request".
            agreed = read_discovery(await _probe(connection, seconds, agreed.version, must_be_modern=True))
            if not agreed.is_whole:
                raise ProtocolError(f"The server refuses protocol version {agreed.version}, which it says it supports")
        name = agreed.version
        _check(name, wanted)
        if name in table.MODERN:
            session.accept_probe(agreed)
            return _Modern(connection, callbacks, limits)

    try:
        result = await connection.answer(session.initialize(name), timeout)
    except RemoteError as error:
        # A modern server that took longer to start than the probe waits has read the probe by now, and refuses this.
        if error.code != UnsupportedVersion.code or wanted is not None or probe_seconds is None:
            raise
        return await agree(connection, callbacks, limits, wanted=None, timeout=timeout, probe_seconds=None)
    _check(session.accept_initialize(result), wanted)
    connection.flush()
    return _Legacy(connection)


async def _probe(
    connection: ClientConnection, seconds: float | None, version: str | None = None, *, must_be_modern: bool
) -> Raw | RemoteError | None:
    """The answer to the probe in that version, or the newest; None for silence, and for what is no answer."""
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
        if error.status in _SAYS_NOTHING or is_refused or 300 <= error.status < 400:
            raise
        return None


_SAYS_NOTHING = (407, 429)
"""Of which era a server is: a proxy wants a password, or it wants less haste."""


def _check(name: str, wanted: str | None) -> None:
    if wanted is not None and name != wanted:
        raise ConfigurationError(f"the server does not speak {wanted}; the newest in common is {name}")


class ClientEra(ABC):
    """What differs, for one connection."""

    ping_method: ClassVar[str]
    """What shows that the server is there."""

    log_method: ClassVar[str]
    """What asks for the server's log; "" if each request does."""

    has_hints: ClassVar[bool]
    """Whether results say for how long they are fresh."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    is_probed: ClassVar[bool]
    """Whether servers of this era know the probe, so that the next connection to one begins with it."""

    @abstractmethod
    async def begin(self, wishes: Wishes, timeout: float | None) -> None:
        """The version is agreed on: ask for what the program wishes to hear. What the server refuses is logged."""

    @abstractmethod
    async def watch(self, uri: str, timeout: float | None) -> None:
        """Hear of changes of this resource too. Raises as a request does; then all is as it was before."""

    @abstractmethod
    async def unwatch(self, uri: str, timeout: float | None) -> None:
        """Hear of them no longer."""

    @abstractmethod
    async def end(self) -> None:
        """The client is closed: listen no more."""

    @abstractmethod
    async def set_log_level(self, level: LogLevel, timeout: float | None) -> None:
        """Hear of log messages of this level and above."""

    @abstractmethod
    def roots_changed(self) -> None:
        """The roots are others now."""

    @abstractmethod
    def is_complete(self, result: Raw) -> bool:
        """Whether there is nothing more to do for a result. Raises ProtocolError for one of an unknown type."""

    @abstractmethod
    async def complete(self, method: str, ask: Callable[[Any], Awaitable[Raw]], params: Any, result: Raw) -> Raw:
        """The complete result of a request, given that of its first round, which was not; `ask` sends it again with
        other params."""


class _Legacy(ClientEra):
    """A session: what the client wants is said once, and the server asks by requests of its own."""

    ping_method = "ping"
    log_method = "logging/setLevel"
    has_hints = False
    is_probed = False

    async def begin(self, wishes: Wishes, timeout: float | None) -> None:
        """Changes of lists are told to everybody; the rest is asked for, one by one."""
        try:
            if wishes.log_level is not None:
                await self.set_log_level(wishes.log_level, timeout)
            for uri in sorted(wishes.uris):
                await self.watch(uri, timeout)
        except (RemoteError, RequestTimeout, ProtocolError) as error:
            log.warning("not all that was subscribed to will be on_response of any more: %s", printable(error))

    async def watch(self, uri: str, timeout: float | None) -> None:
        """Hear of changes of this resource too."""
        await self.connection.request("resources/subscribe", {"uri": uri}, timeout=timeout)

    async def unwatch(self, uri: str, timeout: float | None) -> None:
        """Hear of them no longer."""
        await self.connection.request("resources/unsubscribe", {"uri": uri}, timeout=timeout)

    async def end(self) -> None:
        """What was subscribed to ends with the connection."""

    async def set_log_level(self, level: LogLevel, timeout: float | None) -> None:
        """Tell the server, which remembers it."""
        await self.connection.request("logging/setLevel", {"level": level}, timeout=timeout)

    def roots_changed(self) -> None:
        """Tell the server, which may have asked for them before."""
        self.connection.session.notify("notifications/roots/list_changed")
        self.connection.flush()

    def is_complete(self, result: Raw) -> bool:
        """There is one round."""
        return True

    async def complete(self, method: str, ask: Callable[[Any], Awaitable[Raw]], params: Any, result: Raw) -> Raw:
        """There is one round."""
        return result


class _Modern(ClientEra):
    """Each request for itself: it says what the client wants, and its result may ask for input."""

    ping_method = "server/discover"
    log_method = ""
    has_hints = True
    is_probed = True

    def __init__(self, connection: ClientConnection, callbacks: Callbacks, limits: ClientLimits) -> None:
        super().__init__(connection)
        self._callbacks = callbacks
        self._limits = limits
        self._subscription = Subscription(connection, callbacks)

    async def begin(self, wishes: Wishes, timeout: float | None) -> None:
        """Changes are told to who listens."""
        if wishes.log_level is not None:
            await self.set_log_level(wishes.log_level, timeout)
        await self._subscription.begin(wishes)

    async def watch(self, uri: str, timeout: float | None) -> None:
        """Hear of changes of this resource too."""
        await self._subscription.watch(uri, timeout)

    async def unwatch(self, uri: str, timeout: float | None) -> None:
        """Hear of them no longer."""
        await self._subscription.unwatch(uri, timeout)

    async def end(self) -> None:
        """Stop listening."""
        await self._subscription.end()

    async def set_log_level(self, level: LogLevel, timeout: float | None) -> None:
        """Later requests say so."""
        envelope = self.connection.session.envelope
        assert envelope is not None
        envelope.set_log_level(level)

    def roots_changed(self) -> None:
        """Nothing is to be said: a server asks when it needs them."""

    def is_complete(self, result: Raw) -> bool:
        """It says so itself."""
        return needed(result) is None

    async def complete(self, method: str, ask: Callable[[Any], Awaitable[Raw]], params: Any, result: Raw) -> Raw:
        """As many rounds as it takes."""
        return await run_rounds(
            method, ask, params, result, self._callbacks, self._limits, self.connection.session.faults
        )


_MOST = 1000
_legacy: dict[object, None] = {}


def is_known_legacy(target: CommandTarget | UrlTarget | None) -> bool:
    """Whether this server, when it was last connected to, spoke no modern version."""
    return target is not None and _key(target) in _legacy


def remember_era(target: CommandTarget | UrlTarget | None, *, is_probed: bool) -> None:
    """What was found out of it: whether it knows the probe."""
    if target is None:
        return
    key = _key(target)
    _legacy.pop(key, None)
    if not is_probed:
        _legacy[key] = None
        if len(_legacy) > _MOST:
            del _legacy[next(iter(_legacy))]


def forget_eras() -> None:
    """Let each server be probed anew."""
    _legacy.clear()


def _key(target: CommandTarget | UrlTarget) -> object:
    if isinstance(target, CommandTarget):
        return target.command, target.cwd, tuple(sorted((target.env or {}).items()))
    return target.url, target.socket
