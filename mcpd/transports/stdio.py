"""stdio: one JSON-RPC message per line on the process's own stdin and stdout.

Reads and writes the descriptors itself: 64 KiB a read (asyncio's pipe transport asks for 256 KiB,
which costs an mmap, two page faults and a munmap each time), and one write for all answers that
are ready together. Whose descriptors they are is in `stdio_descriptors`. Spec: 2026-07-28 basic/transports/stdio.
"""

from __future__ import annotations

import asyncio
import io
import os
import select
import sys
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from mcpd.errors import ConfigurationError, ConnectionLost, FrameTooLarge, InternalError, ProtocolError
from mcpd.protocol.budget import OVER, Charge
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.principal import Origin
from mcpd.protocol.session import MAX_FRAME_BYTES
from mcpd.protocol.wire.ndjson import END_BYTES, OversizedMessage, Splitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcpd.protocol.channel import Accept, Receiver
    from mcpd.transports.result_delay import DelayedResults

__all__ = ["MAX_FRAME_BYTES", "StdioChannel"]


_READ_BYTES = 65536
_JOIN_BYTES = 65536
_SMALL_BYTES = 1024
_MOST_LINES = _JOIN_BYTES // _SMALL_BYTES
_HIGH_WATER = 1024 * 1024
_MOST_PARTS = 64
_LAST_SECONDS = 2.0
_LOOK_SECONDS = 0.25


def _is_hung_up(fd: int) -> bool:
    """Whether the other end will write no more, whatever is still to be read. Half closed is enough for a socket."""
    poll = select.poll()
    poll.register(fd, getattr(select, "POLLRDHUP", 0))
    return bool(poll.poll(0))


class StdioChannel:
    """A channel over two descriptors: pipes, sockets, a terminal; files too, read by a thread.

    `drain` and `is_congested` count what the kernel did not take yet. While more than 1 MiB waits, a server's end
    reads nothing either: a client that does not read gets no more work done, and no memory is lost to it.
    A client's end (`always_reads`) goes on: two ends that each wait for the other to read wait for ever.
    """

    is_multiplexed = True

    def __init__(
        self, fd_in: int, fd_out: int, *, max_frame_bytes: int = MAX_FRAME_BYTES, always_reads: bool = False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd_in = fd_in
        self._fd_out = fd_out
        self._always_reads = always_reads
        # What a server may hold is counted, of both directions; neither charge holds this channel.
        self._splitter = Splitter(max_frame_bytes, None if always_reads else Charge(id(self)).set)
        self._charge = Charge(id(self))
        """What waits to be written takes of the budget."""
        self._receiver: Receiver | None = None

        self._out: list[bytes] = []
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._taken_bytes = 0
        """How much of what had to wait was taken since."""
        self._lost_bytes = 0
        """What was sent and nobody will take: there is no reader any more."""
        self._seen_bytes = 0
        self._seen_at = 0.0
        self._watching: asyncio.TimerHandle | None = None
        self._apart: DelayedResults | None = None
        self._drained: asyncio.Future[None] | None = None

        self._is_pushing = False
        self._is_flush_due = False
        self._is_reading = False
        self._is_writer_added = False
        self._has_ended = False
        self._is_broken = False
        self._can_poll_in = False
        self._is_paused = False

        self._read_on_in_thread: Callable[[], None] | None = None
        """Lets the thread that reads for us go on, where it waits for that."""
        self._was_blocking = True
        self.is_congested = False

    def start(self, receiver: Receiver) -> None:
        """Begin to read. `receiver` gets each line, and `closed` at the end of the input."""
        self._receiver = receiver
        self._was_blocking = os.get_blocking(self._fd_out)
        os.set_blocking(self._fd_out, False)
        try:
            self._loop.add_reader(self._fd_in, self._push)
            self._is_reading = self._can_poll_in = True
        except (PermissionError, NotImplementedError):
            # A regular file cannot be polled, nor a pipe on Windows: a thread reads instead.

            read_in_thread(self, self._loop, self._fd_in)

    # -- reading -----------------------------------------------------------------------------

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

    def _push(self, chunk: bytes | None = None) -> None:
        """Hand on what the peer wrote: `chunk`, or what there is to read now; b"" is the end."""
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

        # What is sent meanwhile is kept, and leaves in one write below.
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
        """Take what a thread has read, b"" at the end; `read_on` is called when it may read more."""
        self._push(chunk)
        if self._is_paused or (self.is_congested and not self._always_reads):
            self._read_on_in_thread = read_on
        else:
            read_on()

    def pause(self) -> None:
        """Read nothing until `resume`: what the peer writes waits in the pipe, and then the peer."""
        self._is_paused = True
        self._stop_reading()

    def resume(self) -> None:
        """Read on."""
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
        """Queue one line. The lines of one turn leave in one write, up to 64 KiB or 64 lines."""
        if self._is_broken:
            self._lost_bytes += len(frame) + 1
            return
        out = self._out
        out.append(frame)
        # What is small is not counted byte by byte: that would cost every answer.
        if (len(frame) > _SMALL_BYTES or len(out) > _MOST_LINES) and self._flush_much(frame):
            return

        if not self._is_pushing and not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush_later)

    def _flush_much(self, frame: bytes) -> bool:
        """Whether so much was queued that it left at once: who sends much has to see in time that it is not taken."""
        queued = sum(map(len, self._out))
        if queued <= _JOIN_BYTES and len(self._out) <= _MOST_LINES:
            return False
        is_large = len(frame) > _JOIN_BYTES
        if not (self.is_congested and is_large and self._is_refused(frame, queued)):
            self._flush()
        return True

    def _is_refused(self, frame: bytes, queued: int) -> bool:
        """Whether a large answer, the last that was queued, finds no memory behind those that nobody reads.

        An error has taken its place then.
        """
        if self._always_reads or self._charge.set(self._unsent_bytes + queued):
            return False
        answer = OversizedMessage(frame[:END_BYTES], b"")
        if not answer.is_answer or self._receiver is None:
            return False  # who asks or reports waits for room by itself

        del self._out[-1]
        error = InternalError(OVER)
        error.request_id = answer.id
        self._receiver.receive_error(error)
        return True

    @property
    def untaken_bytes(self) -> int:
        """How much of what was sent is not in the pipe: it waits here, or was lost when the reader went away."""
        return self._lost_bytes + self._unsent_bytes + sum(len(frame) + 1 for frame in self._out)

    def send_apart(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Queue one line that the peer reads by itself: it leaves when what was sent before it was read."""
        if self._is_broken:
            self._lost_bytes += len(frame) + 1
            return
        if self._out:
            self._flush()
        if self._apart is None:
            try:
                from mcpd.transports.result_delay import (
                    DelayedResults,  # few tools report anything, and this costs start-up
                )
            except OSError:  # no descriptor is left to load it with
                self.send(frame)
                return
            self._apart = DelayedResults(self._loop, self.send, self._is_read)
        self._apart.hold(frame)

    def _is_read(self) -> bool:
        from mcpd.transports.result_delay import unread

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
                written = 0  # full, or broken: the long way finds out which
            if written == len(data):
                return
            data = memoryview(data)[written:]

        is_first = not self._unsent
        # A large frame is not copied to put a newline behind it; it is the last, as nothing waits behind it.
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
        """Give the kernel what it takes of what is unsent."""
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
        """All is written: let senders and the reader go on."""
        if self.is_congested:
            self.is_congested = False
            self._read_on()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _break(self, error: OSError) -> None:
        """Nobody reads our output any more."""
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
        """While we do not read we do not see the end of our input: look for it now and then."""
        if self._watching is None and self._can_poll_in and hasattr(select, "poll"):  # not on Windows
            self._seen_bytes, self._seen_at = self._taken_bytes, self._loop.time()
            self._watching = self._loop.call_later(_LOOK_SECONDS, self._poll)

    def _poll(self) -> None:
        """A peer that has hung up and takes nothing of what it asked for is gone, whatever it has not read."""
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
        """Wait until all that was sent is with the kernel."""
        if self._out:
            self._flush()
        if not self._unsent:
            return
        if self._drained is None:
            self._drained = self._loop.create_future()
        await asyncio.shield(self._drained)

    def origin(self, related_request_id: Id | None = None) -> Origin:
        """The process at the other end."""
        return Origin("stdio")

    async def aclose(self, reason: str = "") -> None:
        """Stop reading, write what is queued for up to 2 s, and give the descriptor back as it was."""
        self._stop_reading()
        had_ended, self._has_ended = self._has_ended, True
        if not had_ended and self._receiver is not None:
            self._receiver.closed()

        try:
            # Not wait_for: it forgets a cancellation that comes just as the work is done (Python 3.11).
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


def fill_gaps() -> None:
    """See that the descriptors 0, 1 and 2 are open, if only to nothing, where stdio is not served.

    Else the next sockets get their numbers: what prints writes into them, and libuv aborts when it is to close them.
    Call it before an event loop is made.
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


class StdioListener:
    """One client, over two descriptors: those that `claim` gave, or any pipes or sockets."""

    url = ""

    def __init__(self, fd_in: int, fd_out: int, max_frame_bytes: int | None = None) -> None:
        self._channel = StdioChannel(fd_in, fd_out, max_frame_bytes=max_frame_bytes or MAX_FRAME_BYTES)

    async def start(self, accept: Accept) -> None:
        """Begin to read."""
        self._channel.start(accept(self._channel, is_only=True))

    def pause(self) -> None:
        """What comes now is refused: a session that ends says so."""

    async def aclose(self) -> None:
        """Send what is queued, within bounds, and give the descriptors back."""
        await self._channel.aclose()


if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from typing import Protocol

    class Taker(Protocol):
        """Where what is read goes, on the event loop's thread."""

        def take(self, chunk: bytes, read_on: Callable[[], None]) -> None:
            """Take it, b"" at the end; `read_on` lets the thread read more."""


def read_in_thread(taker: Taker, loop: asyncio.AbstractEventLoop, fd: int) -> None:
    """Begin to read: each piece is taken before the next is read. The thread ends with its input, or with the loop."""
    turn = threading.Semaphore(0)

    def read() -> None:
        while True:
            try:
                chunk = os.read(fd, _READ_BYTES)
            except OSError:
                chunk = b""

            try:
                loop.call_soon_threadsafe(taker.take, chunk, turn.release)
            except RuntimeError:  # the loop is gone, and nobody waits for this thread
                return

            if not chunk:
                return
            turn.acquire()

    # A daemon: a read that never ends must not keep the process.
    threading.Thread(target=read, name="mcpd-stdin", daemon=True).start()
