"""Questions to the client: elicitation, sampling and roots, and what each requires and returns.

`asking` sends them. Also explains names of other libraries in error messages. Spec: 2026-07-28
client/{elicitation,sampling,roots}.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import urandom
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeAlias, TypedDict, TypeVar, Unpack

from msgspec import Raw, Struct, convert
from msgspec.json import Decoder

from mcpd.errors import LocalProtocolError, ToolError
from mcpd.protocol.types.base import ClientCapabilities
from mcpd.protocol.types.features import TextContent, Tool
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    ListRootsParams,
    ListRootsResult,
    ModelPreferences,
    SamplingMessage,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from .forms import form_schema, read_form

__all__ = [
    "Answer",
    "Question",
    "SamplingOptions",
    "conversation_problem",
    "elicit_form",
    "elicit_url",
    "is_offered",
    "list_roots",
    "sample",
]


class SamplingOptions(TypedDict, total=False):
    """The members of `mcpd.types.CreateMessageParams` except the messages and the maximum length."""

    model_preferences: ModelPreferences | None
    system_prompt: str | None
    include_context: Literal["none", "thisServer", "allServers"] | None
    temperature: float | None
    stop_sequences: list[str] | None
    metadata: dict[str, Any] | None
    tools: list[Tool] | None
    tool_choice: ToolChoice | None


T = TypeVar("T")

Timeout: TypeAlias = float | None | Literal["default"]
"""The seconds that a client has to answer; None for no limit."""


class Answer(Struct, Generic[T]):
    """The user's answer to a question: `accept`, `decline` or `cancel`; `content` only if accepted."""

    action: str
    content: T | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise unknown("Answer", name)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "an Answer is neither true nor false: the user may have declined, or accepted with False; "
            "write answer.is_accepted, or answer.get() for the content"
        )

    @property
    def is_accepted(self) -> bool:
        """Whether the user accepted."""
        return self.action == "accept"

    def get(self) -> T:
        """Return the content. Raises ToolError, which ends a tool with a text for the model, if the user did not
        accept.
        """
        if self.content is None:
            raise ToolError("The user declined" if self.action == "decline" else "The user cancelled the question")
        return self.content


class Question(Struct, gc=False):
    """One thing to ask: the request, what its answer decodes to, and which capability the client needs for it.

    Made by `elicit_form`, `elicit_url`, `sample`, `list_roots`.
    """

    method: str
    params: Struct
    result: type
    needs: Mapping[str, Mapping[str, Any]]
    form: type | None = None
    """The type of an accepted form's values; None keeps a dict."""

    def read(self, raw: Raw | bytes) -> Any:
        """Return the client's answer. Raises ValidationError if it does not fit the question."""
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


def read_question(method: str, params: Any, needs: Mapping[str, Mapping[str, Any]]) -> Question:
    """Return a question from the JSON values of its members. Its answer is a dict, whatever type its form had."""
    if method == "elicitation/create":
        kind: Any = ElicitUrlParams if params.get("mode") == "url" else ElicitFormParams
        return Question(method, convert(params, kind), ElicitResult, needs)
    kind, result = _KINDS[method]
    return Question(method, convert(params, kind), result, needs)


_KINDS: Mapping[str, tuple[Any, type]] = {
    "sampling/createMessage": (CreateMessageParams, CreateMessageResult),
    "roots/list": (ListRootsParams, ListRootsResult),
}


# The capabilities that clients need.
_FORM: Mapping[str, Mapping[str, Any]] = {"elicitation": {"form": {}}}
_URL: Mapping[str, Mapping[str, Any]] = {"elicitation": {"url": {}}}


def elicit_form(message: str, form: type | Mapping[str, Any]) -> Question:
    """Return a question that shows the user a form: a struct, dataclass or TypedDict of primitives and enums, or a flat
    object schema.
    """
    schema, kind = form_schema(form)
    params = ElicitFormParams(mode="form", message=message, requested_schema=schema)
    return Question("elicitation/create", params, ElicitResult, _FORM, kind)


def elicit_url(message: str, url: str, elicitation_id: str | None = None) -> Question:
    """Return a question that asks the user to visit a URL. `accept` means consent to visit it, not completion."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0]
    if not scheme.isalpha() or not host or any(c.isspace() or not c.isprintable() for c in url):
        raise LocalProtocolError(f"{url!r} is not a URL that a user can visit")
    if elicitation_id is None:
        elicitation_id = urandom(16).hex()
    params = ElicitUrlParams(message=message, url=url, elicitation_id=elicitation_id)
    return Question("elicitation/create", params, ElicitResult, _URL)


def sample(
    messages: str | list[SamplingMessage], *, max_tokens: int = 1000, **options: Unpack[SamplingOptions]
) -> Question:
    """Return a request to the client's model: a text or a conversation. `options` are those of `Context.sample`.

    Raises LocalProtocolError for a conversation that the specification forbids.
    """
    if isinstance(messages, str):
        messages = [SamplingMessage("user", TextContent(messages))]
    params = CreateMessageParams(messages=messages, max_tokens=max_tokens, **options)
    if problem := conversation_problem(params):
        raise LocalProtocolError(problem)
    uses_tools = params.tools or params.tool_choice or any(map(_has_tool_content, messages))
    needs: dict[str, Any] = {"sampling": {"tools": {}} if uses_tools else {}}
    return Question("sampling/createMessage", params, CreateMessageResult, needs)


def list_roots() -> Question:
    """Return a question for the folders that the client lets the server use."""
    return Question("roots/list", ListRootsParams(), ListRootsResult, {"roots": {}})


def _has_tool_content(message: SamplingMessage) -> bool:
    blocks = message.content if isinstance(message.content, list) else [message.content]
    return any(isinstance(block, (ToolUseContent, ToolResultContent)) for block in blocks)


def conversation_problem(params: CreateMessageParams) -> str | None:
    """Return what is wrong with the tool uses and results of a conversation, or None.

    Spec: 2025-11-25 client/sampling, message constraints (S25-081, S25-082).
    """
    open_uses: set[str] = set()
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        results = {block.tool_use_id for block in blocks if isinstance(block, ToolResultContent)}
        if results and len(results) != len(blocks):
            return "a sampling message with tool results holds nothing else"
        if open_uses != results:
            return "each tool use is answered by its tool result in the very next message"

        open_uses = {block.id for block in blocks if isinstance(block, ToolUseContent)}
        if open_uses and message.role != "assistant":
            return "only the assistant uses tools"
    return "the last message leaves tool uses without results" if open_uses else None


def is_offered(needs: Mapping[str, Mapping[str, Any]], capabilities: ClientCapabilities) -> bool:
    """Return whether the client declared what a question needs. `elicitation: {}` means forms only."""
    for name, parts in needs.items():
        offered = getattr(capabilities, name)
        if offered is None:
            return False
        if name == "elicitation" and "form" in parts and offered.form is None and offered.url is None:
            continue
        if any(getattr(offered, part) is None for part in parts):
            return False
    return True


_STATE = "keep values between rounds in ctx.state, a dict"
_SERVER = "use the Server object of your module"
_REQUEST = "request_id, meta, client_info, lifespan, headers and user are on ctx itself"

_INSTEAD = {
    "report_progress": "write ctx.progress(progress, total, message)",
    "warn": "write ctx.warning(text)",
    "request_context": _REQUEST,
    "session": _REQUEST,
    "session_id": _REQUEST,
    "client_id": "write ctx.client_info.name",
    "lifespan_context": "write ctx.lifespan",
    "get_state": _STATE,
    "set_state": _STATE,
    "fastmcp": _SERVER,
    "mcp_server": _SERVER,
    "server": _SERVER,
    "read_resource": "call the function that makes the resource",
    "get_prompt": "call the function that makes the prompt",
    "send_tool_list_changed": "write server.tools_changed()",
    "data": "write answer.get(), or answer.content",
}


def unknown(kind: str, name: str) -> AttributeError:
    """Return the error for a name that objects of this class do not have."""
    instead = _INSTEAD.get(name)
    return AttributeError(f"{kind!r} object has no attribute {name!r}{f'; {instead}' if instead else ''}")
