"""The official clients of the 1.x lines run our tools as tasks of 2025-11-25; the 2.x lines have no tasks.

`callToolStream` of the TypeScript client drives a task by itself, the Python client has a method for each step.
"""

from __future__ import annotations

from typing import Any

import pytest
from conftest import REPOSITORY, Child

pytestmark = pytest.mark.slow

SERVER = str(REPOSITORY / "conformance" / "everything_with_extensions.py")
ANSWERS = {"elicitation/create": {"action": "accept", "content": {"confirm": True}}}


def call(name: str, arguments: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments or {}}
    return {"method": "tools/call", "params": params, "task": {"ttl": 60_000}, **more}


CALLS = {
    "works": call("slow_compute", {"seconds": 0.3, "label": "all"}),
    "asks": call("confirm_delete", {"filename": "a.txt"}),
    "fails": call("failing_job"),
    "breaks": call("protocol_error_job"),
    "is none": call("greet", {"name": "Ada"}),
}


def check(report: dict[str, Any]) -> dict[str, Any]:
    assert report["protocol"] == "2025-11-25"
    found = dict(zip(CALLS, report["steps"], strict=False))
    works, asks = found["works"]["result"], found["asks"]["result"]
    assert works["result"]["content"][0]["text"] == "Computed all for 0.3 s"
    assert works["ttl"] == 60_000
    assert works["listed"]
    assert works["statuses"][0] == "working"
    assert asks["result"]["content"][0]["text"] == "Deleted a.txt"
    # Not its status meanwhile: a client that answers between two polls never sees it (tasks/test_legacy.py does).
    assert len(report["asked"]) == 1
    assert found["breaks"]["error"]["code"] == -32603
    assert found["is none"]["error"]["code"] == -32601
    return found


def test_the_python_client_over_stdio(run: Any, child: Child) -> None:
    """S25-114, S25-119 to S25-126, S25-131, S25-133: by a client that is not ours."""
    target = {"command": child.mcpd("serve", "--stdio", SERVER)}
    listed, cancelled = call("slow_compute", {"seconds": 0}), call("slow_compute", {"seconds": 3600}, cancel=True)
    listed["task"]["listed"] = True
    steps = [*CALLS.values(), listed, cancelled]
    report = run("mcp 1", target, steps=steps, answers=ANSWERS)
    found = check(report)
    assert found["works"]["result"]["statuses"][-2:] == ["completed", "completed"]
    assert found["asks"]["result"]["statuses"][-1] == "completed"
    assert found["fails"]["result"]["result"]["isError"] is True
    assert found["fails"]["result"]["statuses"][-1] == "failed"
    assert report["steps"][-2]["result"]["listed"]
    assert report["steps"][-1]["result"]["statuses"] == ["working", "cancelled"]


@pytest.mark.parametrize("client", ["mcp 1", "sdk"])
def test_over_http(run: Any, everything_with_extensions: dict[str, Any], client: str) -> None:
    check(run(client, everything_with_extensions, steps=list(CALLS.values()), answers=ANSWERS))


def test_the_typescript_client_over_stdio(run: Any, child: Child) -> None:
    target = {"command": child.mcpd("serve", "--stdio", SERVER)}
    check(run("sdk", target, steps=list(CALLS.values()), answers=ANSWERS))
