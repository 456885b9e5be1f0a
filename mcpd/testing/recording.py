"""What passed between a client and its server: a channel that writes down each message, whatever carries it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import DecodeError, Struct
from msgspec.json import decode

from mcpd.client.channels import ChannelWatcher, StartableChannel, watched


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


def recorded(channel: StartableChannel, messages: list[WireMessage]) -> StartableChannel:
    """A channel that writes down in `messages` what passes."""
    return watched(channel, _Scribe(messages))


class _Scribe(ChannelWatcher):
    def __init__(self, messages: list[WireMessage]) -> None:
        self._messages = messages

    def sent(self, frame: bytes) -> None:
        self._messages.append(WireMessage("client", _read(frame)))

    def received(self, frame: bytes) -> None:
        self._messages.append(WireMessage("server", _read(frame)))


def _read(frame: bytes) -> Any:
    try:
        return decode(frame)
    except (DecodeError, UnicodeDecodeError):
        return frame.decode(errors="backslashreplace")
