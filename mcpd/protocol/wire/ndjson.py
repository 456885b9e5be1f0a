"""Newline-delimited JSON: splitting a byte stream into frames. Spec: 2026-07-28 basic/transports/stdio.

A message is one line. A line that is too long is skipped, and only its two ends are kept, to find its id for the error
answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import DecodeError, Struct
from msgspec.json import decode

# The bytes kept of each end of a message that is too large.
END_BYTES = 512

_ID = rb'("(?:[^"\\]|\\.)*"|-?[0-9]{1,18})'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_IS_ANSWER = {b"result": True, b"error": True, b"method": False, b"params": False}

# `re` compiles these patterns when the first message is too large.
_FIRST_MEMBER = rb'\s*\{\s*(?:%b\s*,\s*)?"(\w+)"\s*:' % _VERSION
_ID_FIRST = rb'\s*\{\s*(?:%b\s*,\s*)?"id"\s*:\s*%b\s*,\s*(?:%b\s*,\s*)?"(\w+)"\s*:' % (_VERSION, _ID, _VERSION)
# Only scalars may follow, so that the id is the message's own and not one of a nested object.
_ID_LAST = rb',\s*"id"\s*:\s*%b\s*(?:,\s*%b\s*)?\}\s*\Z' % (_ID, _VERSION)


class OversizedMessage(Struct, frozen=True):
    """The two ends of a message that was too large to keep."""

    head: bytes
    tail: bytes
    # Whether the memory budget refused it, and not the size limit.
    is_refused: bool = False

    def isspace(self) -> bool:
        """Return False. Lists of lines mix bytes and these objects, and are filtered with `isspace`."""
        return False

    @property
    def id(self) -> int | str | None:
        """The id of the message; None if it is missing or unknown."""
        match = re.match(_ID_FIRST, self.head) or re.search(_ID_LAST, self.tail)
        try:
            return None if match is None else decode(match[1], type=int | str)
        except (DecodeError, UnicodeDecodeError):
            return None

    @property
    def is_answer(self) -> bool | None:
        """Whether the message is an answer; None if that is unknown."""
        match = re.match(_ID_FIRST, self.head)
        if match is not None:
            return _IS_ANSWER.get(match[2])
        match = re.match(_FIRST_MEMBER, self.head)
        return None if match is None else _IS_ANSWER.get(match[1])


def answered_request_id(message: bytes) -> int | str | None:
    """Return the id of an unreadable answer; None if the message is not an answer, or the id is unknown."""
    torn = OversizedMessage(message[:END_BYTES], message[-END_BYTES:])
    return torn.id if torn.is_answer else None


# The bytes of a skipped line that may gather before all but its end is dropped.
_SKIPPED_BYTES = 64 * 1024


class Splitter:
    """Splits chunks of bytes into lines, in time linear in the bytes.

    Args:
        max_frame_bytes: A longer line is dropped, and returned as an `OversizedMessage`.
        may_keep: Called with the bytes held of an incomplete line, and with 0 at its end. If it returns False, the
            line is dropped like one that is too long.
    """

    def __init__(self, max_frame_bytes: int, may_keep: Callable[[int], bool] | None = None) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._may_keep = may_keep
        self._is_refused = False
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        # The beginning of the line that is being skipped.
        self._head = b""
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[bytes | OversizedMessage]:
        """Return the lines that `chunk` completes, without newlines and blank lines."""
        is_whole = 0 <= chunk.find(b"\n") == len(chunk) - 1 <= self.max_frame_bytes
        if is_whole and not self._tail and not self._is_skipping:
            # The usual case: a client that waits for each answer sends one whole line.
            return [] if chunk.isspace() else [chunk[:-1]]

        lines: list[bytes | OversizedMessage] = chunk.split(b"\n")  # type: ignore[assignment]
        last: bytes = lines.pop()  # type: ignore[assignment]
        limit = self.max_frame_bytes
        if lines:
            if self._tail or self._is_skipping:
                lines[0] = self._complete(lines[0])  # type: ignore[arg-type]
            if len(chunk) > limit:
                lines = [_oversized(line) if line.__class__ is bytes and len(line) > limit else line for line in lines]

        if last:
            self._keep(last)
        return [line for line in lines if line and not line.isspace()]

    def _complete(self, end: bytes) -> bytes | OversizedMessage:
        if not self._is_skipping and self._tail_bytes + len(end) > self.max_frame_bytes:
            self._skip()
        line: bytes | OversizedMessage
        if self._is_skipping:
            line = OversizedMessage(
                self._head, b"".join((*self._tail, end[-END_BYTES:]))[-END_BYTES:], self._is_refused
            )
            self._head = b""
            self._is_refused = False
        else:
            line = b"".join((*self._tail, end))

        self._tail.clear()
        self._tail_bytes = 0
        self._is_skipping = False
        if self._may_keep is not None:
            self._may_keep(0)
        return line

    def _keep(self, part: bytes) -> None:
        self._tail.append(part)
        self._tail_bytes += len(part)
        if self._is_skipping:
            if self._tail_bytes > _SKIPPED_BYTES:
                self._keep_end()
        elif self._tail_bytes > self.max_frame_bytes:
            self._skip()
        elif self._may_keep is not None and not self._may_keep(self._tail_bytes):
            self._is_refused = True
            self._skip()

    def _skip(self) -> None:
        self._is_skipping = True
        self._head = b"".join(part[:END_BYTES] for part in self._tail[:END_BYTES])[:END_BYTES]
        self._keep_end()
        if self._may_keep is not None:
            self._may_keep(0)

    def _keep_end(self) -> None:
        end = b"".join(part[-END_BYTES:] for part in self._tail[-END_BYTES:])[-END_BYTES:]
        self._tail = [end]
        self._tail_bytes = len(end)

    def end(self) -> list[bytes | OversizedMessage]:
        """Return the line after the last newline, at the end of the stream."""
        if not self._tail and not self._is_skipping:
            return []
        line = self._complete(b"")
        return [] if isinstance(line, bytes) and line.isspace() else [line]


def _oversized(line: bytes | OversizedMessage) -> OversizedMessage:
    return OversizedMessage(line[:END_BYTES], line[-END_BYTES:])  # type: ignore[index]
