"""A server's process as it is, before anything of the protocol: its lines, its stderr, how it ends.

Not the client's channel, which leaves out and repairs what a doctor wants to see.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import IO

from mcpd.client.targets.named import CommandTarget
from mcpd.transports.child import ChildProcess, Ending

MOST_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is not read to its end, and nothing behind it."""

_READ_BYTES = 65536
_STDERR_KEPT = 4096
_LINES = 12


PASSED_ON = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""The variables that hosts built on the official libraries give a server, beside those of its entry."""


class Child:
    """A process that runs. Make it with `start`; `end` has to be called."""

    def __init__(self, process: ChildProcess, on_line: Callable[[bytes], bool]) -> None:
        self.process = process
        self.began = time.monotonic()
        self.first_byte: float | None = None
        """When it wrote something to stdout, in seconds after its start."""
        self.stderr_bytes = 0
        self.flood = ""
        """Why its stdout is not read any more, if it is not."""
        self.is_over = asyncio.Event()
        """It writes no more to stdout, or is not read."""
        self._on_line = on_line
        self._stderr = b""
        self._pipes: list[asyncio.BaseTransport] = []
        self._stdin: asyncio.WriteTransport
        self._reading: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls,
        target: CommandTarget,
        on_line: Callable[[bytes], bool],
        *,
        as_hosts_do: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start it. `on_line` is given each line of stdout, and says whether to read on.

        `as_hosts_do`: with few variables, and in the top folder if its own is not said. `environment` is all that it
        gets beside the target's own, in place of either. Raises OSError, ValueError.
        """
        variables = _environment(as_hosts_do) if environment is None else dict(environment)
        process = ChildProcess(
            target.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables | (target.env or {}),
            cwd=target.cwd or ("/" if as_hosts_do else None),
        )
        child = cls(process, on_line)
        loop = asyncio.get_running_loop()
        child._stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        child._pipes.append(child._stdin)
        stdout, stderr = await child._reader(process.stdout), await child._reader(process.stderr)
        child._reading = [
            asyncio.create_task(child._read_stdout(stdout)),
            asyncio.create_task(child._read_stderr(stderr)),
        ]
        return child

    async def _reader(self, pipe: IO[bytes] | None) -> asyncio.StreamReader:
        reader = asyncio.StreamReader(2 * _READ_BYTES)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._pipes.append(transport)
        return reader

    @property
    def stderr_lines(self) -> list[str]:
        """The last lines on stderr."""
        return [line for line in self._stderr.decode("utf-8", "replace").splitlines() if line.strip()][-_LINES:]

    def write(self, line: bytes) -> None:
        """Send a line. One that the server does not take in time is its problem, and shows by its silence."""
        self._stdin.write(line + b"\n")

    async def end(self) -> Ending:
        """Close its input, and wait; help along what does not end. Nothing of it is left."""
        try:
            # A pipe whose buffer the server has not taken would not close.
            self._stdin.close() if not self._stdin.get_write_buffer_size() else self._stdin.abort()
            return await self.process.end()
        finally:
            self.process.kill()
            for task in self._reading:
                task.cancel()
            await asyncio.gather(*self._reading, return_exceptions=True)
            # Others may hold the pipes open.
            for pipe in self._pipes:
                pipe.close()

    async def _read_stdout(self, stdout: asyncio.StreamReader) -> None:
        parts: list[bytes] = []
        size = 0
        try:
            while data := await stdout.read(_READ_BYTES):
                if self.first_byte is None:
                    self.first_byte = time.monotonic() - self.began
                *lines, rest = data.split(b"\n")
                for line in lines:
                    whole = b"".join((*parts, line))
                    parts, size = [], 0
                    if not self._on_line(whole):
                        self.flood = "it writes so much that is no message"
                        return
                parts.append(rest)
                size += len(rest)
                if size > MOST_LINE_BYTES:
                    self.flood = f"it wrote a line of more than {MOST_LINE_BYTES // 1024 // 1024} MiB"
                    return
            if rest := b"".join(parts):
                self._on_line(rest)
        finally:
            self.is_over.set()

    async def _read_stderr(self, stderr: asyncio.StreamReader) -> None:
        while data := await stderr.read(_READ_BYTES):
            self.stderr_bytes += len(data)
            self._stderr = (self._stderr + data)[-_STDERR_KEPT:]


def _environment(as_hosts_do: bool) -> dict[str, str]:
    if not as_hosts_do:
        return dict(os.environ)
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}
