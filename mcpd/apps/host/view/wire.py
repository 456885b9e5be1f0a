"""The outputs of the state machine of a View: messages for the View, events for the program, lines for the log.

What a View wrote reaches the log quoted and shortened: it may hold anything, line ends included.
"""

from __future__ import annotations

import logging

from msgspec import Raw, Struct

from mcpd.apps.host.view.events import Event, Finding
from mcpd.apps.host.view.policy import RateLimit, ViewLimits, rule_of
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
    call,
    decode,
    encode,
    error_answer,
)
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd.host")


class ViewOutput:
    """The two queues of one View, and its name for the log. `is_mute`: the View may not even be answered yet."""

    __slots__ = ("events", "faults", "is_mute", "messages", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults = Faults(log)
        """What the View does wrong: a few lines of each kind, then counts."""
        self.is_mute = True
        self.messages: list[bytes] = []
        self.events: list[Event] = []

    def notify(self, method: str, params: Struct | Raw | None = None) -> None:
        """Send a notification."""
        self.messages.append(call(method, params))

    def request(self, call_id: str, method: str, params: object = None) -> None:
        """Send a request of ours."""
        self.messages.append(call(method, params, call_id))

    def result(self, request_id: Id, result: object) -> None:
        """Answer a request of the View."""
        self.messages.append(encode(Result(request_id, result)))

    def error(self, request_id: Id | None, error: ProtocolError | RemoteError) -> None:
        """Answer a request with an error; the id is None if the request could not be read."""
        if not self.is_mute:
            self.messages.append(encode(error_answer(error, request_id)))

    def refuse(self, error: ProtocolError, request_id: Id | None, method: str = "") -> None:
        """Answer a message with an error, and report it."""
        self.error(request_id, error)
        self.find(rule_of(error), error.message, method)

    def find(self, rule: str, text: str, method: str = "", *, refused: bool = True) -> None:
        """Report what the View should not have done."""
        finding = Finding(rule, text[:300], method[:100], refused)
        text = "%s: refused %s: %s" if refused else "%s: noted %s: %s"
        self.faults.say(logging.WARNING, text, self.name, printable(finding.method), printable(finding.text))
        self.events.append(finding)


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
