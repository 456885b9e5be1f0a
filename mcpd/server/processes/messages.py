"""The messages between a server, its workers and its fork server, and exceptions as data.

A frame is four bytes with its length, then JSON. Nothing is pickled: the arguments of a call are the bytes that the
client has sent, and the result is the bytes of a `CallToolResult`.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping
from struct import Struct as Layout
from typing import Any, TypeAlias

from msgspec import Raw, Struct, field
from msgspec.json import Decoder, Encoder

from mcpd import errors
from mcpd.errors import McpdError, ToolError, as_told
from mcpd.protocol.jsonrpc import Id, as_json
from mcpd.protocol.types.base import NO_JSON
from mcpd.server.context.peer import InputRequired, TaskHandedOver
from mcpd.server.context.questions import Question
from mcpd.server.functions.results import to_builtins
from mcpd.server.registry.content import Unwritable

HEAD_BYTES = 4
# The size of all other parts of a frame that has a result.
ROOM_BYTES = 1 << 20

# A record between the server and its fork server: its kind, the number of a worker, and the exit code of one that has
# ended. A socket of the worker comes with FORK.
RECORD = Layout("!cIi")
FORK, KILL, ENDED = b"F", b"K", b"E"


class RequestData(Struct, omit_defaults=True):
    """The data of a request that its context shows. `user` has the arguments of a `Principal`."""

    id: Id
    version: str
    transport: str
    meta: Raw = NO_JSON
    capabilities: Raw = NO_JSON
    info: Raw = NO_JSON
    log_level: str | None = None
    user: dict[str, Any] = field(default_factory=lambda: {"subject": ""})
    has_upstream: bool = False
    headers: dict[str, str] = {}
    trace: dict[str, str] | None = None
    kept: dict[str, Any] = {}
    can_be_task: bool = False


class Run(Struct, tag="run", omit_defaults=True):
    """Run a tool, whose result may have `most` bytes. `request` is None if the tool has no way to look at it."""

    tool: str
    arguments: Raw
    most: int
    request: RequestData | None = None


class ErrorData(Struct, omit_defaults=True):
    """An exception: its class, text and attributes, the traceback in the worker, and the exceptions of a group."""

    kind: str
    text: str = ""
    values: dict[str, Any] = {}
    trace: str = ""
    inner: list[ErrorData] | None = None


class Reply(Struct, tag="reply", omit_defaults=True):
    """The answer to the `Ask` with this number."""

    number: int
    result: Raw = NO_JSON
    error: ErrorData | None = None


class Ready(Struct, tag="ready", omit_defaults=True):
    """The first message of a worker. `problem` is why it cannot run calls; then the fork server may have sent it.

    `has_threads` is whether the fork server cannot fork, because importing the target has started threads.
    """

    pid: int = 0
    problem: str = ""
    has_threads: bool = False


class Ask(Struct, tag="ask", omit_defaults=True):
    """A command that the server carries out for the call. It replies to it if the number is not 0.

    `kept` is `ctx.state`, or None if it was not used.
    """

    what: str
    body: Raw
    number: int = 0
    kept: dict[str, Any] | None = None


class Done(Struct, tag="done", omit_defaults=True):
    """The end of a call: an exception or a result. Only a class other than `CallToolResult` is named."""

    result: Raw = NO_JSON
    kind: str = ""
    error: ErrorData | None = None
    kept: dict[str, Any] | None = None


ToWorker: TypeAlias = Run | Reply
FromWorker: TypeAlias = Ready | Ask | Done

read_to_worker = Decoder(ToWorker).decode
read_from_worker = Decoder(FromWorker).decode
_encoder = Encoder()


def frame_of(message: ToWorker | FromWorker) -> bytearray:
    """Encode a message. Raises the errors of msgspec for values that are not JSON."""
    frame = bytearray(HEAD_BYTES)
    _encoder.encode_into(message, frame, HEAD_BYTES)
    frame[:HEAD_BYTES] = (len(frame) - HEAD_BYTES).to_bytes(HEAD_BYTES, "big")
    return frame


# -- exceptions --------------------------------------------------------------------------------

# Other exceptions that end a call in a special way.
_OWN = (InputRequired, asyncio.CancelledError, Unwritable)
_NONE: Mapping[str, Question] = {}


class RemoteFailure(Exception):
    """An exception of a tool in its process; its class derives from this one and is named like the original."""


def error_data(error: BaseException) -> ErrorData:
    """Return an exception as data. A class that is derived from one of mcpd is replaced with that one."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, BaseExceptionGroup):
        return ErrorData("group", error.message, inner=[error_data(one) for one in error.exceptions])
    if isinstance(error, TaskHandedOver):
        return ErrorData(kind, values={"keep": error.keep})
    is_expected = isinstance(error, (ToolError, InputRequired))
    trace = "" if is_expected else "".join(traceback.format_exception(*as_told(error))).rstrip()
    if not isinstance(error, McpdError):
        own = next((each.__name__ for each in _OWN if isinstance(error, each)), kind)
        return ErrorData(own, text, trace=trace)

    ours = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
    values = {name: as_json(value, to_builtins) for name, value in vars(error).items() if name != "__notes__"}
    return ErrorData(ours.__name__, text, values, trace)


def error_of(data: ErrorData, needed: Mapping[str, Question] = _NONE) -> BaseException:
    """Return the exception that `error_data` described. An exception that ends a call for questions gets `needed`."""
    if data.inner is not None:
        return BaseExceptionGroup(data.text, [error_of(one, needed) for one in data.inner])
    if data.kind == "InputRequired":
        return InputRequired(dict(needed))
    if data.kind == "TaskHandedOver":
        return TaskHandedOver(data.values["keep"])
    own = {each.__name__: each for each in _OWN}
    kind: Any = own.get(data.kind) or getattr(errors, data.kind, None)
    if not isinstance(kind, type) or not issubclass(kind, (McpdError, *_OWN)):
        kind = type(data.kind, (RemoteFailure,), {"__module__": "builtins"})

    error: BaseException = kind.__new__(kind, data.text)
    error.__dict__.update(data.values)
    if data.trace:
        error.add_note(f"In the process of the tool:\n{data.trace}")
    return error
