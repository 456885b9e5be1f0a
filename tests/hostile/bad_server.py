"""A server that misbehaves, in the standard library alone: `python bad_server.py BEHAVIOUR [NUMBER]`.

It speaks 2025-11-25 over stdio: answers `initialize`, and begins with what its first argument says as soon as it is
asked for `tools/call`. What it does is one of the functions at the end; `say` writes a message, `hear` reads one.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

VERSION = "2025-11-25"
SLEEPER = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")) + "\n")


def flush() -> None:
    sys.stdout.flush()


requests: queue.SimpleQueue[str] | None = None
"""What the client asks, once `read_all` reads: two threads cannot read one stream."""


def hear() -> dict[str, Any] | None:
    line = sys.stdin.readline() if requests is None else requests.get()
    return json.loads(line) if line else None


def tell(method: str, **params: Any) -> None:
    say(method=method, params=params)


def result(request: dict[str, Any], **members: Any) -> None:
    say(id=request["id"], result=members)
    flush()


def text(request: dict[str, Any], said: str) -> None:
    result(request, content=[{"type": "text", "text": said}])


# ------------------------------------------------------------------------------------------ floods


def read_all() -> None:
    """Take what the client says, and keep only what it asks."""
    global requests
    if requests is not None:
        return
    requests = asked = queue.SimpleQueue()

    def read() -> None:
        for line in iter(sys.stdin.readline, ""):
            if '"method"' in line:
                asked.put(line)
        asked.put("")

    threading.Thread(target=read, daemon=True).start()


def flood(count: int, message: Callable[[int], dict[str, Any]], *, reads: bool = True) -> None:
    if reads:
        read_all()
    for number in range(count):
        say(**message(number))
    flush()


def pings(request: dict[str, Any], count: int) -> None:
    flood(count, lambda number: {"id": f"p{number}", "method": "ping"})
    text(request, "done")


def pings_unread(request: dict[str, Any], count: int) -> None:
    flood(count, lambda number: {"id": f"p{number}" + "x" * 400, "method": "ping"}, reads=False)
    text(request, "done")


def unknown(request: dict[str, Any], count: int) -> None:
    flood(count, lambda number: {"id": f"u{number}", "method": "x" * 200})
    text(request, "done")


def unknown_unread(request: dict[str, Any], count: int) -> None:
    flood(count, lambda number: {"id": f"u{number}", "method": "x" * 200}, reads=False)
    text(request, "done")


def logs(request: dict[str, Any], count: int) -> None:
    data = "x" * 1000
    flood(count, lambda number: {"method": "notifications/message", "params": {"level": "info", "data": data}})
    text(request, "done")


def questions(request: dict[str, Any], count: int) -> None:
    schema = {"type": "object", "properties": {}}
    params = {"message": "x" * 500, "requestedSchema": schema}
    flood(count, lambda number: {"id": f"q{number}", "method": "elicitation/create", "params": params})
    text(request, "done")


def logs_unread(request: dict[str, Any], count: int) -> None:
    """The client may ask meanwhile: it is answered behind all that was told."""
    data = "x" * 1000
    flood(count, lambda n: {"method": "notifications/message", "params": {"level": "info", "data": data}}, reads=False)
    text(request, "done")


def answers(request: dict[str, Any], count: int) -> None:
    flood(count, lambda number: {"id": 10_000 + number, "error": {"code": 1, "message": "x" * 300}})
    text(request, "done")


def rubbish(request: dict[str, Any], count: int) -> None:
    flood(count, lambda number: {"id": {}, "method": number, "x": "\x1b]0;title\x07"})
    text(request, "done")


def updates(request: dict[str, Any], count: int) -> None:
    flood(count, lambda number: {"method": "notifications/resources/updated", "params": {"uri": f"x://{number % 3}"}})
    text(request, "done")


def other_updates(request: dict[str, Any], count: int) -> None:
    data = "x" * 500
    flood(count, lambda n: {"method": "notifications/resources/updated", "params": {"uri": f"x://{n}/{data}"}})
    text(request, "done")


def progress(request: dict[str, Any], count: int) -> None:
    token = request["params"]["_meta"]["progressToken"]
    flood(
        count,
        lambda number: {"method": "notifications/progress", "params": {"progressToken": token, "progress": number}},
    )
    text(request, "done")


def stderr(request: dict[str, Any], count: int) -> None:
    for _ in range(count):
        os.write(2, b"x" * 65535 + b"\n")
    text(request, "done")


# --------------------------------------------------------------------------------------- processes


def spawn(request: dict[str, Any], count: int) -> None:
    """A child of the child; with 1 one that heeds no SIGTERM."""
    started = subprocess.Popen([sys.executable, "-S", "-c", STUBBORN if count else SLEEPER], stdout=subprocess.PIPE)
    if count:
        assert started.stdout is not None
        started.stdout.readline()
    text(request, str(started.pid))


def spawn_and_crash(request: dict[str, Any], count: int) -> None:
    spawn(request, count)
    os._exit(1)


def spawn_deaf(request: dict[str, Any], count: int) -> None:
    """Such a child, and a server that heeds neither the end of its input nor SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    spawn(request, 1)
    while True:
        time.sleep(60)


def daemon(request: dict[str, Any], count: int) -> None:
    """A child in a session of its own, out of reach, that keeps all pipes open: with 1 it writes into them."""
    writes = "import os, time\nend = time.time() + 20\nwhile time.time() < end: os.write(1, b'{}' * 1000 + b'\\n')"
    code = writes if count else "import time; time.sleep(20)"
    text(request, str(subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True).pid))


def stop(request: dict[str, Any], count: int) -> None:
    """It answers, and is stopped: no signal but one reaches it."""
    text(request, str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def close_all(request: dict[str, Any], count: int) -> None:
    """It answers, closes all its pipes, and stays."""
    text(request, str(os.getpid()))
    for number in (0, 1, 2):
        os.close(number)
    time.sleep(600)


def main() -> None:
    behaviour, count = globals()[sys.argv[1]], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    while (message := hear()) is not None:
        if message.get("method") == "initialize":
            info = {"name": "bad", "version": "1"}
            result(message, protocolVersion=VERSION, capabilities={"tools": {}, "resources": {}}, serverInfo=info)
        elif message.get("method") == "tools/call":
            behaviour(message, count)
        elif message.get("method") == "ping":
            result(message)
        elif "id" in message and "method" in message:
            say(id=message["id"], error={"code": -32601, "message": "unknown"})
            flush()


if __name__ == "__main__":
    main()
