"""`mcpd trace -- COMMAND` as a host starts it: bytes, ends, signals and exit codes are those of the server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support import clock

SECONDS = 60.0

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


@pytest.fixture
def start(child: Child, trace: Path) -> Iterator[Start]:
    """Trace a program of Python, with pipes of our own to it."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(program: str, *options: str, **how: Any) -> subprocess.Popen[bytes]:
        words = child.mcpd("trace", "--file", str(trace), *options, "--", sys.executable, "-c", program)
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = subprocess.Popen(words, env=child.env, bufsize=0, **pipes | how)
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait(SECONDS)


def records(trace: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]


def events(trace: Path) -> list[dict[str, Any]]:
    return [record for record in records(trace) if "event" in record]


def until(what: Callable[[], object]) -> None:
    asyncio.run(clock.until(what))


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


ECHO = "import os\nwhile data := os.read(0, 65536):\n    os.write(1, data)"


def test_both_directions_pass_unchanged(start: Start, trace: Path) -> None:
    """Bytes that are no UTF-8, no JSON, no lines; what is recorded of them is enough to have them back."""
    said = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\r\n\x00\xff\xfe no text\n\n{"half":' + bytes(range(256))
    done = start(ECHO).communicate(said, SECONDS)
    assert done == (said, b"")
    found = [record for record in records(trace) if record.get("from") == "server" and "size" in record]
    assert found[0]["message"] == {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert found[0]["end"] == "\r\n"
    assert found[1] | {"t": 0} == {"t": 0, "from": "server", "size": 11, "bytes": "AP/+IG5vIHRleHQ="}
    assert found[2]["text"] == ""
    assert found[-1]["unfinished"]


def test_what_is_not_a_line_yet_passes_at_once(start: Start) -> None:
    """Nothing is kept back until a newline comes, or for more to be written at once."""
    process = start(ECHO)
    assert process.stdin is not None
    assert process.stdout is not None
    for part in (b"a", b"bc", b'{"id"'):
        process.stdin.write(part)
        assert process.stdout.read(len(part)) == part


def test_ten_megabytes_in_one_message(start: Start, trace: Path) -> None:
    size = 10 * 1024 * 1024
    program = (
        "import sys, hashlib\n"
        "line = sys.stdin.buffer.readline()\n"
        "sys.stderr.write(hashlib.sha256(line).hexdigest())\n"
        "sys.stdout.buffer.write(line)"
    )
    text = "é" * (size // 2)
    line = b'{"jsonrpc":"2.0","id":"big","method":"tools/call","params":"' + text.encode() + b'"}\n'
    out, err = start(program).communicate(line, SECONDS)
    assert out == line
    assert err.decode() == hashlib.sha256(line).hexdigest()
    sent, came = (record for record in records(trace) if record.get("from") in ("host", "server") and "size" in record)
    for record in (sent, came):
        assert record["size"] == len(line) - 1
        assert record["cut"]
        assert record["id"] == "big"
        assert record["method"] == "tools/call"
        assert record["text"].startswith('{"jsonrpc":"2.0","id":"big"')
    assert trace.stat().st_size < 5 * 1024 * 1024


def test_a_message_longer_than_all_that_is_kept_of_it(start: Start, trace: Path) -> None:
    """Its id stands at its end, as some libraries write it."""
    program = 'import sys\nsys.stdout.write(\'{"result":"\' + \'x\' * 20_000_000 + \'","jsonrpc":"2.0","id":7}\\n\')'
    out, _ = start(program, "--max-message", "100").communicate(timeout=SECONDS)
    assert len(out) == 20_000_037
    (record,) = (record for record in records(trace) if "size" in record)
    assert record["id"] == 7
    assert len(record["text"]) == 100


def test_the_end_of_stdin_reaches_the_server(start: Start, trace: Path) -> None:
    program = "import sys\nsys.stdin.read()\nprint('it has ended', file=sys.stderr)\nraise SystemExit(7)"
    process = start(program)
    assert process.communicate(timeout=SECONDS) == (b"", b"it has ended\n")
    assert process.returncode == 7
    assert {"event": "end", "from": "host"}.items() <= events(trace)[1].items()
    assert events(trace)[-1]["code"] == 7


def test_a_host_that_reads_no_more_is_felt_by_the_server(start: Start, trace: Path) -> None:
    """As it would feel it without us, even while it writes nothing: its next write fails."""
    program = (
        "import sys\ntry:\n    while True:\n        sys.stdin.readline()\n        print('x', flush=True)\n"
        "except BrokenPipeError:\n    sys.stderr.write('nobody reads')"
    )
    process = start(program)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"1\n")
    assert process.stdout.readline() == b"x\n"
    process.stdout.close()
    until(lambda: any(event["event"] == "reader gone" for event in events(trace)))
    process.stdin.write(b"2\n")
    assert process.wait(SECONDS) is not None
    assert process.stderr is not None
    assert b"nobody reads" in process.stderr.read()


def test_a_server_that_closes_its_stdin_is_felt_by_the_host(start: Start) -> None:
    process = start("import os\nos.close(0)\nos.write(1, b'closed')\nos.read(2, 1)", stderr=None)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.read(6) == b"closed"
    with pytest.raises(BrokenPipeError):
        for _ in range(100_000):
            process.stdin.write(b"x")


def test_a_reader_that_waits_holds_up_the_writer(start: Start, trace: Path) -> None:
    """What is under way is bounded by the pipes: the server stops when the host does not read."""
    program = (
        "import os, select\nos.set_blocking(1, False)\nsent = idle = 0\n"
        "while idle < 10:\n"
        "    if select.select([], [1], [], 0.2)[1]:\n"
        "        sent += os.write(1, b'x' * 4096)\n        idle = 0\n    else:\n        idle += 1\n"
        "os.write(2, str(sent).encode() + b'\\n')\nos.read(0, 1)"
    )
    process = start(program)
    assert process.stderr is not None
    assert process.stdout is not None
    sent = int(process.stderr.readline())
    assert sent <= 512 * 1024
    assert process.stdin is not None
    process.stdin.close()
    assert len(process.stdout.read()) == sent


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_signals_reach_the_server_once(start: Start, trace: Path, name: str) -> None:
    program = (
        "import signal, sys, time\nheard = []\n"
        f"signal.signal(signal.{name}, lambda *_: heard.append(1))\n"
        "print('ready', flush=True)\nsys.stdin.readline()\nprint(len(heard), flush=True)\nraise SystemExit(3)"
    )
    process = start(program)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(getattr(signal, name))
    until(lambda: any(event["event"] == "signal" for event in events(trace)))
    process.stdin.write(b"\n")
    assert process.stdout.readline() == b"1\n"
    assert process.wait(SECONDS) == 3


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM"])
def test_it_ends_by_the_signal_that_ended_the_server(start: Start, trace: Path, name: str) -> None:
    number = getattr(signal, name)
    program = f"import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\nos.kill(os.getpid(), {int(number)})"
    process = start(program)
    process.communicate(timeout=SECONDS)
    assert process.returncode == -number
    assert events(trace)[-1]["signal"] == name


def test_a_host_that_kills_us_leaves_no_server(start: Start) -> None:
    """SIGKILL, to a server that heeds neither the end of its input nor SIGTERM, and what it has started."""
    program = (
        "import os, signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(os.getpid(), other.pid, flush=True)\ntime.sleep(600)"
    )
    process = start(program)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert all(map(lives, pids))
    process.kill()
    until(lambda: not any(map(lives, pids)))


def test_what_the_server_leaves_behind_ends_with_it(start: Start, trace: Path) -> None:
    """And it does not hold us up, though it has the server's output open."""
    program = (
        "import subprocess, sys\n"
        "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(other.pid, flush=True)"
    )
    process = start(program)
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    until(lambda: not lives(int(out)))


def test_a_clean_end_leaves_no_process_of_ours(start: Start) -> None:
    process = start(ECHO)
    pid = process.pid
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"x")
    assert process.stdout.read(1) == b"x"
    ours = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    assert len(ours) == 2  # the server, and who watches over it
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    assert not any(map(lives, ours))


def test_what_cannot_be_started_says_so(child: Child, trace: Path, tmp_path: Path) -> None:
    (tmp_path / "no_program").write_text("", encoding="utf-8")
    for command, code, text in [
        ("no-such-program", 127, "No such file or directory"),
        (str(tmp_path / "no_program"), 126, "Permission denied"),
    ]:
        words = child.mcpd("trace", "--file", str(trace), "--", command)
        done = subprocess.run(words, env=child.env, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == code
        assert done.stdout == ""
        assert done.stderr == f"mcpd: {command} cannot be started: {text}\n"
        assert events(trace)[-1]["event"] == "not started"


def test_stderr_passes_and_is_recorded(start: Start, trace: Path) -> None:
    program = "import sys\nsys.stderr.write('token=abcdefgh and\\n\\x1b[31mred\\n')"
    _, err = start(program).communicate(timeout=SECONDS)
    assert err == b"token=abcdefgh and\n\x1b[31mred\n"
    texts = [record["text"] for record in records(trace) if record.get("from") == "stderr" and "size" in record]
    assert texts == ["token=<masked: 8 characters> and", "\x1b[31mred"]


def test_descriptors_that_the_host_does_not_give(child: Child, trace: Path) -> None:
    """A host that gives no stdin: the server's ends at once."""
    words = child.mcpd("trace", "--file", str(trace), "--", sys.executable, "-c", "import sys; print(sys.stdin.read())")
    shell = ["sh", "-c", 'exec "$@" <&-', "sh", *words]
    done = subprocess.run(shell, env=child.env, capture_output=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (0, b"\n")


def test_a_disk_that_is_full_stops_the_trace_and_not_the_server(child: Child, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    words = child.mcpd("trace", "--file", str(file), "--", sys.executable, "-c", ECHO)
    said = b"x" * 4_000_000 + b"\n" + b"y" * 4_000_000 + b"\n"
    shell = ["sh", "-c", 'ulimit -f 8; trap "" XFSZ; exec "$@"', "sh", *words]
    # What is counted for coverage is written to a file too, and could not be.
    env = {name: value for name, value in child.env.items() if not name.startswith("COV")}
    done = subprocess.run(shell, env=env, input=said, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0
    assert done.stdout == said
    assert done.stderr.decode() == f"mcpd trace: {file} cannot be written any more: File too large\n"


def test_the_servers_environment_and_folder_are_the_hosts(child: Child, trace: Path, tmp_path: Path) -> None:
    program = "import os; print(os.getcwd(), os.environ['ANY'], os.getpgrp() == os.getpid(), os.getsid(0))"
    words = child.mcpd("trace", "--file", str(trace), "--", sys.executable, "-c", program)
    done = subprocess.run(
        words, env=child.env | {"ANY": "thing"}, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(tmp_path), "thing", "True", str(os.getsid(0))]
