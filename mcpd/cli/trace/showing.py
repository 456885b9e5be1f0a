"""Selects entries of a recording, and formats them as lines for people or as JSON.

Recorded control characters are shown as escapes, so that they never reach a terminal.
"""

from __future__ import annotations

import re
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import decode, encode

from mcpd.cli.trace.reading import Entry
from mcpd.protocol.printable import printable

_MAX_DECODED = 256 * 1024


class Filter(Struct, frozen=True):
    """Selects entries. An entry has to match every criterion that is set."""

    methods: tuple[str, ...] = ()
    """Names of methods, in which `*` matches anything. Responses go with their requests."""
    ids: tuple[str, ...] = ()
    failures: bool = False
    slow_ms: float | None = None
    """Only responses that took at least this many milliseconds."""
    pattern: re.Pattern[str] | None = None
    """Searched for in the record."""

    def wants(self, entry: Entry) -> bool:
        """Return whether the entry matches. The beginning of a run always does, unless a pattern is searched for."""
        if self.pattern is not None and not self.pattern.search(entry.line.decode("utf-8", "replace")):
            return False
        if entry.role == "run":
            return not self.failures and self.slow_ms is None
        if self.methods and not any(fnmatchcase(entry.method, each) for each in self.methods):
            return False
        if self.ids and (entry.id is None or str(entry.id) not in self.ids):
            return False
        if self.failures and not entry.is_failure:
            return False
        return self.slow_ms is None or (entry.seconds is not None and entry.seconds * 1000 >= self.slow_ms)

    def wants_unanswered(self, entry: Entry) -> bool:
        """Return whether a request without a response matches. It counts as slow, and as a failure."""
        return Filter(methods=self.methods, ids=self.ids, pattern=self.pattern).wants(entry)


def as_line(entry: Entry, most: int = 120) -> str:
    """Format an entry as one line: time, direction, id, method, duration, size, and `most` characters of its
    content.
    """
    time = f"{datetime.fromtimestamp(entry.at):%H:%M:%S.%f}"[:-3]
    if entry.role == "run":
        return f"── {datetime.fromtimestamp(entry.at):%Y-%m-%d} {time}  {printable(entry.text, max(most, 200))}"
    if entry.role == "event":
        return f"{time} ·  {_event(entry)}"
    if entry.role == "stderr":
        return f"{time} ·  stderr  {printable(entry.text, most)}"

    arrow = "→" if entry.source == "host" else "←"
    if entry.role == "text":
        return f"{time} {arrow}  not a message: {printable(entry.text, most)}"
    took = "" if entry.seconds is None else readable_time(entry.seconds)
    shown_id = "" if entry.id is None else printable(entry.id, 12)
    method = printable(entry.method, 40) or "(an answer to nothing)"
    says = "" if entry.is_cut else printable(_content(entry), most)
    cut = "(not recorded whole) " if entry.is_cut else ""
    return f"{time} {arrow} {shown_id:<5} {method:<26} {took:>8} {readable_size(entry.size):>8}  {cut}{says}".rstrip()


def as_json(entry: Entry) -> str:
    """Format an entry as its record with the members `at`, `role`, `id`, `method` and `ms` added. Unprintable
    characters are escaped.
    """
    added: dict[str, Any] = {"at": datetime.fromtimestamp(entry.at).astimezone().isoformat(), "role": entry.role}
    if entry.id is not None:
        added["id"] = entry.id
    if entry.method:
        added["method"] = entry.method
    if entry.seconds is not None:
        added["ms"] = round(entry.seconds * 1000, 3)
    if entry.is_failure:
        added["failure"] = True
    record = decode(entry.line, type=dict[str, Raw])
    text = encode({**record, **added}).decode()
    # Unprintable characters are inside strings, where an escape means the same.
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def readable_time(seconds: float) -> str:
    """Format a duration with a few digits and its unit."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def readable_size(size: int) -> str:
    """Format a size in B, KB or MB."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} KB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def _event(entry: Entry) -> str:
    event = entry.event
    name = event.get("event")
    who = {"host": "the host", "server": "the server", "stderr": "the server's stderr"}.get(entry.source, "")
    reader = "the server" if entry.source == "host" else "the host"
    texts = {
        "started": f"the server is started, process {event.get('pid')}",
        "not started": f"the server cannot be started: {event.get('error')}",
        "end": f"{who} has closed its side" if entry.source != "stderr" else "the server has closed its stderr",
        "reader gone": f"{reader} has stopped reading",
        "signal": f"{event.get('signal')} was sent to the server",
        "exited": f"the server has ended, exit code {event.get('code')}",
        "failed": f"no answer to id {event.get('id')}: {event.get('error')}",
        "unreadable": f"the server sent an unreadable message: {event.get('error')}",
        "note": str(event.get("text")),
        "left out": f"{event.get('bytes')} bytes were not recorded: the disk was too slow",
    }
    if name == "exited" and "signal" in event:
        return f"the server was ended by {printable(event['signal'])}"
    return printable(texts.get(str(name), encode(event).decode()))


def _content(entry: Entry) -> str:
    """The content of a message in short."""
    head = entry.head
    if head is None:
        return ""
    raw = head.error if entry.role == "error" else head.result if entry.role == "result" else head.params
    if not raw:
        return ""
    if len(raw) > _MAX_DECODED:
        return bytes(raw)[:1000].decode("utf-8", "replace")

    try:
        value = decode(raw)
    except (DecodeError, ValidationError, RecursionError, UnicodeDecodeError):
        return bytes(raw)[:1000].decode("utf-8", "replace")
    if not isinstance(value, dict):
        return encode(value).decode()
    if entry.role == "error":
        data = f" {encode(value['data']).decode()}" if value.get("data") is not None else ""
        return f"error {value.get('code')}: {value.get('message')}{data}"
    value.pop("_meta", None)
    if entry.role == "result":
        return _result(value)
    name = value.pop("name", None) if entry.method in ("tools/call", "prompts/get") else None
    given = value.pop("arguments", None) if name is not None else None
    rest = encode(value).decode() if value and name is None else ""
    return f"{name} {encode(given).decode() if given else ''}{rest}" if name is not None else rest


def _result(value: dict[str, Any]) -> str:
    failed = "the tool failed: " if value.get("isError") is True else ""
    content = value.get("content")
    if isinstance(content, list):
        texts = [str(each.get("text")) for each in content if isinstance(each, dict) and each.get("type") == "text"]
        others = [str(each.get("type")) for each in content if isinstance(each, dict) and each.get("type") != "text"]
        return failed + " ".join([*texts, *(f"[{other}]" for other in others)])
    for name in ("tools", "resources", "resourceTemplates", "prompts"):
        if isinstance(listed := value.get(name), list):
            names = [str(each.get("name")) for each in listed if isinstance(each, dict)]
            more = ", and more pages" if value.get("nextCursor") is not None else ""
            return f"{len(listed)}: {', '.join(names)}{more}"
    return failed + encode(value).decode()
