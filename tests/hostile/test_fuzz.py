"""Fuzzed messages over stdio, WebSocket and HTTP: one answer for each request, none for notifications, no bug.

A few hundred in the quick run, 54,000 in CI. `MCPD_FUZZ_MESSAGES` is another number for the slow ones, `MCPD_FUZZ_SEED`
another seed than today's; a failure names what to set to see it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import Child
from hostile.fuzz_http import fuzz_http
from hostile.fuzz_wires import Line, Violation, served_everything, stdio_line, websocket_line
from hostile.fuzzer import MODERN, VERSIONS, Expected, Fuzzer, dump, envelope, read

SEED = os.environ.get("MCPD_FUZZ_SEED", "mcpd")
SLOW = int(os.environ.get("MCPD_FUZZ_MESSAGES", "54000"))
PER_CONNECTION = 500
CLIENTS = 8

# The shares of the roads in the slow run. A process for each connection, and a POST for each message, cost more.
STDIO, WEBSOCKET, HTTP = 0.4, 0.4, 0.2

each_version = pytest.mark.parametrize("version", VERSIONS)


def hello(version: str) -> list[dict[str, Any]]:
    """What a connection begins with, so that its version is fixed."""
    if version == MODERN:
        return [{"jsonrpc": "2.0", "id": "hello", "method": "tools/list", "params": {"_meta": envelope()}}]
    params = {"protocolVersion": version, "capabilities": envelope()["io.modelcontextprotocol/clientCapabilities"],
              "clientInfo": {"name": "fuzzer", "version": "1"}}  # fmt: skip
    return [
        {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]


def fuzz(line: Line, version: str, count: int) -> None:
    """So many messages over one connection."""
    where = f"MCPD_FUZZ_SEED={SEED}, {version}"
    for message in hello(version):
        line.send(dump(message).encode(), Expected(exact=((str, "hello"),)) if "id" in message else Expected())
    line.settle(where)
    last = b""
    for number in range(count):
        data, expected = line.fuzzer.message()
        if line.needs_utf8 and not is_utf8(data):
            continue  # RFC 6455 has the connection end
        line.send(data, expected)
        last = data
        if number % 100 == 99:
            line.settle(f"{where}, up to message {number}, {last[:300]!r}")
    # It still answers: the same question, under an id of its own.
    question = {**hello(version)[0], "id": "bye", "method": "tools/list"}
    line.send(dump(question).encode(), Expected(exact=((str, "bye"),)))
    line.settle(f"{where}, after the last message, {last[:300]!r}")


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def connections(count: int) -> list[int]:
    """How many messages each connection has."""
    return [PER_CONNECTION] * (count // PER_CONNECTION) + [count % PER_CONNECTION] * (count % PER_CONNECTION > 0)


def over_stdio(child: Child, version: str, count: int) -> None:
    # A process costs more than a thousand messages.
    with stdio_line(child, Fuzzer(f"{SEED} stdio {version}", version)) as line:
        fuzz(line, version, count)


def over_websocket(child: Child, version: str, count: int) -> None:
    with served_everything(child, "--ws", ":0") as server:
        for number, some in enumerate(connections(count)):
            with websocket_line(server, Fuzzer(f"{SEED} websocket {version} {number}", version)) as line:
                fuzz(line, version, some)


def over_http(child: Child, version: str, count: int) -> None:
    where = f"MCPD_FUZZ_SEED={SEED}, {version}"
    with served_everything(child, "--http", ":0") as server, ThreadPoolExecutor(CLIENTS) as pool:
        fuzzers = [Fuzzer(f"{SEED} http {version} {number}", version) for number in range(CLIENTS)]
        # Each waits for its answers one by one, and some tools take their time.
        runs = [pool.submit(fuzz_http, server, fuzzer, hello(version), count // CLIENTS, where) for fuzzer in fuzzers]
        for run in runs:
            run.result()


WIRES: dict[str, tuple[Callable[[Child, str, int], None], float]] = {
    "stdio": (over_stdio, STDIO),
    "websocket": (over_websocket, WEBSOCKET),
    "http": (over_http, HTTP),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("version", ["2025-03-26", MODERN])
def test_a_few_fuzzed_messages(child: Child, wire: str, version: str) -> None:
    WIRES[wire][0](child, version, 100)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("wire", WIRES)
@each_version
def test_fuzzed_messages(child: Child, wire: str, version: str) -> None:
    run, share = WIRES[wire]
    run(child, version, int(SLOW * share) // len(VERSIONS))


# ------------------------------------------------------------------------------- what the fuzzer itself does


@each_version
def test_the_same_seed_makes_the_same_messages(version: str) -> None:
    one, other = Fuzzer("x", version), Fuzzer("x", version)
    assert [one.message() for _ in range(50)] == [other.message() for _ in range(50)]
    assert Fuzzer("y", version).message() != Fuzzer("x", version).message()


@each_version
def test_requests_notifications_and_rubbish_all_come(version: str) -> None:
    fuzzer = Fuzzer("x", version)
    found = [fuzzer.message()[1] for _ in range(500)]
    assert sum(bool(expected.exact) for expected in found) > 150
    assert sum(bool(expected.errors) for expected in found) > 25
    assert sum(expected == Expected() for expected in found) > 2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', Expected(exact=((int, 1),))),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', Expected(exact=((str, "\ufffd"),))),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', Expected(perhaps=((int, 1), (int, 2)), errors=1)),
        (b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}', Expected(errors=1)),
        (b'{"jsonrpc":"2.0","method":"x"}', Expected()),
        (
            b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}',
            Expected(cancels=((int, 7),)),
        ),
        (b"[]", Expected(errors=1)),
        (b"{", Expected(errors=1)),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":NaN}', Expected(perhaps=((int, 1),), errors=1)),
        (b"\xff", Expected(errors=1)),
        (b'{"cancelled"', None),
    ],
)
def test_what_may_be_answered(data: bytes, expected: Expected | None) -> None:
    assert read(data, "2025-06-18") == expected


def test_a_batch_is_answered_by_its_parts() -> None:
    data = b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},7]'
    assert read(data, "2025-03-26") == Expected(exact=((int, 1),), errors=1)
    assert read(data, "2025-06-18") == Expected(errors=1)


class _Answers:
    """A line to nobody: what is written is answered as the test says."""

    def __init__(self, *answers: bytes) -> None:
        self.line = Line(lambda data: None, lambda: iter(answers), Fuzzer("x", "2025-06-18"), needs_utf8=False)
        self.line.send(b"", Expected(exact=((int, 1),)))


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([], "not answered"),
        ([b'{"id":2,"result":{}}'], "not answered"),
        ([b'{"id":1,"result":{}}', b'{"id":1,"result":{}}'], "2 answers to 1 requests"),
        ([b'{"id":1,"error":{"code":-32603,"message":""}}'], "an internal error"),
        ([b'{"id":1,"result":{}}', b'{"result":{}}'], "a result for nobody"),
        ([b'{"id":1,"result":{}}', b'{"error":{"code":-32600,"message":""}}'], "1 errors without an id"),
    ],
)
def test_what_is_wrong_is_seen(answers: list[bytes], said: str) -> None:
    line = _Answers(*answers).line
    line._reader.join()
    with pytest.raises(Violation, match=said):
        line.settle("x")
