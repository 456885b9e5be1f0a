"""`Listener`: accepts the clients of one transport. `server/serving.py` starts it, connects each client, and closes it.

stdio, WebSocket, HTTP and unix sockets are listeners; `Settings(listeners=[…])` takes others beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from mcpd.channel import Channel, Receiver


class Accept(Protocol):
    """What a listener is given: it makes a connection to the server out of each channel."""

    def __call__(self, channel: Channel, *, is_only: bool = False) -> Receiver:
        """A new session for the client of this channel; what is given takes the frames that the client sends.

        `is_only` says that there is no other client and will be none, as on stdin: serving ends with this connection.
        Call it in the event loop's thread.
        """


class Listener(Protocol):
    """Takes clients in. All of it is called in the event loop's thread, each once, in this order."""

    @property
    def url(self) -> str:
        """The address for clients, given to `announce` once it has started; "" if there is none."""

    async def start(self, accept: Accept) -> None:
        """Begin to take clients in.

        Raises ConfigurationError, and leaves nothing open, for an address that cannot be used.
        """

    def pause(self) -> None:
        """Accept no more clients and read nothing more; calls that run may still be answered."""

    async def aclose(self) -> None:
        """Send what is queued, within bounds, and end every connection."""


class Ending(Protocol):
    """A connection, as far as its end goes."""

    async def finish(self, grace: float) -> None:
        """Let running calls answer for so many seconds, then stop the rest."""

    def abort(self) -> None:
        """Stop all running calls now."""


@runtime_checkable
class HasConnections(Protocol):
    """A listener with connections that it made itself, without `accept`: HTTP, whose sessions have many channels.

    It is known by having that member.
    """

    @property
    def connections(self) -> Iterable[Ending]:
        """All that may have calls running, which get the time to be answered."""


@runtime_checkable
class Lingers(Protocol):
    """A listener whose clients may be asking something when it pauses, on connections that they use again and again.

    It is known by having that member.
    """

    async def linger(self) -> None:
        """After `pause` take what was on its way then: within about a second, and at once if nothing can be."""
