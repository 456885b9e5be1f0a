"""The state of one connection on the server's side, without I/O: phase, version, open calls, and what may be sent.

A connection fixes an era, a call fixes its version. A legacy connection agrees on one version in `initialize`; a modern
client sends the version with each request. Both become the same `Call`, so the code above does not see the difference.
`receive_request` opens a call. `respond`, `fail` or `cancel` closes it, and a closed call is never answered. The table
of open calls is in `requests.py`.

    phase         how it is entered                 from the client                     the server may send
    ------------  --------------------------------  ----------------------------------  ----------------------------
    NEW           Session()                         initialize; a modern request;       responses
                                                    ping and server/discover, which
                                                    leave it NEW; others: an error
    INITIALIZING  initialize received, or restored  initialized; requests of the        responses, requests, and
                                                    version; initialize: -32600         messages of an open call
    INITIALIZED   initialized received, or opened   requests of the version             the same, and changes
                  in a legacy version, or restored
    MODERN        a request with its version        requests, each in its own version;  responses, and messages of
                  served, or opened in a modern     initialize: -32022                  an open call
                  version

A refused request changes no phase. A session never returns to an earlier phase.

Spec: 2025-11-25 basic/lifecycle; 2026-07-28 basic/index, basic/versioning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct, field
from msgspec.json import decode

from mcpd.errors import (
    AccessDenied,
    InternalError,
    InvalidRequest,
    LocalProtocolError,
    MethodNotFound,
    ProtocolError,
    ResultTooLarge,
    UnsupportedVersion,
)
from mcpd.protocol.types.base import InitializeParams, ProgressParams, RequestMeta
from mcpd.protocol.versions.table import NO_EXTENSIONS, Reader, Version, Vocabulary
from .budget import CALL, OVER, SMALL, Charge, ChargedTexts, client_of, weigh
from .defaults import MAX_FRAME_BYTES
from .envelope import (
    ClientIdentity,
    Opening,
    Phase,
    asked_version,
    check_envelope,
    check_optional,
    has_no_envelope,
    identity_in,
    log_level_in,
    read_head,
    read_identity,
    read_initialize,
    read_meta,
    read_params,
    refuse_envelope,
)
from .jsonrpc import (
    ABSENT,
    MALFORMED,
    Id,
    Notification,
    OutgoingMessage,
    Request,
    Result,
    decode_request,
    encode,
    encode_message,
    error_answer,
    replace_lone_surrogates,
)
from .requests import ID_IN_USE, RequestInFlight, RequestsInFlight
from .versions import table

if TYPE_CHECKING:
    from mcpd.protocol.wire.trace_context import TraceContext
    from .observer import OutcomeKind

__all__ = ["MAX_FRAME_BYTES", "WATCH_BYTES", "Call", "Opening", "Phase", "Session"]

# Memory that one subscription costs, not counting its URI.
WATCH_BYTES = 200

# Open calls of one connection that take nothing of the memory budget; each further call is charged.
_FREE_CALLS = 64

_EMPTY = b"{}"
_UNKNOWN = ClientIdentity()
_OPENING = Opening()


class _Response(Struct):
    id: Id | None = None


class Call(RequestInFlight, eq=False):
    """One request of the client, from receipt to response. A struct, because msgspec creates these in C."""

    session: Session
    # The params as received, or the frame that contains them.
    source: Raw | bytes
    version: Version
    params: Any
    meta: RequestMeta | None
    last_progress: float | None = None
    # The last progress notification of the handler, and when one was sent, as `perf_counter` counts.
    report: ProgressParams | None = None
    reported: float = 0.0
    # The value of the last heartbeat; later values are larger.
    beat: float | None = None
    # Bytes of notifications sent for this call since the last iteration of the event loop; never 0 after the first.
    bytes_sent: int = 0
    # The call's share of the memory budget; None for most calls, which are small.
    charge: Charge | None = None
    # Why access was denied, for transports that have a status for it.
    denied: AccessDenied | None = None
    # Returns the call's span; None unless requests are traced.
    trace: Callable[[], TraceContext] | None = None
    # When the request was received, as `perf_counter` counts.
    began: float = field(default_factory=perf_counter)
    # The client as described by this request, cached once it was decoded.
    identity: ClientIdentity | None = None

    def hold(self, size: int) -> None:
        """Charge `size` more bytes to the memory budget until the call ends. Raises InternalError if it is used up."""
        charge = self.charge
        if charge is None:
            self.charge = charge = Charge(id(self.session), self.session.owner)
        if not charge.add(size):
            raise InternalError(OVER)

    @property
    def raw(self) -> Raw:
        if isinstance(self.source, bytes):
            self.source = decode_request(self.source).params
        return self.source

    @property
    def is_open(self) -> bool:
        """Whether the client still expects a response."""
        return self.session.in_flight.by_id.get(self.id) is self

    @property
    def client(self) -> ClientIdentity:
        if not self.version.is_modern or self.meta is None:
            return self.session.client
        if self.identity is None:
            self.identity = identity_in(self.meta)
        return self.identity

    @property
    def log_level(self) -> str | None:
        """The least severe level of log messages that the client wants; None for no messages."""
        if self.version.is_modern:
            return log_level_in(self.meta)
        return None if self.session.opening.is_stateless else self.session.log_level


class SessionHooks:
    """Functions that a session and its connection call. Each does nothing by default.

    There is one way to observe a server: all sessions call their hooks, and a session of a server without observers
    has none. `dispatcher.observing` has the hooks that call `Observer`s.
    """

    # Whether the connection calls `frame_received` and `frame_sent`.
    observes_frames = False

    def connection_opened(self) -> None:
        """A connection that lasts was opened."""

    def connection_closed(self, session: Session, seconds: float) -> None:
        """The connection has ended after `seconds`."""

    def call_began(self, call: Call) -> None:
        """A call was opened."""

    def call_ended(self, call: Call, kind: OutcomeKind, code: int | None = None, is_error: bool = False) -> None:
        """A call was closed; the arguments are those of `Outcome`."""

    def request_refused(self, session: Session, request: Request, error: ProtocolError) -> None:
        """No call was opened for a request."""

    def refused(self, reason: str) -> None:
        """An error response was sent to a message that never became a call; `reason` is its code."""

    def frame_received(self, connection: Any, frame: bytes, message: object) -> None:
        """A frame has arrived; `message` is the decoded message, or the error if it could not be decoded."""

    def frame_sent(self, frame: bytes, related_request_id: Id | None, method: str | None) -> None:
        """A frame was given to the channel."""


class Session(Struct, eq=False, weakref=True):
    """The state of one connection. All calls come from the event loop's thread.

    `version` is None until the first request that fixes the era. Afterwards it is the negotiated version, or in the
    modern era the newest one, because each call has its own. `hooks` are called for each call and connection; there are
    none unless somebody observes the server. A struct, because one is made for each modern request over HTTP.
    """

    # The `_meta` of modern results (`envelope.result_meta`).
    identity: Raw = Raw(_EMPTY)
    max_in_flight: int = 1024
    # Larger messages are not sent: the other side accepts as many bytes and would skip the rest.
    max_frame_bytes: int = MAX_FRAME_BYTES
    vocabulary: Vocabulary = NO_EXTENSIONS
    opening: Opening = _OPENING
    hooks: Sequence[SessionHooks] = ()
    client: ClientIdentity = _UNKNOWN
    # The share of the memory budget that a large description of the client takes.
    client_charge: Charge | None = None
    log_level: str | None = "info"
    # The URIs of the resources that a legacy client has subscribed to.
    watched: ChargedTexts | None = None
    version: Version | None = None
    phase: Phase = "new"
    in_flight: RequestsInFlight[Call] = field(default_factory=RequestsInFlight)

    def __post_init__(self) -> None:
        version = self.version = self.opening.version
        if version is not None:
            self.phase = "modern" if version.is_modern else "initialized"

    def restore(self, client: ClientIdentity, *, is_initialized: bool, log_level: str | None) -> None:
        """Continue a legacy session of another process. This session was opened in its version."""
        self.phase = "initialized" if is_initialized else "initializing"
        self.client = client
        self.log_level = log_level

    def release_memory(self) -> None:
        """Drop the memory of an empty table of calls: no request may come for a long time."""
        self.in_flight.by_id = self.in_flight.by_id or {}

    @property
    def is_initialized(self) -> bool:
        """Whether this is a legacy session that may receive notifications of changes."""
        return self.phase == "initialized"

    @property
    def owner(self) -> str:
        """The client behind the connection, for per-client limits (`client_of`); "" if unknown."""
        return client_of(self.opening.peer, self.opening.principal)

    @property
    def responsible(self) -> object:
        """The client that cancelled work counts for. Without a token, connections of one address differ."""
        owner = self.owner
        return owner if "@" in owner or (owner and not self.opening.subscribes) else self

    def watch(self, uri: str) -> int:
        """Subscribe the client to a resource. Returns its number of subscriptions.

        Raises InternalError if the memory budget is used up.
        """
        if self.watched is None:
            self.watched = ChargedTexts(WATCH_BYTES, id(self), self.owner)
        if not self.watched.add(uri):
            raise InternalError(OVER)
        return len(self.watched)

    def unwatch(self, uri: str) -> None:
        """End the client's subscription to a resource. Does nothing without one."""
        if self.watched is not None:
            self.watched.discard(uri)

    def is_watched(self, uri: str) -> bool:
        return self.watched is not None and uri in self.watched

    # -- receiving ---------------------------------------------------------------------------

    def receive_request(self, request: Request, charge: Charge | None = None) -> Call:
        """Open a call for a request. `charge` is the memory that its bytes take, and becomes the call's.

        Raises ProtocolError; then no call was opened.
        """
        in_flight = self.in_flight.by_id
        try:
            if request.id in in_flight:
                raise InvalidRequest(ID_IN_USE)
            count = len(in_flight)
            if count >= self.max_in_flight:
                raise InvalidRequest(f"Too many requests at once: {self.max_in_flight} are being answered; retry later")

            version = self.version
            if version is None or self.phase == "modern":
                call = self._open_modern(request)
            else:
                call = self._open_legacy(request, version)
            if charge is not None:
                call.charge = charge
            if count >= _FREE_CALLS:
                call.hold(CALL)
        except ProtocolError as error:
            for hooks in self.hooks:
                hooks.request_refused(self, request, error)
            raise

        in_flight[request.id] = call
        for hooks in self.hooks:
            hooks.call_began(call)
        return call

    def _open_legacy(self, request: Request, version: Version) -> Call:
        method = request.method
        if method == "initialize":
            raise InvalidRequest("Already initialized: a connection is initialized once")
        read = version.lookup(method) if method in version.requests else self.vocabulary.request(version, method)
        if read is None:
            refuse_envelope(read_meta(request.params))
            raise MethodNotFound(f"Method not found: {method}")

        raw = request.params
        try:
            params = read(_EMPTY if raw is ABSENT else raw)
        except MALFORMED:
            # Decode once more, for an error that names the field.
            params = read_params(read, raw)

        meta: RequestMeta | None = params.meta
        if meta is not None:
            refuse_envelope(meta)
        return Call(request.id, request.method, self, request.params, version, params, meta)

    def _open_modern(self, request: Request) -> Call:
        # Open a call whose version is in its own `_meta`, or where no version is known yet.
        #
        # The faults are reported in the order of the specification: envelope, version, method, params. Params without
        # a fault are decoded once, in the form of the newest version; otherwise the envelope is read first.
        method, newest = request.method, table.get(table.MODERN[-1])
        read = self._reader(method, newest)
        try:
            params: Any = (read or read_head)(request.params)
        except MALFORMED:
            params, read = read_params(read_head, request.params), None
        meta = params.meta

        # A legacy client, or a modern one without its envelope: the method decides.
        if (self.version is None or method == "initialize") and has_no_envelope(meta):
            if self.version is not None:
                text = f"This connection already speaks {self.version}, which has no initialize"
                raise UnsupportedVersion(asked_version(request.params), table.SUPPORTED, text)
            if method == "initialize":
                return self._initialize(request)
            newest_legacy = table.get(table.NEWEST_LEGACY)
            if method == "ping":
                return Call(request.id, request.method, self, request.params, newest_legacy, params, meta)
            if not table.is_known_method(method) and self.vocabulary.request(newest_legacy, method) is None:
                raise MethodNotFound(f"Method not found: {method}")

        version = check_envelope(meta, is_fixed=self.version is not None)
        if read is None or version is not newest:
            read = self._reader(method, version)
            if read is None:
                raise MethodNotFound(f"Method not found: {method}")
            params = read_params(read, request.params)

        check_optional(params.meta)
        if self.version is None and method != "server/discover":
            self.phase, self.version = "modern", newest
        return Call(request.id, request.method, self, request.params, version, params, params.meta)

    def _reader(self, method: str, version: Version) -> Reader | None:
        # Return the decoder for the params of a request; None for an unknown method.
        return version.lookup(method) if method in version.requests else self.vocabulary.request(version, method)

    def _initialize(self, request: Request) -> Call:
        params: InitializeParams = read_params(read_initialize, request.params)
        if len(bytes(request.params)) > SMALL:
            self.client_charge = Charge(id(self), self.owner)
            if not self.client_charge.set(weigh(bytes(request.params))):
                raise InternalError(OVER)
        self.phase, self.version = "initializing", table.negotiate(params.protocol_version)
        self.client = read_identity(bytes(request.params), self.version.name)
        return Call(request.id, request.method, self, request.params, self.version, params, params.meta)

    def receive_notification(self, message: Notification) -> Any | None:
        """Return the params of a notification, in the newest vocabulary.

        Returns None for an unknown or malformed notification: there is no response that could report the error.
        Spec: S25-011, S26-016.
        """
        version = self.version or table.get(table.NEWEST_LEGACY)
        method = message.method
        if method in version.notifications:
            read = version.lookup(method)
        else:
            read = self.vocabulary.notification(version, method)
        if read is None:
            return None

        raw = message.params
        try:
            params = read(_EMPTY if raw is ABSENT or bytes(raw) == b"null" else raw)
        except MALFORMED:
            return None

        if method == "notifications/initialized" and self.phase == "initializing":  # not before its request
            self.phase = "initialized"
        return params

    def cancel(self, request_id: Id | None) -> Call | None:
        """Close a call that the client has cancelled. Returns None if it is not open or must not be cancelled.

        Nothing is sent for this id afterwards. Spec: 2025-11-25 basic/utilities/cancellation.
        """
        cancelled = self.in_flight.cancel(request_id)
        if cancelled is not None:
            for hooks in self.hooks:
                hooks.call_ended(cancelled, "cancelled")
        return cancelled

    def cancel_all(self) -> list[Call]:
        """Close all open calls, because the client has left. Returns them."""
        cancelled = self.in_flight.cancel_all()
        for call in cancelled:
            for hooks in self.hooks:
                hooks.call_ended(call, "cancelled")
        return cancelled

    # -- responses ---------------------------------------------------------------------------

    def respond(self, call: Call, result: Any) -> bytes | None:
        """Close a call, and return its response as a frame; None if the call was cancelled. Raises ResultTooLarge."""
        in_flight, request_id = self.in_flight.by_id, call.id
        if in_flight.get(request_id) is not call:
            return None
        try:
            frame = encode(Result(request_id, call.version.shape_result(result, self.identity)))
        except (UnicodeEncodeError, TypeError):  # a lone surrogate, or a subclass of str
            result = replace_lone_surrogates(result)
            frame = encode(Result(request_id, call.version.shape_result(result, self.identity)))
        if len(frame) > self.max_frame_bytes:
            # The call stays open: the caller responds with an error instead.
            raise ResultTooLarge(len(frame), self.max_frame_bytes)

        del in_flight[request_id]
        for hooks in self.hooks:
            hooks.call_ended(call, "answered", is_error=getattr(result, "is_error", None) is True)
        return frame

    def fail(self, call: Call, error: ProtocolError) -> bytes | None:
        """Close a call, and return its error response as a frame; None if the call was cancelled."""
        if not call.is_open:
            return None
        frame = _error_frame(error, call.version, call.id)
        self.in_flight.close(call)
        for hooks in self.hooks:
            hooks.call_ended(call, "failed", error.code)
        return frame

    def refuse(self, error: ProtocolError, request_id: Id | None = None) -> bytes:
        """Return the error response to a message that never became a call; without an id if none could be read."""
        for hooks in self.hooks:
            hooks.refused(str(error.code))
        return _error_frame(error, self.version, error.request_id if request_id is None else request_id)

    def replace(self, response: bytes, error: ProtocolError) -> bytes:
        """Return an error response with the id of a response that cannot be sent."""
        return _error_frame(error, self.version, decode(response, type=_Response).id)

    # -- notifications and requests of the server --------------------------------------------

    def notify(self, method: str, params: Any, related_request: Call | None = None) -> bytes | None:
        """Return a notification as a frame; None if `related_request` is closed or the version lacks the method."""
        version, in_flight = self.version, self.in_flight.by_id
        if related_request is not None:
            version = related_request.version if in_flight.get(related_request.id) is related_request else None
        if version is None or not (method in version.server_notifications or self.vocabulary.may_say(version, method)):
            return None
        shaped = params if params.__class__ in version.plain else version.shape(params)
        return encode(OutgoingMessage(method, UNSET if shaped is None else shaped))

    def ask(self, method: str, params: Any, request_id: Id, meta: Mapping[str, str] | None = None) -> bytes:
        """Return a request of the server as a frame, with the members of `meta` in its `_meta`.

        Raises LocalProtocolError if the version does not have the method, or the request is too large.
        """
        version = self.version
        if version is None or method not in version.server_requests:
            raise LocalProtocolError(
                f"{method} cannot be sent to this client: its protocol version does not have this request"
            )
        shaped = version.shape(params)
        if meta:
            members = {} if shaped is None else decode(encode(shaped), type=dict[str, Any])
            shaped = {**members, "_meta": {**members.get("_meta", {}), **meta}}
        frame = encode_message(method, shaped, request_id)
        if len(frame) > self.max_frame_bytes:
            raise LocalProtocolError(
                f"{method} is too large to be sent: {len(frame)} bytes; the limit is {self.max_frame_bytes}"
            )
        return frame


def _error_frame(error: ProtocolError, version: Version | None, request_id: Id | None) -> bytes:
    code = error.code if version is None else version.error_code(error)
    is_absent = request_id is None and (version is None or not version.has_null_id)
    return encode(error_answer(error, UNSET if is_absent else request_id, code))
