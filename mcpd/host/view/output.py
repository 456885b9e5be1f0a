"""The outputs of the state machine of a View: messages for the View, events for the program, lines for the log.

What a View wrote reaches the log quoted and shortened: it may hold anything, line ends included.
"""

from __future__ import annotations

import logging

from msgspec import Raw, Struct

from mcpd.client.limits import Faults
from mcpd.errors import ProtocolError, RemoteError
from mcpd.host.view.events import Event, Finding
from mcpd.host.view.refusals import rule_of
from mcpd.protocol.jsonrpc import Id, Result, call, encode, error_answer
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
