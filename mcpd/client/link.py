"""The way to one server, through as many connections as it takes.

Theory of operation. A connection is opened, a version agreed on, and what the program wishes to hear is asked for; all
requests go by it. When it has ended by itself (a child that crashed, a socket that was cut, a session that the server
knows no more), the next request opens a new one, and a program that listens gets one without a request. What is
repeated on it:

    a request that never left, because there was no connection, or no server
    after SessionLost what changes nothing: lists, reads, pings, tools that say so (`readOnlyHint`, `idempotentHint`)

All others that wait get the error at once. Between tries there is a pause that grows, and after a few the error is
raised. What was kept of the server is forgotten, and the program is told that lists and watched resources may have
changed, for it has not on_response of it.

Spec: 2026-07-28 basic/versioning, backward compatibility; 2025-11-25 basic/transports, session management.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.structs import replace

from mcpd.client.auth.auth_option import Auth, has_login
from mcpd.client.cache import ResultCache
from mcpd.client.callbacks import Callbacks
from mcpd.client.channels import ChannelWatcher, StartableChannel, watched
from mcpd.client.connection import ClientConnection
from mcpd.client.eras import ClientEra, agree, is_known_legacy, remember_era
from mcpd.client.http.options import Authenticate, Challenge, HttpOptions
from mcpd.client.limits import ClientLimits, Faults
from mcpd.client.session import ClientSession, OnProgress
from mcpd.client.subscriptions import Wishes
from mcpd.client.target import InProcess, Target, connect, named
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
from mcpd.protocol.wire import trace_context

if TYPE_CHECKING:
    from mcpd.transports.client_authorization import Authorization


def authorization_for(target: UrlTarget, auth: Auth | None, http: HttpOptions | None) -> Authorization | None:
    """What `auth` means for this server; without it the login that the user has there. None for none.

    Raises ConfigurationError for a token that is said in two ways.
    """
    said = http is not None and (http.authenticate is not None or http.headers is not None)
    has_token = said or any(name.lower() == "authorization" for name in target.headers)
    if auth is None:
        if has_token or not has_login(target.url):
            return None
    elif has_token and _says_authorization(target, http):
        raise ConfigurationError("auth and a header Authorization are given, or authenticate: one of them is enough")

    try:
        from mcpd.client.auth.authorizer import authorization
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"{target}: reaching servers by URL", "client") from None
    return authorization(target, auth, http)


def _says_authorization(target: UrlTarget, http: HttpOptions | None) -> bool:
    headers = dict(target.headers)
    if http is not None and http.headers is not None and not callable(http.headers):
        headers.update(http.headers)
    is_hooked = http is not None and http.authenticate is not None
    return is_hooked or any(name.lower() == "authorization" for name in headers)


log = logging.getLogger("mcpd.client")

TRIES = 4
"""So often a connection is opened anew for one request."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
LIVED_SECONDS = 5.0
"""A connection that lasted so long did not fail: the next one is opened without a pause."""
LISTENING_TRIES = 12
"""So often for a program that only listens; then the next request tries again."""

_REPEATABLE = REPEATABLE - {"initialize", "subscriptions/listen"}


class ServerLink:
    """One server, and the connection to it that is open now. The part of `Client` that knows connections."""

    probe_seconds = 5.0
    """How long a server may think about which era it is of, before it is taken for a legacy one."""

    def __init__(
        self,
        target: Target,
        callbacks: Callbacks,
        info: Implementation,
        offered: ClientCapabilities,
        limits: ClientLimits,
        *,
        wanted: str | None,
        timeout: float | None,
        keeps_results: bool,
        reconnects: bool,
        http: HttpOptions | None,
        watcher: ChannelWatcher | None,
        auth: Auth | None = None,
    ) -> None:
        self.timeout = timeout
        self.limits = limits
        self.on_lost: Callable[[McpdError], None] | None = None
        """Called, if it was set before the client was opened, when a connection has ended by itself: with why."""
        self._target = target
        self._callbacks = callbacks
        self._info = info
        self._offered = offered
        self._wanted = wanted
        self._http = http
        if http is not None and http.authenticate is not None:
            self._http = replace(http, authenticate=self._forgets_after(http.authenticate))
        self._auth = auth
        self._authorization: Authorization | None = None
        """What lets requests in, the same for all connections; made for the first."""
        self._watcher = watcher
        self._keeps_results = keeps_results
        self._reconnects = reconnects

        self._faults = Faults(log)
        self._session = ClientSession(info, offered, self._faults)
        self._open: ClientConnection | None = None
        self._era: ClientEra | None = None
        self._cache: ResultCache | None = None
        self._wishes = Wishes(callbacks)
        self._is_old = False
        """What was found out of the server, for the next connection."""
        self._harmless: frozenset[str] = frozenset()
        """The tools that may be called again."""

        self._renewing = asyncio.Lock()
        self._failures = 0
        """How many connections in a row ended soon, or never came about."""
        self._opened_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # ------------------------------------------------------------------------------------ opening

    async def open(self) -> None:
        """Connect and agree on a version.

        Raises TransportError, RemoteError, RequestTimeout, ProtocolError, ConfigurationError; UnsupportedVersion if
        there is none in common.
        """
        if self._open is not None:
            raise LocalProtocolError("a Client is opened once; make another one")
        try:
            await self._connect()
        except CannotConnect as error:
            await self.aclose()
            # Its text says all; our own frames would only hide it.
            raise error.with_traceback(None) from None
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connection; what still waits ends with ConnectionLost. Safe to call twice."""
        self._is_closed = True
        listening = [task for task in self._tasks if task.get_name() == _LISTENING]
        for task in listening:
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
        """One connection, and all that was wished for. Of a server that ends when it is probed a second one."""
        target = self._target = named(self._target)
        key = target if isinstance(target, (CommandTarget, UrlTarget)) else None
        skips = self._wanted is None and (self._is_old or is_known_legacy(key))
        try:
            await self._connect_once(target, skips_probe=skips)
        except ConnectionLost as error:
            # Servers of before 2026-07-28 that take a request before `initialize` for a reason to end are many.
            if skips or key is None or self._wanted is not None or isinstance(error, CannotConnect) or self._is_closed:
                raise
            self._faults.say(logging.INFO, "probed for its version the server ended, and is asked as an old one")
            await self._connect_once(target, skips_probe=True)
        except (RemoteError, ProtocolError, HttpError):
            if not skips or self._is_closed:
                raise
            self._is_old = False  # another server is there now
            await self._connect_once(target, skips_probe=False)

        assert self._era is not None
        self._is_old = not self._era.is_probed
        remember_era(key, is_probed=self._era.is_probed)

    async def _connect_once(
        self, target: InProcess | StartableChannel | CommandTarget | UrlTarget, *, skips_probe: bool
    ) -> None:
        session = self._session
        if self._open is not None:
            session = ClientSession(self._info, self._offered, self._faults)
            self._do(self._open.aclose())  # it may take its time, and nobody waits for it

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
        self._begin_to_keep(connection)
        connection.on_lost = lambda error: self._lost(connection, error)
        if session.headings is not None and self._session.headings is not None:
            session.headings.inherit(self._session.headings)

        channel.start(connection)
        try:
            era = await agree(
                connection,
                self._callbacks,
                self.limits,
                wanted=self._wanted,
                timeout=self.timeout,
                probe_seconds=self.probe_seconds,
                skips_probe=skips_probe,
            )
            await era.begin(self._wishes, self.timeout)
        except BaseException:
            await connection.aclose()
            raise
        self._session, self._era = session, era
        self._opened_at = connection.loop.time()

    def _begin_to_keep(self, connection: ClientConnection) -> None:
        if self._keeps_results:
            # Of another connection nothing is kept: its server may have been another one, and changed since.
            is_one_caller = (self._http is None or not callable(self._http.headers)) and not callable(self._auth)
            self._cache = ResultCache(
                self.limits.cache_bytes, lambda: connection.loop.time(), keeps_private=is_one_caller
            )
            connection.on_notification = self._cache.told

    def _forgets_after(self, authenticate: Authenticate) -> Authenticate:
        """The program's function; with another token what was kept for the one before is forgotten."""

        async def granted(challenge: Challenge) -> Mapping[str, str] | None:
            given = await authenticate(challenge)
            if given is not None:
                self._forget_private()
            return given

        return granted

    def _forget_private(self) -> None:
        """Somebody else may ask from now on."""
        if self._cache is not None:
            self._cache.forget_private()

    def _do(self, work: Coroutine[Any, Any, None], name: str | None = None) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---------------------------------------------------------------------------------- opening anew

    def _agreed(self) -> ClientEra:
        if self._era is None:
            raise LocalProtocolError("the client is not open: use it inside `async with`")
        return self._era

    async def _ready(self) -> ClientEra:
        """How things are done on the connection that is open; a new one if there is none. Raises as `open` does."""
        era = self._agreed()
        if era.connection.is_lost and self._may_renew:
            await self._renew(TRIES)
        return self._agreed()

    @property
    def _may_renew(self) -> bool:
        if not self._reconnects or self._is_closed or (self._open is not None and self._open.is_given_up):
            return False
        return isinstance(self._target, (CommandTarget, UrlTarget, InProcess))

    def _lost(self, connection: ClientConnection, error: McpdError) -> None:
        """A connection has ended."""
        if connection.is_closed or connection is not self._open:
            return  # by us
        if self.on_lost is not None:
            self.on_lost(error)
        if self._era is None or connection is not self._era.connection:
            return  # it never was in use
        lived = connection.loop.time() - self._opened_at
        self._failures = 0 if lived > LIVED_SECONDS else self._failures + 1
        if self._may_renew and self._wishes.is_listening:
            self._do(self._renew_to_listen(), _LISTENING)

    async def _renew_to_listen(self) -> None:
        try:
            await self._renew(LISTENING_TRIES)
        except Exception as error:
            self._faults.say(logging.ERROR, "the server is not on_response any more: %s", printable(error))

    async def _renew(self, tries: int) -> None:
        """Open a new connection, with pauses between the tries; whoever comes meanwhile waits for the same one."""
        async with self._renewing:
            lost = self._agreed().connection
            if not lost.is_lost:
                return
            text = "the connection to the server is opened anew, for it has ended: %s"
            self._faults.say(logging.WARNING, text, printable(lost.lost, 1500))

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
            self._tell_of_what_was_missed()

    def _tell_of_what_was_missed(self) -> None:
        era = self._agreed()
        for method, params in self._wishes.may_have_changed(era.connection.session.server_capabilities):
            era.connection.tell(method, params)

    # --------------------------------------------------------------------------------------- asking

    async def _send(self, method: str, params: Any, seconds: float | None, on_progress: OnProgress | None) -> Raw:
        """One request and its result: on the connection that is open, or on a new one."""
        span = trace_context.start_span(method, params) if trace_context.is_traced else None
        try:
            era = self._era
            connection = self._agreed().connection if era is None else era.connection
            if not connection.is_lost:
                try:
                    if on_progress is None:  # as `begin`, without a call more
                        request = connection.session.request(method, params)
                    else:
                        request = connection.begin(method, params, on_progress)
                    return await connection.answer(request, seconds)
                except ConnectionLost as error:
                    if not self._may_repeat(method, params, error):
                        raise
                    if isinstance(error, CannotConnect):
                        await asyncio.sleep(FIRST_PAUSE)
                except (HttpError, RemoteError) as error:
                    if not await self._is_another_server(connection, error):
                        raise
                    text = "the server speaks other versions than before, and is connected to anew"
                    self._faults.say(logging.INFO, text)
                    connection.closed(ConnectionLost(text))
            elif not self._may_renew:
                raise connection.another_loss()
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
                async with asyncio.timeout(seconds):
                    era = await self._ready()
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

    async def _is_another_server(self, connection: ClientConnection, error: McpdError) -> bool:
        """Whether a request was refused because a server of other versions is there now: then nobody has served it.

        Spec: 2026-07-28 basic/versioning: a mutually supported version is selected, and the request retried; an era
        that was found out is probed for again "if the cached assumption later fails".
        """
        if (
            not _is_of_versions(error)
            or self._wanted is not None
            or not self._may_renew
            or not self._agreed().is_probed
        ):
            return False
        try:
            await connection.request("server/discover", timeout=self.probe_seconds)
        except (HttpError, RemoteError) as refusal:
            return _is_of_versions(refusal)
        except McpdError:
            pass
        return False

    def _may_repeat(self, method: str, params: Any, error: ConnectionLost) -> bool:
        """Whether to send a request again that ended so."""
        if not self._may_renew:
            return False
        if isinstance(error, CannotConnect):
            return True
        if not isinstance(error, SessionLost):
            return False
        return method in _REPEATABLE or (method == "tools/call" and _name(params) in self._harmless)


def _is_of_versions(error: McpdError) -> bool:
    """Whether a server may refuse so what it takes for another version's: by its error, or by a status alone."""
    code = error.code if isinstance(error, RemoteError) else None
    if code == UnsupportedVersion.code:
        return True
    says_more = code is not None and not -32019 <= code <= -32000
    return not says_more and getattr(error, "status", None) in (400, 404, 405)


def _name(params: Any) -> Any:
    return params.get("name") if isinstance(params, dict) else None


_LISTENING = "mcpd: a new connection to listen"
