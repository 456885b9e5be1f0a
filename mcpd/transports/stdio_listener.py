"""Stdin and stdout as a listener: with one client, who is there from the beginning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcpd.transports.stdio import MAX_FRAME_BYTES, StdioChannel

if TYPE_CHECKING:
    from mcpd.protocol.channel import Accept


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
