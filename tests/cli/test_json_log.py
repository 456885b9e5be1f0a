"""`mcpd serve --log-format json`: every line of stderr is an object, calls have theirs, and no values are in them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from hypothesis import given, strategies as st
from support.http_peer import serving
from support.ui_stage import BOTH_ERAS, each_wire
from support.wires import MODERN, OpenWire, envelope, memory_wire

from mcpd import Principal, Server, ToolError
from mcpd.cli.log import DescriptorWriter, _JsonFormatter, lines_as_json
from mcpd.server.dispatcher.observing import MOST_ARGUMENT_CHARACTERS, CallLog

TARGET = """
import logging, sys
from mcpd import Server, ToolError
server = Server("garden")

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
def fails(text: str) -> str:
    print("one line", "and\\nanother", file=sys.stderr)
    print("on stdout")
    logging.getLogger("own").warning("mine: %s", "\\x1b[31m\\u202e")
    raise LookupError("broken")

@server.tool
async def refuses() -> str:
    raise ToolError("no")
"""


def call(request_id: Any, name: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": envelope()}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def serve(
    child: Child, folder: Path, *options: str, messages: list[Any], env: dict[str, str] | None = None
) -> tuple[list[Any], str]:
    """What the server answers, and all that is on its stderr."""
    (folder / "garden.py").write_text(TARGET)
    done = subprocess.run(
        child.mcpd("serve", "--stdio", *options, "garden.py"),
        input="".join(json.dumps(message) + "\n" for message in messages),
        env={**child.env, **(env or {})}, cwd=folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def records(stderr: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stderr.splitlines()]
    assert stderr.isascii()
    for record in found:
        assert {"time", "level", "logger", "message"} <= set(record)
        assert abs((datetime.now(UTC) - datetime.fromisoformat(record["time"])).total_seconds()) < 3600
    return found


def test_every_line_is_an_object_and_each_call_has_one(child: Child, tmp_path: Path) -> None:
    messages = [call(1, "echo", text="secret"), call("b", "fails", text="secret"), call(3, "refuses"), call(4, "none")]
    answers, stderr = serve(child, tmp_path, "--log-format", "json", messages=messages)
    assert len(answers) == 4
    assert "secret" not in stderr
    found = records(stderr)
    calls = {record["request"]: record for record in found if "outcome" in record}
    assert {key: (record["tool"], record["outcome"], record.get("code")) for key, record in calls.items()} == {
        "1": ("echo", "answered", None),
        "b": ("fails", "tool_error", None),
        "3": ("refuses", "tool_error", None),
        "4": ("none", "failed", -32602),
    }
    for record in calls.values():
        assert (record["method"], record["client"], record["version"]) == ("tools/call", "wire/1", MODERN)
        assert (record["level"], record["logger"]) == ("info", "mcpd")
        assert record["ms"] >= 0
        assert "arguments" not in record

    (broken,) = [record for record in found if "traceback" in record]
    assert (broken["level"], broken["tool"], broken["request"]) == ("error", "fails", "b")
    assert broken["error"] == "LookupError"
    assert 'raise LookupError("broken")' in broken["traceback"]
    said = [(record["level"], record["logger"], record["message"]) for record in found]
    for line in ("one line and", "another", "on stdout"):
        assert ("info", "stderr", line) in said
    assert ("warning", "own", "mine: \x1b[31m\u202e") in said


@pytest.mark.parametrize("env", [{"MCPD_LOG_FORMAT": "json", "MCPD_LOG_ARGUMENTS": "1"}, None])
def test_arguments_are_there_if_they_are_asked_for(child: Child, tmp_path: Path, env: Any) -> None:
    options = [] if env else ["--log-format", "json", "--log-arguments"]
    _, stderr = serve(child, tmp_path, *options, messages=[call(1, "echo", text="said")], env=env)
    (record,) = [record for record in records(stderr) if "outcome" in record]
    assert json.loads(record["arguments"]) == {"text": "said"}


def test_calls_are_not_thinned_as_other_lines_are(child: Child, tmp_path: Path) -> None:
    messages = [call(number, "echo", text="a") for number in range(60)]
    _, stderr = serve(child, tmp_path, "--log-format", "json", messages=messages)
    assert sum("outcome" in record for record in records(stderr)) == 60


def test_above_info_calls_are_not_logged(child: Child, tmp_path: Path) -> None:
    _, stderr = serve(child, tmp_path, "--log-format", "json", "--log-level", "error", messages=[call(1, "echo")])
    assert stderr == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_at_level_debug_each_call_has_one_line(child: Child, tmp_path: Path, form: str) -> None:
    options = ("--log-format", form, "--log-level", "debug")
    for more, is_said in (((), False), (("--log-arguments",), True)):
        _, stderr = serve(child, tmp_path, *options, *more, messages=[call(1, "echo", text="said")])
        lines = [line for line in stderr.splitlines() if "tools/call (id 1): answered" in line]
        assert len(lines) == 1
        assert ("said" in lines[0]) == is_said


def test_what_has_no_effect_is_said_in_json_too(child: Child, tmp_path: Path) -> None:
    _, stderr = serve(child, tmp_path, "--log-format", "json", "--allow-host", "x", messages=[])
    assert [record["message"] for record in records(stderr)] == [
        "mcpd: --allow-host has no effect: it requires --http or --ws"
    ]


# ------------------------------------------------------------------------------- on every transport


def make_server(log: CallLog, **options: Any) -> Server:
    server = Server("logged", **options)
    server.add_observer(log)

    @server.tool
    async def echo(text: str = "") -> str:
        return text

    @server.tool
    def refuses() -> str:
        raise ToolError("no")

    @server.prompt
    def plan(season: str) -> str:
        return season

    server.add_text("notes://today", "a note", name="today")
    return server


def fields(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.mcpd_fields for record in caplog.records if hasattr(record, "mcpd_fields")]


@BOTH_ERAS
@each_wire
async def test_the_fields_of_a_call(open_wire: OpenWire, version: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcpd")
    async with open_wire(make_server(CallLog(logging.INFO)), version) as wire:
        await wire.text("echo", text="secret")
        await wire.call("refuses")
        await wire.result("prompts/get", {"name": "plan", "arguments": {"season": "secret"}})
        await wire.result("resources/read", {"uri": "notes://today"})
        await wire.error("tools/call", {"name": "none"})
        await wire.error("no/such")
    opening, *calls = fields(caplog)
    assert opening["method"] in ("initialize", "server/discover")
    assert [one.get("tool") or one.get("prompt") or one.get("uri") for one in calls] == [
        "echo", "refuses", "plan", "notes://today", "none", None
    ]  # fmt: skip
    assert [(one["outcome"], one.get("code")) for one in calls] == [
        ("answered", None), ("tool_error", None), ("answered", None), ("answered", None), ("failed", -32602),
        ("refused", -32601),
    ]  # fmt: skip
    assert {one.get("client") for one in calls[:-1]} == {"wire/1"}
    assert "secret" not in caplog.text
    assert "secret" not in str(calls)


async def test_who_asks_is_its_id(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcpd")

    async def named(headers: Any) -> Principal:
        return Principal("ann@example.com")

    async with serving(make_server(CallLog(logging.INFO), authenticate=named)) as port:
        await port.modern("tools/call", {"name": "echo"})
    (one,) = fields(caplog)
    assert one["principal"] == Principal("ann@example.com").id
    assert "ann" not in str(one)


async def test_large_arguments_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcpd")
    async with memory_wire(make_server(CallLog(logging.INFO, arguments=True)), MODERN) as wire:
        await wire.text("echo", text="x" * 100_000)
        await wire.result("prompts/get", {"name": "plan", "arguments": {"season": "spring"}})
    _, one, other = fields(caplog)
    assert len(one["arguments"]) < MOST_ARGUMENT_CHARACTERS + 100
    assert json.loads(other["arguments"]) == {"season": "spring"}


# -------------------------------------------------------------------------------------- the lines


@given(st.text(), st.text(max_size=50))
def test_any_text_is_one_line_of_ascii(message: str, name: str) -> None:
    record = logging.LogRecord(name, logging.ERROR, "", 0, "%s", (message,), None)
    line = _JsonFormatter().format(record)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line)["message"] == message


@given(st.binary())
def test_any_bytes_that_are_printed_are_lines_of_json(data: bytes) -> None:
    for line in lines_as_json(data, "stderr").splitlines():
        json.loads(line)


def test_what_was_dropped_is_said_in_json() -> None:
    readable, writable = os.pipe()
    writer = DescriptorWriter(writable, 4096, lambda data: lines_as_json(data, "stderr"))
    line = lines_as_json(b"x" * 1000, "own")
    for _ in range(500):
        writer.put(line)
    said = b""
    while b"were dropped here" not in said:
        said += os.read(readable, 65536)
    writer.finish(10)
    os.close(writable)
    os.close(readable)
    assert all(json.loads(each) for each in said[: said.rindex(b"\n")].splitlines())
