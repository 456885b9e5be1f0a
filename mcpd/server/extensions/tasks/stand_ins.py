"""What the work of a task sees instead of its call and its connection, and how it asks.

As long as the call is not answered, they pass everything on. Afterwards they hold nothing of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

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
    from mcpd.protocol.channel import Channel
    from mcpd.protocol.types.base import LogLevel
    from mcpd.protocol.types.interaction import InputRequiredResult, ListenResult, SubscriptionFilter
    from mcpd.server.context.peer import Peer
    from mcpd.server.context.questions import Question
    from mcpd.server.context.request_state import RequestStateCodec

# Bytes of the `_meta` of a client that are remembered for its next tasks.
_MOST_REMEMBERED = 1024


class Work(Protocol):
    """The work of a call that can be a task; see `running.TaskRun`."""

    call: TaskCall
    peer: TaskPeer
    # The exchange of the call; None once it was answered with the task.
    outer: Exchange | None
    # Whether the client accepts no tasks, and received a text.
    has_text: bool
    is_open: bool

    def say(self, peer: Peer, method: str, params: Any) -> Coroutine[Any, Any, None] | None:
        """Send a notification to the client, if it receives any for this task."""

    async def is_task(self) -> bool:
        """Whether the call has become a task; waits while it is being stored."""

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask the client by the record."""


class Refusing(Struct, eq=False):
    """The task of a call that is refused, because its client or its tool requires the other way to answer it."""

    error: ProtocolError
    id: str | None = None

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

    run: Work | None = None

    @property
    def is_open(self) -> bool:
        return self.run is not None and self.run.is_open

    def forget_message(self, tool: str) -> None:
        """Keep the names of the tool and the client only: the message may be large, and the task outlives it."""
        self.params = CallToolParams(name=tool)
        raw = _decode_meta(self.raw).meta
        if raw is NO_JSON:
            self.source = Raw(b"{}")
        else:
            describe = _description if len(raw) <= _MOST_REMEMBERED else _description.__wrapped__
            self.source, self.meta, self.identity = describe(bytes(raw))


class QuietChannel(Struct, eq=False):
    # The channel of a task whose request was answered. It only remembers the origin of the request.
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


class TaskPeer:
    """The connection as the work sees it. It forgets the real connection when the request is answered."""

    __slots__ = ("_real", "_run", "channel", "loop")

    def __init__(self, run: Work, real: Peer) -> None:
        self._run = run
        self._real: Peer | None = real
        self.loop = real.loop
        self.channel: Channel = real.channel

    def on_closed(self, callback: Callable[[Any], object]) -> None:
        """Call `callback` when the client sends nothing more."""
        self.real.on_closed(callback)

    @property
    def real_or_none(self) -> Peer | None:
        """The real connection, if messages of the task are sent on it."""
        return self._real

    @property
    def real(self) -> Peer:
        """The real connection. Raises LocalProtocolError if the task has none."""
        if self._real is None:
            raise LocalProtocolError("a task has no connection to its client")
        return self._real

    def answered(self, *, stays: bool) -> None:
        """Forget the request, which was answered, and the connection too unless it `stays` in use for the task."""
        origin = self.real.channel.origin(self._run.call.id)
        fields = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in origin.headers().items())
        is_plain = not fields and origin.user is ANONYMOUS
        self.channel = (
            _plain_channel(origin.transport)
            if is_plain
            else QuietChannel(Origin(origin.transport, origin.user, fields))
        )
        if not stays:
            self._real = None

    def notify_nowait(
        self, method: str, params: Any, related_request: Call | None = None
    ) -> Coroutine[Any, Any, None] | None:
        run = self._run
        if run.outer is not None:
            return self.real.notify_nowait(method, params, None if related_request is None else run.outer.call)
        return None if self._real is None else run.say(self._real, method, params)

    async def notify(self, method: str, params: Any, related_request: Call | None = None) -> None:
        pause = self.notify_nowait(method, params, related_request)
        if pause is not None:
            await pause

    def as_json(self, data: Any) -> Any:
        return as_json(data, to_builtins) if self._real is None else self._real.as_json(data)

    async def request(self, method: str, params: Any, related_request: Call, timeout: float | None) -> Raw:
        related = related_request if self._run.outer is None else self._run.outer.call
        return await self.real.request(method, params, related, timeout)

    def listen(self, call: Call, wanted: SubscriptionFilter) -> Coroutine[Any, Any, ListenResult]:
        return self.real.listen(call, wanted)

    @property
    def state_codec(self) -> RequestStateCodec:
        return self.real.state_codec


class TaskAsking(Asking):
    """Questions of the work. They are sent as in any call, and put into the record once the call is a task."""

    def __init__(self, run: Work, before: Asking | None) -> None:
        super().__init__(run.call, run.peer)
        self._run = run
        self.before = asking_for(run.call, run.peer) if before is None else before
        self.kept = self.before.kept

    def can_ask(self, question: Question) -> bool:
        return self.before.can_ask(question)

    async def put(self, questions: dict[str, Question], timeout: float | None) -> dict[str, Any]:
        run = self._run
        if not await run.is_task() or (run.has_text and run.peer.real_or_none is not None):
            return await self.before.put(questions, timeout)
        if run.has_text:
            raise ToolError("This client takes no tasks, so it cannot be asked any more")
        return await run.ask(questions)

    def require(self, question: Question, key: str | None) -> NoReturn:
        if self._run.outer is None:
            raise ToolError(f"The user must visit this page first: {getattr(question.params, 'url', '')}")
        self.before.require(question, key)

    def required(self, questions: Mapping[str, Question]) -> InputRequiredResult:
        return self.before.required(questions)

    def missing(self, question: Question) -> Exception:
        return self.before.missing(question)

    def next_key(self) -> str:
        return self.before.next_key()


class _Meta(Struct):
    meta: Raw = field(name="_meta", default=NO_JSON)


_decode_meta = Decoder(_Meta).decode


@lru_cache(256)
def _description(raw: bytes) -> tuple[Raw, RequestMeta, ClientIdentity]:
    # Return params that have only this `_meta`, and its contents. They are the same for all tasks of a client.
    meta = _decode_description(raw)
    return (
        Raw(b'{"_meta":%b}' % raw),
        meta,
        identity_in(meta),
    )


_decode_description = Decoder(RequestMeta).decode
