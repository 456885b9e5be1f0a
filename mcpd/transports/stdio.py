"""stdio: one JSON-RPC message per line on stdin and stdout. Spec: 2026-07-28 basic/transports/stdio.

The channel reads and writes the file descriptors itself: 64 KiB per read (asyncio's pipe transport reads 256 KiB, which
costs an mmap each time), and one write for all answers that are ready together.

A result is delayed after the last notification of its request (`DelayedResults`, also for WebSocket), because
TypeScript clients dispatch a notification one microtask later than a result. If both arrive in one piece, the last
progress of a call comes after its result and is dropped. Two writes do not help while the peer is not reading, because
a pipe joins them. So such a result waits until the peer has read everything before it, but for one second at most.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import stat
import sys
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct, field

from mcpd.errors import ConfigurationError, ConnectionLost, FrameTooLarge, InternalError, ProtocolError
from mcpd.protocol.budget import OVER, Charge
from mcpd.protocol.jsonrpc import Id, encode
from mcpd.protocol.principal import Origin
from mcpd.protocol.session import MAX_FRAME_BYTES
from mcpd.protocol.wire.ndjson import END_BYTES, OversizedMessage, Splitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.protocol.channel import Accept, Receiver

__all__ = ["MAX_FRAME_BYTES", "StdioChannel"]


_READ_BYTES = 65536
_JOIN_BYTES = 65536
_SMALL_BYTES = 1024
_MOST_LINES = _JOIN_BYTES // _SMALL_BYTES
_HIGH_WATER = 1024 * 1024
_MOST_PARTS = 64
_LAST_SECONDS = 2.0
_TICK = 0.001
_HELD_SECONDS = 1.0
_HELD_BYTES = 1024 * 1024
_LOOK_SECONDS = 0.25


def _is_hung_up(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


class Wakeup(Struct, eq=False):
    """Wakes tasks that wait for an event. A future exists only while something waits."""

    _future: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._future)

    def wake(self) -> None:
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(None)


class DelayedResults(Struct, eq=False):
    """Holds frames until the peer has read everything before them, for at most one second and 1 MiB.

    `is_read` returns whether the peer has done so; without `is_read`, the owner calls `release`.
    """

    _loop: asyncio.AbstractEventLoop
    _send: Callable[[bytes], None]
    _is_read: Callable[[], bool] | None = None
    _held: deque[tuple[float, bytes]] = field(default_factory=deque)
    _bytes: int = 0
    _timer: asyncio.TimerHandle | None = None
    _settled: Wakeup = field(default_factory=Wakeup)

    def hold(self, frame: bytes) -> None:
        """Hold a frame, behind those that are held already."""
        self._held.append((self._loop.time() + _HELD_SECONDS, frame))
        self._bytes += len(frame)
        if self._bytes > _HELD_BYTES:
            self.release()
        elif self._timer is None:
            self._set_timer()

    def release(self, leaving: int = 0) -> None:
        """Send all held frames except the last `leaving`."""
        while len(self._held) > leaving:
            _, frame = self._held.popleft()
            self._bytes -= len(frame)
            self._send(frame)
        if not self._held:
            self._settled.wake()

    def _set_timer(self) -> None:
        self._timer = self._loop.call_later(_HELD_SECONDS if self._is_read is None else _TICK, self._poll)

    def _poll(self) -> None:
        self._timer = None
        if self._held and self._is_read is not None and self._is_read():
            self.release()
        now = self._loop.time()
        self.release(leaving=sum(deadline > now for deadline, _ in self._held))
        if self._held:
            self._set_timer()

    async def settle(self) -> None:
        if self._held:
            await self._settled.wait()

    def close(self) -> None:
        self._held.clear()
        self._settled.wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def unread(descriptor: int) -> int:
    """Return the bytes in a pipe or socket that the peer has not read yet, or for TCP not received; 0 if unknown."""
    try:
        # Imported with the first delayed result.
        import fcntl
        import termios
    except ImportError:  # Windows
        return 0

    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode):
            what = termios.FIONREAD
        elif stat.S_ISSOCK(mode):
            what = termios.TIOCOUTQ
        else:
            return 0
        return int.from_bytes(fcntl.ioctl(descriptor, what, bytes(4)), sys.byteorder)
    except OSError:
        return 0


class StdioChannel:
    """A channel over two file descriptors: pipes, sockets, a terminal, or files, which a thread reads.

    While more than 1 MiB waits to be written, a server's end does not read either, so that a client which does not
    read cannot fill the memory. A client's end (`always_reads`) keeps reading: two ends that wait for each other would
    wait forever.
    """

    is_multiplexed = True

    def __init__(
        self, fd_in: int, fd_out: int, *, max_frame_bytes: int = MAX_FRAME_BYTES, always_reads: bool = False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd_in = fd_in
        self._fd_out = fd_out
        self._always_reads = always_reads
        # The bytes that a server holds are counted in both directions. The charges must not refer to this channel.
        self._splitter = Splitter(max_frame_bytes, None if always_reads else Charge(id(self)).set)
        # Counts the bytes that wait to be written.
        self._charge = Charge(id(self))
        self._receiver: Receiver | None = None

        self._out: list[bytes] = []
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        # Bytes that had to wait and were written since.
        self._taken_bytes = 0
        # Bytes that were lost because the reader has gone.
        self._lost_bytes = 0
        self._seen_bytes = 0
        self._seen_at = 0.0
        self._watching: asyncio.TimerHandle | None = None
        self._apart: DelayedResults | None = None
        self._drained = Wakeup()

        self._is_pushing = False
        self._is_flush_due = False
        self._is_reading = False
        self._is_writer_added = False
        self._has_ended = False
        self._is_broken = False
        self._can_poll_in = False
        self._is_paused = False

        # Lets the reading thread continue, if there is one.
        self._read_on_in_thread: Callable[[], None] | None = None
        self._was_blocking = True
        self.is_congested = False

    def start(self, receiver: Receiver) -> None:
        """Start reading. `receiver` gets each line, and `closed` at the end of the input."""
        self._receiver = receiver
        self._was_blocking = os.get_blocking(self._fd_out)
        os.set_blocking(self._fd_out, False)
        try:
            self._loop.add_reader(self._fd_in, self._push)
            self._is_reading = self._can_poll_in = True
        except (PermissionError, NotImplementedError):
            # Regular files, and pipes on Windows, cannot be polled: a thread reads them.
            _read_in_thread(self, self._loop, self._fd_in)

    # -- reading -----------------------------------------------------------------------------

    def end(self) -> None:
        """Read the rest of the pipe and stop: the writer has exited, though other processes may hold the pipe open."""
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

    def _push(self, chunk: bytes | None = None) -> None:
        # Process `chunk`, or the bytes that can be read now; b"" is the end.
        if chunk is None:
            try:
                chunk = os.read(self._fd_in, _READ_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                chunk = b""

        receiver = self._receiver
        if self._has_ended or receiver is None:
            return

        # Frames sent meanwhile are collected and written together below.
        self._is_pushing = True
        try:
            if not chunk:
                self._stop_reading()
                self._has_ended = True
            for line in self._splitter.feed(chunk) if chunk else self._splitter.end():
                if line.__class__ is OversizedMessage:
                    receiver.receive_error(self._not_taken(line))
                else:
                    receiver.receive(line)  # type: ignore[arg-type]
        finally:
            self._is_pushing = False
            if self._out:
                self._flush()

        if self._has_ended:
            receiver.closed()

    def _not_taken(self, line: OversizedMessage) -> ProtocolError:
        error: ProtocolError
        if line.is_refused and not line.is_answer:
            error = InternalError(OVER)
        else:
            most = self._splitter.max_frame_bytes
            error = FrameTooLarge(OVER if line.is_refused else f"Message too large: at most {most} bytes are taken")
            error.is_answer = line.is_answer

        error.request_id = line.id
        return error

    def take(self, chunk: bytes, read_on: Callable[[], None]) -> None:
        """Process a chunk that was read elsewhere, b"" at the end; `read_on` is called when that may continue."""
        self._push(chunk)
        if self._is_paused or (self.is_congested and not self._always_reads):
            self._read_on_in_thread = read_on
        else:
            read_on()

    def pause(self) -> None:
        """Stop reading until `resume`. The peer's data waits in the pipe."""
        self._is_paused = True
        self._stop_reading()

    def resume(self) -> None:
        self._is_paused = False
        if not self.is_congested or self._always_reads:
            self._read_on()

    def _read_on(self) -> None:
        if self._is_paused:
            return
        if not self._has_ended and self._can_poll_in and not self._is_reading:
            self._loop.add_reader(self._fd_in, self._push)
            self._is_reading = True
        read_on, self._read_on_in_thread = self._read_on_in_thread, None
        if read_on is not None:
            read_on()

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd_in)

    # -- writing -----------------------------------------------------------------------------

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one line. The lines of one iteration are written together, up to 64 KiB or 64 lines."""
        if self._is_broken:
            self._lost_bytes += len(frame) + 1
            return
        out = self._out
        out.append(frame)
        # Small frames are not counted, because counting would slow down every answer.
        if (len(frame) > _SMALL_BYTES or len(out) > _MOST_LINES) and self._flush_much(frame):
            return

        if not self._is_pushing and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_later)

    def _flush_much(self, frame: bytes) -> bool:
        # Write at once if much is queued, so that senders notice a slow reader in time. Return whether it did.
        queued = sum(map(len, self._out))
        if queued <= _JOIN_BYTES and len(self._out) <= _MOST_LINES:
            return False
        is_large = len(frame) > _JOIN_BYTES
        if not (self.is_congested and is_large and self._is_refused(frame, queued)):
            self._flush()
        return True

    def _is_refused(self, frame: bytes, queued: int) -> bool:
        # A large response that is the last in the queue is refused if the unread ones before it have used up the
        # memory.
        if self._always_reads or self._charge.set(self._unsent_bytes + queued):
            return False
        answer = OversizedMessage(frame[:END_BYTES], b"")
        if not answer.is_answer or self._receiver is None:
            return False  # requests and notifications wait for room elsewhere

        del self._out[-1]
        error = InternalError(OVER)
        error.request_id = answer.id
        self._receiver.receive_error(error)
        return True

    @property
    def untaken_bytes(self) -> int:
        """Bytes that were sent but are not in the pipe: they are still queued here, or were lost with the reader."""
        return self._lost_bytes + self._unsent_bytes + sum(len(frame) + 1 for frame in self._out)

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one line that is written after the peer has read the lines before it."""
        if self._is_broken:
            self._lost_bytes += len(frame) + 1
            return
        if self._out:
            self._flush()
        if self._apart is None:
            self._apart = DelayedResults(self._loop, self.send, self._is_read)
        self._apart.hold(frame)

    def _is_read(self) -> bool:
        return not self._out and not self._unsent and not unread(self._fd_out)

    def _flush_later(self) -> None:
        self._is_flush_due = False
        if self._out and not self._is_pushing:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        large = out.pop() if len(out[-1]) > _JOIN_BYTES else None
        out.append(b"")
        data: bytes | memoryview = b"\n".join(out)
        if not self._unsent and large is None:
            try:
                written = os.write(self._fd_out, data)
            except OSError:
                written = 0  # full or broken; the slower path below finds out which
            if written == len(data):
                return
            data = memoryview(data)[written:]

        is_first = not self._unsent
        # A large frame is not copied only to append a newline. It is always the last one, because it is written at
        # once.
        for part in (data,) if large is None else (data, large, b"\n"):
            if part:
                self._unsent.append(memoryview(part))
                self._unsent_bytes += len(part)
        if is_first:
            self._write()
            if self._unsent:
                self._await_writable()

        if self._unsent_bytes > _HIGH_WATER and not self.is_congested:
            self.is_congested = True
            if not self._always_reads:
                self._charge.set(self._unsent_bytes)
                self._stop_reading()
                self._watch()

    def _write(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                if len(unsent) == 1:
                    written = os.write(self._fd_out, unsent[0])
                else:
                    written = os.writev(self._fd_out, list(islice(unsent, _MOST_PARTS)))
                self._unsent_bytes -= written
                self._taken_bytes += written

                # The kernel may stop anywhere, also in the middle of a line.
                while unsent and written >= len(unsent[0]):
                    written -= len(unsent.popleft())
                if written:
                    unsent[0] = unsent[0][written:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._break(error)

    def _await_writable(self) -> None:
        try:
            self._loop.add_writer(self._fd_out, self._writable)
            self._is_writer_added = True
        except (PermissionError, NotImplementedError):
            os.set_blocking(self._fd_out, True)
            self._loop.call_soon(self._writable)

    def _writable(self) -> None:
        self._write()
        if self._unsent_bytes < self._charge.size:
            self._charge.set(self._unsent_bytes)
        if not self._unsent:
            self._stop_writing()
            self._relax()

    def _stop_writing(self) -> None:
        if self._is_writer_added:
            self._is_writer_added = False
            self._loop.remove_writer(self._fd_out)

    def _relax(self) -> None:
        if self.is_congested:
            self.is_congested = False
            self._read_on()
        self._drained.wake()

    def _break(self, error: OSError) -> None:
        self._is_broken = True
        self._drop()
        self._lose(f"stdout is closed: {error.strerror}")

    def _drop(self) -> None:
        self._stop_writing()
        self._lost_bytes += self._unsent_bytes
        self._unsent.clear()
        self._unsent_bytes = 0
        self._charge.set(0)

    def _lose(self, reason: str) -> None:
        self._stop_reading()
        had_ended, self._has_ended = self._has_ended, True
        self._relax()
        if not had_ended and self._receiver is not None:
            self._receiver.closed(ConnectionLost(reason))

    # -- a peer that reads nothing -----------------------------------------------------------

    def _watch(self) -> None:
        # Poll for the end of the input while reading is paused.
        if self._watching is None and self._can_poll_in and hasattr(select, "poll"):  # not on Windows
            self._seen_bytes, self._seen_at = self._taken_bytes, self._loop.time()
            self._watching = self._loop.call_later(_LOOK_SECONDS, self._poll)

    def _poll(self) -> None:
        # Close if the peer has hung up and does not read its answers.
        self._watching = None
        if not self.is_congested or self._has_ended:
            return

        now = self._loop.time()
        if self._taken_bytes != self._seen_bytes or not _is_hung_up(self._fd_in):
            self._seen_bytes, self._seen_at = self._taken_bytes, now
        elif now - self._seen_at > _LAST_SECONDS:
            self._lose("stdin has ended, and nobody reads stdout")
            return
        self._watching = self._loop.call_later(_LOOK_SECONDS, self._poll)

    async def drain(self) -> None:
        """Wait until the kernel has accepted everything that was sent."""
        if self._out:
            self._flush()
        if self._unsent:
            await self._drained.wait()

    def origin(self, related_request_id: Id | None = None) -> Origin:
        return Origin("stdio")

    async def aclose(self, reason: str = "") -> None:
        """Stop reading, write the queue for up to 2 s, and restore the descriptor's blocking mode."""
        self._stop_reading()
        had_ended, self._has_ended = self._has_ended, True
        if not had_ended and self._receiver is not None:
            self._receiver.closed()

        try:
            # `wait_for` loses a cancellation that arrives just as the work is done (Python 3.11).
            async with asyncio.timeout(_LAST_SECONDS):
                if self._apart is not None:
                    await self._apart.settle()
                await self.drain()
        except TimeoutError:
            pass
        finally:
            self._drop()
            if self._apart is not None:
                self._apart.close()
            if self._watching is not None:
                self._watching.cancel()
            if self._receiver is not None and not self._is_broken:
                os.set_blocking(self._fd_out, self._was_blocking)
            self._is_broken = True


def claim() -> tuple[int, int]:
    """Take stdin and stdout for the protocol and return their new descriptors (in, out).

    Afterwards descriptor 0 is empty and descriptor 1 is stderr, for Python, C and child processes alike. Call this
    before any code of the user is imported. Raises ConfigurationError if one of them is closed.
    """
    for fd, name in enumerate(("stdin", "stdout")):
        if not _is_open(fd):
            raise ConfigurationError(f"{name} is closed; --stdio needs stdin and stdout, as a host provides them")

    if not _is_open(2):
        # Otherwise the next file that is opened would become stderr.
        _open_nothing(2, os.O_WRONLY)

    if sys.stdout is not None:
        sys.stdout.flush()
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Prints for debugging must appear at once, not when the server ends.
            sys.stdout.reconfigure(line_buffering=True)

    fd_in, fd_out = os.dup(0), os.dup(1)
    _open_nothing(0, os.O_RDONLY)
    os.dup2(2, 1)
    return fd_in, fd_out


def fill_gaps() -> None:
    """Open the descriptors 0, 1 and 2 on the null device if they are closed. Call this before an event loop is created.

    Otherwise the next sockets get their numbers: prints would be written into them, and libuv aborts when it closes
    them.
    """
    for fd, how in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        if not _is_open(fd):
            _open_nothing(fd, how)


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


class _ContinuedChannel(StdioChannel):
    """Goes on where another reader has stopped. The answer to `answered` is dropped, because the client has it."""

    answered: Id | None = None

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        if self.answered is not None and frame.startswith(b'{"jsonrpc":"2.0","id":%b,"result"' % encode(self.answered)):
            self.answered = None
        else:
            super().send(frame, related_request_id, method)


class StdioListener:
    """The listener of one client over two descriptors: those from `claim`, or any pipes or sockets.

    `received` is what was read from the first one already, and the id of its first request if that has its answer.
    """

    url = ""

    def __init__(
        self,
        fd_in: int,
        fd_out: int,
        max_frame_bytes: int | None = None,
        received: tuple[bytes, Id | None] | None = None,
    ) -> None:
        self._received, answered = received or (b"", None)
        kind = StdioChannel if answered is None else _ContinuedChannel
        self._channel = kind(fd_in, fd_out, max_frame_bytes=max_frame_bytes or MAX_FRAME_BYTES)
        if isinstance(self._channel, _ContinuedChannel):
            self._channel.answered = answered

    async def start(self, accept: Accept) -> None:
        self._channel.start(accept(self._channel, is_only=True))
        if self._received:
            self._channel.take(self._received, lambda: None)

    def pause(self) -> None:
        """Do nothing: the session refuses new requests."""

    async def aclose(self) -> None:
        """Write the queue for a limited time, and restore the descriptors."""
        await self._channel.aclose()


def _read_in_thread(channel: StdioChannel, loop: asyncio.AbstractEventLoop, fd: int) -> None:
    # Start a thread that reads one chunk at a time. It ends with its input or with the loop.
    turn = threading.Semaphore(0)

    def read() -> None:
        while True:
            try:
                chunk = os.read(fd, _READ_BYTES)
            except OSError:
                chunk = b""

            try:
                loop.call_soon_threadsafe(channel.take, chunk, turn.release)
            except RuntimeError:  # the loop is closed
                return

            if not chunk:
                return
            turn.acquire()

    # A daemon thread, because a blocked read must not keep the process alive.
    threading.Thread(target=read, name="mcpd-stdin", daemon=True).start()
