"""The official suite, and the official clients, against three processes behind a proxy: they find what one gives."""

from __future__ import annotations

import importlib.util
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.official_clients import Run, runner
from support.redis_server import NEEDS_REDIS
from support.service_stage import missing, service

pytestmark = [pytest.mark.nightly, NEEDS_REDIS]
PROXIES = ("nginx", "haproxy")
CLIENTS = [
    ("mcp 1", "legacy"),
    ("mcp 2", "legacy"),
    ("mcp 2", "pin"),
    ("sdk", "legacy"),
    ("client", "legacy"),
    ("client", "pin"),
]


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_suite", REPOSITORY / "conformance" / "suite.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(300)
def test_the_official_suite_and_clients_find_what_one_process_gives(
    suite: ModuleType, child: Child, tmp_path: Path
) -> None:
    """SCALE-01, SCALE-08, SCALE-14 to SCALE-16, TASK-015: each leg of the suite through each proxy, with tasks that
    another process runs than the one that is asked; then the official clients of both eras, all at once."""
    if found := missing(*PROXIES):
        pytest.skip(f"{found} is not installed")
    node = suite.find_node(REPOSITORY)
    if node is None or not (REPOSITORY / "conformance" / suite.NEW).exists():
        pytest.skip("Node 22 and the conformance packages are not installed (make test installs them)")
    target = REPOSITORY / "conformance" / "everything_on_nodes.py"
    with service(child.python, child.env, tmp_path, target, proxies=PROXIES) as served:
        # Each leg of the suite waits more than it works: all go side by side, and so do all clients.
        legs = [(proxy, leg) for proxy in PROXIES for leg in ("2025-11-25", "bare")]
        with ThreadPoolExecutor(len(legs)) as threads:
            scores = threads.map(lambda each: suite.run_leg(node, suite.LEGS[each[1]], served.url(each[0])), legs)
            at_once = list(zip(legs, scores, strict=True))  # none runs any more
            for (proxy, leg), score in at_once:
                # The suite waits 600 ms for some answers, and asks at once after a DELETE, of which another process has
                # 100 ms to hear (SCALE-09). With all legs at once, on a machine that does other things too, that is
                # now and then too little: such a leg has to be clean when no other runs beside it.
                if score.blemishes:
                    score = suite.run_leg(node, suite.LEGS[leg], served.url(proxy))
                assert not score.blemishes, f"{proxy} {leg}\n" + "\n".join(score.blemishes)
                assert score.scenarios == suite.LEGS[leg].scenarios, score.output[-2000:]
                assert score.code == 0

        with ThreadPoolExecutor(len(CLIENTS)) as threads:
            talks = [
                threads.submit(talk, runner(child.env), client, era, served.url(proxy))
                for (client, era), proxy in zip(CLIENTS, itertools.cycle(PROXIES), strict=False)
            ]
            for each in talks:
                each.result()


def talk(run: Run, client: str, era: str, url: str) -> None:
    """What one official client does, and what it has to find."""
    steps: list[dict[str, Any]] = [
        {"method": "tools/list"},
        *([{"method": "logging/setLevel", "params": {"level": "debug"}}] if era == "legacy" else ()),
        call("test_tool_with_logging"),
        call("test_elicitation", message="Who?") if era == "legacy" else call("test_input_required_result_elicitation"),
        {**call("test_tool_with_progress"), "progress": True},
        *(call("test_simple_text") for _ in range(4)),
    ]
    content = {"username": "ada", "email": "ada@example.com"} if era == "legacy" else {"name": "Ada"}
    report = run(
        client, {"url": url}, era=era, steps=steps,
        answers={"elicitation/create": {"action": "accept", "content": content}},
    )  # fmt: skip
    assert report["protocol"] == ("2025-11-25" if era == "legacy" else "2026-07-28")
    assert not [step for step in report["steps"] if "error" in step], (client, report["steps"])
    results = report["steps"][-7:]
    if era == "legacy":
        logged = [heard for heard in report["heard"] if heard.get("method") == "notifications/message"]
        assert len(logged) == 3, (client, report["heard"])
    assert "Ada" in results[1]["result"]["content"][0]["text"].title()
    assert len(results[2]["progress"]) == 3
    assert {step["result"]["content"][0]["text"] for step in results[3:]} == {
        "This is a simple text response for testing."
    }


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"method": "tools/call", "params": {"name": name, "arguments": arguments}}
