"""A server in a child process, spoken to over its stdin and stdout.

Starting and ending it, nothing else: the framing is `stdio`'s. Its stderr is ours, since what a server says there
is for people. Spec: 2025-11-25 basic/lifecycle, shutdown: close its input, wait, SIGTERM, wait, SIGKILL.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence

from ..channel import Receiver
from ..errors import ConfigurationError
from ..jsonrpc import Id
from .stdio import StdioChannel

__all__ = ["ProcessChannel", "open_process"]

GRACE_SECONDS = 2.0


class ProcessChannel:
    """The near end of a child process's stdin and stdout."""

    is_shared = True

    def __init__(self, process: asyncio.subprocess.Process, fd_in: int, fd_out: int) -> None:
        self.process = process
        self._descriptors = (fd_in, fd_out)
        # A server that answers line by line reads on only when its answers are taken.
        self._channel = StdioChannel(fd_in, fd_out, always_reads=True)
        self._watching: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_congested(self) -> bool:
        """The child reads more slowly than is written to it."""
        return self._channel.is_congested

    def start(self, receiver: Receiver) -> None:
        """Begin to read."""
        self._channel.start(receiver)
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """What the child started may hold its output open for long; with the child itself the connection ends."""
        await self.process.wait()
        self._channel.end()

    def send(self, frame: bytes, about: Id | None = None) -> None:
        """Queue one line for the child."""
        self._channel.send(frame)

    async def drain(self) -> None:
        """Wait until the child has taken what was queued."""
        await self._channel.drain()

    async def aclose(self, reason: str = "") -> None:
        """Close the child's input and wait for its end; help along a child that does not.

        Who cuts this short has no more patience: the child is killed then.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._watching is not None:
            self._watching.cancel()
        fd_in, fd_out = self._descriptors
        try:
            try:
                await self._channel.aclose(reason)
            finally:
                os.close(fd_out)
            await self._end()
        finally:
            os.close(fd_in)
            if self.process.returncode is None:
                self._push(self.process.kill)

    async def _end(self) -> None:
        for push in (None, self.process.terminate, self.process.kill):
            if push is not None:
                self._push(push)
            try:
                async with asyncio.timeout(GRACE_SECONDS):
                    await self.process.wait()
            except TimeoutError:
                continue
            return

    @staticmethod
    def _push(push: Callable[[], None]) -> None:
        try:
            push()
        except ProcessLookupError:
            pass  # it has just ended by itself


async def open_process(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None
) -> ProcessChannel:
    """Start a command and give the channel to it. Raises ConfigurationError if it cannot be started."""
    if not command or not all(isinstance(part, str) for part in command):
        raise ConfigurationError(f"{command!r}: a command is a list of strings, the program first")
    child_in, fd_out = os.pipe()
    fd_in, child_out = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=child_in, stdout=child_out, env=env, cwd=cwd)
    except (OSError, ValueError) as error:
        for descriptor in (fd_in, fd_out):
            os.close(descriptor)
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(f"{command[0]} cannot be started: {text}") from error
    finally:
        os.close(child_in)
        os.close(child_out)
    return ProcessChannel(process, fd_in, fd_out)
