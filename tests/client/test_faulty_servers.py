"""Servers that fail or misbehave in a child process: each gives the right exception, soon, and leaves nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.clock import until
from support.memory import resident

from mcpd import Client
from mcpd.client import ClientLimits
from mcpd.errors import ConnectionLost, FrameTooLarge, McpdError, ProtocolError, RemoteError, RequestTimeout

pytestmark = pytest.mark.timeout(120)
MB = 1024 * 1024

SERVER = """
import json, os, sys, time
behaviour = sys.argv[1]
info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {}},
        "serverInfo": {"name": "n", "version": "1"}}

def raw(text):
    data = text if isinstance(text, bytes) else text.encode()
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]

def say(**message):
    raw(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")

def answer(id, **members):
    say(id=id, result={"content": [{"type": "text", "text": "fine"}], **members})

def head(id):
    return '{"jsonrpc": "2.0", "id": %d, ' % id

def cursor():
    return (message.get("params") or {}).get("cursor")

tool = {"name": "x", "inputSchema": {"type": "object"}}
if behaviour == "banner":
    raw("Welcome to the server!\\n\\n  [INFO] ready\\n\\x1b[1mlisten\\x1b[0m\\n")
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message["method"]
    if id is None:
        continue
    if method == "initialize":
        say(id=id, result=info)
    elif method == "server/discover":
        say(id=id, error={"code": -32601, "message": "no"})
    elif method == "ping":
        say(id=id, result={})
    else:
        exec(sys.argv[2])
"""

CALLED = {
    "banner": "print('debug:', method, flush=True); answer(id)",
    "never": "pass",
    "twice": "answer(id); answer(id)",
    "twice, and differently": "answer(id); say(id=id, error={'code': -1, 'message': 'no'})",
    "other ids": "answer(99); answer(str(id) + 'x'); answer(None); answer(id + 0.5); answer(True)",
    "neither": "say(id=id)",
    "both": "say(id=id, result={}, error={'code': 1, 'message': 'x'})",
    "a bad error": "say(id=id, error='broken')",
    "no JSON": "raw(head(id) + '\"result\": {\\n')",
    "half": "raw(head(id) + '\"resu'); sys.exit(4)",
    "half, then the rest": 'raw(head(id)); time.sleep(0.05); raw(\'"result": {"content": []}}\\n\')',
    "nulls": "raw(bytes(100) + b'\\n'); answer(id)",
    "not UTF-8": 'raw((head(id) + \'"result": {"content": "\').encode() + b\'\\xff"}}\\n\')',
    "wrong content": "say(id=id, result={'content': 'text'})",
    "deep": "raw(head(id) + '\"result\": ' + '[' * 1000000 + ']' * 1000000 + '}\\n')",
    "dies": "sys.exit('it broke')",
    "killed": "os.kill(os.getpid(), 9)",
    "closes": "os.close(1); time.sleep(600)",
    "ids as text": "say(id=str(id), result={'content': [], 'isError': 'false'})",
    "a null error": "say(id=id, result={'content': []}, error=None)",
    "a null method": "say(id=id, result={'content': []}, method=None)",
    "a byte order mark": "raw(b'\\xef\\xbb\\xbf'); answer(id)",
    "hints as text": """
tool['annotations'] = {'readOnlyHint': 'true'}
say(id=id, result={'tools': [tool], 'nextCursor': ''})
""",
    "a long line": "raw(head(id) + '\"result\": \"')\nfor _ in range(1024): raw(b'x' * 1048576)\nraw('\"}\\n')",
    "endless": "say(id=id, result={'tools': [], 'nextCursor': os.urandom(8).hex()})",
    "cyclic": "say(id=id, result={'tools': [], 'nextCursor': {'a': 'b', 'b': 'c', 'c': 'a'}.get(cursor(), 'a')})",
    "a stale cursor": """
if cursor():
    say(id=id, error={'code': -32602, 'message': 'no such cursor'})
else:
    say(id=id, result={'tools': [tool], **({} if 'seen' in globals() else {'nextCursor': 'a'})})
    seen = True
""",
    "a cursor that is never good": """
if cursor():
    say(id=id, error={'code': -32602, 'message': 'none'})
else:
    say(id=id, result={'tools': [], 'nextCursor': 'b'})
""",
    "many entries": "say(id=id, result={'tools': [tool] * 60, 'nextCursor': os.urandom(8).hex()})",
}


@asynccontextmanager
async def misbehaving(behaviour: str, **options: object) -> AsyncIterator[Client]:
    """A client of such a server; after it nothing of the server runs any more, and no descriptor is open."""
    command = [sys.executable, "-S", "-c", SERVER, behaviour, CALLED[behaviour]]
    before = set(os.listdir("/proc/self/fd"))
    client = Client(command, version="2025-11-25", **{"reconnect": False, **options})  # type: ignore[arg-type]
    async with client:
        assert client._open is not None
        process = client._open.channel.process  # type: ignore[attr-defined]
        yield client
    assert process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    await until(lambda: set(os.listdir("/proc/self/fd")) <= before)


@pytest.mark.parametrize(
    "behaviour",
    ["banner", "twice", "twice, and differently", "half, then the rest", "nulls",
     "ids as text", "a null error", "a null method", "a byte order mark"],
)  # fmt: skip
async def test_what_is_lived_with(behaviour: str) -> None:
    async with misbehaving(behaviour) as client:
        for _ in range(3):
            result = await client.call_tool("any")
            assert not result.is_error
        await client.ping()


@pytest.mark.parametrize(
    ("behaviour", "error", "said"),
    [
        ("never", RequestTimeout, "did not answer tools/call within 0.5 s"),
        ("other ids", RequestTimeout, "did not answer tools/call"),
        ("neither", ProtocolError, "response to tools/call is invalid: Neither a request"),
        ("both", ProtocolError, "response to tools/call is invalid: Neither a request"),
        ("a bad error", ProtocolError, "response to tools/call is invalid: An error needs an integer code"),
        ("no JSON", ProtocolError, "response to tools/call is invalid: Parse error"),
        ("not UTF-8", ProtocolError, "response to tools/call is invalid: Parse error: not UTF-8"),
        ("wrong content", ProtocolError, "response to tools/call is invalid: content: expected array"),
        ("deep", ProtocolError, "response to tools/call is invalid: Parse error: nested too deep"),
    ],
)
async def test_what_fails_a_call_and_nothing_else(behaviour: str, error: type[McpdError], said: str) -> None:
    async with misbehaving(behaviour) as client:
        with pytest.raises(error, match=said) as raised:
            await client.call_tool("any", timeout=0.5)
        assert "\n" not in str(raised.value)
        await client.ping()
        assert not client._session.pending


async def test_a_list_with_hints_as_text_and_an_empty_cursor() -> None:
    """The official clients read both. A page that comes again under an empty cursor is the end."""
    async with misbehaving("hints as text") as client:
        (tool,) = await client.list_tools()
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("half", "has ended with exit code 4"),
        ("dies", "has ended with exit code 1; stderr: it broke"),
        ("killed", "was ended by SIGKILL"),
        ("closes", "has closed its stdout"),
    ],
)
async def test_what_ends_the_connection(behaviour: str, said: str) -> None:
    async with misbehaving(behaviour) as client:
        calls = [asyncio.create_task(client.call_tool("any")) for _ in range(3)]
        for call in calls:
            with pytest.raises(ConnectionLost, match=said):
                await call
        with pytest.raises(ConnectionLost, match=said):
            await client.ping()


async def test_a_line_of_a_gigabyte() -> None:
    """It is skipped as it comes; who waits for it hears why, and the next call is answered."""
    async with misbehaving("a long line", limits=ClientLimits(message_bytes=MB)) as client:
        begin = resident()
        with pytest.raises(FrameTooLarge, match=f"at most {MB} bytes"):
            await client.call_tool("any", timeout=100)
        assert resident() - begin < 64 * MB
        await client.ping()


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("endless", r"more than 50 pages .ClientLimits\.list_pages"),
        ("cyclic", "repeats a page"),
        ("many entries", r"more than 1000 entries .ClientLimits\.list_entries"),
    ],
)
async def test_lists_without_end(behaviour: str, said: str) -> None:
    async with misbehaving(behaviour, limits=ClientLimits(list_pages=50, list_entries=1000)) as client:
        with pytest.raises(ProtocolError, match=said):
            await client.list_tools()
        await client.ping()


async def test_a_cursor_that_is_none_any_more() -> None:
    """2026-07-28 server/utilities/caching: the list is asked for from its beginning; once."""
    async with misbehaving("a stale cursor") as client:
        assert [tool.name for tool in await client.list_tools()] == ["x"]
    async with misbehaving("a cursor that is never good") as client:
        with pytest.raises(RemoteError, match="none"):
            await client.list_tools()


async def test_a_server_that_starts_and_says_nothing() -> None:
    before = set(os.listdir("/proc/self/fd"))
    client = Client([sys.executable, "-S", "-c", "import time; time.sleep(600)"], timeout=0.2)
    client.probe_seconds = 0.2
    with pytest.raises(RequestTimeout, match="did not answer initialize within 0.2 s"):
        await client.open()
    assert client._open is not None
    assert client._open.channel.process.returncode is not None  # type: ignore[attr-defined]
    await until(lambda: set(os.listdir("/proc/self/fd")) <= before)


async def test_a_server_that_starts_slowly_is_still_a_modern_one(tmp_path: Path) -> None:
    """2026-07-28 basic/versioning: it answers the probe when `initialize` has been sent, and then both."""
    server = tmp_path / "slow.py"
    server.write_text(
        "import os, pathlib, time\n"
        "from mcpd import Server\n"
        f"mark = pathlib.Path({str(tmp_path / 'mark')!r})\n"
        "if not mark.exists():\n"
        "    mark.touch()\n"
        "    while not mark.read_text():\n"  # until `initialize` is sent
        "        time.sleep(0.001)\n"
        "Server('slow').run()\n"
    )
    client = Client([sys.executable, str(server)])
    client.probe_seconds = 0.0
    opened = asyncio.create_task(client.open())
    await until((tmp_path / "mark").exists)
    (tmp_path / "mark").write_text("go")
    await opened
    try:
        assert client.version == "2026-07-28"
        await client.ping()
    finally:
        await client.aclose()


async def test_a_crash_loop_leaves_no_process(tmp_path: Path) -> None:
    """Each start is remembered in a file: all of them have ended afterwards."""
    code = f"import os; open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}} ')\n" + SERVER
    command = [sys.executable, "-S", "-c", code, "dies", CALLED["dies"]]
    async with Client(command, version="2025-11-25") as client:
        for _ in range(4):
            with pytest.raises(ConnectionLost, match="it broke"):
                await client.call_tool("any")
    pids = (tmp_path / "pids").read_text(encoding="ascii").split()
    assert len(pids) == 4
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()
