"""What the websockets library logs of a connection, without what nobody but the peer and us should read.

At level debug it writes each line of the handshake: a token stands in a header, or in the query of the address.
"""

from __future__ import annotations

import logging

from mcpd.protocol.printable import printable

wire_log = logging.getLogger("mcpd.websocket.wire")
"""The library's log of our connections."""

# Whose values say how the handshake went, and carry no secret. The subprotocol is not among them: browsers, which
# cannot set headers, put tokens there.
_SHOWN = frozenset(
    [
        "connection",
        "content-length",
        "content-type",
        "date",
        "host",
        "origin",
        "sec-websocket-accept",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-version",
        "upgrade",
        "user-agent",
    ]
)


def _says_something(record: logging.LogRecord) -> bool:
    """At level info the library says "connection open", and not whose: without the lines around it that is nothing."""
    return record.levelno != logging.INFO or wire_log.isEnabledFor(logging.DEBUG)


def _without_secrets(record: logging.LogRecord) -> bool:
    args = record.args
    if isinstance(args, tuple):
        if record.msg in ("< %s: %s", "> %s: %s"):
            name, value = args
            record.args = printable(name), printable(value) if str(name).lower() in _SHOWN else "(not shown)"
        else:
            record.args = tuple(_shown(arg) for arg in args)

    if record.exc_info and record.levelno <= logging.DEBUG:
        # Its text may quote the request line. What was wrong the client is told, and our own line says.
        kind = record.exc_info[0]
        record.exc_info = None
        record.msg = f"{record.msg} ({'' if kind is None else kind.__name__})"
    return True


def _shown(arg: object) -> object:
    if isinstance(arg, str) and arg.startswith("/"):
        path, query, _ = arg.partition("?")
        return printable(path) + ("?(not shown)" if query else "")
    return arg if isinstance(arg, int) else printable(arg)


wire_log.addFilter(_says_something)
wire_log.addFilter(_without_secrets)
