"""The state of one connection without I/O: its phase, its version, which calls are open, what may be said now.

Theory of operation. A connection fixes an era, a call its version: a legacy connection agrees on one version in
`initialize`, a modern one brings the version along in each request. Both come out as the same `Call`, so nothing above
can tell them apart. A request opens a call (`receive_request`), which is closed by its answer (`respond`, `fail`) or by
the client (`cancel`); what is closed is never answered. Those that are open are in one table (`in_flight.py`).

    phase         how it is entered                 from the client                     the server may send
    ------------  --------------------------------  ----------------------------------  ----------------------------
    NEW           Session()                         initialize; a modern request;       answers
                                                    ping and server/discover, after
                                                    which it is NEW still; others: an
                                                    error
    INITIALIZING  initialize received, or restored  initialized; requests of the        answers, requests, and what
                                                    version; initialize: -32600         belongs to an open call
    INITIALIZED   initialized received, or opened   requests of the version             the same, and changes
                  in a legacy version, or restored
    MODERN        a request with its version        requests, each in its own version;  answers, and what belongs to
                  served, or opened in a modern     initialize: -32022                  an open call
                  version

A request that is refused changes no phase, and none is ever left for an earlier one.

Spec: 2025-11-25 basic/lifecycle; 2026-07-28 basic/index, basic/versioning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import UNSET, Raw, Struct
from msgspec.json import decode

from mcpd.errors import (
    AccessDenied,
    InternalError,
    InvalidParams,
    InvalidRequest,
    LocalProtocolError,
    MethodNotFound,
    ProtocolError,
    ResultTooLarge,
    UnsupportedVersion,
)
from mcpd.protocol.budget import CALL, OVER, SMALL, Charge, ChargedTexts, client_of, weigh
from mcpd.protocol.envelope import (
    ClientIdentity,
    Opening,
    Phase,
    asked_version,
    check_envelope,
    has_envelope,
    read_head,
    read_initialize,
    read_params,
    said_by,
)
from mcpd.protocol.jsonrpc import (
    ABSENT,
    MALFORMED,
    Id,
    Notification,
    Request,
    Result,
    Told,
    call,
    decode_request,
    encode,
    error_answer,
)
from mcpd.protocol.requests import ID_IN_USE, RequestInFlight, RequestsInFlight
from mcpd.protocol.types.base import LOG_LEVELS, META, NO_JSON, InitializeParams, Params, RequestMeta
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import NO_EXTENSIONS, Version, Vocabulary
from mcpd.serve_defaults import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from mcpd.protocol.wire.trace_context import TraceContext

__all__ = ["MAX_FRAME_BYTES", "WATCH_BYTES", "Call", "Opening", "Phase", "Session"]

WATCH_BYTES = 200
"""What it takes to remember that a resource is watched, beside the bytes of its URI."""

_UNCOUNTED = 64
"""So many calls of a connection cost nothing to count; each one more takes of the budget."""

_EMPTY = b"{}"
_NONE_SAID = Raw(_EMPTY)
_UNKNOWN = ClientIdentity()
_OPENING = Opening()


class _Answer(Struct):
    id: Id | None = None


class Call(RequestInFlight, eq=False):
    """One request of the client, from receipt to answer. A struct because these are made in C."""

    session: Session
    source: Raw | bytes
    """Its params as they came, or the frame that has them."""
    version: Version
    params: Any
    meta: RequestMeta | None
    last_progress: float | None = None
    told: int = 0
    """How many bytes were sent about it since the event loop turned last, but never 0 again after the first."""
    charge: Charge | None = None
    """What it takes of the budget; most calls are small, and never have one."""
    denied: AccessDenied | None = None
    """Why it was refused to who sent it, for transports that have a status for that."""
    trace: Callable[[], TraceContext] | None = None
    """Gives its span, where somebody traces; None where nobody does."""
    began: float = 0.0
    """By `perf_counter`: when it came, where calls are measured; else when it began to wait, 0.0 if it does not."""
    identity: ClientIdentity | None = None
    """What its client says of itself in this request, kept once somebody asks: what is decoded then stays with it."""

    def hold(self, size: int) -> None:
        """Take so many bytes more of the budget, till the end of this call. Raises InternalError if it has not them."""
        charge = self.charge
        if charge is None:
            self.charge = charge = Charge(id(self.session), self.session.owner)
        if not charge.add(size):
            raise InternalError(OVER)

    @property
    def raw(self) -> Raw:
        """Its params as they came."""
        if isinstance(self.source, bytes):
            self.source = decode_request(self.source).params
        return self.source

    @property
    def is_open(self) -> bool:
        """Whether an answer is still wanted."""
        return self.session.in_flight.by_id.get(self.id) is self

    @property
    def client(self) -> ClientIdentity:
        """Who asks."""
        if not self.version.is_modern or self.meta is None:
            return self.session.client
        if self.identity is None:
            meta = self.meta
            self.identity = ClientIdentity(raw_capabilities=meta.client_capabilities, raw_info=meta.client_info)
        return self.identity

    @property
    def log_level(self) -> str | None:
        """The least severe level of log message that is wanted, None for no messages at all."""
        if self.version.is_modern:
            return None if self.meta is None else self.meta.log_level
        return None if self.session.is_stateless else self.session.log_level


class Session:
    """One connection's state. Single-threaded: calls come from the event loop's thread.

    `version` is None until the first request that fixes the era. Then it is the version that was agreed on, or in the
    modern era the newest one: each call has its own. `identity` is the server's own
    `{"io.modelcontextprotocol/serverInfo": …}` as raw JSON, written into modern results.
    """

    __slots__ = ("client", "identity", "in_flight", "is_stateless", "log_level", "max_frame_bytes",
                 "max_in_flight", "peer", "phase", "principal", "said", "version", "vocabulary", "watched",
                 "__weakref__")  # fmt: skip

    call_class: ClassVar[type[Call]] = Call
    """What calls are; those of a class that measures them know when they came."""

    def __init__(
        self,
        identity: Raw = Raw(_EMPTY),
        *,
        max_in_flight: int = 1024,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        vocabulary: Vocabulary = NO_EXTENSIONS,
        opening: Opening = _OPENING,
    ) -> None:
        self.identity = identity
        self.max_in_flight = max_in_flight
        self.max_frame_bytes = max_frame_bytes
        """What is larger is not sent: who takes so much would skip the rest of it."""
        self.vocabulary = vocabulary
        """The methods of extensions, beside those of the version."""
        self.principal = opening.principal
        self.peer = opening.peer
        version = self.version = opening.version
        self.client = _UNKNOWN
        self.log_level: str | None = "info"
        self.watched: ChargedTexts | None = None
        """The URIs of the resources that a legacy client watches."""
        self.said: Charge | None = None
        """What the client said of itself takes so much of the budget, if it is large."""
        self.phase: Phase = "new" if version is None else "modern" if version.is_modern else "initialized"
        self.is_stateless = opening.is_stateless
        self.in_flight: RequestsInFlight[Call] = RequestsInFlight()
        """The calls that are open."""

    def restore(self, client: ClientIdentity, *, is_initialized: bool, log_level: str | None) -> None:
        """Go on where another process left a legacy session, in whose version this one was opened."""
        self.phase = "initialized" if is_initialized else "initializing"
        self.client = client
        self.log_level = log_level

    def rest(self) -> None:
        """Nothing may come for long: a table that calls have filled goes, if it is empty again."""
        self.in_flight.by_id = self.in_flight.by_id or {}

    @property
    def is_initialized(self) -> bool:
        """Whether this is a legacy session that may be told of changes."""
        return self.phase == "initialized"

    @property
    def owner(self) -> str:
        """The client behind the connection, for shares of what is limited (`client_of`); "" if unknown."""
        return client_of(self.peer, self.principal)

    def watch(self, uri: str) -> int:
        """Remember that the client watches a resource; gives how many it watches.

        Raises InternalError if there is no memory for it.
        """
        if self.watched is None:
            self.watched = ChargedTexts(WATCH_BYTES, id(self), self.owner)
        if not self.watched.add(uri):
            raise InternalError(OVER)
        return len(self.watched)

    def unwatch(self, uri: str) -> None:
        """It no longer does."""
        if self.watched is not None:
            self.watched.discard(uri)

    def is_watched(self, uri: str) -> bool:
        """Whether the client watches a resource."""
        return self.watched is not None and uri in self.watched

    # -- receiving ---------------------------------------------------------------------------

    def receive_request(self, request: Request, charge: Charge | None = None) -> Call:
        """Open a call, which keeps the `charge` for its bytes. Raises ProtocolError, and then nothing was opened."""
        in_flight = self.in_flight.by_id
        if request.id in in_flight:
            raise InvalidRequest(ID_IN_USE)
        many = len(in_flight)
        if many >= self.max_in_flight:
            raise InvalidRequest(f"Too many requests at once: {self.max_in_flight} are being answered; retry later")

        version = self.version
        if version is None or self.phase == "modern":
            opened = self._open_modern(request)
        else:
            opened = self._open_legacy(request, version)
        if charge is not None:
            opened.charge = charge
        if many >= _UNCOUNTED:
            opened.hold(CALL)
        in_flight[request.id] = opened
        return opened

    def _open_legacy(self, request: Request, version: Version) -> Call:
        method = request.method
        if method == "initialize":
            raise InvalidRequest("Already initialized: a connection is initialized once")
        read = version.lookup(method) if method in version.requests else self.vocabulary.request(version, method)
        if read is None:
            if has_envelope(request.params):
                raise InvalidRequest(_ERA_FIXED)
            raise MethodNotFound(f"Method not found: {method}")

        raw = request.params
        try:
            params = read(_EMPTY if raw is ABSENT else raw)
        except MALFORMED:
            # Once more, with an error that says what is wrong; what is right is not made to pay for that.
            params = read_params(read, raw)

        meta: RequestMeta | None = params.meta
        if meta is not None and meta.protocol_version is not UNSET:
            raise InvalidRequest(_ERA_FIXED)
        return self.call_class(request.id, request.method, self, request.params, version, params, meta)

    def _open_modern(self, request: Request) -> Call:
        """A request where the version is in its own `_meta`, or where no version is known yet.

        Its faults are named in the order of the specification: envelope, version, method, params.
        """
        head: Params = read_params(read_head, request.params)
        meta = head.meta
        method = request.method

        # Of a legacy client, or of a modern one that forgot its envelope: what it asks for tells.
        bare = meta is None or (meta.protocol_version is UNSET and meta.client_capabilities is NO_JSON)
        if bare and self.version is None:
            if method == "initialize":
                return self._initialize(request)
            newest_legacy = table.get(table.NEWEST_LEGACY)
            if method == "ping":
                return self.call_class(request.id, request.method, self, request.params, newest_legacy, head, meta)
            if not table.is_known_method(method) and self.vocabulary.request(newest_legacy, method) is None:
                raise MethodNotFound(f"Method not found: {method}")
        elif bare and method == "initialize":
            raise UnsupportedVersion(
                asked_version(request.params),
                table.SUPPORTED,
                f"This connection already speaks {self.version}, which has no initialize",
            )

        version = check_envelope(meta, is_fixed=self.version is not None)
        read = version.lookup(method) if method in version.requests else self.vocabulary.request(version, method)
        if read is None:
            raise MethodNotFound(f"Method not found: {method}")

        params = read_params(read, request.params)
        level = params.meta.log_level
        if level is not None and level not in LOG_LEVELS:
            known = ", ".join(LOG_LEVELS)
            raise InvalidParams(f"_meta.{META}logLevel: expected one of {known}", {"requested": level})

        if self.version is None and method != "server/discover":
            self.phase, self.version = "modern", table.get(table.MODERN[-1])
        return self.call_class(request.id, request.method, self, request.params, version, params, params.meta)

    def _initialize(self, request: Request) -> Call:
        params: InitializeParams = read_params(read_initialize, request.params)
        if len(bytes(request.params)) > SMALL:
            self.said = Charge(id(self), self.owner)
            if not self.said.set(weigh(bytes(request.params))):
                raise InternalError(OVER)
        self.phase, self.version = "initializing", table.negotiate(params.protocol_version)
        self.client = said_by(bytes(request.params), self.version.name)
        return self.call_class(request.id, request.method, self, request.params, self.version, params, params.meta)

    def receive_notification(self, message: Notification) -> Any | None:
        """The params of a notification, in the newest vocabulary; None if it is to be ignored.

        Nobody answers a notification, so a bad or unknown one is dropped. Spec: S25-011, S26-016.
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
        """Close a call that the peer gave up; None if it is not open (answered, unknown, or never to be cancelled).

        From here on nothing is sent for this id. Spec: 2025-11-25 basic/utilities/cancellation.
        """
        return self.in_flight.cancel(request_id)

    def cancel_all(self) -> list[Call]:
        """Close all calls that are open: nobody is left to answer to."""
        return self.in_flight.cancel_all()

    # -- answering ---------------------------------------------------------------------------

    def respond(self, answered: Call, result: Any) -> bytes | None:
        """The answer as a frame, closing the call; None if it was cancelled meanwhile. Raises ResultTooLarge."""
        in_flight, request_id = self.in_flight.by_id, answered.id
        if in_flight.get(request_id) is not answered:
            return None
        frame = encode(Result(request_id, answered.version.shape_result(result, self.identity)))
        if len(frame) > self.max_frame_bytes:
            # It stays open: whoever gave the result answers with an error in its place.
            raise ResultTooLarge(len(frame), self.max_frame_bytes)

        del in_flight[request_id]
        return frame

    def fail(self, answered: Call, error: ProtocolError) -> bytes | None:
        """The error answer as a frame, closing the call; None if it was cancelled meanwhile."""
        if not answered.is_open:
            return None
        frame = _failure(error, answered.version, answered.id)
        self.in_flight.close(answered)
        return frame

    def refuse(self, error: ProtocolError, request_id: Id | None = None) -> bytes:
        """The error answer to something that never became a call; without an id if that was unreadable."""
        self.refused(error)
        return _failure(error, self.version, error.request_id if request_id is None else request_id)

    def refused(self, error: ProtocolError) -> None:
        """Something was answered with an error that never became a call. For classes that count."""

    def replace(self, answer: bytes, error: ProtocolError) -> bytes:
        """An error in the place of an answer of ours that cannot be sent after all."""
        return _failure(error, self.version, decode(answer, type=_Answer).id)

    # -- speaking first ----------------------------------------------------------------------

    def notify(self, method: str, params: Any, related_request: Call | None = None) -> bytes | None:
        """A notification as a frame; None if `related_request` is closed or this version has no such notification."""
        version, in_flight = self.version, self.in_flight.by_id
        if related_request is not None:
            version = related_request.version if in_flight.get(related_request.id) is related_request else None
        if version is None or not (method in version.server_notifications or self.vocabulary.may_say(version, method)):
            return None
        shaped = params if params.__class__ in version.plain else version.shape(params)
        return call(method) if shaped is None else encode(Told(method, shaped))

    def ask(self, method: str, params: Any, request_id: Id, meta: Mapping[str, str] | None = None) -> bytes:
        """A request of ours as a frame, with these members in its `_meta`.

        Raises LocalProtocolError where the version has no such request.
        """
        version = self.version
        if version is None or method not in version.server_requests:
            raise LocalProtocolError(
                f"{method} cannot be asked of this client: its protocol version has no such request"
            )
        shaped = version.shape(params)
        if meta:
            shaped = {**({} if shaped is None else decode(encode(shaped), type=dict[str, Raw])), "_meta": meta}
        frame = call(method, shaped, request_id)
        if len(frame) > self.max_frame_bytes:
            raise LocalProtocolError(
                f"{method} is too large to be asked: {len(frame)} bytes, and a message may have {self.max_frame_bytes}"
            )
        return frame


_ERA_FIXED = "This connection was initialized: its version is fixed, and requests carry no protocolVersion in _meta"


def _failure(error: ProtocolError, version: Version | None, request_id: Id | None) -> bytes:
    code = error.code if version is None else version.error_code(error)
    is_absent = request_id is None and (version is None or not version.has_null_id)
    return encode(error_answer(error, UNSET if is_absent else request_id, code))
