"""The interfaces between transports and sessions.

A transport gives the session a `Channel` to send frames with, and pushes each frame that it reads into a `Receiver`.
A `Listener` accepts clients. A frame is one whole message as bytes. Transports know framing, headers and status codes,
and no other rule of the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from mcpd.errors import McpdError, ProtocolError
from .jsonrpc import Id
from .principal import Origin


class Channel(Protocol):
    """The sending side of one connection. All methods are called in the event loop's thread."""

    @property
    def is_congested(self) -> bool:
        """Whether more is queued than the peer reads; senders of many messages should `await drain()` first."""

    @property
    def is_multiplexed(self) -> bool:
        """Whether all requests of the connection share this channel; false if each request has its own."""

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one frame. Never blocks and never raises: frames sent after the end are dropped.

        Args:
            frame: One message.
            related_request_id: The id of the peer's request that the frame answers or belongs to. For a client, the
                id of its own request, or of the request that it cancels.
            method: The method of the frame, or of the request that it answers. None for a batch and if it is unknown.
        """

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue an answer whose request sent notifications, so that it does not share a packet with the last of them.

        Some clients reorder messages that arrive together. Answers keep their order.
        """

    async def drain(self) -> None:
        """Wait until the peer has read enough of the queue, or has disconnected."""

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """Return where a request of the peer came from; without an id, where the connection came from."""

    async def aclose(self, reason: str = "") -> None:
        """Send what is queued, for a limited time, and end the connection. Safe to call twice."""


@runtime_checkable
class ResumableChannel(Protocol):
    """A channel whose client may drop the HTTP response on which it waits, and resume the stream later."""

    def close_stream(self, related_request_id: Id) -> None:
        """Close the response stream of a request; the client resumes it. Does nothing in versions without polling.

        Spec: 2025-11-25 basic/transports, sending messages 6.
        """

    def is_away(self, related_request_id: Id) -> bool:
        """Return whether nobody reads the response stream of a request: its messages are stored until then."""


class Heading(Struct, frozen=True):
    """The data that a client sends beside a message on a transport with headers (HTTP)."""

    is_request: bool
    """Whether the message is a request; otherwise it is a notification or an answer."""
    in_session: bool = True
    """Whether the message belongs to the session that the transport keeps."""
    version: str | None = None
    """The protocol version of the message; None before one is agreed."""
    fields: tuple[tuple[str, str], ...] = ()
    """Header fields that mirror parts of the message, as (name, value)."""


@runtime_checkable
class HeadedChannel(Protocol):
    """A client's channel that sends each request on a connection of its own, with headers (HTTP)."""

    def send_headed(
        self, frame: bytes, related_request_id: Id | None, method: str | None, heading: Heading | None
    ) -> None:
        """`Channel.send` with a heading, for notifications and answers."""

    async def carry(self, frame: bytes, request_id: Id, method: str | None, heading: Heading) -> None:
        """Send a request and pass the messages of its response to the receiver, until the response ends.

        Runs in the caller's task; cancelling that closes the connection. Never raises: failures go to the receiver.
        """


class Receiver(Protocol):
    """Receives messages from a transport. All methods are called in the event loop's thread."""

    def receive(self, frame: bytes) -> None:
        """Receive one whole frame."""

    def receive_error(self, error: ProtocolError) -> None:
        """Receive the error for bytes that are not a frame (too large, not text); the connection continues."""

    def closed(self, error: McpdError | None = None) -> None:
        """The peer has closed the connection; `error` is given if the connection was lost."""


@runtime_checkable
class RequestReceiver(Protocol):
    """A client's receiver for channels whose requests can fail one by one (HTTP)."""

    def waits_for(self, request_id: Id) -> bool:
        """Return whether this request is still waiting for its answer."""

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        """A request will get no answer, or a notification was not delivered; the connection continues."""


class Accept(Protocol):
    """Connects a channel to the server; listeners call it for each new client."""

    def __call__(self, channel: Channel, *, is_only: bool = False) -> Receiver:
        """Open a session for the client of this channel, and return the receiver of the client's frames.

        Must be called in the event loop's thread. `is_only` means that there will never be another client, as on
        stdin: serving ends with this connection.
        """


class Listener(Protocol):
    """Accepts the clients of one transport: stdio, WebSocket, HTTP, a unix socket, or your own in `Settings.listeners`.

    The methods are called once each, in this order, in the event loop's thread. A listener that creates its connections
    itself instead of calling `accept` (HTTP) has them as `connections`, an iterable of `Ending`. If its clients reuse
    connections, it has `async def serve_late_requests()`, which serves for about a second what was already on its way.
    """

    @property
    def url(self) -> str:
        """The address that clients connect to, once started, or ""."""

    async def start(self, accept: Accept) -> None:
        """Start accepting clients. Raises ConfigurationError, with nothing left open, if the address cannot be used."""

    def pause(self) -> None:
        """Stop accepting clients and reading messages. Running calls can still be answered."""

    async def aclose(self) -> None:
        """Send what is queued, for a limited time, and end every connection."""


class Ending(Protocol):
    """A connection that can be ended."""

    async def finish(self, grace: float) -> None:
        """Give running calls `grace` seconds to finish, then cancel them."""

    def abort(self) -> None:
        """Cancel all running calls now."""


class Watcher(Protocol):
    """Observes one server while it is served (status page, metrics)."""

    async def start(self) -> None:
        """Start, before the first client connects. Raises ConfigurationError."""

    def add(self, listener: object) -> None:
        """A listener has started."""

    def ready(self, urls: list[str]) -> None:
        """The server is ready, at these addresses."""

    def stopping(self) -> None:
        """The server is stopping and waits for running calls."""

    def stop(self) -> None:
        """The server has stopped."""


class Overseer(Protocol):
    """The parent process of a worker (`--workers`), as the server in the worker sees it: `Settings(overseer=…)`.

    All methods are called in the event loop's thread.
    """

    @property
    def is_last_on_sockets(self) -> bool:
        """Whether no other process will listen on the inherited sockets once this process stops."""

    def take_stop(self, stop: Callable[[], None]) -> None:
        """Store the function that stops serving, as a first signal does."""

    def new_watcher(self, server: object, connections: Callable[[], Iterable[Ending]]) -> Watcher:
        """Return the watcher of the server; `connections` returns the open connections."""
