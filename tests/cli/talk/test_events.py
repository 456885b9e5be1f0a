"""`mcpd list TARGET events` and `mcpd events`: what is printed, where, and the exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import REPOSITORY, Child

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SCRIPT = str(REPOSITORY / "tests" / "support" / "event_script.py")

# A server that answers a subscription after a challenge, and then sends two events through a proxy's socket.
HOOKS = """
import base64, hashlib, hmac, http.client, json, socket, sys, time
META = "io.modelcontextprotocol/"
KIND = {"name": "mail.received", "delivery": ["webhook"], "inputSchema": {}, "payloadSchema": {}}
RESULTS = {
    "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"extensions": {META + "events": {}}}},
    "events/list": {"events": [KIND]},
    "events/subscribe": {"id": "sub_1", "refreshBefore": None, "cursor": None, "truncated": False},
    "events/unsubscribe": {},
}
def send(secret, message_id, content):
    body, stamp = json.dumps(content).encode(), str(int(time.time()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(key, f"{message_id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    headers = {"webhook-id": message_id, "webhook-timestamp": stamp, "X-MCP-Subscription-Id": "sub_1"}
    headers["webhook-signature"] = "v1," + base64.b64encode(mac).decode()
    connection = http.client.HTTPConnection("me.example")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(sys.argv[1])
    connection.request("POST", "/hooks", body, headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {"resultType": "complete", **RESULTS[asked["method"]]}
    secret = asked["params"].get("delivery", {}).get("secret")
    if secret:
        challenge = {"challenge": "abc"}
        assert send(secret, "msg_verification_1", {"type": "verification", **challenge}) == (200, challenge)
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    for number in (1, 2) if secret else ():
        event = {"eventId": f"m-{number}", "name": "mail.received", "timestamp": "2026-11-28T10:00:00Z"}
        while send(secret, f"m-{number}", {**event, "data": {"from": "\\x1b[31mme"}})[0] != 200:
            pass  # the receiver does not know the id yet
"""


@pytest.fixture
def run(child: Child, tmp_path: Path) -> Run:
    def start(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            child.mcpd(*words, "--", sys.executable, SCRIPT), stdin=subprocess.DEVNULL, env=child.env, cwd=tmp_path,
            capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done

    return start


def test_list(run: Run) -> None:
    done = run("list", "events")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "  incident.created  severity?: string, most?: integer  A new incident was opened.\n"
    assert "events (1)\n  incident.created" in run("list").stdout
    details = run("list", "events", "--verbose").stdout
    assert "    It has a number.\n    delivery: push\n    arguments\n" in details
    (kind,) = json.loads(run("list", "events", "--json").stdout)["events"]
    assert (kind["name"], kind["delivery"]) == ("incident.created", ["push"])


def test_watch(run: Run) -> None:
    done = run("events", "watch", "incident.created", "severity=P1", "most=3", "--count", "2")
    assert done.returncode == 0
    first, second = done.stdout.splitlines()
    assert first == '2026-11-28T10:00:00Z  e-1  {"number":1,"arguments":{"severity":"P1","most":3}}'
    assert second.split()[1] == "e-2"
    assert "waiting for events by push" in done.stderr
    assert "--cursor c-2" in done.stderr
    done = run("events", "watch", "incident.created", "--cursor", "c-2", "--json")
    event = json.loads(done.stdout)
    assert (event["eventId"], event["cursor"], event["data"]) == ("e-3", "c-3", {"number": 3, "arguments": {}})
    assert done.returncode == 1
    assert "Access was revoked (code -32024)" in done.stderr


@pytest.mark.parametrize(
    ("words", "text", "code"),
    [
        (["watch", "incident.createt"], "did you mean incident.created?", 2),
        (["watch"], "mcpd list TARGET events shows the types", 2),
        (["watch", "incident.created", "most=x"], "'x' is not of type integer", 2),
        (["watch", "incident.created", "--delivery", "poll"], "Method not found", 1),
        (["receive", ":0", "incident.created"], "--url https://", 2),
        (["receive", ":0", "--url", "http://me.example", "incident.created"], "use the https URL", 1),
        (["receive", ":0", "--url", "https://me.example/x", "incident.created"], "Method not found", 1),
    ],
)
def test_wrong_use(run: Run, words: list[str], text: str, code: int) -> None:
    done = run("events", *words)
    assert text in done.stderr
    assert (done.returncode, done.stdout) == (code, "")


def test_receive(child: Child, tmp_path: Path) -> None:
    """EVT-082, EVT-083: webhooks through a proxy, challenge first; the text of an event cannot control the terminal."""
    socket = tmp_path / "hooks.sock"
    process = subprocess.Popen(
        child.mcpd(
            "events", "receive", f"unix:{socket}", "--url", "https://me.example/hooks", "mail.received",
            "--", sys.executable, "-c", HOOKS, str(socket),
        ),
        env=child.env, cwd=tmp_path, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, notes = process.communicate(timeout=60)
    assert [line.split()[1] for line in lines] == ["m-1", "m-2"]
    assert "\x1b" not in "".join(lines)
    assert "waiting for events by webhook at" in notes
    assert process.returncode == 130
