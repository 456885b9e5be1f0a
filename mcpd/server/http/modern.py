"""POST in the modern era (2026-07-28 and later): each request has a connection of its own, without a session.

The specification defines the order of checks: `_meta`, headers against body, version, method, mirrored arguments,
params. Proxies route by the headers and the server obeys the body, so both must agree. A valid request is decoded once,
by the session; an invalid one is examined again to find its first fault.
Spec: 2026-07-28 basic/transports/streamable-http.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import Decoder

from mcpd.errors import (
    HeaderMismatch,
    InvalidParams,
    MethodNotFound,
    ProtocolError,
    UnsupportedVersion,
    forget_frames,
)
from mcpd.protocol.budget import OVER
from mcpd.protocol.envelope import check_envelope, read_head, version_in
from mcpd.protocol.jsonrpc import ABSENT, MALFORMED, Failure, Id, Message, Notification, Request, Response
from mcpd.protocol.methods import SUBJECTS
from mcpd.protocol.principal import Origin
from mcpd.protocol.session import Call
from mcpd.protocol.types.base import NO_JSON, RequestMeta, Wire
from mcpd.protocol.versions import table
from mcpd.protocol.wire.headers import Mirror, decode_value, is_same
from mcpd.transports.authentication import at_expiry
from mcpd.transports.guards import Refusal
from .core import Core, status_for, status_of
from .reply import Reply
from .request import BadRequest, HttpRequest, Refused
from .resumable_streams import ResumableStream

if TYPE_CHECKING:
    from mcpd.server.dispatcher.connection import ServerConnection

_VERSION, _METHOD, _NAME = b"mcp-protocol-version", b"mcp-method", b"mcp-name"

_decode = Decoder(dict[str, Any]).decode


def check_standard(
    request: HttpRequest, version: str, method: str, params: Raw, name: str | None = None, member: str | None = None
) -> None:
    """Compare `MCP-Protocol-Version`, `Mcp-Method` and `Mcp-Name` with the body (S26-060, S26-063, S26-072, S26-073).

    `name` is the expected `Mcp-Name` if it was decoded already; otherwise it is read from `params`. `member` is its
    member there, for methods of extensions. Raises HeaderMismatch.
    """
    fields = request.headers
    member = SUBJECTS.get(method, member)
    if (
        not request.repeated
        and fields.get(_VERSION) == version.encode()
        and fields.get(_METHOD) == method.encode()
        and (member is None or (name is not None and _is_plainly(fields.get(_NAME), name)))
    ):
        return

    if request.repeated:
        for header, spelled in ((_VERSION, "MCP-Protocol-Version"), (_METHOD, "Mcp-Method"), (_NAME, "Mcp-Name")):
            if header in request.repeated:
                raise HeaderMismatch(f"Header mismatch: {spelled} came more than once")

    _compare("MCP-Protocol-Version", fields.get(_VERSION), version, is_encoded=False)
    _compare("Mcp-Method", fields.get(_METHOD), method, is_encoded=False)
    if member is not None:
        if name is None:
            name = _name_in(params, member)
        if name is not None or _NAME in fields:
            _compare("Mcp-Name", fields.get(_NAME), name, is_encoded=True)


def _compare(header: str, raw: bytes | None, value: str | None, *, is_encoded: bool) -> None:
    if raw is None:
        raise HeaderMismatch(f"Header mismatch: {header} is missing; the body has {_show(value)}")
    try:
        text = decode_value(raw) if is_encoded else _plain(raw)
    except ValueError as error:
        raise HeaderMismatch(f"Header mismatch: {header} {error}") from None
    if text != value:
        raise HeaderMismatch(f"Header mismatch: {header} is {_show(text)}, but the body has {_show(value)}")


def check_mirrors(request: HttpRequest, mirrors: Sequence[Mirror], arguments: Raw) -> None:
    """Compare the `Mcp-Param-*` headers of a tool with its arguments (S26-064 to S26-069). Raises HeaderMismatch.

    Headers that mirror no argument are ignored (S26-070).
    """
    values: dict[str, Any] = {}
    if arguments is not ABSENT and len(arguments) > 0:
        try:
            values = _decode(arguments)
        except MALFORMED:
            pass  # not an object: nothing is mirrored, and the tool reports the error

    for mirror in mirrors:
        raw = request.headers.get(mirror.key)
        value = _at(values, mirror.path)
        if mirror.key in request.repeated:
            raise HeaderMismatch(f"Header mismatch: {mirror.header} came more than once")

        if raw is None:
            if value is not None:
                raise HeaderMismatch(
                    f"Header mismatch: {mirror.header} is missing; it repeats the argument {'.'.join(mirror.path)}"
                )
            continue

        try:
            text = decode_value(raw)
        except ValueError as error:
            raise HeaderMismatch(f"Header mismatch: {mirror.header} {error}") from None

        if value is None:
            raise HeaderMismatch(
                f"Header mismatch: {mirror.header} is present, but the argument {'.'.join(mirror.path)} is missing"
            )

        if not is_same(text, value):
            raise HeaderMismatch(
                f"Header mismatch: {mirror.header} is {_show(text)}, "
                f"but the argument {'.'.join(mirror.path)} has another value"
            )


def _is_plainly(raw: bytes | None, value: str) -> bool:
    # Whether a header is the plain value; False also for a header that may be the value in Base64.
    return raw is not None and raw == value.encode() and value.isascii() and value.isprintable() and raw[:2] != b"=?"


def _plain(raw: bytes) -> str:
    try:
        return raw.strip(b" \t").decode("ascii")
    except UnicodeDecodeError:
        raise ValueError("contains invalid characters") from None


def _name_in(params: Raw, member: str) -> str | None:
    try:
        value = _decode(params).get(member)
    except MALFORMED:
        return None
    return value if isinstance(value, str) else None


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(values, dict):
            return None
        values = values.get(key)
    return values


def _show(text: str | None) -> str:
    if text is None:
        return "nothing"
    return repr(text if len(text) <= 100 else text[:100] + "…")


class _CallHead(Wire):
    # The part of a tool call that decides which headers it needs.
    name: str
    arguments: Raw = NO_JSON


_decode_call = Decoder(_CallHead).decode


class _NullChannel:
    # The channel of a notification, which has no response: messages are dropped.
    is_congested = False
    is_multiplexed = False

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    def send(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Drop the frame."""

    def send_separately(self, frame: bytes, related_request_id: Id | None = None, method: str | None = None) -> None:
        """Drop the frame."""

    def origin(self, related_request_id: Id | None = None) -> Origin:
        # The origin of the POST.
        return self._request.origin()

    async def drain(self) -> None:
        """Nothing is queued."""

    async def aclose(self, reason: str = "") -> None:
        """There is nothing to close."""


class ModernEndpoint:
    """Answers requests that contain their version."""

    def __init__(self, core: Core) -> None:
        self._core = core
        # Fixes the era of a connection; the request has its own version.
        self._newest = table.get(table.MODERN[-1])

    async def post(self, request: HttpRequest, message: Message | list[Any]) -> None:
        """Answer one message; a client that leaves cancels its request (S26-058, S26-096)."""
        if not isinstance(message, Request):
            await self._post_other(request, message)
            return

        core = self._core
        is_listening = message.method in ("subscriptions/listen", "events/stream")

        reply = Reply(request, ResumableStream, core.keep_alive)
        connection = core.connect(reply, core.opening(request, self._newest, subscribes=is_listening))
        if request.watch is not None:
            request.watch.begin(connection)
        session = connection.session
        member = session.vocabulary.named.get(message.method)
        try:
            call = session.receive_request(message, request.charge)
            known = SUBJECTS.get(call.method)
            name: str | None = None if known is None else getattr(call.params, known)
            check_standard(request, call.version.name, call.method, message.params, name, member)
            if call.method == "tools/call" and name is not None:
                mirrors = core.mirrors(name)
                if mirrors and not await core.hiding.hides_tool(call, connection):
                    check_mirrors(request, mirrors, call.params.arguments)
        except ProtocolError as error:
            status, first = self._first_fault(request, message, error, member)
            forget_frames(first)  # its traceback refers to this frame, which refers to the request
            raise BadRequest(status, first, message.id) from None

        expiry = at_expiry(request.user, connection.end_subscriptions) if is_listening else None
        if is_listening:
            core.listening[connection] = request.user
        try:
            answer = await connection.answer(call, partial(self._waits, reply, connection, call))
        finally:
            core.open.discard(connection)
            reply.stop()
            if is_listening:
                core.listening.pop(connection, None)
                connection.closed()
            if expiry is not None:
                expiry.cancel()

        if call.denied is not None and reply.is_empty:
            raise Refused(core.deny(request, call.denied))
        await reply.finish(answer, status_of(answer))

    def _waits(self, reply: Reply, connection: ServerConnection, call: Call) -> None:
        self._core.open.add(connection)
        reply.on_left = partial(connection.cancel, call)
        reply.watch_for_disconnect()

    async def _post_other(self, request: HttpRequest, message: Notification | Response | Failure | list[Any]) -> None:
        # Handle a notification. Those of the protocol have no effect: clients cancel by leaving (S26-053).
        if isinstance(message, list):
            raise BadRequest(400, f"{self._newest} has no batches: POST each message separately")
        if not isinstance(message, Notification):
            raise BadRequest(400, f"In {self._newest} the server sends no requests: there is nothing to answer")

        core = self._core
        connection = core.connect(_NullChannel(request), core.opening(request, self._newest, subscribes=False))
        if request.watch is not None:
            request.watch.begin(connection)
        if not connection.receive_message(message):
            raise BadRequest(503, OVER)

        # Answered immediately; the listeners of the notification continue.
        core.open.add(connection)
        core.spawn(self._settle(connection))
        await request.answer_empty(202)

    async def get(self, request: HttpRequest) -> None:
        """Refuse a GET or DELETE."""
        version = request.header(b"mcp-protocol-version")
        text = f"{version} has only POST: use subscriptions/listen to listen.\n"
        raise Refused(Refusal(405, text, (("Allow", "POST"),)))

    delete = get

    async def _settle(self, connection: ServerConnection) -> None:
        try:
            await connection.close_when_done()
        finally:
            self._core.open.discard(connection)

    def _first_fault(
        self, request: HttpRequest, message: Request, error: ProtocolError, member: str | None
    ) -> tuple[int, ProtocolError]:
        # Return the status and error for an invalid request: its first fault in the order of the checks.
        if isinstance(error, HeaderMismatch):
            return 400, error
        try:
            meta = read_head(b"{}" if message.params is ABSENT else message.params).meta
        except MALFORMED:
            return 400, error

        # An unsupported version is a later fault than a header mismatch, but hides all faults after it.
        late: UnsupportedVersion | None = None
        try:
            check_envelope(meta, is_fixed=True)
        except InvalidParams as missing:
            return 400, missing
        except UnsupportedVersion as unserved:
            late = unserved

        assert isinstance(meta, RequestMeta)

        try:
            check_standard(request, version_in(meta), message.method, message.params, member=member)
            if late is not None:
                return 400, late
            if isinstance(error, MethodNotFound):
                return 404, error
            self._check_call(request, message)
        except HeaderMismatch as mismatch:
            return 400, mismatch

        return status_for(error.code), error

    def _check_call(self, request: HttpRequest, message: Request) -> None:
        # Check the mirrored arguments of a tool call whose other params are invalid.
        if message.method == "tools/call":
            try:
                call = _decode_call(message.params)
            except MALFORMED:
                return
            mirrors = self._core.mirrors(call.name)
            # An error about a header could reveal a hidden tool.
            if mirrors and not self._core.hiding.has_rules:
                check_mirrors(request, mirrors, call.arguments)
