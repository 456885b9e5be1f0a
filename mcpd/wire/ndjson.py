"""Newline-delimited JSON: cutting a byte stream into frames. Spec: 2026-07-28 basic/transports/stdio.

A message is one line; no message holds a newline. An overlong line is skipped to its end.
"""

from __future__ import annotations

__all__ = ["Splitter"]


class Splitter:
    """Cuts chunks into lines. A line that grows over `max_frame_bytes` is dropped, and given as None.

    Linear in the bytes fed, however they are cut.
    """

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._tail: list[bytes] = []
        self._tail_bytes = 0
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """The lines that `chunk` completes, without their newlines, blank ones left out; None for one too large."""
        is_whole = 0 <= chunk.find(b"\n") == len(chunk) - 1 <= self.max_frame_bytes
        if is_whole and not self._tail and not self._is_skipping:
            # One whole line, as from a client that waits for each answer.
            return [] if chunk.isspace() else [chunk[:-1]]
        lines: list[bytes | None] = chunk.split(b"\n")  # type: ignore[assignment]
        last: bytes = lines.pop()  # type: ignore[assignment]
        limit = self.max_frame_bytes
        if lines:
            if self._tail or self._is_skipping:
                lines[0] = self._complete(lines[0] or b"")
            if len(chunk) > limit:
                lines = [None if line is not None and len(line) > limit else line for line in lines]
        if last:
            self._keep(last)
        return [line for line in lines if line is None or (line and not line.isspace())]

    def _complete(self, end: bytes) -> bytes | None:
        too_large = self._is_skipping or self._tail_bytes + len(end) > self.max_frame_bytes
        line = None if too_large else b"".join((*self._tail, end))
        self._tail.clear()
        self._tail_bytes = 0
        self._is_skipping = False
        return line

    def _keep(self, part: bytes) -> None:
        if self._is_skipping:
            return
        self._tail_bytes += len(part)
        if self._tail_bytes > self.max_frame_bytes:
            self._tail.clear()
            self._is_skipping = True
        else:
            self._tail.append(part)

    def end(self) -> list[bytes | None]:
        """What stands after the last newline when the stream ends, as `feed` gives it: a message may lack its own."""
        if not self._tail and not self._is_skipping:
            return []
        line = self._complete(b"")
        return [] if line is not None and line.isspace() else [line]
