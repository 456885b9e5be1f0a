"""A server in a process of its own that pushes three events to each subscriber, and then takes its access away."""

from __future__ import annotations

import json
import sys
from typing import Any

META = "io.modelcontextprotocol/"
NAME = "incident.created"
SCHEMA = {"type": "object", "properties": {"severity": {"type": "string"}, "most": {"type": "integer"}}}
FORBIDDEN = {"code": -32024, "message": "Access was revoked"}


def answer(method: str) -> dict[str, Any] | None:
    """The result of a request; None for a stream."""
    if method == "server/discover":
        extensions = {f"{META}events": {}}
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"extensions": extensions}}
    if method == "events/list":
        kind = {"name": NAME, "description": "A new incident was opened.\nIt has a number.", "delivery": ["push"]}
        return {"events": [{**kind, "inputSchema": SCHEMA, "payloadSchema": {"type": "object"}}]}
    if method == "events/stream":
        return None
    return {"code": -32601, "message": "Method not found"}


def say(message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def stream(request_id: Any, params: Any) -> None:
    first = 1 if params.get("cursor") is None else int(params["cursor"].removeprefix("c-")) + 1
    notes = [("active", {"cursor": f"c-{first - 1}", "truncated": False})]
    for number in range(first, 4):
        data = {"number": number, "arguments": params["arguments"]}
        event = {"eventId": f"e-{number}", "name": NAME, "timestamp": "2026-11-28T10:00:00Z", "data": data}
        notes.append(("event", {**event, "cursor": f"c-{number}"}))
    notes.append(("terminated", {"error": FORBIDDEN}))
    for kind, members in notes:
        own = {**members, "_meta": {f"{META}subscriptionId": request_id}}
        say({"method": f"notifications/events/{kind}", "params": own})


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        said = answer(message["method"])
        if said is None:
            stream(message["id"], message["params"])
        else:
            body = {"error": said} if "code" in said else {"result": {"resultType": "complete", **said}}
            say({"id": message["id"], **body})
