"""Fuzzed messages over HTTP: each is a POST, whose status, kind and answers are looked at by themselves."""

from __future__ import annotations

import json
import re
import socket
from typing import Any

from hostile.fuzz_wires import Tally, Violation
from hostile.fuzzer import MODERN, Expected, Fuzzer, dump
from hostile.serving import Served, post

__all__ = ["Http", "fuzz_http"]

# What a request may be answered with by its head, and by what is in it.
_STATUSES = {200, 202, 400, 404, 405, 406, 408, 413, 415}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Http:
    """One client: a connection that is kept open, and its session."""

    def __init__(self, server: Served, fuzzer: Fuzzer) -> None:
        self._server = server
        self._fuzzer = fuzzer
        self._session = b""
        self._connection: socket.socket | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def exchange(self, data: bytes, expected: Expected) -> int:
        """POST one message, hold what comes back against what may, and give the status."""
        tally = Tally()
        tally.sent(expected)
        is_open = b"subscriptions/listen" in data
        status, head = self._ask(data, tally, is_open=is_open)
        if status not in _STATUSES:
            raise Violation(f"status {status}")
        if status == 200 and not is_open:
            tally.check()
        elif status == 202 and tally.exact:
            raise Violation("a request was answered with 202")
        elif tally.answers.total() + tally.bare > 1 and status != 200:
            raise Violation(f"status {status} with several answers")
        if found := re.search(rb"(?mi)^mcp-session-id: *(\S+)", head):
            self._session = found[1]
        return status

    # -- one request -----------------------------------------------------------------------------

    def _ask(self, data: bytes, tally: Tally, *, is_open: bool) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._server.connect()
        connection = self._connection
        whole = post(self._server.host, data, *self._headers(data))
        at = self._fuzzer.random.randrange(len(whole)) if self._fuzzer.random.random() < 0.2 else len(whole)
        connection.sendall(whole[:at])
        if at < len(whole):
            connection.sendall(whole[at:])
        said = b""
        while b"\r\n\r\n" not in said:
            said += self._more(connection)
        head, _, rest = said.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        lower = head.lower() + b"\r\n"
        if b"transfer-encoding: chunked" in lower:
            self._read_stream(connection, rest, tally, is_open=is_open)
        else:
            found = re.search(rb"\r\ncontent-length: (\d+)\r\n", lower)
            length = 0 if found is None else int(found[1])
            while len(rest) < length:
                rest += self._more(connection)
            if b"application/json" in lower and length:
                tally.came(json.loads(rest))
            elif b"text/event-stream" in lower:
                for event in rest.split(b"\n\n"):
                    self._take(event, tally)
        if b"connection: close" in lower or is_open:
            self.close()
        return status, head

    def _more(self, connection: socket.socket) -> bytes:
        chunk = connection.recv(65536)
        if not chunk:
            raise Violation("the connection was closed without an answer")
        return chunk

    def _read_stream(self, connection: socket.socket, rest: bytes, tally: Tally, *, is_open: bool) -> None:
        """Events in chunks, to the last; of a subscription only the first."""
        events = b""
        while True:
            while b"\r\n" not in rest:
                rest += self._more(connection)
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            while len(rest) < length + 2:
                rest += self._more(connection)
            events += rest[:length].replace(b"\r\n", b"\n")
            rest = rest[length + 2 :]
            *whole, events = events.split(b"\n\n")
            for event in whole:
                self._take(event, tally)
            if not length or (is_open and whole):
                return

    def _take(self, event: bytes, tally: Tally) -> None:
        data = b"".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
        if not data:
            return
        message = json.loads(data)
        if isinstance(message, dict) and "method" in message:
            if "id" in message:
                self._answer(message)
            return
        tally.came(message)

    def _answer(self, request: dict[str, Any]) -> None:
        """To a question of the server's, on a connection of its own."""
        headers = (b"Mcp-Session-Id: " + self._session, b"Connection: close")
        status = self._server.ask(post(self._server.host, self._fuzzer.answer(request), *headers)).split()[1]
        if status != b"202":
            raise Violation(f"an answer was answered with {status.decode()}")

    def _headers(self, data: bytes) -> list[bytes]:
        if self._fuzzer.version != MODERN:
            return [b"Mcp-Session-Id: " + self._session] if self._session else []
        headers = [b"MCP-Protocol-Version: " + MODERN.encode()]
        try:
            message = json.loads(data)
            method = message["method"]
            headers.append(b"Mcp-Method: " + method.encode("latin-1"))
            headers.append(b"Mcp-Name: " + message["params"][_NAMED[method]].encode("latin-1"))
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            pass  # it has none; the server has to say so
        if self._fuzzer.random.random() < 0.05:
            headers.pop(self._fuzzer.random.randrange(len(headers)))
        return [header for header in headers if header.isascii() and header.decode().isprintable()]


def fuzz_http(server: Served, fuzzer: Fuzzer, hello: list[dict[str, Any]], count: int, where: str) -> None:
    """So many messages from one client."""
    client = Http(server, fuzzer)
    number, data = -1, b""
    try:
        for message in hello:
            client.exchange(dump(message).encode(), Expected(perhaps=((str, "hello"),)))
        for number in range(count):  # noqa: B007  # named when it fails
            data, expected = fuzzer.message()
            client.exchange(data, expected)
        # It still answers.
        status = client.exchange(dump({**hello[0], "id": "bye"}).encode(), Expected(perhaps=((str, "bye"),), errors=1))
        if status not in (200, 400):
            raise Violation(f"status {status} in the end")
    except Exception as error:
        raise Violation(f"{where}, message {number}, {data[:400]!r}: {error!r}") from error
    finally:
        client.close()
