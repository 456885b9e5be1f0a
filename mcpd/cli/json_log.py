"""The log as JSON: each record is one line, one object, in ASCII. docs/logging.md has its fields.

What was not logged but printed, by mcpd for people or by the author's code, is a record for each line of it, so that
whatever stderr has can be read by a program.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from mcpd.protocol.wire import trace_context

# How our own messages begin that belong to a call: which fields their first arguments are.
_BEGINNINGS = (
    ("tool %s (request %s)", ("tool", "request")),
    ("resource %s (request %s)", ("uri", "request")),
    ("prompt %s (request %s)", ("prompt", "request")),
    ("%s (id %s)", ("method", "request")),
)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON; its traceback is a text of it, which `shorten` may cut."""

    def __init__(self, shorten: Callable[[str], str]) -> None:
        super().__init__()
        self._shorten = shorten

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        fields = _line(record.created, record.levelname.lower(), record.name, record.getMessage())
        # Fields of a call, by whoever logs it: our log of calls, or a template of ours that names one.
        fields.update(getattr(record, "mcpd_fields", None) or _named(record))
        if trace_context.is_traced and "trace_id" not in fields:
            # Logged inside of a call that is traced, by whomever.
            parent = trace_context.propagated().get("traceparent", "")
            fields.update({"trace_id": parent[3:35], "span_id": parent[36:52]} if parent else {})

        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fields["error"] = type(error).__name__
            fields["traceback"] = self._shorten(super().formatException(record.exc_info))
        elif record.exc_text:
            fields["traceback"] = self._shorten(record.exc_text)
        return _written(fields)


def as_records(data: bytes, logger: str) -> bytes:
    """What was printed, as a record for each of its lines; empty ones are left out."""
    now = time.time()
    lines = data.decode("utf-8", "backslashreplace").splitlines()
    return b"".join(_written(_line(now, "info", logger, line)).encode() + b"\n" for line in lines if line.strip())


def _line(when: float, level: str, logger: str, message: str) -> dict[str, Any]:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
    return {"time": f"{seconds}.{int(when % 1 * 1000):03}Z", "level": level, "logger": logger, "message": message}


def _named(record: logging.LogRecord) -> dict[str, Any]:
    if record.name.partition(".")[0] != "mcpd" or not isinstance(record.args, tuple) or len(record.args) < 2:
        return {}
    for beginning, names in _BEGINNINGS:
        if str(record.msg).startswith(beginning):
            return dict(zip(names, map(str, record.args), strict=False))
    return {}


def _written(fields: dict[str, Any]) -> str:
    # In ASCII: what commands a terminal or turns the direction of text is escaped, and so is a lone surrogate.
    return json.dumps(fields, separators=(",", ":"), default=str)
