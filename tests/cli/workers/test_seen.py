"""Several workers seen from outside as one server: metrics, status, health, `mcpd stop`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from conftest import Child
from support.clock import until
from support.drills import SERVER
from support.http_peer import Answer, modern, request
from support.workers_stage import HANG, daemon, runs, until_ready

pytestmark = [
    pytest.mark.slow,
    pytest.mark.covered,
    pytest.mark.skipif(sys.platform == "win32", reason="no processes that share a port"),
]


def total(answer: Answer, tool: str = "pid") -> int:
    """How many calls of a tool metrics tell of."""
    found = re.findall(rf'_duration_seconds_count{{[^}}]*gen_ai_tool_name="{tool}"[^}}]*}} (\d+)', answer.text)
    return sum(map(int, found))


class TestSeenFromOutside:
    async def test_any_worker_tells_the_sum_which_never_goes_back(self, child: Child, tmp_path: Path) -> None:
        """OBS-14: over a killed worker and a reload."""
        async with daemon(child, tmp_path, "--metrics", "http") as served:
            port = served.port()
            calls = 0

            async def agree() -> None:
                for _ in range(6):
                    assert total(await port.ask(request("GET", "/metrics"))) == calls

            async def more() -> None:
                nonlocal calls
                for _ in range(10):
                    await served.tool("pid")
                    calls += 1
                await agree()

            await more()
            os.kill((await served.workers())[2], signal.SIGKILL)
            await served.until("restarting it")
            await agree()
            await until_ready(served, 2)
            await more()
            served.process.send_signal(signal.SIGHUP)
            await served.until("Reloaded")
            await agree()
            await more()
            answer = await port.ask(request("GET", "/metrics"))
            assert 'mcpd_workers{state="ready"} 2' in answer.text
            assert "mcpd_worker_deaths_total 1" in answer.text, (re.findall(".*deaths.*", answer.text), served.log)
            status = await port.ask(request("GET", "/statusz"))
            assert len(status.json["workers"]) == 2
            assert await served.stop() == 0

    async def test_the_parent_tells_of_all_and_stops_all(self, child: Child, tmp_path: Path) -> None:
        """OBS-14, OBS-13: on its port and by its control socket, also while a tool holds up an event loop."""
        stuck = HANG.replace("600", "20")
        async with daemon(child, tmp_path, "--metrics", "127.0.0.1:0", "--grace", "1", server=SERVER + stuck) as served:
            port = served.port("/metrics")
            for _ in range(5):
                await served.tool("pid")
            assert total(await port.ask(request("GET", "/metrics"))) == 5
            for path, said in (("/healthz", "ok\n"), ("/readyz", "ok\n")):
                assert (await port.ask(request("GET", path))).text == said
            waiting = await served.port().connect()
            waiting.send(modern("tools/call", {"name": "work", "arguments": {"number": 1, "behind": "door"}}))
            await until((tmp_path / "journal").read_text)  # a worker makes it when it starts
            status = await served.status()
            assert status.in_flight == sum(worker.in_flight for worker in status.workers) == 1
            hanging = await served.port().connect()
            hanging.send(modern("tools/call", {"name": "hang", "arguments": {}}))
            await until(lambda: "hang" in (tmp_path / "journal").read_text())
            assert total(await port.ask(request("GET", "/metrics"))) == 5
            status = await served.status()
            assert (status.pid, status.name, status.state) == (served.pid, "drill", "ready")
            shown = await asyncio.create_subprocess_exec(
                *child.mcpd("status"),
                env={**child.env, "XDG_RUNTIME_DIR": str(tmp_path / "run")},
                stdout=asyncio.subprocess.PIPE,
            )
            lines = (await shown.communicate())[0].decode()
            assert re.search(r"worker 2: pid \d+, ready, up .*, \d running calls\n", lines), lines
            stopping = await asyncio.create_subprocess_exec(
                *child.mcpd("stop", "--timeout", "60"), env={**child.env, "XDG_RUNTIME_DIR": str(tmp_path / "run")}
            )
            assert await served.wait() == 0
            assert await stopping.wait() == 0
            assert not any(runs(worker.pid) for worker in status.workers)
