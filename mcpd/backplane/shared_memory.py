"""The memory of `--workers`: a `MemoryBackplane` in the parent, which the workers reach over a socket each.

Nothing in memory waits, so what a worker asks is done in the turn of the event loop that reads it, and in its order.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any

from msgspec import Meta, MsgspecError, convert

from mcpd.backplane.base import Item
from mcpd.backplane.frames import FrameProtocol, connect_frames, encode_frame
from mcpd.backplane.memory_backplane import MemoryBackplane
from mcpd.backplane.shared_backplane import GAP

_MOST_UNREAD_BYTES = 16 * 1024 * 1024
"""What waits for a worker that does not read: over that nothing more is read from it, and what others say is left out
for it, which it is told afterwards."""


class SharedMemory:
    """The parent's side; `join` lets a worker take part, until its end is closed."""

    def __init__(self, memory: MemoryBackplane | None = None) -> None:
        self.memory = MemoryBackplane() if memory is None else memory
        self._members: set[_Member] = set()

    async def join(self, connected: socket.socket) -> None:
        """Answer what comes over this end, which is ours from now on. Raises OSError."""
        member = _Member(self.memory, self._members.discard)
        self._members.add(member)
        try:
            await connect_frames(member, connected)
        except OSError:
            self._members.discard(member)
            raise

    def close(self) -> None:
        """Let go of all workers."""
        for member in list(self._members):
            if member.transport is not None:
                member.transport.abort()


class _Member(FrameProtocol):
    """One worker."""

    def __init__(self, memory: MemoryBackplane, left: Callable[[_Member], object]) -> None:
        super().__init__(self._answer, partial(self._leave, left))
        self._memory = memory
        self._hears: dict[str, Callable[[bytes], object]] = {}
        self._is_full = False
        self._has_missed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.set_write_buffer_limits(_MOST_UNREAD_BYTES)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._is_full = True
        if self.transport is not None:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._is_full = False
        if self.transport is not None:
            self.transport.resume_reading()
        if self._has_missed:
            self._has_missed = False
            self._write(0, GAP, None)

    def _leave(self, left: Callable[[_Member], object]) -> None:
        left(self)
        for channel, hear in self._hears.items():
            self._memory.bus.remove(channel, hear)
        self._hears.clear()

    def _answer(self, number: int, word: str, body: Any) -> None:
        try:
            if word not in _BODIES:
                raise ValueError(f"{word[:20]} is not known")
            # As a whole, before anything is done: nothing half done may stay in what all have.
            found = _at_once(self._do(word, *convert(body, _BODIES[word], builtin_types=(bytes,))))
            self._write(number, "", found)
        except (
            MsgspecError,
            TypeError,
            ValueError,
            OSError,
        ) as error:  # of another version of this program, or too large
            self._write(number, f"{type(error).__name__}: {error}", None)

    async def _do(self, word: str, name: str, *rest: Any) -> object:
        memory = self._memory
        if word == "subscribe":
            if name not in self._hears:
                hear = self._hears[name] = partial(self._tell, name)
                await memory.subscribe(name, hear)
            return None
        if word == "unsubscribe":
            heard = self._hears.pop(name, None)
            if heard is not None:
                await memory.unsubscribe(name, heard)
            return None
        if word == "set":
            value, ttl, only_new = rest
            return await memory.set(name, value, ttl, only_new=only_new)
        if word == "renew":
            who, id, lease = rest
            return await memory.renew(name, who, Item(id, b""), lease)
        if word == "done":
            who, id = rest
            return await memory.done(name, who, Item(id, b""))
        do: Callable[..., Coroutine[Any, Any, object]] = getattr(memory, word)
        return await do(name, *rest)

    def _tell(self, channel: str, data: bytes) -> None:
        if self._is_full:
            self._has_missed = True
        else:
            self._write(0, channel, data)

    def _write(self, number: int, word: str, body: object) -> None:
        if self.transport is not None:
            self.transport.write(encode_frame(number, word, body))


_Ttl = Annotated[float, Meta(ge=0, le=1e10)]
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
    "push": tuple[str, bytes, _Ttl],
    "claim": tuple[str, str, _Ttl],
    "renew": tuple[str, str, str, _Ttl],
    "done": tuple[str, str, str],
}
"""What belongs to each word."""


def _at_once(work: Coroutine[Any, Any, object]) -> object:
    """What a coroutine gives that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    work.close()
    raise TypeError("what is kept in memory waits for nothing")
