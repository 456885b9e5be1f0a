"""`mcpd serve --stdio` as a process: the stream stays clean, whatever tools do, and the process always ends (D10, D11).

Spec: 2026-07-28 basic/transports/stdio; 2025-11-25 basic/lifecycle, shutdown.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Child
from support.clock import until
from support.wires import MODERN, each_version, initialize, process_wire

from mcpd import Client

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and descriptors as POSIX has them")

VERSION = "2025-11-25"

# Everything that may disturb the stream or the end of the process, as tools of one server.
SERVER = """
import asyncio, ctypes, os, subprocess, sys, threading, time
from mcpd import Context, Server

print("printed while it was imported")
os.write(1, b"written to 1 while it was imported\\n")
libc = ctypes.CDLL(None)
server = Server("t")

@server.tool
async def echo(text: str) -> str:
    return text

@server.tool
async def prints() -> str:
    print("printed by a tool")
    sys.stdout.write("written by a tool\\n")
    sys.stdout.flush()
    return "ok"

@server.tool
def prints_in_thread() -> str:
    print("printed by a thread", flush=True)
    return "ok"

@server.tool
async def writes() -> str:
    os.write(1, b"written to 1\\n")
    libc.write(1, b"written by C\\n", 13)
    libc.puts(b"put by C")
    libc.fflush(None)
    return "ok"

@server.tool
def child() -> str:
    code = subprocess.run([sys.executable, "-c", "print('printed by a child'); print(repr(input()))"]).returncode
    return f"child {code}"

@server.tool
def system() -> str:
    return str(os.system("echo said by a shell; cat"))

@server.tool
def reads() -> str:
    return repr((sys.stdin.read(), os.read(0, 10)))

@server.tool
async def closes() -> str:
    os.close(0), os.close(1)
    return "closed"

@server.tool
async def exits() -> str:
    sys.exit(3)

@server.tool
def exits_in_thread() -> str:
    sys.exit(3)

def say(text):
    print(text, file=sys.stderr, flush=True)

@server.tool
def hangs() -> str:
    say("hanging")
    time.sleep(3600)
    return "never"

@server.tool
async def hangs_in_executor() -> str:
    say("hanging")
    await asyncio.to_thread(time.sleep, 3600)
    return "never"

@server.tool
async def blocks() -> str:
    say("hanging")
    time.sleep(3600)
    return "never"

@server.tool
async def spins() -> str:
    say("hanging")
    while True:
        pass

@server.tool
async def waits() -> str:
    say("hanging")
    await asyncio.sleep(3600)
    return "never"

@server.tool
async def will_not_stop() -> str:
    say("hanging")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

@server.tool
async def leaves_a_thread() -> str:
    threading.Thread(target=time.sleep, args=(3600,)).start()
    say("hanging")
    return "left"

@server.tool
async def half_a_second() -> str:
    say("hanging")
    await asyncio.sleep(0.5)
    return "done"

@server.tool
def half_a_second_in_thread() -> str:
    say("hanging")
    time.sleep(0.5)
    return "done"

@server.tool
async def large(size: int) -> str:
    return "x" * size

@server.tool
async def report(ctx: Context, size: int, times: int) -> str:
    for number in range(times):
        await ctx.progress(number + 1, message="x" * size)
    return "reported"
"""


@pytest.fixture
def server_file(tmp_path: Path) -> str:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return str(path)


# ----------------------------------------------------------------------------- a clean stream


async def test_what_a_tool_prints_goes_to_stderr(child: Child, server_file: str) -> None:
    """S25-028, S26-047, D10: Python, C and child processes alike, and already while the module loads."""
    async with process_wire(child, server_file, version=VERSION) as wire:
        for tool in ("prints", "prints_in_thread", "writes"):
            assert await wire.text(tool) == "ok"
        assert await wire.text("child") == "child 1"
        assert await wire.text("system") == "0"
        await wire.quiet()
    for said in (
        "printed while it was imported", "written to 1 while it was imported", "printed by a tool",
        "written by a tool", "printed by a thread", "written to 1", "written by C", "put by C",
        "printed by a child", "said by a shell",
    ):  # fmt: skip
        assert said in wire.stderr
    # input() of the child found the end of its stdin, not a message of ours.
    assert "EOFError" in wire.stderr


async def test_what_is_printed_is_there_at_once(child: Child, server_file: str) -> None:
    """An author who prints to find a mistake reads it in the host's log, not when the server ends."""
    async with process_wire(child, server_file, version=VERSION) as wire:
        await wire.said("printed while it was imported")


async def test_a_tool_that_reads_stdin_finds_nothing_there(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file, version=VERSION) as wire:
        assert await wire.text("reads") == "('', b'')"
        assert await wire.text("echo", text="on") == "on"


async def test_a_tool_may_even_close_both(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file, version=VERSION) as wire:
        assert await wire.text("closes") == "closed"
        assert await wire.text("echo", text="on") == "on"


async def test_sys_exit_ends_the_call_and_not_the_server(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file, version=VERSION) as wire:
        for tool in ("exits", "exits_in_thread"):
            assert (await wire.call(tool))["isError"] is True
        assert await wire.text("echo", text="on") == "on"


@each_version
async def test_every_version_over_a_process(child: Child, version: str) -> None:
    async with process_wire(child, version=version) as wire:
        assert await wire.text("echo", text="héllo \u2028") == "héllo \u2028"
        tools = [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]
        assert "server_info" in tools
    assert wire.code == 0


# --------------------------------------------------------------------------------------- framing


async def test_messages_may_be_cut_anywhere(child: Child, server_file: str) -> None:
    """S25-027, S26-046; also inside a character, and several in one read."""
    async with process_wire(child, server_file, version=VERSION) as wire:
        frames = b""
        for number in range(3):
            params = {"name": "echo", "arguments": {"text": f"é\U0001f600 {number}"}}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            wire.talk.client(message)
            frames += json.dumps(message, ensure_ascii=False).encode() + b"\n"
        for at in range(len(frames)):
            wire.write(frames[at : at + 1])
            if at % 7 == 0:
                await wire._stdin.drain()
        for number in range(3):
            assert (await wire.answer(number))["result"]["content"][0]["text"] == f"é\U0001f600 {number}"


async def test_line_ends_of_windows_and_blank_lines(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file, version=VERSION) as wire:
        wire.write(b"\r\n\n  \n\t\r\n")
        wire.talk.client({"id": "crlf", "method": "ping"})
        wire.write(b'{"jsonrpc":"2.0","id":"crlf","method":"ping"}\r\n')
        assert (await wire.answer("crlf"))["result"] == {}
        await wire.quiet()


async def test_the_last_message_needs_no_newline(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file, version=VERSION) as wire:
        wire.talk.client({"id": "last", "method": "ping"})
        wire.write(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')
        wire.stdin_watchdog()
        assert (await wire.answer("last"))["result"] == {}
        assert await wire.wait() == 0


@pytest.mark.slow
async def test_large_messages_both_ways(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file, version=VERSION) as wire:
        text = "é" * (5 * 1024 * 1024)
        assert await wire.text("echo", text=text) == text
        assert len(await wire.text("large", size=10_000_000)) == 10_000_000


async def test_a_message_over_the_limit_is_refused_and_the_connection_goes_on(child: Child, server_file: str) -> None:
    async with process_wire(child, "--max-message-bytes", "1000", server_file, version="2025-06-18") as wire:
        for size in (1001, 100_000, 1_000_000):
            wire.send(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"' + b"x" * size + b'"}}')
            refused = await wire.receive()
            assert (refused["id"], refused["error"]["code"]) == (1, -32600)
            assert "1000" in refused["error"]["message"]
            assert await wire.text("echo", text="on") == "on"


async def test_a_client_that_does_not_read_is_waited_for(child: Child, server_file: str) -> None:
    """Back-pressure: what is not read is neither lost nor piled up without end."""
    async with process_wire(child, server_file, version=VERSION) as wire:
        wire.process.stdout._transport.pause_reading()  # type: ignore[union-attr]
        params = {"name": "report", "arguments": {"size": 100_000, "times": 100}, "_meta": {"progressToken": 1}}
        wire.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await asyncio.sleep(0.3)
        grown = _resident_kilobytes(wire.process.pid)
        assert grown is None or grown < 60_000  # 10 MB are to be said; the interpreter has 30
        wire.process.stdout._transport.resume_reading()  # type: ignore[union-attr]
        assert (await wire.answer(1))["result"]["content"][0]["text"] == "reported"
        assert [message["params"]["progress"] for message in wire.heard] == list(range(1, 101))


def _resident_kilobytes(process: int) -> int | None:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


# ----------------------------------------------------------------------------------- it always ends

# A tool that hangs, and how the process is told to end. All that wait for a deadline are slow.
HANGING: list[Any] = [
    ("hangs", "stdin"),
    ("hangs", signal.SIGTERM),
    ("waits", "stdin"),
    ("waits", signal.SIGINT),
    ("leaves_a_thread", "stdin"),
    pytest.param("hangs_in_executor", "stdin", marks=pytest.mark.slow),
    pytest.param("hangs_in_executor", signal.SIGTERM, marks=pytest.mark.slow),
    pytest.param("will_not_stop", "stdin", marks=pytest.mark.slow),
    pytest.param("will_not_stop", signal.SIGINT, marks=pytest.mark.slow),
]
# What else is served: HTTP may bring another event loop, with its own idea of signals.
LOOPS = [(), ("--http", "127.0.0.1:0")]


async def test_the_end_of_stdin_is_the_end(child: Child, server_file: str) -> None:
    """2025-11-25 basic/lifecycle, shutdown: the client closes the server's stdin, and waits."""
    async with process_wire(child, server_file, version=VERSION) as wire:
        wire.stdin_watchdog()
        assert await wire.wait() == 0


async def test_stdin_that_was_empty_from_the_start(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file) as wire:
        wire.stdin_watchdog()
        assert await wire.end() == []
        assert await wire.wait() == 0


@pytest.mark.parametrize("tool", ["half_a_second", "half_a_second_in_thread"])
async def test_calls_that_run_when_stdin_ends_are_still_answered(child: Child, server_file: str, tool: str) -> None:
    """D11: within the grace time."""
    async with process_wire(child, server_file, version=VERSION) as wire:
        wire.ask("tools/call", {"name": tool}, id="slow")
        await wire.said("hanging")
        wire.stdin_watchdog()
        assert (await wire.answer("slow"))["result"]["content"][0]["text"] == "done"
        assert await wire.wait() == 0


@pytest.mark.parametrize(("tool", "how"), HANGING)
async def test_a_hung_tool_cannot_keep_the_process(child: Child, server_file: str, tool: str, how: Any) -> None:
    """D11; who still waits for the answer is told, and who has hung up does not."""
    async with process_wire(child, "--grace", "0.1", server_file, version=VERSION) as wire:
        wire.ask("tools/call", {"name": tool}, id="hung")
        await wire.said("hanging")
        if how == "stdin":
            wire.stdin_watchdog()
        else:
            wire.process.send_signal(how)
        assert await wire.wait() == 0
        if how == "stdin" and tool != "leaves_a_thread":
            assert await wire.end() == []  # there are clients that fail on what comes now
        elif tool in ("hangs", "hangs_in_executor", "waits"):
            answer = await wire.answer("hung")
            assert answer["error"]["code"] == -32603
            assert "shutting down" in answer["error"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("also", LOOPS, ids=["alone", "with HTTP"])
@pytest.mark.parametrize(
    ("tool", "how"), [("blocks", signal.SIGTERM), ("spins", signal.SIGINT), ("blocks", "stdin"), ("spins", "stdin")]
)
async def test_not_even_one_that_blocks_the_event_loop(
    child: Child, server_file: str, tool: str, how: Any, also: tuple[str, ...]
) -> None:
    """An async tool that never waits stops everything but signals, and the look for the end of stdin."""
    async with process_wire(child, "--grace", "0.1", *also, server_file, version=VERSION) as wire:
        wire.ask("tools/call", {"name": tool}, id="hung")
        await wire.said("hanging")
        if how == "stdin":
            wire.stdin_watchdog()
        else:
            wire.process.send_signal(how)
        assert await wire.wait() == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
async def test_a_signal_lets_running_calls_end(child: Child, server_file: str, how: int) -> None:
    async with process_wire(child, server_file, version=VERSION) as wire:
        wire.ask("tools/call", {"name": "half_a_second"}, id="slow")
        await wire.said("hanging")
        wire.process.send_signal(how)
        assert (await wire.answer("slow"))["result"]["content"][0]["text"] == "done"
        assert await wire.wait() == 0


@pytest.mark.parametrize("also", LOOPS, ids=["alone", "with HTTP"])
@pytest.mark.parametrize(
    "tool",
    [
        "waits",
        pytest.param("hangs", marks=pytest.mark.slow),
        pytest.param("will_not_stop", marks=pytest.mark.slow),
        pytest.param("blocks", marks=pytest.mark.slow),
    ],
)
async def test_a_second_signal_does_not_wait(child: Child, server_file: str, tool: str, also: tuple[str, ...]) -> None:
    async with process_wire(child, "--grace", "600", *also, server_file, version=VERSION) as wire:
        wire.ask("tools/call", {"name": tool}, id="hung")
        await wire.said("hanging")
        wire.process.terminate()
        await asyncio.sleep(0.2)
        assert wire.code is None
        wire.process.terminate()
        assert await wire.wait() == 0


async def test_a_signal_before_anything_was_said(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file) as wire:
        await wire.said("printed while it was imported")
        wire.ask("ping", id=1)
        await wire.answer(1)
        wire.process.terminate()
        assert await wire.wait() == 0


async def test_ctrl_c_while_the_module_loads(child: Child, tmp_path: Path) -> None:
    path = tmp_path / "slow.py"
    # In short sleeps: Python notices no signal that comes between its last look and the system call.
    path.write_text(
        'import sys, time\nprint("loading", file=sys.stderr, flush=True)\nwhile True:\n    time.sleep(0.01)\n'
    )
    async with process_wire(child, str(path)) as wire:
        await wire.said("loading")
        wire.process.send_signal(signal.SIGINT)
        assert await wire.wait() == 130
    assert "Traceback" not in wire.stderr


@pytest.mark.parametrize(
    ("then", "words", "code"),
    [("raise ValueError('broken')", ["serve", "--stdio"], 1), ("", ["check"], 0), ("", ["serve", "--stdio"], 0)],
)
def test_threads_of_a_target_cannot_keep_the_process(
    child: Child, tmp_path: Path, then: str, words: list[str], code: int
) -> None:
    """D11: neither if it then cannot be loaded, nor when all is done."""
    path = tmp_path / "threads.py"
    path.write_text(
        "import threading, time\nfrom mcpd import Server\nserver = Server('t')\n"
        f"threading.Thread(target=time.sleep, args=(3600,)).start()\n{then}\n"
    )
    done = subprocess.run(
        child.mcpd(*words, str(path)), env=child.env, input=b"", capture_output=True, timeout=100, check=False
    )
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    assert (b"broken" in done.stderr) == bool(then)


async def test_nobody_reads_stdout_any_more(child: Child, server_file: str) -> None:
    """The call that runs has nobody to answer: the process does not wait for it."""
    async with process_wire(child, "--grace", "600", server_file, version=VERSION) as wire:
        wire.ask("tools/call", {"name": "waits"}, id="hung")
        await wire.said("hanging")
        stdout: Any = wire.process.stdout._transport  # type: ignore[union-attr]
        stdout.close()
        await until(lambda: stdout._pipe is None)  # else the answer may still be taken
        wire.ask("ping")
        assert await wire.wait() == 0
    assert "Traceback" not in wire.stderr


async def test_a_message_that_ends_in_the_middle(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file, version=VERSION) as wire:
        wire.write(b'{"jsonrpc":"2.0","id":1,"meth')
        wire.stdin_watchdog()
        (refused,) = await wire.end()
        assert refused["error"]["code"] == -32700
        assert await wire.wait() == 0


# ---------------------------------------------------------------------------- other descriptors


def run(child: Child, *arguments: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        child.mcpd("serve", "--stdio", *arguments), env=child.env, timeout=100, check=False, **{"stderr": -1, **how}
    )


def script(version: str = VERSION, *requests: Any) -> bytes:
    messages = [initialize(version), {"jsonrpc": "2.0", "method": "notifications/initialized"}, *requests]
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ECHO = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "half_a_second", "arguments": {}},
}


def test_stdin_may_be_a_file_and_stdout_too(child: Child, server_file: str, tmp_path: Path) -> None:
    """What cannot be polled is read by a thread; `mcpd serve --stdio < script > answers`."""
    (tmp_path / "in").write_bytes(script(VERSION, PING, ECHO))
    with open(tmp_path / "in", "rb") as stdin, open(tmp_path / "out", "wb") as stdout:
        done = run(child, server_file, stdin=stdin, stdout=stdout)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out").read_bytes().splitlines()
    answers = {message["id"]: message["result"] for message in map(json.loads, lines)}
    assert answers.keys() == {0, 1, 2}
    assert answers[2]["content"][0]["text"] == "done"


def test_a_large_file_for_stdin(child: Child, tmp_path: Path) -> None:
    """More than one read, and more answers than the pipe holds."""
    calls = [
        {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": "x" * 1000}},
        }
        for number in range(1, 2001)
    ]  # fmt: skip
    (tmp_path / "in").write_bytes(script(VERSION, *calls))
    with open(tmp_path / "in", "rb") as stdin:
        done = run(child, stdin=stdin, stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == list(range(2001))


def test_stdin_may_be_a_socket_or_a_terminal(child: Child) -> None:
    import socket

    ours, theirs = socket.socketpair()
    ours.sendall(script(VERSION, PING))
    ours.shutdown(socket.SHUT_WR)
    with ours, theirs:
        done = run(child, stdin=theirs, stdout=subprocess.PIPE)
    assert len(done.stdout.splitlines()) == 2
    assert done.returncode == 0


def test_a_full_disk_ends_it(child: Child) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    with open("/dev/full", "wb") as stdout:
        done = run(child, input=script(VERSION, PING), stdout=stdout)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [0, 1])
def test_without_stdin_or_stdout_it_says_so(child: Child, closed: int) -> None:
    how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    done = run(child, preexec_fn=lambda: os.close(closed), **how)
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        f"mcpd: {('stdin', 'stdout')[closed]} is closed; --stdio needs stdin and stdout, as a host provides them"
    ]


def test_without_stderr_it_works_all_the_same(child: Child, server_file: str) -> None:
    """Some hosts close it. What is printed then goes nowhere, and never into the stream."""
    done = run(
        child, server_file, input=script(VERSION, PING, ECHO), stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2)
    )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1, 2]
    assert done.returncode == 0


def test_stdout_gets_its_mode_back(child: Child) -> None:
    """A pipe that others write to as well must not stay non-blocking after us."""
    read, write = os.pipe()
    try:
        done = run(child, input=script(), stdout=write)
        assert done.returncode == 0
        assert os.get_blocking(write)
    finally:
        os.close(read)
        os.close(write)


def test_children_of_tools_do_not_inherit_the_stream(child: Child, tmp_path: Path) -> None:
    """A child process that outlives the server does not keep the client waiting for the end of the stream."""
    path = tmp_path / "server.py"
    path.write_text(
        "import subprocess, sys\nfrom mcpd import Server\nserver = Server('t')\n"
        "@server.tool\ndef daemon() -> int:\n"
        "    return subprocess.Popen(['sleep', '600'], stderr=subprocess.DEVNULL, start_new_session=True).pid\n"
    )
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "daemon"}}
    done = run(child, str(path), input=script(VERSION, call), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    daemon = json.loads(done.stdout.splitlines()[-1])["result"]["structuredContent"]["result"]
    os.kill(daemon, signal.SIGTERM)
    assert done.returncode == 0


async def test_a_modern_client_over_a_process(child: Child, server_file: str) -> None:
    async with process_wire(child, server_file, version=MODERN) as wire:
        assert await wire.text("echo", text="x") == "x"
        wire.ask("tools/call", {"name": "waits"}, id="w")
        await wire.said("hanging")
        wire.cancel("w")
        await wire.quiet()
    assert wire.code == 0


ORPHANS = """
import os, subprocess
from mcpd import Server

server = Server("orphans")

@server.tool
def leave() -> int:
    "The id of a process whose parent ends before it."
    return int(subprocess.run("sleep 0.2 >/dev/null & echo $!", shell=True, capture_output=True, text=True).stdout)

@server.tool
def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="process namespaces")
async def test_as_process_1_it_reaps_what_tools_leave_behind(child: Child, tmp_path: Path) -> None:
    """In a container, where nobody else does; it ends with its client, and on a signal with the right exit code."""
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    try:
        subprocess.run([*apart, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no process namespaces here")
    (tmp_path / "orphans.py").write_text(ORPHANS)
    command = [*apart, *child.mcpd("serve", "--stdio", str(tmp_path / "orphans.py"))]
    async with asyncio.timeout(60), Client(command) as client:
        pid = await client.call("leave")
        while await client.call("is_there", pid=pid):
            pass

    with subprocess.Popen(command, env=child.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(initialize(VERSION)).encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline()
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert process.wait(60) == 0
