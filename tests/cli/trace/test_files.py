"""Where traces go, who may read them, and how large they get."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Child

from mcpd.cli.trace.reading import MAX_RECORDINGS, default_folder, new_default_path, newest_trace
from mcpd.errors import ConfigurationError
from mcpd.transports.recorder import Recorder, Recording, TraceFile


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path / "mcpd" / "traces"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_default_file_is_named_on_stderr_and_private(child: Child, tmp_path: Path) -> None:
    words = child.mcpd("trace", "--", "echo", "hello")
    env = child.env | {"XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "hello\n"
    (file,) = tmp_path.rglob("*.jsonl")
    assert done.stderr == f"mcpd trace: recording to {file}\n"
    assert mode(file) == 0o600
    assert mode(file.parent) == 0o700
    assert file.name.startswith("echo-")


def test_the_oldest_traces_go(state: Path) -> None:
    state.mkdir(parents=True)
    other = state / "mine.jsonl"
    other.write_text("")
    for number in range(MAX_RECORDINGS + 5):
        path = state / f"server-20260101-000000-{number}.jsonl"
        path.write_text("{}\n")
        (state / f"{path.name}.1").write_text("{}\n")
        os.utime(path, (number, number))
    held = TraceFile(state / "server-20260101-000000-0.jsonl", 1000)  # the oldest, but somebody writes it
    os.utime(held.path, (0, 0))

    assert new_default_path("/usr/bin/a b").name.startswith("a_b-")
    left = sorted(int(path.stem.rpartition("-")[2]) for path in state.glob("server*.jsonl"))
    assert left == [0, *range(6, MAX_RECORDINGS + 5)]
    assert not (state / "server-20260101-000000-3.jsonl.1").exists()
    assert other.exists()
    held.close()
    newest = newest_trace()
    assert newest is not None
    assert newest.name == f"server-20260101-000000-{MAX_RECORDINGS + 4}.jsonl"


def test_the_state_folder_is_never_a_relative_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    assert default_folder().is_absolute()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert default_folder() == Path.home() / "Library" / "Application Support" / "mcpd" / "traces"


def test_a_file_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("{}")
    path.chmod(0o644)
    file = TraceFile(path, 1000)
    assert mode(path) == 0o600
    file.write(b"[]\n")
    file.close()
    assert path.read_text() == "{}\n[]\n"  # what a process left unfinished is a line of its own


def test_two_processes_write_two_files(tmp_path: Path) -> None:
    """A host may start one server for each window, all with the same --file."""
    first = TraceFile(tmp_path / "t.jsonl", 1000)
    second = TraceFile(tmp_path / "t.jsonl", 1000)
    assert second.path == tmp_path / f"t.{os.getpid()}.jsonl"
    first.close()
    second.close()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(ConfigurationError, match="--file FILE"):
            TraceFile(path, 1000)
    with pytest.raises(ConfigurationError, match="cannot be written: No such file or directory; name another"):
        TraceFile(tmp_path / "none" / "t.jsonl", 1000)


def test_a_full_file_becomes_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    recorder = Recorder(TraceFile(path, 2000), ["server", "--token", "hush-hush"], Recording())
    for number in range(100):
        recorder.record("server", b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % number)
    recorder.close()
    old = tmp_path / "t.jsonl.1"
    assert sorted(tmp_path.iterdir()) == [path, old]
    assert max(path.stat().st_size, old.stat().st_size) < 2300
    assert mode(old) == mode(path) == 0o600
    lines = [json.loads(line) for line in (old.read_text() + path.read_text()).splitlines()]
    heads = [line for line in lines if "trace" in line]
    assert [head.get("continues") for head in heads] == [True, True]
    assert heads[0]["command"] == ["server", "--token", "<masked: 9 characters>"]
    ids = [line["message"]["id"] for line in lines if "message" in line]
    assert ids == list(range(ids[0], 100))


def test_what_the_disk_does_not_take_in_time_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from mcpd.transports import recorder as module

    monkeypatch.setattr(module, "MAX_PENDING_BYTES", 1000)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.01)
    file = TraceFile(tmp_path / "t.jsonl", 10**6)
    stuck = threading.Event()
    write = file.write

    def slow(data: bytes) -> None:
        assert stuck.wait(60)
        write(data)

    monkeypatch.setattr(file, "write", slow)
    recorder = Recorder(file, ["server"])
    for _ in range(100):
        recorder.record("host", b'{"half":' + b"x" * 92)
    stuck.set()
    recorder.close()
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    (left_out,) = (line for line in lines if line.get("event") == "left out")
    recorded = sum(line["size"] for line in lines if "size" in line)
    assert left_out["bytes"] + recorded == 10_000
    assert recorded <= 1300
