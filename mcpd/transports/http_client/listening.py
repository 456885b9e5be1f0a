"""What a legacy server says by itself: the GET stream of a session, opened again when it ends.

Spec: 2025-11-25 basic/transports, listening for messages from the server, resumability.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ...errors import (
    AuthorizationFailed,
    AuthorizationRequired,
    ConfigurationError,
    ConnectionLost,
    HttpError,
    SessionLost,
)
from ...printable import printable
from ...wire.sse_reader import SseReader
from .exchange import pause_before, resumed
from .inbound import Inbound
from .requester import EVENTS, Requester

__all__ = ["listen"]

log = logging.getLogger("mcpd.client")

_ATTEMPTS = 10
"""So often in a row a stream that brings nothing is opened again."""


async def listen(requester: Requester, inbound: Inbound, tried: Callable[[], None]) -> None:
    """Deliver what comes, until the server has no such stream or is not to be reached for long.

    `tried` is called when the first attempt has its answer: from then on nothing that the server says goes astray.
    """
    name = requester.link.name
    reader = SseReader(inbound.max_frame_bytes)
    attempt = 0
    has_been_open = False
    while attempt < _ATTEMPTS:
        if attempt:
            await asyncio.sleep(pause_before(reader, attempt - 1))
        attempt += 1
        try:
            reply = await resumed(requester, reader.last_id)
        except (AuthorizationFailed, AuthorizationRequired, ConfigurationError) as error:
            # The next request says so to whoever makes it; nobody is asked to log in again and again for this.
            log.warning("what %s says by itself is not heard: %s", printable(name), printable(error))
            return
        except (ConnectionLost, HttpError) as error:
            log.debug("no stream for what the server says by itself: %s", printable(error))
            continue
        finally:
            tried()

        try:
            if reply.status >= 500:
                continue
            if reply.status == 404 and has_been_open and requester.session:
                # Spec: 2025-11-25 basic/transports, session management: 404 is how a server says that it has ended.
                inbound.closed(SessionLost(f"{name} knows the session no more (HTTP 404): open a new one"))
                return
            if reply.status != 200 or reply.content_type != EVENTS:
                # 405 is how a server says that it has none; others are met as well.
                log.debug("%s has no stream for what it says by itself: HTTP %d", printable(name), reply.status)
                return
            has_been_open = True
            reader = SseReader(inbound.max_frame_bytes, reader.last_id, reader.retry_ms)
            before = reader.last_id
            if await inbound.read_events(reply, reader) or reader.last_id != before:
                attempt = 1
        except ConnectionLost as error:
            log.debug("the stream of the session was cut: %s", printable(error))
        finally:
            reply.close()

    log.warning(
        "what %s says by itself is not heard any more: its stream ended %d times over", printable(name), _ATTEMPTS
    )
