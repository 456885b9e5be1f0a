"""What passed between a client and its server: a channel that writes down each message, whatever carries it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import DecodeError, Struct
from msgspec.json import decode

from ..channel import Receiver
from ..client.connection import PausableChannel, StartableChannel
from ..jsonrpc import Id
from ..principal import Origin

__all__ = ["RecordedChannel", "WireMessage"]


class WireMessage(Struct, frozen=True):
    """One message that passed: who sent it, and the JSON-RPC message, decoded.

    A batch is a list, what is no JSON a text.
    """

    sender: Literal["client", "server"]
    message: Any

    @property
    def method(self) -> str | None:
        """The method of a request or a notification, None for an answer."""
        found = self.message.get("method") if isinstance(self.message, dict) else None
        return found if isinstance(found, str) else None


class RecordedChannel:
    """The client's end of a connection, which writes down in `messages` what passes."""

    def __init__(self, channel: StartableChannel, messages: list[WireMessage]) -> None:
        self._channel = channel
        self._messages = messages

    @property
    def is_congested(self) -> bool:
        """The server takes less than is sent."""
        return self._channel.is_congested

    @property
    def is_multiplexed(self) -> bool:
        """All requests share this channel."""
        return self._channel.is_multiplexed

    def start(self, receiver: Receiver) -> None:
        """From now on hand what arrives to `receiver`."""
        self._channel.start(_Recorder(receiver, self._messages))

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Send a frame, and keep it."""
        self._messages.append(WireMessage("client", _read(frame)))
        self._channel.send(frame, related_request_id, method)

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Send a frame by itself, and keep it."""
        self._messages.append(WireMessage("client", _read(frame)))
        self._channel.send_apart(frame, related_request_id, method)

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The server."""
        return self._channel.origin(related_request_id)

    async def drain(self) -> None:
        """Wait until the server has taken most of what was sent."""
        await self._channel.drain()

    def pause(self) -> None:
        """Take nothing until `resume`."""
        if isinstance(self._channel, PausableChannel):
            self._channel.pause()

    def resume(self) -> None:
        """Take what waits."""
        if isinstance(self._channel, PausableChannel):
            self._channel.resume()

    async def aclose(self, reason: str = "") -> None:
        """End the connection."""
        await self._channel.aclose(reason)


class _Recorder:
    """Writes down what is received, and hands it on."""

    def __init__(self, receiver: Receiver, messages: list[WireMessage]) -> None:
        self._receiver = receiver
        self._messages = messages
        self.receive_error = receiver.receive_error
        self.closed = receiver.closed

    def receive(self, frame: bytes) -> None:
        self._messages.append(WireMessage("server", _read(frame)))
        self._receiver.receive(frame)


def _read(frame: bytes) -> Any:
    try:
        return decode(frame)
    except (DecodeError, UnicodeDecodeError):
        return frame.decode(errors="backslashreplace")
