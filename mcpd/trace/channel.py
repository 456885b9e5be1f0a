"""What a client says and hears, recorded as a host's trace is: a channel round another one.

`Client(record_channel(await connect(target), recorder))`: the client is the host of that trace.
"""

from __future__ import annotations

from ..channel import HeadedChannel, Heading, Receiver, RequestReceiver
from ..client.connection import PausableChannel, StartableChannel
from ..errors import McpdError, ProtocolError
from ..jsonrpc import Id
from ..principal import Origin
from .recorder import Recorder

__all__ = ["record_channel"]


def record_channel(channel: StartableChannel, recorder: Recorder) -> StartableChannel:
    """A channel that writes down each frame and passes it on. The recorder is the caller's to close."""
    if isinstance(channel, HeadedChannel):
        return _RecordedHeaded(channel, recorder)
    kind = _RecordedPausable if isinstance(channel, PausableChannel) else _Recorded
    return kind(channel, recorder)


class _Recorded:
    def __init__(self, channel: StartableChannel, recorder: Recorder) -> None:
        self._channel = channel
        self._recorder = recorder

    @property
    def is_congested(self) -> bool:
        return self._channel.is_congested

    @property
    def is_multiplexed(self) -> bool:
        return self._channel.is_multiplexed

    def start(self, receiver: Receiver) -> None:
        self._channel.start(_Listener(receiver, self._recorder))

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        self._recorder.record("host", frame + b"\n")
        self._channel.send(frame, related_request_id, method)

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        self._recorder.record("host", frame + b"\n")
        self._channel.send_apart(frame, related_request_id, method)

    async def drain(self) -> None:
        await self._channel.drain()

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return self._channel.origin(related_request_id)

    async def aclose(self, reason: str = "") -> None:
        await self._channel.aclose(reason)


class _RecordedPausable(_Recorded):
    """Of a channel that can wait: whether it can is seen by these methods."""

    def pause(self) -> None:
        assert isinstance(self._channel, PausableChannel)
        self._channel.pause()

    def resume(self) -> None:
        assert isinstance(self._channel, PausableChannel)
        self._channel.resume()


class _RecordedHeaded(_RecordedPausable):
    """Of a channel that carries each request by itself, as HTTP does."""

    def send_headed(
        self, frame: bytes, related_request_id: Id | None, method: str | None, heading: Heading | None
    ) -> None:
        assert isinstance(self._channel, HeadedChannel)
        self._recorder.record("host", frame + b"\n")
        self._channel.send_headed(frame, related_request_id, method, heading)

    async def carry(self, frame: bytes, request_id: Id, method: str | None, heading: Heading) -> None:
        assert isinstance(self._channel, HeadedChannel)
        self._recorder.record("host", frame + b"\n")
        await self._channel.carry(frame, request_id, method, heading)


class _Listener:
    """A receiver that writes down what it passes on."""

    def __init__(self, receiver: Receiver, recorder: Recorder) -> None:
        self._receiver = receiver
        self._recorder = recorder

    def receive(self, frame: bytes) -> None:
        self._recorder.record("server", frame + b"\n")
        self._receiver.receive(frame)

    def receive_error(self, error: ProtocolError) -> None:
        self._recorder.event("unreadable", error=error.message)
        self._receiver.receive_error(error)

    def closed(self, error: McpdError | None = None) -> None:
        self._recorder.event("end", **{"from": "server"})
        self._receiver.closed(error)

    def waits_for(self, request_id: Id) -> bool:
        return isinstance(self._receiver, RequestReceiver) and self._receiver.waits_for(request_id)

    def failed(self, request_id: Id | None, error: McpdError) -> None:
        self._recorder.event("failed", error=str(error), **({} if request_id is None else {"id": request_id}))
        if isinstance(self._receiver, RequestReceiver):
            self._receiver.failed(request_id, error)
