"""A session that tells observers of its calls, and of its begin and end. Of frames they hear in `observed_frames`.

Only servers with observers have it, or those whose log is at level debug: all other connections have a plain
`Session`, and nothing of this costs them anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from itertools import count
from time import perf_counter
from typing import Any

from msgspec import Raw
from msgspec.json import encode

from mcpd.dispatcher.call_log import CallLog
from mcpd.errors import ProtocolError
from mcpd.protocol.budget import Charge
from mcpd.protocol.jsonrpc import Id, Request
from mcpd.protocol.observer import ObservedCall, Observer, Outcome
from mcpd.protocol.printable import printable
from mcpd.protocol.session import Call, Session

log = logging.getLogger("mcpd")

_numbers = count(1)


class ObservedSession(Session):
    """A `Session` with observers. Over all servers of the process it has a number of its own."""

    __slots__ = ("_began", "_observers", "_transport", "_with_arguments", "number")

    def __init__(self, observers: Sequence[Observer], identity: Raw, *, transport: str = "", **settings: Any) -> None:
        super().__init__(identity, **settings)
        self._transport = transport
        self.number = next(_numbers)
        # One that an option of `mcpd serve` has brought logs calls already.
        is_logged = any(isinstance(each, CallLog) for each in observers) or not log.isEnabledFor(logging.DEBUG)
        self._observers = observers if is_logged else (*observers, CallLog())
        self._with_arguments = any(getattr(each, "hears_arguments", False) for each in observers)
        self._began: dict[Call, tuple[ObservedCall, float]] = {}

    def follow(self, ended: asyncio.Future[Any]) -> None:
        """It is a connection that lasts, until `ended` is done."""
        opened = perf_counter()
        self._tell("connection_opened", self.number)
        ended.add_done_callback(lambda _: self._tell("connection_closed", self.number, perf_counter() - opened))

    def receive_request(self, request: Request, charge: Charge | None = None) -> Call:
        """See `Session`."""
        began = perf_counter()
        seen = ObservedCall(
            self.number, request.id, request.method, principal=self.principal, transport=self._transport
        )
        try:
            opened = super().receive_request(request, charge)
        except ProtocolError as error:
            self._tell("call_began", seen)
            self._tell("call_ended", seen, Outcome("refused", perf_counter() - began, error.code))
            raise

        params = opened.params
        subject = getattr(params, "name", None) or getattr(params, "uri", None)
        seen.subject = subject if isinstance(subject, str) else ""
        seen.version = opened.version.name
        info = opened.client.info
        if info is not None:
            seen.client = f"{info.name}/{info.version}"
        if self._with_arguments:
            seen.arguments = _json_of(getattr(params, "arguments", None))
        self._began[opened] = seen, began
        self._tell("call_began", seen)
        return opened

    def respond(self, answered: Call, result: Any) -> bytes | None:
        """See `Session`."""
        frame = super().respond(answered, result)
        self._end(answered, "answered", is_error=getattr(result, "is_error", None) is True)
        return frame

    def fail(self, answered: Call, error: ProtocolError) -> bytes | None:
        """See `Session`."""
        frame = super().fail(answered, error)
        self._end(answered, "failed", code=error.code)
        return frame

    def cancel(self, request_id: Id | None) -> Call | None:
        """See `Session`."""
        cancelled = super().cancel(request_id)
        if cancelled is not None:
            self._end(cancelled, "cancelled")
        return cancelled

    def cancel_all(self) -> list[Call]:
        """See `Session`."""
        cancelled = super().cancel_all()
        for call in cancelled:
            self._end(call, "cancelled")
        return cancelled

    def _end(self, call: Call, kind: Any, *, code: int | None = None, is_error: bool = False) -> None:
        seen, began = self._began.pop(call, (None, 0.0))
        if seen is not None:  # else it was cancelled, and is done only now
            seen.trace = "" if call.trace is None else call.trace().traceparent
            self._tell("call_ended", seen, Outcome(kind, perf_counter() - began, code, is_error))

    def _tell(self, what: str, *values: Any) -> None:
        tell(self._observers, what, *values)


def _json_of(arguments: Any) -> bytes:
    return bytes(arguments) if isinstance(arguments, Raw) else encode(arguments) if arguments else b""


def tell(observers: Sequence[Observer], what: str, *values: Any) -> None:
    """Call a method of each observer; what it raises is logged."""
    for observer in observers:
        try:
            getattr(observer, what)(*values)
        except Exception as error:
            log.error("observer %s failed in %s", printable(type(observer)), printable(what), exc_info=error)
