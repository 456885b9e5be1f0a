"""Keeps a client connected to one server, through as many connections as it takes.

A connection is opened, a version negotiated, and subscriptions requested. If the connection is lost (a child process
crashed, a socket was closed, the server has ended the session), the next request opens a new one. A program with
subscriptions gets a new one immediately. These requests are repeated on it:

    requests that were never sent, because there was no connection
    after SessionLost, requests that change nothing: lists, reads, pings, and tools with `readOnlyHint` or
    `idempotentHint`

All other waiting requests raise the error at once. The pause between attempts grows, and after a few attempts the error
is raised. Cached results are discarded, and the program is notified that lists and resources may have changed.

Spec: 2026-07-28 basic/versioning, backward compatibility; 2025-11-25 basic/transports, session management.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from mcpd import __version__
from mcpd.client.http.options import Auth, Authenticate, Challenge, Headers, HttpOptions, has_login
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import (
    CannotConnect,
    ConfigurationError,
    ConnectionLost,
    HttpError,
    LocalProtocolError,
    McpdError,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    SessionLost,
    UnsupportedVersion,
    missing_extra,
)
from mcpd.protocol.methods import REPEATABLE
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import ClientCapabilities, Implementation
from mcpd.protocol.versions import table
from mcpd.protocol.wire import trace_context
from .callbacks import Callbacks, capabilities
from .channels import ChannelWatcher, StartableChannel, watched
from .connection import ClientConnection
from .eras import ClientEra, Interests, LegacyEra, agree, is_known_legacy, remember_era
from .limits import ClientLimits, Faults
from .output_schemas import OutputSchemas
from .results import ResultCache
from .session import ClientSession, OnProgress
from .target import InProcess, Target, connect, resolve

if TYPE_CHECKING:
    from mcpd.transports.challenge import Authorization
    from .receiver import Receiver


def authorization_for(target: UrlTarget, auth: Auth | None, http: HttpOptions | None) -> Authorization | None:
    """Return the authorization that `auth` describes, or the user's stored login; None if no authorization is needed.

    Raises ConfigurationError for a token that is configured twice.
    """
    options = http or HttpOptions()
    headers = {**target.headers, **(options.headers if isinstance(options.headers, Mapping) else {})}
    has_token = options.authenticate is not None or any(name.lower() == "authorization" for name in headers)
    if auth is not None and has_token:
        raise ConfigurationError("use only one of auth, a header Authorization and authenticate")
    # Header fields of the program may name another user than the stored login.
    if auth is None and (has_token or options.headers is not None or not has_login(target.url)):
        return None

    try:
        from mcpd.client.auth.authorizer import authorization
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"{target}: reaching servers by URL", "client") from None
    return authorization(target, auth, http)


log = logging.getLogger("mcpd.client")

TRIES = 4
"""Attempts to open a new connection for one request."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
LIVED_SECONDS = 5.0
"""If a connection lasted this long, the next one is opened without a pause."""
LISTENING_TRIES = 12
"""Attempts for a program that only has subscriptions. After that, the next request tries again."""

_NO_CALLBACKS = Callbacks()
_DEFAULT_LIMITS = ClientLimits()
_OURSELVES = Implementation(name="mcpd", version=__version__)
_REPEATABLE = REPEATABLE - {"initialize", "subscriptions/listen"}


class ServerLink:
    """One server and the current connection to it. The part of `Client` that manages connections."""

    probe_seconds = 5.0
    """Seconds that a server may take to answer the probe before it is treated as a legacy server."""

    def __init__(
        self,
        target: Target,
        callbacks: Callbacks = _NO_CALLBACKS,
        *,
        info: Implementation | None = None,
        extensions: Mapping[str, Any] | None = None,
        version: str | None = None,
        timeout: float | None = 60.0,
        limits: ClientLimits = _DEFAULT_LIMITS,
        cache: bool = True,
        reconnect: bool = True,
        check_results: bool = True,
        headers: Headers | None = None,
        http: HttpOptions | None = None,
        watcher: ChannelWatcher | None = None,
        auth: Auth | None = None,
        webhook: Receiver | None = None,
    ) -> None:
        _check_version(version)
        if headers is not None:
            http = replace(http or HttpOptions(), headers=headers)
        if http is not None and http.authenticate is not None:
            http = replace(http, authenticate=self._forget_private_after(http.authenticate))

        self.timeout, self.limits = timeout, limits
        self.webhook = webhook
        self.on_lost: Callable[[McpdError], None] | None = None
        """Called with the error when a connection is lost. Set it before the client is opened."""
        self._target = target
        self._callbacks = callbacks
        self._info = info or _OURSELVES
        self._capabilities = self._declared(callbacks, extensions)
        self._version = version
        self._http, self._auth = http, auth
        # The authorization of all connections, created for the first one.
        self._authorization: Authorization | None = None
        self._watcher = watcher
        self._caches, self._reconnects = cache, reconnect

        self._faults = Faults(log)
        self._checks = OutputSchemas(self._faults) if check_results else None
        self._session = ClientSession(self._info, self._capabilities, self._faults)
        self._open: ClientConnection | None = None
        self._era: ClientEra | None = None
        self._cache: ResultCache | None = None
        self._interests = Interests(callbacks)
        self._is_old = False
        self._repeatable_tools: frozenset[str] = frozenset()
        # Whether tools may or must run as tasks, in 2025-11-25; None until that is known.
        self._task_support: Mapping[str, str | None] | None = None

        self._reconnecting = asyncio.Lock()
        # Consecutive connections that failed or ended soon.
        self._failures = 0
        self._opened_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def _declared(self, callbacks: Callbacks, extensions: Mapping[str, Any] | None) -> ClientCapabilities:
        # Return the capabilities that the server is told.
        return capabilities(callbacks, extensions)

    @property
    def era(self) -> ClientEra:
        """The era of the current connection, with the connection. Raises LocalProtocolError before `open`."""
        return self._current_era()

    async def open(self) -> None:
        """Connect and negotiate a protocol version.

        Raises TransportError, RemoteError, RequestTimeout, ProtocolError and ConfigurationError; UnsupportedVersion if
        there is no common version.
        """
        if self._open is not None:
            raise LocalProtocolError("a Client can be opened only once; create another one")
        try:
            await self._connect()
        except CannotConnect as error:
            await self.aclose()
            # The text is complete; a traceback would only hide it.
            raise error.with_traceback(None) from None
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connection. Waiting requests raise ConnectionLost. Safe to call twice."""
        # Set first: tasks that reconnect must not open a connection after this.
        self._is_closed = True
        for task in self._tasks:
            if task.get_name() == _LISTENING:
                task.cancel()
        try:
            if self._era is not None and not self._era.connection.is_lost:
                await self._era.end()
        finally:
            try:
                if self._open is not None:
                    await self._open.aclose()
            finally:
                if self._tasks:
                    await asyncio.wait(self._tasks)

    async def _connect(self) -> None:
        # Connect, and request the subscriptions. If a legacy server ends at the probe, connect again without it.
        # Texts are read once, so that a later connection reaches the same server.
        target = self._target = resolve(self._target)
        key = target if isinstance(target, (CommandTarget, UrlTarget)) else None
        # Spec: 2026-07-28 basic/versioning: clients may cache the era of a server instead of probing it again.
        skips = self._version is None and (self._is_old or is_known_legacy(key))
        try:
            await self._connect_once(target, skips_probe=skips)
        except ConnectionLost as error:
            # Many servers before 2026-07-28 end when they receive another request before `initialize`.
            if skips or key is None or self._version is not None or isinstance(error, CannotConnect) or self._is_closed:
                raise
            self._faults.log(
                logging.INFO, "the server ended after the version probe; connecting to it as a legacy server"
            )
            await self._connect_once(target, skips_probe=True)
        except (RemoteError, ProtocolError, HttpError):
            if not skips or self._is_closed:
                raise
            self._is_old = False  # the server was replaced by a newer one
            await self._connect_once(target, skips_probe=False)

        assert self._era is not None
        if key is not None and not skips and isinstance(self._era, LegacyEra) and self._era.supports_discover:
            # It answered the probe late, for example on a busy machine, and after that it was initialized.
            self._faults.log(logging.INFO, "the server answered the version probe late; connecting to it again")
            await self._connect_once(target, skips_probe=False, waits=True)
        self._is_old = not self._era.supports_discover
        remember_era(key, supports_discover=self._era.supports_discover)

    async def _connect_once(
        self,
        target: InProcess | StartableChannel | CommandTarget | UrlTarget,
        *,
        skips_probe: bool,
        waits: bool = False,
    ) -> None:
        # The first connection uses the session that properties of the client read already.
        session = self._session
        if self._open is not None:
            session = ClientSession(self._info, self._capabilities, self._faults)
            self._start(self._open.aclose())  # in the background, because it may take long

        if isinstance(target, UrlTarget) and self._authorization is None:
            self._authorization = authorization_for(target, self._auth, self._http)
            if self._authorization is not None and hasattr(self._authorization, "on_login"):
                self._authorization.on_login = self._forget_private
        channel = await connect(target, self.limits, self._http, self._authorization)
        if self._watcher is not None:
            channel = watched(channel, self._watcher)
        connection = ClientConnection(session, channel, self._callbacks, self.limits)
        if self._is_closed:
            await connection.aclose()
            raise ConnectionLost("the client is closed")
        self._open = connection
        self._create_cache(connection)
        # Set before the channel starts, because the connection may end at once.
        connection.on_lost = lambda error: self._lost(connection, error)
        connection.on_unread = self._leave_task
        if session.headings is not None and self._session.headings is not None:
            session.headings.inherit(self._session.headings)

        channel.start(connection)
        try:
            era = await agree(
                connection,
                self._callbacks,
                wanted=self._version,
                timeout=self.timeout,
                probe_seconds=None if waits else self.probe_seconds,
                skips_probe=skips_probe,
            )
            await era.begin(self._interests, self.timeout)
        except BaseException:
            await connection.aclose()
            raise
        self._session, self._era = session, era
        self._opened_at = connection.loop.time()

    def _create_cache(self, connection: ClientConnection) -> None:
        # Replace the cache, because the server of a new connection may have changed.
        if self._caches:
            is_one_caller = (self._http is None or not callable(self._http.headers)) and not callable(self._auth)
            self._cache = ResultCache(
                self.limits.cache_bytes, lambda: connection.loop.time(), keeps_private=is_one_caller
            )
            connection.on_notification = self._cache.on_notification

    def _forget_private_after(self, authenticate: Authenticate) -> Authenticate:
        # Wrap the program's `authenticate`, and discard private cached results when it returns a new token.

        async def granted(challenge: Challenge) -> Mapping[str, str] | None:
            given = await authenticate(challenge)
            if given is not None:
                self._forget_private()
            return given

        return granted

    def _leave_task(self, result: Raw) -> None:
        """Cancel the task that answers a cancelled call, if it is one."""

    def _forget_private(self) -> None:
        # Discard private cached results, because the user may be another one.
        if self._cache is not None:
            self._cache.forget_private()

    def _start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---------------------------------------------------------------------------------- reconnecting

    def _current_era(self) -> ClientEra:
        if self._era is None:
            raise LocalProtocolError("the client is not open: use it inside `async with`")
        return self._era

    async def _ensure_connected(self) -> ClientEra:
        # Return the era of the current connection, after reconnecting if necessary. Raises the errors of `open`.
        era = self._current_era()
        if era.connection.is_lost and self._may_reconnect:
            await self._reconnect(TRIES)
        return self._current_era()

    @property
    def _may_reconnect(self) -> bool:
        if not self._reconnects or self._is_closed or (self._open is not None and self._open.is_abandoned):
            return False
        return isinstance(self._target, (CommandTarget, UrlTarget, InProcess))

    def _lost(self, connection: ClientConnection, error: McpdError) -> None:
        if connection.is_closed or connection is not self._open:
            return  # closed by this client, or replaced
        if self.on_lost is not None:
            self.on_lost(error)

        if self._era is None or connection is not self._era.connection:
            return  # negotiation failed, and raises the error
        lived = connection.loop.time() - self._opened_at
        # A server that crashes soon after each start must not be started again in a loop.
        self._failures = 0 if lived > LIVED_SECONDS else self._failures + 1
        if self._may_reconnect and self._interests.is_listening:
            self._start(self._reconnect_to_listen(), _LISTENING)

    async def _reconnect_to_listen(self) -> None:
        try:
            await self._reconnect(LISTENING_TRIES)
        except Exception as error:
            self._faults.log(logging.ERROR, "notifications of the server are no longer received: %s", printable(error))

    async def _reconnect(self, tries: int) -> None:
        # Open a new connection, with pauses between the attempts. Concurrent callers wait for the same connection.
        async with self._reconnecting:
            # Another caller may have opened a connection while this one waited for the lock.
            lost = self._current_era().connection
            if not lost.is_lost:
                return
            text = "reconnecting to the server after the connection was lost: %s"
            self._faults.log(logging.WARNING, text, printable(lost.loss_error(), 1500))

            for number in range(tries):
                if self._failures:
                    await asyncio.sleep(min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE))
                if self._is_closed:
                    raise ConnectionLost("the client is closed")
                try:
                    await self._connect()
                    break
                except (ConnectionLost, HttpError) as error:
                    self._failures += 1
                    is_final = isinstance(error, HttpError) and error.status < 500
                    if number == tries - 1 or is_final or self._is_closed:
                        raise
            connection = self._current_era().connection
            for method, params in self._interests.may_have_changed(connection.session.server_capabilities):
                connection.report_change(method, params)

    # ------------------------------------------------------------------------------------- requests

    async def _send(self, method: str, params: Any, seconds: float | None, on_progress: OnProgress | None) -> Raw:
        span = trace_context.start_span(method, params) if trace_context.is_traced else None
        try:
            era = self._era
            connection = self._current_era().connection if era is None else era.connection
            if not connection.is_lost:
                try:
                    if on_progress is None:  # like `begin`, without the cost of a call
                        request = connection.session.request(method, params)
                    else:
                        request = connection.begin(method, params, on_progress)
                    return await connection.answer(request, seconds)
                except ConnectionLost as error:
                    # The server may have executed the request, so only requests that change nothing are repeated.
                    if not self._may_repeat(method, params, error):
                        raise
                    if isinstance(error, CannotConnect):
                        await asyncio.sleep(FIRST_PAUSE)
                except (HttpError, RemoteError) as error:
                    if not await self._has_other_versions(connection, error):
                        raise
                    text = "the server supports other protocol versions than before; reconnecting"
                    self._faults.log(logging.INFO, text)
                    # Other requests of this connection would be refused, too.
                    connection.closed(ConnectionLost(text))
            elif not self._may_reconnect:
                raise connection.loss_error()
            return await self._send_again(method, params, seconds, on_progress)
        except BaseException as error:
            if span is not None:
                span.end(error)
                span = None
            raise
        finally:
            if span is not None:
                span.end()

    async def _send_again(self, method: str, params: Any, seconds: float | None, on_progress: OnProgress | None) -> Raw:
        for number in range(TRIES):
            try:
                # The time limit of the request also applies to reconnecting.
                async with asyncio.timeout(seconds):
                    era = await self._ensure_connected()
            except TimeoutError:
                raise RequestTimeout(f"The server could not be reached again within {seconds:g} s") from None
            try:
                return await era.connection.request(method, params, timeout=seconds, on_progress=on_progress)
            except ConnectionLost as error:
                if number == TRIES - 1 or not self._may_repeat(method, params, error):
                    raise
                if isinstance(error, CannotConnect):
                    await asyncio.sleep(min(FIRST_PAUSE * 2 ** (number + 1), LONGEST_PAUSE))
        raise AssertionError("unreachable")

    async def _has_other_versions(self, connection: ClientConnection, error: McpdError) -> bool:
        # Whether the server refused a request because it was replaced by a server of other protocol versions.
        # Spec: 2026-07-28 basic/versioning: a mutually supported version is selected, and the request retried; the era
        # is probed again "if the cached assumption later fails".
        if (
            not _is_version_error(error)
            or self._version is not None
            or not self._may_reconnect
            or not self._current_era().supports_discover
        ):
            return False
        try:
            await connection.request("server/discover", timeout=self.probe_seconds)
        except (HttpError, RemoteError) as refusal:
            return _is_version_error(refusal)
        except McpdError:
            pass
        return False

    def _may_repeat(self, method: str, params: Any, error: ConnectionLost) -> bool:
        if not self._may_reconnect:
            return False
        if isinstance(error, CannotConnect):
            return True
        if not isinstance(error, SessionLost):
            return False
        name = params.get("name") if method == "tools/call" and isinstance(params, dict) else None
        return method in _REPEATABLE or name in self._repeatable_tools


def _check_version(version: str | None) -> None:
    if version is not None and version not in table.SUPPORTED:
        raise ConfigurationError(f"unknown protocol version {version!r}; supported: {', '.join(table.SUPPORTED)}")


def _is_version_error(error: McpdError) -> bool:
    # Whether an error may refuse the protocol version: by its code, or only by the HTTP status.
    code = error.code if isinstance(error, RemoteError) else None
    if code == UnsupportedVersion.code:
        return True
    says_more = code is not None and not -32019 <= code <= -32000
    return not says_more and getattr(error, "status", None) in (400, 404, 405)


_LISTENING = "mcpd: reconnect to receive notifications"
