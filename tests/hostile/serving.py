"""A `mcpd serve` process as attackers meet it: on its ports, with its log collected."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Served", "frame", "post", "reset", "served", "upgrade"]

TIMEOUT = 60.0

# One server at a time on a connection, whatever comes back.
_ADDRESS = re.compile(r"(?:ws|http)://127\.0\.0\.1:(\d+)/")


class Served:
    """The process. `lines` are those of its log, without what it says when it starts."""

    def __init__(self, command: Sequence[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._said: list[str] = []
        self._is_told = threading.Event()
        self.port = 0
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        assert self._is_told.wait(TIMEOUT), self.log
        self._begin = len(self._said)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said.append(line.decode(errors="replace"))
            if not self.port and (found := _ADDRESS.search(self._said[-1])):
                self.port = int(found[1])
                self._is_told.set()
        self._is_told.set()

    @property
    def log(self) -> str:
        return "".join(self._said)

    def connect(self) -> socket.socket:
        """A connection, whose reads and writes take their time on a busy machine, but not for ever."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    @property
    def host(self) -> bytes:
        return b"Host: 127.0.0.1:%d\r\n" % self.port

    def ask(self, data: bytes) -> bytes:
        """Send this and read until the server closes."""
        with self.connect() as connection:
            connection.sendall(data)
            said = b""
            while chunk := connection.recv(65536):
                said += chunk
        return said

    def end(self) -> str:
        """Stop it, in order; gives its log from the first request on."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(TIMEOUT) == 0, self.log
        self._reading.join(TIMEOUT)
        return "".join(self._said[self._begin :])

    # ------------------------------------------------------------------------- what it takes of the machine

    @property
    def memory(self) -> int:
        """Resident bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


@contextmanager
def served(child: Any, *arguments: str) -> Iterator[Served]:
    """`mcpd serve` with these arguments; `child` is the fixture of that name."""
    server = Served(child.mcpd("serve", *arguments), child.env)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        with server.process:
            pass


def post(host: bytes, body: bytes, *headers: bytes) -> bytes:
    """A POST to the endpoint."""
    kinds = b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    more = b"".join(header + b"\r\n" for header in headers)
    return b"POST /mcp HTTP/1.1\r\n%b%b%bContent-Length: %d\r\n\r\n%b" % (host, kinds, more, len(body), body)


def upgrade(host: bytes, *headers: bytes, path: bytes = b"/mcp") -> bytes:
    """A WebSocket's handshake."""
    more = b"".join(header + b"\r\n" for header in headers)
    return (
        b"GET %b HTTP/1.1\r\n%bUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%b\r\n" % (path, host, more)
    )


def frame(opcode: int, data: bytes, *, is_last: bool = True) -> bytes:
    """A masked WebSocket frame; the mask is zero, which changes nothing."""
    first = (0x80 if is_last else 0) | opcode
    if len(data) < 126:
        head = struct.pack("!BB", first, 0x80 | len(data))
    elif len(data) < 1 << 16:
        head = struct.pack("!BBH", first, 0xFE, len(data))
    else:
        head = struct.pack("!BBQ", first, 0xFF, len(data))
    return head + b"\0\0\0\0" + data


def reset(connection: socket.socket) -> None:
    """Close with a reset, as clients do that die."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def wait_until(check: Any, what: str) -> None:
    """Until something becomes true that nobody tells of."""
    end = time.monotonic() + TIMEOUT
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.02)
