"""stdio: one JSON-RPC message per line on the process's own stdin and stdout.

Reads and writes the descriptors itself: 64 KiB a read (asyncio's pipe transport asks for 256 KiB,
which costs an mmap, two page faults and a munmap each time), and one write for all answers that
are ready together. `claim` keeps the real stdout for the protocol: whatever a tool, a library or a
child process prints goes to stderr. Spec: 2026-07-28 basic/transports/stdio.
"""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections import deque

from ..channel import Receiver
from ..errors import ConfigurationError, ConnectionLost, FrameTooLarge
from ..jsonrpc import Id
from ..wire.ndjson import Splitter

__all__ = ["MAX_FRAME_BYTES", "StdioChannel", "claim"]

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""The default limit of one message, both for stdio and for WebSocket."""

_READ_BYTES = 65536
_JOIN_BYTES = 65536
_HIGH_WATER = 1024 * 1024
_LAST_SECONDS = 2.0


def claim() -> tuple[int, int]:
    """Take stdin and stdout for the protocol and give their new descriptors (in, out).

    Afterwards descriptor 0 reads nothing and descriptor 1 is stderr, for Python, C and child processes alike.
    Call it before any code of the user is imported. Raises ConfigurationError if one of them is closed.
    """
    for fd, name in enumerate(("stdin", "stdout")):
        if not _is_open(fd):
            raise ConfigurationError(f"{name} is closed; --stdio needs both, as a host that starts it gives them")
    if not _is_open(2):
        # Or the next file that is opened would be what programs take for stderr.
        _open_nothing(2, os.O_WRONLY)
    if sys.stdout is not None:
        sys.stdout.flush()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Who prints to find a mistake wants to read it now, not when the server ends.
            sys.stdout.reconfigure(line_buffering=True)
    fd_in, fd_out = os.dup(0), os.dup(1)
    _open_nothing(0, os.O_RDONLY)
    os.dup2(2, 1)
    return fd_in, fd_out


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _open_nothing(fd: int, how: int) -> None:
    nothing = os.open(os.devnull, how)
    if nothing != fd:
        os.dup2(nothing, fd)
        os.close(nothing)
    else:
        os.set_inheritable(fd, True)


class StdioChannel:
    """A channel over two descriptors: pipes, sockets, a terminal; files too, read by a thread.

    `drain` and `is_congested` count what the kernel did not take yet. While more than 1 MiB waits, a server's end
    reads nothing either: a client that does not read gets no more work done, and no memory is lost to it.
    A client's end (`always_reads`) goes on: two ends that each wait for the other to read wait for ever.
    """

    is_shared = True

    def __init__(
        self, fd_in: int, fd_out: int, *, max_frame_bytes: int = MAX_FRAME_BYTES, always_reads: bool = False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd_in = fd_in
        self._fd_out = fd_out
        self._always_reads = always_reads
        self._splitter = Splitter(max_frame_bytes)
        self._receiver: Receiver | None = None
        self._out: list[bytes] = []
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._drained: asyncio.Future[None] | None = None
        self._is_pushing = False
        self._is_flush_due = False
        self._is_reading = False
        self._has_ended = False
        self._is_broken = False
        self._can_poll_in = False
        self._waiting: threading.Semaphore | None = None
        self._was_blocking = True
        self.is_congested = False

    def start(self, receiver: Receiver) -> None:
        """Begin to read. `receiver` gets each line, and `closed` at the end of the input."""
        self._receiver = receiver
        self._was_blocking = os.get_blocking(self._fd_out)
        os.set_blocking(self._fd_out, False)
        try:
            self._loop.add_reader(self._fd_in, self._readable)
            self._is_reading = self._can_poll_in = True
        except (PermissionError, NotImplementedError):
            # A regular file cannot be polled, nor a pipe on Windows: a thread reads instead.
            threading.Thread(target=self._read_in_thread, name="mcpd-stdin", daemon=True).start()

    # -- reading -----------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            chunk = os.read(self._fd_in, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            chunk = b""
        self._push(chunk)

    def end(self) -> None:
        """Who wrote our input is gone: take what was left in the pipe, and no more, whoever else holds it open."""
        if self._has_ended:
            return
        os.set_blocking(self._fd_in, False)
        for _ in range(_HIGH_WATER // _READ_BYTES):  # no pipe holds more
            try:
                chunk = os.read(self._fd_in, _READ_BYTES)
            except OSError:
                break
            self._push(chunk)
        self._push(b"")

    def _push(self, chunk: bytes) -> None:
        receiver = self._receiver
        if self._has_ended or receiver is None:
            return
        self._is_pushing = True
        try:
            if not chunk:
                self._stop_reading()
                self._has_ended = True
            for line in self._splitter.feed(chunk) if chunk else self._splitter.end():
                if line is None:
                    receiver.receive_error(self._too_large())
                else:
                    receiver.receive(line)
        finally:
            self._is_pushing = False
        if self._out:
            self._flush()
        if self._has_ended:
            receiver.closed()

    def _too_large(self) -> FrameTooLarge:
        return FrameTooLarge(f"Message too large: at most {self._splitter.max_frame_bytes} bytes are taken")

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd_in)

    def _read_in_thread(self) -> None:
        turn = threading.Semaphore(0)

        def push(chunk: bytes) -> None:
            self._push(chunk)
            if self.is_congested and not self._always_reads:
                self._waiting = turn
            else:
                turn.release()

        while True:
            try:
                chunk = os.read(self._fd_in, _READ_BYTES)
            except OSError:
                chunk = b""
            try:
                self._loop.call_soon_threadsafe(push, chunk)
            except RuntimeError:  # the loop is gone, and nobody waits for this thread
                return
            if not chunk:
                return
            turn.acquire()

    # -- writing -----------------------------------------------------------------------------

    def send(self, frame: bytes, about: Id | None = None) -> None:
        """Queue one line. All lines of one turn leave in one write."""
        if self._is_broken:
            return
        self._out.append(frame)
        if not self._is_pushing and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._is_flush_due = False
        if self._out and not self._is_pushing:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._unsent:
            for frame in out:
                self._keep(memoryview(frame))
                self._keep(memoryview(b"\n"))
            return
        if sum(map(len, out)) > _JOIN_BYTES:
            # Large frames are not copied to put a newline behind them.
            self._write(deque([memoryview(part) for frame in out for part in (frame, b"\n")]))
            return
        out.append(b"")
        data = b"\n".join(out)
        try:
            written = os.write(self._fd_out, data)
        except OSError:
            written = 0  # full, or broken: the long way finds out which
        if written < len(data):
            self._write(deque([memoryview(data)[written:]]))

    def _write(self, parts: deque[memoryview]) -> None:
        """Give the kernel what it takes; the rest waits for it to be writable."""
        try:
            while parts:
                if len(parts) == 1:
                    written = os.write(self._fd_out, parts[0])
                else:
                    written = os.writev(self._fd_out, [parts[i] for i in range(min(len(parts), 64))])
                while parts and written >= len(parts[0]):
                    written -= len(parts.popleft())
                if written:
                    parts[0] = parts[0][written:]
        except (BlockingIOError, InterruptedError):
            for part in parts:
                self._keep(part)
        except OSError as error:
            self._break(error)

    def _keep(self, part: memoryview) -> None:
        if not self._unsent:
            try:
                self._loop.add_writer(self._fd_out, self._writable)
            except (PermissionError, NotImplementedError):
                os.set_blocking(self._fd_out, True)
                self._loop.call_soon(self._writable)
        self._unsent.append(part)
        self._unsent_bytes += len(part)
        if self._unsent_bytes > _HIGH_WATER and not self.is_congested:
            self.is_congested = True
            if not self._always_reads:
                self._stop_reading()

    def _writable(self) -> None:
        self._loop.remove_writer(self._fd_out)
        parts, self._unsent, self._unsent_bytes = self._unsent, deque(), 0
        self._write(parts)
        if not self._unsent:
            self._relax()

    def _relax(self) -> None:
        """All is written: let senders and the reader go on."""
        if self.is_congested:
            self.is_congested = False
            if not self._has_ended and self._can_poll_in:
                self._loop.add_reader(self._fd_in, self._readable)
                self._is_reading = True
            if self._waiting is not None:
                self._waiting.release()
                self._waiting = None
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _break(self, error: OSError) -> None:
        """Nobody reads our output any more."""
        self._is_broken = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._stop_reading()
        had_ended, self._has_ended = self._has_ended, True
        self._relax()
        if not had_ended and self._receiver is not None:
            self._receiver.closed(ConnectionLost(f"stdout is closed: {error.strerror}"))

    async def drain(self) -> None:
        """Wait until all that was sent is with the kernel."""
        if self._out and not self._is_pushing:
            self._flush()
        if not self._unsent:
            return
        if self._drained is None:
            self._drained = self._loop.create_future()
        await asyncio.shield(self._drained)

    async def aclose(self, reason: str = "") -> None:
        """Stop reading, write what is queued for up to 2 s, and give the descriptor back as it was."""
        self._stop_reading()
        had_ended, self._has_ended = self._has_ended, True
        if not had_ended and self._receiver is not None:
            self._receiver.closed()
        try:
            # Not wait_for: it forgets a cancellation that comes just as the work is done (Python 3.11).
            async with asyncio.timeout(_LAST_SECONDS):
                await self.drain()
        except TimeoutError:
            pass
        finally:
            if self._unsent:
                self._loop.remove_writer(self._fd_out)
                self._unsent.clear()
            if self._receiver is not None and not self._is_broken:
                os.set_blocking(self._fd_out, self._was_blocking)
            self._is_broken = True
