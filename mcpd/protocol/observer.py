"""`Observer`: receives connections, calls and frames of a server, as `Server(observers=[…])`.

Observers run in the event loop, between a request and its response: they must return quickly and never wait.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

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
    """The method of the message, or of the request that the frame answers; empty for batches and malformed frames."""
    related_request_id: str | int | float | None = None
    """The id of the client's request that the frame is, answers or belongs to; or None."""


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
