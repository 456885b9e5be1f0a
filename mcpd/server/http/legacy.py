"""POST, GET and DELETE up to 2025-11-25: sessions, resumable event streams, batches, and requests without a session.

A request without a session and without `MCP-Protocol-Version` belongs to 2025-03-26, where both were optional. It is
answered on its own, so that batches work as that version demands. A request that names a version comes from a client
that was initialized; if its session has ended, it must learn that. Spec: 2025-11-25 and 2025-03-26 basic/transports.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from mcpd.errors import InvalidRequest, ParseError, ProtocolError, UnsupportedVersion
from mcpd.protocol.budget import OVER
from mcpd.protocol.jsonrpc import Failure, Id, Message, Notification, Request, Response
from mcpd.protocol.printable import printable
from mcpd.protocol.versions import table
from mcpd.protocol.versions.table import Version
from mcpd.server.backplane.base import BackplaneAway
from mcpd.server.http.core import Core, is_error
from mcpd.server.http.event_stream import EventStreamResponse
from mcpd.server.http.http_session import CannotRestore, HttpSession, WaitingRequest
from mcpd.server.http.reply import Reply
from mcpd.server.http.request import Header, HttpRequest, departed
from mcpd.server.http.resumable_streams import NOT_RESUMABLE, ResumableStream
from mcpd.server.http.sessions import Sessions
from mcpd.transports.authentication import at_expiry
from mcpd.transports.guards import Refusal

if TYPE_CHECKING:
    from mcpd.server.dispatcher.connection import ServerConnection

log = logging.getLogger("mcpd.http")

Parts = list[Message | ProtocolError]

_UNNAMED = "2025-03-26"
"""The version of a client that does not name one. Spec: 2025-11-25 basic/transports, protocol version header."""

_SESSION, _VERSION = b"mcp-session-id", b"mcp-protocol-version"
_read_event_id = re.compile(rb"(?:([0-9a-f]{10})\.(g?))?([0-9]{1,9})-([0-9]{1,9})").fullmatch

NO_SESSION = "Send the Mcp-Session-Id of the response to initialize; without a session send initialize first"
NOT_FOUND = "Session not found: it has ended or never existed. Send initialize, without a session id, to start one"


NOT_KEPT = "Last-Event-ID is not the id of a stored event of this session"


class LegacyEndpoint:
    """Answers clients up to 2025-11-25."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.sessions = Sessions(core)

    # -- POST --------------------------------------------------------------------------------

    async def post(self, request: HttpRequest, message: Message | Parts) -> None:
        """Answer one message, or one batch."""
        try:
            version = self._version(request)
        except UnsupportedVersion as error:
            await request.fail(400, error, _id_of(message))
            return

        session_id = request.header(_SESSION)
        if session_id is not None and not self._core.settings.stateless:
            session = self.sessions.find(session_id, self._core.principal(request))
            if self.sessions.shared is not None and (session is None or session.is_doubtful):
                try:
                    session = await self.sessions.restore(session_id, request)
                except CannotRestore as error:
                    await request.refuse(_unavailable(error))
                    return
            if session is None:
                await request.fail(404, InvalidRequest(NOT_FOUND), _id_of(message))
            else:
                await self._post_to(session, request, message)
        elif isinstance(message, Request) and message.method == "initialize":
            await self._initialize(request, message)
        elif version is not None and not self._core.settings.stateless:
            await request.fail(400, InvalidRequest(NO_SESSION), _id_of(message))
        else:
            await self._post_alone(request, message, version or table.get(_UNNAMED))

    def _version(self, request: HttpRequest) -> Version | None:
        """Return the version in the header, None without the header. Raises UnsupportedVersion (S25-042)."""
        name = request.header(_VERSION)
        if name is None:
            return None
        if name not in table.LEGACY:
            text = f"MCP-Protocol-Version {name[:100]!r} is not supported; use one of {', '.join(table.SUPPORTED)}"
            raise UnsupportedVersion(name[:100], table.SUPPORTED, text)
        return table.get(name)

    async def _initialize(self, request: HttpRequest, message: Request) -> None:
        """Start a session, unless the request fails."""
        core = self._core
        ends_here = core.is_draining and self.sessions.nodes is None  # otherwise other processes continue it
        if ends_here or not self.sessions.make_room(request):
            why = "is shutting down" if ends_here else "has reached its limit of sessions (setting max_sessions)"
            await request.refuse(_unavailable(why))
            return

        session = self.sessions.new(request)
        if request.watch is not None:
            request.watch.begin(session.connection)

        is_added = False
        try:
            call = session.connection.session.receive_request(message)
            answer = await session.connection.answer(call)
            if answer is None or is_error(answer):
                await request.answer(400, answer or b"")
                return
            headers: tuple[Header, ...] = ()
            if not core.settings.stateless:
                try:
                    await self.sessions.name(session)
                except CannotRestore as error:
                    await request.refuse(_unavailable(error))
                    return
                self.sessions.add(session)
                is_added = True
                headers = ((_SESSION, session.id.encode()),)
            session.release_memory()  # many sessions receive no request for a long time
            await request.answer(200, answer, headers=headers)
        except ProtocolError as error:
            await request.fail(400, error, message.id)
        finally:
            if not is_added:
                self.sessions.drop(session)

    async def _post_to(self, session: HttpSession, request: HttpRequest, message: Message | Parts) -> None:
        """Handle a message to a session."""
        connection = session.connection
        if request.watch is not None:
            request.watch.begin(connection)
        self.sessions.touch(session)

        if isinstance(message, (Notification, Response, Failure)):
            if self.sessions.nodes is not None and await self._is_elsewhere(session, request, message):
                return
            if connection.receive_message(message):
                if self.sessions.shared is not None:
                    await self.sessions.save(session)
                await request.answer_empty(202)
            else:
                await request.fail_plainly(503, OVER)
            return

        reply = Reply(request, session, self._core.keep_alive)
        waiting = WaitingRequest(session)
        try:
            if isinstance(message, Request):
                await self._request(connection, reply, message, session, waiting.end)
            else:
                await self._batch(connection, reply, message, session, waiting.end)
        finally:
            if reply.is_watched:
                reply.stop()
            session.forget_latest()
            waiting.end()
            if self.sessions.find(session.id, session.principal) is session:
                self.sessions.touch(session)

    async def _is_elsewhere(self, session: HttpSession, request: HttpRequest, message: Message) -> bool:
        """Pass a message to another node, if it is for one. Returns whether the request was answered."""
        assert self.sessions.nodes is not None
        try:
            status = await self.sessions.nodes.takes(session, message)
        except BackplaneAway:
            await request.refuse(_unavailable("cannot reach the process that this answers"))
            return True
        if status == 202:
            await request.answer_empty(202)
        elif status is not None:
            await request.fail_plainly(status, "The process that waited for this response has ended")
        return status is not None

    async def _post_alone(self, request: HttpRequest, message: Message | Parts, version: Version) -> None:
        """Handle a message without a session."""
        core = self._core
        if isinstance(message, Notification):
            await request.answer_empty(202)
            return
        if isinstance(message, (Response, Failure)):
            await request.fail(400, InvalidRequest("A response belongs to a session: " + NO_SESSION))
            return

        reply = Reply(request, NOT_RESUMABLE, core.keep_alive)
        connection = core.connect(reply, core.opening(request, version, is_stateless=True, subscribes=False))
        if request.watch is not None:
            request.watch.begin(connection)
        core.open.add(connection)

        try:
            if isinstance(message, Request):
                await self._request(connection, reply, message)
            else:
                await self._batch(connection, reply, message)
        finally:
            if reply.is_watched:
                reply.stop()
            core.open.discard(connection)
            connection.closed()  # nothing follows, not even after a batch

    async def _request(
        self,
        connection: ServerConnection,
        reply: Reply,
        message: Request,
        session: HttpSession | None = None,
        on_disconnect: Callable[[], None] | None = None,
    ) -> None:
        try:
            call = connection.session.receive_request(message, reply.request.charge)
        except ProtocolError as error:
            # Error responses have status 200, except for malformed messages.
            frame = connection.session.refuse(error, message.id)
            await reply.finish(frame, 400 if isinstance(error, (ParseError, InvalidRequest)) else 200)
            return

        if session is not None:
            if session.replies is None:
                session.replies = {}
            session.replies[call.id] = reply
        try:
            answer = await connection.answer(call, partial(reply.watch_for_disconnect, on_disconnect))
        finally:
            if session is not None and session.replies:
                session.replies.pop(call.id, None)

        if call.denied is not None and reply.is_empty:
            reply.stop()
            await reply.request.refuse(self._core.deny(reply.request, call.denied))
            return
        if answer is None and session is not None and session.stopped and call.id in session.stopped:
            # Spec: 2025-11-25 basic/transports, session management: 404 for a session that has ended.
            await reply.finish(session.stopped.pop(call.id), 404)
            return
        if session is not None and self.sessions.shared is not None:
            try:
                await self.sessions.save(session)
            except CannotRestore as error:
                if reply.stream is None:
                    reply.stop()
                    await reply.request.refuse(_unavailable(error))
                    return
        await reply.finish(answer)

    async def _batch(
        self,
        connection: ServerConnection,
        reply: Reply,
        parts: Parts,
        session: HttpSession | None = None,
        on_disconnect: Callable[[], None] | None = None,
    ) -> None:
        """Answer a batch with an array, or 202 if it has no request. Spec: 2025-03-26 basic/transports."""
        try:
            connection.check_batches()
        except ProtocolError as error:
            await reply.finish(connection.session.refuse(error), 400)
            return

        denied = self._core.hiding.denied_in(parts, reply.request.origin())
        if denied is not None:
            await reply.request.refuse(self._core.deny(reply.request, denied))
            return

        if session is not None and self.sessions.nodes is not None:
            parts = await self.sessions.nodes.take_parts(session, parts)
            if not parts:
                await reply.finish(None)
                return
        done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        ids = [] if session is None else [part.id for part in parts if isinstance(part, Request)]
        own: list[Id] = []
        if session is not None:
            replies = session.replies = session.replies or {}
            own = [request_id for request_id in ids if request_id not in replies]
            replies.update(dict.fromkeys(own, reply))

        try:
            connection.receive_batch(parts, partial(_settle, done))
            if not done.done():
                reply.watch_for_disconnect(on_disconnect)
            answer = await done
        finally:
            for request_id in own:
                if session is not None and session.replies:
                    session.replies.pop(request_id, None)

        if session is not None and self.sessions.shared is not None:
            try:
                await self.sessions.save(session)
            except CannotRestore as error:
                log.warning("the settings of a batch have no effect: the server %s", printable(error))
        await reply.finish(answer)

    # -- GET ---------------------------------------------------------------------------------

    async def get(self, request: HttpRequest) -> None:
        """Open an event stream for messages that belong to no request, or resume a lost stream."""
        session = await self._session(request)
        if session is None:
            return
        if not request.accepts_events:
            await request.fail_plainly(
                406, "Not acceptable: a GET is answered with text/event-stream, which Accept must include"
            )
            return

        last = request.headers.get(b"last-event-id")
        if last is None:
            stream = session.new_stream(is_listening=True)
            missed = [stream.priming()]
        else:
            match = _read_event_id(last.strip())
            if match is not None and match[1] and match[1].decode() != session.streams.node:
                await self._follow(session, request, match)
                return
            resumed = None if match is None else await self._resume(session, match)
            if self.sessions.find(session.id, session.principal) is not session:  # it ended while the store was read
                await request.fail_plainly(404, NOT_FOUND)
                return
            if resumed is None:
                await request.fail_plainly(400, NOT_KEPT)
                return
            stream, missed = resumed

        await self._serve_stream(session, request, stream, missed)

    async def _resume(self, session: HttpSession, last: re.Match[bytes]) -> tuple[ResumableStream, list[bytes]] | None:
        """Return the stream of the last received event, and the events after it."""
        stream = session.streams.get(int(last[3]))
        if stream is None:
            return None
        missed = await stream.since(int(last[4]))
        return None if missed is None else (stream, missed)

    async def _follow(self, session: HttpSession, request: HttpRequest, last: re.Match[bytes]) -> None:
        """Resume a stream of another node: a GET stream continues here, another stream is followed to its end."""
        nodes = self.sessions.nodes
        if nodes is None:
            await request.fail_plainly(400, NOT_KEPT)
            return
        try:
            followed = await nodes.following.begin(session, last[1].decode(), int(last[3]), int(last[4]))
        except BackplaneAway:
            await request.refuse(_unavailable("cannot reach the process that has this stream"))
            return
        if self.sessions.find(session.id, session.principal) is not session:  # it ended meanwhile
            nodes.following.end(followed)
            await request.fail_plainly(404, NOT_FOUND)
            return

        missed = followed.take()
        if last[2]:
            nodes.following.end(followed)
            stream = session.new_stream(is_listening=True)
            await self._serve_stream(session, request, stream, [stream.priming(), missed])
        elif followed.is_over and not missed:
            nodes.following.end(followed)
            await request.refuse(Refusal(405, "All events of this stream were sent.\n", (("Allow", "POST"),)))
        else:
            session.busy += 1
            try:
                await nodes.following.serve(request, followed, missed)
            finally:
                session.busy -= 1

    async def _serve_stream(
        self, session: HttpSession, request: HttpRequest, stream: ResumableStream, missed: list[bytes]
    ) -> None:
        """Carry a stream on the response to this GET: first the missed events, then new ones."""
        if stream.is_complete and not missed:
            # The client would resume an empty stream forever; 405 is the other status that a GET may get.
            await request.refuse(Refusal(405, "All events of this stream were sent.\n", (("Allow", "POST"),)))
            return

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
        session.busy += 1
        self.sessions.touch(session)
        try:
            await departed(request)
        finally:
            if expiry is not None:
                expiry.cancel()
            response.close()
            self._core.keep_alive.discard(response)
            session.busy -= 1
            if stream.response is response:
                stream.response = None
                session.leave(stream)
                if stream.is_listening:
                    session.streams.leave(stream)
                stream.lost()
            if self.sessions.find(session.id, session.principal) is session:
                self.sessions.touch(session)

    # -- DELETE ------------------------------------------------------------------------------

    async def delete(self, request: HttpRequest) -> None:
        """End a session at the request of its client."""
        session = await self._session(request)
        if session is not None:
            try:
                await self.sessions.delete(session)
            except CannotRestore as error:
                await request.refuse(_unavailable(error))
            else:
                await request.answer_empty(204)

    async def _session(self, request: HttpRequest) -> HttpSession | None:
        """Return the session of a GET or DELETE; None after refusing the request."""
        session_id = request.header(_SESSION)
        if self._core.settings.stateless or (session_id is None and request.method == "GET"):
            # A client of 2024-11-05 gets this too: its first request is a GET.
            await request.refuse(Refusal(405, NO_STREAM, (("Allow", "POST"),)))
            return None

        try:
            self._version(request)
        except UnsupportedVersion as error:
            await request.fail(400, error)
            return None

        if session_id is None:
            await request.fail_plainly(400, NO_SESSION)
            return None

        session = self.sessions.find(session_id, self._core.principal(request))
        if self.sessions.shared is not None and (session is None or session.is_doubtful):
            try:
                session = await self.sessions.restore(session_id, request)
            except CannotRestore as error:
                await request.refuse(_unavailable(error))
                return None

        if session is None:
            await request.fail_plainly(404, NOT_FOUND)
        return session


NO_STREAM = (
    "An event stream needs a session: this is a Streamable HTTP endpoint, POST a JSON-RPC message to it.\n"
    "The HTTP+SSE transport of 2024-11-05 is not supported; set your client to Streamable HTTP with the same URL.\n"
)


def _unavailable(why: object) -> Refusal:
    return Refusal(503, f"The server {why}; try again later.\n", (("Retry-After", "5"),))


def _settle(done: asyncio.Future[bytes | None], frame: bytes | None) -> None:
    if not done.done():
        done.set_result(frame)


def _id_of(message: Message | Parts) -> Id | None:
    return message.id if isinstance(message, Request) else None
