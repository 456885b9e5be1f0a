"""The protocols of a client's channels, and `watched`, which passes copies of all frames to a watcher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from mcpd.errors import McpdError, ProtocolError
from mcpd.protocol.channel import Channel, HeadedChannel, Heading, Receiver, RequestReceiver
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import Origin

if TYPE_CHECKING:
    from mcpd.transports.recorder import Recorder


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
    if isinstance(channel, HeadedChannel):
        return _Headed(channel, watcher)
    kind = _Pausable if isinstance(channel, PausableChannel) else _Watched
    return kind(channel, watcher)


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

    @property
    def is_congested(self) -> bool:
        return self._channel.is_congested

    @property
    def is_multiplexed(self) -> bool:
        return self._channel.is_multiplexed

    def start(self, receiver: Receiver) -> None:
        self._channel.start(_Listener(receiver, self._watcher))

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        self._watcher.sent(frame)
        self._channel.send(frame, related_request_id, method)

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        self._watcher.sent(frame)
        self._channel.send_separately(frame, related_request_id, method)

    async def drain(self) -> None:
        await self._channel.drain()

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return self._channel.origin(related_request_id)

    async def aclose(self, reason: str = "") -> None:
        await self._channel.aclose(reason)


class _Pausable(_Watched):
    """For a channel that can pause. The methods show that it can."""

    def pause(self) -> None:
        assert isinstance(self._channel, PausableChannel)
        self._channel.pause()

    def resume(self) -> None:
        assert isinstance(self._channel, PausableChannel)
        self._channel.resume()


class _Headed(_Pausable):
    """For a channel with one connection per request, such as HTTP."""

    def send_headed(
        self, frame: bytes, related_request_id: Id | None, method: str | None, heading: Heading | None
    ) -> None:
        assert isinstance(self._channel, HeadedChannel)
        self._watcher.sent(frame)
        self._channel.send_headed(frame, related_request_id, method, heading)

    async def carry(self, frame: bytes, request_id: Id, method: str | None, heading: Heading) -> None:
        assert isinstance(self._channel, HeadedChannel)
        self._watcher.sent(frame)
        await self._channel.carry(frame, request_id, method, heading)


class _Listener:
    """A receiver that reports each message before it passes it on."""

    def __init__(self, receiver: Receiver, watcher: ChannelWatcher) -> None:
        self._receiver = receiver
        self._watcher = watcher

    def receive(self, frame: bytes) -> None:
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
