"""Asking the client: elicitation, sampling, roots; as requests of our own, or as rounds of the client's request.

On a legacy session a question is a real request. In 2026-07-28 the server may not send any: the
first question that has no answer yet ends the handler, the client gets an `input_required` result and
asks again with its answers, and the handler runs again from the top, this time finding them.
Spec: 2026-07-28 basic/patterns/mrtr, client/{elicitation,sampling}; 2025-11-25 client/*.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import urandom
from typing import Any, Generic, NoReturn, TypeVar

from msgspec import Raw, Struct, ValidationError, to_builtins
from msgspec.json import Decoder, Encoder
from msgspec.structs import replace

from ..errors import (
    InvalidParams,
    LocalProtocolError,
    MissingCapability,
    RemoteError,
    ToolError,
    UrlElicitationRequired,
)
from ..jsonrpc import MALFORMED, explain
from ..session import Call
from ..types.base import NO_JSON
from ..types.content import TextContent
from ..types.elicitation import ElicitFormParams, ElicitResult, ElicitUrlParams
from ..types.lifecycle import ClientCapabilities, SamplingCapability
from ..types.rounds import InputRequest, InputRequiredResult
from ..types.sampling import (
    CreateMessageParams,
    CreateMessageResult,
    ListRootsParams,
    ListRootsResult,
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
)
from .core import InputNeeded, Peer
from .forms import form_schema, read_form
from .seal import Sealer

__all__ = ["Answer", "Question", "Rounds", "elicit_form", "elicit_url", "list_roots", "sample"]

T = TypeVar("T")


class Answer(Struct, Generic[T]):
    """What the user did with a question: `accept`, `decline` or `cancel`; `content` only if accepted."""

    action: str
    content: T | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the user agreed."""
        return self.action == "accept"

    def get(self) -> T:
        """The content. Raises ToolError, which ends a tool with a text for the model, if the user did not agree."""
        if self.content is None:
            raise ToolError("The user declined" if self.action == "decline" else "The user cancelled the question")
        return self.content


class Question(Struct):
    """One thing to ask: the request, what its answer decodes to, and which capability the client needs for it.

    Made by `elicit_form`, `elicit_url`, `sample`, `list_roots`.
    """

    method: str
    params: Any
    result: type
    needs: dict[str, Any]
    form: type | None = None
    """The struct that an accepted form's values become; None keeps them a dict."""

    def read(self, raw: Raw | bytes) -> Any:
        """The client's answer. Raises ValidationError if it does not fit the question."""
        value: Any = Decoder(self.result).decode(raw)
        if isinstance(value, ListRootsResult):
            return value.roots
        if not isinstance(value, ElicitResult):
            return value
        if value.action != "accept":
            return Answer(value.action)
        content: Any = value.content or {}
        if isinstance(self.params, ElicitFormParams):
            content = read_form(content, self.params.requested_schema, self.form)
        return Answer("accept", content)


def elicit_form(message: str, form: type | Mapping[str, Any]) -> Question:
    """A form for the user: a struct, dataclass or TypedDict of primitives and enums, or a flat object schema."""
    schema, kind = form_schema(form)
    params = ElicitFormParams(mode="form", message=message, requested_schema=schema)
    return Question("elicitation/create", params, ElicitResult, {"elicitation": {"form": {}}}, kind)


def elicit_url(message: str, url: str, elicitation_id: str | None = None) -> Question:
    """A page for the user to visit. `accept` means consent to go there, not that it is done."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0]
    if not scheme.isalpha() or not host or any(c.isspace() or not c.isprintable() for c in url):
        raise LocalProtocolError(f"{url!r} is no URL that a user can visit")
    if elicitation_id is None:
        elicitation_id = urandom(16).hex()
    params = ElicitUrlParams(message=message, url=url, elicitation_id=elicitation_id)
    return Question("elicitation/create", params, ElicitResult, {"elicitation": {"url": {}}})


def sample(messages: str | list[SamplingMessage], *, max_tokens: int = 1000, **options: Any) -> Question:
    """A request to the client's model: a text, or a conversation. `options` are those of `Context.sample`.

    Raises LocalProtocolError for a conversation the specification forbids.
    """
    if isinstance(messages, str):
        messages = [SamplingMessage("user", TextContent(messages))]
    params = CreateMessageParams(messages=messages, max_tokens=max_tokens, **options)
    _check_conversation(params)
    uses_tools = params.tools or params.tool_choice or any(map(_has_tool_content, messages))
    needs: dict[str, Any] = {"sampling": {"tools": {}} if uses_tools else {}}
    return Question("sampling/createMessage", params, CreateMessageResult, needs)


def list_roots() -> Question:
    """The folders the client lets the server work on."""
    return Question("roots/list", ListRootsParams(), ListRootsResult, {"roots": {}})


def _has_tool_content(message: SamplingMessage) -> bool:
    blocks = message.content if isinstance(message.content, list) else [message.content]
    return any(isinstance(block, (ToolUseContent, ToolResultContent)) for block in blocks)


def _check_conversation(params: CreateMessageParams) -> None:
    """Spec: 2025-11-25 client/sampling, message constraints (S25-081, S25-082)."""
    open_uses: set[str] = set()
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = {block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)}
        if results and len(results) != len(blocks):
            raise LocalProtocolError("a sampling message with tool results holds nothing else")
        if open_uses != results:
            raise LocalProtocolError("each tool use is answered by its tool result in the very next message")
        open_uses = {block.id for block in blocks if isinstance(block, ToolUseContent)}
        if open_uses and message.role != "assistant":
            raise LocalProtocolError("only the assistant uses tools")
    if open_uses:
        raise LocalProtocolError("the last message leaves tool uses without results")


def _is_offered(needs: Mapping[str, Any], capabilities: ClientCapabilities) -> bool:
    """Whether the client declared what a question needs. `elicitation: {}` means forms only."""
    for name, parts in needs.items():
        offered = getattr(capabilities, name)
        if offered is None:
            return False
        if name == "elicitation" and "form" in parts and offered.form is None and offered.url is None:
            continue
        if any(getattr(offered, part) is None for part in parts):
            return False
    return True


class Rounds:
    """The questions and answers of one call, in whichever way its version asks."""

    def __init__(self, call: Call, peer: Peer, sealer: Sealer) -> None:
        self._call = call
        self._peer = peer
        self._sealer = sealer
        self._count = 0
        self._answers: dict[str, Raw] = {}
        self.kept: dict[str, Any] = {}
        if call.version.is_modern:
            self._open(call)

    def _open(self, call: Call) -> None:
        params = call.params
        state = getattr(params, "request_state", None)
        if state is not None:
            opened = self._sealer.open(self._binding(), state)
            self._answers.update(opened.answers)
            self.kept.update(opened.kept)
        raw = getattr(params, "input_responses", NO_JSON)
        if raw is not NO_JSON and bytes(raw) != b"null":
            try:
                self._answers.update(_decode_answers(raw))
            except MALFORMED as error:
                raise InvalidParams(f"inputResponses: {explain(error)}") from None

    def _binding(self) -> bytes:
        """What a state belongs to: the caller, the method, and the parameters that matter."""
        params = self._call.params
        arguments = getattr(params, "arguments", None)
        if isinstance(arguments, Raw):
            arguments = None if arguments is NO_JSON else _decode_any(arguments)
        subject = getattr(params, "name", None) or getattr(params, "uri", None)
        return _encode_sorted([self._call.session.principal, self._call.method, subject, arguments or None])

    def can_ask(self, question: Question) -> bool:
        """Whether this client, in this version, can be asked that."""
        version = self._call.version
        known = version.is_modern or question.method in version.server_requests
        return known and _is_offered(question.needs, self._call.client.capabilities)

    async def ask(self, questions: dict[str, Question], timeout: float | None) -> dict[str, Any]:
        """The answers by key. Ends the handler with InputNeeded where they have to be fetched by another round."""
        for question in questions.values():
            if not self.can_ask(question):
                raise self._missing(question)
        questions = {key: self._without_context(question) for key, question in questions.items()}
        if not self._call.version.is_modern:
            return {key: await self._request(question, timeout) for key, question in questions.items()}
        unanswered = {key: question for key, question in questions.items() if key not in self._answers}
        answers = {
            key: self._read_answer(key, question) for key, question in questions.items() if key not in unanswered
        }
        if unanswered:
            raise InputNeeded(unanswered)
        return answers

    def _without_context(self, question: Question) -> Question:
        """A question to the model asks for other servers' context only where the client has a capability for that.

        Spec: 2025-11-25 and 2026-07-28 client/sampling, capabilities. Versions without that capability leave it open.
        """
        params = question.params
        if not isinstance(params, CreateMessageParams) or params.include_context in (None, "none"):
            return question
        sampling = self._call.client.capabilities.sampling
        is_known = self._call.version.shape(_WITH_CONTEXT).context is not None
        if not is_known or (sampling is not None and sampling.context is not None):
            return question
        return replace(question, params=replace(params, include_context=None))

    def require(self, question: Question, key: str | None) -> NoReturn:
        """End the handler with a question by URL, in the way that this version has for it."""
        if not self.can_ask(question):
            raise self._missing(question)
        if not self._call.version.is_modern:
            raise UrlElicitationRequired([to_builtins(question.params)])
        name = key or self.next_key()
        if name in self._answers:
            self._read_answer(name, question).get()  # who declined is not asked again
        raise InputNeeded({name: question})

    def _read_answer(self, key: str, question: Question) -> Any:
        try:
            return question.read(self._answers[key])
        except MALFORMED as error:
            raise InvalidParams(f"inputResponses.{key}: {explain(error)}") from None

    def next_key(self) -> str:
        """A key for a question without one: the same in every round, since the handler runs the same way."""
        self._count += 1
        return f"question-{self._count}"

    def _missing(self, question: Question) -> Exception:
        """-32021 where the version has it; elsewhere a text, since nothing else is defined."""
        if self._call.version.is_modern:
            return MissingCapability(question.needs)
        names = ", ".join(".".join((name, *parts)) for name, parts in question.needs.items())
        return ToolError(f"This needs a client with the capability {names}, which yours does not offer")

    async def _request(self, question: Question, timeout: float | None) -> Any:
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

    def required(self, questions: Mapping[str, Question]) -> InputRequiredResult:
        """The result that asks the client for another round."""
        shape = self._call.version.shape
        requests = {
            key: InputRequest(method=question.method, params=shape(question.params))
            for key, question in questions.items()
        }
        try:
            state = self._sealer.seal(self._binding(), self._answers, self.kept)
        except (TypeError, ValueError, RecursionError, OverflowError):
            raise self._unkeepable() from None
        return InputRequiredResult(result_type="input_required", input_requests=requests, request_state=state)

    def _unkeepable(self) -> ToolError:
        """Which part of the state is no JSON; its text is for the author, who sees it as the answer."""
        for key, value in self.kept.items():
            try:
                _encode_sorted({key: value})
            except Exception as error:
                return ToolError(f"ctx.state[{key!r}] cannot be kept until the next round, it is no JSON: {error}")
        return ToolError("ctx.state cannot be kept until the next round: it is no JSON")


_WITH_CONTEXT = SamplingCapability(context={})
_decode_answers = Decoder(dict[str, Raw]).decode
_decode_any = Decoder().decode
_encode_sorted = Encoder(order="sorted").encode
