"""The messages of one View as bytes: read within the limits of the host, and written as answers and notifications.

Text of a View reaches the log quoted and shortened, because it may contain anything, even line ends.
"""

from __future__ import annotations

import logging

from msgspec import Raw, Struct

from mcpd.client.limits import Faults
from mcpd.errors import (
    FrameTooLarge,
    InvalidRequest,
    ParseError,
    ProtocolError,
    RemoteError,
)
from mcpd.protocol.jsonrpc import (
    Batch,
    Failure,
    Id,
    Notification,
    Request,
    Response,
    Result,
    decode,
    encode,
    encode_message,
    error_answer,
)
from mcpd.protocol.printable import printable
from .events import Event, Finding
from .policy import RateLimit, ViewLimits, rule_of

log = logging.getLogger("mcpd.host")


class ViewOutput:
    """The messages for a View, the events for the program, and the lines for the log."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Logs a few faults of each kind, then only how many there were.
        self._faults = Faults(log)
        # While muted, the View may not even receive an error.
        self.is_muted = True
        self.messages: list[bytes] = []
        self.events: list[Event] = []

    def log(self, level: int, text: str, *args: object, error: Exception | None = None) -> None:
        self._faults.log(level, f"%s: {text}", self.name, *args, error=error)

    def notify(self, method: str, params: Struct | Raw | None = None) -> None:
        self.messages.append(encode_message(method, params))

    def request(self, call_id: str, method: str, params: object = None) -> None:
        self.messages.append(encode_message(method, params, call_id))

    def result(self, request_id: Id, result: object) -> None:
        self.messages.append(encode(Result(request_id, result)))

    def error(self, request_id: Id | None, error: ProtocolError | RemoteError) -> None:
        """Answer a request with an error; the id is None if it could not be read."""
        if not self.is_muted:
            self.messages.append(encode(error_answer(error, request_id)))

    def refuse(self, error: ProtocolError, request_id: Id | None, method: str = "") -> None:
        """Answer a message with an error, and add a finding."""
        self.error(request_id, error)
        self.find(rule_of(error), error.message, method)

    def find(self, rule: str, text: str, method: str = "", *, refused: bool = True) -> None:
        finding = Finding(rule, text[:300], method[:100], refused)
        verb = "refused" if refused else "noted"
        self.log(logging.WARNING, f"{verb} %s: %s", printable(finding.method), printable(finding.text))
        self.events.append(finding)


class MessageReader:
    def __init__(self, limits: ViewLimits, output: ViewOutput) -> None:
        self._limits = limits
        self._output = output
        self._rate = RateLimit(limits.messages_per_second)
        self._next_flood_finding = float("-inf")

    def read(self, data: bytes | str) -> Request | Notification | Response | Failure:
        """Return the message. Raises ProtocolError, with the id of the message if it is readable."""
        limit = self._limits.message_bytes
        try:
            if isinstance(data, str):
                # More characters than bytes allowed are too long in any case.
                data = data[: limit + 1].encode()
            elif len(data) <= limit and not data.isascii():
                # Raw members are forwarded to the server unread, so the whole message must be valid UTF-8.
                data.decode()
        except UnicodeError as error:
            raise ParseError(f"Parse error: {error}") from None

        if len(data) > limit:
            raise FrameTooLarge(f"A message may have {limit} bytes")

        message = decode(data)
        if isinstance(message, Batch):
            raise InvalidRequest("MCP Apps have no batches")
        return message

    def is_within_rate(self, now: float) -> bool:
        """Count a message and return whether the rate allows it. Too many messages become a finding."""
        if self._rate.take(now):
            return True
        # One finding per second, or the flood of messages would become a flood of findings.
        if now >= self._next_flood_finding:
            self._next_flood_finding = now + 1.0
            self._output.find("limit", f"more than {self._limits.messages_per_second} messages a second")
        return False
