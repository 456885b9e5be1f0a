"""Records the messages that pass between two programs in a file: one JSON object per line.

`mcpd trace`, `mcpd serve --wire-log`, the preview and programs with a `Client` write this format, and `mcpd trace show`
reads it. docs/reference/metrics.md describes it. The file is written on a thread, so that passing on a message never
waits for the disk, or only for a bounded time. A recording contains users' data, so only its owner may read it.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Encoder, decode, encode, format

from mcpd.errors import ConfigurationError
from mcpd.protocol.observer import ObservedFrame, Observer
from mcpd.protocol.printable import (
    is_secret,
    mask_command,
    mask_json,
    mask_text,
    may_hold_secrets,
    printable,
)
from .files import try_lock

# The number of this format, in the first line of each run. It changes if readers have to distinguish two formats.
FORMAT = 1

MAX_FILE_BYTES = 64 * 1024 * 1024

# The recorder examines only both ends of a longer message.
MAX_DECODED_BYTES = 16 * 1024 * 1024

# How many bytes may wait for the disk.
MAX_PENDING_BYTES = 32 * 1024 * 1024

# Seconds that `record` waits for the disk when too much is pending. After that, bytes are left out and counted.
PATIENCE_SECONDS = 1.0

Source: TypeAlias = Literal["host", "server", "stderr"]
SOURCES: tuple[Source, ...] = ("host", "server", "stderr")

_CLOSE_SECONDS = 5.0
_TAIL_BYTES = 256
_MALFORMED = (DecodeError, ValidationError, UnicodeDecodeError, RecursionError)
_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,18}\b|"[^"\\]{0,100}")')
_METHOD = re.compile(rb'"method"\s*:\s*"([\w/.-]{1,100})"')
# Values that clients carry between rounds, and ids that open sessions and tasks. `masking` does not know these names.
_TICKETS = frozenset(("requeststate", "sessionid", "mcpsessionid"))

encode_record = Encoder().encode


class Recording(Struct, frozen=True):
    """How messages are recorded."""

    max_bytes: int = 1024 * 1024
    """A longer message is cut to this size, in bytes."""
    max_characters: int | None = None
    """Each text in a message is cut to this length; None keeps texts whole. It also masks session ids and states."""
    shows_secrets: bool = False
    """Whether tokens and passwords are written as they are."""


class Head(Struct):
    """The members of a message that say what it is. An absent member is None, or empty."""

    id: Any = None
    method: Any = None
    result: Raw = Raw()
    error: Raw = Raw()
    params: Raw = Raw()


def head_of(message: bytes | Raw) -> Head | None:
    """Return the head of a message; None for a batch and for malformed messages."""
    try:
        return decode(message, type=Head)
    except _MALFORMED:
        return None


class Line(Struct, frozen=True):
    """One line of output, or its beginning if it is very long."""

    data: bytes
    size: int
    """In bytes, without the newline."""
    tail: bytes = b""
    """The last bytes of a line that was cut."""


class LineSplitter:
    """Splits the bytes of one direction into lines. Memory is bounded, however long a line is."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max(max_bytes, MAX_DECODED_BYTES)
        self._parts: list[bytes] = []
        self._kept = 0
        # How many bytes of an unfinished line have arrived.
        self.size = 0
        self._tail = b""

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that end in these bytes."""
        *ended, rest = data.split(b"\n")
        lines = []
        for part in ended:
            self._take(part)
            lines.append(self.finish())
        if rest:
            self._take(rest)
        return lines

    def finish(self) -> Line:
        """Return the unfinished line, and begin a new one."""
        line = Line(b"".join(self._parts), self.size, self._tail)
        self._parts, self._kept, self.size, self._tail = [], 0, 0, b""
        return line

    def _take(self, part: bytes) -> None:
        self.size += len(part)
        if self._kept + len(part) <= self._max_bytes:
            self._parts.append(part)
            self._kept += len(part)
            return
        kept = part[: self._max_bytes - self._kept]
        self._parts.append(kept)
        self._kept += len(kept)
        self._tail = (self._tail + part[-_TAIL_BYTES:])[-_TAIL_BYTES:]


def to_record(source: str, line: Line, seconds: float, recording: Recording) -> dict[str, Any]:
    """Return the record of one line; `seconds` is the time since the run began."""
    data, size = line.data, line.size
    record: dict[str, Any] = {"t": round(seconds, 6), "from": source, "size": size}
    if data.endswith(b"\r") and size == len(data):
        data = data[:-1]
        record["end"] = "\r\n"
    if source != "stderr" and size <= MAX_DECODED_BYTES:
        message = _message(data, recording)
        if message is not None:
            if len(message) <= recording.max_bytes:
                record["message"] = Raw(message)
                return record
            data = message  # without its secrets

    if len(data) > recording.max_bytes or size > recording.max_bytes:
        record["cut"] = True
        if source != "stderr":
            record |= _identity(data, size, line.tail)
    _add_text(record, data, recording)
    return record


def _message(data: bytes, recording: Recording) -> bytes | None:
    data = data.strip()
    if data[:1] not in (b"{", b"["):
        return None
    try:
        data.decode()  # msgspec skips the insides of strings
        decode(data, type=Raw)
        if not recording.shows_secrets and may_hold_secrets(data):
            data = mask_json(data)
        if recording.max_characters is not None:
            data = encode(_shortened(decode(data), recording.max_characters))
        return format(data, indent=-1) if b"\n" in data else data
    except _MALFORMED:
        return None


def _shortened(value: Any, most: int, name: str = "") -> Any:
    if value is not None and (is_secret(name) or name.lower().replace("-", "").replace("_", "") in _TICKETS):
        return value if isinstance(value, str) and value.startswith("<masked") else "<masked>"
    if isinstance(value, dict):
        return {printable(key, most): _shortened(member, most, key) for key, member in value.items()}
    if isinstance(value, list):
        return [_shortened(item, most) for item in value]
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}… ({len(value)} characters)"
    return value


def _identity(data: bytes, size: int, tail: bytes) -> dict[str, Any]:
    head = head_of(data) if size <= MAX_DECODED_BYTES else None
    if head is not None:
        members = {"id": head.id, "method": head.method, "error": True if head.error else None}
    else:
        begin = data[:_TAIL_BYTES]
        found_id, found_method = _ID.search(begin) or _ID.search(tail), _METHOD.search(begin)
        members = {
            "id": None if found_id is None else decode(found_id[1]),
            "method": None if found_method is None else found_method[1].decode(),
        }
    return {name: value for name, value in members.items() if value is not None}


def _add_text(record: dict[str, Any], data: bytes, recording: Recording) -> None:
    data = data[: recording.max_bytes]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if record.get("cut") and error.start >= len(data) - 3:  # cut in the middle of a character
            text = data[: error.start].decode()
        elif record["from"] == "stderr":
            text = data.decode(errors="backslashreplace")
        else:
            text = data.decode("latin-1")
            has_secret = not recording.shows_secrets and mask_text(text) != text
            record["bytes"] = "" if has_secret else b64encode(data).decode()
            if has_secret:
                record["masked"] = True
            return

    text = text if recording.shows_secrets else mask_text(text)
    record["text"] = text if recording.max_characters is None else printable(text, recording.max_characters)


def header(command: Sequence[str], recording: Recording, at: datetime | None = None) -> dict[str, Any]:
    """Return the first record of a run: the number of the format, when the run began, and its command."""
    return {
        "trace": FORMAT,
        "at": (at or datetime.now(UTC)).isoformat(),
        "command": list(command) if recording.shows_secrets else mask_command(command),
    }


class TraceFile:
    """A private file that grows to `max_bytes` and then becomes `NAME.1`, replacing the one before it.

    New records are appended. If another process writes the file, the number of this process goes into the name.
    Raises ConfigurationError, which names `option`, if the file cannot be written, is a link or belongs to another
    user.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_FILE_BYTES, *, option: str = "--file") -> None:
        self.path = path.absolute()
        self._max_bytes = max_bytes
        self._option = option
        try:
            self._descriptor = self._open()
            if not try_lock(self._descriptor):
                os.close(self._descriptor)
                self.path = self.path.with_name(f"{self.path.stem}.{os.getpid()}{self.path.suffix}")
                self._descriptor = self._open()
                try_lock(self._descriptor)
        except OSError as error:
            text = f"{self.path} cannot be written: {error.strerror}; name another file: {option} FILE"
            raise ConfigurationError(text) from error

        self._size = os.fstat(self._descriptor).st_size
        # A process that was killed may have left half a line.
        if self._size:
            os.lseek(self._descriptor, -1, os.SEEK_END)
            if os.read(self._descriptor, 1) != b"\n":
                self.write(b"\n")

    @property
    def is_full(self) -> bool:
        return self._size >= self._max_bytes

    def write(self, data: bytes) -> None:
        """Append whole lines. Raises OSError."""
        view = memoryview(data)
        while view:
            written = os.write(self._descriptor, view)
            self._size += written
            view = view[written:]

    def rotate(self) -> None:
        """Begin a new file, and keep the old one as `NAME.1`. Raises OSError."""
        os.replace(self.path, f"{self.path}.1")
        old, self._descriptor = self._descriptor, self._open()
        os.close(old)
        try_lock(self._descriptor)
        self._size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
            flags |= getattr(os, name, 0)
        descriptor = os.open(self.path, flags, 0o600)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or (sys.platform != "win32" and status.st_uid != os.geteuid()):
                text = f"{self.path} is not a file of yours; name a file, new or your own: {self._option} FILE"
                raise ConfigurationError(text)
            if status.st_mode & 0o077 and sys.platform != "win32":
                os.fchmod(descriptor, 0o600)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class Recorder:
    """Records one run. `record`, `record_message` and `record_event` may be called on any thread.

    The records are in the order of the calls. `complain` is called once, on another thread, if the file cannot be
    written any more. `patience` is the most that `record` waits for the disk, in seconds (default 1).
    """

    def __init__(
        self,
        file: TraceFile,
        command: Sequence[str],
        recording: Recording | None = None,
        *,
        complain: Callable[[str], None] = lambda text: None,
        patience: float | None = None,
    ) -> None:
        self._file = file
        self._recording = recording or Recording()
        self._complain = complain
        self._patience = PATIENCE_SECONDS if patience is None else patience
        self._splitters = {source: LineSplitter(self._recording.max_bytes) for source in SOURCES}
        self._start = time.monotonic()
        self._header = header(command, self._recording)

        self._changed = threading.Condition()
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._left_out = 0
        self._is_closed = False
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="mcpd-recorder", daemon=True)
        self._thread.start()

    def record(self, source: Source, data: bytes) -> None:
        """Record bytes of a stream of lines. Never raises; waits for the disk for a bounded time."""
        self._add(_Pending(time.monotonic(), source, data))

    def record_message(self, source: Source, message: bytes, **members: object) -> None:
        """Record one whole message, with these members in its record."""
        self._add(_Pending(time.monotonic(), source, message, members, is_whole=True))

    def record_event(self, name: str, **members: object) -> None:
        """Record something else that happened, such as the end of a process."""
        with self._changed:
            self._put(_Pending(time.monotonic(), None, b"", {"event": name, **members}))

    def close(self) -> None:
        """Write what is pending, for five seconds at most, and close the file."""
        with self._changed:
            if self._left_out and not self._is_closed:
                self._put_left_out(time.monotonic())
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._file.close()

    def _add(self, pending: _Pending) -> None:
        with self._changed:
            if self._pending_bytes > MAX_PENDING_BYTES and not self._left_out and self._patience:
                self._changed.wait_for(lambda: self._pending_bytes <= MAX_PENDING_BYTES, self._patience)
            if self._pending_bytes > MAX_PENDING_BYTES or self._has_failed or self._is_closed:
                self._left_out += len(pending.data)
                return
            if self._left_out:
                self._put_left_out(pending.at)
            self._put(pending)

    def _put_left_out(self, at: float) -> None:
        self._put(_Pending(at, None, b"", {"event": "left out", "bytes": self._left_out}))
        self._left_out = 0

    def _put(self, pending: _Pending) -> None:
        self._pending.append(pending)
        self._pending_bytes += len(pending.data)
        self._changed.notify_all()

    # -- on its thread -----------------------------------------------------------------------

    def _run(self) -> None:
        self._write([encode_record(self._header)])
        is_over = False
        while not is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._is_closed)
                taken, self._pending = self._pending, deque()
                is_over = self._is_closed and not taken

            for each in taken:
                self._write(self._records(each))
                with self._changed:
                    self._pending_bytes -= len(each.data)
                    self._changed.notify_all()

        self._write(self._unfinished())

    def _records(self, pending: _Pending) -> list[bytes]:
        seconds = pending.at - self._start
        if pending.source is None:
            # The unfinished lines go before the end of the process: no newline will follow any more.
            is_end = pending.members["event"] in ("exited", "left out")
            before = self._unfinished() if is_end else []
            return [*before, encode_record({"t": round(seconds, 6), **pending.members})]
        if pending.is_whole:
            lines = [Line(pending.data, len(pending.data))]
        else:
            lines = self._splitters[pending.source].feed(pending.data)
        return [
            encode_record(to_record(pending.source, line, seconds, self._recording) | dict(pending.members))
            for line in lines
        ]

    def _unfinished(self) -> list[bytes]:
        seconds = time.monotonic() - self._start
        return [
            encode_record(to_record(source, splitter.finish(), seconds, self._recording) | {"unfinished": True})
            for source, splitter in self._splitters.items()
            if splitter.size
        ]

    def _write(self, records: list[bytes]) -> None:
        if not records or self._has_failed:
            return
        try:
            if self._file.is_full:
                self._file.rotate()
                self._file.write(encode_record(self._header | {"continues": True}) + b"\n")
            self._file.write(b"".join([each + b"\n" for each in records]))
        except OSError as error:
            with self._changed:
                self._has_failed = True
                self._pending.clear()
                self._pending_bytes = 0
            self._complain(f"{printable(self._file.path)} cannot be written any more: {error.strerror}")


class _Pending(Struct, frozen=True):
    """Data that waits for the disk: bytes of a source, or an event."""

    at: float
    source: Source | None
    data: bytes
    members: Mapping[str, Any] = {}
    is_whole: bool = False


# Each text in a message is cut to this length.
MAX_CHARACTERS = 200

log = logging.getLogger("mcpd")


class WireLog(Observer):
    """Records each frame of a server in a private file, without secrets and without waiting for the disk.

    Raises ConfigurationError if the file cannot be written, is a link or belongs to somebody else.
    """

    def __init__(self, path: str) -> None:
        file = TraceFile(Path(path), sys.maxsize, option="--wire-log")
        recording = Recording(max_characters=MAX_CHARACTERS)
        self._recorder = Recorder(file, ["mcpd", *sys.argv[1:]], recording, complain=log.error, patience=0)

    def frame_received(self, frame: ObservedFrame) -> None:
        self._recorder.record_message("host", frame.data, connection=frame.connection)

    def frame_sent(self, frame: ObservedFrame) -> None:
        self._recorder.record_message("server", frame.data, connection=frame.connection)

    def close(self) -> None:
        self._recorder.close()
