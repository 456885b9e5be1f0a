"""The objects that the work of a task sees instead of its call and its connection.

As long as the call is not answered, everything is passed on. Afterwards nothing of the request is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Raw, Struct, field, to_builtins
from msgspec.json import Decoder

from mcpd.errors import LocalProtocolError, ProtocolError, ToolError
from mcpd.protocol.envelope import ClientIdentity, identity_in
from mcpd.protocol.jsonrpc import Id, as_json
from mcpd.protocol.principal import ANONYMOUS, Origin, Transport
from mcpd.protocol.session import Call
from mcpd.protocol.types.base import NO_JSON, RequestMeta
from mcpd.protocol.types.features import CallToolParams
from mcpd.server.context.asking import Asking, asking_for
from mcpd.server.context.exchange import Exchange

if TYPE_CHECKING:
    import asyncio

    from mcpd.protocol.channel import Channel
    from mcpd.protocol.types.base import LogLevel
    from mcpd.protocol.types.interaction import InputRequiredResult, ListenResult, SubscriptionFilter
    from mcpd.server.context.peer import Peer
    from mcpd.server.context.questions import Question, Timeout
    from mcpd.server.context.request_state import RequestStateCodec
    from .record import Record

# Bytes of the `_meta` of a client that are remembered for its next tasks.
_MOST_REMEMBERED = 1024


class Refusal(Struct, eq=False):
    """The task of a call that is refused, because its client or its tool requires the other way to answer it."""

    error: ProtocolError
    id: None = None

    def entered(self) -> None:
        raise self.error

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Nothing runs, so nothing is reported."""

    def takes_log(self, level: LogLevel, data: object, logger: str | None) -> bool:
        return False

    def asking_for(self, call: Call, peer: Peer) -> Asking:
        return asking_for(call, peer)

    async def become(self, message: str) -> None:
        """Nothing runs, so nothing becomes a task."""


class TaskCall(Call, eq=False):
    """The call as the work sees it: open until the task ends, even if the connection ends earlier."""

    run: Run | None = None

    @property
    def is_open(self) -> bool:
        return self.run is not None and self.run.is_open

    def forget_message(self) -> None:
        """Keep the names of the tool and the client only: the message may be large, and the task outlives it."""
        self.params = _named(self.params.name)
        raw = _decode_meta(self.raw).meta
        if raw is NO_JSON:
            self.source = Raw(b"{}")
        else:
            describe = _description if len(raw) <= _MOST_REMEMBERED else _description.__wrapped__
            self.source, self.meta, self.identity = describe(bytes(raw))


class _Meta(Struct):
    meta: Raw = field(name="_meta", default=NO_JSON)


_decode_meta = Decoder(_Meta).decode
_decode_description = Decoder(RequestMeta).decode


@lru_cache(256)
def _named(tool: str) -> CallToolParams:
    return CallToolParams(name=tool)


@lru_cache(256)
def _description(raw: bytes) -> tuple[Raw, RequestMeta, ClientIdentity]:
    # Return params that have only this `_meta`, and its contents. They are the same for all tasks of a client.
    meta = _decode_description(raw)
    return Raw(b'{"_meta":%b}' % raw), meta, identity_in(meta)


class QuietChannel(Struct, eq=False):
    """The channel of a task whose request was answered. It only remembers the origin of the request."""

    _origin: Origin
    is_congested: bool = False
    is_multiplexed: bool = False

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return self._origin

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Drop the frame."""

    send_separately = send

    async def drain(self) -> None:
        """Nothing is queued."""

    async def aclose(self, reason: str = "") -> None:
        """There is nothing to close."""


@cache
def _plain_channel(transport: Transport) -> QuietChannel:
    return QuietChannel(Origin(transport))


class Run(ABC):
    """The work of a call that is or can be a task; `running.TaskRun`. It is the `peer` of the exchange of its tool."""

    __slots__ = (
        "call", "caller", "channel", "has_text", "is_open", "loop", "message", "node", "outer", "real", "record",
        "view", "work",
    )  # fmt: skip

    loop: asyncio.AbstractEventLoop
    channel: Channel
    call: TaskCall
    # The exchange of the request; None once it was answered with the task.
    outer: Exchange | None
    # The real connection, as long as messages of the work are sent on it.
    real: Peer | None
    # Whether the client accepts no tasks, and receives a text with the id.
    has_text: bool
    record: Record | None
    # The node that ran the task when it began.
    node: str
    # The client, for limits.
    caller: str
    # Whether the work continues, and the task belongs to this node.
    is_open: bool
    message: str | None
    work: asyncio.Task[Any] | None
    # The form of one protocol version, and the response to `tasks/get` in it until a time.
    view: tuple[object, float, Any] | None

    @abstractmethod
    def changed(self, record: Record) -> None:
        """The record has changed."""

    @abstractmethod
    def stop(self, error: ProtocolError | None) -> None:
        """Cancel the work. The task then fails with `error`; None means that its end is recorded already."""

    @abstractmethod
    def say(self, peer: Peer, method: str, params: Any) -> Coroutine[Any, Any, None] | None:
        """Send a notification to the client, if it receives any for this task."""

    @abstractmethod
    def storing(self) -> Coroutine[Any, Any, object] | None:
        """Return a coroutine that waits while the task is being stored; None if nothing is to be waited for."""

    @abstractmethod
    def ask(self, questions: dict[str, Question], timeout: Timeout) -> Coroutine[Any, Any, dict[str, Any]]:
        """Ask the client through the record."""

    # -- as the peer ---------------------------------------------------------------------------

    def connection(self) -> Peer:
        """Return the real connection. Raises LocalProtocolError if the task has none."""
        if self.real is None:
            raise LocalProtocolError("a task has no connection to its client")
        return self.real

    def on_closed(self, callback: Callable[[Any], object]) -> None:
        self.connection().on_closed(callback)

    def answered(self, *, stays: bool) -> None:
        """Forget the request, which was answered, and the connection too unless it `stays` in use for the task."""
        origin = self.channel.origin(self.call.id)
        if origin.fields or origin.user is not ANONYMOUS or origin.process is not None:
            fields = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in origin.headers().items()]
            self.channel = QuietChannel(
                Origin(origin.transport, origin.user, fields, origin.process)
            )  # without credentials
        else:
            self.channel = _plain_channel(origin.transport)

        self.outer = None
        if not stays:
            self.real = None

    def notify_nowait(
        self, method: str, params: Any, related_request: Call | None = None
    ) -> Coroutine[Any, Any, None] | None:
        if self.outer is not None:
            related = None if related_request is None else self.outer.call
            return self.connection().notify_nowait(method, params, related)
        return None if self.real is None else self.say(self.real, method, params)

    async def notify(self, method: str, params: Any, related_request: Call | None = None) -> None:
        pause = self.notify_nowait(method, params, related_request)
        if pause is not None:
            await pause

    def as_json(self, data: Any) -> Any:
        return as_json(data, to_builtins) if self.real is None else self.real.as_json(data)

    async def request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        related = related_request if self.outer is None else self.outer.call
        return await self.connection().request(method, params, related, timeout)

    def listen(self, call: Call, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        return self.connection().listen(call, wanted)

    @property
    def state_codec(self) -> RequestStateCodec:
        return self.connection().state_codec


class TaskAsking(Asking):
    """Questions of the work. They are sent as in any call, and put into the record once the call is a task."""

    __slots__ = ("before", "run")

    def __init__(self, run: Run, before: Asking | None) -> None:
        super().__init__(run.call, run)
        self.run = run
        # How the call asks; None if it had been answered before the first question.
        self.before = asking_for(run.call, run) if before is None and run.outer is not None else before
        if self.before is not None:
            self.kept = self.before.kept

    def as_call(self) -> Asking:
        """Return the object that asks as in any call."""
        return self.before or asking_for(self._call, self._peer)

    def can_ask(self, question: Question) -> bool:
        return self.as_call().can_ask(question)

    def put(self, questions: dict[str, Question], timeout: Timeout) -> Coroutine[Any, Any, dict[str, Any]]:
        run, storing = self.run, self.run.storing()
        if storing is not None:
            return self._put_later(storing, questions, timeout)
        if run.outer is not None or (run.has_text and run.real is not None):
            return self.as_call().put(questions, timeout)
        if run.has_text:
            raise ToolError("This client takes no tasks, so it cannot be asked any more")
        return run.ask(questions, timeout)

    async def _put_later(
        self, storing: Coroutine[Any, Any, object], questions: dict[str, Question], timeout: Timeout
    ) -> dict[str, Any]:
        await storing
        return await self.put(questions, timeout)

    def require(self, question: Question, key: str | None) -> NoReturn:
        if self.run.outer is None:
            raise ToolError(f"The user must visit this page first: {getattr(question.params, 'url', '')}")
        self.as_call().require(question, key)

    def required(self, questions: Mapping[str, Question]) -> InputRequiredResult:
        return self.as_call().required(questions)

    def missing(self, question: Question) -> Exception:
        return self.as_call().missing(question)

    def next_key(self) -> str:
        return super().next_key() if self.before is None else self.before.next_key()
