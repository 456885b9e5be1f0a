"""Servers that others wrote: how each is started, what it is asked, and what it has to answer."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from conftest import REPOSITORY

HERE = Path(__file__).resolve().parent
TOOLS = REPOSITORY / ".tools"
NODE = str(TOOLS / "bin" / "node")
MODULES = HERE / "node_modules"
FIRST = str(TOOLS / "compat" / "original" / "bin" / "python")
WITH_WEBSOCKETS = str(TOOLS / "mcp1" / "bin" / "python")
SECOND = str(TOOLS / "compat" / "second" / "bin" / "python")
EXAMPLES = TOOLS / "compat" / "second-examples"

MODERN, LEGACY, OLDEST = "2026-07-28", "2025-11-25", "2024-11-05"


class Foreign(NamedTuple):
    """A server. `transports` are commands by the URL's scheme and path; `{port}` is a free port in them."""

    stdio: tuple[str, ...]
    versions: tuple[str, ...] = (LEGACY,)
    """Those that it is asked in; the first is what both agree on by themselves."""
    call: tuple[str, dict[str, Any], str] = ("", {}, "")
    """A tool, its arguments, and what stands in its answer."""
    is_for_models: bool = True
    """Whether that tool is for models, and not for the pages of an App alone."""
    slow: tuple[str, dict[str, Any], float] | None = None
    """A call that takes longer than so many seconds."""
    prompt: tuple[str, dict[str, str]] | None = None
    urls: dict[str, tuple[str, ...]] = {}
    """Commands that serve under a URL: the scheme and path of it, and what is in it `{port}` is filled in."""


def _npm(name: str, *arguments: str) -> tuple[str, ...]:
    folder = name if "/" in name else f"@modelcontextprotocol/server-{name}"
    return NODE, str(MODULES / folder.removeprefix("/") / "dist" / "index.js"), *arguments


def _sdk(python: str, examples: Path, *arguments: str) -> tuple[str, ...]:
    return python, str(HERE / "serve_sdk.py"), str(examples / "servers" / "everything-server"), *arguments


def _app(name: str, tool: str, expected: str, *, is_for_models: bool = True) -> Foreign:
    call = (tool, {}, expected)
    return Foreign(_npm(name, "--stdio"), call=call, is_for_models=is_for_models, urls={"http:/mcp": _npm(name)})


_FASTMCP = (SECOND, "-m", "fastmcp.cli", "run", str(EXAMPLES / "fastmcp" / "testing_demo" / "server.py"), "--no-banner")
_TASKS = (str(TOOLS / "clients" / "fastmcp-tasks" / "bin" / "python"), str(HERE / "serve_fastmcp_tasks.py"))
_OLD = (NODE, str(MODULES / "server-everything-2024" / "dist"))
_SDK_CALL = ("test_simple_text", {}, "simple text response")
_SDK_SLOW = ("test_tool_with_progress", {}, 0.05)
_SDK_PROMPT = ("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
_TYPESCRIPT = (NODE, str(HERE / "serve_ts_sdk.mjs"))
_ONE, _TWO = TOOLS / "compat" / "examples", EXAMPLES / "mcp" / "examples"

SERVERS = {
    "everything": Foreign(
        _npm("everything", "stdio"),
        call=("get-sum", {"a": 2, "b": 3}, "5"),
        slow=("trigger-long-running-operation", {"duration": 30, "steps": 3}, 0.2),
        prompt=("args-prompt", {"city": "Bern"}),
        urls={"http:/mcp": _npm("everything", "streamableHttp"), "http:/sse": _npm("everything", "sse")},
    ),
    "everything of 2024": Foreign(
        (_OLD[0], f"{_OLD[1]}/index.js"),
        versions=(OLDEST,),
        call=("add", {"a": 2, "b": 3}, "5"),
        slow=("longRunningOperation", {"duration": 30, "steps": 3}, 0.2),
        prompt=("complex_prompt", {"temperature": "1"}),
        urls={"http:/sse": (_OLD[0], f"{_OLD[1]}/sse.js")},
    ),
    "filesystem": Foreign(_npm("filesystem", str(HERE)), call=("list_allowed_directories", {}, str(HERE))),
    "memory": Foreign(_npm("memory"), call=("read_graph", {}, "entities")),
    "sequential-thinking": Foreign(
        _npm("sequential-thinking"),
        call=(
            "sequentialthinking",
            {"thought": "x", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
            "thoughtNumber",
        ),
    ),
    "basic-vanillajs": _app("basic-vanillajs", "get-time", "T"),
    "basic-react": _app("basic-react", "get-time", "T"),
    "budget-allocator": _app("budget-allocator", "get-budget-data", "categories"),
    "debug": _app("debug", "debug-refresh", "counter", is_for_models=False),
    "fetch": Foreign((FIRST, "-m", "mcp_server_fetch"), call=("fetch", {"url": "http://127.0.0.1:9/"}, "127.0.0.1")),
    "git": Foreign(
        (FIRST, "-m", "mcp_server_git"),
        call=("git_log", {"repo_path": str(REPOSITORY), "max_count": 1}, "Commit"),
    ),
    "time": Foreign(
        (FIRST, "-m", "mcp_server_time"), call=("get_current_time", {"timezone": "Europe/Zurich"}, "Europe/Zurich")
    ),
    "sdk 1": Foreign(
        _sdk(FIRST, _ONE, "stdio"),
        call=_SDK_CALL,
        slow=_SDK_SLOW,
        prompt=_SDK_PROMPT,
        urls={
            "http:/mcp": _sdk(FIRST, _ONE, "streamable-http"),
            "http:/sse": _sdk(FIRST, _ONE, "sse"),
            "ws:/ws": _sdk(WITH_WEBSOCKETS, _ONE, "websocket"),
        },
    ),
    "sdk 2": Foreign(
        _sdk(SECOND, _TWO, "stdio"),
        versions=(MODERN, LEGACY),
        call=_SDK_CALL,
        slow=_SDK_SLOW,
        prompt=_SDK_PROMPT,
        urls={"http:/mcp": _sdk(SECOND, _TWO, "streamable-http")},
    ),
    "sdk of TypeScript": Foreign(
        (*_TYPESCRIPT, "stdio"),
        versions=(MODERN, LEGACY),
        call=_SDK_CALL,
        slow=("slow", {}, 0.2),
        prompt=_SDK_PROMPT,
        urls={"http:/mcp": _TYPESCRIPT},
    ),
    "fastmcp": Foreign(
        _FASTMCP,
        versions=(MODERN, LEGACY),
        call=("add", {"a": 2, "b": 3}, "5"),
        prompt=("hello", {"name": "Ada"}),
        urls={"http:/mcp": (*_FASTMCP, "--transport", "http", "--port", "{port}")},
    ),
    "fastmcp with tasks": Foreign(
        _TASKS,
        versions=(MODERN, LEGACY),
        call=("render", {"frames": 3}, "3 frames"),
        urls={"http:/mcp": (*_TASKS, "{port}")},
    ),
}


def installed(server: Foreign) -> bool:
    """Whether all is there that `make clients` brings for it."""
    is_there = all(Path(word).exists() for word in server.stdio[:2] if word.startswith(str(REPOSITORY)))
    return is_there and (not server.stdio[1].endswith(".mjs") or MODULES.exists())


def marked() -> dict[str, str]:
    """An environment by which the processes of one server are known, and of those that they start."""
    return {**os.environ, "MCPD_TEST_MARK": uuid4().hex, "MEMORY_FILE_PATH": os.devnull, "FASTMCP_LOG_LEVEL": "ERROR"}


def living(mark: str) -> list[str]:
    """The commands of the processes that still run with this mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"MCPD_TEST_MARK={mark}".encode() in (folder / "environ").read_bytes()
            has_ended = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()[0] in "ZX"
        except OSError:
            continue
        if is_ours and not has_ended:
            found.append((folder / "cmdline").read_text("utf-8").replace("\0", " "))
    return found


@contextmanager
def listening(place: str, command: tuple[str, ...]) -> Iterator[str]:
    """The URL at which a server listens, once it does; it is ended afterwards."""
    scheme, _, path = place.partition(":")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [word.replace("{port}", str(port)) for word in command],
        env={**marked(), "PORT": str(port), "PYTHONUNBUFFERED": "1", "FASTMCP_LOG_LEVEL": "INFO"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    reading: threading.Thread | None = None
    try:
        while not re.search(r"(listening|running) on", said, re.IGNORECASE):
            line = process.stdout.readline()
            assert line, f"the server ended without a word on where it listens: {said}"
            said += line
        if own := re.search(r"running on http://[\w.]+:(\d+)", said):
            port = int(own[1])
        # What it says from now on has to be read by somebody, or it stops.
        reading = threading.Thread(target=process.stdout.read, daemon=True)
        reading.start()
        yield f"{scheme}://localhost:{port}{path}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if reading is not None:
            reading.join()
        process.stdout.close()
