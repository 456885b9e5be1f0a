"""The wire log: what is in it, and what is not."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from support.http_wire import http_wire
from support.wires import LEGACY, MODERN, memory_wire, stdio_wire

from mcpd import Server
from mcpd.errors import ConfigurationError
from mcpd.observe import wire_log
from mcpd.observe.wire_log import WireLog
from mcpd.protocol.observer import ObservedFrame

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
    calls = [r["message"] for r in records if r.get("message", {}).get("method") == "tools/call"]
    assert len(calls) == 2
    assert calls[0]["params"]["arguments"]["text"] == "x" * 200 + "… (5000 characters)"
    answers = [r for r in records if r["from"] == "server" and r["message"].get("id") == calls[0]["id"]]
    assert len(answers) == 1
    assert answers[0]["time"] >= records[0]["time"]


def test_what_cannot_be_read_is_shown_in_part(tmp_path: Path) -> None:
    path = tmp_path / "wire.jsonl"
    log = WireLog(str(path))
    log.frame_received(ObservedFrame(1, b"\x1b[2J{not json Authorization: Bearer " + SECRET.encode() + b"\xff" * 300))
    log.frame_sent(ObservedFrame(1, b"[" * 3000))
    log.close()
    first, second = map(json.loads, path.read_text().splitlines())
    assert SECRET not in first["text"]
    assert "\x1b" not in first["text"]
    assert second["text"].startswith("[[[")


def test_what_is_too_much_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_log, "MOST_WAITING_BYTES", 10)
    path = tmp_path / "wire.jsonl"
    log = WireLog(str(path))
    with log._changed:  # the thread waits meanwhile
        for _ in range(5):
            log.frame_sent(ObservedFrame(1, b'{"jsonrpc":"2.0"}'))
    log.close()
    log.frame_sent(ObservedFrame(1, b"{}"))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [record.get("left_out") for record in records] == [None, 4]


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
    assert victim.read_text() == "mine"


async def test_a_full_disk_breaks_no_call() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    log = WireLog.__new__(WireLog)
    original, wire_log._open = wire_log._open, lambda path: os.open("/dev/full", os.O_WRONLY)
    try:
        log.__init__("x")  # type: ignore[misc]
    finally:
        wire_log._open = original
    server = Server("logged", observers=[log])
    server.tool(name="echo")(lambda: "x")
    async with memory_wire(server, MODERN) as wire:
        for _ in range(3):
            assert await wire.text("echo") == "x"
    log.close()
    assert log._waiting_bytes < 10_000
