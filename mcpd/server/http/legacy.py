"""POST, GET and DELETE up to 2025-11-25: sessions, resumable event streams, batches, and requests without a session.

A request without a session and without `MCP-Protocol-Version` belongs to 2025-03-26, where both were optional. It is
answered on its own, so that batches work as that version demands. A request that names a version comes from a client
that was initialized; if its session has ended, it must learn that. Spec: 2025-11-25 and 2025-03-26 basic/transports.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from mcpd.errors import InvalidRequest, ParseError, ProtocolError, UnsupportedVersion
from mcpd.protocol.budget import OVER
from mcpd.protocol.jsonrpc import Failure, Id, Message, Notification, Request, Response
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version
from mcpd.transports.authentication import at_expiry
from mcpd.transports.guards import Refusal
from .core import Core, is_error
from .event_stream import EventStreamResponse
from .http_session import HttpSession, Unavailable
from .reply import Reply
from .request import BadRequest, Header, HttpRequest, Refused, departed, settle
from .resumable_streams import ResumableStream
from .sessions import MANY_SESSIONS, Sessions

if TYPE_CHECKING:
    from mcpd.server.dispatcher.connection import ServerConnection

log = logging.getLogger("mcpd.http")

Parts = list[Message | ProtocolError]

# The version of a client that does not name one. Spec: 2025-11-25 basic/transports, protocol version header.
_UNNAMED = "2025-03-26"

_SESSION, _VERSION = b"mcp-session-id", b"mcp-protocol-version"
_read_event_id = re.compile(rb"(?:([0-9a-f]{10})\.(g?))?([0-9]{1,9})-([0-9]{1,9})").fullmatch

NO_SESSION = "Send the Mcp-Session-Id of the response to initialize; without a session send initialize first"
NOT_FOUND = "Session not found: it has ended or never existed. Send initialize, without a session id, to start one"

_ALL_SENT = Refusal(405, "All events of this stream were sent.\n", (("Allow", "POST"),))
NOT_KEPT = "Last-Event-ID is not the id of a stored event of this session"


class LegacyEndpoint:
    """Answers clients up to 2025-11-25."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.sessions = Sessions(core)

    # -- POST --------------------------------------------------------------------------------

    async def post(self, request: HttpRequest, message: Message | Parts) -> None:
        """Answer one message, or one batch."""
        version = self._version(request, message)
        session_id = request.header(_SESSION)
        if session_id is not None and not self._core.settings.stateless:
            session = await self.sessions.get(session_id, request)
            if session is None:
                raise BadRequest(404, NOT_FOUND, _id_of(message))
            await self._post_to(session, request, message)
        elif isinstance(message, Request) and message.method == "initialize":
            await self._initialize(request, message)
        elif version is not None and not self._core.settings.stateless:
            raise BadRequest(400, NO_SESSION, _id_of(message))
        else:
            await self._post_alone(request, message, version or table.get(_UNNAMED))

    def _version(self, request: HttpRequest, message: Message | Parts | None = None) -> Version | None:
        # Return the version in the header, None without the header. Raises BadRequest (S25-042).
        name = request.header(_VERSION)
        if name is None:
            return None
        if name not in table.LEGACY:
            text = f"MCP-Protocol-Version {name[:100]!r} is not supported; use one of {', '.join(table.SUPPORTED)}"
            raise BadRequest(400, UnsupportedVersion(name[:100], table.SUPPORTED, text), _id_of(message))
        return table.get(name)

    async def _initialize(self, request: HttpRequest, message: Request) -> None:
        # Start a session, unless the request fails.
        core = self._core
        ends_here = core.is_draining and self.sessions.nodes is None  # otherwise other processes continue it
        if ends_here or not self.sessions.make_room(request):
            raise Unavailable("is shutting down" if ends_here else MANY_SESSIONS)

        session = self.sessions.new(request)
        if request.watch is not None:
            request.watch.begin(session.connection)

        try:
            call = session.connection.session.receive_request(message)
            answer = await session.connection.answer(call)
            if answer is None or is_error(answer):
                await request.answer(400, answer or b"")
                return
            headers: tuple[Header, ...] = ()
            if not core.settings.stateless:
                await self.sessions.name(session)
                self.sessions.add(session)
                headers = ((_SESSION, session.id.encode()),)
            session.release_memory()  # many sessions receive no request for a long time
            await request.answer(200, answer, headers=headers)
        except ProtocolError as error:
            raise BadRequest(400, error, message.id) from None
        finally:
            if not self.sessions.has(session):
                self.sessions.drop(session)

    async def _post_to(self, session: HttpSession, request: HttpRequest, message: Message | Parts) -> None:
        # Handle a message to a session.
        connection = session.connection
        if request.watch is not None:
            request.watch.begin(connection)
        self.sessions.touch(session)

        if not isinstance(message, (Request, list)):
            status = None if self.sessions.nodes is None else await self.sessions.nodes.takes(session, message)
            if status is None:
                if not connection.receive_message(message):
                    raise BadRequest(503, OVER)
                await self.sessions.save(session)
            elif status != 202:
                raise BadRequest(status, "The process that waited for this response has ended")
            await request.answer_empty(202)
            return

        reply = Reply(request, session.new_stream, self._core.keep_alive)
        answer = self._answer_request if isinstance(message, Request) else self._answer_batch
        try:
            await answer(connection, reply, message, session)  # type: ignore[arg-type]
        finally:
            reply.stop()

    def _ended(self, session: HttpSession, ids: Iterable[Id], reply: Reply) -> None:
        # The calls of a POST have ended. Long ones have kept their session from being idle.
        session.forget(ids, reply)
        if reply.has_waited and self.sessions.has(session):
            self.sessions.touch(session)

    async def _post_alone(self, request: HttpRequest, message: Message | Parts, version: Version) -> None:
        # Handle a message without a session.
        core = self._core
        if isinstance(message, Notification):
            await request.answer_empty(202)
            return
        if isinstance(message, (Response, Failure)):
            raise BadRequest(400, f"A response belongs to a session: {NO_SESSION}")

        reply = Reply(request, ResumableStream, core.keep_alive)
        connection = core.connect(reply, core.opening(request, version, is_stateless=True, subscribes=False))
        if request.watch is not None:
            request.watch.begin(connection)
        core.open.add(connection)

        answer = self._answer_request if isinstance(message, Request) else self._answer_batch
        try:
            await answer(connection, reply, message)  # type: ignore[arg-type]
        finally:
            reply.stop()
            core.open.discard(connection)
            connection.closed()  # nothing follows, not even after a batch

    async def _answer_request(
        self, connection: ServerConnection, reply: Reply, message: Request, session: HttpSession | None = None
    ) -> None:
        try:
            call = connection.session.receive_request(message, reply.request.charge)
        except ProtocolError as error:
            # Error responses have status 200, except for malformed messages.
            frame = connection.session.refuse(error, message.id)
            await reply.finish(frame, 400 if isinstance(error, (ParseError, InvalidRequest)) else 200)
            return

        if session is not None:
            session.expect((call.id,), reply)
        try:
            answer = await connection.answer(call, reply.watch_for_disconnect)
        finally:
            if session is not None:
                self._ended(session, (call.id,), reply)

        if call.denied is not None and reply.is_empty:
            raise Refused(self._core.deny(reply.request, call.denied))

        if answer is None and session is not None and session.stopped and call.id in session.stopped:
            # Spec: 2025-11-25 basic/transports, session management: 404 for a session that has ended.
            await reply.finish(session.stopped.pop(call.id), 404)
            return

        if session is not None and self.sessions.shared is not None:
            try:
                await self.sessions.save(session)
            except Unavailable:
                if reply.stream is None:
                    raise

        await reply.finish(answer)

    async def _answer_batch(
        self, connection: ServerConnection, reply: Reply, parts: Parts, session: HttpSession | None = None
    ) -> None:
        # Answer a batch with an array, or 202 if it has no request. Spec: 2025-03-26 basic/transports.
        try:
            connection.check_batches()
        except ProtocolError as error:
            await reply.finish(connection.session.refuse(error), 400)
            return

        denied = self._core.hiding.denied_in(parts, reply.request.origin())
        if denied is not None:
            raise Refused(self._core.deny(reply.request, denied))

        if session is not None and self.sessions.nodes is not None:
            parts = await self.sessions.nodes.take_parts(session, parts)
            if not parts:
                await reply.finish(None)
                return

        done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        ids = [part.id for part in parts if isinstance(part, Request)]
        if session is not None:
            session.expect(ids, reply)
        try:
            connection.receive_batch(parts, partial(settle, done))
            if not done.done():
                reply.watch_for_disconnect()
            answer = await done
        finally:
            if session is not None:
                self._ended(session, ids, reply)

        if session is not None:
            try:
                await self.sessions.save(session)
            except Unavailable as error:
                log.warning("the settings of a batch have no effect: the server %s", printable(error))

        await reply.finish(answer)

    # -- GET ---------------------------------------------------------------------------------

    async def get(self, request: HttpRequest) -> None:
        """Open an event stream for messages that belong to no request, or resume a lost stream."""
        session = await self._session(request)
        if not request.accepts_events:
            raise BadRequest(406, "Not acceptable: a GET is answered with text/event-stream, which Accept must include")

        last = request.headers.get(b"last-event-id")
        if last is None:
            stream = session.new_stream(is_listening=True)
            missed = [stream.priming()]
        else:
            match = _read_event_id(last.strip())
            if match is None:
                raise BadRequest(400, NOT_KEPT)
            if match[1] and match[1].decode() != session.streams.node:
                await self._follow(session, request, match)
                return
            kept = session.streams.get(int(match[3]))
            missed_events = None if kept is None else await kept.since(int(match[4]))
            if not self.sessions.has(session):  # it ended while the store was read
                raise BadRequest(404, NOT_FOUND)
            if kept is None or missed_events is None:
                raise BadRequest(400, NOT_KEPT)
            stream, missed = kept, missed_events

        await self._serve_stream(session, request, stream, missed)

    async def _follow(self, session: HttpSession, request: HttpRequest, last: re.Match[bytes]) -> None:
        # Resume a stream of another node: a GET stream continues here, another stream is followed to its end.
        nodes = self.sessions.nodes
        if nodes is None:
            raise BadRequest(400, NOT_KEPT)
        followed = await nodes.following.begin(session, last[1].decode(), int(last[3]), int(last[4]))
        if not self.sessions.has(session):  # it ended meanwhile
            nodes.following.end(followed)
            raise BadRequest(404, NOT_FOUND)

        missed = followed.take()
        if last[2]:
            nodes.following.end(followed)
            stream = session.new_stream(is_listening=True)
            await self._serve_stream(session, request, stream, [stream.priming(), missed])
        elif followed.is_over and not missed:
            nodes.following.end(followed)
            raise Refused(_ALL_SENT)
        else:
            session.streaming += 1
            try:
                await nodes.following.serve(request, followed, missed)
            finally:
                session.streaming -= 1

    async def _serve_stream(
        self, session: HttpSession, request: HttpRequest, stream: ResumableStream, missed: list[bytes]
    ) -> None:
        # Carry a stream on the response to this GET: first the missed events, then new ones.
        if stream.is_complete and not missed:
            # The client would resume an empty stream forever; 405 is the other status that a GET may get.
            raise Refused(_ALL_SENT)

        response = EventStreamResponse(request, self._core.settings.write_timeout)
        earlier, stream.response = stream.response, response
        if earlier is not None:
            # The client resumes: its earlier connection is dead, even without a notice.
            self._core.spawn(earlier.end())

        response.push(b"".join(missed))
        if stream.is_complete:
            await response.end()
            return

        if stream.is_listening:
            stream.is_over = False
            session.leave(stream)
            if not session.listen(stream):
                self._core.spawn(response.end())
            elif self.sessions.nodes is not None:
                self.sessions.nodes.listen(session)

        self._core.keep_alive.add(response)
        expiry = at_expiry(request.user, lambda: self._core.spawn(response.end()))
        session.streaming += 1
        self.sessions.touch(session)
        try:
            await departed(request)
        finally:
            if expiry is not None:
                expiry.cancel()
            response.close()
            self._core.keep_alive.discard(response)
            session.streaming -= 1
            if stream.response is response:
                stream.response = None
                session.leave(stream)
                if stream.is_listening:
                    session.streams.leave(stream)
                stream.lost()
            if self.sessions.has(session):
                self.sessions.touch(session)

    # -- DELETE ------------------------------------------------------------------------------

    async def delete(self, request: HttpRequest) -> None:
        """End a session at the request of its client."""
        await self.sessions.delete(await self._session(request))
        await request.answer_empty(204)

    async def _session(self, request: HttpRequest) -> HttpSession:
        # Return the session of a GET or DELETE. Raises BadRequest or Refused.
        session_id = request.header(_SESSION)
        if self._core.settings.stateless or (session_id is None and request.method == "GET"):
            # A client of 2024-11-05 gets this too: its first request is a GET.
            raise Refused(Refusal(405, NO_STREAM, (("Allow", "POST"),)))
        self._version(request)
        if session_id is None:
            raise BadRequest(400, NO_SESSION)

        session = await self.sessions.get(session_id, request)
        if session is None:
            raise BadRequest(404, NOT_FOUND)
        return session


NO_STREAM = (
    "An event stream needs a session: this is a Streamable HTTP endpoint, POST a JSON-RPC message to it.\n"
    "The HTTP+SSE transport of 2024-11-05 is not supported; set your client to Streamable HTTP with the same URL.\n"
)


def _id_of(message: Message | Parts | None) -> Id | None:
    return message.id if isinstance(message, Request) else None
