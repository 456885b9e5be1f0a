"""The last progress of a call reaches the official clients, though the result follows at once.

The TypeScript clients drop a notification that they read in one piece with the result of its request: a call that
reports and ends must not leave in one piece, whatever the transport. They say what they drop to `onerror`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Child

pytestmark = pytest.mark.slow

SERVER = str(Path(__file__).parent / "reporting.py")
CALLS = 60


def steps() -> list[dict[str, Any]]:
    tools = ("report", "report_plainly")
    return [
        {
            "method": "tools/call",
            "params": {"name": tools[number % 2], "arguments": {"times": 1 + number % 3}},
            "progress": True,
        }
        for number in range(CALLS)
    ]


def check(report: dict[str, Any]) -> None:
    assert [heard for heard in report["heard"] if "error" in heard] == []
    wanted = [[[done + 1, 1 + number % 3, "on the way"] for done in range(1 + number % 3)] for number in range(CALLS)]
    assert [step["progress"] for step in report["steps"]] == wanted
    assert [step["result"]["content"][0]["text"] for step in report["steps"]] == ["done"] * CALLS


@pytest.mark.parametrize(
    ("client", "era"),
    [("sdk", "legacy"), ("client", "legacy"), ("client", "pin"), ("mcp 1", "legacy"), ("mcp 2", "pin")],
)
def test_over_stdio(run: Any, child: Child, client: str, era: str) -> None:
    check(run(client, {"command": child.mcpd("serve", "--stdio", SERVER)}, era=era, steps=steps()))


def test_over_websocket(run: Any, reporting: dict[str, Any]) -> None:
    check(run("sdk", reporting, steps=steps()))


@pytest.mark.parametrize(("client", "era"), [("sdk", "legacy"), ("client", "legacy"), ("client", "pin")])
def test_over_http(run: Any, reporting_over_http: dict[str, Any], client: str, era: str) -> None:
    check(run(client, reporting_over_http, era=era, steps=steps()))


# A tool that is silent for longer than the client's timeout, and how the call ends.
SILENT = [
    {
        "method": "tools/call",
        "params": {"name": name, "arguments": {"seconds": 4}},
        "progress": True,
        "patient": is_patient,
        "timeout": 2,
    }
    for name, is_patient in (("silent", True), ("silent_plainly", True), ("silent", False))
]


def check_patience(report: dict[str, Any]) -> None:
    *patient, impatient = report["steps"]
    assert [step["result"]["content"][0]["text"] for step in patient] == ["done", "done"]
    for step in patient:
        values = [value for value, _, _ in step["progress"]]
        assert values == sorted(set(values))
        assert len(values) > 3
        assert step["progress"][-1][1:] in ([None, "still running (3 s)"], [None, "still running (4 s)"])
    assert "timed out" in impatient["error"]["message"].lower()


@pytest.mark.parametrize(("client", "era"), [("sdk", "legacy"), ("client", "legacy"), ("client", "pin")])
def test_heartbeats_outlast_a_client_that_waits_for_progress(
    run: Any, child: Child, reporting_over_http: dict[str, Any], client: str, era: str
) -> None:
    """PROC-17: `resetTimeoutOnProgress` of the TypeScript clients; without it they end the call."""
    over_stdio = {"command": child.mcpd("serve", "--stdio", "--heartbeat", "0.2", SERVER)}
    for target in (over_stdio, reporting_over_http):
        check_patience(run(client, target, era=era, steps=SILENT))
