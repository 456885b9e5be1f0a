"""Tools in processes, from all that `mcpd serve` and Python can run: files, folders, programs; and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from conftest import Child
from support.clock import until
from support.process_stage import TOOLS, begin, is_alive, wire_to
from support.wires import ProcessWire, process_wire

from mcpd import Client, Server
from mcpd.cli.target import load
from mcpd.server.processes import starting
from mcpd.server.settings import Options

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs fork and /proc"),
    pytest.mark.medium,
]

SERVER = """
import os
from mcpd import Server
server = Server("t")

@server.tool(process=True)
def where() -> str:
    return f"{__name__} {os.getpid()} {os.getppid()}"
"""
PROGRAM = f"{SERVER}\nserver.run(stdio=True)\n"
GUARDED = f'{SERVER}\nif __name__ == "__main__":\n    server.run(stdio=True)\n'
THREADED = f"import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n{SERVER}"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("text", "arguments", "name"),
    [
        (SERVER, ["-m", "mcpd", "serve", "--stdio", "place.py"], "place"),
        (SERVER, ["-m", "mcpd", "serve", "--stdio", "place:server"], "place"),
        (GUARDED, ["place.py"], "__mcpd_worker__"),
        (PROGRAM, ["place.py"], "__mcpd_worker__"),
        (GUARDED, ["-m", "place"], "__mcpd_worker__"),
    ],
    ids=["file", "module", "program", "unguarded", "python -m"],
)
async def test_what_is_served(
    text: str, arguments: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "place.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    async with Client([sys.executable, *arguments]) as client:
        result = await client.call_tool("where")
        found, pid, parent = result.content[0].text.split()  # type: ignore[union-attr]
        assert found == name
        assert parent_of(int(parent)) != int(pid)
    await until(lambda: not is_alive(int(pid)) and not is_alive(int(parent)))


async def test_a_folder(child: Child, tmp_path: Path) -> None:
    """`mcpd.tool(process=True)`, and a lifespan that each process opens for itself."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "lifespan.py").write_text(
        "import os\nfrom collections.abc import AsyncIterator\n\nclass Shared:\n    pid: int\n\n"
        "async def lifespan() -> AsyncIterator[Shared]:\n    shared = Shared()\n    shared.pid = os.getpid()\n"
        "    yield shared\n"
    )
    (tmp_path / "tools" / "one.py").write_text(
        "import os, mcpd\nfrom lifespan import Shared\n\n@mcpd.tool(process=True)\ndef ours(shared: Shared) -> bool:\n"
        "    return shared.pid == os.getpid()\n\n@mcpd.tool(process=True)\ndef pid() -> int:\n    return os.getpid()\n"
    )
    async with process_wire(child, str(tmp_path), version="2026-07-28") as wire:
        assert await wire.text("pid") != str(wire.process.pid)
        assert await wire.text("ours") == "true"


async def test_a_target_that_starts_threads(tmp_path: Path) -> None:
    """It is not forked: each worker is a new interpreter that imports it, unless its author insists."""
    path = tmp_path / "threaded.py"
    forked = "\n@server.tool(process=True, process_start='fork')\ndef forked() -> str:\n    return where()\n"
    path.write_text(THREADED + forked)
    server = load(str(path))
    assert server is not None
    async with wire_to(server) as wire:
        name, pid, parent = (await wire.text("where")).split()
        assert (name, parent) == ("threaded", str(os.getpid()))
        assert len(os.listdir(f"/proc/{pid}/task")) == 3  # the target's, and the one that reads
        assert (await wire.text("where")).split()[1] == pid
        name, pid, parent = (await wire.text("forked")).split()
        assert parent != str(os.getpid())
        assert len(os.listdir(f"/proc/{pid}/task")) == 2


async def test_a_fork_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error of that call. Another one that runs is not disturbed."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    path, full = tmp_path / "crowded.py", tmp_path / "full"
    path.write_text(
        f"{SERVER}\nfork = os.fork\n\ndef limited() -> int:\n    if os.path.exists({str(full)!r}):\n"
        "        raise BlockingIOError(11, 'no more processes')\n    return fork()\n\nos.fork = limited\n"
        "\n@server.tool(process=True)\ndef waits(path: str) -> str:\n    open(path + '.began', 'x').close()\n"
        "    while not os.path.exists(path):\n        pass\n    return 'waited'\n"
    )
    monkeypatch.setattr(os, "fork", os.fork)  # the target changes it
    server = load(str(path))
    assert server is not None
    async with wire_to(server) as wire:
        waits = wire.ask("tools/call", {"name": "waits", "arguments": {"path": str(tmp_path / "go")}})
        await until((tmp_path / "go.began").exists)
        full.touch()
        result = await wire.call("where")
        assert "its process has ended while it started" in result["content"][0]["text"]
        full.unlink()
        assert (await wire.text("where")).startswith("crowded ")
        (tmp_path / "go").touch()
        assert (await wire.answer(waits))["result"]["content"][0]["text"] == "waited"


# -- without fork --------------------------------------------------------------------------------


async def test_a_new_interpreter(processes: Server, tmp_path: Path) -> None:
    """It is used again, talks to the client, and is ended like a forked one (PROC-01 to PROC-04, PROC-07, PROC-12)."""
    mark = tmp_path / "mark"
    async with wire_to(processes, "2025-11-25", capabilities={"roots": {}}) as wire:
        pid = int(await wire.text("spawned_pid"))
        assert await wire.text("spawned_pid") == str(pid)
        assert b'"start":"spawn"' in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert parent_of(pid) == os.getpid()
        found = (await wire.call("spawned_descriptors"))["structuredContent"]
        assert found.pop("0") == os.devnull
        assert len([name for name in found.values() if name.startswith("socket:")]) == 1

        for tool in ("spawned_list_roots", "spawned_list_roots_later"):
            request = wire.ask("tools/call", {"name": tool, "arguments": {}})
            question = await wire.receive()
            wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [{"uri": "file:///books"}]}})
            assert (await wire.answer(request))["result"]["content"][0]["text"] == "1"
        for tool in ("spin", "sleep_in_c", "sleep_later"):
            request, pid = await begin(wire, f"spawned_{tool}", mark=str(mark))
            wire.cancel(request)
            await until(lambda pid=pid: not is_alive(pid))
            assert mark.read_text() == tool
        request, child = await begin(wire, "spawned_parents")
        wire.cancel(request)
        await until(lambda: not is_alive(child))
        result = await wire.call("spawned_crash", how="SIGSEGV")
        assert result["content"][0]["text"] == "The tool spawned_crash crashed (signal 11)"
        result = await wire.call("spawned_too_long")
        assert result["content"][0]["text"] == "The tool spawned_too_long took longer than 0.2 s"
        assert await wire.text("spawned_pid")


async def test_a_stranger_on_the_port_of_a_new_interpreter(processes: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the secret it gets nothing, and holds nothing up for long."""
    strangers = []
    create_server = socket.create_server

    def listen(address: Any) -> socket.socket:
        listener = create_server(address)
        strangers.extend(socket.create_connection(listener.getsockname()) for _ in range(3))
        strangers[0].sendall(b"x" * starting.SECRET_BYTES)
        strangers[1].close()
        return listener

    monkeypatch.setattr(starting.socket, "create_server", listen)
    monkeypatch.setattr(starting, "_SECRET_SECONDS", 0.2)
    async with wire_to(processes) as wire:
        assert await wire.text("spawned_pid")
        assert [each.recv(1) for each in (strangers[0], strangers[2])] == [b"", b""]
    for each in strangers:
        each.close()


async def test_a_new_interpreter_that_does_not_start(
    processes: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-c", "raise SystemExit(7)"]
    monkeypatch.setattr(starting.Setup, "command", lambda setup: command)
    async with wire_to(processes) as wire:
        for tool in ("spawned_pid", "pid"):
            result = await wire.call(tool)
            assert result["isError"] is True
            assert "its process has ended while it started" in result["content"][0]["text"]
        monkeypatch.undo()
        assert await wire.text("spawned_pid")
        assert await wire.text("pid")


async def test_a_system_without_forks_groups_and_most_signals(child: Child, tmp_path: Path) -> None:
    """As Windows has none of these; the rest of Windows is not tested here."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, select, signal, socket, sys\n"
        "for module, names in (\n"
        "    (os, 'fork forkpty killpg setpgid getpgid setsid register_at_fork pidfd_open posix_spawn waitid'),\n"
        "    (signal, 'SIGKILL SIGCHLD pthread_sigmask pthread_kill'),\n"
        "    (socket, 'send_fds recv_fds'),\n"
        "    (select, 'poll'),\n"
        "):\n"
        "    for name in names.split():\n"
        "        delattr(module, name)\n"
    )
    (tmp_path / "place.py").write_text(
        SERVER.replace("process=True", "process=True, process_start='spawn'")
        + "\n@server.tool(process=True, process_start='spawn', timeout=0.2)\nasync def waits() -> None:\n"
        "    import asyncio\n    await asyncio.sleep(3600)\n"
        "\nif __name__ == '__main__':\n    server.run(stdio=True)\n"
    )
    path = os.pathsep.join([str(tmp_path), child.env["PYTHONPATH"]])
    async with Client(["env", f"PYTHONPATH={path}", child.python, str(tmp_path / "place.py")]) as client:
        first, again = [await client.call("where", returns=str) for _ in range(2)]
        assert first == again
        assert first.startswith("__mcpd_worker__ ")
        result = await client.call_tool("waits")
        assert result.content[0].text == "The tool waits took longer than 0.2 s"  # type: ignore[union-attr]
    await until(lambda: not is_alive(int(first.split()[1])))


# -- loading -------------------------------------------------------------------------------------


async def test_a_target_that_cannot_be_imported_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "once.py"
    path.write_text(f"{SERVER}\nopen({str(tmp_path / 'mark')!r}, 'x').close()\n")
    server = load(str(path))
    assert server is not None
    async with wire_to(server) as wire:
        result = await wire.call("where")
        assert result["isError"] is True
        assert "its process cannot import the target" in result["content"][0]["text"]
        assert "FileExistsError" in caplog.text
        (tmp_path / "mark").unlink()
        assert "once" in await wire.text("where")


async def test_reload_leaves_running_calls_on_the_old_code(tmp_path: Path) -> None:
    """PROC-14."""
    path = tmp_path / "edited.py"
    waits = (
        "\n@server.tool(process=True)\ndef waits(path: str) -> str:\n    import pathlib, time\n"
        "    pathlib.Path(path + '.began').touch()\n"
        "    while not os.path.exists(path):\n        time.sleep(0.01)\n    return VALUE\n"
    )
    path.write_text(f"{SERVER}\nVALUE = 'old'\n{waits}")
    made: list[Callable[..., Any]] = []
    server = load(str(path), watched=made)
    assert server is not None
    watched = made[0](Options(), time_ns())
    mark = tmp_path / "mark"
    async with wire_to(server) as wire:
        request = wire.ask("tools/call", {"name": "waits", "arguments": {"path": str(mark)}})
        await until((tmp_path / "mark.began").exists)
        old = (await wire.text("where")).split()[2]
        path.write_text(f"{SERVER}\nVALUE = 'new value'\n{waits}")
        await asyncio.to_thread(watched.refresh, {str(path)})
        new = (await wire.text("where")).split()[2]
        assert new != old
        mark.touch()
        assert (await wire.answer(request))["result"]["content"][0]["text"] == "old"
        assert await wire.text("waits", path=str(mark)) == "new value"
        await until(lambda: not is_alive(int(old)))
        assert is_alive(int(new))


# -- the output, and the end ---------------------------------------------------------------------


async def test_what_a_worker_prints(child: Child) -> None:
    """PROC-08: it has no input, and its output is what people read."""
    async with process_wire(child, str(TOOLS), version="2026-07-28") as wire:
        assert await wire.text("shout") == "''"
        for said in ("python says so", "the system call says so", "the program says so"):
            await wire.said(said)
        await wire.quiet()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("tool", ["spin", "hold", "parents", "spawned_spin", "spawned_hold"])
async def test_the_end_of_the_server(child: Child, number: signal.Signals, tool: str, tmp_path: Path) -> None:
    """PROC-13: its processes end too, whatever they do. PROC-03: `finally` blocks run then, too."""
    mark = tmp_path / "mark"
    command = child.mcpd("serve", "--stdio", "--grace", "0.1", str(TOOLS))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=child.env
    )
    process.stderr = asyncio.StreamReader()
    process.stderr.feed_eof()
    wire = ProcessWire(process)
    await wire.open("2025-11-25")
    start = tool.rpartition("_")[0]
    idle = int(await wire.text(f"{start}_pid" if start else "pid"))
    _, pid = await begin(wire, tool, **({} if tool == "parents" else {"mark": str(mark)}))
    fork_server = parent_of(idle)
    process.send_signal(number)
    await process.wait()
    await until(lambda: not any(map(is_alive, (idle, pid, fork_server))))
    # The system kills new interpreters with the server: nobody else could, if C code holds them.
    assert mark.exists() == (tool == "spin" or (tool, number) == ("spawned_spin", signal.SIGTERM))
    await wire.close()


async def test_the_end_of_the_fork_server(processes: Server) -> None:
    """Whoever kills it has its calls fail; the next call starts another one."""
    async with wire_to(processes) as wire:
        request, pid = await begin(wire, "spin")
        os.kill(parent_of(pid), signal.SIGKILL)
        result = (await wire.answer(request))["result"]
        assert result["content"][0]["text"] == "The tool spin has lost its process"
        await until(lambda: not is_alive(pid))
        assert await wire.text("add", a=1, b=2) == "3"


async def test_nothing_of_this_is_loaded_without_such_a_tool(child: Child, tmp_path: Path) -> None:
    """PROC-16."""
    path = tmp_path / "server.py"
    path.write_text(
        "import sys\nfrom mcpd import Server\nserver = Server('t')\n\n@server.tool\ndef loaded() -> list[str]:\n"
        "    return [name for name in sys.modules if name.startswith('mcpd.server.processes')]\n"
    )
    async with process_wire(child, str(path), version="2026-07-28") as wire:
        assert await wire.text("loaded") == "[]"


async def test_several_modules_of_a_program(tmp_path: Path) -> None:
    """One process imports all of them: the main file, as Python runs it."""
    (tmp_path / "app.py").write_text('from mcpd import Server\nserver = Server("t")\n')
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(
            f"import os\nfrom app import server\n\n@server.tool(process=True)\ndef {name}() -> int:\n"
            "    return os.getppid()\n"
        )
    (tmp_path / "main.py").write_text(
        'import one, two\nfrom app import server\n\nif __name__ == "__main__":\n    server.run(stdio=True)\n'
    )
    async with Client([sys.executable, str(tmp_path / "main.py")]) as client:
        found = [await client.call(name, returns=int) for name in ("one", "two")]
        assert found[0] == found[1]


async def test_a_server_that_another_program_imports(tmp_path: Path) -> None:
    """As uvicorn does, whose main file knows nothing of the tools."""
    (tmp_path / "place.py").write_text(SERVER)
    code = "import place; place.server.run(stdio=True)"
    async with Client(["sh", "-c", f"cd {tmp_path} && exec {sys.executable} -c '{code}'"]) as client:
        result = await client.call_tool("where")
        assert result.content[0].text.startswith("place ")  # type: ignore[union-attr]


async def test_a_folder_that_changes(tmp_path: Path) -> None:
    """PROC-14 for `tools/`: the calls after it find the new code in a new process."""
    path = tmp_path / "tools" / "one.py"
    path.parent.mkdir()
    text = "import os, mcpd\n\n@mcpd.tool(process=True)\ndef value() -> str:\n    return f'{} {{os.getppid()}}'\n"
    path.write_text(text.format("old"))
    made: list[Callable[..., Any]] = []
    server = load(str(tmp_path), watched=made)
    assert server is not None
    watched = made[0](Options(), time_ns())
    async with wire_to(server) as wire:
        word, fork_server = (await wire.text("value")).split()
        assert word == "old"
        path.write_text(text.format("newer"))
        await asyncio.to_thread(watched.refresh, {str(path)})
        assert (await wire.text("value")).split()[0] == "newer"
        await until(lambda: not is_alive(int(fork_server)))


@pytest.mark.parametrize("tool", ["pool", "terminated"])
async def test_processes_of_a_tool(tool: str, tmp_path: Path) -> None:
    """A worker's children are ended by SIGTERM as any others."""
    path = tmp_path / "forks.py"
    path.write_text(
        "import multiprocessing, time\nfrom mcpd import Server\nserver = Server('t')\n"
        "fork = multiprocessing.get_context('fork')\n\n"
        "@server.tool(process=True)\ndef pool() -> str:\n    with fork.Pool(2) as pool:\n"
        "        return str(pool.map(abs, range(-3, 0)))\n\n"
        "@server.tool(process=True)\ndef terminated() -> str:\n"
        "    process = fork.Process(target=time.sleep, args=(3600,))\n    process.start()\n    process.terminate()\n"
        "    process.join()\n    return str(process.exitcode)\n"
    )
    server = load(str(path))
    assert server is not None
    async with wire_to(server) as wire:
        assert await wire.text(tool) == {"pool": "[3, 2, 1]", "terminated": "-15"}[tool]
