"""Writes what passes by to a file, on a thread of its own: whoever passes bytes on does not wait for the disk.

Order is that of the calls of `record`, which come before the bytes are passed on: a request stands before its answer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from mcpd.protocol.printable import mask_command, printable
from mcpd.trace.files import TraceFile
from mcpd.trace.records import FORMAT, SOURCES, Lines, Recording, Source, encode_record, to_record

MOST_WAITING_BYTES = 32 * 1024 * 1024
"""So much waits for the disk. With more whoever passes bytes on waits for it too, for a second."""

PATIENCE_SECONDS = 1.0
"""How long they wait for a disk that does not take it; then what passes is left out, and counted."""

_END_SECONDS = 5.0


class Recorder:
    """The trace of one run. `record` and `event` may be called on any thread."""

    def __init__(
        self,
        file: TraceFile,
        command: Sequence[str],
        recording: Recording | None = None,
        *,
        complain: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Begin to write. `complain` is told, once, if the file cannot be written any more."""
        self._file = file
        self._recording = recording or Recording()
        self._complain = complain
        self._lines = {source: Lines(self._recording.most_bytes) for source in SOURCES}
        self._start = time.monotonic()
        self._header = {
            "trace": FORMAT,
            "at": datetime.now(UTC).isoformat(),
            "command": list(command) if self._recording.shows_secrets else mask_command(command),
        }

        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, Source | None, Any]] = deque()
        self._waiting_bytes = 0
        self._left_out = 0
        self._is_ended = False
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="trace recorder", daemon=True)
        self._thread.start()

    def record(self, source: Source, data: bytes) -> None:
        """These bytes pass now. Never raises; waits a second at most."""
        now = time.monotonic()
        with self._changed:
            if self._waiting_bytes > MOST_WAITING_BYTES and not self._left_out:
                self._changed.wait_for(lambda: self._waiting_bytes <= MOST_WAITING_BYTES, PATIENCE_SECONDS)
            if self._waiting_bytes > MOST_WAITING_BYTES or self._has_failed:
                self._left_out += len(data)
                return
            if self._left_out:
                self._put(now, None, {"event": "left out", "bytes": self._left_out})
                self._left_out = 0
            self._put(now, source, data)

    def event(self, name: str, **members: object) -> None:
        """Something else happened, such as the end of a process."""
        with self._changed:
            self._put(time.monotonic(), None, {"event": name, **members})

    def close(self) -> None:
        """Write what waits, for five seconds at most, and close the file."""
        if self._left_out:
            self.event("left out", bytes=self._left_out)
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self._file.close()

    def _put(self, now: float, source: Source | None, what: Any) -> None:
        self._waiting.append((now, source, what))
        self._waiting_bytes += len(what)
        self._changed.notify_all()

    # ------------------------------------------------------------------------------- on its thread

    def _run(self) -> None:
        self._write([encode_record(self._header)])
        is_ended = False
        while not is_ended:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_ended)
                taken, self._waiting = self._waiting, deque()
                is_ended = self._is_ended and not taken

            for each in taken:
                self._write(self._records(*each))
                with self._changed:
                    self._waiting_bytes -= len(each[2])
                    self._changed.notify_all()

        self._write([each for source in SOURCES for each in self._rest(source)])

    def _records(self, at: float, source: Source | None, what: Any) -> list[bytes]:
        seconds = at - self._start
        if source is None:
            before = self._rest_of_all(what)
            return [*before, encode_record({"t": round(seconds, 6), **what})]
        return [
            encode_record(to_record(source, *line, seconds, self._recording)) for line in self._lines[source].feed(what)
        ]

    def _rest_of_all(self, event: dict[str, Any]) -> list[bytes]:
        """What no newline will follow any more: that is said in its place, before the end of the process."""
        if event["event"] not in ("exited", "left out"):
            return []
        return [each for source in SOURCES for each in self._rest(source)]

    def _rest(self, source: Source) -> list[bytes]:
        lines = self._lines[source]
        if not lines.size:
            return []
        record = to_record(source, *lines.end(), time.monotonic() - self._start, self._recording)
        return [encode_record(record | {"unfinished": True})]

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
                self._waiting_bytes = 0
            self._complain(f"{printable(self._file.path)} cannot be written any more: {error.strerror}")
