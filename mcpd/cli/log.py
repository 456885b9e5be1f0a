"""Formats the log of `mcpd serve`: as text for people, or as JSON for programs, one line per record.

A traceback is indented below its record in text, and a field in JSON (docs/logging.md lists the fields). Of similar
records within a few seconds only the first ones are written; the others are counted. At level debug everything is
written. `stderr` writes the lines.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from mcpd.protocol.wire import trace_context

MOST_ALIKE = 10
"""How many similar records are written within `WINDOW`."""

WINDOW = 10.0
"""In seconds."""

MOST_TRACEBACK_CHARACTERS = 16 * 1024
"""How much of a traceback is written: the beginning and the end."""

_MOST_KINDS = 256
_TEMPLATE_CHARACTERS = 120
_FORMAT = "%(levelname)s %(name)s: %(message)s"
_COUNTED = ("mcpd", "asyncio", "uvicorn", "websockets")

# The beginnings of our messages about a call, and the fields in which their first arguments are repeated.
_BEGINNINGS = (
    ("tool %s (request %s)", ("tool", "request")),
    ("resource %s (request %s)", ("uri", "request")),
    ("prompt %s (request %s)", ("prompt", "request")),
    ("%s (id %s)", ("method", "request")),
)


class LogHandler(logging.Handler):
    """Formats records and passes the lines to `write`; calls `finish` at the end of the process."""

    def __init__(
        self,
        write: Callable[[bytes], object],
        finish: Callable[[], object],
        *,
        level: str,
        target: str | None,
        log_format: str,
    ) -> None:
        super().__init__()
        if log_format == "json":
            import json  # noqa: F401 - when the first record comes, no file descriptor may be free to load it
        self.setFormatter(_JsonFormatter() if log_format == "json" else _TextFormatter(_FORMAT))
        if level != "debug":
            self.addFilter(_OwnRecords(target))
        self._write = write
        self._finish = finish
        self._repeats = _Repeats(self._put)

    def emit(self, record: logging.LogRecord) -> None:
        if self._repeats.passes(record):
            self._put(record)

    def _put(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:
            # The arguments do not fit the message. Python would print three pages about it.
            text = f"a record of {record.name} at {record.pathname}:{record.lineno} cannot be formatted"
            line = self.format(logging.LogRecord("mcpd", logging.ERROR, "", 0, "%s", (text,), None))
        self._write(f"{line}\n".encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Write everything; called by `logging` at the end of the process."""
        self._repeats.report_all()
        self._finish()


class _OwnRecords:
    """Drops records below level warning of installed packages; keeps those of mcpd and of the user's own code."""

    def __init__(self, target: str | None) -> None:
        self._own = {"mcpd", (target or "").partition(":")[0].partition(".")[0]}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING or record.name.partition(".")[0] in self._own:
            return True
        return "site-packages" not in record.pathname and "dist-packages" not in record.pathname


class _TextFormatter(logging.Formatter):
    """Formats a message as one line, and its traceback as indented lines."""

    def format(self, record: logging.LogRecord) -> str:
        lines = [_escaped(line) for line in super().format(record).split("\n")]
        if len(lines) == 1:
            return lines[0]
        if record.name.partition(".")[0] == "mcpd":
            # Our messages have one line: further lines come from a peer.
            breaks = record.message.count("\n")
            lines[: breaks + 1] = ["\\n".join(lines[: breaks + 1])]
        return "\n  ".join(lines)

    def formatException(self, ei: object) -> str:  # noqa: N802
        return _shortened(super().formatException(ei))  # type: ignore[arg-type]


class _JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        fields = _fields(record.created, record.levelname.lower(), record.name, record.getMessage())
        # The fields of a call, from the call log or from the arguments of our own messages.
        fields.update(getattr(record, "mcpd_fields", None) or _call_fields(record))
        if trace_context.is_traced and "trace_id" not in fields:
            # The record was logged during a traced call.
            parent = trace_context.propagated().get("traceparent", "")
            fields.update({"trace_id": parent[3:35], "span_id": parent[36:52]} if parent else {})

        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            fields["error"] = type(error).__name__
            fields["traceback"] = _shortened(super().formatException(record.exc_info))
        elif record.exc_text:
            fields["traceback"] = _shortened(record.exc_text)
        return _json_line(fields)


def lines_as_json(data: bytes, logger: str) -> bytes:
    """Printed output as JSON records, one per line; empty lines are left out."""
    now = time.time()
    lines = data.decode("utf-8", "backslashreplace").splitlines()
    return b"".join(_json_line(_fields(now, "info", logger, line)).encode() + b"\n" for line in lines if line.strip())


def _fields(when: float, level: str, logger: str, message: str) -> dict[str, Any]:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
    return {"time": f"{seconds}.{int(when % 1 * 1000):03}Z", "level": level, "logger": logger, "message": message}


def _call_fields(record: logging.LogRecord) -> dict[str, Any]:
    if record.name.partition(".")[0] != "mcpd" or not isinstance(record.args, tuple) or len(record.args) < 2:
        return {}
    for beginning, names in _BEGINNINGS:
        if str(record.msg).startswith(beginning):
            return dict(zip(names, map(str, record.args), strict=False))
    return {}


def _json_line(fields: dict[str, Any]) -> str:
    import json

    # ASCII: this escapes lone surrogates, and characters that control a terminal or the direction of text.
    return json.dumps(fields, separators=(",", ":"), default=str)


def _shortened(text: str) -> str:
    """The beginning and the end of a long traceback."""
    if len(text) <= MOST_TRACEBACK_CHARACTERS:
        return text
    half = MOST_TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"


def _escaped(line: str) -> str:
    """A line without characters that control a terminal, except tabs."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in line)


# ------------------------------------------------------------------------------ repeated records


class _Kind:
    """Similar records: they have the same logger and template, and the same exception from the same place."""

    __slots__ = ("level", "name", "since", "suppressed", "template", "written")

    def __init__(self, record: logging.LogRecord, since: float) -> None:
        self.name, self.level, self.template = record.name, record.levelno, _template(record)
        self.since = since
        self.written = self.suppressed = 0


class _Repeats:
    """Lets the first few similar records pass, and reports the number of others later or at the end.

    Records of the author's own loggers always pass. Called with the handler's lock held.
    """

    def __init__(self, write: Callable[[logging.LogRecord], None]) -> None:
        self._write = write
        self._kinds: OrderedDict[object, _Kind] = OrderedDict()
        self._next_sweep = 0.0

    def passes(self, record: logging.LogRecord) -> bool:
        """Whether to write the record."""
        if record.levelno <= logging.DEBUG or record.name.partition(".")[0] not in _COUNTED:
            return True
        # The call log was requested, and messages that are sent once cannot repeat.
        if hasattr(record, "mcpd_fields") or hasattr(record, "mcpd_told_once"):
            return True
        now = time.monotonic()
        if now >= self._next_sweep:
            self._sweep(now)
        key = (record.name, _template(record), _exception_place(record))

        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._report(self._kinds.popitem(last=False)[1])
            self._kinds[key] = kind = _Kind(record, now)

        if kind.written < MOST_ALIKE:
            kind.written += 1
            return True

        if not kind.suppressed:
            self._log(kind, "more lines like this one follow; they are counted")
        kind.suppressed += 1
        return False

    def _sweep(self, now: float) -> None:
        self._next_sweep = now + 1.0
        for key, kind in list(self._kinds.items()):
            if now - kind.since >= WINDOW:
                self._report(self._kinds.pop(key))

    def report_all(self) -> None:
        """Report the counts that were not reported yet."""
        while self._kinds:
            self._report(self._kinds.popitem(last=False)[1])

    def _report(self, kind: _Kind) -> None:
        if kind.suppressed:
            times = "once more" if kind.suppressed == 1 else f"{kind.suppressed} times more"
            self._log(kind, f"repeated {times} within {WINDOW:g} s: {kind.template}")

    def _log(self, kind: _Kind, text: str) -> None:
        self._write(logging.LogRecord(kind.name, kind.level, "", 0, "… %s", (text,), None))


def _template(record: logging.LogRecord) -> str:
    """The text that similar records share. asyncio uses no templates, so its first line is used."""
    return str(record.msg).partition("\n")[0][:_TEMPLATE_CHARACTERS]


def _exception_place(record: logging.LogRecord) -> object:
    """The type and the place of a record's exception; None without one."""
    if not record.exc_info or record.exc_info[1] is None:
        return None
    place = record.exc_info[2]
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return type(record.exc_info[1]), None if place is None else (place.tb_frame.f_code.co_filename, place.tb_lineno)
