"""The lines of a trace file: what is written of the bytes that pass, one JSON object for each message.

docs/tracing.md has the format for people who read it with programs of their own.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any, Literal, TypeAlias

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import Encoder, decode

from mcpd.protocol.printable import mask_json, mask_text, may_hold_secrets

FORMAT = 1
"""The number of this format, in the first line of each run; it changes if a reader has to know."""

Source: TypeAlias = Literal["host", "server", "stderr"]
SOURCES: tuple[Source, ...] = ("host", "server", "stderr")

MOST_READ_BYTES = 16 * 1024 * 1024
"""Of a longer message only its two ends are looked at."""

_TAIL_BYTES = 256
_MALFORMED = (DecodeError, ValidationError, UnicodeDecodeError, RecursionError)

encode_record = Encoder().encode


class Recording(Struct, frozen=True):
    """How messages are written."""

    most_bytes: int = 1024 * 1024
    """Of a longer message only so much is written, and that it was cut."""
    shows_secrets: bool = False


class Head(Struct):
    """What tells what a message is. A member that is not there is None, or empty."""

    id: Any = None
    method: Any = None
    result: Raw = Raw()
    error: Raw = Raw()
    params: Raw = Raw()


class Lines:
    """The bytes of one direction, cut into lines. Memory is bounded, however long a line is."""

    def __init__(self, most_bytes: int) -> None:
        self._most = max(most_bytes, MOST_READ_BYTES)
        self._parts: list[bytes] = []
        self._kept = 0
        self._size = 0
        self._tail = b""

    def feed(self, data: bytes) -> list[tuple[bytes, int, bytes]]:
        """Each line that ends in these bytes: what was kept of it, its size without the newline, its last bytes."""
        *ended, rest = data.split(b"\n")
        found = []
        for part in ended:
            self._take(part)
            found.append(self.end())
        if rest:
            self._take(rest)
        return found

    def end(self) -> tuple[bytes, int, bytes]:
        """The line so far, which ends here."""
        line = (b"".join(self._parts), self._size, self._tail)
        self._parts, self._kept, self._size, self._tail = [], 0, 0, b""
        return line

    @property
    def size(self) -> int:
        """How many bytes of a line have come without its end."""
        return self._size

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        if self._kept + len(part) <= self._most:
            self._parts.append(part)
            self._kept += len(part)
            return
        kept = part[: self._most - self._kept]
        self._parts.append(kept)
        self._kept += len(kept)
        self._tail = (self._tail + part[-_TAIL_BYTES:])[-_TAIL_BYTES:]


def to_record(
    source: Source, line: bytes, size: int, tail: bytes, seconds: float, recording: Recording
) -> dict[str, Any]:
    """The record of one line. `size` is in bytes, without the newline; `seconds` since the run began."""
    record: dict[str, Any] = {"t": round(seconds, 6), "from": source, "size": size}
    if line.endswith(b"\r") and size == len(line):
        line = line[:-1]
        record["end"] = "\r\n"
    if source != "stderr" and size <= MOST_READ_BYTES:
        message = _message(line, recording)
        if message is not None:
            if len(message) <= recording.most_bytes:
                record["message"] = Raw(message)
                return record
            line = message  # its secrets are gone

    if len(line) > recording.most_bytes or size > recording.most_bytes:
        record["cut"] = True
        if source != "stderr":
            record |= _what_it_was(line, size, tail)
    _add_text(record, line, recording)
    return record


def head_of(message: bytes | Raw) -> Head | None:
    """What a message is; None for a batch, and for what is no message."""
    try:
        return decode(message, type=Head)
    except _MALFORMED:
        return None


def _message(line: bytes, recording: Recording) -> bytes | None:
    """A line as JSON that can stand inside other JSON, without its secrets; None if it is no object or array."""
    line = line.strip()
    if line[:1] not in (b"{", b"["):
        return None
    try:
        line.decode()  # msgspec skips the insides of strings
        decode(line, type=Raw)
        return line if recording.shows_secrets or not may_hold_secrets(line) else mask_json(line)
    except _MALFORMED:
        return None


def _what_it_was(line: bytes, size: int, tail: bytes) -> dict[str, Any]:
    """The id and method of a message that is not written whole."""
    head = head_of(line) if size <= MOST_READ_BYTES else None
    if head is not None:
        found = {"id": head.id, "method": head.method, "error": True if head.error else None}
    else:
        found = {"id": _id_in(line[:_TAIL_BYTES]) or _id_in(tail), "method": _method_in(line[:_TAIL_BYTES])}
    return {name: value for name, value in found.items() if value is not None}


_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,18}\b|"[^"\\]{0,100}")')
_METHOD = re.compile(rb'"method"\s*:\s*"([\w/.-]{1,100})"')


def _id_in(data: bytes) -> Any:
    found = _ID.search(data)
    return None if found is None else decode(found[1])


def _method_in(data: bytes) -> str | None:
    found = _METHOD.search(data)
    return None if found is None else found[1].decode()


def _add_text(record: dict[str, Any], line: bytes, recording: Recording) -> None:
    """A line as it is, or its beginning: as text, or in base64 if it is none."""
    data = line[: recording.most_bytes]
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if record.get("cut") and error.start >= len(data) - 3:  # the cut is in the middle of a character
            text = data[: error.start].decode()
        elif record["from"] == "stderr":
            text = data.decode(errors="backslashreplace")
        else:
            text = data.decode("latin-1")
            is_secret = not recording.shows_secrets and mask_text(text) != text
            record["bytes"] = "" if is_secret else b64encode(data).decode()
            if is_secret:
                record["masked"] = True
            return

    record["text"] = text if recording.shows_secrets else mask_text(text)
