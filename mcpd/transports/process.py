"""A channel to a server in a child process, over its stdin and stdout; its stderr is copied to this process's stderr.

`child` starts and ends the process, `stdio` frames the messages. The copy of stderr is for people. It is limited in
rate and never blocks, so that a child that writes without end fills neither a log nor the memory. Control characters
are escaped, and colours are removed.

Spec: 2025-11-25 basic/lifecycle, shutdown: close its input, wait, SIGTERM, wait, SIGKILL.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import select
import shlex
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from contextlib import suppress
from weakref import WeakSet

from mcpd.errors import CannotConnect, ConfigurationError, ConnectionLost, McpdError
from mcpd.protocol.channel import Receiver
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import Origin
from mcpd.protocol.printable import mask_command, printable, printable_lines
from .child import GRACE_SECONDS, HAS_GROUPS, ChildProcess, reason_not_started, signal_name
from .stdio import MAX_FRAME_BYTES, StdioChannel, unread

# The rate limit allows bursts of this many seconds, so that tracebacks are copied whole.
BURST_SECONDS = 16.0

# The size of the end that is kept, and the part of it that an error message quotes.
LAST_BYTES = 4096
LAST_LINES = 5
LAST_CHARACTERS = 800

_STDERR = 2
_READ_BYTES = 65536
# The pause after each full read while the output is more than may be copied: 6 MB are read in a second.
_FLOOD_PAUSE = 0.01
# The bytes that a ready pipe accepts without blocking (PIPE_BUF).
_PIECE_BYTES = 4096
_LAST_READS = 16
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class StderrCopy:
    """Copies the descriptor `source`, which it closes, to stderr. `name` is the name of the child in the copy.

    The last lines are kept: they explain best why a child has ended.
    """

    def __init__(self, source: int, name: str, bytes_per_second: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._name = name
        self._rate = bytes_per_second
        self._allowed = self._most = bytes_per_second * BURST_SECONDS
        self._at = self._loop.time()
        self.dropped_bytes = 0
        self._is_open = True
        self._last = b""
        self._decoder = getincrementaldecoder("utf-8")("replace") if os.isatty(_STDERR) else None
        os.set_blocking(source, False)
        self._loop.add_reader(source, self._readable)

    def _readable(self) -> bool:
        try:
            data = os.read(self._source, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""

        if data:
            self._last = (self._last + data[-LAST_BYTES:])[-LAST_BYTES:]
            self._pass_on(data)
            if self.dropped_bytes and len(data) == _READ_BYTES and self._is_open:
                # A flood is read with pauses, so that other work of the event loop goes on.
                self._loop.remove_reader(self._source)
                self._loop.call_later(_FLOOD_PAUSE, self._read_on)
        else:
            self._end()
        return data != b""

    def _read_on(self) -> None:
        if self._is_open:
            self._loop.add_reader(self._source, self._readable)

    def close(self) -> None:
        """Copy the remaining output and close the descriptor."""
        self._read_rest()
        self._end()

    def last_lines(self) -> str:
        """Return the last lines of the child's output, joined into one line; "" if it wrote none."""
        self._read_rest()
        text = _COLOURS.sub("", self._last.decode("utf-8", "replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        text = " | ".join(printable(line, LAST_BYTES) for line in lines[-LAST_LINES:])
        return text if len(text) <= LAST_CHARACTERS else f"…{text[-LAST_CHARACTERS:]}"

    def _read_rest(self) -> None:
        for _ in range(_LAST_READS):
            if not self._is_open or not self._readable():
                break

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._source)
            os.close(self._source)
            self._confess()

    def _pass_on(self, data: bytes) -> None:
        now = self._loop.time()
        self._allowed = min(self._most, self._allowed + (now - self._at) * self._rate)
        self._at = now
        if self.dropped_bytes and len(data) <= self._allowed:
            self._confess()
        if self._decoder is not None:
            text = _COLOURS.sub("", self._decoder.decode(data))
            data = printable_lines(text).encode("utf-8", "backslashreplace")
        passed = _write(data[: int(self._allowed)])
        self._allowed -= passed
        self.dropped_bytes += len(data) - passed

    def _confess(self) -> None:
        if self.dropped_bytes:
            text = f"\nmcpd: {self.dropped_bytes} bytes that {self._name} wrote to stderr were left out\n"
            if _write(text.encode("utf-8", "backslashreplace")):
                self.dropped_bytes = 0


def _write(data: bytes) -> int:
    poll = select.poll()
    poll.register(_STDERR, select.POLLOUT)
    written = 0
    with suppress(OSError):  # the reader is gone, or stderr is closed
        while written < len(data) and any(event & select.POLLOUT for _, event in poll.poll(0)):
            written += os.write(_STDERR, data[written : written + _PIECE_BYTES])
    return written


# The average rate at which a child's stderr is copied.
STDERR_BYTES_PER_SECOND = 65536.0

# Seconds that a child may take to end after it has closed its stdout; then its connection ends without an exit code.
EXIT_SECONDS = 0.5

_LONG_NAME = 200


class ProcessChannel:
    """The near end of a child process's stdin and stdout, and of its stderr unless the child writes to ours."""

    is_multiplexed = True

    def __init__(
        self,
        process: ChildProcess,
        fd_in: int,
        fd_out: int,
        *,
        name: str = "",
        stderr: StderrCopy | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self.process = process
        self._name = name or f"process {process.pid}"
        self._descriptors = (fd_in, fd_out)
        # A server that answers line by line reads on only when its answers are read.
        self._channel = StdioChannel(fd_in, fd_out, max_frame_bytes=max_frame_bytes, always_reads=True)
        self._stderr = stderr
        self._receiver: Receiver | None = None
        self._watching: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._sent = 0
        self._is_closed = False
        self._owner = os.getpid()
        _open.add(self)

    @property
    def is_congested(self) -> bool:
        """Whether the child reads more slowly than this side writes."""
        return self._channel.is_congested

    def start(self, receiver: Receiver) -> None:
        """Start reading. The error at the end of the connection says how the child has ended."""
        self._receiver = receiver
        self.receive = receiver.receive
        self.receive_error = receiver.receive_error
        self._channel.start(self)
        self._watching = asyncio.create_task(self._watch())

    def closed(self, error: McpdError | None = None) -> None:
        assert self._receiver is not None
        if self._is_closed:
            self._receiver.closed(error)
        elif self.process.returncode is not None:
            self._receiver.closed(self._why(error))
        elif self._reporting is None:
            self._reporting = asyncio.create_task(self._report_end_later(error))

    async def _report_end_later(self, error: McpdError | None) -> None:
        # A child closes its stdout mostly because it is ending, and its exit code is known a moment later.
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                await self.process.wait()
        if not self._is_closed and self._receiver is not None:
            self._receiver.closed(self._why(error))

    def _why(self, error: McpdError | None) -> ConnectionLost:
        code = self.process.returncode
        if code is None:
            text = "the server has closed its stdout" if error is None else "the server has closed its stdin"
        elif code < 0:
            text = f"the server was ended by {signal_name(-code)}"
        else:
            text = f"the server has ended with exit code {code}"

        last_lines = "" if self._stderr is None else self._stderr.last_lines()
        kind = CannotConnect if code is not None and self._has_read_nothing() else ConnectionLost
        return kind(f"{self._name}: {text}{f'; stderr: {last_lines}' if last_lines else ''}")

    def _has_read_nothing(self) -> bool:
        return unread(self._descriptors[1]) + self._channel.untaken_bytes == self._sent

    async def _watch(self) -> None:
        # The child's own child processes may keep its output open, so the end of the pipe is not enough.
        await self.process.wait()
        self._channel.end()
        await self.process.end_group()
        self.process.forget_group()

    def pause(self) -> None:
        """Stop reading until `resume`: the child's output fills the pipe, and then the child waits."""
        self._channel.pause()

    def resume(self) -> None:
        self._channel.resume()

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        self._sent += len(frame) + 1
        self._channel.send(frame)

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one line that is written after the child has read the lines before it."""
        self._channel.send_separately(frame)

    async def drain(self) -> None:
        await self._channel.drain()

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return Origin("stdio")

    async def aclose(self, reason: str = "") -> None:
        """Close the child's input and wait for its end. After two seconds, end the child and everything that it
        started.

        If the caller cancels this, they are killed at once.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for task in (self._watching, self._reporting):
            if task is not None:
                task.cancel()

        fd_in, fd_out = self._descriptors
        try:
            try:
                await self._channel.aclose(reason)
            finally:
                os.close(fd_out)
            await self.process.end()
        finally:
            os.close(fd_in)
            self.kill()
            if self._stderr is not None:
                self._stderr.close()
            _open.discard(self)
            # A killed child ends at once. Without this wait, Python would warn about a child that still runs.
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    await self.process.wait()

    def kill(self) -> None:
        """Kill the child and everything that it started. Does nothing if they have ended."""
        if os.getpid() == self._owner:  # a copy of us, made by a fork, has no children here
            self.process.kill()


_open: WeakSet[ProcessChannel] = WeakSet()


@atexit.register
def _kill_all() -> None:
    # A program that ends without closing its clients must leave no servers behind.
    for channel in list(_open):
        channel.kill()


async def open_process(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    name: str = "",
    max_frame_bytes: int = MAX_FRAME_BYTES,
    stderr_bytes_per_second: float | None = STDERR_BYTES_PER_SECOND,
) -> ProcessChannel:
    """Start a command and return the channel to it. Raises ConfigurationError if it cannot be started.

    `name` is its name in error messages, by default the command. Its stderr is copied to this process's, at
    `stderr_bytes_per_second` on average; with None, the child writes to it directly.
    """
    if not command or not all(isinstance(part, str) for part in command):
        raise ConfigurationError(f"{command!r}: a command is a list of strings, the program first")
    pipes: list[int] = []
    try:
        for _ in range(3 if stderr_bytes_per_second is not None and HAS_GROUPS else 2):
            pipes += os.pipe()
        child_in, fd_out, fd_in, child_out = pipes[:4]
        fd_err, child_err = pipes[4:] or (None, None)
        process = ChildProcess(command, stdin=child_in, stdout=child_out, stderr=child_err, env=env, cwd=cwd)
    except BaseException as error:
        _close(*pipes)
        if not isinstance(error, (OSError, ValueError)):
            raise
        raise ConfigurationError(reason_not_started(command, cwd, error)) from None
    _close(child_in, child_out, child_err)

    stderr = None
    if fd_err is not None and stderr_bytes_per_second is not None:
        stderr = StderrCopy(fd_err, os.path.basename(command[0]), stderr_bytes_per_second)
    shown = name or shlex.join(mask_command(command))
    shown = shown if len(shown) <= _LONG_NAME else f"{shown[:_LONG_NAME]}…"
    return ProcessChannel(process, fd_in, fd_out, name=shown, stderr=stderr, max_frame_bytes=max_frame_bytes)


def _close(*descriptors: int | None) -> None:
    for descriptor in descriptors:
        if descriptor is not None:
            os.close(descriptor)
