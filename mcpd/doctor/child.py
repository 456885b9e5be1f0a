"""A server's process as it is, before anything of the protocol: its lines, its stderr, how it ends.

Not the client's channel, which leaves out and repairs what a doctor wants to see.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from mcpd.client.targets.named import CommandTarget

MOST_LINE_BYTES = 64 * 1024 * 1024
"""A longer line is not read to its end, and nothing behind it."""

GRACE_SECONDS = 2.0
"""How long a server may take to end: hosts wait as long before they kill it."""

_READ_BYTES = 65536
_STDERR_KEPT = 4096
_LINES = 12


PASSED_ON = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""The variables that hosts built on the official libraries give a server, beside those of its entry."""


class Ending(Struct, frozen=True):
    """How a process ended."""

    by: Literal["itself", "SIGTERM", "SIGKILL"]
    """What it took, beside the end of its input."""
    seconds: float
    code: int
    """The exit code, or the negative number of a signal."""
    left_others: bool
    """Something that it had started was still there."""


class Child:
    """A process that runs. Make it with `start`; `end` has to be called."""

    def __init__(self, process: asyncio.subprocess.Process, on_line: Callable[[bytes], bool]) -> None:
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
        self._reading = [asyncio.create_task(self._read_stdout()), asyncio.create_task(self._read_stderr())]

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
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *target.command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=variables | (target.env or {}),
            cwd=target.cwd or ("/" if as_hosts_do else None),
            start_new_session=True,
            limit=2 * _READ_BYTES,
        )
        return cls(process, on_line)

    @property
    def stderr_lines(self) -> list[str]:
        """The last lines on stderr."""
        return [line for line in self._stderr.decode("utf-8", "replace").splitlines() if line.strip()][-_LINES:]

    async def write(self, line: bytes) -> None:
        """Send a line. One that the server does not take in time is its problem, and shows by its silence."""
        assert self.process.stdin is not None
        with suppress(OSError, RuntimeError):
            self.process.stdin.write(line + b"\n")
            await self.process.stdin.drain()

    async def end(self) -> Ending:
        """Close its input, and wait; help along what does not end. Nothing of it is left."""
        began = time.monotonic()
        by: Literal["itself", "SIGTERM", "SIGKILL"] = "itself"
        try:
            assert self.process.stdin is not None
            self.process.stdin.close()
            if not await self._has_ended():
                by = "SIGTERM"
                self._signal(signal.SIGTERM)
                if not await self._has_ended():
                    by = "SIGKILL"
                    self._signal(signal.SIGKILL)
                    await self._has_ended()
            seconds = time.monotonic() - began
            left_others = await self._left_others()
        finally:
            self._signal(signal.SIGKILL)
            for task in self._reading:
                task.cancel()
            await asyncio.gather(*self._reading, return_exceptions=True)
            self._close_pipes()

        code = self.process.returncode
        return Ending(by, seconds, -9 if code is None else code, left_others)

    async def _has_ended(self) -> bool:
        """Whether the process ends in time. Its output is read meanwhile: a full pipe would hold it up."""
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                while self.process.returncode is None:  # noqa: ASYNC110 - `wait` waits for its pipes, too
                    await asyncio.sleep(0.005)
        except TimeoutError:
            return False
        return True

    async def _left_others(self) -> bool:
        """Whether something is left of its group a moment later."""
        for _ in range(20):
            try:
                os.killpg(self.process.pid, 0)
            except (ProcessLookupError, PermissionError):
                return False
            await asyncio.sleep(0.01)
        return True

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _close_pipes(self) -> None:
        # Others may hold the pipes open; asyncio lets go of them only at their end.
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        parts: list[bytes] = []
        size = 0
        try:
            while data := await self.process.stdout.read(_READ_BYTES):
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

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while data := await self.process.stderr.read(_READ_BYTES):
            self.stderr_bytes += len(data)
            self._stderr = (self._stderr + data)[-_STDERR_KEPT:]


def _environment(as_hosts_do: bool) -> dict[str, str]:
    if not as_hosts_do:
        return dict(os.environ)
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}
