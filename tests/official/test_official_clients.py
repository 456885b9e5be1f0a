"""The official clients against `mcpd serve`: they launch it, agree on a version, list, call and read.

What they get is checked twice: as the typed values that the clients make of it, and, behind a tap, as
messages against the schema of the version that was agreed on. Our own client is no judge of our server.
"""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.official_clients import runner

import mcpd
from mcpd.server.observe.control import _runs

pytestmark = pytest.mark.slow

LEGACY, MODERN = "2025-11-25", "2026-07-28"
OVER_STDIO = [
    ("mcp 2", "legacy", LEGACY),
    ("mcp 2", "auto", MODERN),
    ("mcp 2", "pin", MODERN),
    ("mcp 1", "legacy", LEGACY),
    ("client", "legacy", LEGACY),
    ("client", "auto", MODERN),
    ("client", "pin", MODERN),
    ("sdk", "legacy", LEGACY),
]
TEXT = 'héllo ✓ \U0001f600 \u2028 \\ " \n end'
UI = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}

STEPS: dict[str, dict[str, Any]] = {
    "tools": {"method": "tools/list"},
    "echo": {"method": "tools/call", "params": {"name": "echo", "arguments": {"text": TEXT}}},
    "add": {"method": "tools/call", "params": {"name": "add", "arguments": {"a": 2, "b": 0.5}}},
    "info": {"method": "tools/call", "params": {"name": "server_info", "arguments": {}}},
    "slow": {
        "method": "tools/call",
        "params": {"name": "count_slowly", "arguments": {"steps": 3, "seconds": 0.05}},
        "progress": True,
    },
    "wrong arguments": {"method": "tools/call", "params": {"name": "add", "arguments": {"a": "two", "b": 1}}},
    "wrong tool": {"method": "tools/call", "params": {"name": "no_such_tool", "arguments": {}}},
    "resources": {"method": "resources/list"},
    "text": {"method": "resources/read", "params": {"uri": "mcpd://welcome"}},
    "binary": {"method": "resources/read", "params": {"uri": "mcpd://dot.png"}},
    "templates": {"method": "resources/templates/list"},
    "from template": {"method": "resources/read", "params": {"uri": "mcpd://greeting/Ada"}},
    "wrong resource": {"method": "resources/read", "params": {"uri": "mcpd://no/such/thing"}},
}


def check(report: dict[str, Any], protocol: str) -> None:
    """What every client has to report after STEPS."""
    assert report["protocol"] == protocol
    if report["server"] is not None:  # a client that pins a version has not asked yet
        assert (report["server"]["name"], report["server"]["version"]) == ("mcpd", mcpd.__version__)
    got = dict(zip(STEPS, report["steps"], strict=True))
    failed = {name: step["error"] for name, step in got.items() if "error" in step}
    assert set(failed) == {"wrong tool", "wrong resource"}, failed
    result = {name: step["result"] for name, step in got.items() if "result" in step}

    tools = {tool["name"]: tool for tool in result["tools"]["tools"]}
    assert {"echo", "add", "server_info", "count_slowly"} <= set(tools)
    assert tools["add"]["inputSchema"]["required"] == ["a", "b"]
    assert result["echo"]["content"] == [{"type": "text", "text": TEXT}]
    # A structured result may be any value since 2026-07-28; before that it is wrapped in an object.
    assert result["add"]["structuredContent"] == (2.5 if protocol == MODERN else {"result": 2.5})
    assert result["info"]["structuredContent"]["protocolVersion"] == protocol
    assert result["info"]["structuredContent"]["client"].startswith("official-")
    assert not any(result[name].get("isError") for name in ("echo", "add", "info", "slow"))
    assert result["wrong arguments"]["isError"] is True
    assert "a" in result["wrong arguments"]["content"][0]["text"]
    assert failed["wrong tool"]["code"] == -32602

    # The TypeScript clients would drop a progress notification that came in one read with the result, and say so.
    assert [heard["error"] for heard in report["heard"] if "error" in heard] == []
    assert got["slow"]["progress"] == [[step, 3, f"step {step} of 3"] for step in (1, 2, 3)]

    uris = [resource["uri"] for resource in result["resources"]["resources"]]
    assert {"mcpd://welcome", "mcpd://dot.png"} <= set(uris)
    (text,) = result["text"]["contents"]
    assert text["uri"] == "mcpd://welcome"
    assert "mcpd" in text["text"]
    (binary,) = result["binary"]["contents"]
    image = base64.b64decode(binary["blob"], validate=True)
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    assert image.endswith(b"IEND\xaeB`\x82"), "the picture is cut off"
    templates = [template["uriTemplate"] for template in result["templates"]["resourceTemplates"]]
    assert "mcpd://greeting/{name}" in templates
    assert "Ada" in result["from template"]["contents"][0]["text"]
    # The newest TypeScript client turns the older code into the newer one by itself.
    expected = {-32602} if protocol == MODERN else {-32002, -32602} if "/client" in report["client"] else {-32002}
    assert failed["wrong resource"]["code"] in expected


@pytest.mark.parametrize(("client", "era", "protocol"), OVER_STDIO, ids=lambda value: str(value))
def test_over_stdio(run: Any, tapped: Callable[..., Any], client: str, era: str, protocol: str) -> None:
    server = tapped("serve", "--stdio")
    report = run(client, server.target, era=era, steps=list(STEPS.values()))
    check(report, protocol)
    talks = server.conversations()
    assert {talk.version for talk in talks} <= {protocol, None}
    assert not any(talk.unanswered for talk in talks)


@pytest.mark.parametrize("client", ["mcp 1", "mcp 2", "client", "sdk"])
def test_through_a_mount(run: Any, child: Child, client: str, tmp_path: Path) -> None:
    """MNT-01, MNT-08: an older client gets of a mounted server what it gets of the server itself."""
    cache = f"XDG_CACHE_HOME={tmp_path}"
    direct = child.mcpd("serve", "--stdio")
    steps = [step for name, step in STEPS.items() if name != "info"]  # which says how long the process has run
    reports = []
    for command in (direct, child.mcpd("serve", "--stdio", "--", *direct)):
        report = run(client, {"command": ["env", cache, *command]}, era="legacy", steps=steps)
        assert report["protocol"] == LEGACY
        reports.append(report["steps"])
    assert reports[1] == reports[0]


@pytest.mark.parametrize("client", ["mcp 1", "sdk"])
def test_over_websocket(run: Any, websocket: dict[str, Any], client: str) -> None:
    check(run(client, websocket, steps=list(STEPS.values())), LEGACY)


@pytest.mark.parametrize(("client", "era", "protocol"), OVER_STDIO, ids=lambda value: str(value))
def test_over_http(run: Any, http: dict[str, Any], client: str, era: str, protocol: str) -> None:
    check(run(client, http, era=era, steps=list(STEPS.values())), protocol)


ANSWERS = {
    "elicitation/create": {"action": "accept", "content": {"username": "ada", "email": "ada@example.com"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m"},
}


@pytest.mark.parametrize("client", ["mcp 2", "mcp 1", "client", "sdk"])
def test_a_session_over_http_asks_logs_and_announces(run: Any, everything: dict[str, Any], client: str) -> None:
    """2025-11-25: requests and log messages on the call's own stream, list changes on the GET stream."""
    steps = [
        {"method": "ping"},
        {"method": "logging/setLevel", "params": {"level": "debug"}},
        {"method": "tools/call", "params": {"name": "test_tool_with_logging", "arguments": {}}},
        {"method": "tools/call", "params": {"name": "test_sampling", "arguments": {"prompt": "Capital?"}}},
        {"method": "tools/call", "params": {"name": "test_elicitation", "arguments": {"message": "Who?"}}},
        {"method": "resources/subscribe", "params": {"uri": "test://watched-resource"}},
        {"method": "tools/call", "params": {"name": "test_trigger_tool_change", "arguments": {}}},
        # The announcement has a stream of its own, and may come later than answers that were asked for after it.
        {"method": "tools/call", "params": {"name": "test_reconnection", "arguments": {}}},
    ]
    report = run(client, everything, steps=steps, answers=ANSWERS)
    assert not [step for step in report["steps"] if "error" in step], report["steps"]
    texts = [step["result"].get("content", [{}])[0].get("text") for step in report["steps"]]
    assert "Paris" in texts[3]
    assert "ada@example.com" in texts[4]
    assert [asked["method"] for asked in report["asked"]] == ["sampling/createMessage", "elicitation/create"]
    methods = [heard.get("method") for heard in report["heard"]]
    assert methods.count("notifications/message") == 3
    assert "notifications/tools/list_changed" in methods


@pytest.mark.parametrize("client", ["mcp 2", "client"])
def test_rounds_over_http(run: Any, everything: dict[str, Any], client: str) -> None:
    """2026-07-28: what the server needs comes as results, and the client asks again; headers of arguments too."""
    steps = [
        {"method": "tools/list"},
        {"method": "tools/call", "params": {"name": "test_input_required_result_elicitation", "arguments": {}}},
        {"method": "tools/call", "params": {"name": "test_input_required_result_sampling", "arguments": {}}},
        {"method": "tools/call", "params": {"name": "test_tool_with_progress", "arguments": {}}, "progress": True},
    ]
    answers = {**ANSWERS, "elicitation/create": {"action": "accept", "content": {"name": "Ada"}}}
    report = run(client, everything, era="pin", steps=steps, answers=answers)
    assert report["protocol"] == MODERN
    assert not [step for step in report["steps"] if "error" in step], report["steps"]
    assert report["steps"][1]["result"]["content"][0]["text"] == "Hello, Ada!"
    assert len(report["steps"][3]["progress"]) == 3


@pytest.mark.parametrize(
    ("client", "era"), [("mcp 2", "legacy"), ("mcp 2", "auto"), ("client", "auto"), ("sdk", "legacy")]
)
def test_apps_are_for_clients_that_offer_them(run: Any, tapped: Callable[..., Any], client: str, era: str) -> None:
    """APP-S: `_meta.ui` on tools and the `ui://` resources are there after negotiation and only then."""
    steps = [
        {"method": "tools/list"},
        {"method": "resources/list"},
        {"method": "resources/read", "params": {"uri": "ui://mcpd/apps_diagnostics"}},
        {"method": "tools/call", "params": {"name": "apps_diagnostics", "arguments": {"note": "hello"}}},
    ]
    server = tapped("serve", "--stdio")
    report = run(client, server.target, era=era, steps=steps, extensions=UI)
    tools, resources, page, call = report["steps"]
    (tool,) = [tool for tool in tools["result"]["tools"] if tool["name"] == "apps_diagnostics"]
    # The URI names the content it stands for; without that it is answered all the same, as above.
    linked = tool["_meta"]["ui"]["resourceUri"]
    assert linked.partition("?")[0] == "ui://mcpd/apps_diagnostics"
    assert linked in [resource["uri"] for resource in resources["result"]["resources"]]
    (content,) = page["result"]["contents"]
    assert content["mimeType"] == "text/html;profile=mcp-app"
    assert "<html" in content["text"].lower()
    assert call["result"]["structuredContent"]["note"] == call["result"]["_meta"]["mcpd/data"]["note"] == "hello"

    report = run(client, server.target, era=era, steps=steps)
    tools, resources, page, call = report["steps"]
    assert "error" in page
    told = json.dumps([report["capabilities"], tools, resources, call])
    for trace in ("ui://", "io.modelcontextprotocol/ui", "mcp-app", '"ui"', "mcpd/data", "mcpd/channels"):
        assert trace not in told, f"a client without Apps is told of {trace}"
    server.conversations()


def test_official_clients_share_a_daemon(child: Child, tmp_path: Path) -> None:
    """ATT-17: Python and TypeScript, each in its versions, one after the other."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    run = runner({**child.env, "XDG_RUNTIME_DIR": str(runtime)})
    try:
        for client, era, protocol in OVER_STDIO:
            # Clients pass few variables on, and not the one that names the folder.
            command = ["env", f"XDG_RUNTIME_DIR={runtime}", *child.mcpd("serve", "--stdio", "--attach")]
            report: dict[str, Any] = run(client, {"command": command}, era=era, steps=list(STEPS.values()))
            check(report, protocol)
        found = [int(path.stem.removeprefix("control-")) for path in (runtime / "mcpd").glob("control-*.sock")]
        assert found, "no daemon was started"
    finally:
        for path in (runtime / "mcpd").glob("control-*.sock"):
            pid = int(path.stem.removeprefix("control-"))
            if _runs(pid):
                os.kill(pid, signal.SIGTERM)
