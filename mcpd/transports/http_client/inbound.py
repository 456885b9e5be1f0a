"""What the server says, on its way to the receiver: bodies in bounded memory, streams that wait while nothing is taken.

Compressed bodies are unpacked piece by piece: a bomb is met by whoever counts the pieces, before it is in memory.
"""

from __future__ import annotations

import asyncio

from mcpd.errors import ConfigurationError, FrameTooLarge, McpdError
from mcpd.protocol.channel import Receiver, RequestReceiver
from mcpd.protocol.jsonrpc import Id
from mcpd.protocol.wire.sse import SseEvent, SseReader
from mcpd.transports.http_client.link import Body, Link, Reply

_AFTER_ANSWER_SECONDS = 0.1
_AFTER_ANSWER_BYTES = 64 * 1024


class Inbound:
    """The receiver of one channel."""

    def __init__(self, receiver: Receiver, link: Link, max_frame_bytes: int) -> None:
        if not isinstance(receiver, RequestReceiver):
            raise ConfigurationError("an HTTP channel needs a receiver whose requests can fail one by one")
        self.max_frame_bytes = max_frame_bytes
        self.waits_for = receiver.waits_for
        self.failed = receiver.failed
        self.receive = receiver.receive
        self._receiver = receiver
        self._hold = getattr(receiver, "hold", None)
        self._link = link
        self._patience = _AFTER_ANSWER_SECONDS
        """So long the end of a stream is waited for after its answer: less with each that stayed open."""
        self._may_read = asyncio.Event()
        self._may_read.set()

    def hold(self, request_id: Id, is_held: bool) -> None:
        """That request waits for somebody else than the server, or does so no more: its time stands still."""
        if self._hold is not None:
            self._hold(request_id, is_held)

    def pause(self) -> None:
        """Read no stream on."""
        self._may_read.clear()

    def resume(self) -> None:
        """Read on."""
        self._may_read.set()

    def closed(self, error: McpdError) -> None:
        """The server is gone for good."""
        receiver: Receiver = self._receiver
        receiver.closed(error)

    async def read_events(self, reply: Reply, reader: SseReader, request_id: Id | None = None) -> int:
        """Deliver the events of a stream to its end, or until that request has its answer; how many there were.

        Raises ConnectionLost if the stream breaks off.
        """
        count = 0
        body = Body(reply, self._link)
        while chunk := await body.read():
            for event in reader.feed(chunk):
                count += 1
                await self.deliver(event, request_id)
            if request_id is not None and not self.waits_for(request_id):
                await self._let_end(reply)
                break
        return count

    async def _let_end(self, reply: Reply) -> None:
        """After its answer a stream ends: a moment for that, so that its connection can be used again.

        Whoever asked waits for that long; a server that leaves its streams open is soon not waited for any more.
        """
        size = 0
        try:
            async with asyncio.timeout(self._patience):
                while size < _AFTER_ANSWER_BYTES and (chunk := await reply.content.readany()):
                    size += len(chunk)
            self._patience = _AFTER_ANSWER_SECONDS
        except Exception:
            self._patience /= 2
            reply.close()

    async def deliver(self, event: SseEvent, request_id: Id | None) -> None:
        """Hand over one event of the stream of that request, or of one that is nobody's, when it may be."""
        if not self._may_read.is_set():
            await self._may_read.wait()
        if event.is_torn:
            self.failed(request_id, self.too_large())
        elif event.name in (b"", b"message"):
            self.receive(event.data)

    def too_large(self) -> FrameTooLarge:
        """For a message that was not kept."""
        return FrameTooLarge(
            f"{self._link.name}: a message of the server's is larger than {self.max_frame_bytes} bytes"
        )
