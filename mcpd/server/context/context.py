"""`Context`: the request that a tool, resource or prompt works on, and ways to report to and ask its client.

A `Context` looks the same in every protocol version. It belongs to one request and is useless after it. `SyncContext`
is the same class for plain functions: in a thread each method does its work before it returns, and only the types
differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator, Mapping
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, overload

from msgspec import UNSET, Struct
from msgspec.json import Decoder

from mcpd.errors import AccessDenied, ConfigurationError, ToolError
from mcpd.protocol.envelope import ClientIdentity
from mcpd.protocol.jsonrpc import MALFORMED, Id
from mcpd.protocol.principal import ClientProcess, Principal, Transport
from mcpd.protocol.types.base import (
    LOG_LEVELS,
    ClientCapabilities,
    Implementation,
    LogLevel,
    LogMessageParams,
    ProgressParams,
)
from .exchange import Exchange, missing_scopes

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import CreateMessageResult, Root, SamplingMessage
    from mcpd.protocol.wire.trace_context import TraceContext
    from .questions import Answer, Question, SamplingOptions, Timeout

T = TypeVar("T")

_ENDLESS = float("inf")

# The exceptions of msgspec for values that it cannot encode, raised before anything is sent.
_UNWRITABLE = (TypeError, ValueError, RecursionError, OverflowError)


class _Done:
    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


_DONE = _Done()


class _Question(Coroutine[Any, Any, T]):
    # A question that must be awaited: without `await` it would be true in a condition.
    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()

    def __bool__(self) -> NoReturn:
        self._work.close()
        raise TypeError("a question must be awaited: answer = await ctx.elicit(…)")

    # Tasks call these methods of a coroutine.

    def send(self, value: Any) -> Any:
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()


def _copied(value: T) -> T:
    # Return a copy: the original is shared by all clients that send the same, and authors may change it.
    from copy import deepcopy  # few tools need it

    return deepcopy(value)


class RequestInfo:
    """The properties of one request: its sender, transport and version."""

    __slots__ = ("_exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    @classmethod
    def _of(cls, exchange: Exchange) -> Self:
        return cls(exchange)

    if not TYPE_CHECKING:
        # Hidden from type checkers, to which an unknown name must be an error, not Any.
        def __getattr__(self, name):
            from .questions import unknown

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
        """The client's name and version, or None if it sent none."""
        return _copied(self._exchange.call.client.info)

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """The client's capabilities for this request."""
        return _copied(self._exchange.call.client.capabilities)

    @property
    def client(self) -> ClientIdentity:
        """The client's identity and capabilities together; a copy each time."""
        return self._exchange.call.client.copy()

    @property
    def user(self) -> Principal:
        """The sender according to the server's authenticator; anonymous without one."""
        return self._exchange.origin.user

    def has_scopes(self, *scopes: str) -> bool:
        """Return whether the user's token has all these scopes, or scopes that include them.

        True if nobody is authenticated: on stdio, and in memory without a user.
        """
        return not missing_scopes(self._exchange.origin, scopes)

    @property
    def transport(self) -> Transport:
        """The request's transport: `stdio`, `websocket`, `http` or `memory`."""
        return self._exchange.origin.transport

    @property
    def client_process(self) -> ClientProcess | None:
        """The process that the host started, if this server is a daemon that clients share; None otherwise."""
        return self._exchange.origin.process

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the HTTP request or WebSocket handshake, by lower-case name; {} on stdio and memory.

        Credentials are left out: `authorization`, `cookie`, and names that contain "token" or "key".
        """
        return self._exchange.origin.headers()

    @property
    def is_cancelled(self) -> bool:
        """Whether the client cancelled the request. An `async` tool is stopped; a plain function should check this from
        time to time.
        """
        return not self._exchange.call.is_open

    @property
    def lifespan(self) -> Any:
        """The value of the server's lifespan, see `Server(lifespan=…)`; None without one."""
        return self._exchange.lifespan

    @property
    def trace(self) -> TraceContext | None:
        """The trace of the request (W3C Trace Context): the server's own span if tracing is on, otherwise the client's;
        None without one.

        Send `ctx.trace.headers()` with requests to other services.
        """
        call = self._exchange.call
        if call.trace is not None:
            return call.trace()
        from mcpd.protocol.wire.trace_context import read  # few tools need it

        return read(call.raw)

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta` as received; {} without one."""
        raw = self._exchange.call.raw
        try:
            return _decode_meta(raw).get("_meta") or {}
        except MALFORMED:
            return {}


class Context(RequestInfo):
    """One request: its sender and version, and ways to report, log and ask.

    In an `async def` tool the methods are awaited. In a plain function, which runs in a thread, the same calls do their
    work at once and return their result: `answer = ctx.elicit(…)`. Annotate the parameter as `SyncContext` to have
    these types checked.
    """

    __slots__ = ()

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Report the progress of the request to the client.

        `progress` must increase; other values are dropped. Nothing is sent if the client gave no progress token. Spec:
        2026-07-28 basic/patterns/progress.
        """
        return self._exchange.do(self._progress(progress, total, message))

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        # Usually there is nothing to wait for, so this is a single step.
        exchange = self._exchange
        call = exchange.call
        if exchange.task is not None:
            exchange.task.progress(progress, total, message)
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
            pause = exchange.peer.notify_nowait("notifications/progress", params, call)
        except _UNWRITABLE:
            params.progress = float(progress)
            params.total = None if total is None else float(total)
            params.message = None if message is None else str(exchange.peer.as_json(message))
            pause = exchange.peer.notify_nowait("notifications/progress", params, call)

        if pause is not None:
            await pause

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client, if it wants messages of this level.

        `data` is any JSON value, or anything that a tool may return; other objects are sent as their `repr`. Must not
        contain secrets. Spec: 2026-07-28 server/utilities/logging.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"log level {level!r} is none of {', '.join(LOG_LEVELS)}")
        return self._exchange.do(self._log(level, data, logger))

    async def _log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        task = self._exchange.task
        if task is not None and task.takes_log(level, data, logger):
            return
        wanted = self._exchange.call.log_level
        if wanted is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(wanted):
            return
        params = LogMessageParams(level=level, data=UNSET if data is UNSET else data, logger=logger)
        try:
            await self._exchange.peer.notify("notifications/message", params, self._exchange.call)
        except _UNWRITABLE:
            # A tool must not fail because of a log message, least of all at one log level only.
            params.data = self._exchange.peer.as_json(data)
            params.logger = None if logger is None else str(self._exchange.peer.as_json(logger))
            await self._exchange.peer.notify("notifications/message", params, self._exchange.call)

    def debug(self, data: Any) -> Awaitable[None]:
        """Send `log("debug", data)`."""
        return self.log("debug", data)

    def info(self, data: Any) -> Awaitable[None]:
        """Send `log("info", data)`."""
        return self.log("info", data)

    def warning(self, data: Any) -> Awaitable[None]:
        """Send `log("warning", data)`."""
        return self.log("warning", data)

    def error(self, data: Any) -> Awaitable[None]:
        """Send `log("error", data)`."""
        return self.log("error", data)

    def notify(self, method: str, params: Mapping[str, Any] | Struct | None = None) -> Awaitable[None]:
        """Send a notification of an extension, which has declared the method with `may_notify`.

        `params` is a struct or dict. Nothing is sent to a client without the extension, or in a version without the
        method. Raises LocalProtocolError for an undeclared method.
        """
        return self._exchange.do(self._exchange.notify(method, params))

    def close_stream(self) -> None:
        """Close the HTTP stream on which the client waits for this request's answer; the work continues.

        For work that takes long: the client reconnects later for the rest. Only 2025-11-25 over HTTP sessions supports
        this; elsewhere nothing happens. Spec: 2025-11-25 basic/transports, sending messages 6.
        """
        from mcpd.protocol.channel import ResumableChannel  # few processes need it

        peer = self._exchange.peer
        if isinstance(peer.channel, ResumableChannel):
            peer.loop.call_soon_threadsafe(peer.channel.close_stream, self._exchange.request_id)

    # -- authorization -----------------------------------------------------------------------

    def require_scopes(self, *scopes: str) -> Awaitable[None]:
        """Continue only if the user's token has all these scopes; otherwise end the call.

        Over HTTP that is status 403, unless something was sent already. The check happens at once, awaited or not.
        Raises AccessDenied. Spec: 2026-07-28 basic/authorization, insufficient scope.
        """
        missing = missing_scopes(self._exchange.origin, scopes)
        if missing:
            text = f"This needs the scope {' '.join(missing)}, which the token does not have"
            raise AccessDenied(text, scopes=scopes)
        return _DONE

    def reauthorize(self, message: str = "") -> AccessDenied:
        """Return an error that makes the client get a new token, for example when one behind it has expired: `raise
        ctx.reauthorize()`.

        Over HTTP that is status 401, unless something was sent already.
        """
        return AccessDenied(message or "The access token must be exchanged for a new one", error="invalid_token")

    def upstream_token(self) -> Awaitable[str]:
        """Return the access token of the provider through which the user signed in at this server, for its API.

        It is kept if that sign-in is configured with `keep-tokens`, and refreshed when it has expired. Clients never
        receive it. Raises ConfigurationError if none is kept, AccessDenied if the user must sign in again.
        """
        return self._exchange.do(self._upstream_token())

    async def _upstream_token(self) -> str:
        upstream = self._exchange.origin.user.upstream
        if upstream is None:
            raise ConfigurationError(
                "ctx.upstream_token(): no provider's token is stored for this user; users must sign in by a "
                "[sign-in.NAME] with keep-tokens = true"
            )
        return await upstream()

    # -- asking the client -------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """JSON values that are kept between the rounds of a request (2026-07-28).

        The code before a question runs again in the next round; store results here that must not be computed twice. The
        client can read the values, but not change them.
        """
        return self._exchange.asking.kept

    @overload
    def elicit(
        self, message: str, form: type[T], *, key: str | None = None, timeout: Timeout = "default"
    ) -> Awaitable[Answer[T]]: ...
    @overload
    def elicit(
        self, message: str, form: Mapping[str, Any], *, key: str | None = None, timeout: Timeout = "default"
    ) -> Awaitable[Answer[dict[str, Any]]]: ...

    def elicit(
        self,
        message: str,
        form: type[Any] | Mapping[str, Any],
        *,
        key: str | None = None,
        timeout: Timeout = "default",
    ) -> Awaitable[Answer[Any]]:
        """Ask the user to fill in a form. Returns an `Answer` with `action` and `content`.

        `form` is a struct, dataclass, TypedDict or pydantic model of strings, numbers, booleans and choices (Literal,
        Enum, `mcpd.choices` for values with titles, lists of these). It may also be the type of one such field, as
        `int`, or a flat JSON Schema. `answer.get()` returns the completed form, or the one value, and ends the tool if
        the user declined. Never ask for secrets here; use `elicit_url` (S26-150). `key` names the question in
        2026-07-28; by default questions are numbered. `timeout` is in seconds, None for no limit. By default it is 300,
        and inside a task the question waits as long as the task may. Raises MissingCapability or ToolError if the
        client cannot be asked, RequestTimeout if it does not answer. Spec: 2026-07-28 client/elicitation.
        """
        from . import questions

        return self._ask(questions.elicit_form(message, form), key, timeout)

    def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        key: str | None = None,
        timeout: Timeout = "default",
    ) -> Awaitable[Answer[dict[str, Any]]]:
        """Ask the user to visit a URL. `accept` means that they agreed, not that they have finished.

        The URL must not contain credentials or private data (S26-166, S26-167).
        """
        from . import questions

        return self._ask(questions.elicit_url(message, url, elicitation_id), key, timeout)

    def sample(
        self,
        messages: str | list[SamplingMessage],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        timeout: Timeout = "default",
        **options: Unpack[SamplingOptions],
    ) -> Awaitable[CreateMessageResult]:
        """Ask the client's model. `messages` is a text or a conversation.

        `options` are further members of `mcpd.types.CreateMessageParams`: system_prompt, temperature,
        stop_sequences, model_preferences, tools, tool_choice and so on. Spec: 2026-07-28 client/sampling.
        """
        from . import questions

        return self._ask(questions.sample(messages, max_tokens=max_tokens, **options), key, timeout)

    def list_roots(self, *, key: str | None = None, timeout: Timeout = "default") -> Awaitable[list[Root]]:
        """Return the folders and files that the client lets the server use. Spec: 2026-07-28 client/roots."""
        from . import questions

        return self._ask(questions.list_roots(), key, timeout)

    def ask(self, timeout: Timeout = "default", /, **questions: Question) -> Awaitable[dict[str, Any]]:
        """Ask several questions at once: `await ctx.ask(name=elicit_form(…), haiku=sample(…))`. Returns answers by key.

        Make the questions with `mcpd.elicit_form`, `elicit_url`, `sample` and `list_roots`.
        """
        return self._exchange.do(self._ask_all(questions, timeout), is_question=True)

    async def _ask_all(self, questions: Mapping[str, Question], timeout: Timeout) -> dict[str, Any]:
        return await self._exchange.ask(questions, timeout)

    def can_ask(self, question: Question) -> bool:
        """Return whether this client supports a question. Asking it otherwise is an error."""
        return self._exchange.asking.can_ask(question)

    def _ask(self, question: Question, key: str | None, timeout: Timeout) -> Awaitable[Any]:
        asked = self._exchange.do(self._ask_one(question, key, timeout), is_question=True)
        return _Question(asked) if isinstance(asked, CoroutineType) else asked

    async def _ask_one(self, question: Question, key: str | None, timeout: Timeout) -> Any:
        name = key or self._exchange.asking.next_key()
        return (await self._exchange.ask({name: question}, timeout))[name]

    def require_url(
        self, message: str, url: str, *, elicitation_id: str | None = None, key: str | None = None
    ) -> NoReturn:
        """End the request because the user must visit a URL first; the client sends it again afterwards.

        In 2025-11-25 that is the error -32042, in 2026-07-28 another round. Raises ToolError if the user declines,
        MissingCapability or ToolError if the client cannot be asked. Spec: 2025-11-25 client/elicitation.
        """
        from . import questions

        self._exchange.asking.require(questions.elicit_url(message, url, elicitation_id), key)

    # -- tasks -------------------------------------------------------------------------------

    @property
    def task_id(self) -> str | None:
        """The id of the task that this request has become; None outside a task."""
        task = self._exchange.task
        return None if task is None else task.id

    def become_task(self, message: str = "") -> Awaitable[None]:
        """Make this call a task now, and let the work continue after its answer; `message` is its status.

        Nothing happens without a client that takes tasks, for tools with `task="never"`, and inside a task. Spec: the
        tasks extension.
        """
        return self._exchange.do(self._become_task(message))

    async def _become_task(self, message: str) -> None:
        if self._exchange.task is not None:
            await self._exchange.task.become(message)

    def hand_over(self, *, keep: float | None = None) -> NoReturn:
        """End the function, but not its task: `return ctx.hand_over()`, for work that another system does.

        Whoever does the work calls `server.tasks.finish` or `fail` within `keep` seconds, by default the longest life
        of a task. Raises ToolError if the client takes no tasks.
        """
        from .peer import TaskHandedOver

        if self._exchange.task is None:
            raise ToolError("This work takes long, and needs a client that takes tasks")
        raise TaskHandedOver(keep)

    def elicitation_complete(self, elicitation_id: str) -> Awaitable[None]:
        """Notify the client that the user has finished a visit by URL; only 2025-11-25 has this notification.

        May be called after the request has ended, as long as the client is connected.
        """
        from mcpd.protocol.types.interaction import ElicitationCompleteParams

        params = ElicitationCompleteParams(elicitation_id=elicitation_id)
        # The user may finish long after the request that sent them there was answered.
        related = self._exchange.call if self._exchange.call.is_open else None
        return self._exchange.do(self._exchange.peer.notify("notifications/elicitation/complete", params, related))


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
            self, message: str, form: type[T], *, key: str | None = None, timeout: Timeout = "default"
        ) -> Answer[T]: ...
        @overload
        def elicit(
            self, message: str, form: Mapping[str, Any], *, key: str | None = None, timeout: Timeout = "default"
        ) -> Answer[dict[str, Any]]: ...
        def elicit(
            self, message: str, form: Any, *, key: str | None = None, timeout: Timeout = "default"
        ) -> Answer[Any]: ...
        def elicit_url(
            self,
            message: str,
            url: str,
            *,
            elicitation_id: str | None = None,
            key: str | None = None,
            timeout: Timeout = "default",
        ) -> Answer[dict[str, Any]]: ...
        def sample(
            self,
            messages: str | list[SamplingMessage],
            *,
            max_tokens: int = 1000,
            key: str | None = None,
            timeout: Timeout = "default",
            **options: Unpack[SamplingOptions],
        ) -> CreateMessageResult: ...
        def list_roots(self, *, key: str | None = None, timeout: Timeout = "default") -> list[Root]: ...
        def ask(self, timeout: Timeout = "default", /, **questions: Question) -> dict[str, Any]: ...
        def can_ask(self, question: Question) -> bool: ...
        def require_url(
            self, message: str, url: str, *, elicitation_id: str | None = None, key: str | None = None
        ) -> NoReturn: ...
        @property
        def task_id(self) -> str | None: ...
        def become_task(self, message: str = "") -> None: ...
        def hand_over(self, *, keep: float | None = None) -> NoReturn: ...
        def elicitation_complete(self, elicitation_id: str) -> None: ...

else:

    class SyncContext(Context):
        """`Context` for a plain function: nothing is awaited, each call has done its work when it returns."""

        __slots__ = ()

        is_for_threads = True
