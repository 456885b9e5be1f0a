"""A connection that tells observers of its frames: what arrives, and what its channel is given to send.

Only servers with an observer of frames have it: all other connections are plain ones with the transport's own channel.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mcpd.dispatcher.connection import Handler, ServerConnection
from mcpd.dispatcher.observed import ObservedSession, tell
from mcpd.errors import ProtocolError
from mcpd.protocol.channel import Channel, ResumableChannel
from mcpd.protocol.jsonrpc import Batch, Failure, Id, Message, Notification, Request, Response, decode
from mcpd.protocol.observer import ObservedFrame, Observer, SessionObserver, hears_frames
from mcpd.protocol.session import Session

log = logging.getLogger("mcpd")


class _Frames:
    """The observers that hear of the frames of one connection."""

    __slots__ = ("_number", "_observers")

    def __init__(self, observers: Sequence[Observer], number: int) -> None:
        self._observers = observers
        self._number = number

    def received(self, frame: bytes, method: str, related_request_id: Id | None) -> None:
        tell(self._observers, "frame_received", ObservedFrame(self._number, frame, method, related_request_id))

    def sent(self, frame: bytes, related_request_id: Id | None, method: str | None) -> None:
        tell(self._observers, "frame_sent", ObservedFrame(self._number, frame, method or "", related_request_id))


class _ObservedChannel:
    """A channel that tells what it is given to send."""

    def __init__(self, channel: Channel, frames: _Frames) -> None:
        self._channel = channel
        self._frames = frames
        self.is_multiplexed = channel.is_multiplexed
        self.drain = channel.drain
        self.origin = channel.origin
        self.aclose = channel.aclose

    @property
    def is_congested(self) -> bool:
        return self._channel.is_congested

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        self._frames.sent(frame, related_request_id, method)
        self._channel.send(frame, related_request_id, method)

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        self._frames.sent(frame, related_request_id, method)
        self._channel.send_apart(frame, related_request_id, method)


class _ObservedResumableChannel(_ObservedChannel):
    """The same for a channel whose client may come back for an answer."""

    def __init__(self, channel: Channel, close_stream: Any, frames: _Frames) -> None:
        super().__init__(channel, frames)
        self._close_stream = close_stream

    def close_stream(self, related_request_id: Id) -> None:
        self._close_stream(related_request_id)


class ObservedConnection(ServerConnection):
    """A `ServerConnection` with `observers` of its frames."""

    __slots__ = ("frames",)

    def __init__(
        self,
        observers: Sequence[Observer],
        session: ObservedSession,
        handlers: Mapping[str, Handler],
        channel: Channel,
        *others: Any,
    ) -> None:
        self.frames = frames = _Frames(observers, session.number)
        if isinstance(channel, ResumableChannel):
            observed: Channel = _ObservedResumableChannel(channel, channel.close_stream, frames)
        else:
            observed = _ObservedChannel(channel, frames)
        super().__init__(session, handlers, observed, *others)

    def receive(self, frame: bytes) -> None:
        """See `ServerConnection`."""
        try:
            message = decode(frame)
        except ProtocolError as error:
            self.frames.received(frame, "", error.request_id)
            self.receive_error(error)
        else:
            self.tell_received(frame, message)
            self._receive_decoded(message, frame)

    def tell_received(self, frame: bytes, message: Message | Batch | list[Message | ProtocolError]) -> None:
        """Tell observers of a frame that came, as what it was read."""
        method, request_id = "", None
        if isinstance(message, Request):
            method, request_id = message.method, message.id
        elif isinstance(message, Notification):
            method = message.method
        elif isinstance(message, (Response, Failure)) and self._outgoing is not None:
            method = self._outgoing.method_of(message.id)
        self.frames.received(frame, method, request_id)


class PostFrames:
    """The frames of one POST, whose answer does not go through the connection's channel. See `http.request`."""

    __slots__ = ("_body", "_frames", "_message")

    def __init__(self, body: bytes, message: Message | list[Message | ProtocolError]) -> None:
        self._body = body
        self._message = message
        self._frames: _Frames | None = None

    def begin(self, connection: object) -> None:
        """It is for this connection: its body was a frame that came there."""
        assert isinstance(connection, ObservedConnection)
        self._frames = connection.frames
        connection.tell_received(self._body, self._message)
        self._body = b""

    def sent(self, frame: bytes) -> None:
        """Its answer is given; nothing is told of one that was refused before any connection knew of it."""
        if self._frames is not None:
            message = self._message
            if isinstance(message, Request):
                self._frames.sent(frame, message.id, message.method)
            else:
                self._frames.sent(frame, None, None)


def observed_by(
    observers: Sequence[Observer], channel: Channel
) -> tuple[Callable[..., Session], Callable[..., ServerConnection]]:
    """What makes the session and the connection of this channel, on a server with these observers."""
    told = tuple(one for one in observers if not isinstance(one, SessionObserver))
    is_told = bool(told) or log.isEnabledFor(logging.DEBUG)
    make_class: Any = ObservedSession if is_told else Session
    for one in observers:
        if isinstance(one, SessionObserver):
            make_class = one.session_class(make_class, channel)
    of_frames = [one for one in told if hears_frames(one)]
    return (
        partial(make_class, told, transport=channel.origin().transport) if is_told else make_class,
        partial(ObservedConnection, of_frames) if of_frames else ServerConnection,
    )
