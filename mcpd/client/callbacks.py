"""What a program does when the server asks for something, or tells something.

A client offers what it has a callback for, and nothing else. Callbacks may be plain functions or coroutine
functions; plain ones must not block.

Spec: 2026-07-28 client/{elicitation,sampling,roots}, server/utilities/logging.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder

from mcpd.client.limits import ClientLimits, Faults
from mcpd.client.session import Notified
from mcpd.errors import (
    ConnectionLost,
    InternalError,
    InvalidParams,
    McpdError,
    MethodNotFound,
    ProtocolError,
    RemoteError,
    UrlElicitationRequired,
)
from mcpd.protocol.jsonrpc import MALFORMED, encode, explain
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import (
    ClientCapabilities,
    ElicitationCapability,
    ListChanged,
    LogMessageParams,
    SamplingCapability,
    Wire,
)
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitationCompleteParams,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    ListRootsResult,
    Root,
)
from mcpd.protocol.types.resources import ResourceUpdatedParams
from mcpd.protocol.versions import table

T = TypeVar("T")
ListKind: TypeAlias = Literal["tools", "resources", "prompts"]
_Maybe: TypeAlias = T | Awaitable[T]


class Callbacks(Struct, frozen=True, kw_only=True):
    """Any of these may be left out; then the server cannot ask for it, or what it tells is dropped.

    A question that cannot be answered raises ProtocolError, whose code and text the server gets.
    `sample_tools` says that `sample` can let the model use the tools in its params.
    """

    elicit_form: Callable[[ElicitFormParams], _Maybe[ElicitResult]] | None = None
    elicit_url: Callable[[ElicitUrlParams], _Maybe[ElicitResult]] | None = None
    sample: Callable[[CreateMessageParams], _Maybe[CreateMessageResult]] | None = None
    sample_tools: bool = False
    roots: Callable[[], _Maybe[Sequence[Root]]] | None = None
    log: Callable[[LogMessageParams], _Maybe[None]] | None = None
    list_changed: Callable[[ListKind], _Maybe[None]] | None = None
    resource_updated: Callable[[str], _Maybe[None]] | None = None
    elicitation_complete: Callable[[str], _Maybe[None]] | None = None


def capabilities(callbacks: Callbacks, extensions: Mapping[str, Any] | None = None) -> ClientCapabilities:
    """What a client with these callbacks offers."""
    elicitation = None
    if callbacks.elicit_form is not None or callbacks.elicit_url is not None:
        elicitation = ElicitationCapability(
            form={} if callbacks.elicit_form is not None else None,
            url={} if callbacks.elicit_url is not None else None,
        )

    sampling = None
    if callbacks.sample is not None:
        sampling = SamplingCapability(tools={} if callbacks.sample_tools else None)

    return ClientCapabilities(
        roots=ListChanged(list_changed=True) if callbacks.roots is not None else None,
        sampling=sampling,
        elicitation=elicitation,
        extensions=dict(extensions) if extensions else None,
    )


async def answer_to(callbacks: Callbacks, method: str, params: Raw, faults: Faults) -> Any:
    """The result of a question of the server. Raises ProtocolError with what the server is to be told."""
    try:
        if method == "elicitation/create":
            return _result(await _elicit(callbacks, params))
        if method == "sampling/createMessage":
            return _result(await _sample(callbacks, params))
        if method == "roots/list" and callbacks.roots is not None:
            return ListRootsResult(roots=_files(await _settle(callbacks.roots())))
    except ProtocolError:
        raise
    except Exception as error:
        faults.say(logging.ERROR, "%s: the callback failed", printable(method), error=error)
        raise InternalError from error
    raise MethodNotFound(f"This client does not offer {method}")


def _files(roots: Sequence[Root]) -> list[Root]:
    """Spec: 2025-11-25 client/roots: "This MUST be a `file://` URI", and clients MUST validate them."""
    from urllib.parse import unquote  # most servers never ask for roots

    for root in roots:
        path = root.uri.removeprefix("file://")
        if path == root.uri or ".." in unquote(path).split("/"):
            raise ValueError(f"a root is a file:// URI without '..': {root.uri!r}")
    return list(roots)


def _result(given: Any) -> Any:
    if given is None:  # a callback that forgot its return: `"result": null` would be no answer
        raise TypeError("the callback gave None")
    return given


async def _elicit(callbacks: Callbacks, params: Raw) -> ElicitResult:
    """Spec: 2025-11-25 client/elicitation: "Requests with undeclared modes: -32602"; no mode is a form."""
    form, url = callbacks.elicit_form, callbacks.elicit_url
    if form is None and url is None:
        raise MethodNotFound("This client does not offer elicitation/create")
    mode = _decode(_read_mode, params).mode
    if mode is None or mode == "form":
        if form is not None:
            asked = _decode(_read_form, params)
            return _fitting(await _settle(form(asked)), asked.requested_schema)
    elif mode == "url" and url is not None:
        return await _settle(url(_decode(_read_url, params)))
    raise InvalidParams(f"This client does not offer elicitation in mode {mode or 'form'}")


def _fitting(result: ElicitResult, schema: Mapping[str, Any]) -> ElicitResult:
    """Spec: 2025-11-25 client/elicitation: "Clients SHOULD validate all responses against the provided schema"."""
    if getattr(result, "action", None) == "accept":
        from mcpd.server.context.forms import check_values

        try:
            check_values(result.content or {}, schema)
        except ValidationError as error:
            raise ValueError(f"what the callback gave does not fit the form: {error}") from None
        except (AttributeError, KeyError, TypeError):
            pass  # the server's schema is none of a form, and nothing can be held against it
    return result


async def _sample(callbacks: Callbacks, params: Raw) -> CreateMessageResult:
    if callbacks.sample is None:
        raise MethodNotFound("This client does not offer sampling/createMessage")
    asked = _decode(_read_sampling, params)
    if not callbacks.sample_tools and (asked.tools is not None or asked.tool_choice is not None):
        raise InvalidParams("This client offers sampling without tools")

    from mcpd.server.context.questions import conversation_problem

    # Spec: 2025-11-25 client/sampling, error handling: missing and mixed tool results are refused with -32602.
    if problem := conversation_problem(asked):
        raise InvalidParams(f"Invalid params: {problem}")
    return await _settle(callbacks.sample(asked))


def is_heard(callbacks: Callbacks, method: str) -> bool:
    """Whether there is a callback for a notification."""
    name = _HEARD.get(method)
    return name is not None and getattr(callbacks, name) is not None


def is_state(method: str) -> bool:
    """Whether a notification says that something is another now: told twice before anybody looks, it is news once."""
    return method in _CHANGES or method == "notifications/resources/updated"


async def tell(callbacks: Callbacks, method: str, params: Raw, faults: Faults) -> None:
    """Hand on what the server tells; what is malformed, unknown or unwanted is dropped."""
    try:
        found = _call_of(callbacks, method, params)
    except MALFORMED as error:
        faults.say(logging.WARNING, "the server sent a bad %s: %s", printable(method), printable(explain(error)))
        return

    if found is None:
        return
    callback, argument = found
    try:
        await _settle(callback(argument))
    except Exception as error:
        faults.say(logging.ERROR, "%s: the callback failed", printable(method), error=error)


def _call_of(callbacks: Callbacks, method: str, params: Raw) -> tuple[Callable[[Any], Any], Any] | None:
    kind = _CHANGES.get(method)
    if kind is not None:
        return None if callbacks.list_changed is None else (callbacks.list_changed, kind)
    if method == "notifications/message" and callbacks.log is not None:
        return callbacks.log, _read_log(params)
    if method == "notifications/resources/updated" and callbacks.resource_updated is not None:
        return callbacks.resource_updated, _read_updated(params).uri
    if method == "notifications/elicitation/complete" and callbacks.elicitation_complete is not None:
        return callbacks.elicitation_complete, _read_complete(params).elicitation_id
    return None


async def _settle(value: _Maybe[T]) -> T:
    return await value if isawaitable(value) else value


def _decode(read: Callable[[Raw], T], params: Raw) -> T:
    try:
        return read(params)
    except MALFORMED as error:
        raise InvalidParams(f"Invalid params: {explain(error)}") from None


class _Mode(Struct):
    mode: str | None = None


_CHANGES: dict[str, ListKind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}
_HEARD = {
    **dict.fromkeys(_CHANGES, "list_changed"),
    "notifications/message": "log",
    "notifications/resources/updated": "resource_updated",
    "notifications/elicitation/complete": "elicitation_complete",
}
_read_mode = Decoder(_Mode).decode
_read_form = Decoder(ElicitFormParams).decode
_read_url = Decoder(ElicitUrlParams).decode
_read_sampling = Decoder(CreateMessageParams).decode
_read_log = Decoder(LogMessageParams).decode
_read_updated = Decoder(ResourceUpdatedParams).decode
_read_complete = Decoder(ElicitationCompleteParams).decode

_MOST = 1000
"""So many are remembered: of more the oldest are forgotten, and a word about them is dropped."""


class _Named(Wire):
    elicitation_id: str | None = None


_read_named = Decoder(_Named).decode


class Visits:
    """The ids of one connection's pages."""

    def __init__(self) -> None:
        self._open: dict[str, None] = {}

    def asked(self, params: Raw) -> None:
        """The server asks something of the user: if it is to visit a page, its id is known from now on."""
        try:
            self._add(_read_named(params).elicitation_id)
        except MALFORMED:
            return  # whoever answers says what is wrong with it

    def required(self, error: RemoteError) -> None:
        """A request was refused until pages were visited: so are theirs."""
        if error.code != UrlElicitationRequired.code or not isinstance(error.data, dict):
            return
        found: Any = error.data.get("elicitations")
        for each in found if isinstance(found, list) else ():
            self._add(each.get("elicitationId") if isinstance(each, dict) else None)

    def complete(self, params: Raw) -> bool:
        """The server says that one is over: whether it is one that was open until now."""
        try:
            name = _read_named(params).elicitation_id
        except MALFORMED:
            return False
        if name is None or name not in self._open:
            return False
        del self._open[name]
        return True

    def _add(self, name: Any) -> None:
        if isinstance(name, str):
            self._open[name] = None
            if len(self._open) > _MOST:
                del self._open[next(iter(self._open))]


MAX_ROUNDS = 32
"""A server that still asks after so many answers would ask for ever."""

_LONGEST_PAUSE = 2.0


class _Question(Struct):
    method: str
    params: Raw = Raw(b"{}")


class _Needed(Wire, kw_only=True):
    """What of a result says that it is none yet."""

    result_type: str = "complete"
    input_requests: dict[str, _Question] | None = None
    request_state: str | None = None


_read_needed = Decoder(_Needed).decode
_members = Decoder(dict[str, Raw]).decode


async def run_rounds(
    method: str,
    ask: Callable[[Any], Awaitable[Raw]],
    params: Any,
    result: Raw,
    callbacks: Callbacks,
    limits: ClientLimits,
    faults: Faults,
) -> Raw:
    """The complete result, after as many rounds as it takes. `result` is that of the first, for `params`.

    Raises ProtocolError for a server that asks what was not offered, too much at once, or without end, and for a type
    of result that is unknown.
    """
    for number in range(MAX_ROUNDS):
        asked = needed(result)
        if asked is None:
            return result
        # Spec: servers must not ask on other requests of the specification; extensions may.
        if method not in SUBJECTS and table.is_known_method(method):
            raise ProtocolError(f"The server asks for input before it answers {method}, which has none")

        retry: dict[str, Any] = dict(_members(b"{}" if params is None else encode(params)))
        if asked.input_requests:
            if len(asked.input_requests) > limits.questions:
                raise ProtocolError(f"The server asked {limits.questions} questions and more (ClientLimits.questions)")
            retry["inputResponses"] = {
                key: await _answer(question, callbacks, faults) for key, question in asked.input_requests.items()
            }
        else:
            # Nothing to answer: the server only wants to be asked again, and not at once for ever.
            await asyncio.sleep(min(0.05 * 2**number, _LONGEST_PAUSE))

        if asked.request_state is not None:
            retry["requestState"] = asked.request_state
        result = await ask(retry)
    raise ProtocolError(f"The server asked for input {MAX_ROUNDS} times over")


def needed(result: Raw) -> _Needed | None:
    """What a result asks for before there is one; None if it is one. Raises ProtocolError for an unknown type."""
    try:
        asked = _read_needed(result)
    except MALFORMED as error:
        raise ProtocolError(f"The server's result cannot be read: {explain(error)}") from None
    if asked.result_type == "complete":
        return None
    if asked.result_type != "input_required":
        # Spec: 2026-07-28 basic/index: a type "unrecognized by the client MUST be considered invalid".
        raise ProtocolError(f"The server's result is of an unknown type: {asked.result_type[:100]!r}")
    return asked


async def _answer(question: _Question, callbacks: Callbacks, faults: Faults) -> Any:
    try:
        return await answer_to(callbacks, question.method, question.params, faults)
    except ProtocolError as error:
        raise ProtocolError(f"The server asked for {question.method[:100]}: {error.message}", error.data) from error


_PATIENCE = 4
"""How many times the limit may wait while the server has to be read on."""

_SMALL_BYTES = 200
"""What a message costs besides its bytes."""


class Inbox:
    """The notifications of one connection. `pause` stops reading the server or, given False, reads on.

    `deliver` runs as a task while anything waits; `ends` is called when the server has to be given up.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        limits: ClientLimits,
        faults: Faults,
        pause: Callable[[bool], bool],
        ends: Callable[[McpdError], None],
    ) -> None:
        self._callbacks = callbacks
        self._limits = limits
        self._faults = faults
        self._pause = pause
        self._ends = ends

        self._waiting: deque[tuple[str, Raw, int]] = deque()
        self._bytes = 0
        self._states: set[tuple[str, bytes]] = set()
        """What waits to be told that is news once, however often it came."""

        self._asking = 0
        """How many requests callbacks wait for."""
        self._is_paused = False
        self._is_delivering = False
        self.has_delivered = False
        """Whether any callback was ever called for it: before, none can ask anything, and `begin_request` is False."""

    @property
    def is_paused(self) -> bool:
        """Whether the server is not read."""
        return self._is_paused

    def put(self, told: Notified) -> bool:
        """Take one; whether `deliver` has to be started for it."""
        method, params = told.method, told.params
        if not is_heard(self._callbacks, method):
            return False

        if is_state(method):
            state = (method, bytes(params))
            if state in self._states:
                return False
            self._states.add(state)

        size = len(params) + _SMALL_BYTES
        self._waiting.append((method, params, size))
        self._bytes += size
        if len(self._waiting) > self._limits.waiting_messages or self._bytes > self._limits.waiting_bytes:
            self._is_full()

        if self._is_delivering:
            return False
        self._is_delivering = True
        return True

    def _is_full(self) -> None:
        limits = self._limits

        # Not while a callback waits for an answer of the server: that would never be read.
        if not self._asking and not self._is_paused:
            self._is_paused = self._pause(True)
            if self._is_paused:
                self._faults.say(
                    logging.INFO, "the server tells more than callbacks take: it is not read until they have"
                )
        if self._is_paused:
            return  # what still comes was on its way already

        if len(self._waiting) > _PATIENCE * limits.waiting_messages:
            self._give_up(f"{_PATIENCE * limits.waiting_messages} messages", "waiting_messages")
        elif self._bytes > _PATIENCE * limits.waiting_bytes and len(self._waiting) > 1:
            self._give_up(f"{_PATIENCE * limits.waiting_bytes} bytes", "waiting_bytes")

    def _give_up(self, much: str, limit: str) -> None:
        text = f"The server told more than callbacks could take: {much} wait (ClientLimits.{limit}, four times over)"
        self._ends(ConnectionLost(text))

    def clear(self) -> None:
        """Forget what waits: nobody is to hear it any more."""
        self._waiting.clear()
        self._states.clear()
        self._bytes = 0

    async def deliver(self, took: Callable[[], None]) -> None:
        """Call the callbacks until nothing waits; `took` is called after each."""
        _delivering.set(self)
        self.has_delivered = True
        try:
            while self._waiting:
                method, params, size = self._waiting.popleft()
                if self._states:
                    self._states.discard((method, bytes(params)))
                await tell(self._callbacks, method, params, self._faults)
                # Only now: what a callback works on is held as well.
                self._bytes = max(0, self._bytes - size)
                took()
                self._read_on()
        finally:
            self._is_delivering = False

    def _read_on(self) -> None:
        limits = self._limits
        if self._is_paused and (
            self._asking
            or (2 * len(self._waiting) <= limits.waiting_messages and 2 * self._bytes <= limits.waiting_bytes)
        ):
            self._is_paused = False
            self._pause(False)

    def begin_request(self) -> bool:
        """A request is about to wait for its answer; whether it is a callback of ours that asks."""
        if _delivering.get() is not self:
            return False
        self._asking += 1
        self._read_on()
        return True

    def end_request(self) -> None:
        """The callback has its answer."""
        self._asking -= 1


def detached() -> Context:
    """The context for a task that a callback starts and does not wait for: what it asks need not be read at once."""
    context = copy_context()
    context.run(_delivering.set, None)
    return context


_delivering: ContextVar[Inbox | None] = ContextVar("mcpd_delivering", default=None)
"""The inbox on whose behalf a callback runs, and the tasks that it has started."""
