"""The client's side of one connection without I/O: requests that wait, questions that are open, the version.

Theory of operation. Frames come in through `receive`, go out through `data_to_send`; what happened comes out
of `events`. A version is agreed on first, then anything may be asked:

    probe()          -> answered: `handshake.read_discovery` says which version to go on with
                        accept_probe(that), if it is a modern one
    initialize(v)    if it is a legacy one -> answered: accept_initialize(result)
    request(...)     a modern request carries version, capabilities and identity in its `_meta`

What is not legal for the server to send is answered if it was a request, logged, and changes nothing.

Spec: 2025-11-25 basic/lifecycle; 2026-07-28 basic/{index,versioning}, basic/patterns/{cancellation,progress}.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Raw, Struct
from msgspec.json import Decoder

from mcpd.client.headings import Headings
from mcpd.client.limits import Faults
from mcpd.client.messages import (
    Agreement,
    Envelope,
    as_members,
    decode_result,
    id_answered,
    is_utf8,
    params_to_keep,
    read_initialize,
    with_meta,
)
from mcpd.errors import (
    FrameTooLarge,
    InvalidRequest,
    LocalProtocolError,
    MethodNotFound,
    ParseError,
    ProtocolError,
    RemoteError,
)
from mcpd.protocol.channel import Heading
from mcpd.protocol.jsonrpc import (
    MALFORMED,
    Batch,
    Call,
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
)
from mcpd.protocol.printable import printable
from mcpd.protocol.requests import (
    ID_IN_USE,
    PendingRequest,
    PendingRequests,
    RequestInFlight,
    RequestsInFlight,
    outcome_of,
)
from mcpd.protocol.session import MAX_FRAME_BYTES
from mcpd.protocol.types.base import (
    CancelledParams,
    ClientCapabilities,
    Implementation,
    InitializeParams,
    ProgressParams,
    ServerCapabilities,
)
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version
from mcpd.protocol.wire import trace_context

if TYPE_CHECKING:
    from asyncio import Task, Timeout


OnProgress: TypeAlias = Callable[[float, float | None, str | None], Any]
"""Called with progress, total and message of a request; a plain function, for the answer does not wait for it."""


class ClientRequest(PendingRequest, kw_only=True, eq=False):
    """A request to the server that waits for its answer. All but `wants_progress` is set by whoever awaits it."""

    wants_progress: bool = False
    on_progress: OnProgress | None = None
    timeout: float | None = None
    """How many seconds it waits without a sign of life; None for as long as it takes."""
    latest: float | None = None
    """When it is given up, whatever the signs of life; in seconds of the event loop's clock."""
    clock: Timeout | None = None
    """Of whoever carries it over a connection of its own."""
    carrier: Task[Any] | None = None
    """Who carries it over a connection of its own, and would not notice that somebody else has settled it."""

    def restart(self, now: float, *, is_stopped: bool) -> None:
        """There was a sign of life. `is_stopped`: the server waits for us, and its time stands still."""
        timeout, latest = self.timeout, self.latest
        if timeout is None or latest is None:
            return
        if self.waiter is None or not self.waiter.done():
            self.deadline = latest if is_stopped else min(now + timeout, latest)

    def interrupt(self, now: float) -> None:
        """End the wait, of whatever is waited for: its time is up, or somebody else has settled it."""
        if self.clock is None:
            self.settle(TimeoutError())
        elif not self.clock.expired():
            self.clock.reschedule(now)


class Answered(Struct, frozen=True):
    """A request of ours has its answer: its result, or RemoteError; ProtocolError if it could not be read."""

    request: ClientRequest
    outcome: Raw | RemoteError | ProtocolError


class Progressed(Struct, frozen=True):
    """How far a request of ours is."""

    request: ClientRequest
    progress: float
    total: float | None
    message: str | None


class Asked(RequestInFlight, eq=False):
    """The server asks something: answer with `ClientSession.answer` or `ClientSession.refuse`. Legacy versions only."""

    params: Raw


class Withdrawn(Struct, frozen=True):
    """The server gave its question up; an answer to it is dropped."""

    asked: Asked


class Notified(Struct, frozen=True):
    """The server tells something. `params` is `{}` if it had none."""

    method: str
    params: Raw


Event: TypeAlias = Answered | Progressed | Asked | Withdrawn | Notified

log = logging.getLogger("mcpd.client")

_MARK = b"\xef\xbb\xbf"
"""A byte order mark, which some servers write before their first message."""

_object = Decoder(dict[str, Any]).decode
_read_progress = Decoder(ProgressParams).decode
_read_cancelled = Decoder(CancelledParams).decode


Frame: TypeAlias = tuple[bytes, Id | None, str | None, Heading | None]
"""A frame, the id of the request that it is or belongs to, its method, and its heading if there are any: as
`Channel.send` and `HeadedChannel.send_headed` take them."""


class ClientSession:
    """One connection, seen from the client."""

    def __init__(self, info: Implementation, capabilities: ClientCapabilities, faults: Faults | None = None) -> None:
        self.faults = Faults(log) if faults is None else faults
        """What the server does wrong."""
        self.answered_bytes = 0
        """How much was said to requests of the server, in all."""

        self.info = info
        self.capabilities = capabilities
        self.version: Version | None = None
        self.server_info: Implementation | None = None
        self.server_capabilities = ServerCapabilities()
        self.instructions: str | None = None
        self.headings: Headings | None = None
        """What goes beside messages; None where the transport has no place for that."""
        self.envelope: Envelope | None = None
        """What modern requests say of us; None until a modern version is in force."""

        self.pending: PendingRequests[ClientRequest] = PendingRequests()
        """Our requests that wait for an answer."""
        self.in_flight: RequestsInFlight[Asked] = RequestsInFlight()
        """The server's that wait for ours."""
        self.outgoing: list[Frame] = []
        """The frames that `data_to_send` gives: whether there are any is asked with each frame that comes."""
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        """What happened since the last call."""
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> list[Frame]:
        """The frames for the server since the last call, in order, as `Channel.send` takes them."""
        frames, self.outgoing = self.outgoing, []
        return frames

    # ---------------------------------------------------------------------------- agreeing on a version

    def probe(self, version: str | None = None) -> ClientRequest:
        """Ask a server of unknown era what it speaks, in that version or the newest there is."""
        envelope = Envelope(version or table.MODERN[-1], self.info, self.capabilities)
        return self._send_request("server/discover", envelope.wrap({}), envelope)

    def accept_probe(self, agreed: Agreement) -> None:
        """The answer to the probe came to a modern version: it is in force from now on."""
        self._accept(agreed)
        if self.headings is not None:
            self.headings.agreed(agreed.version, in_session=False)
        self.envelope = Envelope(agreed.version, self.info, self.capabilities)

    def initialize(self, version: str) -> ClientRequest:
        """Open a legacy connection with this version as the offer."""
        offered = table.get(version).shape(self.capabilities)
        info = table.get(version).shape(self.info)
        params = InitializeParams(protocol_version=version, capabilities=offered, client_info=info)
        return self._send_request("initialize", params)

    def accept_initialize(self, result: Raw) -> str:
        """Take the server's answer, and tell it that we are ready: gives the version, which is in force from now on.

        Raises UnsupportedVersion for a version we do not speak.
        """
        agreed = read_initialize(result)
        self._accept(agreed)
        if self.headings is not None:
            self.headings.agreed(agreed.version, in_session=True)
        self._send_other(call("notifications/initialized"), None, "notifications/initialized")
        return agreed.version

    def _accept(self, agreed: Agreement) -> None:
        self.version = table.get(agreed.version)
        self.server_info = agreed.server_info
        self.server_capabilities = agreed.capabilities
        self.instructions = agreed.instructions

    # ------------------------------------------------------------------------------------------ asking

    def request(self, method: str, params: Any = None, *, wants_progress: bool = False) -> ClientRequest:
        """Send a request, which waits from now on. `params` is a struct, a mapping or raw JSON.

        What no version knows may be a method of an extension, if this client offers any.
        Raises LocalProtocolError where the version in force has no such method.
        """
        version = self.version
        if version is None or method not in version.requests:
            version = self._agreed()
            if not self.capabilities.extensions or table.is_known_method(method):
                raise LocalProtocolError(f"{method} does not exist in protocol version {version.name}")

        members, envelope = as_members(version, params), self.envelope
        if envelope is not None:
            members = envelope.wrap(members)
        return self._send_request(method, members, envelope, wants_progress)

    def _send_request(
        self, method: str, members: Any, envelope: Envelope | None = None, wants_progress: bool = False
    ) -> ClientRequest:
        # On the way of each call: names of arguments would cost as much as a function does.
        request = ClientRequest(method, wants_progress=True) if wants_progress else ClientRequest(method)
        request_id, headings = self.pending.add(request), self.headings
        try:
            if trace_context.is_traced:
                added = trace_context.propagated()
                members = with_meta(members, added) if added else members
            if wants_progress:
                # Our ids are unique, so that they serve as progress tokens too.
                members = with_meta(members, {"progressToken": request_id})
            try:
                frame = encode(Call(method, members, request_id)) if members else call(method, None, request_id)
            except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
                raise LocalProtocolError(f"params cannot be written as JSON: {error}") from error

            if len(frame) > MAX_FRAME_BYTES:
                text = f"{method} is too large: {len(frame)} bytes, a message may have {MAX_FRAME_BYTES}"
                raise LocalProtocolError(text)

            heading = None
            if headings is not None:
                heading = headings.of_request(method, members, None if envelope is None else envelope.version)
        except BaseException:
            self.pending.take(request_id)
            raise

        self.outgoing.append((frame, request_id, method, heading))
        return request

    def _send_other(self, frame: bytes, request_id: Id | None, method: str | None) -> None:
        """Queue what is no request."""
        heading = None if self.headings is None else self.headings.of_other()
        self.outgoing.append((frame, request_id, method, heading))

    def cancel(self, request_id: Id, reason: str) -> bool:
        """Give a request up; False if it had its answer. An `initialize` is not to be cancelled: only forgotten."""
        request = self.pending.take(request_id)
        if request is None:
            return False
        known = self.version is None or "notifications/cancelled" in self.version.notifications
        if request.method != "initialize" and known:
            params = CancelledParams(request_id=request_id, reason=reason or None)
            self._send_other(call("notifications/cancelled", params), request_id, "notifications/cancelled")
        return True

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification. Raises LocalProtocolError where the version in force has no such."""
        version = self._agreed()
        may_be_theirs = self.capabilities.extensions and not table.is_known_method(method)
        if method not in version.notifications and not may_be_theirs:
            raise LocalProtocolError(f"{method} does not exist in protocol version {version.name}")
        self._send_other(call(method, params), None, method)

    def _agreed(self) -> Version:
        if self.version is None:
            raise LocalProtocolError("nothing can be asked before a version is agreed on")
        return self.version

    # --------------------------------------------------------------------------------------- answering

    def answer(self, asked: Asked, result: Any) -> None:
        """Answer a question of the server; nothing is sent if it was withdrawn. What is no JSON leaves it open."""
        if self.in_flight.is_open(asked):
            self._send_answer(Result(asked.id, result), asked.id, asked.method)
            self.in_flight.close(asked)

    def refuse(self, asked: Asked, error: ProtocolError) -> None:
        """Answer a question of the server with an error; nothing is sent if it was withdrawn."""
        if self.in_flight.close(asked):
            self._send_error(error, asked.id, asked.method)

    def _send_error(self, error: ProtocolError, request_id: Id, method: str | None = None) -> None:
        self._send_answer(error_answer(error, request_id), request_id, method)

    def _send_answer(self, answer: Result | Failure, request_id: Id, method: str | None) -> None:
        if self.version is not None and not self.version.server_requests:
            # Spec: 2026-07-28 basic/transports: a server sends no requests, and "the client MUST NOT send responses".
            text = "the server sent the request %s, which servers do not in %s: it is not answered"
            self.faults.say(logging.WARNING, text, printable(method or "(unreadable)"), printable(self.version.name))
            return
        frame = encode(answer)
        self.answered_bytes += len(frame)
        self._send_other(frame, request_id, method)

    # --------------------------------------------------------------------------------------- receiving

    def receive(self, frame: bytes) -> tuple[ClientRequest, Raw] | None:
        """Take one frame of the server. What came of it is in `events`.

        But for a plain result, which is nearly all that comes: it is given at once, with the request that it answers.
        """
        try:
            found = decode_result(frame)
        except MALFORMED:
            self._take_other(frame)
            return None

        if frame.isascii():
            request = self.pending.by_id.pop(found.id, None) or self.pending.take(found.id)
            return None if request is None else (request, found.result)
        self._take(Response(found.id, found.result), frame)
        return None

    def _take_other(self, frame: bytes) -> None:
        """Take what is no plain result."""
        if frame.startswith(_MARK):
            frame = frame.removeprefix(_MARK)
        try:
            message = decode(frame)
        except ProtocolError as error:
            self._refuse(error, frame)
            return

        if not isinstance(message, Batch):
            self._take(message, frame)
        else:
            # Also in versions without batches: some servers answer with a list, and the official client takes it.
            # Each part for itself: what is kept of one must not keep the whole batch.
            parts = Batch(raw.copy() for raw in message)
            for raw, part in zip(parts, decode_batch(parts), strict=True):
                if isinstance(part, ProtocolError):
                    self._refuse(part, raw)
                else:
                    self._take(part, bytes(raw))

    def receive_error(self, error: FrameTooLarge) -> None:
        """A message was too large to be read: who asked for it hears that, or if it cannot be told whose it is, all."""
        if error.is_answer is False:
            if error.request_id is not None:
                self._send_error(error, error.request_id)
            return
        for request in self.pending.take_unread(error.request_id):
            self._events.append(Answered(request, error))

    def _refuse(self, error: ProtocolError, frame: bytes | Raw) -> None:
        """What cannot be read fails the call of ours that it would have answered; a question gets the error."""
        self.faults.say(logging.WARNING, "the server sent what cannot be read: %s", printable(error.message))
        request = self.pending.take(id_answered(frame))
        if request is not None:
            text = f"The server's answer to {request.method} cannot be read: {error.message}"
            self._events.append(Answered(request, type(error)(text, error.data)))
        elif error.request_id is not None:
            self._send_error(error, error.request_id)

    def _take(self, message: Message, frame: bytes) -> None:
        if not frame.isascii() and not is_utf8(frame):
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
        request = self.pending.take(message.id)
        if request is not None:
            self._events.append(Answered(request, outcome_of(message)))
        elif isinstance(message, Failure):
            # Late, after we gave it up, or an error about what could not be read: nobody waits for it.
            text = "an error of the server that answers nothing: %s"
            self.faults.say(logging.INFO, text, printable(message.error.message, 300))

    def _take_request(self, message: Request, frame: bytes) -> None:
        version = self.version
        if message.method == "ping":
            # Both sides may, even before the handshake is through.
            self._send_answer(Result(message.id, {}), message.id, message.method)
        elif message.id in self.in_flight:
            self._send_error(InvalidRequest(ID_IN_USE), message.id, message.method)
        elif version is None or message.method not in version.server_requests:
            self._send_error(MethodNotFound(f"Method not found: {message.method[:100]}"), message.id, message.method)
        else:
            asked = Asked(message.id, message.method, params_to_keep(message.params, frame))
            self.in_flight.add(asked)
            self._events.append(asked)

    def _take_notification(self, message: Notification, frame: bytes) -> None:
        method, params = message.method, params_to_keep(message.params, frame)
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
        request = self.pending.get(params.progress_token)
        if request is not None and request.wants_progress:
            self._events.append(Progressed(request, params.progress, params.total, params.message))

    def _take_cancelled(self, params: CancelledParams) -> None:
        """A question withdrawn or, in modern versions, the end of a subscription of ours: its result may not come.

        Spec: 2026-07-28 basic/patterns/cancellation: a server MUST say it of `subscriptions/listen`, and of no other.
        """
        asked = self.in_flight.cancel(params.request_id)
        if asked is not None:
            self._events.append(Withdrawn(asked))
            return

        request = self.pending.get(params.request_id)
        if request is not None and request.method == "subscriptions/listen":
            self.pending.take(request.id)
            self._events.append(Answered(request, Raw(b"{}")))
