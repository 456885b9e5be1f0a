"""What the log of `mcpd serve` says: one line for each record, and never more than anybody can read.

As text it is for people, as JSON (`json_log`) for programs; a call is a line of level info in JSON, debug in text.

Writing never waits (`stderr`). What a record says stays on its line, and what belongs to it, such as a traceback, is
indented below. Of lines that are the same but for what they name only the first few of some seconds are written; the
rest is counted. At level debug everything is written: who asks for it wants to see each message.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_ALIKE = 10
"""How many lines of one kind are written within `WINDOW`."""

WINDOW = 10.0
"""In seconds."""

MOST_TRACEBACK_CHARACTERS = 16 * 1024
"""How much of one traceback is written: its first half and its last."""

_MOST_KINDS = 256
_KIND_CHARACTERS = 120
_FORMAT = "%(levelname)s %(name)s: %(message)s"
_COUNTED = ("mcpd", "asyncio", "uvicorn", "websockets")


def make_handler(
    write: Callable[[bytes], object], finish: Callable[[], object], *, level: str, target: str | None, form: str
) -> logging.Handler:
    """What formats records and hands them to `write`; `finish` is called at the end. The rest is `configure`'s."""
    handler = _Handler(write, finish)
    if form == "json":
        from mcpd.cli.json_log import JsonFormatter

        handler.setFormatter(JsonFormatter(_shortened))
    if level != "debug":
        handler.addFilter(_OwnNews(target))
    return handler


class _OwnNews:
    """Keeps from the log what installed packages say below a warning; mcpd and the user's own code are heard."""

    def __init__(self, target: str | None) -> None:
        self._own = {"mcpd", (target or "").partition(":")[0].partition(".")[0]}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING or record.name.partition(".")[0] in self._own:
            return True
        return "site-packages" not in record.pathname and "dist-packages" not in record.pathname


class _Handler(logging.Handler):
    """Formats, counts what repeats, and writes; `finish` brings out what was written at the end of the process."""

    def __init__(self, write: Callable[[bytes], object], finish: Callable[[], object]) -> None:
        super().__init__()
        self.setFormatter(_Formatter(_FORMAT))
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
            # Arguments that do not fit the text: said in a line, without the three pages that Python prints of it.
            said = f"a record of {record.name} at {record.pathname}:{record.lineno} cannot be formatted"
            line = self.format(logging.LogRecord("mcpd", logging.ERROR, "", 0, "%s", (said,), None))
        self._write(f"{line}\n".encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """What logging calls at the end of the process."""
        self._repeats.say_all()
        self._finish()


class _Formatter(logging.Formatter):
    """One line for what was said, indented ones for its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        lines = [_escaped(line) for line in super().format(record).split("\n")]
        if len(lines) == 1:
            return lines[0]
        if record.name.partition(".")[0] == "mcpd":
            # Nothing of ours says more than one line: the rest of the message is of a peer.
            said = record.message.count("\n")
            lines[: said + 1] = ["\\n".join(lines[: said + 1])]
        return "\n  ".join(lines)

    def formatException(self, ei: object) -> str:  # noqa: N802
        return _shortened(super().formatException(ei))  # type: ignore[arg-type]


def _shortened(text: str) -> str:
    """A traceback: its first half and its last."""
    if len(text) <= MOST_TRACEBACK_CHARACTERS:
        return text
    half = MOST_TRACEBACK_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are left out …\n{text[-half:]}"


def _escaped(line: str) -> str:
    """A line without anything that could command a terminal; tabs may stay."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in line)


class _Kind:
    __slots__ = ("level", "name", "since", "suppressed", "template", "written")

    def __init__(self, record: logging.LogRecord, since: float) -> None:
        self.name, self.level, self.template = record.name, record.levelno, _template(record)
        self.since = since
        self.written = self.suppressed = 0


class _Repeats:
    """Lets the first few records of a kind pass, and says how many followed: at a later record, or at the end.

    Of a kind are records of one logger with one template, and with the same exception from the same place. What
    tools log with loggers of their own is theirs, and passes. Called with the handler's lock held.
    """

    def __init__(self, write: Callable[[logging.LogRecord], None]) -> None:
        self._write = write
        self._kinds: OrderedDict[object, _Kind] = OrderedDict()
        self._next_look = 0.0

    def passes(self, record: logging.LogRecord) -> bool:
        """Whether it is to be written."""
        if record.levelno <= logging.DEBUG or record.name.partition(".")[0] not in _COUNTED:
            return True
        # A call's own line, which is asked for, and what is told once and of which there are few.
        if hasattr(record, "mcpd_fields") or hasattr(record, "mcpd_told_once"):
            return True
        now = time.monotonic()
        if now >= self._next_look:
            self._look(now)
        key = (record.name, _template(record), _place(record))

        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._say(self._kinds.popitem(last=False)[1])
            self._kinds[key] = kind = _Kind(record, now)

        if kind.written < MOST_ALIKE:
            kind.written += 1
            return True

        if not kind.suppressed:
            self._tell(kind, "more lines like this one follow; they are counted")
        kind.suppressed += 1
        return False

    def _look(self, now: float) -> None:
        self._next_look = now + 1.0
        for key, kind in list(self._kinds.items()):
            if now - kind.since >= WINDOW:
                self._say(self._kinds.pop(key))

    def say_all(self) -> None:
        """What was counted and not said yet."""
        while self._kinds:
            self._say(self._kinds.popitem(last=False)[1])

    def _say(self, kind: _Kind) -> None:
        if kind.suppressed:
            times = "once more" if kind.suppressed == 1 else f"{kind.suppressed} times more"
            self._tell(kind, f"repeated {times} within {WINDOW:g} s: {kind.template}")

    def _tell(self, kind: _Kind, text: str) -> None:
        self._write(logging.LogRecord(kind.name, kind.level, "", 0, "… %s", (text,), None))


def _template(record: logging.LogRecord) -> str:
    """What records of a kind have in common; asyncio has no templates, but a first line."""
    return str(record.msg).partition("\n")[0][:_KIND_CHARACTERS]


def _place(record: logging.LogRecord) -> object:
    """Where the exception of a record comes from, None without one."""
    if not record.exc_info or record.exc_info[1] is None:
        return None
    place = record.exc_info[2]
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return type(record.exc_info[1]), None if place is None else (place.tb_frame.f_code.co_filename, place.tb_lineno)
