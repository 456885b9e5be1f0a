"""A server in a process of its own whose tasks are in each state, in the version that its argument names."""

from __future__ import annotations

import json
import sys
from typing import Any

META = "io.modelcontextprotocol/"
INFO = {"name": "tasks", "version": "1"}
DONE = {"content": [{"type": "text", "text": "a forest"}]}
FORM = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
ASKED = {"size": {"method": "elicitation/create", "params": {"message": "Which size?", "requestedSchema": FORM}}}
STATES: dict[str, dict[str, Any]] = {
    "busy": {"status": "working", "statusMessage": "frame (3 of 40)"},
    "asks": {"status": "input_required", "inputRequests": ASKED},
    "done": {"status": "completed", "result": DONE},
    "failed": {"status": "failed", "error": {"code": -32603, "message": "no disk"}},
}


def answer(method: str, params: Any, *, is_modern: bool) -> dict[str, Any]:
    """The result of a request, or its error."""
    if method == "server/discover" and is_modern:
        return {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "_meta": {f"{META}serverInfo": INFO},
        }
    if method == "initialize" and not is_modern:
        tasks = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "tasks": tasks}, "serverInfo": INFO}
    if method == "tools/list":
        tool = {"name": "render", "inputSchema": {"type": "object"}}
        return {"tools": [tool if is_modern else {**tool, "execution": {"taskSupport": "required"}}]}
    if method == "tools/call" and (is_modern or "task" in params):
        return {"resultType": "task", **state("busy", is_modern=True)} if is_modern else {"task": state("busy")}
    if method == "tasks/list" and not is_modern:
        return {"tasks": [state(name) for name in STATES]}
    if method == "tasks/result" and not is_modern:
        return STATES["failed"]["error"] if params["taskId"] == "failed" else DONE
    if method in ("tasks/get", "tasks/cancel", "tasks/update"):
        name = params["taskId"]
        if name not in STATES:
            return {"code": -32602, "message": "unknown task"}
        if method == "tasks/cancel":
            STATES[name] = {"status": "cancelled", "statusMessage": "as asked"}
        elif method == "tasks/update":
            STATES[name] = STATES["done"]
        found = state(name, is_modern=is_modern)
        if name == "busy" and method == "tasks/get":
            STATES[name] = STATES["done"]  # at the next look
        return found if method == "tasks/get" or not is_modern else {}
    return {"code": -32601, "message": "Method not found"}


def state(name: str, *, is_modern: bool = False) -> dict[str, Any]:
    """A task in the form of one of the two versions."""
    times = {"createdAt": "2026-11-27T10:00:00.000Z", "lastUpdatedAt": "2026-11-27T10:00:05.000Z"}
    if is_modern:
        return {"taskId": name, **times, "ttlMs": None, "pollIntervalMs": 0, **STATES[name]}
    known = {key: value for key, value in STATES[name].items() if key in ("status", "statusMessage")}
    return {"taskId": name, **times, "ttl": None, "pollInterval": 0, **known}


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            said = answer(message["method"], message.get("params"), is_modern=sys.argv[1] == "modern")
            body = {"error": said} if "code" in said else {"result": {"resultType": "complete", **said}}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
