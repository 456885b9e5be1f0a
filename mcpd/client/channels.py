"""The protocols of a client's channels, and `watched`, which passes copies of all frames to a watcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar, runtime_checkable

from mcpd.errors import McpdError, ProtocolError
from mcpd.protocol.channel import Channel, HeadedChannel, Receiver, RequestReceiver
from mcpd.protocol.jsonrpc import Id

if TYPE_CHECKING:
    from mcpd.transports.recorder import Recorder

P = ParamSpec("P")
T = TypeVar("T")


class StartableChannel(Channel, Protocol):
    """A channel that delivers messages from `start` on."""

    def start(self, receiver: Receiver) -> None:
        """Deliver everything that arrives to `receiver`."""


@runtime_checkable
class PausableChannel(Protocol):
    """A channel that can stop reading, so that the server must wait."""

    def pause(self) -> None:
        """Stop delivering messages until `resume`."""

    def resume(self) -> None:
        """Continue delivering messages."""


class ChannelWatcher:
    """A base class for watchers of a channel. Its methods do nothing, and are called before a message is passed on."""

    def sent(self, frame: bytes) -> None:
        """A frame is sent to the server."""

    def received(self, frame: bytes) -> None:
        """A frame was received from the server."""

    def unreadable(self, error: ProtocolError) -> None:
        """Data was received that is not a frame."""

    def ended(self, error: McpdError | None) -> None:
        """The connection has ended."""

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        """A request got no response, or a notification was lost."""


def watched(channel: StartableChannel, watcher: ChannelWatcher) -> StartableChannel:
    """Return a channel that reports each frame to `watcher`. It supports the same protocols as `channel`."""
    return _Watched(channel, watcher)


def record_channel(channel: StartableChannel, recorder: Recorder) -> StartableChannel:
    """Return a channel that records each message and passes it on: `Client(record_channel(await connect(target), …))`.

    The client is the host of that recording. The caller closes the recorder.
    """
    return watched(channel, _Scribe(recorder))


class _Scribe(ChannelWatcher):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def sent(self, frame: bytes) -> None:
        self._recorder.record_message("host", frame)

    def received(self, frame: bytes) -> None:
        self._recorder.record_message("server", frame)

    def unreadable(self, error: ProtocolError) -> None:
        self._recorder.record_event("unreadable", error=error.message)

    def ended(self, error: McpdError | None) -> None:
        self._recorder.record_event("end", **{"from": "server"})

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        self._recorder.record_event("failed", error=str(error), **({} if request_id is None else {"id": request_id}))


class _Watched:
    def __init__(self, channel: StartableChannel, watcher: ChannelWatcher) -> None:
        self._channel = channel
        self._watcher = watcher
        self.is_multiplexed = channel.is_multiplexed
        # They carry no frames.
        self.drain, self.origin, self.aclose = channel.drain, channel.origin, channel.aclose

        # Set on the instance, because `isinstance` with a protocol only sees attributes that exist.
        if isinstance(channel, PausableChannel):
            self.pause, self.resume = channel.pause, channel.resume
        if isinstance(channel, HeadedChannel):
            self.send_headed = self._reported(channel.send_headed)
            self.carry = self._reported(channel.carry)
        self.send = self._reported(channel.send)
        self.send_separately = self._reported(channel.send_separately)

    @property
    def is_congested(self) -> bool:
        return self._channel.is_congested

    def start(self, receiver: Receiver) -> None:
        self._channel.start(_Listener(receiver, self._watcher))

    def _reported(self, send: Callable[Concatenate[bytes, P], T]) -> Callable[Concatenate[bytes, P], T]:

        def report(frame: bytes, /, *args: P.args, **options: P.kwargs) -> T:
            self._watcher.sent(frame)
            return send(frame, *args, **options)

        return report


class _Listener:
    def __init__(self, receiver: Receiver, watcher: ChannelWatcher) -> None:
        self._receiver = receiver
        self._watcher = watcher

    def receive(self, frame: bytes) -> None:
        # Before it is passed on, because the receiver may answer at once.
        self._watcher.received(frame)
        self._receiver.receive(frame)

    def receive_error(self, error: ProtocolError) -> None:
        self._watcher.unreadable(error)
        self._receiver.receive_error(error)

    def closed(self, error: McpdError | None = None) -> None:
        self._watcher.ended(error)
        self._receiver.closed(error)

    def waits_for(self, request_id: Id) -> bool:
        return isinstance(self._receiver, RequestReceiver) and self._receiver.waits_for(request_id)

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        self._watcher.failed(request_id, error)
        if isinstance(self._receiver, RequestReceiver):
            self._receiver.failed(request_id, error)
