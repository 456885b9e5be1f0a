"""The dashboard for Grafana, and Prometheus itself: it scrapes a server under load, and answers each panel."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.clock import until

from mcpd import Client, Server
from mcpd.server.http.core import EndpointStatus
from mcpd.server.observe.metrics import Family, Meter
from mcpd.server.observe.watching import Watching
from mcpd.server.settings import Settings

DASHBOARD = REPOSITORY / "deploy" / "grafana" / "mcpd.json"
_NAME = re.compile(r"\b(?:mcpd?|process)_\w+(?=\{)")
_LABEL = re.compile(r"(?:by \((\w+)(?:, le)?\)|[{,](\w+)(?:=~|!=|=))")


def expressions() -> Iterator[str]:
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


async def test_the_dashboard_names_what_there_is() -> None:
    """Names of metrics and labels are those of the code; Prometheus itself is asked below."""
    watching = Watching(Server("x"), Settings(), tuple)
    watching.report.services.append(lambda: EndpointStatus(0, ""))
    families: list[Family] = [*Meter(lambda name: True).families(), *watching.report.families()]
    suffixes = {"counter": ["_total"], "histogram": ["_count", "_sum", "_bucket"], "info": ["_info"], "gauge": [""]}
    known = {family.name + suffix for family in families for suffix in suffixes[family.kind]}
    labels = {"job", "instance", "le", "reason", "mcp_method_name", "gen_ai_tool_name", "error_type",
              "mcp_protocol_version", "network_transport", "command"}  # fmt: skip
    found = list(expressions())
    assert len(found) > 10
    for expression in found:
        names = _NAME.findall(expression)
        assert names
        assert set(names) <= known, expression
        assert {a or b for a, b in _LABEL.findall(expression)} <= labels, expression


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


SERVER = """
from mcpd import Server, ToolError
server = Server("loaded", version="1")

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
async def wrong() -> str:
    raise ToolError("no")
"""


@pytest.mark.slow
async def test_prometheus_scrapes_a_server_under_load_and_answers_the_dashboard(child: Child, tmp_path: Path) -> None:
    """OBS-01: what promtool takes, while calls are made."""
    prometheus, promtool = shutil.which("prometheus"), shutil.which("promtool")
    if prometheus is None or promtool is None:
        pytest.skip("needs Debian's package prometheus")
    port, metrics, own = _free_port(), _free_port(), _free_port()
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "prometheus.yml").write_text(
        "global: {scrape_interval: 500ms}\n"
        f"scrape_configs: [{{job_name: mcpd, static_configs: [{{targets: ['127.0.0.1:{metrics}']}}]}}]\n"
    )
    line = child.mcpd("serve", "--http", f"127.0.0.1:{port}", "--metrics", f"127.0.0.1:{metrics}", "--control", "never",
                      "--backplane", "memory://")  # fmt: skip
    served = subprocess.Popen([*line, str(tmp_path / "server.py")], env=child.env, stderr=subprocess.DEVNULL)
    scraper = subprocess.Popen(
        [prometheus, f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}",
         f"--web.listen-address=127.0.0.1:{own}"], stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await until(lambda: _answers(port) and _answers(metrics) and _is_ready(own))
        load = asyncio.create_task(_load(f"http://127.0.0.1:{port}/mcp"))
        for expression in expressions():
            asked = expression.replace("$job", ".*").replace("$instance", ".*").replace("$__rate_interval", "10s")
            async with asyncio.timeout(60):
                while not await asyncio.to_thread(_result, own, asked):
                    assert not load.done(), load
        text = await asyncio.to_thread(_get, f"http://127.0.0.1:{metrics}/metrics")
        checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
        load.cancel()
        await asyncio.wait([load])
    finally:
        for process in (served, scraper):
            process.terminate()
            process.wait(30)


async def _load(url: str) -> None:
    async with Client(url, version="2025-11-25") as client:
        while True:
            await asyncio.gather(*(client.call("echo", text="a") for _ in range(20)))
            await client.call_tool("wrong", {})
            await asyncio.gather(client.request("tools/call", {"name": 5}), return_exceptions=True)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_ready(port: int) -> bool:
    try:
        return bool(_get(f"http://127.0.0.1:{port}/-/ready"))
    except OSError:  # it does not listen yet, or says that it is not ready
        return False


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        body: bytes = answer.read()
        return body


def _result(port: int, expression: str) -> Any:
    """What Prometheus has for a query now. Fails for one that it cannot read."""
    query = urllib.parse.urlencode({"query": expression})
    answer = json.loads(_get(f"http://127.0.0.1:{port}/api/v1/query?{query}"))
    assert answer["status"] == "success", answer
    return answer["data"]["result"]
