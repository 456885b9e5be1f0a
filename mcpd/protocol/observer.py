"""`Observer`: receives connections, calls and frames of a server, as `Server(observers=[…])`; and what sessions call.

Observers run in the event loop, between a request and its response: they must return quickly and never wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from mcpd.errors import ProtocolError
    from mcpd.protocol.jsonrpc import Id, Request
    from mcpd.protocol.session import Call, Session

OutcomeKind: TypeAlias = Literal["answered", "failed", "cancelled", "refused"]


class ObservedCall(Struct, eq=False):
    """A request that a server received. `call_began` and `call_ended` get the same object."""

    connection: int
    """The number of its connection. Over HTTP in 2026-07-28 each request has a connection of its own."""
    id: str | int | float | None
    """The JSON-RPC id."""
    method: str
    """The method as received; it can be any text if the outcome is `refused`."""
    subject: str = ""
    """The name of the tool or prompt, or the URI of the resource; empty for other methods."""
    version: str = ""
    """The protocol version; empty if the request was refused."""
    client: str = ""
    """The client's name and version; empty if it did not send them, or the request was refused."""
    principal: str = ""
    """The `Principal.id` of the sender; empty for an anonymous one."""
    trace: str = ""
    """The `traceparent` of its span, set when the call ends; empty unless requests are traced."""
    transport: str = ""
    """stdio, http, websocket or memory."""
    arguments: bytes = b""
    """The arguments of a tool or prompt as JSON; only if an observer sets `hears_arguments`."""


class Outcome(Struct, frozen=True):
    """How a call ended."""

    kind: OutcomeKind
    """`failed`: with an error response; `refused`: with an error response before any handler ran."""
    seconds: float
    code: int | None = None
    """The code of the error response."""
    is_error: bool = False
    """Whether the result is a tool result that reports an error."""


class ObservedFrame(Struct, frozen=True, eq=False):
    """One message, or one batch of messages, received or sent."""

    connection: int
    """The number of its connection, as in `ObservedCall`."""
    data: bytes
    """The JSON text in UTF-8, without the transport's framing. It may contain secrets."""
    method: str = ""
    """The method of the request or notification, or of the request that the frame answers; empty for batches and for
    malformed frames."""
    related_request_id: str | int | float | None = None
    """The id of the client's request that the frame is, answers or belongs to; None if there is none."""


class Observer(Protocol):
    """Base class of observers. Override the methods that you need; exceptions that they raise are logged."""

    hears_arguments: bool = False
    """Whether calls have their `arguments`, which may contain secrets."""

    def connection_opened(self, connection: int) -> None:
        """A client has connected, or has begun a session. Requests without a session, over HTTP, open none."""
        return

    def connection_closed(self, connection: int, seconds: float) -> None:
        """A connection has ended. `seconds` is how long it lasted."""
        return

    def call_began(self, call: ObservedCall) -> None:
        """The server has received a request."""
        return

    def call_ended(self, call: ObservedCall, outcome: Outcome) -> None:
        """A request was answered or cancelled. Nothing more is sent for it."""
        return

    def frame_received(self, frame: ObservedFrame) -> None:
        """A frame has arrived and is handled next. Frames cost nothing unless an observer overrides this method."""
        return

    def frame_sent(self, frame: ObservedFrame) -> None:
        """A frame was given to the transport. A client that resumes a stream may receive it again."""
        return


class SessionHooks:
    """Functions that a session and its connection call. Each does nothing by default.

    There is one way to observe a server: all sessions call their hooks, and a session of a server without observers
    has none. `dispatcher.observing` has the hooks that call `Observer`s.
    """

    observes_frames = False
    """Whether the connection calls `frame_received` and `frame_sent`."""

    def connection_opened(self) -> None:
        """A connection that lasts was opened."""

    def connection_closed(self, session: Session, seconds: float) -> None:
        """The connection has ended after so many `seconds`."""

    def call_began(self, call: Call) -> None:
        """A call was opened."""

    def call_ended(self, call: Call, kind: OutcomeKind, code: int | None = None, is_error: bool = False) -> None:
        """A call was closed; the arguments are those of `Outcome`."""

    def request_refused(self, session: Session, request: Request, error: ProtocolError) -> None:
        """No call was opened for a request."""

    def refused(self, reason: str) -> None:
        """An error response was sent to a message that never became a call; `reason` is its code."""

    def frame_received(self, connection: Any, frame: bytes, message: object) -> None:
        """A frame has arrived; `message` is the decoded message, or the error if it could not be decoded."""

    def frame_sent(self, frame: bytes, related_request_id: Id | None, method: str | None) -> None:
        """A frame was given to the channel."""


class HookedObserver(Observer):
    """An observer of mcpd itself, whose hooks the sessions call directly. Its `Observer` methods are not called."""

    def hooks_for(self, transport: str) -> SessionHooks:
        """Return the hooks for a connection over stdio, http, websocket or memory."""
        raise NotImplementedError

    def refused(self, reason: str) -> None:
        """Something was refused before a session received it; `reason` is an HTTP status or a JSON-RPC code."""
        return

    def backplane_answered(self, command: str, seconds: float, error: str) -> None:
        """The backplane executed a command; `error` is "away", the class of the exception, or empty."""
        return


def refusal_counter(observers: Iterable[Observer]) -> Callable[[str], object] | None:
    """Return a function that reports refusals to all observers that count them; None if there is no such observer."""
    counters = [observer.refused for observer in observers if isinstance(observer, HookedObserver)]
    if not counters:
        return None

    def count(reason: str) -> None:
        for counter in counters:
            counter(reason)

    return count
