"""`mcpd serve --workers` as a process, with a folder of its own for control sockets; asked by bytes over its port."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.clock import between_looks
from support.drills import SERVER, result_text
from support.http_peer import Port, modern

from mcpd.server.observe.control import _runs, ask
from mcpd.server.observe.report import Status

__all__ = ["HANG", "Daemon", "daemon", "runs", "until_ready"]

TIMEOUT = 60.0
runs = _runs

HANG = """
@server.tool
async def hang() -> str:
    note("hang")
    import time
    time.sleep(600)
    return ""
"""
"""One tool more, which holds up the event loop."""


class Daemon:
    """One parent with its workers. `log` has all that it and they said."""

    def __init__(self, command: Sequence[str], env: dict[str, str], folder: Path, pass_fds: Sequence[int] = ()) -> None:
        self.folder = folder
        self.log = ""
        self._ports: list[Port] = []
        self._heard = asyncio.Condition()
        self._loop = asyncio.get_running_loop()
        self.process = subprocess.Popen(
            command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=pass_fds
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                self.log += line.decode(errors="replace")
                self._call_tell()
        self.log += "(it has ended)\n"
        self._call_tell()

    def _call_tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._print_lines()))
        except RuntimeError:  # the test is over, and its loop closed
            pass

    async def _print_lines(self) -> None:
        async with self._heard:
            self._heard.notify_all()

    async def until(self, text: str, times: int = 1) -> None:
        """Until this was said, so often."""
        async with asyncio.timeout(TIMEOUT), self._heard:
            await self._heard.wait_for(lambda: self.log.count(text) >= times or "(it has ended)" in self.log)
        assert self.log.count(text) >= times, self.log

    @property
    def pid(self) -> int:
        """Of the parent."""
        return self.process.pid

    def url(self, what: str = "/mcp") -> str:
        """What it listens on."""
        found = re.search(rf"http://127.0.0.1:\d+{what}", self.log)
        assert found is not None, self.log
        return found[0]

    def port(self, what: str = "/mcp") -> Port:
        """The same, for bytes."""
        inside: Any = SimpleNamespace(url=self.url(what), app=None)
        self._ports.append(Port(inside))
        return self._ports[-1]

    async def status(self) -> Status:
        """What `mcpd status` would show."""
        path = self.folder / "run" / "mcpd" / f"control-{self.pid}.sock"
        return await asyncio.to_thread(ask, str(path))

    async def workers(self) -> dict[int, int]:
        """The processes that serve, by their place."""
        return {each.number: each.pid for each in (await self.status()).workers if each.state == "ready"}

    async def tool(self, name: str, **arguments: Any) -> str:
        """Call a tool, on a connection of its own."""
        return result_text(await self.port().modern("tools/call", {"name": name, "arguments": arguments}))

    async def each(self) -> set[int]:
        """The processes that answer: asked until there were as many as are ready."""
        ready = set((await self.workers()).values())
        found: set[int] = set()
        port = self.port()
        asked = modern("tools/call", {"name": "pid", "arguments": {}})
        async with asyncio.timeout(TIMEOUT):
            while not ready <= found:
                found.add(int(result_text(await port.ask(asked))))
        return found

    async def wait(self) -> int:
        """Until it has ended; its exit code."""
        async with asyncio.timeout(TIMEOUT):
            return await asyncio.to_thread(self.process.wait)

    async def stop(self) -> int:
        """SIGTERM, and wait."""
        self.process.send_signal(signal.SIGTERM)
        return await self.wait()


@asynccontextmanager
async def daemon(
    child: Any,
    folder: Path,
    *options: str,
    http: str = "127.0.0.1:0",
    workers: int = 2,
    server: str = SERVER,
    pass_fds: Sequence[int] = (),
    is_ready: bool = True,
    **more: str,
) -> AsyncIterator[Daemon]:
    """A daemon of the drills' server, ready; `more` are variables. It is killed at the end, if it still runs."""
    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    (folder / "server.py").write_text(server)
    env = {**child.env, "DRILL_FOLDER": str(folder), "XDG_RUNTIME_DIR": str(folder / "run"), **more}
    command = child.mcpd("serve", "--http", http, "--workers", str(workers), *options, "server.py")
    found = Daemon(command, env, folder, pass_fds)
    try:
        if is_ready:
            await found.until("pid")
        yield found
    finally:
        for peer in [peer for port in found._ports for peer in port._peers]:
            peer.abort()
        found.process.kill()
        found.process.wait()
        for pid in _of(folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        await asyncio.to_thread(found._reader.join, TIMEOUT)
        assert not found._reader.is_alive(), "somebody still has the parent's stderr"


def _of(folder: Path) -> list[int]:
    """The processes that were started for this folder, whoever started them: those that stop, or start, too."""
    mark, found = f"DRILL_FOLDER={folder}".encode(), []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (each / "environ").read_bytes().split(b"\0"):
                found.append(int(each.name))
        except OSError:
            pass  # it has ended, or is somebody else's
    return found


async def until_ready(served: Daemon, number: int) -> None:
    """Until so many workers serve."""
    async with asyncio.timeout(TIMEOUT):
        while len(await served.workers()) < number:
            await between_looks()
