"""The request of a call as a tool in a worker sees it. The server carries out what the tool does with its context.

Messages and questions go to the server, which has the client and knows its version.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from msgspec import Raw
from msgspec.json import decode

from mcpd.errors import ToolError
from mcpd.protocol.envelope import ClientIdentity, Opening
from mcpd.protocol.jsonrpc import MALFORMED, as_json, explain
from mcpd.protocol.principal import Origin, Principal
from mcpd.protocol.session import Call, Session
from mcpd.protocol.types.base import LogMessageParams, Params, ProgressParams
from mcpd.protocol.types.features import CallToolParams
from mcpd.protocol.versions import table
from mcpd.server.context.asking import Asking
from mcpd.server.context.exchange import Exchange
from mcpd.server.context.questions import Question, Timeout
from mcpd.server.functions.results import to_builtins
from .link import PROGRESS, ServerLink
from .messages import RequestData

if TYPE_CHECKING:
    from .callee import ProcessCallee

T = TypeVar("T")


class ServerPeer:
    """The server as the `Peer` and the channel of a call in a worker, and as the event loop of a call without one."""

    def __init__(self, link: ServerLink, call: Call, origin: Origin) -> None:
        self.link = link
        self.call = call
        self.channel = self
        self._origin = origin

    @property
    def loop(self) -> Any:
        return self if self.link.task is None else self.link.task.get_loop()

    def call_soon_threadsafe(self, function: Any, *arguments: Any) -> None:
        function(*arguments)

    def origin(self, request_id: object = None) -> Origin:
        """How the request has arrived at the server."""
        return self._origin

    def close_stream(self, request_id: object) -> None:
        self.link.say(self.call, "close_stream", None)

    def is_away(self, request_id: object) -> bool:
        """See `ResumableChannel`. The server sends the heartbeats."""
        return False

    def notify_nowait(self, method: str, params: Any, related_request: Call | None = None) -> None:
        self.link.say(self.call, method, params)

    async def notify(self, method: str, params: Any, related_request: Call | None = None) -> None:
        self.link.say(self.call, method, params)

    def as_json(self, data: Any) -> Any:
        return as_json(data, to_builtins)


def _not_here(*_: Any, **__: Any) -> Any:
    # The server does this, because it has the questions.
    raise NotImplementedError


class ServerAsking(Asking):
    """Has the server ask the client, in the way of its version; the answers become values here."""

    def __init__(self, call: Call, peer: Any, kept: dict[str, Any]) -> None:
        super().__init__(call, peer)
        self._link: ServerLink = peer.link
        self.kept = kept

    def can_ask(self, question: Question) -> bool:
        return decode(self._link.ask_now(self._call, "can_ask", _as_data(question)), type=bool)

    async def ask(self, questions: Mapping[str, Question], timeout: Timeout) -> dict[str, Any]:
        data = {key: _as_data(question) for key, question in questions.items()}
        raw = await self._link.ask(self._call, "ask", [data, timeout])
        answers = decode(raw, type=dict[str, Raw])
        return {key: _read_answer(question, answers[key]) for key, question in questions.items()}

    def require(self, question: Question, key: str | None) -> NoReturn:
        self._link.ask_now(self._call, "require", [_as_data(question), key])
        raise AssertionError("the server lets nothing go on after `require`")

    put = required = missing = _not_here


class ServerTask:
    """The task that the call may become. The task belongs to the server, so each method sends a message to it."""

    def __init__(self, link: ServerLink, call: Call) -> None:
        self._link = link
        self._call = call
        self._has_token = call.meta is not None and call.meta.progress_token is not None

    @property
    def id(self) -> str | None:
        return decode(self._link.ask_now(self._call, "task_id", None), type=str | None)

    def entered(self) -> None:
        """See `CallTask`. The server has called it."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """See `CallTask`. With a token the context sends it anyway."""
        if not self._has_token and math.isfinite(progress):
            params = ProgressParams(progress_token="", progress=progress, total=total, message=message)
            self._link.say(self._call, PROGRESS, as_json(params, to_builtins))

    def takes_log(self, level: Any, data: object, logger: str | None) -> bool:
        """See `CallTask`. The server decides who gets the message."""
        message = LogMessageParams(level=level, data=as_json(data, to_builtins), logger=logger)
        self._link.say(self._call, "notifications/message", message)
        return True

    asking_for = _not_here

    async def become(self, message: str) -> None:
        await self._link.ask(self._call, "become_task", message)


def _as_data(question: Question) -> dict[str, Any]:
    return {"method": question.method, "params": question.params, "needs": question.needs}


def _read_answer(question: Question, raw: Raw) -> Any:
    try:
        return question.read(raw)
    except MALFORMED as error:
        raise ToolError(f"The client's answer to {question.method} cannot be used: {explain(error)}") from None


class WorkerExchange(Exchange, eq=False):
    """One request in a worker."""

    # Whether `ctx.state` had values at the beginning.
    had_kept: bool = False

    @classmethod
    def of(cls, data: RequestData, callee: ProcessCallee, link: ServerLink) -> WorkerExchange:
        """Return the exchange of a call."""
        version = table.get(data.version)
        session = Session(opening=Opening(version=version))
        session.client = ClientIdentity(raw_capabilities=data.capabilities, raw_info=data.info)
        session.log_level = data.log_level
        source = Raw(b'{"_meta":%s}' % (bytes(data.meta) or b"null"))
        meta = decode(source, type=Params).meta
        params = CallToolParams(name=callee.tool)
        call = Call(data.id, "tools/call", session, source, version, params, meta)
        if data.trace is not None:
            from mcpd.protocol.wire.trace_context import TraceContext  # few requests are traced

            trace = TraceContext(**data.trace)
            call.trace = lambda: trace

        session.in_flight.by_id[call.id] = call

        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in data.headers.items()]
        peer = ServerPeer(link, call, Origin(cast(Any, data.transport), _user(data, link, call), fields))
        exchange = cls(call, cast(Any, peer))
        exchange._asking = ServerAsking(call, peer, data.kept)
        exchange.had_kept = bool(data.kept)
        if data.can_be_task:
            exchange.task = ServerTask(link, call)
        return exchange

    def do(self, work: Coroutine[Any, Any, T], *, is_question: bool = False) -> Awaitable[T]:
        """See `Exchange`. Without an event loop nothing in `work` waits for one."""
        if self.peer.link.task is not None:  # type: ignore[attr-defined]
            return super().do(work, is_question=is_question)
        try:
            work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        raise RuntimeError("a method of the context waits for an event loop")

    async def notify(self, method: str, params: Any) -> None:
        await self.peer.link.ask(self.call, "notify", [method, params])  # type: ignore[attr-defined]


def _user(data: RequestData, link: ServerLink, call: Call) -> Principal:
    user = Principal(**data.user)

    async def upstream() -> str:
        return decode(await link.ask(call, "upstream_token", None), type=str)

    return user.with_upstream(upstream) if data.has_upstream else user
