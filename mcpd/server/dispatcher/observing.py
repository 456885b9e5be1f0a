"""How a server is observed: the hooks of a connection, those that call `Observer`s, and the log of calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from time import perf_counter
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import encode

from mcpd.errors import ProtocolError
from mcpd.protocol.channel import Channel
from mcpd.protocol.jsonrpc import Failure, Id, Message, Request, Response
from mcpd.protocol.methods import METHODS, subject_of
from mcpd.protocol.observer import ObservedCall, ObservedFrame, Observer, Outcome, OutcomeKind
from mcpd.protocol.printable import printable
from mcpd.protocol.session import Call, Session, SessionHooks
from .connection import ServerConnection

log = logging.getLogger("mcpd")

# Characters of the arguments of one call that are logged, if arguments are logged at all.
MOST_ARGUMENT_CHARACTERS = 4096

_SUBJECTS = {method: row.entry if row.subject == "name" else "uri" for method, row in METHODS.items() if row.subject}
_numbers = count(1)


class HookedObserver(Observer):
    """An observer of mcpd itself, whose hooks the sessions call directly. Its `Observer` methods are not called."""

    def hooks_for(self, transport: str) -> SessionHooks:
        """Return the hooks for a connection over stdio, http, websocket or memory."""
        raise NotImplementedError

    def refused(self, reason: str) -> None:
        """Something was refused before a session received it; `reason` is an HTTP status or a JSON-RPC code."""

    def task_changed(self, tool: str, status: str | None, seconds: float) -> None:
        """A task was created (`status` is None), or has ended `seconds` after that."""

    def backplane_answered(self, command: str, seconds: float, error: str) -> None:
        """The backplane executed a command; `error` is "away", the class of the exception, or empty."""


def refusal_counter(observers: Iterable[Observer]) -> Callable[[str], object] | None:
    """Return a function that reports refusals to all observers that count them; None if there is no such observer."""
    counters = [observer.refused for observer in observers if isinstance(observer, HookedObserver)]
    if not counters:
        return None

    def count(reason: str) -> None:
        for counter in counters:
            counter(reason)

    return count


def hooks_for(observers: Sequence[Observer], channel: Channel) -> tuple[SessionHooks, ...]:
    """Return the hooks of a new connection. At log level debug, the call log is one of the observers."""
    transport = channel.origin().transport
    hooks = [observer.hooks_for(transport) for observer in observers if isinstance(observer, HookedObserver)]
    others = [observer for observer in observers if not isinstance(observer, HookedObserver)]
    # An option of `mcpd serve` may have added a call log already.
    if log.isEnabledFor(logging.DEBUG) and not any(isinstance(observer, CallLog) for observer in others):
        others.append(CallLog())
    if others:
        hooks.append(_ObserverHooks(others, transport))
    return tuple(hooks)


def observes_frames(observer: Observer) -> bool:
    """Whether an observer overrides a method for frames."""
    own = type(observer)
    return not isinstance(observer, HookedObserver) and any(
        getattr(own, name, None) not in (None, getattr(Observer, name)) for name in ("frame_received", "frame_sent")
    )


class _ObserverHooks(SessionHooks):
    # Calls observers for one connection, which has a number that is unique in the process.
    def __init__(self, observers: Sequence[Observer], transport: str) -> None:
        self._observers = observers
        self._frame_observers = [observer for observer in observers if observes_frames(observer)]
        self._transport = transport
        self._number = next(_numbers)
        self._with_arguments = any(getattr(observer, "hears_arguments", False) for observer in observers)
        self._calls: dict[Call, ObservedCall] = {}
        self.observes_frames = bool(self._frame_observers)

    def _notify(self, observers: Sequence[Observer], event: str, *values: Any) -> None:
        for observer in observers:
            try:
                getattr(observer, event)(*values)
            except Exception as error:
                log.error("observer %s failed in %s", printable(type(observer)), printable(event), exc_info=error)

    def _observed(self, session: Session, request: Request | Call) -> ObservedCall:
        return ObservedCall(
            self._number, request.id, request.method, principal=session.opening.principal, transport=self._transport
        )

    def connection_opened(self) -> None:
        self._notify(self._observers, "connection_opened", self._number)

    def connection_closed(self, session: Session, seconds: float) -> None:
        self._notify(self._observers, "connection_closed", self._number, seconds)

    def request_refused(self, session: Session, request: Request, error: ProtocolError) -> None:
        observed = self._observed(session, request)
        self._notify(self._observers, "call_began", observed)
        self._notify(self._observers, "call_ended", observed, Outcome("refused", 0.0, error.code))

    def call_began(self, call: Call) -> None:
        params = call.params
        observed = self._calls[call] = self._observed(call.session, call)
        observed.subject = subject_of(params)
        observed.version = call.version.name
        info = call.client.info
        if info is not None:
            observed.client = f"{info.name}/{info.version}"
        if self._with_arguments:
            observed.arguments = _as_json(getattr(params, "arguments", None))
        self._notify(self._observers, "call_began", observed)

    def call_ended(self, call: Call, kind: OutcomeKind, code: int | None = None, is_error: bool = False) -> None:
        observed = self._calls.pop(call, None)
        if observed is not None:
            observed.trace = "" if call.trace is None else call.trace().traceparent
            outcome = Outcome(kind, perf_counter() - call.began, code, is_error)
            self._notify(self._observers, "call_ended", observed, outcome)

    def frame_received(self, connection: ServerConnection, frame: bytes, message: object) -> None:
        method, request_id = getattr(message, "method", ""), None
        if isinstance(message, Request):
            request_id = message.id
        elif isinstance(message, (Response, Failure)):
            method = connection.method_of(message.id)
        elif isinstance(message, ProtocolError):
            request_id = message.request_id
        observed = ObservedFrame(self._number, frame, method, request_id)
        self._notify(self._frame_observers, "frame_received", observed)

    def frame_sent(self, frame: bytes, related_request_id: Id | None, method: str | None) -> None:
        observed = ObservedFrame(self._number, frame, method or "", related_request_id)
        self._notify(self._frame_observers, "frame_sent", observed)


def _as_json(arguments: Any) -> bytes:
    return bytes(arguments) if isinstance(arguments, Raw) else encode(arguments) if arguments else b""


class PostFrames(Struct, eq=False):
    """The frames of one HTTP POST: its body, and the response, which does not pass the connection's channel."""

    _body: bytes
    _message: Message | list[Message | ProtocolError]
    _connection: ServerConnection | None = None

    def begin(self, connection: ServerConnection) -> None:
        """Report the body, once the connection of the POST is known."""
        self._connection = connection
        connection.frame_received(self._body, self._message)
        self._body = b""

    def sent(self, frame: bytes) -> None:
        """Report the response. A response that was sent before the connection was known is not reported."""
        if self._connection is not None:
            message = self._message
            if isinstance(message, Request):
                self._connection.frame_sent(frame, message.id, message.method)
            else:
                self._connection.frame_sent(frame, None, None)


class CallLog(Observer):
    """Logs each call with its method, id, outcome and duration at `level`.

    Params and results are not logged, because they may contain secrets. With `arguments` those of tools and prompts
    are, as the JSON that was received.
    """

    def __init__(self, level: int = logging.DEBUG, *, arguments: bool = False) -> None:
        self._level = level
        self.hears_arguments = arguments

    def call_ended(self, call: ObservedCall, outcome: Outcome) -> None:
        fields = _fields(call, outcome)
        shown_arguments = ""
        if call.arguments:
            fields["arguments"] = printable(call.arguments.decode("utf-8", "replace"), MOST_ARGUMENT_CHARACTERS)
            shown_arguments = f"; arguments {fields['arguments']}"

        shown = outcome.kind if outcome.code is None else f"{outcome.kind} with {outcome.code}"
        if outcome.kind != "refused":
            shown += f" after {outcome.seconds * 1000:.1f} ms{shown_arguments}"
        log.log(
            self._level, "%s (id %s): %s",
            printable(call.method), printable(call.id), printable(shown, 2 * MOST_ARGUMENT_CHARACTERS),
            extra={"mcpd_fields": fields},
        )  # fmt: skip


def _fields(call: ObservedCall, outcome: Outcome) -> dict[str, Any]:
    # Return the fields of the JSON log, without empty ones.
    subject = _SUBJECTS.get(call.method, "subject")
    fields: dict[str, Any] = {
        "request": printable(call.id),
        "method": printable(call.method),
        subject: printable(call.subject),
        "client": printable(call.client),
        "principal": call.principal,
        "connection": call.connection,
        "version": call.version,
        "transport": call.transport,
        "ms": round(outcome.seconds * 1000, 3),
        "outcome": "tool_error" if outcome.is_error else outcome.kind,
        "code": outcome.code,
        "trace_id": call.trace[3:35],
        "span_id": call.trace[36:52],
    }
    return {name: value for name, value in fields.items() if value not in ("", None)}
