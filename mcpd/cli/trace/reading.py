"""Reads recordings: records become entries with their method, their answer and how long that took.

Entries are formatted as lines for people or as JSON. Recorded control characters are shown as escapes, so that they
never reach a terminal.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import DecodeError, Raw, Struct, ValidationError, field
from msgspec.json import Decoder, decode, encode

from mcpd.cli.talk.terminal import escape_json
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.transports.files import state_folder, try_lock
from mcpd.transports.recorder import Head, head_of

# The kind of an entry. `text` is a line that is not a message; `run` is the beginning of a process.
Role: TypeAlias = Literal["request", "notification", "result", "error", "text", "stderr", "event", "run"]

_POLL_SECONDS = 0.1


class Entry(Struct, kw_only=True):
    """One message, one line of text, or one event."""

    role: Role
    # Seconds since 1970.
    at: float
    # `host`, `server` or `stderr`; empty for events of the recorder.
    source: str = ""
    id: Any = None
    # For a response, the method of its request, if it is known.
    method: str = ""
    # For a response, how long it took.
    seconds: float | None = None
    # In bytes, as it passed.
    size: int = 0
    # The message itself, unless it was cut.
    head: Head | None = None
    # A line that is not a message, or the beginning of a message that was cut.
    text: str = ""
    event: dict[str, Any] = field(default_factory=dict)
    # The connection, if the file has several; the sender; and the receiver.
    way: tuple[int | None, str, str] = (None, "", "")
    is_cut: bool = False
    # An error, a failed tool, a line on stdout that is not a message, or a failed process.
    is_failure: bool = False
    # The record, as it is in the file.
    line: bytes = b""


class _Record(Struct):
    t: float = 0.0
    source: str = field(default="", name="from")
    size: int = 0
    message: Raw = Raw()
    text: str = ""
    # The data of a line that is not UTF-8, in base64; for the event `left out` the number of bytes.
    bytes: str | int | None = None
    connection: int | None = None
    to: str = ""
    cut: bool = False
    id: Any = None
    method: Any = None
    error: Any = None
    event: str = ""
    trace: int | None = None
    at: str = ""
    continues: bool = False


_read_record = Decoder(_Record).decode
_FAILED = frozenset(("not started", "left out", "reader gone", "failed", "unreadable"))


class TraceReader:
    """Reads the records of a file in order. Memory is needed only for requests without a response."""

    def __init__(self) -> None:
        # How many lines were not records.
        self.unreadable = 0
        self._began = 0.0
        self._open: dict[tuple[tuple[int | None, str, str], str], Entry] = {}

    def feed(self, line: bytes) -> list[Entry]:
        """Return the entries of one line of the file. A batch of messages is several entries."""
        try:
            record = _read_record(line)
        except (DecodeError, ValidationError, RecursionError, UnicodeDecodeError):
            self.unreadable += 1
            return []
        if record.trace is not None:
            return self._run(record, line)

        at = self._began + record.t
        if not record.source and not record.event:
            self.unreadable += 1
            return []
        if record.event:
            return [self._event(record, at, line)]

        entry = Entry(role="text", at=at, source=record.source, size=record.size, line=line, text=record.text)
        entry.is_cut = record.cut
        if record.source != "stderr":
            receiver = record.to or ("server" if record.source == "host" else "host")
            entry.way = (record.connection, record.source, receiver)
        if record.source == "stderr":
            entry.role = "stderr"
        elif record.message:
            return [self._message(entry, each) for each in _messages(record.message)]
        elif record.cut and (record.id is not None or record.method is not None):
            cut = Head(id=record.id, method=record.method)
            if record.method is None:
                cut.error, cut.result = (Raw(b"{}"), Raw()) if record.error else (Raw(), Raw(b"{}"))
            return [self._message(entry, cut, is_whole=False)]
        else:
            entry.text = record.text if record.bytes is None else f"{record.size} bytes that are not UTF-8"
            entry.is_failure = True
        return [entry]

    def unanswered(self) -> list[Entry]:
        """Return the requests without a response so far, oldest first."""
        return sorted(self._open.values(), key=lambda entry: entry.at)

    def _run(self, record: _Record, line: bytes) -> list[Entry]:
        try:
            self._began = datetime.fromisoformat(record.at).timestamp()
        except ValueError:
            self.unreadable += 1
        if record.continues:
            return []
        self._open.clear()
        words = decode(line).get("command")
        command = " ".join(map(str, words)) if isinstance(words, list) else ""
        return [Entry(role="run", at=self._began, text=command, line=line)]

    def _event(self, record: _Record, at: float, line: bytes) -> Entry:
        event = decode(line)
        entry = Entry(role="event", at=at, source=record.source, event=event, line=line)
        entry.is_failure = record.event in _FAILED or (record.event == "exited" and event.get("code") != 0)
        return entry

    def _message(self, entry: Entry, head: Head | None, *, is_whole: bool = True) -> Entry:
        entry.head = head if is_whole else None
        if head is None:
            entry.is_failure, entry.text = True, "a batch that cannot be read"
            return entry

        entry.id = head.id
        if isinstance(head.method, str):
            entry.method = head.method
            entry.role = "notification" if head.id is None else "request"
            if entry.role == "request":
                self._open[entry.way, repr(head.id)] = entry
            elif head.method == "notifications/cancelled":
                with suppress(DecodeError, UnicodeDecodeError):
                    given_up = decode(head.params or b"null", type=dict[str, Any]).get("requestId")
                    self._open.pop((entry.way, repr(given_up)), None)
            return entry

        entry.role = "error" if head.error else "result"
        entry.is_failure = entry.role == "error" or not head.result or b'"isError":true' in _compact(head.result)
        connection, sender, receiver = entry.way
        asked = self._open.pop(((connection, receiver, sender), repr(head.id)), None)
        if asked is not None:
            entry.method, entry.seconds = asked.method, entry.at - asked.at
        return entry


def _messages(message: Raw) -> list[Head | None]:
    if not bytes(message).startswith(b"["):
        return [head_of(message)]
    try:
        return [head_of(each) for each in decode(message, type=list[Raw])] or [None]
    except (DecodeError, ValidationError, RecursionError):
        return [None]


def _compact(result: Raw) -> bytes:
    # Only the beginning: `isError` is beside the content, which may be large.
    data = bytes(result)
    return (data if len(data) <= 4096 else data[:2048] + data[-2048:]).replace(b" ", b"")


def read_lines(path: Path, is_over: Callable[[], bool] | None = None) -> Iterator[bytes]:
    """Yield the lines of a file. With `is_over`, wait for further lines until it returns true. Raises OSError."""
    file = path.open("rb")
    try:
        half = b""
        while True:
            line = half + file.readline()
            if line.endswith(b"\n"):
                half = b""
                yield line[:-1]
                continue

            half = line
            if is_over is None or is_over():
                break
            if not _is_another(path, file.fileno()):
                time.sleep(_POLL_SECONDS)
                continue
            # The last lines may have been written after the read above.
            half += file.readline()
            if not half:
                file.close()
                file = path.open("rb")
        if half:
            yield half
    finally:
        file.close()


def _is_another(path: Path, descriptor: int) -> bool:
    # The file may have been renamed, because it was full, and a new one begun.
    try:
        return not os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


# How many recordings the default folder keeps. The oldest are removed, unless they are being written.
MAX_RECORDINGS = 20

_NAME = re.compile(r"[\w.+-]{1,40}-\d{8}-\d{6}-\d{1,10}\.jsonl")


def default_folder() -> Path:
    """Return the folder of recordings in mcpd's state folder."""
    return Path(state_folder()) / "traces"


def new_default_path(command: str) -> Path:
    """Return a path for the recording of a command. Makes the default folder, and removes old recordings from it.

    Raises ConfigurationError if the folder cannot be made.
    """
    folder = default_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be created: {error.strerror}; name a file: --file FILE") from error
    _remove_old(folder)
    name = re.sub(r"[^\w.+-]", "_", os.path.basename(command))[:40] or "server"
    return folder / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}.jsonl"


def newest_trace() -> Path | None:
    """Return the recording in the default folder that was written last; None in an empty folder."""
    return next(iter(_traces(default_folder())), None)


def _traces(folder: Path) -> list[Path]:
    found = {}
    with suppress(OSError):
        for path in folder.iterdir():
            if _NAME.fullmatch(path.name):
                with suppress(OSError):
                    found[path] = path.stat().st_mtime
    return sorted(found, key=found.__getitem__, reverse=True)


def _remove_old(folder: Path) -> None:
    for path in _traces(folder)[MAX_RECORDINGS - 1 :]:
        with suppress(OSError), path.open("rb") as file:
            if try_lock(file.fileno()):  # it is locked while it is being written
                path.unlink()
                path.with_name(path.name + ".1").unlink(missing_ok=True)


_MAX_DECODED = 256 * 1024


class Filter(Struct, frozen=True):
    """Selects entries. An entry has to match every criterion that is set."""

    # Names of methods, in which `*` matches anything. Responses go with their requests.
    methods: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    failures: bool = False
    # Only responses that took at least this many milliseconds.
    slow_ms: float | None = None
    # Searched for in the record.
    pattern: re.Pattern[str] | None = None

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
    """Format an entry as one line, with at most `most` characters of its content."""
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
    """Format an entry as its record, with the members `at`, `role`, `id`, `method` and `ms` added."""
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
    return escape_json(text)


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
