"""The backplane of `--workers`: a `MemoryBackplane` in the parent process, and a socket to it in each worker.

`SharedBackplane` is the worker's end, `SharedMemory` the parent's. A frame is four bytes with its length, then
MessagePack: no pickle, so that only numbers, texts, bytes and lists are decoded. Commands are sent immediately and in
order. The parent executes a command in the iteration of the event loop that reads it, because nothing in memory waits.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, TypeAlias, cast

from msgspec import Meta, MsgspecError, convert
from msgspec.msgpack import Decoder, Encoder

from .base import BackplaneAway, Receive
from .memory import LocalBus, MemoryBackplane, Remote

MOST_FRAME_BYTES = 80 * 1024 * 1024
"""More than the largest message that any transport accepts."""

_HEAD_BYTES = 4

Frame: TypeAlias = tuple[int, str, Any]
"""The number of a command, a word, and the body."""

_encode = Encoder().encode
_decode = Decoder(Frame).decode


def encode_frame(number: int, word: str, body: object) -> bytes:
    """Encode a frame. Raises ValueError if it is too large."""
    data = _encode((number, word, body))
    if len(data) > MOST_FRAME_BYTES:
        raise ValueError(f"a frame of {len(data)} bytes is too large")
    return len(data).to_bytes(_HEAD_BYTES, "big") + data


class FrameProtocol(asyncio.Protocol):
    """One end of a connection. `take` receives each frame; `lost` is called once, when the connection has ended.

    A malformed frame ends the connection.
    """

    def __init__(self, take: Callable[[int, str, Any], object], lost: Callable[[], object]) -> None:
        self.transport: asyncio.Transport | None = None
        self._take = take
        self._lost = lost
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports do not derive from it

    def data_received(self, data: bytes) -> None:
        held = self._data
        held += data
        at = 0
        while len(held) - at >= _HEAD_BYTES:
            size = int.from_bytes(held[at : at + _HEAD_BYTES], "big")
            if size > MOST_FRAME_BYTES:
                self._abort()
                return
            end = at + _HEAD_BYTES + size
            if len(held) < end:
                break
            try:
                number, word, body = _decode(bytes(held[at + _HEAD_BYTES : end]))
            except (MsgspecError, RecursionError):  # the latter for data nested too deeply
                self._abort()
                return
            at = end
            self._take(number, word, body)

        del held[:at]

    def _abort(self) -> None:
        self._data.clear()
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._lost()


async def connect_frames(protocol: FrameProtocol, connected: socket.socket) -> None:
    """Connect a protocol to one end of a pair of sockets, and take it over. Raises OSError."""
    connected.setblocking(False)
    await asyncio.get_running_loop().create_unix_connection(lambda: protocol, sock=connected)


log = logging.getLogger("mcpd")

GAP = "gap"
"""The word of a frame that reports lost messages to a worker that did not read."""

# Seconds to wait for a response, so that no caller waits longer than 3.
_ANSWER = 2.5
_MOST_WAITING = 10_000
_MOST_UNSENT_BYTES = 128 * 1024 * 1024


class SharedBackplane(Remote):
    """See `Backplane`. Takes over `connected`, the worker's end of the socket.

    Once the parent has ended, the backplane stays away.
    """

    def __init__(self, connected: socket.socket) -> None:
        super().__init__()
        self._socket = connected
        # Why no command can be sent any more; empty while it is possible.
        self._is_over = ""
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._unsent: list[bytes] = []
        self._local = LocalBus()
        self._protocol: FrameProtocol | None = None
        self._connecting: asyncio.Task[None] | None = None

    async def aclose(self) -> None:
        self._end("the backplane is closed")
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        transport = None if self._protocol is None else self._protocol.transport
        if transport is None:
            self._socket.close()
        else:
            transport.close()

    # -- commands ----------------------------------------------------------------------------

    async def _ask(self, word: str, *body: object) -> Any:
        loop = asyncio.get_running_loop()
        if self._is_over:
            raise BackplaneAway(self._is_over)
        has_room = len(self._waiting) < _MOST_WAITING and self._unsent_bytes() <= _MOST_UNSENT_BYTES
        self.check_reachable(has_room=has_room)

        self._number += 1
        number = self._number
        try:
            frame = encode_frame(number, word, body)
        except ValueError as error:
            raise BackplaneAway(f"the backplane: {error}") from None

        answer = self._waiting[number] = loop.create_future()
        self._send(frame)
        try:
            async with asyncio.timeout(_ANSWER):
                found, why = await answer
        except TimeoutError:
            self.lost("the parent process does not respond")
            raise BackplaneAway("the backplane does not respond") from None
        finally:
            self._waiting.pop(number, None)

        if why:
            raise BackplaneAway(f"the backplane: {why}")
        return found

    def _send(self, frame: bytes) -> None:
        transport = None if self._protocol is None else self._protocol.transport
        if transport is not None:
            transport.write(frame)
            return
        self._unsent.append(frame)
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(), name="mcpd-backplane")

    def _unsent_bytes(self) -> int:
        transport = None if self._protocol is None else self._protocol.transport
        return sum(map(len, self._unsent)) if transport is None else transport.get_write_buffer_size()

    async def _connect(self) -> None:
        protocol = FrameProtocol(self._take, self._ended)
        try:
            await connect_frames(protocol, self._socket)
        except OSError as error:
            self._end(f"the backplane: {error.strerror or error}")
            return

        self._protocol = protocol
        unsent, self._unsent = self._unsent, []
        if protocol.transport is not None:  # otherwise the parent has ended already
            protocol.transport.writelines(unsent)

    def _take(self, number: int, word: str, body: Any) -> None:
        if number:
            answer = self._waiting.get(number)
            if answer is not None and not answer.done():
                answer.set_result((body, word))
            self.reached()
        elif word == GAP:
            self._local.report_gap()
        else:
            self._local.deliver(word, body)

    # -- being away --------------------------------------------------------------------------

    def _ended(self) -> None:
        # The other end is closed.
        self.away_since = self.away_since or asyncio.get_running_loop().time()
        self._end("the backplane has ended with the parent process")

    def _end(self, why: str) -> None:
        self._is_over = self._is_over or why
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result((None, why))

    # -- values ------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        value: bytes | None = await self._ask("get", key)
        return value

    async def set(self, key: str, value: bytes, ttl: float, *, only_new: bool = False) -> bool:
        return bool(await self._ask("set", key, value, ttl, only_new))

    async def swap(self, key: str, old: bytes | None, new: bytes, ttl: float) -> bool:
        return bool(await self._ask("swap", key, old, new, ttl))

    async def delete(self, key: str) -> None:
        await self._ask("delete", key)

    # -- logs --------------------------------------------------------------------------------

    async def append(self, name: str, entries: Sequence[bytes], most: int, ttl: float) -> None:
        await self._ask("append", name, list(entries), most, ttl)

    async def read(self, name: str, after: str = "", limit: int = 1000) -> list[tuple[str, bytes]]:
        return [(number, entry) for number, entry in await self._ask("read", name, after, limit)]

    # -- the bus -----------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        return int(await self._ask("publish", channel, data))

    async def subscribe(self, channel: str, receive: Receive) -> None:
        self._local.add(channel, receive)
        await self._ask("subscribe", channel)

    async def unsubscribe(self, channel: str, receive: Receive) -> None:
        if self._local.remove(channel, receive):
            with suppress(BackplaneAway):  # messages for it are ignored
                await self._ask("unsubscribe", channel)

    def on_gap(self, callback: Callable[[], object]) -> None:
        self._local.on_gap(callback)


# Bytes that may wait for a worker that does not read. Above it nothing more is read from the worker, and messages for
# it are dropped, which a frame reports later.
_MOST_UNREAD_BYTES = 16 * 1024 * 1024


class SharedMemory:
    """The parent's side. `join` adds a worker, until its end is closed."""

    def __init__(self, memory: MemoryBackplane | None = None) -> None:
        self.memory = MemoryBackplane() if memory is None else memory
        self._members: set[_Member] = set()

    async def join(self, connected: socket.socket) -> None:
        """Answer the commands of a worker, and take over the socket. Raises OSError."""
        member = _Member(self.memory, self._members.discard)
        self._members.add(member)
        try:
            await connect_frames(member, connected)
        except OSError:
            self._members.discard(member)
            raise

    def close(self) -> None:
        """Disconnect all workers."""
        for member in list(self._members):
            if member.transport is not None:
                member.transport.abort()


class _Member(FrameProtocol):
    # The connection of one worker.
    def __init__(self, memory: MemoryBackplane, left: Callable[[_Member], object]) -> None:
        super().__init__(self._answer, partial(self._leave, left))
        self._memory = memory
        self._receivers: dict[str, Callable[[bytes], object]] = {}
        self._is_full = False
        self._has_missed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.set_write_buffer_limits(_MOST_UNREAD_BYTES)

    def pause_writing(self) -> None:
        self._is_full = True
        if self.transport is not None:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        if self.transport is not None:
            self.transport.resume_reading()
        if self._has_missed:
            self._has_missed = False
            self._write(0, GAP, None)

    def _leave(self, left: Callable[[_Member], object]) -> None:
        left(self)
        for channel, receive in self._receivers.items():
            self._memory.bus.remove(channel, receive)
        self._receivers.clear()

    def _answer(self, number: int, word: str, body: Any) -> None:
        try:
            if word not in _BODIES:
                raise ValueError(f"{word[:20]} is not known")
            # Check all arguments before anything is changed.
            result = _at_once(self._do(word, *convert(body, _BODIES[word], builtin_types=(bytes,))))
            self._write(number, "", result)
        except (MsgspecError, TypeError, ValueError, OSError) as error:
            # The frame is of another version of this program, or too large.
            self._write(number, f"{type(error).__name__}: {error}", None)

    async def _do(self, word: str, name: str, *rest: Any) -> object:
        memory = self._memory
        if word == "subscribe":
            if name not in self._receivers:
                receive = self._receivers[name] = partial(self._deliver, name)
                await memory.subscribe(name, receive)
            return None

        if word == "unsubscribe":
            receiver = self._receivers.pop(name, None)
            if receiver is not None:
                await memory.unsubscribe(name, receiver)
            return None

        if word == "set":
            value, ttl, only_new = rest
            return await memory.set(name, value, ttl, only_new=only_new)

        do: Callable[..., Coroutine[Any, Any, object]] = getattr(memory, word)
        return await do(name, *rest)

    def _deliver(self, channel: str, data: bytes) -> None:
        if self._is_full:
            self._has_missed = True
        else:
            self._write(0, channel, data)

    def _write(self, number: int, word: str, body: object) -> None:
        if self.transport is not None:
            self.transport.write(encode_frame(number, word, body))


_Ttl = Annotated[float, Meta(ge=0, le=1e10)]
# The arguments of each command.
_BODIES: dict[str, Any] = {
    "get": tuple[str],
    "set": tuple[str, bytes, _Ttl, bool],
    "swap": tuple[str, bytes | None, bytes, _Ttl],
    "delete": tuple[str],
    "append": tuple[str, list[bytes], Annotated[int, Meta(ge=0)], _Ttl],
    "read": tuple[str, str, Annotated[int, Meta(ge=0)]],
    "publish": tuple[str, bytes],
    "subscribe": tuple[str],
    "unsubscribe": tuple[str],
}


def _at_once(work: Coroutine[Any, Any, object]) -> object:
    # Run a coroutine that never waits, and return its result.
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise TypeError("a command in memory must not wait")
