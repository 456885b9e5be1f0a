"""`mcpd watch` of servers that do not do all that they say."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from conftest import Child

NO_LOG = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"error": {"code": -32601, "message": "no"}}
    if asked["method"] == "initialize":
        offers = {"logging": {}, "tools": {"listChanged": True}}
        info = {"name": "raw", "version": "1"}
        version = asked["params"]["protocolVersion"]
        answer = {"result": {"protocolVersion": version, "capabilities": offers, "serverInfo": info}}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
    if asked["method"] == "logging/setLevel":
        print('{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}', flush=True)
"""


def test_a_server_that_refuses_a_level_is_watched_all_the_same(child: Child, tmp_path: Path) -> None:
    process = subprocess.Popen(
        child.mcpd("watch", "--", sys.executable, "-c", NO_LOG), env=child.env, cwd=tmp_path,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, notes = process.communicate(timeout=60)
    assert line.endswith("the list of tools has changed\n")
    assert "mcpd: the server refused the log level: no (-32601)" in notes
    assert process.returncode == 130
