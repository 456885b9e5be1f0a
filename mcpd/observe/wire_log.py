"""The wire log: each frame that comes or goes as a line of a file, without what is a secret by its name.

For who has to know what a client really sends. The loop hands the bytes over; they are read, masked and written on a
thread, which may be behind by some megabytes and then leaves out, and counts, what is too much.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode, encode

from mcpd.errors import ConfigurationError
from mcpd.protocol.observer import ObservedFrame, Observer
from mcpd.protocol.printable import is_secret, mask_json, mask_text, printable

MOST_CHARACTERS = 200
"""Of each text in a message so much is written."""

MOST_WAITING_BYTES = 16 * 1024 * 1024
"""So much waits for the disk; more is left out."""

_END_SECONDS = 1.0
_MALFORMED = (DecodeError, UnicodeDecodeError, RecursionError)
# What clients carry between rounds, and tickets into sessions and tasks: beside the names that `masking` knows.
_TICKETS = frozenset(("requeststate", "sessionid", "mcpsessionid"))


class WireLog(Observer):
    """Writes to a file that only this user can read. Raises ConfigurationError for one that cannot be such."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = _open(path)
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, str, ObservedFrame]] = deque()
        self._waiting_bytes = 0
        self._left_out = 0
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name="mcpd-wire-log", daemon=True)
        self._thread.start()

    def frame_received(self, frame: ObservedFrame) -> None:
        """See `Observer`."""
        self._put("client", frame)

    def frame_sent(self, frame: ObservedFrame) -> None:
        """See `Observer`."""
        self._put("server", frame)

    def close(self) -> None:
        """Write what waits, for a second at most."""
        with self._changed:
            self._is_ended = True
            self._changed.notify()
        self._thread.join(_END_SECONDS)

    def _put(self, source: str, frame: ObservedFrame) -> None:
        with self._changed:
            if self._is_ended or self._waiting_bytes > MOST_WAITING_BYTES:
                self._left_out += 1
                return
            self._waiting.append((time.time(), source, frame))
            self._waiting_bytes += len(frame.data)
            self._changed.notify()

    # -- on its thread -----------------------------------------------------------------------

    def _run(self) -> None:
        is_ended = False
        try:
            while not is_ended:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting or self._is_ended)
                    taken, self._waiting = self._waiting, deque()
                    left_out, self._left_out = self._left_out, 0
                    is_ended = self._is_ended and not taken
                for at, source, frame in taken:
                    self._write(_record(at, source, frame))
                    with self._changed:
                        self._waiting_bytes -= len(frame.data)
                if left_out:
                    self._write({"time": _moment(time.time()), "left_out": left_out})
        except OSError:
            with self._changed:  # the disk is full: nothing is kept for it any more
                self._is_ended = True
                self._waiting.clear()
        finally:
            os.close(self._descriptor)

    def _write(self, record: dict[str, Any]) -> None:
        line = encode(record) + b"\n"
        while line:
            line = line[os.write(self._descriptor, line) :]


def _open(path: str) -> int:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise ConfigurationError(f"--wire-log {path}: {error.strerror}; name a file, new or of yours") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(descriptor)
        raise ConfigurationError(f"--wire-log {path}: it is no file of yours; name another one")
    os.fchmod(descriptor, 0o600)
    return descriptor


def _moment(when: float) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
    return f"{seconds}.{int(when % 1 * 1000):03}Z"


def _record(at: float, source: str, frame: ObservedFrame) -> dict[str, Any]:
    record: dict[str, Any] = {"time": _moment(at), "connection": frame.connection, "from": source}
    record["bytes"] = len(frame.data)
    try:
        record["message"] = _cut(decode(mask_json(frame.data)))
    except _MALFORMED:
        record["text"] = printable(mask_text(frame.data[:4096].decode("utf-8", "replace")), MOST_CHARACTERS)
    return record


def _cut(value: Any, name: str = "") -> Any:
    """A value with its texts cut, and without what stands below the name of a secret, whatever that is."""
    if value is not None and (is_secret(name) or name.lower().replace("-", "").replace("_", "") in _TICKETS):
        return value if isinstance(value, str) and value.startswith("<masked") else "<masked>"
    if isinstance(value, dict):
        return {printable(key, MOST_CHARACTERS): _cut(member, key) for key, member in value.items()}
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return f"{value[:MOST_CHARACTERS]}… ({len(value)} characters)"
    return value
