"""The client's side of one connection, without I/O: waiting requests, open requests of the server, and the version.

Frames are passed to `receive` and returned by `data_to_send`; `events` returns what happened. The version is negotiated
first:

    probe()          -> response: `read_discovery` selects the version
                        accept_probe(it), if the version is a modern one
    initialize(v)    otherwise -> response: accept_initialize(result)
    request(...)     in modern versions, `_meta` contains the version, the capabilities and the client's name

Illegal messages of the server are logged and otherwise ignored; illegal requests get an error response.

Spec: 2025-11-25 basic/lifecycle; 2026-07-28 basic/{index,versioning}, basic/patterns/{cancellation,progress}.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Raw, Struct
from msgspec.json import Decoder

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
from mcpd.protocol.envelope import Envelope, with_meta, with_progress
from mcpd.protocol.jsonrpc import (
    MALFORMED,
    Batch,
    Failure,
    Id,
    Message,
    Notification,
    OutgoingMessage,
    Request,
    Response,
    Result,
    decode,
    decode_batch,
    encode,
    encode_message,
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
from mcpd.protocol.types.tasks import TASKS
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version
from mcpd.protocol.wire import trace_context
from .limits import Faults
from .messages import (
    Agreement,
    Headings,
    as_members,
    decode_result,
    id_answered,
    is_utf8,
    params_to_keep,
    read_initialize,
)

if TYPE_CHECKING:
    from asyncio import Task, Timeout


OnProgress: TypeAlias = Callable[[float, float | None, str | None], Any]
"""A plain function that is called with progress, total and message. The response does not wait for it."""


class ClientRequest(PendingRequest, kw_only=True, eq=False):
    """A request that waits for its response. The connection sets all fields except `wants_progress`."""

    wants_progress: bool = False
    on_progress: OnProgress | None = None
    timeout: float | None = None
    """Seconds that it may wait without progress; None for no limit."""
    latest: float | None = None
    """When it is cancelled whatever its progress, in seconds of the event loop's clock."""
    clock: Timeout | None = None
    """The timeout of the task that carries it over a connection of its own."""
    carrier: Task[Any] | None = None
    """The task that carries it over a connection of its own. It must be interrupted when the request is settled."""

    def restart(self, now: float, *, is_stopped: bool) -> None:
        """Restart the clock after progress. With `is_stopped` it stops while the server waits for this client."""
        timeout, latest = self.timeout, self.latest
        if timeout is None or latest is None:
            return
        if self.waiter is None or not self.waiter.done():
            self.deadline = latest if is_stopped else min(now + timeout, latest)

    def interrupt(self, now: float) -> None:
        """End the wait, because the request has timed out or was settled elsewhere."""
        if self.clock is None:
            self.settle(TimeoutError())
        elif not self.clock.expired():
            self.clock.reschedule(now)


class ResponseReceived(Struct, frozen=True):
    """A request has its outcome: the result, RemoteError, or ProtocolError for an invalid response."""

    request: ClientRequest
    outcome: Raw | RemoteError | ProtocolError


class ProgressReceived(Struct, frozen=True):
    request: ClientRequest
    params: ProgressParams


class ServerRequest(RequestInFlight, eq=False):
    """A request of the server, in legacy versions. Answer it with `ClientSession.answer` or `refuse`."""

    params: Raw


class RequestCancelled(Struct, frozen=True):
    """The server has cancelled its request. A response to it is dropped."""

    asked: ServerRequest


class UnreadResult(Struct, frozen=True):
    """The result of a tool call that was cancelled before. It may be a task."""

    request: ClientRequest
    result: Raw


class NotificationReceived(Struct, frozen=True):
    """A notification of the server. `params` is `{}` if it has none."""

    method: str
    params: Raw


Event: TypeAlias = (
    ResponseReceived | ProgressReceived | ServerRequest | RequestCancelled | UnreadResult | NotificationReceived
)

log = logging.getLogger("mcpd.client")

# Tasks whose progress is reported, and cancelled calls that may become tasks. The oldest ones are forgotten.
_MOST_TASKS = 1000

# A byte order mark, which some servers send before their first message.
_MARK = b"\xef\xbb\xbf"

_object = Decoder(dict[str, Any]).decode
_read_progress = Decoder(ProgressParams).decode
_read_cancelled = Decoder(CancelledParams).decode


Frame: TypeAlias = tuple[bytes, Id | None, str | None, Heading | None]
"""A frame, the id of its request, its method, and its heading: arguments of `Channel.send` and
`HeadedChannel.send_headed`."""


class ClientSession:
    """The state of one connection."""

    def __init__(self, info: Implementation, capabilities: ClientCapabilities, faults: Faults | None = None) -> None:
        self.faults = Faults(log) if faults is None else faults
        """The log of protocol violations of the server."""
        self.answered_bytes = 0
        """Total size of the responses to requests of the server."""

        self.info = info
        self.capabilities = capabilities
        # Whether the program has added extensions, which may have any methods.
        self._has_extensions = bool((capabilities.extensions or {}).keys() - {TASKS})
        self.version: Version | None = None
        self.server_info: Implementation | None = None
        self.server_capabilities = ServerCapabilities()
        self.instructions: str | None = None
        self.headings: Headings | None = None
        """Headers for messages; None if the transport has none."""
        self.envelope: Envelope | None = None
        """The `_meta` of modern requests; None until a modern version is negotiated."""

        self.pending: PendingRequests[ClientRequest] = PendingRequests()
        """Requests of this client that wait for a response."""
        self.in_flight: RequestsInFlight[ServerRequest] = RequestsInFlight()
        """Requests of the server that wait for a response."""
        self._progressing: dict[Id, ClientRequest] = {}
        # Cancelled tool calls, whose result may still be on its way.
        self._cancelled_calls: dict[Id, ClientRequest] = {}
        self.outgoing: list[Frame] = []
        """The frames that `data_to_send` returns. Public, so that a check for each received frame is cheap."""
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def data_to_send(self) -> list[Frame]:
        """Return the frames to send since the last call, in order."""
        frames, self.outgoing = self.outgoing, []
        return frames

    # -------------------------------------------------------------------------------------- negotiation

    def probe(self, version: str | None = None) -> ClientRequest:
        """Send `server/discover` to a server of unknown era, in this version or the newest one."""
        # Spec: 2026-07-28 server/discover: the probe has the envelope of the version that it asks about.
        envelope = Envelope(version or table.MODERN[-1], self.info, self.capabilities)
        return self._send_request("server/discover", envelope.wrap({}), envelope)

    def accept_probe(self, agreed: Agreement) -> None:
        self._accept(agreed, in_session=False)
        self.envelope = Envelope(agreed.version, self.info, self.capabilities)

    def initialize(self, version: str) -> ClientRequest:
        found = table.get(version)
        params = InitializeParams(
            protocol_version=version, capabilities=found.shape(self.capabilities), client_info=found.shape(self.info)
        )
        return self._send_request("initialize", as_members(found, params))

    def accept_initialize(self, result: Raw) -> str:
        """Process the response to `initialize`, notify the server, and return the version, which is used from now on.

        Raises UnsupportedVersion for an unknown version.
        """
        agreed = read_initialize(result)
        self._accept(agreed, in_session=True)
        self._send_other(encode_message("notifications/initialized"), None, "notifications/initialized")
        return agreed.version

    def _accept(self, agreed: Agreement, *, in_session: bool) -> None:
        self.version = table.get(agreed.version)
        if self.headings is not None:
            self.headings.set_version(agreed.version, in_session=in_session)
        self.server_info = agreed.server_info
        self.server_capabilities = agreed.capabilities
        self.instructions = agreed.instructions

    # ---------------------------------------------------------------------------------------- requests

    def request(
        self, method: str, params: Any = None, *, wants_progress: bool = False, envelope: Envelope | None = None
    ) -> ClientRequest:
        """Send a request. `params` is a struct, a mapping or raw JSON.

        In modern versions, `envelope` describes another client than this one, for whom the request is sent.

        Methods that are unknown to all versions are allowed if the client has extensions. Raises LocalProtocolError for
        a method that the negotiated version lacks.
        """
        version = self.version
        if version is None or method not in version.requests:
            version = self._agreed()
            is_ours = self._has_extensions or method.startswith("tasks/")
            # Some servers have events in every version.
            if not method.startswith("events/") and (not is_ours or table.is_known_method(method)):
                raise LocalProtocolError(f"{method} does not exist in protocol version {version.name}")

        members = as_members(version, params)
        envelope = None if self.envelope is None else envelope or self.envelope
        if envelope is not None:
            members = envelope.wrap(members)
        return self._send_request(method, members, envelope, wants_progress)

    def _send_request(
        self, method: str, members: Any, envelope: Envelope | None = None, wants_progress: bool = False
    ) -> ClientRequest:
        request = ClientRequest(method, wants_progress=wants_progress)
        # Added first, because the id is part of the frame; taken out again if the frame cannot be made.
        request_id, headings = self.pending.add(request), self.headings
        try:
            if trace_context.is_traced:
                added = trace_context.propagated()
                members = with_meta(members, added) if added else members
            if wants_progress:
                # Request ids are unique, so they also serve as progress tokens.
                members = with_progress(members, request_id)
            try:
                frame = encode(OutgoingMessage(method, members or UNSET, request_id))
            except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
                raise LocalProtocolError(f"params cannot be encoded as JSON: {error}") from error

            if len(frame) > MAX_FRAME_BYTES:
                text = f"{method} is too large: {len(frame)} bytes; the maximum is {MAX_FRAME_BYTES}"
                raise LocalProtocolError(text)

            heading = None
            if headings is not None:
                heading = headings.for_request(method, members, None if envelope is None else envelope.version)
        except BaseException:
            self.pending.take(request_id)
            raise

        self.outgoing.append((frame, request_id, method, heading))
        return request

    def _send_other(self, frame: bytes, request_id: Id | None, method: str | None) -> None:
        heading = None if self.headings is None else self.headings.other
        self.outgoing.append((frame, request_id, method, heading))

    def cancel(self, request_id: Id, reason: str) -> bool:
        """Cancel a request; False if it already has its response. `initialize` is only forgotten."""
        request = self.pending.take(request_id)
        if request is None:
            return False
        if request.method == "tools/call":
            self._cancelled_calls[request_id] = request
            if len(self._cancelled_calls) > _MOST_TASKS:
                del self._cancelled_calls[next(iter(self._cancelled_calls))]
        # Spec: 2025-11-25 basic/utilities/cancellation: "`initialize` MUST NOT be cancelled by clients".
        known = self.version is None or "notifications/cancelled" in self.version.notifications
        if request.method != "initialize" and known:
            params = CancelledParams(request_id=request_id, reason=reason or None)
            self._send_other(encode_message("notifications/cancelled", params), request_id, "notifications/cancelled")
        return True

    def keep_progress(self, request: ClientRequest) -> None:
        """Report the progress of a request after its response, too, because the request has become a task."""
        self._progressing[request.id] = request
        if len(self._progressing) > _MOST_TASKS:
            del self._progressing[next(iter(self._progressing))]

    def notify(self, method: str, params: Any = None) -> None:
        """Send a notification. Raises LocalProtocolError if the negotiated version lacks it."""
        version = self._agreed()
        may_be_theirs = self._has_extensions and not table.is_known_method(method)
        if method not in version.notifications and not may_be_theirs:
            raise LocalProtocolError(f"{method} does not exist in protocol version {version.name}")
        self._send_other(encode_message(method, params), None, method)

    def _agreed(self) -> Version:
        if self.version is None:
            raise LocalProtocolError("requests cannot be sent before a protocol version is negotiated")
        return self.version

    # -------------------------------------------------------------------------- requests of the server

    def answer(self, asked: ServerRequest, result: Any) -> None:
        """Answer a request of the server, unless it was cancelled. It stays open if the result cannot be encoded."""
        if self.in_flight.is_open(asked):
            self._send_answer(Result(asked.id, result), asked.id, asked.method)
            self.in_flight.close(asked)

    def refuse(self, asked: ServerRequest, error: ProtocolError) -> None:
        """Answer a request of the server with an error, unless it was cancelled."""
        # Spec: 2025-11-25 basic/utilities/cancellation: a cancelled request gets no response.
        if self.in_flight.close(asked):
            self._send_error(error, asked.id, asked.method)

    def _send_error(self, error: ProtocolError, request_id: Id, method: str | None = None) -> None:
        self._send_answer(error_answer(error, request_id), request_id, method)

    def _send_answer(self, answer: Result | Failure, request_id: Id, method: str | None) -> None:
        if self.version is not None and not self.version.server_requests:
            # Spec: 2026-07-28 basic/transports: a server sends no requests, and "the client MUST NOT send responses".
            text = "the server sent the request %s, which %s does not allow; it is ignored"
            self.faults.log(logging.WARNING, text, printable(method or "(unreadable)"), printable(self.version.name))
            return
        # Encoded before it is counted: a result of the program may not be JSON.
        frame = encode(answer)
        self.answered_bytes += len(frame)
        self._send_other(frame, request_id, method)

    # --------------------------------------------------------------------------------------- receiving

    def receive(self, frame: bytes) -> tuple[ClientRequest, Raw] | None:
        """Process a frame. The events that it causes are returned by `events`.

        A plain result, which is nearly every frame, is returned immediately, with its request.
        """
        try:
            found = decode_result(frame)
        except MALFORMED:
            self._take_other(frame)
            return None

        # The check of UTF-8 is only needed for other frames, and most frames are ASCII.
        if frame.isascii():
            request = self.pending.by_id.pop(found.id, None) or self.pending.take(found.id)
            if request is not None:
                return request, found.result
            if (cancelled := self._cancelled_calls.pop(found.id, None)) is not None:
                self._events.append(UnreadResult(cancelled, found.result))
            return None
        self._take(Response(found.id, found.result), frame)
        return None

    def _take_other(self, frame: bytes) -> None:
        # RFC 8259 8.1: parsers may ignore a byte order mark instead of treating it as an error.
        frame = frame.removeprefix(_MARK)
        try:
            message = decode(frame)
        except ProtocolError as error:
            self._refuse(error, frame)
            return

        if not isinstance(message, Batch):
            self._take(message, frame)
        else:
            # Some servers send batches in other versions, too, and the official client accepts them. Parts are copied,
            # so that a part which is kept does not keep the whole batch in memory.
            parts = Batch(raw.copy() for raw in message)
            for raw, part in zip(parts, decode_batch(parts), strict=True):
                if isinstance(part, ProtocolError):
                    self._refuse(part, raw)
                else:
                    self._take(part, bytes(raw))

    def receive_error(self, error: FrameTooLarge) -> None:
        """Fail the request whose response was too large; all requests, if it is unknown which one."""
        if error.is_answer is False:
            if error.request_id is not None:
                self._send_error(error, error.request_id)
            return
        # The head of the message names the request if it could be read; otherwise any of them may have been answered.
        for request in self.pending.take_unread(error.request_id):
            self._events.append(ResponseReceived(request, error))

    def _refuse(self, error: ProtocolError, frame: bytes | Raw) -> None:
        # Fail the request that an invalid message answers. An invalid request of the server gets an error response.
        self.faults.log(logging.WARNING, "the server sent an invalid message: %s", printable(error.message))
        request = self.pending.take(id_answered(frame))
        if request is not None:
            text = f"The server's response to {request.method} is invalid: {error.message}"
            self._events.append(ResponseReceived(request, type(error)(text, error.data)))
        elif error.request_id is not None:
            self._send_error(error, error.request_id)

    def _take(self, message: Message, frame: bytes) -> None:
        if not frame.isascii() and not is_utf8(frame):
            # Params and results are raw, so their text has not been checked yet.
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
            self._events.append(ResponseReceived(request, outcome_of(message)))
        elif isinstance(message, Failure):
            # A late response, or an error about an unreadable message.
            text = "the server sent an error for no known request: %s"
            self.faults.log(logging.INFO, text, printable(message.error.message, 300))

    def _take_request(self, message: Request, frame: bytes) -> None:
        version = self.version
        if message.method == "ping":
            # Both sides may send pings, even during the handshake.
            self._send_answer(Result(message.id, {}), message.id, message.method)
        # Two requests with one id could not be distinguished when the server cancels one of them.
        elif message.id in self.in_flight:
            self._send_error(InvalidRequest(ID_IN_USE), message.id, message.method)
        elif version is None or message.method not in version.server_requests:
            self._send_error(MethodNotFound(f"Method not found: {message.method[:100]}"), message.id, message.method)
        else:
            asked = ServerRequest(message.id, message.method, params_to_keep(message.params, frame))
            self.in_flight.add(asked)
            self._events.append(asked)

    def _take_notification(self, message: Notification, frame: bytes) -> None:
        method, params = message.method, params_to_keep(message.params, frame)
        try:
            if method == "notifications/progress":
                progress = _read_progress(params)
                token = progress.progress_token
                request = self.pending.get(token) or self._progressing.get(token)
                if request is not None and request.wants_progress:
                    self._events.append(ProgressReceived(request, progress))
            elif method == "notifications/cancelled":
                self._take_cancelled(_read_cancelled(params))
            else:
                _object(params)
                self._events.append(NotificationReceived(method, params))
        except MALFORMED as error:
            text = "the server sent an invalid %s: %s"
            self.faults.log(logging.WARNING, text, printable(method), printable(explain(error)))

    def _take_cancelled(self, params: CancelledParams) -> None:
        # A cancelled request of the server or, in modern versions, the end of a subscription.
        # Spec: 2026-07-28 basic/patterns/cancellation: a server MUST send it for `subscriptions/listen` only.
        asked = self.in_flight.cancel(params.request_id)
        if asked is not None:
            self._events.append(RequestCancelled(asked))
            return

        request = self.pending.get(params.request_id)
        if request is not None and request.method == "subscriptions/listen":
            self.pending.take(request.id)
            self._events.append(ResponseReceived(request, Raw(b"{}")))
