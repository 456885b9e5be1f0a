"""A server of 2025-11-25 on stdio that misbehaves in one way: `python -m support.mount_peer MODE LOG`.

It appends a line to LOG when it starts and for each call of a tool. Without a mode it behaves.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

MODE, LOG = sys.argv[1], sys.argv[2]


def log(what: str) -> None:
    with open(LOG, "a", encoding="utf-8") as file:
        file.write(f"{what} {os.getpid()}\n")


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def flood(stream: Any, text: str) -> None:
    while True:
        stream.write(text)


def tool(name: str, **hints: bool) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": hints}


def main() -> None:
    log("start")
    tools = [tool("count"), tool("once"), tool("safe", readOnlyHint=True)]
    count = pages = 0
    if MODE == "crash":
        sys.exit("connection refused: db:5432")
    if MODE in ("flood", "garbage"):
        stream = sys.stderr if MODE == "flood" else sys.stdout
        threading.Thread(target=flood, args=(stream, "x" * 1000 + "\n"), daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if id is None or MODE in ("silent", "garbage"):
            continue
        result: dict[str, Any] = {}
        if method == "initialize":
            capabilities = {"tools": {"listChanged": True}}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
            result["serverInfo"] = {"name": "peer", "version": "1"}
        elif method == "tools/list":
            log("list")
            result = {"tools": tools}
            if MODE == "pages":
                pages += 1
                result = {"tools": [tool(f"t{pages}-{number}") for number in range(200)], "nextCursor": str(pages)}
            if MODE == "invalid":
                result["tools"] = [*tools, {"name": "bad", "inputSchema": 3}, {"name": "\n", "inputSchema": {}}, 7]
        elif method == "tools/call":
            name = message["params"]["name"]
            log(name)
            if MODE == "dies" and name != "count":
                os._exit(5)
            if name == "change":
                tools.append(tool("added"))
            if name in ("change", "same"):
                say({"method": "notifications/tools/list_changed"})
            count += 1
            result = {"content": [{"type": "text", "text": str(count)}]}
        else:
            say({"id": id, "error": {"code": -32601, "message": f"no {method}"}})
            continue
        say({"id": id, "result": result})


if __name__ == "__main__":
    main()
