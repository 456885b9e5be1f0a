"""The wire log: what is in it, and what is not."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from support.http_wire import http_wire
from support.wires import LEGACY, MODERN, memory_wire, stdio_wire

from mcpd import Server
from mcpd.errors import ConfigurationError
from mcpd.protocol.observer import ObservedFrame
from mcpd.transports import recorder
from mcpd.transports.recorder import TraceFile, WireLog

SECRET = "hunter2-sk-4711"


@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, http_wire])
@pytest.mark.parametrize("version", [LEGACY[-1], MODERN])
async def test_each_frame_is_a_line_without_secrets(open_wire: Any, version: str, tmp_path: Path) -> None:
    """OBS-12."""
    path = tmp_path / "wire.jsonl"
    log = WireLog(str(path))
    server = Server("logged", observers=[log])

    @server.tool
    async def echo(text: str, password: str, credentials: dict[str, int]) -> str:
        return json.dumps({"api_key": password, "text": text})

    async with open_wire(server, version) as wire:
        await wire.call("echo", text="x" * 5000, password=SECRET, credentials={"pin": 471147})
        await wire.request("tools/call", {"name": "echo", "requestState": SECRET, "arguments": {}})
    log.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert SECRET not in text
    assert "471147" not in text
    records = [json.loads(line) for line in text.splitlines()]
    assert records[0]["trace"] == 1
    calls = [r["message"] for r in records if r.get("message", {}).get("method") == "tools/call"]
    assert len(calls) == 2
    assert calls[0]["params"]["arguments"]["text"] == "x" * 200 + "… (5000 characters)"
    answers = [r for r in records if r.get("from") == "server" and r["message"].get("id") == calls[0]["id"]]
    assert len(answers) == 1
    assert answers[0]["t"] >= records[1]["t"]
    assert answers[0]["connection"]


def test_what_cannot_be_read_is_shown_in_part(tmp_path: Path) -> None:
    path = tmp_path / "wire.jsonl"
    log = WireLog(str(path))
    log.frame_received(ObservedFrame(1, b"\x1b[2J{not json Authorization: Bearer " + SECRET.encode() + b"\xff" * 300))
    log.frame_sent(ObservedFrame(1, b"[" * 3000))
    log.close()
    _, first, second = map(json.loads, path.read_text().splitlines())
    assert first == first | {"bytes": "", "masked": True}
    assert SECRET not in repr(first)
    assert second["text"].startswith("[[[")


def test_what_is_too_much_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the disk: the event loop calls this."""
    monkeypatch.setattr(recorder, "MAX_PENDING_BYTES", 10)
    path = tmp_path / "wire.jsonl"
    free = threading.Event()
    write = TraceFile.write

    def slow(self: TraceFile, data: bytes) -> None:
        assert free.wait(60)
        write(self, data)

    monkeypatch.setattr(TraceFile, "write", slow)
    log = WireLog(str(path))
    for _ in range(5):
        log.frame_sent(ObservedFrame(1, b'{"jsonrpc":"2.0"}'))
    free.set()
    log.close()
    log.frame_sent(ObservedFrame(1, b"{}"))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record.get("bytes") for record in records] == [None, None, 4 * 17]


def test_files_that_are_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "link").symlink_to(victim)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "no/such/folder", "."):
        with pytest.raises(ConfigurationError, match="--wire-log"):
            WireLog(str(tmp_path / name))
    os.chmod(victim, 0o644)
    WireLog(str(victim)).close()
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert victim.read_text().startswith("mine\n")


async def test_a_full_disk_breaks_no_call(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    log = WireLog(str(tmp_path / "wire.jsonl"))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, log._recorder._file._descriptor)
    os.close(full)
    server = Server("logged", observers=[log])
    server.tool(name="echo")(lambda: "x")
    async with memory_wire(server, MODERN) as wire:
        for _ in range(3):
            assert await wire.text("echo") == "x"
    log.close()
    assert log._recorder._pending_bytes < 10_000
