"""The client's side of one connection without I/O: ids, pending requests, the version, both eras.

Theory of operation. Frames come in through `receive`, go out through `data_to_send`; what happened comes out
of `events`. A version is agreed on first, then anything may be asked:

    probe()          -> answered: accept_probe(result or error) says which version to go on with
    initialize(v)    -> answered: accept_initialize(result); legacy versions only
    request(...)     a modern request carries version, capabilities and identity in its `_meta`

What is not legal for the server to send is answered if it was a request, logged, and changes nothing.

Spec: 2025-11-25 basic/lifecycle; 2026-07-28 basic/{index,versioning}, basic/patterns/{cancellation,progress}.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Raw, Struct
from msgspec.json import Decoder

from ..errors import (
    FrameTooLarge,
    InvalidParams,
    InvalidRequest,
    LocalProtocolError,
    MethodNotFound,
    ParseError,
    ProtocolError,
    RemoteError,
    UnsupportedVersion,
)
from ..jsonrpc import (
    ABSENT,
    MALFORMED,
    Batch,
    Failure,
    Id,
    Message,
    Notification,
    Request,
    Response,
    Result,
    call,
    decode,
    decode_batch,
    encode,
    error_answer,
    explain,
    remote_error,
)
from ..printable import printable
from ..session import MAX_FRAME_BYTES
from ..types.base import META
from ..types.lifecycle import (
    ClientCapabilities,
    DiscoverResult,
    Implementation,
    InitializeParams,
    InitializeResult,
    ServerCapabilities,
)
from ..types.notifications import CancelledParams, LogLevel, ProgressParams
from ..versions import table
from ..versions.table import Version
from ..wire.torn import answered_by
from .faults import Faults

__all__ = ["Answered", "Asked", "ClientSession", "Event", "Notified", "Progressed", "Withdrawn"]

log = logging.getLogger("mcpd.client")

_MODERN_ERRORS = (-32020, -32021, UnsupportedVersion.code)
"""What no legacy server answers: header mismatch, missing capability, unsupported version."""

_members = Decoder(dict[str, Raw]).decode
_object = Decoder(dict[str, Any]).decode
_read_discovery = Decoder(DiscoverResult).decode
_read_initialize = Decoder(InitializeResult).decode
_read_info = Decoder(Implementation).decode
_read_progress = Decoder(ProgressParams).decode
_read_cancelled = Decoder(CancelledParams).decode


class Answered(Struct, frozen=True):
    """A request of ours has its answer: exactly one of `result` and `error` is set.

    The error is a ProtocolError if the answer could not be read.
    """

    request_id: Id
    result: Raw | None = None
    error: RemoteError | ProtocolError | None = None


class Progressed(Struct, frozen=True):
    """How far a request of ours is."""

    request_id: Id
    progress: float
    total: float | None
    message: str | None


class Asked(Struct, frozen=True):
    """The server asks something: answer with `ClientSession.answer` or `ClientSession.refuse`. Legacy versions only."""

    ask_id: Id
    method: str
    params: Raw


class Withdrawn(Struct, frozen=True):
    """The server gave its question up; an answer to it is dropped."""

    ask_id: Id


class Notified(Struct, frozen=True):
    """The server tells something. `params` is `{}` if it had none."""

    method: str
    params: Raw


Event: TypeAlias = Answered | Progressed | Asked | Withdrawn | Notified


class _Pending(Struct):
    method: str
    wants_progress: bool


class _Bearer(Struct):
    """What can be read of a frame that is no message."""

    id: Id | None = None
    method: Raw = ABSENT


_read_bearer = Decoder(_Bearer).decode


class ClientSession:
    """One connection, seen from the client."""

    def __init__(self, info: Implementation, capabilities: ClientCapabilities) -> None:
        self.faults = Faults(log)
        """What the server does wrong."""
        self.answered_bytes = 0
        """How much was said to requests of the server, in all."""
        self.info = info
        self.capabilities = capabilities
        self.version: Version | None = None
        self.server_info: Implementation | None = None
        self.server_capabilities = ServerCapabilities()
        self.instructions: str | None = None
        self.log_level: LogLevel | None = None
        """The least severe log messages that modern requests ask for; None for none."""
        self._out: list[bytes] = []
        self._events: list[Event] = []
        self._pending: dict[Id, _Pending] = {}
        self._asked: set[Id] = set()
        self._last = 0

    def events(self) -> list[Event]:
        """What happened since the last call."""
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> list[bytes]:
        """The frames for the server since the last call, in order."""
        frames, self._out = self._out, []
        return frames

    @property
    def pending(self) -> list[Id]:
        """The ids of our requests that wait for an answer."""
        return list(self._pending)

    # ---------------------------------------------------------------------------- agreeing on a version

    def probe(self) -> Id:
        """Ask a server of unknown era what it speaks, in the newest version there is."""
        return self._send_request("server/discover", self._enveloped({}, table.MODERN[-1]))

    def accept_probe(self, answer: Raw | RemoteError) -> str:
        """The version to go on with; a modern one is in force from now on, a legacy one is to be initialized.

        Spec: 2026-07-28 transports/stdio, backward compatibility: a recognized modern error names the versions,
        and "any other error" means a legacy server. Raises UnsupportedVersion if there is none in common.
        """
        if isinstance(answer, RemoteError):
            if answer.code not in _MODERN_ERRORS:
                return table.NEWEST_LEGACY
            if answer.code != UnsupportedVersion.code:
                raise answer
            data = answer.data if isinstance(answer.data, dict) else {}
            supported = data.get("supported")
            return self._choose(supported if isinstance(supported, list) else [])
        try:
            found = _read_discovery(answer)
        except MALFORMED:
            return table.NEWEST_LEGACY  # it answers what it does not understand
        self.server_capabilities = found.capabilities
        self.instructions = found.instructions
        self._learn_identity(found.meta)
        return self._choose(found.supported_versions)

    def _choose(self, supported: list[Any]) -> str:
        name = next((name for name in table.SUPPORTED if name in supported), None)
        if name is None:
            named = ", ".join(map(str, supported)) or "none"
            text = f"No protocol version in common: the server speaks {named}, and we {', '.join(table.SUPPORTED)}"
            raise UnsupportedVersion(table.SUPPORTED[0], list(map(str, supported)), text)
        if table.get(name).is_modern:
            self.version = table.get(name)
        return name

    def initialize(self, version: str) -> Id:
        """Open a legacy connection with this version as the offer."""
        offered = table.get(version).shape(self.capabilities)
        info = table.get(version).shape(self.info)
        params = InitializeParams(protocol_version=version, capabilities=offered, client_info=info)
        return self._send_request("initialize", params)

    def accept_initialize(self, result: Raw) -> None:
        """Take the server's answer, and tell it that we are ready.

        Raises UnsupportedVersion for a version we do not speak: "the client SHOULD disconnect".
        """
        try:
            answer = _read_initialize(result)
        except MALFORMED as error:
            raise ProtocolError(f"The server's answer to initialize cannot be read: {explain(error)}") from None
        name = answer.protocol_version
        if name not in table.LEGACY:
            text = f"The server wants protocol version {name!r}, which we do not speak"
            raise UnsupportedVersion(str(name), table.LEGACY, text)
        self.version = table.get(str(name))
        self.server_info = answer.server_info
        self.server_capabilities = answer.capabilities
        self.instructions = answer.instructions
        self._out.append(call("notifications/initialized"))

    def _learn_identity(self, meta: Any) -> None:
        raw = meta.get(f"{META}serverInfo") if isinstance(meta, dict) else None
        try:
            self.server_info = None if raw is None else _read_info(encode(raw))
        except MALFORMED:
            self.server_info = None

    # ------------------------------------------------------------------------------------------ asking

    def request(self, method: str, params: Any = None, *, wants_progress: bool = False) -> Id:
        """Send a request; its id, under which the answer comes. `params` is a struct, a mapping or raw JSON.

        What no version knows may be a method of an extension, if this client offers any.
        Raises LocalProtocolError where the version in force has no such method.
        """
        version = self._agreed()
        may_be_theirs = self.capabilities.extensions and not table.is_known_method(method)
        if method not in version.requests and not may_be_theirs:
            raise LocalProtocolError(f"{method} does not exist in protocol version {version.name}")
        members: dict[str, Any] = _members(_as_json(version, params))
        if version.is_modern:
            members = self._enveloped(members, version.name)
        return self._send_request(method, members, wants_progress=wants_progress)

    def _send_request(self, method: str, members: Any, *, wants_progress: bool = False) -> Id:
        self._last += 1
        if wants_progress:
            # Our ids are unique, so that they serve as progress tokens too.
            members = {**members, "_meta": {**_meta_of(members), "progressToken": self._last}}
        frame = call(method, members if members else None, self._last)
        if len(frame) > MAX_FRAME_BYTES:
            raise LocalProtocolError(f"{method} is too large: {len(frame)} bytes, a message may have {MAX_FRAME_BYTES}")
        self._pending[self._last] = _Pending(method, wants_progress)
        self._out.append(frame)
        return self._last

    def _enveloped(self, members: dict[str, Any], version: str) -> dict[str, Any]:
        """Spec: 2026-07-28 basic/index, `_meta`: three keys on every request, one more for log messages."""
        envelope: dict[str, Any] = {
            f"{META}protocolVersion": version,
            f"{META}clientCapabilities": self.capabilities,
            f"{META}clientInfo": self.info,
        }
        if self.log_level is not None:
            envelope[f"{META}logLevel"] = self.log_level
        return {**members, "_meta": {**_meta_of(members), **envelope}}

    def cancel(self, request_id: Id, reason: str) -> bool:
        """Give a request up; False if it had its answer. An `initialize` is not to be cancelled: only forgotten."""
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return False
        known = self.version is None or "notifications/cancelled" in self.version.notifications
        if pending.method != "initialize" and known:
            self._out.append(
                call("notifications/cancelled", CancelledParams(request_id=request_id, reason=reason or None))
            )
        return True

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification. Raises LocalProtocolError where the version in force has no such."""
        version = self._agreed()
        may_be_theirs = self.capabilities.extensions and not table.is_known_method(method)
        if method not in version.notifications and not may_be_theirs:
            raise LocalProtocolError(f"{method} does not exist in protocol version {version.name}")
        self._out.append(call(method, params))

    def _agreed(self) -> Version:
        if self.version is None:
            raise LocalProtocolError("nothing can be asked before a version is agreed on")
        return self.version

    # --------------------------------------------------------------------------------------- answering

    def answer(self, ask_id: Id, result: Any) -> None:
        """Answer a question of the server; nothing is sent if it was withdrawn."""
        if ask_id in self._asked:
            self._send_answer(Result(ask_id, result))
            self._asked.discard(ask_id)

    def refuse(self, ask_id: Id, error: ProtocolError) -> None:
        """Answer a question of the server with an error; nothing is sent if it was withdrawn."""
        if ask_id in self._asked:
            self._asked.discard(ask_id)
            self._send_error(error, ask_id)

    def _send_error(self, error: ProtocolError, request_id: Id) -> None:
        self._send_answer(error_answer(error, request_id))

    def _send_answer(self, answer: Result | Failure) -> None:
        frame = encode(answer)
        self.answered_bytes += len(frame)
        self._out.append(frame)

    # --------------------------------------------------------------------------------------- receiving

    def receive(self, frame: bytes) -> None:
        """Take one frame of the server."""
        try:
            message = decode(frame)
        except ProtocolError as error:
            self._refuse(error, frame)
            return
        if not isinstance(message, Batch):
            self._take(message, frame)
        elif self.version is not None and self.version.has_batches:
            # Each part for itself: what is kept of one must not keep the whole batch.
            parts = Batch(raw.copy() for raw in message)
            for raw, part in zip(parts, decode_batch(parts), strict=True):
                if isinstance(part, ProtocolError):
                    self._refuse(part, raw)
                else:
                    self._take(part, bytes(raw))
        else:
            self.faults.say(logging.WARNING, "the server sent a batch, which this protocol version does not have")

    def receive_error(self, error: FrameTooLarge) -> None:
        """A message was too large to be read: who asked for it hears that, or if it cannot be told whose it is, all."""
        request_id = error.request_id
        if error.is_answer is False:
            if request_id is not None:
                self._send_error(error, request_id)
            return
        for failed in self.pending if request_id is None else (request_id,):
            if self._pending.pop(failed, None) is not None:
                self._events.append(Answered(failed, error=error))

    def _refuse(self, error: ProtocolError, frame: bytes | Raw) -> None:
        """What cannot be read fails the call of ours that it would have answered; a question gets the error."""
        self.faults.say(logging.WARNING, "the server sent what cannot be read: %s", printable(error.message))
        request_id = _answered_by(frame)
        if request_id is not None and self._pending.pop(request_id, None) is not None:
            self._events.append(Answered(request_id, error=error))
        elif error.request_id is not None:
            self._send_error(error, error.request_id)

    def _take(self, message: Message, frame: bytes) -> None:
        if not frame.isascii() and not _is_utf8(frame):
            # Params and results are raw: nobody has looked at the text in them yet.
            error = ParseError("Parse error: not UTF-8")
            error.request_id = message.id if isinstance(message, Request) else None
            self._refuse(error, frame)
        elif isinstance(message, Request):
            self._take_request(message, frame)
        elif isinstance(message, Notification):
            self._take_notification(message, frame)
        else:
            self._take_answer(message)

    def _take_answer(self, message: Response | Failure) -> None:
        request_id: Any = message.id
        if request_id not in self._pending:
            # Late, after we gave it up, or an error about what could not be read: nobody waits for it.
            if isinstance(message, Failure):
                text = "an error of the server that answers nothing: %s"
                self.faults.say(logging.INFO, text, printable(message.error.message, 300))
            return
        del self._pending[request_id]
        if isinstance(message, Response):
            self._events.append(Answered(request_id, result=message.result))
        else:
            self._events.append(Answered(request_id, error=remote_error(message)))

    def _take_request(self, message: Request, frame: bytes) -> None:
        version = self.version
        if message.method == "ping":
            # Both sides may, even before the handshake is through.
            self._send_answer(Result(message.id, {}))
        elif message.id in self._asked:
            self._send_error(InvalidRequest("This id belongs to a request that is still being answered"), message.id)
        elif version is None or message.method not in version.server_requests:
            error: ProtocolError = MethodNotFound(f"Method not found: {message.method[:100]}")
            if version is not None and version.is_modern:
                # Spec: 2026-07-28 basic/index: a server sends no requests; it asks inside results.
                error = InvalidRequest(f"A server sends no requests in {version.name}: ask by an input_required result")
            self._send_error(error, message.id)
        else:
            self._asked.add(message.id)
            self._events.append(Asked(message.id, message.method, _present(message.params, frame)))

    def _take_notification(self, message: Notification, frame: bytes) -> None:
        method, params = message.method, _present(message.params, frame)
        try:
            if method == "notifications/progress":
                self._take_progress(_read_progress(params))
            elif method == "notifications/cancelled":
                self._take_cancelled(_read_cancelled(params))
            else:
                _object(params)
                self._events.append(Notified(method, params))
        except MALFORMED as error:
            text = "the server sent a bad %s: %s"
            self.faults.say(logging.WARNING, text, printable(method), printable(explain(error)))

    def _take_progress(self, params: ProgressParams) -> None:
        pending = self._pending.get(params.progress_token)
        if pending is not None and pending.wants_progress:
            self._events.append(Progressed(params.progress_token, params.progress, params.total, params.message))

    def _take_cancelled(self, params: CancelledParams) -> None:
        """A question withdrawn. In modern versions it ends a subscription of ours, whose result says so already."""
        if params.request_id is not None and params.request_id in self._asked:
            self._asked.discard(params.request_id)
            self._events.append(Withdrawn(params.request_id))


def _is_utf8(frame: bytes) -> bool:
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True


def _answered_by(frame: bytes | Raw) -> Id | None:
    """The id of a frame that is no call, however bad it is otherwise; None if it cannot be told."""
    try:
        found = _read_bearer(frame)
    except MALFORMED:
        return answered_by(bytes(frame))
    return found.id if found.method is ABSENT else None


def _present(params: Raw, frame: bytes) -> Raw:
    """Params as they may be kept: raw JSON is a part of its frame, which may have much besides."""
    if params is ABSENT:
        return Raw(b"{}")
    return params if 2 * len(params) > len(frame) else params.copy()


def _as_json(version: Version, params: Any) -> bytes | Raw:
    """Params as a JSON object. Raises LocalProtocolError for what cannot be one."""
    if params is None:
        return b"{}"
    if isinstance(params, Raw):
        return params
    try:
        return encode(version.shape(params))
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise LocalProtocolError(f"these params cannot be written as JSON: {error}") from error


def _meta_of(members: Mapping[str, Any]) -> dict[str, Any]:
    raw = members.get("_meta")
    if raw is None:
        return {}
    if isinstance(raw, dict):
        return raw
    try:
        return _object(raw)
    except MALFORMED as error:
        raise InvalidParams(f"_meta must be an object: {explain(error)}") from None
