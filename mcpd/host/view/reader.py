"""From what a View sent to a message: its size, its encoding, its form, and whether it comes too fast."""

from __future__ import annotations

from mcpd.errors import FrameTooLarge, InvalidRequest, ParseError
from mcpd.host.view.output import ViewOutput
from mcpd.host.view.policy import RateLimit, ViewLimits
from mcpd.protocol.jsonrpc import Batch, Failure, Notification, Request, Response, decode


class MessageReader:
    """Reads the messages of one View within its limits."""

    __slots__ = ("_limits", "_next_flood_finding", "_output", "_rate")

    def __init__(self, limits: ViewLimits, output: ViewOutput) -> None:
        self._limits = limits
        self._output = output
        self._rate = RateLimit(limits.messages_per_second)
        self._next_flood_finding = float("-inf")

    def read(self, data: bytes | str) -> Request | Notification | Response | Failure:
        """The message. Raises ParseError, FrameTooLarge or InvalidRequest, with its id where that could be read."""
        limit = self._limits.message_bytes
        try:
            if isinstance(data, str):
                data = data[: limit + 1].encode()  # what is cut off here is too much in bytes as well
            elif len(data) <= limit and not data.isascii():
                data.decode()  # raw members go on to the server unread: all of it must be UTF-8, not only what we read
        except UnicodeError as error:
            raise ParseError(f"Parse error: {error}") from None

        if len(data) > limit:
            raise FrameTooLarge(f"A message may have {limit} bytes")

        message = decode(data)
        if isinstance(message, Batch):
            raise InvalidRequest("MCP Apps have no batches")
        return message

    def is_within_rate(self, now: float) -> bool:
        """Count one message; False if the View has sent too many lately, which is reported."""
        if self._rate.take(now):
            return True
        if now >= self._next_flood_finding:  # one a second: the flood must not become one of findings
            self._next_flood_finding = now + 1.0
            self._output.find("limit", f"more than {self._limits.messages_per_second} messages a second")
        return False
