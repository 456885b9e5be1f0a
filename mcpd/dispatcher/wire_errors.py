"""Turns the exception that ended a handler into the JSON-RPC error that the client gets.

An exception that is not one of `errors` is logged, and the client gets an InternalError with a fixed text.
"""

from __future__ import annotations

import logging

from mcpd.errors import InternalError, ProtocolError, RequestTimeout, ResultTooLarge, ToolError, forget_frames
from mcpd.protocol.printable import printable
from mcpd.protocol.session import Call

log = logging.getLogger("mcpd")


def fail_call(call: Call, error: BaseException) -> bytes | None:
    """Close a call that ended with this exception: gives its answer, None if it was cancelled meanwhile."""
    try:
        return call.session.fail(call, wire_error(error, call))
    except Exception as unwritable:
        # Its text or data are no JSON, and still somebody waits for an answer.
        log.error(
            "%s (id %s) failed with an error that cannot be sent", call.method, printable(call.id), exc_info=unwritable
        )
        return call.session.fail(call, InternalError())
    finally:
        forget_frames(error)


def wire_error(error: BaseException, call: Call) -> ProtocolError:
    """The error to answer a call with that ended with this exception."""
    if isinstance(error, ResultTooLarge):
        log.warning("%s (id %s): %s", call.method, printable(call.id), printable(error.message))
    if isinstance(error, ProtocolError):
        return error if call.version.has_error(type(error)) else error.without_code()
    if isinstance(error, RequestTimeout):
        return InternalError(str(error))
    if isinstance(error, ToolError):
        # Outside tools/call there is no isError; its text is meant to be read all the same.
        return InternalError(str(error))

    log.error("%s (id %s) failed", call.method, printable(call.id), exc_info=error)
    return InternalError()
