"""How a WebSocket connection ends: what is said of it, to its client and to us, and how the socket is let go.

Close codes: 1001 the server stops; 1002, 1007, 1009 frames that break RFC 6455, are no UTF-8, or are too large;
1003 a binary frame (RFC 6455 7.4.1 names this very case); 1008 a client that reads too slowly; 1011 a client
that no longer answers pings, or a bug of ours.
"""

from __future__ import annotations

import asyncio

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from ..errors import ConnectionLost, McpdError

__all__ = ["hang_up", "shorten", "why_it_ended"]

_REASON_BYTES = 123
_IN_ORDER = (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.NO_STATUS_RCVD)


def why_it_ended(ended: ConnectionClosed) -> McpdError | None:
    """What went wrong with a connection that is over; None if its client has closed it in order."""
    said, sent = ended.rcvd, ended.sent
    if said is None:
        return ConnectionLost(f"We closed the WebSocket: {sent}" if sent else "The WebSocket client went away")
    return None if said.code in _IN_ORDER else ConnectionLost(f"The WebSocket client closed: {said}")


def hang_up(transport: asyncio.Transport, *, is_agreed: bool) -> None:
    """All is written: end our side. `is_agreed` if the client has said that it closes, too."""
    if is_agreed or not transport.can_write_eof():
        transport.close()
        return
    # Closing here would answer what the peer still sends with a reset, and lose our reason.
    try:
        transport.write_eof()
    except OSError:  # the peer has reset it
        transport.abort()


def shorten(reason: str) -> str:
    """A close frame has room for 123 bytes of reason."""
    return reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore")
