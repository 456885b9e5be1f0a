"""Requests and WebSocket handshakes from where they may not come, as bytes: none gets in, on either port.

Whoever can choose a name for this machine, or writes a page that its user visits, tries these (decision D9, S25-030,
S25-031, S26-051, S26-052).
"""

from __future__ import annotations

import pytest
from conftest import Child
from hostile.serving import post, served, upgrade

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'

FOREIGN_HOSTS = [
    b"evil.example", b"127.0.0.1@evil.example", b"127.0.0.1 evil.example", b"127.0.0.1, evil.example",
    b"127.0.0.1\r\nHost: evil.example", b"evil.example\r\nHost: 127.0.0.1", b"", b"127.0.0.1%evil.example",
    b"localhost.", b"localhost.evil.example", b"evil.localhost", b"127.0.0.1:8x", b"localhost:-1", b"0x7f.1",
    b"2130706433", b"127.1", b"0.0.0.0", b"[::1]x", b"[::1%25lo]", b"127.0.0.1\xff", b"127.0.0.\xef\xbc\x91",
    b"127.0.0.1\r\n evil.example", b"127.0.0.1\0.evil.example",
]  # fmt: skip
FOREIGN_ORIGINS = [
    b"https://evil.example", b"null", b"", b"http://evil.localhost", b"http://127.0.0.1@evil.example",
    b"https://evil.example://127.0.0.1", b"https://evil.example#://127.0.0.1", b"http://127.0.0.1 https://evil.example",
    b"http://127.0.0.1\r\nOrigin: https://evil.example", b"https://evil.example\r\nOrigin: http://127.0.0.1",
    b"http://127.0.0.1/evil", b"file://", b"chrome-extension://127.0.0.1", b"http://127.0.0.1\r\n .evil.example",
]  # fmt: skip


@pytest.mark.parametrize(("transport", "method"), [("--ws", "GET"), ("--http", "GET"), ("--http", "POST")])
def test_nobody_comes_in_from_elsewhere(child: Child, transport: str, method: str) -> None:
    """By a handshake on both ports, and by a POST on that of HTTP."""
    with served(child, transport, ":0") as server:

        def ask(host: bytes, origin: bytes | None = None) -> bytes:
            lines = b"Host: %b\r\n" % host + (b"" if origin is None else b"Origin: %b\r\n" % origin)
            with server.connect() as connection:
                connection.sendall(upgrade(lines) if method == "GET" else post(lines, PING, b"Connection: close"))
                return connection.recv(65536)

        own = b"127.0.0.1:%d" % server.port
        for host in (own, b"localhost", b"[::1]"):
            assert ask(host, b"http://" + own).startswith((b"HTTP/1.1 101", b"HTTP/1.1 200"))
        for host in FOREIGN_HOSTS:
            answer = ask(host)
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403")), (host, answer)
            assert b"jsonrpc" not in answer
        for origin in FOREIGN_ORIGINS:
            answer = ask(own, origin)
            assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403")), (origin, answer)
            assert b"jsonrpc" not in answer
        log = server.end()
        assert "Traceback" not in log, log[:4000]
        assert len(log) < 16 * 1024
