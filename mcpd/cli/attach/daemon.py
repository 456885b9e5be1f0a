"""The daemon's side: takes the descriptors of clients, and decides whom it may serve.

The daemon reads a host's pipe itself, so attaching adds nothing to a round trip. Each client has a control connection
to the process that the host started (`shim`). Its end means that this process was killed, a line on it means a signal,
and the daemon's own line at the end is the exit code. Programs, lifespan, caches and threads are shared; a session, its
version, its subscriptions and its log lines are not.

A client whose program, folder or environment differs is refused, even if the name of the socket is the same. If the
code has changed since it was loaded, the daemon gives up its socket, serves its clients to their end, and ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from mcpd.cli.log import open_writer, output
from mcpd.errors import ConfigurationError
from mcpd.protocol.principal import ClientProcess, Origin
from mcpd.protocol.printable import printable
from mcpd.server.observe.control import checked_folder
from mcpd.server.observe.http_thread import check_peer
from mcpd.sources.files import Stamp, stamp_of
from mcpd.transports.stdio import StdioChannel
from .shim import (
    ACCEPTED,
    GREETING,
    MOST_GREETING_BYTES,
    READY_DESCRIPTOR,
    STARTED_FOR,
    identity,
    read_rule,
    rule_path,
    socket_path,
)

if TYPE_CHECKING:
    from mcpd.protocol.channel import Accept, Ending
    from mcpd.server import Server
    from mcpd.server.dispatcher import ServerConnection
    from mcpd.server.settings import Options
    from mcpd.sources.watch import Watched

log = logging.getLogger("mcpd")

GREETING_SECONDS = 5.0
"""How long a client may take to hand over its descriptors."""

MOST_LOG_BYTES = 4 * 1024 * 1024
"""At this size the file with the messages of the daemon is emptied."""

_BUSY_SECONDS = 1.0
_MOST_WAITING = 256


def is_daemon() -> bool:
    """Whether this process was started as a daemon."""
    return STARTED_FOR in os.environ


class AttachListener:
    """The listener of a daemon. After `options.linger` seconds without clients and work it ends the process.

    A change of `loaded` makes it stale.
    """

    url = ""

    def __init__(self, server: Server, options: Options, loaded: Sequence[Watched]) -> None:
        self._server = server
        self._options = options
        self._loaded = loaded

        os.environ.pop(STARTED_FOR, None)  # not for child processes
        self._folder = ""
        self._path = ""
        self._identity = b""
        self._socket: socket.socket | None = None
        self._clients: dict[asyncio.Task[None], _Client | None] = {}
        self._stamps: dict[str, Stamp | None] = {}
        self._idle: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> Iterable[Ending]:
        """The connections of all clients."""
        return [client.connection for client in self._clients.values() if client is not None]

    async def start(self, accept: Accept) -> None:
        """Listen, and notify the process that started this one. Raises ConfigurationError."""
        self._folder = str(checked_folder(make=True))
        loop = asyncio.get_running_loop()
        try:
            self._write_rule()
            self._identity = identity(read_rule(self._folder))
            self._path = socket_path(self._folder, self._identity)
            is_first = self._bind()
        except OSError as error:
            raise ConfigurationError(f"the daemon cannot listen: {error.strerror or error}") from None

        self._stamps = self._stamped()
        if is_first:
            assert self._socket is not None
            loop.add_reader(self._socket, self._accept_all)
            self._wait_for_clients()
        else:
            # Another process serves the same clients since the author has named what counts.
            self._end_process()

        with suppress(OSError):
            os.write(READY_DESCRIPTOR, ACCEPTED)
            os.close(READY_DESCRIPTOR)

    def pause(self) -> None:
        """Accept no more clients, and refuse new requests of the others."""
        self._give_up_socket()
        for client in self._clients.values():
            if client is not None:
                client.channel.pause()

    async def aclose(self) -> None:
        """End every connection."""
        self._give_up_socket()
        if self._idle is not None:
            self._idle.cancel()
        for task, client in list(self._clients.items()):
            if client is None:
                task.cancel()
            else:
                client.stop()
        if self._clients:
            await asyncio.wait(self._clients)

    # -- the socket --------------------------------------------------------------------------

    def _write_rule(self) -> None:
        rule = self._server.attach
        path = rule_path(self._folder)
        if rule is None:
            with suppress(FileNotFoundError):
                os.unlink(path)
            return
        text = "\n".join(("cwd" if rule.cwd else "", *(["*"] if rule.environ is None else sorted(rule.environ))))
        draft = f"{path}.{os.getpid()}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(draft, path)

    def _bind(self) -> bool:
        # Whether this process now listens; false if another one does.
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.setblocking(False)
        # Renamed into place, so that a client never finds a socket that does not listen yet.
        draft = f"{self._path}.{os.getpid()}"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
                try:
                    other.connect(self._path)
                    listening.close()
                    return False
                except OSError:
                    pass
            listening.bind(draft)
            os.chmod(draft, 0o600)
            listening.listen(_MOST_WAITING)
            os.rename(draft, self._path)
        except OSError:
            listening.close()
            raise

        self._socket = listening
        return True

    def _give_up_socket(self) -> None:
        # A client that is still in the queue gets no answer, and starts another daemon.
        listening, self._socket = self._socket, None
        if listening is None:
            return
        asyncio.get_running_loop().remove_reader(listening)
        with suppress(OSError):
            os.unlink(self._path)
        listening.close()

    def _accept_all(self) -> None:
        while self._socket is not None:
            try:
                control, _ = self._socket.accept()
            except OSError:
                return
            control.setblocking(False)
            task = asyncio.ensure_future(self._serve(control))
            self._clients[task] = None
            task.add_done_callback(self._ended)

    # -- one client --------------------------------------------------------------------------

    async def _serve(self, control: socket.socket) -> None:
        descriptors: list[int] = []
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                greeting = await _read_greeting(control, descriptors)
            reason = self._refusal(control, greeting, descriptors)
            if reason:
                control.send(reason.encode())
            if reason is None:
                client = _Client(self._server, control, descriptors, greeting[1], self._options.max_frame_bytes)
                this = asyncio.current_task()
                assert this is not None
                self._clients[this] = client
                control.send(ACCEPTED)
                await client.run(self._options.grace)
        except (OSError, TimeoutError, ValueError) as error:
            log.debug("a client cannot be attached: %s", printable(error))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            control.close()

    def _refusal(self, control: socket.socket, greeting: tuple[bytes, bytes], descriptors: list[int]) -> str | None:
        # Why a client cannot be served; "" if this daemon is about to end, None if it can.
        if not check_peer(control):
            return "it belongs to another user"
        if greeting[0] != self._identity:
            return "another program or environment has a daemon of the same name"
        if len(descriptors) != 3 or not all(map(_is_pipe, descriptors[:2])):
            return "stdin and stdout must be pipes or sockets"
        if self._socket is None or self._is_stale():
            self._give_up_socket()
            return ""
        if os.fstat(2).st_size > MOST_LOG_BYTES and stat.S_ISREG(os.fstat(2).st_mode):
            os.ftruncate(2, 0)
        return None

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._clients[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an attached client has ended with an error", exc_info=error)
        if not self._clients:
            self._wait_for_clients()

    # -- its own end -------------------------------------------------------------------------

    def _wait_for_clients(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        # A stale daemon waits for no further client.
        seconds = self._options.linger if self._socket is not None else 0.0
        self._idle = asyncio.get_running_loop().call_later(seconds, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._clients:
            return
        if any(extension.is_busy for extension in self._server.extensions.values()):
            self._idle = asyncio.get_running_loop().call_later(_BUSY_SECONDS, self._end_if_idle)
        else:
            self._end_process()

    def _end_process(self) -> None:
        self._give_up_socket()
        # With the usual signal, so that running work is finished first.
        signal.raise_signal(signal.SIGTERM)

    def _is_stale(self) -> bool:
        known = self._stamps
        now = self._stamped()
        return any(now.get(path, stamp_of(path)) != stamp for path, stamp in known.items()) or any(
            path not in known and path in self._targets for path in now
        )

    def _stamped(self) -> dict[str, Stamp | None]:
        self._targets = {path for each in self._loaded for path in each.files()}
        folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        return {path: stamp_of(path) for path in (*self._targets, *folders, __file__)}


class _Client:
    """One attached client."""

    def __init__(
        self, server: Server, control: socket.socket, descriptors: list[int], about: bytes, max_frame_bytes: int
    ) -> None:
        self._control = control
        self._loop = asyncio.get_running_loop()
        # The lines of the waiting process: that it waits, then one for each signal; -1 if it is gone.
        self._lines = 0
        self._is_waiting = asyncio.Event()
        self._stopped = self._loop.create_future()
        pid, _, cwd = about.partition(b"\0")
        named = () if server.attach is None else server.attach.environ or ()
        environ = {name: os.environ[name] for name in named if name in os.environ}
        origin = Origin("stdio", process=ClientProcess(int(pid), os.fsdecode(cwd), environ))
        self.channel = _AttachedChannel(descriptors[0], descriptors[1], origin, max_frame_bytes)
        self.connection: ServerConnection = server.connect(self.channel)
        self._stderr, self._write = open_writer(descriptors[2])
        self._owns_stderr = self._stderr != descriptors[2]

        # Everything that this client causes runs in this context, and so do its log lines.
        self._context = copy_context()
        self._context.run(output.set, self._log)

    def _log(self, data: bytes) -> None:
        # A client that does not read loses lines, and does not delay other clients.
        if self._write is not None:
            with suppress(OSError):
                self._write(data)

    def stop(self) -> None:
        """End the client as a signal does."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def run(self, grace: float) -> None:
        """Serve until the client has closed its end, or its process was stopped or killed."""
        self._loop.add_reader(self._control, self._read_control)
        ended = self.connection.ended
        try:
            async with asyncio.timeout(GREETING_SECONDS):
                await self._is_waiting.wait()
            self._context.run(self.channel.start, self.connection)
            await asyncio.wait([ended, self._stopped], return_when=asyncio.FIRST_COMPLETED)
            is_lost = self._lines < 0 or (ended.done() and ended.result() is not None)
            await self.connection.finish(0 if is_lost else grace)
        finally:
            await self.channel.aclose()
            self._loop.remove_reader(self._control)
            if self._owns_stderr:
                os.close(self._stderr)
            with suppress(OSError):
                self._control.send(b"0\n")

    def _read_control(self) -> None:
        try:
            data = self._control.recv(64)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""

        if not data:
            # The process was killed, so there may be no reader.
            self._loop.remove_reader(self._control)
            self._lines = -1
            self.connection.closed()
            self.connection.abort()
        else:
            self._lines += data.count(b"\n")
            if self._lines > 2:
                self.connection.abort()

        self._is_waiting.set()
        if self._lines != 1:
            self.stop()


class _AttachedChannel(StdioChannel):
    def __init__(self, fd_in: int, fd_out: int, origin: Origin, max_frame_bytes: int) -> None:
        super().__init__(fd_in, fd_out, max_frame_bytes=max_frame_bytes)
        self._origin = origin

    def origin(self, related_request_id: Any = None) -> Origin:
        return self._origin


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


async def _read_greeting(control: socket.socket, descriptors: list[int]) -> tuple[bytes, bytes]:
    # Returns the identity and the description of a client. Appends its descriptors, which the caller closes.
    # Raises ValueError for other bytes.
    data = bytearray()
    loop = asyncio.get_running_loop()
    lengths: list[int] | None = None
    while lengths is None or len(data) < sum(lengths):
        readable = asyncio.Event()
        loop.add_reader(control, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(control)
        part, received, flags, _ = socket.recv_fds(control, 65536, 3)
        descriptors += received
        if not part or flags & socket.MSG_CTRUNC or len(descriptors) > 3 or len(data) > MOST_GREETING_BYTES:
            raise ValueError("not a greeting")
        data += part
        if lengths is None:
            head, newline, body = bytes(data[len(GREETING) :]).partition(b"\n")
            if not data.startswith(GREETING[: len(data)]) or len(head) > 32:
                raise ValueError("not a greeting")
            if newline:
                lengths = [int(number) for number in head.split()]
                if len(lengths) != 2 or not all(0 <= number <= MOST_GREETING_BYTES for number in lengths):
                    raise ValueError("not a greeting")
                data = bytearray(body)

    return bytes(data[: lengths[0]]), bytes(data[lengths[0] : sum(lengths)])
