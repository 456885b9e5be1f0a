"""Functions of the program that the server may call, and how its requests and notifications reach them.

    Callbacks            the functions; a client offers only the capabilities that it has functions for.
    answer_request       answers a request of the server (legacy), `complete_rounds` a result that asks for input.
    NotificationQueue    notifications wait here for their callbacks, which are called one after the other.
    UrlElicitations      the pages that the server has asked the user to visit.

Spec: 2026-07-28 client/{elicitation,sampling,roots}, server/utilities/logging, basic/patterns/mrtr; 2025-11-25
client/elicitation.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Raw, Struct, ValidationError
from msgspec.json import Decoder

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
from mcpd.protocol.types.features import ResourceUpdatedParams
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
from mcpd.protocol.types.tasks import TASKS
from mcpd.protocol.versions import table
from .limits import ClientLimits, Faults
from .session import NotificationReceived

T = TypeVar("T")
ListKind: TypeAlias = Literal["tools", "resources", "prompts"]
_Maybe: TypeAlias = T | Awaitable[T]


class Callbacks(Struct, frozen=True, kw_only=True):
    """Functions that the server may call. All are optional, and may be plain or coroutine functions; plain ones must
    not block.

    Without a function, the server cannot send the request, and notifications are dropped. A function may raise
    ProtocolError, whose code and text the server receives. `sample_tools` announces that `sample` can use the tools in
    its params.
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
    """Return the capabilities of a client with these callbacks. Every client supports tasks."""
    form: dict[str, Any] | None = None if callbacks.elicit_form is None else {}
    url: dict[str, Any] | None = None if callbacks.elicit_url is None else {}
    sampling = SamplingCapability(tools={} if callbacks.sample_tools else None)
    return ClientCapabilities(
        roots=None if callbacks.roots is None else ListChanged(list_changed=True),
        sampling=None if callbacks.sample is None else sampling,
        elicitation=None if form is url is None else ElicitationCapability(form=form, url=url),
        extensions={TASKS: {}, **(extensions or {})},
    )


async def answer_request(callbacks: Callbacks, method: str, params: Raw, faults: Faults) -> Any:
    """Return the result of a request of the server. Raises ProtocolError with the error for the server."""
    try:
        result: Any
        if method == "elicitation/create":
            result = await _elicit(callbacks, params)
        elif method == "sampling/createMessage":
            result = await _sample(callbacks, params)
        elif method == "roots/list" and callbacks.roots is not None:
            result = ListRootsResult(roots=_files(await settled(callbacks.roots())))
        else:
            raise MethodNotFound(f"This client does not offer {method}")
        # Probably a missing return; `"result": null` would not be a valid response.
        if result is None:
            raise TypeError("the callback returned None")
        return result
    except ProtocolError:
        raise
    except Exception as error:
        faults.log(logging.ERROR, "%s: the callback failed", printable(method), error=error)
        raise InternalError from error


def _files(roots: Sequence[Root]) -> list[Root]:
    # Spec: 2025-11-25 client/roots: "This MUST be a `file://` URI", and clients MUST validate them.
    from urllib.parse import unquote  # most servers never ask for roots

    for root in roots:
        path = root.uri.removeprefix("file://")
        # Decoded first, because `%2e%2e` is the same folder.
        if path == root.uri or ".." in unquote(path).split("/"):
            raise ValueError(f"a root must be a file:// URI without '..': {root.uri!r}")
    return list(roots)


async def _elicit(callbacks: Callbacks, params: Raw) -> ElicitResult:
    # Spec: 2025-11-25 client/elicitation: "Requests with undeclared modes: -32602"; a missing mode means a form.
    form, url = callbacks.elicit_form, callbacks.elicit_url
    if form is None and url is None:
        raise MethodNotFound("This client does not offer elicitation/create")

    mode = _decode(_read_mode, params).mode
    if mode is None or mode == "form":
        if form is not None:
            asked = _decode(_read_form, params)
            return _checked_form(await settled(form(asked)), asked.requested_schema)
    elif mode == "url" and url is not None:
        return await settled(url(_decode(_read_url, params)))
    raise InvalidParams(f"This client does not offer elicitation in mode {mode or 'form'}")


def _checked_form(result: ElicitResult, schema: Mapping[str, Any]) -> ElicitResult:
    # Spec: 2025-11-25 client/elicitation: "Clients SHOULD validate all responses against the provided schema".
    if getattr(result, "action", None) == "accept":
        from mcpd.server.context.forms import check_values

        try:
            check_values(result.content or {}, schema)
        except ValidationError as error:
            raise ValueError(f"the result of the callback does not match the form: {error}") from None
        except (AttributeError, KeyError, TypeError):
            pass  # the server's schema is not the schema of a form, so the values cannot be checked
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
    return await settled(callbacks.sample(asked))


def has_callback(callbacks: Callbacks, method: str) -> bool:
    return method in _NOTIFICATIONS and getattr(callbacks, _NOTIFICATIONS[method][0]) is not None


def is_change(method: str) -> bool:
    """Whether a notification reports a change. If it is repeated before it is processed, it counts once."""
    return method in _CHANGES or method == "notifications/resources/updated"


async def dispatch_notification(callbacks: Callbacks, method: str, params: Raw, faults: Faults) -> None:
    """Call the callback for a notification. Invalid, unknown and unwanted notifications are dropped."""
    if not has_callback(callbacks, method):
        return
    name, read = _NOTIFICATIONS[method]
    try:
        argument = read(params)
    except MALFORMED as error:
        faults.log(logging.WARNING, "the server sent an invalid %s: %s", printable(method), printable(explain(error)))
        return

    try:
        await settled(getattr(callbacks, name)(argument))
    except Exception as error:
        faults.log(logging.ERROR, "%s: the callback failed", printable(method), error=error)


async def settled(value: _Maybe[T]) -> T:
    """Return the result of a function that may be a coroutine function."""
    return await value if isawaitable(value) else value


async def run_in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a plain function on a thread of its own and return its result. The function may block.

    A thread of the loop's executor would delay interpreter exit for as long as the function blocks.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def run() -> None:
        value: Any = None
        raised: Exception | None = None
        try:
            value = function(*arguments)
        except Exception as error:
            raised = error
        except BaseException as error:  # `sys.exit` must end neither the thread's caller nor the loop
            raised = RuntimeError(f"the callback raised {error!r}")
        with suppress(RuntimeError):  # the loop has stopped
            loop.call_soon_threadsafe(settle, value, raised)

    context = copy_context()
    threading.Thread(target=context.run, args=(run,), name="mcpd-callback", daemon=True).start()
    return await answer


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
_read_mode = Decoder(_Mode).decode
_read_form = Decoder(ElicitFormParams).decode
_read_url = Decoder(ElicitUrlParams).decode
_read_sampling = Decoder(CreateMessageParams).decode
_read_updated = Decoder(ResourceUpdatedParams).decode
_read_complete = Decoder(ElicitationCompleteParams).decode

# The callback for each notification, and the function that reads its argument from the params.
_NOTIFICATIONS: dict[str, tuple[str, Callable[[Raw], Any]]] = {
    **{method: ("list_changed", lambda _, kind=kind: kind) for method, kind in _CHANGES.items()},  # type: ignore[misc]
    "notifications/message": ("log", Decoder(LogMessageParams).decode),
    "notifications/resources/updated": ("resource_updated", lambda params: _read_updated(params).uri),
    "notifications/elicitation/complete": (
        "elicitation_complete",
        lambda params: _read_complete(params).elicitation_id,
    ),
}

# Maximum number of open elicitations. The oldest ones are forgotten.
_MOST = 1000


class _Named(Wire):
    elicitation_id: str | None = None


_read_named = Decoder(_Named).decode


class UrlElicitations:
    """The ids of open URL elicitations on one connection.

    Spec: 2025-11-25 client/elicitation, completion notifications: clients "MUST ignore notifications referencing
    unknown or already-completed IDs".
    """

    def __init__(self) -> None:
        self._open: dict[str, None] = {}

    def asked(self, params: Raw) -> None:
        try:
            self._add(_read_named(params).elicitation_id)
        except MALFORMED:
            return  # answering the request reports the error

    def required(self, error: RemoteError) -> None:
        if error.code != UrlElicitationRequired.code or not isinstance(error.data, dict):
            return
        required: Any = error.data.get("elicitations")
        for elicitation in required if isinstance(required, list) else ():
            self._add(elicitation.get("elicitationId") if isinstance(elicitation, dict) else None)

    def complete(self, params: Raw) -> bool:
        """Process a completion. Return whether the elicitation was open."""
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
"""Maximum number of rounds, in case a server asks for input forever."""

_LONGEST_PAUSE = 2.0


class _Question(Struct):
    method: str
    params: Raw = Raw(b"{}")


class _InputRequired(Wire, kw_only=True):
    result_type: str = "complete"
    input_requests: dict[str, _Question] | None = None
    request_state: str | None = None


_decode_input_required = Decoder(_InputRequired).decode
_members = Decoder(dict[str, Raw]).decode


async def complete_rounds(
    method: str,
    ask: Callable[[Any], Awaitable[Raw]],
    params: Any,
    result: Raw,
    callbacks: Callbacks,
    limits: ClientLimits,
    faults: Faults,
) -> Raw:
    """Return the final result or the new task, after as many rounds as necessary. `result` is the result of the first
    request with `params`.

    Spec: 2026-07-28 basic/patterns/mrtr, client requirements: the state is echoed exactly, and responses belong to the
    retry of this request only. Raises ProtocolError if the server asks for input that the client does not offer, for
    too much at once, or without end, and for an unknown type of result.
    """
    for number in range(MAX_ROUNDS):
        asked = read_input_required(result, method)
        if asked is None or asked.result_type == "task":
            return result
        # Spec: servers must not ask on other requests of the specification; extensions may.
        if method not in SUBJECTS and table.is_known_method(method):
            raise ProtocolError(f"The server asks for input for {method}, which the protocol does not allow")

        # Encoded again, because params may be a struct, a mapping or raw JSON.
        retry: dict[str, Any] = dict(_members(b"{}" if params is None else encode(params)))
        if asked.input_requests:
            if len(asked.input_requests) > limits.questions:
                text = f"The server asked for more than {limits.questions} inputs (ClientLimits.questions)"
                raise ProtocolError(text)
            retry["inputResponses"] = {
                key: await answer_question(question.method, question.params, callbacks, faults)
                for key, question in asked.input_requests.items()
            }
        else:
            # Without inputs, the server only wants the request to be repeated. Pause, to avoid a busy loop.
            await asyncio.sleep(min(0.05 * 2**number, _LONGEST_PAUSE))

        if asked.request_state is not None:
            retry["requestState"] = asked.request_state
        result = await ask(retry)
    raise ProtocolError(f"The server asked for input {MAX_ROUNDS} times")


def read_input_required(result: Raw, method: str) -> _InputRequired | None:
    """Return the input that a result asks for, or its type "task"; None for a final result.

    Raises ProtocolError for other types, and for a task of another method than `tools/call`.
    """
    try:
        asked = _decode_input_required(result)
    except MALFORMED as error:
        raise ProtocolError(f"The server's result is invalid: {explain(error)}") from None

    if asked.result_type == "complete":
        return None
    if asked.result_type != "input_required" and (asked.result_type != "task" or method != "tools/call"):
        # Spec: 2026-07-28 basic/index: a type "unrecognized by the client MUST be considered invalid".
        # tasks-extension: so must be a task "in response to an unsupported request type".
        raise ProtocolError(f"The server's result has an unknown type: {asked.result_type[:100]!r}")
    return asked


async def answer_question(method: str, params: Raw, callbacks: Callbacks, faults: Faults) -> Any:
    """Return the answer to a question in a result. Raises ProtocolError if the client does not offer it."""
    try:
        return await answer_request(callbacks, method, params, faults)
    except ProtocolError as error:
        raise ProtocolError(f"The server asked for {method[:100]}: {error.message}", error.data) from error


# Multiple of the limit that may wait while the client must read on.
_PATIENCE = 4

# Memory that a message needs in addition to its bytes.
_SMALL_BYTES = 200


class NotificationQueue:
    """The notifications of one connection that wait for their callbacks, which are called one after the other.

    `pause` stops reading from the server, or continues if its argument is False. `deliver` runs as a task while
    anything waits. `ends` is called if the server exceeds a limit. While the queue is full, the server is not read.
    There is one exception: a callback that waits for a response of the server needs the client to read on.
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
        # Waiting notifications of changes, which count once however often they arrive.
        self._states: set[tuple[str, bytes]] = set()

        self._asking = 0
        self.is_paused = False
        """Whether reading from the server is paused."""
        self._is_delivering = False
        self.has_delivered = False
        """Whether any callback was called. Before that, `begin_request` always returns False."""

    def put(self, notification: NotificationReceived) -> bool:
        """Add a notification. Return whether `deliver` must be started."""
        method, params = notification.method, notification.params
        if not has_callback(self._callbacks, method):
            return False

        if is_change(method):
            state = (method, bytes(params))
            if state in self._states:
                return False
            self._states.add(state)

        # Many small notifications need more memory than their bytes.
        size = len(params) + _SMALL_BYTES
        self._waiting.append((method, params, size))
        self._bytes += size
        if len(self._waiting) > self._limits.waiting_messages or self._bytes > self._limits.waiting_bytes:
            self._is_full()

        # Callbacks run one after the other, in the order of the notifications.
        if self._is_delivering:
            return False
        self._is_delivering = True
        return True

    def _is_full(self) -> None:
        limits = self._limits

        # Not while a callback waits for a response, which would never be read.
        if not self._asking and not self.is_paused:
            self.is_paused = self._pause(True)
            if self.is_paused:
                self._faults.log(
                    logging.INFO, "the server sends notifications faster than callbacks process them; reading is paused"
                )
        if self.is_paused:
            return  # messages that still arrive were already being received

        exceeded = ""
        if len(self._waiting) > _PATIENCE * limits.waiting_messages:
            exceeded = "waiting_messages"
        elif self._bytes > _PATIENCE * limits.waiting_bytes and len(self._waiting) > 1:
            exceeded = "waiting_bytes"
        if exceeded:
            most, unit = _PATIENCE * getattr(limits, exceeded), exceeded.removeprefix("waiting_")
            limit = f"{_PATIENCE} times ClientLimits.{exceeded}"
            self._ends(ConnectionLost(f"The server sent too many notifications: {most} {unit} wait ({limit})"))

    def clear(self) -> None:
        self._waiting.clear()
        self._states.clear()
        self._bytes = 0

    async def deliver(self, took: Callable[[], None]) -> None:
        """Call the callbacks until nothing waits. `took` is called after each."""
        # Requests that the callbacks send find this queue in their context, also in tasks that they start.
        _delivering.set(self)
        self.has_delivered = True
        try:
            while self._waiting:
                method, params, size = self._waiting.popleft()
                if self._states:
                    # From now on the same change counts as another one.
                    self._states.discard((method, bytes(params)))
                await dispatch_notification(self._callbacks, method, params, self._faults)
                # Only now, because a notification that is being processed also needs memory.
                self._bytes = max(0, self._bytes - size)
                took()
                self._read_on()
        finally:
            self._is_delivering = False

    def _read_on(self) -> None:
        limits = self._limits
        if self.is_paused and (
            self._asking
            or (2 * len(self._waiting) <= limits.waiting_messages and 2 * self._bytes <= limits.waiting_bytes)
        ):
            self.is_paused = False
            self._pause(False)

    def begin_request(self) -> bool:
        """A request starts to wait for its response. Return whether a callback of this queue sent it."""
        if _delivering.get() is not self:
            return False
        # While it waits, the client must read on, or the response would never arrive.
        self._asking += 1
        self._read_on()
        return True

    def end_request(self) -> None:
        self._asking -= 1


def detached() -> Context:
    """Return a context for a task that a callback starts but does not wait for."""
    context = copy_context()
    context.run(_delivering.set, None)
    return context


# The queue whose callback is running; also set in tasks that the callback has started.
_delivering: ContextVar[NotificationQueue | None] = ContextVar("mcpd_delivering", default=None)
