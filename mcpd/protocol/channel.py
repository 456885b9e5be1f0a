"""`Channel`: what a transport offers to send frames by. `Receiver`: what it pushes the frames into that it reads.

Frames are whole messages as bytes. A transport pushes what it reads (a pull costs one more turn of
the event loop for each read), and joins what is sent while it pushes into one write.
No protocol rule lives behind these names but framing, headers and status codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from mcpd.errors import McpdError, ProtocolError
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import Origin


class Channel(Protocol):
    """The near end of one connection."""

    @property
    def is_congested(self) -> bool:
        """More is queued towards the peer than it takes; who sends freely should `await drain()` first."""

    @property
    def is_multiplexed(self) -> bool:
        """All requests and answers of the connection share this channel; false where each request has its own."""

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one frame, which need not be read to know what it is.

        `related_request_id` is that of the peer's request which the frame answers, or is sent for, if there is any; a
        client's own request has its own id there, and so has what gives it up. `method` is that of the request or
        notification that the frame is, or of the request that it answers; None for a batch, or if that was unreadable.

        Never blocks and never raises: after the end frames are dropped.
        """

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue the answer to a request about which notifications were sent: they do not arrive in one piece.

        Where a channel has pieces, it leaves a moment later than what is sent now; answers keep their order.
        """

    async def drain(self) -> None:
        """Wait until the peer has taken enough of what was queued, or is gone."""

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """Where the peer's request of that id came from; without one, and once it was answered, the connection."""

    async def aclose(self, reason: str = "") -> None:
        """Send what is queued, within bounds, and end the connection. Safe to call twice."""


@runtime_checkable
class ResumableChannel(Protocol):
    """A channel whose client can lose the connection on which it waits for an answer, and come back for it."""

    def close_stream(self, related_request_id: Id) -> None:
        """Let go of the connection on which that request's answer is waited for; nothing, if its version has no such.

        Spec: 2025-11-25 basic/transports, sending messages 6.
        """


class Heading(Struct, frozen=True):
    """What a client says of a message beside it, where the transport has a place for that: HTTP has its headers."""

    is_request: bool
    """Whether it is a request of ours, which waits for an answer; else a notification, or an answer of ours."""
    in_session: bool = True
    """Whether it belongs to a session, which the transport keeps; else it stands alone."""
    version: str | None = None
    """The protocol version of the message; None before one was agreed on."""
    fields: tuple[tuple[str, str], ...] = ()
    """What of the message is repeated: names of header fields with their values."""


@runtime_checkable
class HeadedChannel(Protocol):
    """A client's channel on which each request has a connection of its own, and more is said of a message."""

    def send_headed(
        self, frame: bytes, related_request_id: Id | None, method: str | None, heading: Heading | None
    ) -> None:
        """`Channel.send`, with a heading: for what is no request."""

    async def carry(self, frame: bytes, request_id: Id, method: str | None, heading: Heading) -> None:
        """Send a request, and hand to the receiver what comes on its connection.

        The caller's task does it: that costs no turn of the event loop. To cancel it is to cut the connection. Raises
        nothing: failures are told to the receiver. It returns when its answer has come, or none will come here.
        """


class Receiver(Protocol):
    """The far side of a channel: what a transport calls. All calls come from the event loop's thread."""

    def receive(self, frame: bytes) -> None:
        """One whole frame arrived."""

    def receive_error(self, error: ProtocolError) -> None:
        """What arrived could not become a frame (too large, no text); the connection goes on."""

    def closed(self, error: McpdError | None = None) -> None:
        """The peer will send no more; with `error` if it went without saying so."""


@runtime_checkable
class RequestReceiver(Protocol):
    """A client's receiver, for channels on which each request has a way of its own, which can fail alone."""

    def waits_for(self, request_id: Id) -> bool:
        """Whether that request of ours still has no answer."""

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        """No answer will come to that request, or a message that wants none did not arrive; the connection goes on."""


class Accept(Protocol):
    """What a listener is given: it makes a connection to the server out of each channel."""

    def __call__(self, channel: Channel, *, is_only: bool = False) -> Receiver:
        """A new session for the client of this channel; what is given takes the frames that the client sends.

        `is_only` says that there is no other client and will be none, as on stdin: serving ends with this connection.
        Call it in the event loop's thread.
        """


class Listener(Protocol):
    """Takes clients in. All of it is called in the event loop's thread, each once, in this order."""

    @property
    def url(self) -> str:
        """The address for clients, given to `announce` once it has started; "" if there is none."""

    async def start(self, accept: Accept) -> None:
        """Begin to take clients in.

        Raises ConfigurationError, and leaves nothing open, for an address that cannot be used.
        """

    def pause(self) -> None:
        """Accept no more clients and read nothing more; calls that run may still be answered."""

    async def aclose(self) -> None:
        """Send what is queued, within bounds, and end every connection."""


class Ending(Protocol):
    """A connection, as far as its end goes."""

    async def finish(self, grace: float) -> None:
        """Let running calls answer for so many seconds, then stop the rest."""

    def abort(self) -> None:
        """Stop all running calls now."""


@runtime_checkable
class HasConnections(Protocol):
    """A listener with connections that it made itself, without `accept`: HTTP, whose sessions have many channels.

    It is known by having that member.
    """

    @property
    def connections(self) -> Iterable[Ending]:
        """All that may have calls running, which get the time to be answered."""


@runtime_checkable
class Lingers(Protocol):
    """A listener whose clients may be asking something when it pauses, on connections that they use again and again.

    It is known by having that member.
    """

    async def linger(self) -> None:
        """After `pause` take what was on its way then: within about a second, and at once if nothing can be."""


class Watcher(Protocol):
    """Watches one server: `observe.watching.Watching`."""

    async def start(self) -> None:
        """Begin, before anybody connects. Raises ConfigurationError."""

    def add(self, listener: object) -> None:
        """It listens now."""

    def ready(self, urls: list[str]) -> None:
        """It serves now, at these addresses."""

    def stopping(self) -> None:
        """It is told to stop, and lets calls end."""

    def stop(self) -> None:
        """It has stopped."""


class Overseer(Protocol):
    """Whoever runs this process. All of it is called in the event loop's thread."""

    @property
    def is_last_on_sockets(self) -> bool:
        """Whether nobody else listens on the sockets of `--http` that were given to this process, once it stops."""

    def take_stop(self, stop: Callable[[], None]) -> None:
        """This stops serving, as a first signal does; it does nothing after one."""

    def new_watcher(self, server: object, connections: Callable[[], Iterable[Ending]]) -> Watcher:
        """What watches the server, in the place of `Watching`; `connections` gives all that are open."""
