"""Newline-delimited JSON: cutting a byte stream into frames. Spec: 2026-07-28 basic/transports/stdio.

A message is one line; no message holds a newline. An overlong line is skipped to its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from msgspec import DecodeError, Struct
from msgspec.json import decode

END_BYTES = 512
"""How much of each end is kept."""

_ID = rb'("(?:[^"\\]|\\.)*"|-?[0-9]{1,18})'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_IS_ANSWER = {b"result": True, b"error": True, b"method": False, b"params": False}


class _Patterns(Struct, frozen=True):
    first_member: re.Pattern[bytes]
    id_first: re.Pattern[bytes]
    id_last: re.Pattern[bytes]
    """Only scalars stand between it and the end of the message: it is the message's own id, and not one deep inside."""


@cache
def _patterns() -> _Patterns:
    # Made when the first message is torn: to compile them costs start-up.
    return _Patterns(
        re.compile(rb'\s*\{\s*(?:%b\s*,\s*)?"(\w+)"\s*:' % _VERSION),
        re.compile(rb'\s*\{\s*(?:%b\s*,\s*)?"id"\s*:\s*%b\s*,\s*(?:%b\s*,\s*)?"(\w+)"\s*:' % (_VERSION, _ID, _VERSION)),
        re.compile(rb',\s*"id"\s*:\s*%b\s*(?:,\s*%b\s*)?\}\s*\Z' % (_ID, _VERSION)),
    )


class Torn(Struct, frozen=True):
    """The two ends of a message that was not taken."""

    head: bytes
    tail: bytes
    is_refused: bool = False
    """Not for its size alone: whoever reads had no room for it."""

    def isspace(self) -> bool:
        """It never is: so a list of lines can be sifted without a look at what each of them is."""
        return False

    @property
    def id(self) -> int | str | None:
        """The message's id; None if it has none, or it is unknown."""
        found = _patterns().id_first.match(self.head) or _patterns().id_last.search(self.tail)
        try:
            return None if found is None else decode(found[1], type=int | str)
        except (DecodeError, UnicodeDecodeError):
            return None

    @property
    def is_answer(self) -> bool | None:
        """Whether it answers a request, or is one, or a notification; None if that is unknown."""
        found = _patterns().id_first.match(self.head)
        if found is not None:
            return _IS_ANSWER.get(found[2])
        found = _patterns().first_member.match(self.head)
        return None if found is None else _IS_ANSWER.get(found[1])


def answered_by(message: bytes) -> int | str | None:
    """The id of the request that a message answers which cannot be read; None if it is none, or unknown."""
    torn = Torn(message[:END_BYTES], message[-END_BYTES:])
    return torn.id if torn.is_answer else None


_SKIPPED_BYTES = 64 * 1024
"""So much of a line that is skipped may gather before all but its end is dropped."""


class Splitter:
    """Cuts chunks into lines. A line that grows over `max_frame_bytes` is dropped, and given as its two ends.

    So is one for which `may_keep` says no; it is told how much is kept of a line that is not whole yet, 0 at its end.
    Linear in the bytes fed, however they are cut.
    """

    def __init__(self, max_frame_bytes: int, may_keep: Callable[[int], bool] | None = None) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._may_keep = may_keep
        self._is_refused = False
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._head = b""
        """How the line began that is skipped."""
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[bytes | Torn]:
        """The lines that `chunk` completes, without their newlines, blank ones left out; `Torn` for one too large."""
        is_whole = 0 <= chunk.find(b"\n") == len(chunk) - 1 <= self.max_frame_bytes
        if is_whole and not self._tail and not self._is_skipping:
            # One whole line, as from a client that waits for each answer.
            return [] if chunk.isspace() else [chunk[:-1]]

        lines: list[bytes | Torn] = chunk.split(b"\n")  # type: ignore[assignment]
        last: bytes = lines.pop()  # type: ignore[assignment]
        limit = self.max_frame_bytes
        if lines:
            if self._tail or self._is_skipping:
                lines[0] = self._complete(lines[0])  # type: ignore[arg-type]
            if len(chunk) > limit:
                lines = [_tear(line) if line.__class__ is bytes and len(line) > limit else line for line in lines]

        if last:
            self._keep(last)
        return [line for line in lines if line and not line.isspace()]

    def _complete(self, end: bytes) -> bytes | Torn:
        if not self._is_skipping and self._tail_bytes + len(end) > self.max_frame_bytes:
            self._skip()
        line: bytes | Torn
        if self._is_skipping:
            line = Torn(self._head, b"".join((*self._tail, end[-END_BYTES:]))[-END_BYTES:], self._is_refused)
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
        """The line is too large: of what is there of it only its ends are kept, and of what comes the last."""
        self._is_skipping = True
        self._head = b"".join(part[:END_BYTES] for part in self._tail[:END_BYTES])[:END_BYTES]
        self._keep_end()
        if self._may_keep is not None:
            self._may_keep(0)

    def _keep_end(self) -> None:
        end = b"".join(part[-END_BYTES:] for part in self._tail[-END_BYTES:])[-END_BYTES:]
        self._tail = [end]
        self._tail_bytes = len(end)

    def end(self) -> list[bytes | Torn]:
        """What stands after the last newline when the stream ends, as `feed` gives it: a message may lack its own."""
        if not self._tail and not self._is_skipping:
            return []
        line = self._complete(b"")
        return [] if isinstance(line, bytes) and line.isspace() else [line]


def _tear(line: bytes | Torn) -> Torn:
    return Torn(line[:END_BYTES], line[-END_BYTES:])  # type: ignore[index]
