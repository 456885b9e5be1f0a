"""Cheap floods: what costs an attacker a few bytes costs the log no more, and ordinary ends are no errors."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from conftest import Child
from hostile.serving import Served, frame, post, reset, served, upgrade

from mcpd.cli.launch import read_token

pytestmark = pytest.mark.slow

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"%b","arguments":%b}}'

TARGET = """
import asyncio
from mcpd import Server
server = Server("slow")

@server.tool
async def waits() -> str:
    await asyncio.sleep(0.01)
    return "done"
"""

MOST_LOG = 8 * 1024
"""The bytes of log that one kind of flood may cause: ten lines, and a word on how many more there were."""


def check(server: Served) -> None:
    """It still answers, and its log was not flooded."""
    answer = server.ask(post(server.host, PING, b"Connection: close"))
    assert answer.startswith(b"HTTP/1.1 200"), answer
    check_log(server.end())


def check_log(log: str) -> None:
    assert "Traceback" not in log, log[:4000]
    assert "destroyed" not in log, log[:4000]
    assert len(log) < MOST_LOG, log[:4000]


def test_bad_chunks_cost_a_line_and_then_a_count(child: Child) -> None:
    chunked = b"POST /mcp HTTP/1.1\r\n%bContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    with served(child, "--http", ":0") as server:
        head = chunked % server.host
        for _ in range(100):
            assert server.ask(head + b"ZZZ\r\n").startswith(b"HTTP/1.1 400")
            assert server.ask(head + b"5\r\nabcdeQQ").startswith(b"HTTP/1.1 400")
        check(server)


def test_a_bad_chunk_behind_other_requests_ends_the_connection_after_their_answers(child: Child) -> None:
    with served(child, "--http", ":0") as server:
        for _ in range(30):
            bad = b"POST /mcp HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n5\r\nabcdeQQ" % server.host
            answer = server.ask(post(server.host, PING) * 3 + bad)
            assert answer.count(b"HTTP/1.1 200") == answer.count(b"HTTP/1.1 ") == 3, answer
        check(server)


def test_what_comes_behind_a_wish_to_close_is_passed_over(child: Child) -> None:
    with served(child, "--http", ":0") as server:
        for _ in range(30):
            answer = server.ask(post(server.host, PING, b"Connection: close") + post(server.host, PING) * 3)
            assert answer.count(b"HTTP/1.1 ") == 1, answer
        check(server)


@pytest.mark.parametrize("wish", [b"h2c", b"websocket"])
def test_pipelined_upgrades_do_not_nest(child: Child, wish: bytes) -> None:
    """Each stops the parser: 400 of them were 400 calls inside each other."""
    with served(child, "--http", ":0") as server:
        if wish == b"websocket":
            server.ask(post(server.host, PING) + upgrade(server.host) * 400)
        else:
            asking = post(server.host, PING, b"Connection: Upgrade", b"Upgrade: " + wish) * 400
            answer = server.ask(asking + post(server.host, PING, b"Connection: close"))
            assert answer.count(b"HTTP/1.1 200") == 401
        check(server)


@pytest.mark.parametrize("transport", ["--ws", "--http"])
def test_websockets_that_are_reset_leave_no_traceback(child: Child, transport: str) -> None:
    with served(child, transport, ":0") as server:
        last = [b"", frame(1, PING), b"\xff\xff\xff", frame(8, b"\x03\xe8"), frame(1, b"\xff"), frame(2, b""), b"\x81"]
        for number in range(210):
            connection = server.connect()
            try:
                connection.sendall(upgrade(server.host, path=b"/nowhere" if number % 10 == 9 else b"/mcp"))
                if number % 3:
                    connection.recv(10_000)
                for _ in range(3):
                    connection.sendall(last[number % len(last)])
            except OSError:
                pass  # the server was quicker
            reset(connection)
        # Nobody else is there: this one is answered when all of those are through.
        with server.connect() as connection:
            connection.sendall(upgrade(server.host))
            assert b"HTTP/1.1 101" in connection.recv(10_000)
            connection.sendall(frame(1, PING))
            assert b"jsonrpc" in connection.recv(10_000)
        check_log(server.end())


def test_batches_without_a_session_leave_nothing_behind(child: Child, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(TARGET)
    batch = b"[%b]" % b",".join([CALL % (b"waits", b"{}"), PING])
    with served(child, "--http", ":0", "--stateless", str(tmp_path / "slow.py")) as server:
        for _ in range(100):
            answer = server.ask(post(server.host, batch, b"MCP-Protocol-Version: 2025-03-26", b"Connection: close"))
            assert b"done" in answer, answer
        check(server)


# --------------------------------------------------------------------------------------- secrets and forgeries


@pytest.mark.parametrize("transport", ["--ws", "--http"])
def test_no_secret_is_logged(child: Child, tmp_path: Path, transport: str) -> None:
    """Not at any level: neither the server's token, nor what else a client may hold for one."""
    token = tmp_path / "token"
    token.write_text("s3cret-token\n")
    token.chmod(0o600)
    with served(child, transport, ":0", "--log-level", "debug", "--token-file", str(token)) as server:
        for bearer in (b"s3cret-token", b"s3cret-wrong"):
            secrets = (
                b"Authorization: Bearer " + bearer, b"X-Api-Key: s3cret-key", b"Cookie: id=s3cret-cookie",
                b"Sec-WebSocket-Protocol: mcp, s3cret-protocol",
            )  # fmt: skip
            with server.connect() as connection:
                connection.sendall(upgrade(server.host, *secrets, path=b"/mcp?token=s3cret-query"))
                assert connection.recv(10_000)
                if bearer == b"s3cret-token":
                    connection.sendall(frame(1, PING))
                    assert connection.recv(10_000)
            if transport == "--http":
                server.ask(post(server.host, PING, *secrets, b"Connection: close"))
                server.ask(
                    post(server.host, PING, *secrets, b"Connection: close").replace(b"/mcp", b"/mcp?s3cret-query")
                )
        with server.connect() as connection:
            connection.sendall(b"GET /mcp?token=s3cret-query HTTP/9.9\r\nAuthorization: Bearer s3cret-token\r\n\r\n")
            connection.recv(10_000)
        log = server.end()
    assert ("POST /mcp 401" if transport == "--http" else "Refused a connection") in log
    assert "s3cret" not in log


def test_peers_forge_no_lines_and_command_no_terminal(child: Child) -> None:
    evil = "\x1b[2J\nERROR mcpd: forged\u202e\r\x00\ud800"
    text = json.dumps(evil).encode()
    with served(child, "--http", ":0", "--log-level", "debug") as server:
        with server.connect() as connection:
            connection.sendall(upgrade(server.host, b"Origin: http://evil\x1b[2J\xff"))
            connection.recv(10_000)
        with server.connect() as connection:
            connection.sendall(upgrade(server.host))
            connection.recv(10_000)
            messages = [
                b'{"jsonrpc":"2.0","id":%b,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
                b'"capabilities":{},"clientInfo":{"name":%b,"version":"1"}}}' % (text, text),
                b'{"jsonrpc":"2.0","id":%b,"method":%b}' % (text, text),
                CALL % (b"echo", b'{"%b":1}' % text[1:-1]),
                b'{"jsonrpc":"2.0","id":%b,"method":"resources/read","params":{"uri":%b}}' % (text, text),
                b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":%b}}' % text,
            ]
            for message in messages:
                connection.sendall(frame(1, message))
            closing = "\nERROR mcpd: forged\x1b[2J\u202e".encode()
            connection.sendall(frame(8, b"\x0f\xa0" + closing))
            while connection.recv(10_000):
                pass
        path = b"/x%0aERROR%20mcpd:%20forged%1b%5b2J%e2%80%ae"
        server.ask(b"GET %b HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (path, server.host))
        log = server.end()
    assert "4000" in log  # the close that was named so
    assert log.replace("\n", "").isprintable(), log
    assert "\nERROR mcpd: forged" not in log


@pytest.mark.parametrize(("mode", "is_warned"), [(0o600, False), (0o400, False), (0o640, True), (0o644, True)])
def test_a_token_file_that_others_can_read(
    tmp_path: Path, mode: int, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "the token"
    path.write_text("secret")
    path.chmod(mode)
    assert read_token(str(path)) == "secret"
    said = caplog.text
    assert ("other users of this machine can read the file" in said) is is_warned
    assert (f"chmod 600 '{path}'" in said) is is_warned


def test_a_token_from_a_pipe_is_nobody_elses(capsys: pytest.CaptureFixture[str]) -> None:
    out, into = os.pipe()
    os.write(into, b"secret")
    os.close(into)
    try:
        assert stat.S_ISFIFO(os.fstat(out).st_mode)
        assert read_token(f"/dev/fd/{out}") == "secret"
    finally:
        os.close(out)
    assert capsys.readouterr().err == ""
