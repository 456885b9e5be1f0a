"""What a tool, resource or prompt is given beside its arguments: the request it serves, and ways to talk back.

A `Context` looks the same in every protocol version. It belongs to one request and is of no use after it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, overload

from msgspec import UNSET, Struct
from msgspec.json import Decoder

from mcpd.errors import AccessDenied, ConfigurationError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.jsonrpc import MALFORMED, Id
from mcpd.protocol.principal import Principal, Transport
from mcpd.protocol.types.base import (
    LOG_LEVELS,
    ClientCapabilities,
    Implementation,
    LogLevel,
    LogMessageParams,
    ProgressParams,
)
from mcpd.server.context.exchange import Exchange, lacking

if TYPE_CHECKING:
    from msgspec import Struct

    from mcpd.errors import AccessDenied
    from mcpd.protocol.types.base import LogLevel
    from mcpd.protocol.types.interaction import CreateMessageResult, Root, SamplingMessage
    from mcpd.protocol.wire.trace_context import TraceContext
    from mcpd.server.context.questions import Answer, Question, SamplingOptions


T = TypeVar("T")

_ENDLESS = float("inf")

# What msgspec raises, before anything was sent, for what it cannot write.
_UNWRITABLE = (TypeError, ValueError, RecursionError, OverflowError)


class _Done:
    """What may be awaited, and is done."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


_DONE = _Done()


class _Question(Coroutine[Any, Any, T]):
    """A question that is to be awaited: without `await` it would count as true in a condition."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def __bool__(self) -> NoReturn:
        self._work.close()
        raise TypeError("a question is asked when it is awaited; write answer = await ctx.elicit(…)")

    # Tasks call these of a coroutine.

    def send(self, value: Any) -> Any:
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()


def _copied(value: T) -> T:
    """What a client says of itself is kept once for all that say the same: authors may change what they get."""
    from copy import deepcopy  # few tools ask, and this costs start-up

    return deepcopy(value)


class RequestInfo:
    """What is known of one request: who asks, which way, and in which version."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @classmethod
    def _of(cls, exchange: Exchange) -> Self:
        """How a function that takes one gets it, see `registry.signature`."""
        return cls(exchange)

    if not TYPE_CHECKING:
        # Hidden from type checkers: to them a name that is not here is a mistake, not Any.
        def __getattr__(self, name):
            from mcpd.server.context.questions import unknown

            raise unknown(type(self).__name__, name)

    @property
    def request_id(self) -> Id:
        """The JSON-RPC id, with its type."""
        return self._exchange.call.id

    @property
    def method(self) -> str:
        """The request's method, e.g. `tools/call`."""
        return self._exchange.call.method

    @property
    def protocol_version(self) -> str:
        """The protocol version of this request, e.g. `2026-07-28`."""
        return self._exchange.call.version.name

    @property
    def client_info(self) -> Implementation | None:
        """The client's name and version, None if it did not say."""
        return _copied(self._exchange.call.client.info)

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client offers for this request."""
        return _copied(self._exchange.call.client.capabilities)

    @property
    def client(self) -> ClientIdentity:
        """Identity and capabilities together; a copy, each time."""
        return self._exchange.call.client.copy()

    @property
    def user(self) -> Principal:
        """Who sends the request, as the server's authenticator says; anonymous without an authenticator."""
        return self._exchange.origin.user

    def has_scopes(self, *scopes: str) -> bool:
        """Whether the user's token has all these scopes, or ones that include them.

        True where nobody is asked: on stdio, and in memory without a user.
        """
        return not lacking(self._exchange.origin, scopes)

    @property
    def transport(self) -> Transport:
        """What the request came by: `stdio`, `websocket`, `http` or `memory`."""
        return self._exchange.origin.transport

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the HTTP request that brought this one, by lower-case name; of a WebSocket its handshake's.

        Credentials (`authorization`, `cookie`, what is called a token or key …) are left out. {} on stdio and memory.
        """
        return self._exchange.origin.headers()

    @property
    def is_cancelled(self) -> bool:
        """Whether the client gave the request up. An async tool is stopped; a plain one should look now and then."""
        return not self._exchange.call.is_open

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan gave, see `Server(lifespan=…)`; None without one."""
        return self._exchange.lifespan

    @property
    def trace(self) -> TraceContext | None:
        """The trace that the request belongs to (W3C Trace Context): our own span where traces are on, else what the
        client sent; None if there is neither. `ctx.trace.headers()` are for requests to other services.
        """
        call = self._exchange.call
        if call.trace is not None:
            return call.trace()
        from mcpd.protocol.wire.trace_context import read  # few tools ask

        return read(call.raw)

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta` as it came, {} if there is none."""
        raw = self._exchange.call.raw
        try:
            return _decode_meta(raw).get("_meta") or {}
        except MALFORMED:
            return {}


class Context(RequestInfo):
    """One request: who asks, in which version, and how to report, log and ask back.

    In an `async def` tool its methods are awaited. In a plain function, which runs in a thread, the same
    calls do their work at once and give what they would be awaited for: `answer = ctx.elicit(…)`. Annotated as a
    `SyncContext` it is the same there, and type checkers know that.
    """

    __slots__ = ()

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Tell the client how far the request has come.

        `progress` has to rise; a value that does not is dropped. Without a progress token from the client
        nothing is sent. Spec: 2026-07-28 basic/patterns/progress.
        """
        return self._exchange.do(self._progress(progress, total, message))

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        # One step where nothing has to be waited for.
        exchange = self._exchange
        call = exchange.call
        meta = call.meta
        if meta is None or (token := meta.progress_token) is None:
            return

        last = call.last_progress
        if last is not None and not progress > last:
            return
        if not isinstance(progress, int) and not -_ENDLESS < progress < _ENDLESS:  # JSON has neither nan nor inf
            return

        if total is not None and not isinstance(total, int) and not -_ENDLESS < total < _ENDLESS:
            total = None
        call.last_progress = progress

        params = ProgressParams(progress_token=token, progress=progress, total=total, message=message)
        try:
            pause = exchange.peer.say("notifications/progress", params, call)
        except _UNWRITABLE:
            params.progress = float(progress)
            params.total = None if total is None else float(total)
            params.message = None if message is None else str(exchange.peer.as_json(message))
            pause = exchange.peer.say("notifications/progress", params, call)

        if pause is not None:
            await pause

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client, if it wants messages of this level.

        `data` is any JSON value, or what a tool may return; of other objects the `repr` is sent. Put nothing secret
        in it. Spec: 2026-07-28 server/utilities/logging.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"log level {level!r} is none of {', '.join(LOG_LEVELS)}")
        return self._do(self._log(level, data, logger))

    async def _log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        wanted = self._exchange.call.log_level
        if wanted is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(wanted):
            return
        params = LogMessageParams(level=level, data=UNSET if data is UNSET else data, logger=logger)
        try:
            await self._exchange.peer.notify("notifications/message", params, self._exchange.call)
        except _UNWRITABLE:
            # A tool must not fail for what it logs, least of all at one log level and not at another.
            params.data = self._exchange.peer.as_json(data)
            params.logger = None if logger is None else str(self._exchange.peer.as_json(logger))
            await self._exchange.peer.notify("notifications/message", params, self._exchange.call)

    def debug(self, data: Any) -> Awaitable[None]:
        """`log("debug", data)`."""
        return self.log("debug", data)

    def info(self, data: Any) -> Awaitable[None]:
        """`log("info", data)`."""
        return self.log("info", data)

    def warning(self, data: Any) -> Awaitable[None]:
        """`log("warning", data)`."""
        return self.log("warning", data)

    def error(self, data: Any) -> Awaitable[None]:
        """`log("error", data)`."""
        return self.log("error", data)

    def notify(self, method: str, params: Mapping[str, Any] | Struct | None = None) -> Awaitable[None]:
        """Send a notification of an extension, which has declared it with `may_notify`.

        `params` is a struct or dict. Nothing is sent to a client without the extension, or in a version without the
        method. Raises LocalProtocolError for a method that no extension has declared.
        """
        return self._do(self._exchange.notify(method, params))

    def close_stream(self) -> None:
        """Let go of the HTTP connection on which the client waits for this request's answer; the work goes on.

        For work that takes long: the client comes back for the rest, at a time it is told. Only 2025-11-25 over
        HTTP sessions has that; elsewhere this does nothing. Spec: 2025-11-25 basic/transports, sending messages 6.
        """
        from mcpd.protocol.channel import ResumableChannel  # a class that few processes need

        peer = self._exchange.peer
        if isinstance(peer.channel, ResumableChannel):
            peer.loop.call_soon_threadsafe(peer.channel.close_stream, self._exchange.request_id)

    # -- what the user may do ----------------------------------------------------------------

    def require_scopes(self, *scopes: str) -> Awaitable[None]:
        """Go on only if the user's token has all these scopes; else the call ends, and the client may ask for more.

        Over HTTP that is status 403, unless something was sent already. It is decided at once, awaited or not.
        Raises AccessDenied. Spec: 2026-07-28 basic/authorization, insufficient scope.
        """
        missing = lacking(self._exchange.origin, scopes)
        if missing:
            text = f"This needs the scope {' '.join(missing)}, which the token does not have"
            raise AccessDenied(text, scopes=scopes)
        return _DONE

    def reauthorize(self, message: str = "") -> AccessDenied:
        """What ends the call so that the client gets a new token, as where one behind it has expired:
        `raise ctx.reauthorize()`.

        Over HTTP that is status 401, unless something was sent already.
        """
        return AccessDenied(message or "The access token has to be exchanged for a new one", error="invalid_token")

    def upstream_token(self) -> Awaitable[str]:
        """The access token of the provider by which the user signed in at this server itself, for its API.

        Kept where the settings of that sign-in have `keep-tokens`; refreshed where it is over. No client gets it.
        Raises ConfigurationError where none is kept, AccessDenied where the user has to log in again.
        """
        return self._do(self._upstream_token())

    async def _upstream_token(self) -> str:
        upstream = self._exchange.origin.user.upstream
        if upstream is None:
            raise ConfigurationError(
                "ctx.upstream_token(): no token of a provider is kept for this user; it is where they sign in by "
                "[sign-in.NAME] with keep-tokens = true"
            )
        return await upstream()

    # -- asking the client -------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """JSON values that outlive a question: what stands before a question runs again in the next round
        (2026-07-28), and finds here what it put here. The client can read it, but not change it."""
        return self._exchange.asking.kept

    @overload
    def elicit(
        self, message: str, form: type[T], *, key: str | None = None, timeout: float | None = 300
    ) -> Awaitable[Answer[T]]: ...

    @overload
    def elicit(
        self, message: str, form: Mapping[str, Any], *, key: str | None = None, timeout: float | None = 300
    ) -> Awaitable[Answer[dict[str, Any]]]: ...

    def elicit(
        self,
        message: str,
        form: type[Any] | Mapping[str, Any],
        *,
        key: str | None = None,
        timeout: float | None = 300,
    ) -> Awaitable[Answer[Any]]:
        """Ask the user to fill in a form; gives an `Answer` with `action` and `content`.

        `form` is a struct, dataclass, TypedDict or pydantic model of strings, numbers, booleans and choices (Literal,
        Enum, `mcpd.choices` for values with titles, lists of these), the type of one such field alone, as `int`, or a
        flat JSON Schema; `answer.get()` is the form filled in, or the one value, or ends the tool if the user declined.
        Never ask for secrets here: use `elicit_url` (S26-150).
        `key` names the question in 2026-07-28; the default counts. `timeout` is in seconds.
        Raises MissingCapability or ToolError if the client cannot be asked, RequestTimeout if it does not answer.
        Spec: 2026-07-28 client/elicitation.
        """
        from mcpd.server.context import questions

        return self._ask(questions.elicit_form(message, form), key, timeout)

    def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        key: str | None = None,
        timeout: float | None = 300,
    ) -> Awaitable[Answer[dict[str, Any]]]:
        """Ask the user to visit a URL. `accept` says that they agreed to, not that they are done there.

        The URL is not authorized beforehand and holds nothing private (S26-166, S26-167).
        """
        from mcpd.server.context import questions

        return self._ask(questions.elicit_url(message, url, elicitation_id), key, timeout)

    def sample(
        self,
        messages: str | list[SamplingMessage],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        timeout: float | None = 300,
        **options: Unpack[SamplingOptions],
    ) -> Awaitable[CreateMessageResult]:
        """Ask the client's model. `messages` is a text, or a conversation.

        `options` are the further fields of `types.sampling.CreateMessageParams`: system_prompt, temperature,
        stop_sequences, model_preferences, tools, tool_choice … Spec: 2026-07-28 client/sampling.
        """
        from mcpd.server.context import questions

        return self._ask(questions.sample(messages, max_tokens=max_tokens, **options), key, timeout)

    def list_roots(self, *, key: str | None = None, timeout: float | None = 60) -> Awaitable[list[Root]]:
        """The folders and files that the client lets the server work on. Spec: 2026-07-28 client/roots."""
        from mcpd.server.context import questions

        return self._ask(questions.list_roots(), key, timeout)

    def ask(self, timeout: float | None = 300, /, **questions: Question) -> Awaitable[dict[str, Any]]:
        """Ask several things at once: `await ctx.ask(name=elicit_form(…), haiku=sample(…))`; answers come by key.

        The questions are made by `mcpd.elicit_form`, `elicit_url`, `sample` and `list_roots`.
        """
        return self._do(self._exchange.asking.ask(questions, timeout), is_question=True)

    def can_ask(self, question: Question) -> bool:
        """Whether this client offers what a question needs; asking it otherwise is an error."""
        return self._exchange.asking.can_ask(question)

    def _ask(self, question: Question, key: str | None, timeout: float | None) -> Awaitable[Any]:
        asked = self._do(self._ask_one(question, key, timeout), is_question=True)
        return _Question(asked) if isinstance(asked, CoroutineType) else asked

    async def _ask_one(self, question: Question, key: str | None, timeout: float | None) -> Any:
        asking = self._exchange.asking
        name = key or asking.next_key()
        return (await asking.ask({name: question}, timeout))[name]

    def require_url(
        self, message: str, url: str, *, elicitation_id: str | None = None, key: str | None = None
    ) -> NoReturn:
        """End the request, because the user has to visit a page first; the client asks again after that.

        In 2025-11-25 that is the error -32042, in 2026-07-28 another round. Raises ToolError if the user will not,
        MissingCapability or ToolError if the client cannot be asked. Spec: 2025-11-25 client/elicitation.
        """
        from mcpd.server.context import questions

        self._exchange.asking.require(questions.elicit_url(message, url, elicitation_id), key)

    def elicitation_complete(self, elicitation_id: str) -> Awaitable[None]:
        """Tell the client that what was asked by URL has happened; only 2025-11-25 has that notification.

        May be called after the request has ended, as long as the client is there.
        """
        from mcpd.protocol.types.interaction import ElicitationCompleteParams

        params = ElicitationCompleteParams(elicitation_id=elicitation_id)
        # The user may be done long after the request that sent them there was answered.
        related = self._exchange.call if self._exchange.call.is_open else None
        return self._do(self._exchange.peer.notify("notifications/elicitation/complete", params, related))

    def _do(self, work: Coroutine[Any, Any, T], *, is_question: bool = False) -> Awaitable[T]:
        return self._exchange.do(work, is_question=is_question)


_decode_meta = Decoder(dict[str, Any]).decode

if TYPE_CHECKING:

    class SyncContext(RequestInfo):
        """`Context` for a plain function: nothing is awaited."""

        def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None: ...

        def log(self, level: LogLevel, data: Any, logger: str | None = None) -> None: ...

        def debug(self, data: Any) -> None: ...

        def info(self, data: Any) -> None: ...

        def warning(self, data: Any) -> None: ...

        def error(self, data: Any) -> None: ...

        def notify(self, method: str, params: Mapping[str, Any] | Struct | None = None) -> None: ...

        def close_stream(self) -> None: ...

        def require_scopes(self, *scopes: str) -> None: ...

        def reauthorize(self, message: str = "") -> AccessDenied: ...

        def upstream_token(self) -> str: ...

        @property
        def state(self) -> dict[str, Any]: ...

        @overload
        def elicit(
            self, message: str, form: type[T], *, key: str | None = None, timeout: float | None = 300
        ) -> Answer[T]: ...

        @overload
        def elicit(
            self, message: str, form: Mapping[str, Any], *, key: str | None = None, timeout: float | None = 300
        ) -> Answer[dict[str, Any]]: ...

        def elicit(
            self, message: str, form: Any, *, key: str | None = None, timeout: float | None = 300
        ) -> Answer[Any]: ...

        def elicit_url(
            self,
            message: str,
            url: str,
            *,
            elicitation_id: str | None = None,
            key: str | None = None,
            timeout: float | None = 300,
        ) -> Answer[dict[str, Any]]: ...

        def sample(
            self,
            messages: str | list[SamplingMessage],
            *,
            max_tokens: int = 1000,
            key: str | None = None,
            timeout: float | None = 300,
            **options: Unpack[SamplingOptions],
        ) -> CreateMessageResult: ...

        def list_roots(self, *, key: str | None = None, timeout: float | None = 60) -> list[Root]: ...

        def ask(self, timeout: float | None = 300, /, **questions: Question) -> dict[str, Any]: ...

        def can_ask(self, question: Question) -> bool: ...

        def require_url(
            self, message: str, url: str, *, elicitation_id: str | None = None, key: str | None = None
        ) -> NoReturn: ...

        def elicitation_complete(self, elicitation_id: str) -> None: ...

else:

    class SyncContext(Context):
        """`Context` for a plain function: nothing is awaited, each call has done its work when it returns."""

        __slots__ = ()

        is_for_threads = True
