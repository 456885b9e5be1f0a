"""The roads that fuzzed messages take to a server, each to a process of its own, and what came back on them.

stdio and WebSocket are lines in both directions, which a thread reads; HTTP is a POST for each message.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from hostile.fuzzer import Expected, Fuzzer, Key, key_of
from hostile.serving import TIMEOUT, Served, frame, served, upgrade

__all__ = ["EVERYTHING", "Line", "Violation", "stdio_line", "websocket_line"]

EVERYTHING = str(Path(__file__).resolve().parent.parent.parent / "conformance" / "everything.py")


class Violation(AssertionError):
    """The server did not do what JSON-RPC wants."""


class Tally:
    """What was sent and what came back, by id."""

    def __init__(self) -> None:
        self.exact: Counter[Key] = Counter()
        self.perhaps: Counter[Key] = Counter()
        self.errors = 0
        self.cancelled: set[Key] = set()
        self.answers: Counter[Key] = Counter()
        self.bare = 0

    def sent(self, expected: Expected) -> None:
        self.exact.update(expected.exact)
        self.perhaps.update(expected.perhaps)
        self.errors += expected.errors
        self.cancelled.update(expected.cancels)

    def came(self, message: Any) -> None:
        """One answer, or a batch of them."""
        if isinstance(message, list):
            for part in message:
                self.came(part)
            return
        error = message.get("error")
        if error is not None and error["code"] == -32603:
            raise Violation(f"an internal error: {str(message)[:500]}")
        key = key_of(message.get("id"))
        if key is None:
            if error is None:
                raise Violation(f"a result for nobody: {str(message)[:500]}")
            self.bare += 1
        else:
            self.answers[key] += 1

    @property
    def missing(self) -> list[Key]:
        """What is not answered yet, and has to be."""
        return [key for key, count in self.exact.items() if self.answers[key] < count and key not in self.cancelled]

    def check(self) -> None:
        """Nothing too little, and nothing too much."""
        if self.missing:
            raise Violation(f"not answered: {self.missing[:5]}")
        for key, count in self.answers.items():
            if count > self.exact[key] + self.perhaps[key]:
                raise Violation(f"{count} answers to {self.exact[key]} requests with the id {key[1]!r:.100}")
        if self.bare > self.errors + sum(self.perhaps.values()):
            raise Violation(f"{self.bare} errors without an id for {self.errors} bad messages")


class Line:
    """A connection that carries messages both ways."""

    def __init__(
        self, write: Callable[[bytes], None], read: Callable[[], Iterator[bytes]], fuzzer: Fuzzer, *, needs_utf8: bool
    ) -> None:
        self.tally = Tally()
        self.needs_utf8 = needs_utf8
        self.fuzzer = fuzzer
        self._write = write
        self._violation: Exception | None = None
        self._has_ended = False
        self._changed = threading.Condition()
        self._sent: dict[Key, bytes] = {}
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()

    def _read(self, read: Callable[[], Iterator[bytes]]) -> None:
        try:
            for data in read():
                message = json.loads(data)
                if isinstance(message, dict) and "method" in message:
                    if "id" in message:
                        self._write(self.fuzzer.answer(message))
                    continue
                with self._changed:
                    self.tally.came(message)
                    self._changed.notify_all()
        except Exception as error:  # told to the test, which looks in its own time
            self._violation = error
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def send(self, data: bytes, expected: Expected) -> None:
        with self._changed:
            self.tally.sent(expected)
            self._sent.update(dict.fromkeys(expected.exact, data))
        self._write(data)

    @property
    def _unanswered(self) -> str:
        return " ".join(f"{key[1]!r:.50}: {self._sent[key][:500]!r}" for key in self.tally.missing[:5])

    def settle(self, what: str) -> None:
        """Wait for all answers. Raises Violation for one too few or too many."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._violation is not None or self._has_ended or not self.tally.missing, TIMEOUT
            )
            if self._violation is not None:
                raise Violation(f"{what}: {self._violation}") from self._violation
            if self.tally.missing and (self._has_ended or not done):
                why = "the connection was closed" if self._has_ended else "no answer came"
                raise Violation(f"{what}: {why}, not answered: {self._unanswered}")
            self.tally.check()


class _Child(Protocol):
    env: dict[str, str]

    def mcpd(self, *arguments: str) -> list[str]: ...


@contextmanager
def stdio_line(child: _Child, fuzzer: Fuzzer) -> Iterator[Line]:
    """A process of its own, which has to end in order and without a traceback. Writes are cut anywhere."""
    process = subprocess.Popen(
        child.mcpd("serve", "--stdio", EVERYTHING), env=child.env,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    log: list[bytes] = []
    listening = threading.Thread(target=lambda: log.extend(stderr), daemon=True)
    listening.start()
    lock, cuts = threading.Lock(), random.Random(fuzzer.random.random())

    def write(data: bytes) -> None:
        data += b"\n"
        with lock:
            while data:
                data = data[os.write(stdin.fileno(), data[: cuts.choice((1, 7, 100, 5000, 70_000))]) :]

    def read() -> Iterator[bytes]:
        rest = b""
        while chunk := os.read(stdout.fileno(), 65536):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines

    with process:
        try:
            yield Line(write, read, fuzzer, needs_utf8=False)
            stdin.close()
            assert process.wait(TIMEOUT) == 0
        finally:
            if process.poll() is None:
                process.kill()
            listening.join(TIMEOUT)
    check_log(b"".join(log).decode())


def check_log(log: str) -> None:
    """No bug was logged."""
    if "Traceback" in log:
        raise Violation(f"a traceback in the log: {log[:6000]}")


@contextmanager
def websocket_line(server: Served, fuzzer: Fuzzer) -> Iterator[Line]:
    """A WebSocket; frames are cut into fragments and writes anywhere."""
    connection = server.connect()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(upgrade(server.host))
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(1)
    assert head.startswith(b"HTTP/1.1 101"), head
    connection.settimeout(None)
    lock, cuts = threading.Lock(), random.Random(fuzzer.random.random())

    def write(data: bytes) -> None:
        with lock:
            at = cuts.randrange(len(data)) if cuts.random() < 0.1 else 0
            whole = frame(1, data[:at], is_last=False) + frame(0, data[at:]) if at else frame(1, data)
            at = cuts.randrange(len(whole)) if cuts.random() < 0.2 else len(whole)
            connection.sendall(whole[:at])
            connection.sendall(whole[at:])

    with connection:
        yield Line(write, lambda: _frames(connection, lock), fuzzer, needs_utf8=True)
        connection.shutdown(socket.SHUT_RDWR)


def _frames(connection: socket.socket, lock: threading.Lock) -> Iterator[bytes]:
    """The messages in what a server sends, which it does not mask and seldom cuts; pings are answered."""
    data = bytearray()
    while True:
        try:
            chunk = connection.recv(65536)
        except OSError:
            return
        if not chunk:
            return
        data += chunk
        while len(data) >= 2:
            length, at = data[1], 2
            if length == 126:
                if len(data) < 4:
                    break
                length, at = struct.unpack_from("!H", data, 2)[0], 4
            elif length == 127:
                if len(data) < 10:
                    break
                length, at = struct.unpack_from("!Q", data, 2)[0], 10
            if len(data) < at + length:
                break
            opcode, payload = data[0] & 15, bytes(data[at : at + length])
            del data[: at + length]
            if opcode == 8:
                raise Violation(f"the server closed the WebSocket: {payload[2:].decode(errors='replace')}")
            if opcode == 9:
                with lock:
                    connection.sendall(frame(10, payload))
            elif opcode == 1:
                yield payload


@contextmanager
def served_everything(child: _Child, *arguments: str) -> Iterator[Served]:
    """The fixture server on a port; it has to end in order and without a traceback."""
    with served(child, *arguments, EVERYTHING) as server:
        yield server
        check_log(server.end())
