"""How a request asks its client: by requests of the server, or by rounds of the client's own request.

On a legacy session a question is a request. Since 2026-07-28 the server may not send requests: the first question
without an answer ends the handler, and the client receives an `input_required` result. It sends the request again with
its answers, and the handler runs again from the top and finds them. The way is chosen once per request.

Spec: 2026-07-28 basic/patterns/mrtr; 2025-11-25 client/*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from msgspec import Raw, ValidationError, to_builtins
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from mcpd.errors import (
    InvalidParams,
    LocalProtocolError,
    MissingCapability,
    RemoteError,
    ToolError,
    UrlElicitationRequired,
)
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.methods import subject_of
from mcpd.protocol.session import Call
from mcpd.protocol.types.base import NO_JSON, SamplingCapability
from mcpd.protocol.types.interaction import CreateMessageParams, InputRequest, InputRequiredResult
from .peer import InputRequired, Peer
from .questions import Question, Timeout, is_offered

if TYPE_CHECKING:
    from mcpd.protocol.types.base import LogLevel

# Seconds that a client has to answer a request of the server by default; roots are answered without a user.
_SECONDS, _ROOTS_SECONDS = 300.0, 60.0


def asking_for(call: Call, peer: Peer) -> Asking:
    """Return the object that asks the client of this request. Raises InvalidParams for a forged state."""
    return _Rounds(call, peer) if call.version.is_modern else _Requests(call, peer)


def binding_of(call: Call) -> bytes:
    """Return what a state of this call belongs to: its caller, its method and the relevant parameters."""
    params = call.params
    arguments = getattr(params, "arguments", None)
    if isinstance(arguments, Raw):
        try:
            arguments = None if arguments is NO_JSON else _decode_any(arguments)
        except MALFORMED as error:
            # For example 1e999: valid JSON, but not a number that Python can hold.
            raise InvalidParams(f"arguments: {explain(error)}") from None
    subject = subject_of(params) or None
    return _encode_sorted([call.session.opening.principal, call.method, subject, arguments or None])


class Asking(ABC):
    """The questions of one request, and their answers."""

    __slots__ = ("_call", "_count", "_peer", "kept")

    def __init__(self, call: Call, peer: Peer) -> None:
        self._call = call
        self._peer = peer
        self._count = 0
        # JSON values that are kept between rounds, see `Context.state`.
        self.kept: dict[str, Any] = {}

    def move(self, call: Call, peer: Peer) -> None:
        """Ask for the call of the task from now on, because the request has become a task."""
        self._call = call
        self._peer = peer

    def can_ask(self, question: Question) -> bool:
        """Return whether this client, in this version, can be asked this question."""
        return is_offered(question.needs, self._call.client.capabilities)

    def ask(self, questions: Mapping[str, Question], timeout: Timeout) -> Coroutine[Any, Any, dict[str, Any]]:
        """Return a coroutine of the answers by key. Ends the handler with InputRequired if they need another round."""
        for question in questions.values():
            if not self.can_ask(question):
                raise self.missing(question)
        return self.put({key: self._without_context(question) for key, question in questions.items()}, timeout)

    @abstractmethod
    def put(self, questions: dict[str, Question], timeout: Timeout) -> Coroutine[Any, Any, dict[str, Any]]:
        """Ask questions that this client supports, in the way of its version."""

    @abstractmethod
    def require(self, question: Question, key: str | None) -> NoReturn:
        """End the handler with a question by URL, in the way of this version."""

    @abstractmethod
    def required(self, questions: Mapping[str, Question]) -> InputRequiredResult:
        """Return the result that asks the client for another round, in versions with rounds."""

    @abstractmethod
    def missing(self, question: Question) -> Exception:
        """Return the error for a question that the client does not support."""

    def next_key(self) -> str:
        """Return a key for a question without one. It is the same in every round, because the handler runs the same
        way.
        """
        self._count += 1
        return f"question-{self._count}"

    def _without_context(self, question: Question) -> Question:
        # Drop `include_context` unless the client has the capability for it.
        #
        # Spec: 2025-11-25 and 2026-07-28 client/sampling, capabilities. Versions without that capability leave it open.
        params = question.params
        if not isinstance(params, CreateMessageParams) or params.include_context in (None, "none"):
            return question
        sampling = self._call.client.capabilities.sampling
        is_known = self._call.version.shape(_WITH_CONTEXT).context is not None
        if not is_known or (sampling is not None and sampling.context is not None):
            return question
        return replace(question, params=replace(params, include_context=None))


class CallTask(Protocol):
    """What may become of a call: a task, which continues after the call was answered."""

    @property
    def id(self) -> str | None:
        """The task's id; None before the call has become a task."""

    def entered(self) -> None:
        """The tool is about to run. Raises ProtocolError if this call must not be a task, or must be one."""

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Keep the progress as the task's status message."""

    def takes_log(self, level: LogLevel, data: object, logger: str | None) -> bool:
        """Whether a log message was written to the server's log, because the client receives none for this task."""

    def asking_for(self, call: Call, peer: Peer) -> Asking:
        """Return the object that asks the client of this call."""

    async def become(self, message: str) -> None:
        """Answer the call with the task, if the client can take one. Does nothing if it is one already."""


class _Requests(Asking):
    # Questions as requests of the server, on a legacy session.
    def can_ask(self, question: Question) -> bool:
        return question.method in self._call.version.server_requests and super().can_ask(question)

    async def put(self, questions: dict[str, Question], timeout: Timeout) -> dict[str, Any]:
        return {key: await self._request(question, timeout) for key, question in questions.items()}

    async def _request(self, question: Question, timeout: Timeout) -> Any:
        if timeout == "default":
            timeout = _ROOTS_SECONDS if question.method == "roots/list" else _SECONDS
        try:
            raw = await self._peer.request(question.method, question.params, self._call, timeout)
        except RemoteError as error:
            raise ToolError(f"The client did not answer {question.method}: {error.message}") from error
        try:
            return question.read(raw)
        except ValidationError as error:
            raise ToolError(f"The client's answer to {question.method} cannot be used: {explain(error)}") from None
        except MALFORMED as error:
            raise ToolError(f"The client's answer to {question.method} cannot be read: {error}") from None

    def require(self, question: Question, key: str | None) -> NoReturn:
        if not self.can_ask(question):
            raise self.missing(question)
        raise UrlElicitationRequired([to_builtins(question.params)])

    def required(self, questions: Mapping[str, Question]) -> InputRequiredResult:
        raise LocalProtocolError("this protocol version has no input_required results")

    def missing(self, question: Question) -> Exception:
        names = ", ".join(".".join((name, *parts)) for name, parts in question.needs.items())
        return ToolError(f"This needs a client with the capability {names}, which yours does not offer")


class _Rounds(Asking):
    # Questions as results of the client's request, which it sends again with the answers.
    def __init__(self, call: Call, peer: Peer) -> None:
        super().__init__(call, peer)
        self._answers: dict[str, Raw] = {}
        params = call.params

        state = getattr(params, "request_state", None)
        if state is not None:
            opened = peer.state_codec.open(binding_of(call), state)
            self._answers.update(opened.answers)
            self.kept.update(opened.kept)

        raw = getattr(params, "input_responses", NO_JSON)
        if raw is not NO_JSON and bytes(raw) != b"null":
            try:
                self._answers.update(_decode_answers(raw))
            except MALFORMED as error:
                raise InvalidParams(f"inputResponses: {explain(error)}") from None

    async def put(self, questions: dict[str, Question], timeout: Timeout) -> dict[str, Any]:
        unanswered = {key: question for key, question in questions.items() if key not in self._answers}
        answers = {
            key: self._read_answer(key, question) for key, question in questions.items() if key not in unanswered
        }
        if unanswered:
            raise InputRequired(unanswered)
        return answers

    def require(self, question: Question, key: str | None) -> NoReturn:
        # End the handler with a question by URL, unless it was answered.
        if not self.can_ask(question):
            raise self.missing(question)
        name = key or self.next_key()
        if name in self._answers:
            self._read_answer(name, question).get()  # raises if the user declined
        raise InputRequired({name: question})

    def _read_answer(self, key: str, question: Question) -> Any:
        try:
            return question.read(self._answers[key])
        except MALFORMED as error:
            raise InvalidParams(f"inputResponses.{key}: {explain(error)}") from None

    def missing(self, question: Question) -> Exception:
        return MissingCapability(question.needs)

    def required(self, questions: Mapping[str, Question]) -> InputRequiredResult:
        shape = self._call.version.shape
        requests = {
            key: InputRequest(method=question.method, params=shape(question.params))
            for key, question in questions.items()
        }
        try:
            state = self._peer.state_codec.seal(binding_of(self._call), self._answers, self.kept)
        except (TypeError, ValueError, RecursionError, OverflowError):
            raise self._state_error() from None
        return InputRequiredResult(result_type="input_required", input_requests=requests, request_state=state)

    def _state_error(self) -> ToolError:
        # Return an error for the author that names the part of the state that is not JSON.
        for key, value in self.kept.items():
            try:
                _encode_sorted({key: value})
            except Exception as error:
                return ToolError(
                    f"ctx.state[{key!r}] cannot be kept until the next round, because it is not JSON: {error}"
                )
        return ToolError("ctx.state cannot be kept until the next round, because it is not JSON")


_WITH_CONTEXT = SamplingCapability(context={})
_decode_answers = Decoder(dict[str, Raw]).decode
_decode_any = Decoder().decode
_encode_sorted = Encoder(order="sorted").encode
