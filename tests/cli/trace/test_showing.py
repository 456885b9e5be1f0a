"""`mcpd trace show`: who asked what, what came of it and how long that took."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Child
from support import clock

from mcpd.apps.preview.messages import TraceGet
from mcpd.apps.preview.trace import Trace
from mcpd.cli.trace.reading import (
    Entry,
    Filter,
    TraceReader,
    as_json,
    as_line,
    read_lines,
    readable_size,
    readable_time,
)

BEGAN = "2026-11-22T10:00:00+00:00"


def run(*records: dict[str, Any], at: str = BEGAN) -> bytes:
    lines = [{"trace": 1, "at": at, "command": ["npx", "srv"]}, *records]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def message(seconds: float, source: str, **members: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", **members}
    return {"t": seconds, "from": source, "size": len(json.dumps(body)), "message": body}


RUN = run(
    {"t": 0.001, "event": "started", "pid": 42},
    message(0.1, "host", id=1, method="initialize", params={"protocolVersion": "2025-11-25"}),
    message(0.15, "server", id=1, result={"protocolVersion": "2025-11-25"}),
    {"t": 0.2, "from": "server", "size": 12, "text": "Listening..."},
    {"t": 0.2, "from": "stderr", "size": 12, "text": "\x1b[31mwarning"},
    message(1.0, "host", id="a", method="tools/call", params={"name": "echo", "arguments": {"x": 1}}),
    message(1.5, "server", id=1, method="roots/list"),
    message(1.6, "host", id=1, result={"roots": []}),
    message(3.0, "server", id="a", result={"content": [{"type": "text", "text": "no\x1b]0;x"}], "isError": True}),
    message(3.1, "host", id=3, method="tools/list"),
    message(3.2, "server", id=3, error={"code": -32601, "message": "no such\u202e method"}),
    message(3.3, "host", id=4, method="resources/list"),
    message(3.4, "host", id=5, method="prompts/list"),
    message(3.5, "host", method="notifications/cancelled", params={"requestId": 5}),
    {"t": 4.0, "event": "exited", "code": 1},
)


def read(data: bytes) -> tuple[list[Entry], TraceReader]:
    reader = TraceReader()
    return [entry for line in data.splitlines() for entry in reader.feed(line)], reader


def test_answers_find_their_requests() -> None:
    """In both directions, which have ids of their own; what was cancelled is not missed."""
    entries, reader = read(RUN)
    answers = [(entry.id, entry.method, entry.seconds) for entry in entries if entry.role in ("result", "error")]
    assert [(id, method, round(seconds or 0, 6)) for id, method, seconds in answers] == [
        (1, "initialize", 0.05), (1, "roots/list", 0.1), ("a", "tools/call", 2.0), (3, "tools/list", 0.1),
    ]  # fmt: skip
    assert [entry.id for entry in reader.unanswered()] == [4]
    failed = [entry.role if entry.role != "event" else entry.event["event"] for entry in entries if entry.is_failure]
    assert failed == ["text", "result", "error", "exited"]


def test_lines_are_for_people() -> None:
    entries, _ = read(RUN)
    lines = [as_line(entry) for entry in entries]
    assert all(line.isprintable() for line in lines)
    told = "\n".join(lines)
    for text in (
        "npx srv",
        "·  the server is started, process 42",
        '→ 1     initialize                              ',
        "← a     tools/call                    2.0 s",
        "the tool failed: no\\x1b]0;x",
        "not a message: Listening...",
        "stderr  \\x1b[31mwarning",
        'echo {"x":1}',
        "error -32601: no such\\u202e method",
        "the server has ended, exit code 1",
    ):  # fmt: skip
        assert text in told
    assert as_line(entries[6], most=5).endswith("echo … (12 characters)")


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (Filter(methods=("tools/*",)), ["a", "a", 3, 3]),
        (Filter(methods=("roots/list", "initialize")), [1, 1, 1, 1]),
        (Filter(ids=("a", "5")), ["a", "a", 5]),
        (Filter(failures=True), [None, "a", 3, None]),
        (Filter(slow_ms=100.0), ["a", 3]),
        (Filter(slow_ms=1000.0, methods=("tools/*",)), ["a"]),
    ],
)
def test_filters(wanted: Filter, ids: list[Any]) -> None:
    entries, _ = read(RUN)
    assert [entry.id for entry in entries if wanted.wants(entry) and entry.role != "run"] == ids


def test_json_prints_nothing_that_commands_a_terminal() -> None:
    entries, _ = read(RUN)
    lines = [as_json(entry) for entry in entries]
    assert all(line.isprintable() for line in lines)
    said = [json.loads(line) for line in lines]
    assert said[9]["message"]["result"]["content"][0]["text"] == "no\x1b]0;x"
    assert said[9]["ms"] == 2000.0
    assert said[11]["message"]["error"]["message"] == "no such\u202e method"
    assert said[5]["from"] == "stderr"


def test_batches_cut_messages_and_what_is_no_record() -> None:
    batch = [{"jsonrpc": "2.0", "id": 8, "method": "ping"}, {"jsonrpc": "2.0", "id": 9, "method": "tools/list"}]
    entries, reader = read(
        run(
            {"t": 1, "from": "host", "size": 1, "message": batch},
            {"t": 2, "from": "server", "size": 1, "message": [{"id": 8, "result": {}}]},
            {"t": 3, "from": "server", "size": 9_000_000, "cut": True, "id": 9, "text": '{"id":9'},
            {"t": 4, "from": "server", "size": 9_000_000, "cut": True, "id": 9, "text": '{"id":9', "error": True},
            {"t": 5, "from": "server", "size": 3, "bytes": "AP/+"},
            {"t": 6, "from": "server", "size": 2, "message": []},
            {"t": 7, "from": "server", "size": 2, "message": {"id": 77, "result": 3}},
        )
        + b"no json\n[]\n"
        + run({"t": 1, "event": "strange", "x": "\n"})
    )
    assert [entry.role for entry in entries] == [
        "run", "request", "request", "result", "result", "error", "text", "text", "result", "run", "event",
    ]  # fmt: skip
    assert entries[4].method == "tools/list"
    assert "(not recorded whole)" in as_line(entries[4])
    assert "3 bytes that are not UTF-8" in as_line(entries[6])
    assert "a batch that cannot be read" in as_line(entries[7])
    assert "(an answer to nothing)" in as_line(entries[8])
    assert reader.unreadable == 2
    assert as_line(entries[10]).isprintable()


def test_units() -> None:
    assert [readable_time(seconds) for seconds in (0.0001, 0.0994, 0.5, 12.34)] == [
        "0.1 ms",
        "99.4 ms",
        "500 ms",
        "12.3 s",
    ]
    assert [readable_size(size) for size in (0, 999, 1500, 2_000_000)] == ["0 B", "999 B", "1.5 KB", "2.0 MB"]


@pytest.mark.medium
async def test_a_file_is_followed_into_the_next(tmp_path: Path) -> None:
    """Half a line is waited for; a file that was rotated is read to its end, then the new one."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"1\n2")
    found: list[bytes] = []
    is_over = False

    def follow() -> None:
        for line in read_lines(path, lambda: is_over):
            found.append(line)

    following = asyncio.create_task(asyncio.to_thread(follow))
    await clock.until(lambda: found == [b"1"])
    with path.open("ab", buffering=0) as file:
        file.write(b"2\n")
        await clock.until(lambda: found == [b"1", b"22"])
        path.rename(tmp_path / "t.jsonl.1")
        file.write(b"3\n")
    path.write_bytes(b"4\n5")
    await clock.until(lambda: found == [b"1", b"22", b"3", b"4"])
    is_over = True
    await following
    assert found[-1] == b"5"


# ----------------------------------------------------------------------------------- the command


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_bytes(RUN)
    return path


def show(child: Child, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        child.mcpd("trace", "show", *words),
        env=child.env | env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_in_a_pipe_there_are_no_colours(child: Child, file: Path) -> None:
    done = show(child, str(file))
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[-1] == "no answer from the server: resources/list, id 4"
    assert len(done.stdout.splitlines()) == 17

    errors = show(child, "--errors", "--json", str(file))
    assert [json.loads(line).get("id") for line in errors.stdout.splitlines()] == [None, "a", 3, None]
    found = show(child, "--grep", "ECHO|listening", str(file))
    assert len(found.stdout.splitlines()) == 2


def test_on_a_terminal_what_failed_is_red(child: Child, file: Path) -> None:
    for extra, is_coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        ours, theirs = os.openpty()
        with subprocess.Popen(
            child.mcpd("trace", "show", str(file)), env=child.env | {"COLUMNS": "100"} | extra, stdout=theirs
        ) as process:
            os.close(theirs)
            said = b""
            try:
                while data := os.read(ours, 65536):
                    said += data
            except OSError:  # Linux says so at the end
                pass
            os.close(ours)
        assert process.returncode == 0
        lines = said.decode().splitlines()
        assert ("\x1b[31m" in said.decode()) is is_coloured
        assert "\x1b]" not in said.decode()
        if not is_coloured:
            assert max(map(len, lines[1:])) <= 125


def test_without_a_file_it_is_the_newest(child: Child, file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "mcpd" / "traces"
    env = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
    done = show(child, **env)
    assert done.returncode == 1
    assert "record one with mcpd trace -- COMMAND" in done.stderr
    folder.mkdir(parents=True)
    target = folder / "srv-20260101-000000-1.jsonl"
    target.write_bytes(RUN)
    done = show(child, **env)
    assert done.stderr == f"mcpd: {target}\n"
    assert "npx srv" in done.stdout


def test_wrong_use(child: Child, file: Path, tmp_path: Path) -> None:
    for words, code, text in [
        (["--grep", "(", str(file)], 2, "--grep: "),
        ([str(tmp_path / "none")], 1, "cannot be read: No such file or directory"),
    ]:
        done = show(child, *words)
        assert done.returncode == code
        assert text in done.stderr
        assert len(done.stderr.splitlines()) == 1
    for words, text in [
        ([], "write mcpd trace -- COMMAND"),
        (["npx", "srv"], "mcpd: write -- before the server's command: mcpd trace -- npx srv"),
        (["x", "--", "y"], "unexpected 'x' before --"),
        (["--"], "no command after --"),
    ]:
        done = subprocess.run(
            child.mcpd("trace", *words), env=child.env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert text in done.stderr
    for text in ("text\n", ""):
        (tmp_path / "t").write_text(text)
        done = show(child, str(tmp_path / "t"))
        assert done.returncode == 1
        assert "mcpd trace, mcpd serve --wire-log and the preview write traces" in done.stderr
    (tmp_path / "t").write_bytes(RUN + b"text\n")
    assert "1 lines of" in show(child, str(tmp_path / "t")).stderr


def test_a_wire_log_is_shown(child: Child, tmp_path: Path) -> None:
    file = tmp_path / "wire.log"
    frames = [
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": {}}},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    subprocess.run(
        child.mcpd("serve", "--stdio", "--demo", "--wire-log", str(file)),
        env=child.env,
        input="".join(f"{json.dumps(frame)}\n" for frame in frames),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    done = show(child, str(file))
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split()[1:4] for line in done.stdout.splitlines()]
    assert ["→", "1", "server/discover"] in lines
    assert ["←", "1", "server/discover"] in lines


def test_a_file_of_the_preview_is_shown(child: Child, tmp_path: Path) -> None:
    async def saved() -> list[Any]:
        trace = Trace()
        trace.add("view:1", "host", b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}')
        trace.add("host", "server", b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        trace.add("server", "host", b'{"jsonrpc":"2.0","id":1,"result":{}}')
        trace.add("host", "view:1", b'{"jsonrpc":"2.0","id":1,"result":{}}')
        trace.close()
        answer = trace.get(TraceGet(masked=True))
        return [answer["header"], *answer["entries"]]

    file = tmp_path / "preview.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in asyncio.run(saved())))
    done = show(child, str(file))
    assert (done.returncode, done.stderr) == (0, "")
    methods = [line.split()[3] for line in done.stdout.splitlines()[1:]]
    assert methods == ["tools/call", "ping", "ping", "tools/call"]


def test_it_follows_until_ctrl_c(child: Child, file: Path) -> None:
    with subprocess.Popen(
        child.mcpd("trace", "show", "-f", "--method", "late", str(file)), env=child.env, stdout=subprocess.PIPE
    ) as process:
        with file.open("ab") as more:
            more.write(json.dumps(message(5.0, "host", method="late")).encode() + b"\n")
        assert process.stdout is not None
        assert b"npx srv" in process.stdout.readline()
        assert b"late" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
