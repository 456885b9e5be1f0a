"""The observer that writes each request into the log: its method, its id, how it ended and after how long.

Params and results are not logged: they may hold secrets. Arguments of tools and prompts are, if that is asked for.
"""

from __future__ import annotations

import logging
from typing import Any

from mcpd.protocol.observer import ObservedCall, Observer, Outcome
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")

MOST_ARGUMENT_CHARACTERS = 4096
"""How much of the arguments of one call is logged, if they are."""

_SUBJECTS = {"tools/call": "tool", "prompts/get": "prompt", "resources/read": "uri"}


class CallLog(Observer):
    """Logs at `level`; with `arguments` those of tools and prompts too, as the JSON that came."""

    def __init__(self, level: int = logging.DEBUG, *, arguments: bool = False) -> None:
        self._level = level
        self.hears_arguments = arguments

    def call_ended(self, call: ObservedCall, outcome: Outcome) -> None:
        """See `Observer`."""
        fields = _fields(call, outcome)
        more = ""
        if call.arguments:
            fields["arguments"] = printable(call.arguments.decode("utf-8", "replace"), MOST_ARGUMENT_CHARACTERS)
            more = f"; arguments {fields['arguments']}"

        if outcome.kind == "refused":
            log.log(
                self._level, "%s (id %s): refused with %d", printable(call.method), printable(call.id), outcome.code,
                extra={"mcpd_fields": fields},
            )  # fmt: skip
            return
        how = outcome.kind if outcome.code is None else f"{outcome.kind} with {outcome.code}"
        log.log(
            self._level, "%s (id %s): %s after %.1f ms%s",
            call.method, printable(call.id), how, outcome.seconds * 1000, more,
            extra={"mcpd_fields": fields},
        )  # fmt: skip


def _fields(call: ObservedCall, outcome: Outcome) -> dict[str, Any]:
    """What a program reads of it; what is not known is left out."""
    subject = _SUBJECTS.get(call.method, "subject")
    fields: dict[str, Any] = {
        "request": printable(call.id),
        "method": printable(call.method),
        subject: printable(call.subject),
        "client": printable(call.client),
        "principal": call.principal,
        "connection": call.connection,
        "version": call.version,
        "transport": call.transport,
        "ms": round(outcome.seconds * 1000, 3),
        "outcome": "tool_error" if outcome.is_error else outcome.kind,
        "code": outcome.code,
        "trace_id": call.trace[3:35],
        "span_id": call.trace[36:52],
    }
    return {name: value for name, value in fields.items() if value not in ("", None)}
