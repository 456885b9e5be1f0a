"""What a tool, resource or prompt is given beside its arguments: the request it serves, and ways to talk back.

A `Context` looks the same in every protocol version. It belongs to one request and is of no use after it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from msgspec import UNSET, Raw
from msgspec.json import Decoder

from ..jsonrpc import MALFORMED, Id
from ..session import Call, Client
from ..types.lifecycle import ClientCapabilities, Implementation
from ..types.notifications import LOG_LEVELS, LogLevel, LogMessageParams, ProgressParams

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..types.rounds import ListenResult, SubscriptionFilter
    from ..types.sampling import CreateMessageResult, Root, SamplingMessage
    from .asking import Answer, Question, Rounds
    from .seal import Sealer

__all__ = ["Context", "InputNeeded", "Peer", "Place", "is_failure", "needed_by", "this_thread"]

T = TypeVar("T")

_ENDLESS = float("inf")

# What msgspec raises, before anything was sent, for what it cannot write.
_UNWRITABLE = (TypeError, ValueError, RecursionError, OverflowError)


class InputNeeded(BaseException):
    """Ends a handler whose question has no answer yet. Not an Exception: tools that catch those let it pass."""

    def __init__(self, questions: dict[str, Question]) -> None:
        self.questions = questions
        super().__init__("the handler waits for the client")


def needed_by(error: BaseException) -> dict[str, Question]:
    """The questions that ended a handler: of one, or of all in a task group. Raises an error that is not about that."""
    if isinstance(error, InputNeeded):
        return error.questions
    if not isinstance(error, BaseExceptionGroup):
        raise error
    questions: dict[str, Question] = {}
    for one in error.exceptions:
        questions.update(needed_by(one))
    return questions


class Place(Protocol):
    """What a plain function takes up among those that run at once, see `registry.threads`."""

    def pause(self) -> None:
        """It waits for the client: another may run."""

    def resume(self) -> None:
        """It has its answer."""


class _ThisThread(threading.local):
    place: Place | None = None
    """That of the plain function that runs in this thread."""


this_thread = _ThisThread()


def is_failure(error: BaseException) -> bool:
    """Whether a handler failed that raised this; false if it was cancelled or closed, or has to ask the client first.

    Most failures are Exceptions, but code that runs into a time limit of its own, calls sys.exit() or takes a
    prompt's Ctrl-C raises others, and they too end their call, not the server.
    """
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(InputNeeded) is None
    return not isinstance(error, (asyncio.CancelledError, GeneratorExit, InputNeeded))


class Peer(Protocol):
    """The connection as a context sees it."""

    loop: asyncio.AbstractEventLoop

    async def notify(self, method: str, params: Any, about: Call | None = None) -> None:
        """Send a notification, as part of `about`; dropped if that is answered or the version has none such."""

    def as_json(self, data: Any) -> Any:
        """Any object as JSON values that can be sent, its `repr` if it has no better form. Never raises."""

    async def request(self, method: str, params: Any, about: Call, timeout: float | None) -> Raw:
        """Ask the client, and give its raw result. Raises RemoteError, RequestTimeout, ConnectionLost."""

    def listen(self, call: Call, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        """Keep a subscription open; gives its result when the server ends it."""

    @property
    def sealer(self) -> Sealer:
        """What seals the states of multi round-trip requests."""


class Context:
    """One request: who asks, in which version, and how to report, log and ask back.

    In an `async def` tool its methods are awaited. In a plain function, which runs in a thread, the same
    calls do their work at once and give what they would be awaited for: `answer = ctx.elicit(…)`.
    """

    __slots__ = ("_call", "_has_ended", "_peer", "_pending", "_rounds")

    def __init__(self, call: Call, peer: Peer) -> None:
        self._call = call
        self._peer = peer
        self._rounds: Rounds | None = None
        self._pending: set[Future[Any]] | None = None
        self._has_ended = False

    @property
    def request_id(self) -> Id:
        """The JSON-RPC id, with its type."""
        return self._call.id

    @property
    def method(self) -> str:
        """The request's method, e.g. `tools/call`."""
        return self._call.method

    @property
    def protocol_version(self) -> str:
        """The protocol version of this request, e.g. `2026-07-28`."""
        return self._call.version.name

    @property
    def client_info(self) -> Implementation | None:
        """The client's name and version, None if it did not say."""
        return self._call.client.info

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client offers for this request."""
        return self._call.client.capabilities

    @property
    def client(self) -> Client:
        """Identity and capabilities together."""
        return self._call.client

    @property
    def is_cancelled(self) -> bool:
        """Whether the client gave the request up. An async tool is stopped; a plain one should look now and then."""
        return not self._call.is_open

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta` as it came, {} if there is none."""
        raw = self._call.raw
        try:
            return _decode_meta(raw).get("_meta") or {}
        except MALFORMED:
            return {}

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> Awaitable[None]:
        """Tell the client how far the request has come.

        `progress` has to rise; a value that does not is dropped. Without a progress token from the client
        nothing is sent. Spec: 2026-07-28 basic/patterns/progress.
        """
        return self._do(self._progress(progress, total, message))

    async def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        call = self._call
        token = None if call.meta is None else call.meta.progress_token
        if token is None or not (call.last_progress is None or progress > call.last_progress):
            return
        if not -_ENDLESS < progress < _ENDLESS:  # JSON has neither nan nor inf
            return
        if total is not None and not -_ENDLESS < total < _ENDLESS:
            total = None
        call.last_progress = progress
        params = ProgressParams(progress_token=token, progress=progress, total=total, message=message)
        try:
            await self._peer.notify("notifications/progress", params, call)
        except _UNWRITABLE:
            params.progress = float(progress)
            params.total = None if total is None else float(total)
            params.message = None if message is None else str(self._peer.as_json(message))
            await self._peer.notify("notifications/progress", params, call)

    def log(self, level: LogLevel, data: Any, logger: str | None = None) -> Awaitable[None]:
        """Send a log message to the client, if it wants messages of this level.

        `data` is any JSON value, or what a tool may return; of other objects the `repr` is sent. Put nothing secret
        in it. Spec: 2026-07-28 server/utilities/logging.
        """
        if level not in LOG_LEVELS:
            raise ValueError(f"log level {level!r} is none of {', '.join(LOG_LEVELS)}")
        return self._do(self._log(level, data, logger))

    async def _log(self, level: LogLevel, data: Any, logger: str | None) -> None:
        wanted = self._call.log_level
        if wanted is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(wanted):
            return
        params = LogMessageParams(level=level, data=UNSET if data is UNSET else data, logger=logger)
        try:
            await self._peer.notify("notifications/message", params, self._call)
        except _UNWRITABLE:
            # A tool must not fail for what it logs, least of all at one log level and not at another.
            params.data = self._peer.as_json(data)
            params.logger = None if logger is None else str(self._peer.as_json(logger))
            await self._peer.notify("notifications/message", params, self._call)

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

    def close_stream(self) -> None:
        """Let go of the HTTP connection on which the client waits for this request's answer; the work goes on.

        For work that takes long: the client comes back for the rest, at a time it is told. Only 2025-11-25 over
        HTTP sessions has that; elsewhere this does nothing. Spec: 2025-11-25 basic/transports, sending messages 6.
        """
        release = self._call.release
        if release is not None:
            self._peer.loop.call_soon_threadsafe(release)

    # -- asking the client -------------------------------------------------------------------

    @property
    def rounds(self) -> Rounds:
        """The questions of this request and their answers."""
        if self._rounds is None:
            from .asking import Rounds  # few tools ask, and this costs start-up

            self._rounds = Rounds(self._call, self._peer, self._peer.sealer)
        return self._rounds

    @property
    def state(self) -> dict[str, Any]:
        """JSON values that outlive a question: what stands before a question runs again in the next round
        (2026-07-28), and finds here what it put here. The client can read it, but not change it."""
        return self.rounds.kept

    def elicit(
        self,
        message: str,
        form: type[T] | Mapping[str, Any],
        *,
        key: str | None = None,
        timeout: float | None = 300,
    ) -> Awaitable[Answer[Any]]:
        """Ask the user to fill in a form; gives an `Answer` with `action` and `content`.

        `form` is a struct, dataclass or TypedDict of strings, numbers, booleans and choices (Literal, Enum,
        `mcpd.choices` for values with titles, lists of these), or a flat JSON Schema; `answer.get()` is the form
        filled in, or ends the tool if the user declined. Never ask for secrets here: use `elicit_url` (S26-150).
        `key` names the question in 2026-07-28; the default counts. `timeout` is in seconds.
        Raises MissingCapability or ToolError if the client cannot be asked, RequestTimeout if it does not answer.
        Spec: 2026-07-28 client/elicitation.
        """
        from . import asking

        return self._ask(asking.elicit_form(message, form), key, timeout)

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
        from . import asking

        return self._ask(asking.elicit_url(message, url, elicitation_id), key, timeout)

    def sample(
        self,
        messages: str | list[SamplingMessage],
        *,
        max_tokens: int = 1000,
        key: str | None = None,
        timeout: float | None = 300,
        **options: Any,
    ) -> Awaitable[CreateMessageResult]:
        """Ask the client's model. `messages` is a text, or a conversation.

        `options` are the further fields of `types.sampling.CreateMessageParams`: system_prompt, temperature,
        stop_sequences, model_preferences, tools, tool_choice … Spec: 2026-07-28 client/sampling.
        """
        from . import asking

        return self._ask(asking.sample(messages, max_tokens=max_tokens, **options), key, timeout)

    def list_roots(self, *, key: str | None = None, timeout: float | None = 60) -> Awaitable[list[Root]]:
        """The folders and files that the client lets the server work on. Spec: 2026-07-28 client/roots."""
        from . import asking

        return self._ask(asking.list_roots(), key, timeout)

    def ask(self, timeout: float | None = 300, /, **questions: Question) -> Awaitable[dict[str, Any]]:
        """Ask several things at once: `await ctx.ask(name=elicit_form(…), haiku=sample(…))`; answers come by key.

        The questions are made by `mcpd.elicit_form`, `elicit_url`, `sample` and `list_roots`.
        """
        return self._do(self.rounds.ask(questions, timeout), is_question=True)

    def can_ask(self, question: Question) -> bool:
        """Whether this client offers what a question needs; asking it otherwise is an error."""
        return self.rounds.can_ask(question)

    def _ask(self, question: Question, key: str | None, timeout: float | None) -> Awaitable[Any]:
        return self._do(self._ask_one(question, key, timeout), is_question=True)

    async def _ask_one(self, question: Question, key: str | None, timeout: float | None) -> Any:
        rounds = self.rounds
        name = key or rounds.next_key()
        return (await rounds.ask({name: question}, timeout))[name]

    def require_url(
        self, message: str, url: str, *, elicitation_id: str | None = None, key: str | None = None
    ) -> NoReturn:
        """End the request, because the user has to visit a page first; the client asks again after that.

        In 2025-11-25 that is the error -32042, in 2026-07-28 another round. Raises ToolError if the user will not,
        MissingCapability or ToolError if the client cannot be asked. Spec: 2025-11-25 client/elicitation.
        """
        from . import asking

        self.rounds.require(asking.elicit_url(message, url, elicitation_id), key)

    def elicitation_complete(self, elicitation_id: str) -> Awaitable[None]:
        """Tell the client that what was asked by URL has happened; only 2025-11-25 has that notification.

        May be called after the request has ended, as long as the client is there.
        """
        from ..types.elicitation import ElicitationCompleteParams

        params = ElicitationCompleteParams(elicitation_id=elicitation_id)
        # The user may be done long after the request that sent them there was answered.
        about = self._call if self._call.is_open else None
        return self._do(self._peer.notify("notifications/elicitation/complete", params, about))

    # -- what a legacy session remembers -----------------------------------------------------

    @property
    def is_alone(self) -> bool:
        """Whether this is an older client's request without a session: what it sets for later is not kept."""
        return self._call.session.is_alone and not self._call.version.is_modern

    def set_log_level(self, level: str) -> None:
        """The least severe level that the session's client wants to see."""
        self._call.session.log_level = level

    def watch(self, uri: str) -> int:
        """The session's client wants to hear when a resource changes; gives how many it watches."""
        return self._call.session.watch(uri)

    def unwatch(self, uri: str) -> None:
        """It no longer does."""
        self._call.session.unwatch(uri)

    def listen(self, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        """Make this request a subscription; returns when the server ends it."""
        return self._peer.listen(self._call, wanted)

    def _do(self, work: Coroutine[Any, Any, T], *, is_question: bool = False) -> Awaitable[T]:
        """`work` to be awaited on the event loop's thread; from another thread it is done when this returns."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._peer.loop:
            return work
        pending = asyncio.run_coroutine_threadsafe(work, self._peer.loop)
        if is_question:
            if self._pending is None:
                self._pending = set()
            self._pending.add(pending)
            if self._has_ended:
                pending.cancel()  # the request was over before anybody could know of this
        place = this_thread.place if is_question else None
        if place is not None:
            place.pause()
        try:
            return pending.result()  # type: ignore[return-value]  # where there is no loop, nothing can be awaited
        finally:
            if place is not None:
                place.resume()
            if self._pending is not None:
                self._pending.discard(pending)

    def end(self) -> None:
        """The request is over: give up what a thread still waits for, such as the answer to a question."""
        self._has_ended = True
        if self._pending is not None:
            for pending in list(self._pending):
                pending.cancel()


_decode_meta = Decoder(dict[str, Any]).decode
