"""The log: nobody who does not read it, and nobody who fills it, stops the server or takes more than a share of it."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.wires import initialize

from mcpd.cli import log as log_module
from mcpd.cli.log import MOST_ALIKE, MOST_TRACEBACK_CHARACTERS, DescriptorWriter, LogHandler, configure, text_stream
from mcpd.protocol.printable import MOST_CHARACTERS, printable

TARGET = """
import logging, sys, threading, time
from mcpd import Server
server = Server("loud")
own = logging.getLogger("own")

@server.tool
async def logs(n: int) -> str:
    for i in range(n):
        own.warning("%s %s", i, "x" * 1000)
    return "logged"

@server.tool
async def prints(n: int) -> str:
    for i in range(n):
        print(i, "y" * 1000)
        print(i, "z" * 1000, file=sys.stderr)
    return "printed"

@server.tool
def hangs() -> str:
    print("hanging", file=sys.stderr)
    time.sleep(3600)
    return "never"

@server.tool
async def leaks(lines: int) -> str:
    import os, resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    own.leaked = []
    try:
        while True:
            own.leaked.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for number in range(lines):
            print("no descriptor", number, file=sys.stderr)
        raise

@server.tool
async def fails(text: str) -> str:
    raise LookupError(text)
"""


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def call(request_id: int, name: str, **arguments: Any) -> bytes:
    params = {"name": name, "arguments": arguments}
    return line({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})


class Running:
    """`mcpd serve --stdio`, whose stderr is read only when a test says so."""

    def __init__(self, child: Child, folder: Path, stderr: int = subprocess.PIPE) -> None:
        (folder / "loud.py").write_text(TARGET)
        self.process = subprocess.Popen(
            child.mcpd("serve", "--stdio", "--grace", "0.2", str(folder / "loud.py")),
            env=child.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, bufsize=0,
        )  # fmt: skip
        self._rest = b""
        self.say(line(initialize("2025-11-25")))
        self.hear()

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def hear(self) -> Any:
        """The next message. Far more time than it takes: a server that waits for its log never answers."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            assert select.select([self.process.stdout], [], [], 20)[0], "no answer"
            chunk = os.read(self.process.stdout.fileno(), 65536)
            assert chunk, "the server has ended"
            self._rest += chunk
        found, _, self._rest = self._rest.partition(b"\n")
        return json.loads(found)

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=100) == 0


@pytest.fixture
def running(child: Child, tmp_path: Path) -> Iterator[Running]:
    server = Running(child, tmp_path)
    yield server
    with server.process:  # closes its pipes
        server.process.kill()


@pytest.mark.parametrize("tool", ["logs", "prints"])
def test_a_stderr_that_nobody_reads_stops_nothing(running: Running, tool: str) -> None:
    running.say(call(1, tool, n=3000))
    assert running.hear()["id"] == 1
    running.say(call(2, tool, n=1))
    assert running.hear()["id"] == 2
    # Once somebody reads, what waited comes, and a word on how much was dropped.
    assert running.process.stderr is not None
    said = b""
    while b"were dropped here" not in said:
        chunk = os.read(running.process.stderr.fileno(), 65536)
        assert chunk
        said += chunk
    dropped = re.search(rb"mcpd: (\d+) lines were dropped here because stderr was not read\n", said)
    assert dropped is not None
    before = said[: dropped.start()]
    assert len(before) < 1_300_000
    written = before.count(b"\n")
    assert written + int(dropped[1]) in ((3000, 3001) if tool == "logs" else (6000, 6002))
    running.end()


def test_the_end_waits_for_no_reader_of_stderr(running: Running) -> None:
    """Neither the usual end nor the one that a hung tool needs."""
    running.say(call(1, "logs", n=3000))
    running.hear()
    running.say(call(2, "hangs"))
    running.say(line({"jsonrpc": "2.0", "id": 3, "method": "ping"}))
    running.hear()
    running.process.terminate()
    assert running.process.wait(timeout=100) == 0


def test_a_socket_as_stderr_is_never_waited_for_either(child: Child, tmp_path: Path) -> None:
    """Node gives its children sockets; their flags belong to both ends' owners too."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        server = Running(child, tmp_path, stderr=theirs.fileno())
        server.say(call(1, "logs", n=3000))
        assert server.hear()["id"] == 1
        assert os.get_blocking(theirs.fileno())
        theirs.close()
        said = b""
        while b"were dropped here" not in said:
            said += ours.recv(65536)
        with server.process:
            server.end()


@pytest.mark.skipif(sys.platform == "win32", reason="limits descriptors with resource")
def test_the_first_lines_come_though_no_descriptor_is_left(running: Running) -> None:
    """What writes the log is loaded with its first line, and nothing can be loaded now."""
    running.say(call(1, "leaks", lines=2))
    assert running.hear()["result"]["isError"] is True
    said = b""
    while b"Too many open files" not in said:
        assert running.process.stderr is not None
        chunk = os.read(running.process.stderr.fileno(), 65536)
        assert chunk
        said += chunk
    assert b"no descriptor 0\nno descriptor 1\nERROR mcpd: tool leaks (request 1) failed" in said
    running.end()


def test_a_flood_of_failures_is_counted(running: Running) -> None:
    for number in range(200):
        running.say(call(number + 1, "fails", text="\x1b[31mforged\nERROR mcpd: forged"))
        running.hear()
    running.say(line({"jsonrpc": "2.0", "id": 201, "method": "ping"}))
    running.hear()
    assert running.process.stdin is not None
    running.process.stdin.close()
    assert running.process.stderr is not None
    said = running.process.stderr.read().decode()
    assert said.count("Traceback") <= MOST_ALIKE
    assert "\x1b" not in said
    assert not re.search(r"^ERROR mcpd: forged", said, re.MULTILINE)


# ---------------------------------------------------------------------------------------- the writer


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_the_pipe_keeps_its_flags(pipe: tuple[int, int]) -> None:
    out, into = pipe
    writer = DescriptorWriter(into)
    writer.put(b"one\n")
    assert os.get_blocking(into)
    assert os.read(out, 100) == b"one\n"


def test_what_waits_is_written_in_order_and_what_is_too_much_is_counted(pipe: tuple[int, int]) -> None:
    out, into = pipe
    writer = DescriptorWriter(into, most=10_000)
    for number in range(1000):
        writer.put(b"%d %s\n" % (number, b"x" * 200))
    said = b""
    while b"dropped" not in said:
        said += os.read(out, 65536)
    lines = said.splitlines()
    kept = [int(entry.split()[0]) for entry in lines[:-1]]
    assert kept == list(range(len(kept)))
    assert lines[-1] == b"mcpd: %d lines were dropped here because stderr was not read" % (1000 - len(kept))
    writer.finish()
    writer.put(b"again\n")
    assert os.read(out, 100) == b"again\n"


def test_the_last_lines_get_a_bounded_time(pipe: tuple[int, int]) -> None:
    out, into = pipe
    writer = DescriptorWriter(into)
    writer.put(b"x" * 200_000)
    done = threading.Event()
    threading.Thread(target=lambda: (writer.finish(0.05), done.set())).start()
    assert done.wait(20)
    assert os.read(out, 100) == b"x" * 100


def test_a_thread_may_wait_while_the_main_thread_does_not(pipe: tuple[int, int]) -> None:
    """Plain functions run in threads: what they print is never dropped, as long as somebody reads."""
    out, into = pipe
    writer = DescriptorWriter(into, most=1000)
    with io.TextIOWrapper(io.FileIO(into, "w", closefd=False), encoding="utf-8") as like:
        stream = text_stream(writer, like)
    printing = threading.Thread(target=lambda: [print(number, "x" * 100, file=stream) for number in range(2000)])
    printing.start()
    said = b""
    while not said.endswith(b"1999 " + b"x" * 100 + b"\n"):
        said += os.read(out, 65536)
    printing.join(20)
    assert b"dropped" not in said
    assert said.count(b"\n") == 2000
    assert stream.fileno() == into
    assert not stream.isatty()


def test_a_file_that_takes_the_place_of_stderr_gets_the_log(pipe: tuple[int, int], tmp_path: Path) -> None:
    _, into = pipe
    writer = DescriptorWriter(into)
    writer.put(b"before\n")
    with open(tmp_path / "log", "wb") as file:
        os.dup2(file.fileno(), into)
        writer.put(b"after\n")
    assert (tmp_path / "log").read_bytes() == b"after\n"


def test_a_reader_that_has_gone_is_no_error(pipe: tuple[int, int]) -> None:
    out, into = pipe
    writer = DescriptorWriter(into)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, out)
    os.close(nothing)
    for _ in range(3):
        writer.put(b"to nobody\n")


def test_without_a_way_that_never_waits_a_thread_does(pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    from mcpd.cli import log

    out, into = pipe
    monkeypatch.setattr(log, "open_writer", lambda fd: (fd, None))
    writer = DescriptorWriter(into, most=1000)
    for number in range(2000):
        writer.put(b"%d %s\n" % (number, b"x" * 100))
    said = b""
    while b"dropped" not in said:
        said += os.read(out, 65536)
    writer.finish()
    assert said.startswith(b"0 xxx")


# ---------------------------------------------------------------------------------------- what is written


class Written:
    """A logger of ours with the handler of `mcpd serve`, and its lines."""

    def __init__(self, name: str) -> None:
        self.data = b""
        self.handler = LogHandler(self._take, lambda: None, level="debug", target=None, log_format="text")
        self.log = logging.Logger(name)
        self.log.addHandler(self.handler)

    def _take(self, data: bytes) -> None:
        self.data += data

    @property
    def lines(self) -> list[str]:
        return self.data.decode().splitlines()


def test_what_repeats_is_counted_and_said_at_the_end() -> None:
    written = Written("mcpd.http")
    for number in range(500):
        written.log.warning("number %d", number)
    written.log.warning("another")
    assert written.lines == [
        *(f"WARNING mcpd.http: number {number}" for number in range(MOST_ALIKE)),
        "WARNING mcpd.http: … more lines like this one follow; they are counted",
        "WARNING mcpd.http: another",
    ]
    written.handler.flush()
    assert written.lines[-1] == f"WARNING mcpd.http: … repeated {500 - MOST_ALIKE} times more within 10 s: number %d"


def test_the_count_is_said_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(log_module.time, "monotonic", lambda: now)
    written = Written("mcpd")
    for number in range(MOST_ALIKE + 1):
        written.log.error("number %d", number)
    now += log_module.WINDOW
    written.log.error("number %d", 1000)
    assert written.lines[-2:] == ["ERROR mcpd: … repeated once more within 10 s: number %d", "ERROR mcpd: number 1000"]


def test_kinds_are_bounded() -> None:
    written = Written("mcpd")
    for number in range(5000):
        written.log.error(f"template {number}")
    assert len(written.handler._repeats._kinds) <= 256


def test_tools_and_debug_may_repeat_themselves() -> None:
    tools = Written("my.tool")
    debug = Written("mcpd.http")
    for number in range(100):
        tools.log.warning("number %d", number)
        debug.log.debug("number %d", number)
    assert len(tools.lines) == len(debug.lines) == 100


def test_different_failures_are_different_lines() -> None:
    written = Written("mcpd")
    for _ in range(20):
        for kind in (KeyError, ValueError):
            try:
                raise kind("x")
            except Exception:
                written.log.exception("failed")
    assert written.data.count(b"Traceback") == 2 * MOST_ALIKE


def test_a_record_of_ours_stays_on_its_line_and_a_traceback_is_indented() -> None:
    written = Written("mcpd")
    written.log.error("peer says %s", "one\nERROR mcpd: two\x1b[31m\u202e")
    assert written.lines == ["ERROR mcpd: peer says one\\nERROR mcpd: two\\x1b[31m\\u202e"]
    written.data = b""
    try:
        raise ValueError("one\nERROR mcpd: two\x1b")
    except ValueError:
        written.log.exception("failed\nhere")
    assert written.lines[0] == "ERROR mcpd: failed\\nhere"
    assert all(entry.startswith("  ") for entry in written.lines[1:])
    assert written.lines[-1] == "  ERROR mcpd: two\\x1b"


def test_a_traceback_is_bounded() -> None:
    written = Written("mcpd")
    try:
        raise ValueError("x" * 1_000_000)
    except ValueError:
        written.log.exception("failed")
    assert len(written.data) < MOST_TRACEBACK_CHARACTERS + 1000
    assert "characters are left out" in written.data.decode()


def test_a_record_that_cannot_be_formatted_is_one_line() -> None:
    written = Written("mcpd")
    written.log.error("%d", "no number")
    (said,) = written.lines
    assert "cannot be formatted" in said


# ---------------------------------------------------------------------------------------- foreign text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain text, ünïcode 漢字", "plain text, ünïcode 漢字"),
        ("a\nb\r\x1b[31m\x00\x7f\x9b", "a\\nb\\r\\x1b[31m\\x00\\x7f\\x9b"),
        ("\u202egnp.exe\u2028\u200f\ufeff", "\\u202egnp.exe\\u2028\\u200f\\ufeff"),
        ("\ud800half", "\\ud800half"),
        (b"GET \xff\n", "GET ÿ\\n"),
        (ValueError("x\ny"), "x\\ny"),
        (17, "17"),
        (None, "None"),
    ],
)
def test_foreign_text_is_one_line_that_commands_nothing(value: object, shown: str) -> None:
    assert printable(value) == shown


def test_foreign_text_is_bounded() -> None:
    assert printable("x" * 1000) == "x" * MOST_CHARACTERS + "… (1000 characters)"
    assert printable("x" * 1000, 2000) == "x" * 1000
    assert len(printable(b"\n" * 10_000_000)) < 500


def test_what_cannot_be_text_is_named_by_its_kind() -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError

    assert printable(Bad()) == "<Bad>"
    assert printable(10**5000) == "<int>"


def test_nothing_else_was_touched() -> None:
    """Whoever has set up logging, as pytest has here, keeps what he has."""
    before = list(logging.getLogger().handlers), sys.stderr, sys.stdout
    configure("info")
    assert (list(logging.getLogger().handlers), sys.stderr, sys.stdout) == before
