"""POST, GET and DELETE up to 2025-11-25: sessions, event streams to resume, batches, requests that stand alone.

A request without a session and without `MCP-Protocol-Version` is of 2025-03-26, where both were optional: it is
answered alone, so batches work there as that version demands. One that names a version comes from a client that
was initialized; if it lost its session, it has to know. Spec: 2025-11-25 and 2025-03-26 basic/transports.
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
from mcpd.server.http.http_session import CannotRestore, HttpSession, Waiting
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
"""The version of a client that names none. Spec: 2025-11-25 basic/transports, protocol version header."""

_SESSION, _VERSION = b"mcp-session-id", b"mcp-protocol-version"
_read_event_id = re.compile(rb"(?:([0-9a-f]{10})\.(g?))?([0-9]{1,9})-([0-9]{1,9})").fullmatch

NO_SESSION = "Send the Mcp-Session-Id that came with the answer to initialize; without a session send initialize first"
NOT_FOUND = "Session not found: it has ended, or never was. Send initialize, without a session id, to begin a new one"


NOT_KEPT = "Last-Event-ID names no event of this session that is still kept"


class LegacyEndpoint:
    """Answers clients that began with `initialize`, or might have."""

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
            if self.sessions.shared is not None and (session is None or session.is_doubted):
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

    post_other = post

    def _version(self, request: HttpRequest) -> Version | None:
        """The version that the header names, None if there is none. Raises UnsupportedVersion (S25-042)."""
        name = request.header(_VERSION)
        if name is None:
            return None
        if name not in table.LEGACY:
            text = f"MCP-Protocol-Version {name[:100]!r} is not served; served are {', '.join(table.SUPPORTED)}"
            raise UnsupportedVersion(name[:100], table.SUPPORTED, text)
        return table.get(name)

    async def _initialize(self, request: HttpRequest, message: Request) -> None:
        """Begin a session, unless the request fails."""
        core = self._core
        ends_here = core.is_draining and self.sessions.nodes is None  # else it goes on elsewhere
        if ends_here or not self.sessions.make_room(request):
            why = "is shutting down" if ends_here else "has as many sessions as it takes (setting max_sessions)"
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
            session.rest()  # many are begun, and asked nothing for long
            await request.answer(200, answer, headers=headers)
        except ProtocolError as error:
            await request.fail(400, error, message.id)
        finally:
            if not is_added:
                self.sessions.drop(session)

    async def _post_to(self, session: HttpSession, request: HttpRequest, message: Message | Parts) -> None:
        """A message for a session."""
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
        waiting = Waiting(session)
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
        """Whether a message was for another node, and the request is answered."""
        assert self.sessions.nodes is not None
        try:
            status = await self.sessions.nodes.takes(session, message)
        except BackplaneAway:
            await request.refuse(_unavailable("cannot reach the process that this answers"))
            return True
        if status == 202:
            await request.answer_empty(202)
        elif status is not None:
            await request.fail_plainly(status, "Nobody waits for this answer: the process that asked is gone")
        return status is not None

    async def _post_alone(self, request: HttpRequest, message: Message | Parts, version: Version) -> None:
        """A message without a session: nothing came before it, and nothing will follow."""
        core = self._core
        if isinstance(message, Notification):
            await request.answer_empty(202)
            return
        if isinstance(message, (Response, Failure)):
            await request.fail(400, InvalidRequest("An answer belongs to a session: " + NO_SESSION))
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
            connection.closed()  # nothing will follow: what a batch left ready for more is let go

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
            # Errors of a request are answers, with status 200, unless it was no proper message at all.
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

        if call.denied is not None and reply.is_unsaid:
            reply.stop()
            await reply.request.refuse(self._core.deny(reply.request, call.denied))
            return
        if answer is None and session is not None and session.stopped and call.id in session.stopped:
            # Spec: 2025-11-25 basic/transports, session management: to what names a session that is over, 404.
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
        """An array in, an array out, 202 if nothing in it wants an answer. Spec: 2025-03-26 basic/transports."""
        try:
            connection.check_batches()
        except ProtocolError as error:
            await reply.finish(connection.session.refuse(error), 400)
            return

        hiding = self._core.hiding
        denied = None if hiding is None else hiding.denied_in(parts, reply.request.origin())
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
                log.warning("what a batch has set is not set: the server %s", printable(error))
        await reply.finish(answer)

    # -- GET ---------------------------------------------------------------------------------

    async def get(self, request: HttpRequest) -> None:
        """An event stream for what belongs to no request, or what is left of one that was lost."""
        session = await self._session(request)
        if session is None:
            return
        if not request.accepts_events:
            await request.fail_plainly(
                406, "Not acceptable: a GET is answered with text/event-stream, which Accept has to name"
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
            if self.sessions.find(session.id, session.principal) is not session:  # it ended while its store was asked
                await request.fail_plainly(404, NOT_FOUND)
                return
            if resumed is None:
                await request.fail_plainly(400, NOT_KEPT)
                return
            stream, missed = resumed

        await self._serve_stream(session, request, stream, missed)

    async def _resume(self, session: HttpSession, last: re.Match[bytes]) -> tuple[ResumableStream, list[bytes]] | None:
        """The stream that the last event seen belongs to, and what followed on it."""
        stream = session.streams.get(int(last[3]))
        if stream is None:
            return None
        missed = await stream.since(int(last[4]))
        return None if missed is None else (stream, missed)

    async def _follow(self, session: HttpSession, request: HttpRequest, last: re.Match[bytes]) -> None:
        """A stream of another node: what belongs to no request goes on here, the rest is followed to its end."""
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
            await request.refuse(Refusal(405, "All that was said on this stream was sent.\n", (("Allow", "POST"),)))
        else:
            session.busy += 1
            try:
                await nodes.following.serve(request, followed, missed)
            finally:
                session.busy -= 1

    async def _serve_stream(
        self, session: HttpSession, request: HttpRequest, stream: ResumableStream, missed: list[bytes]
    ) -> None:
        """Carry a stream on the response to this GET: what was missed first, then what comes."""
        if stream.is_complete and not missed:
            # The client would resume an empty stream for ever; 405 is the other status that a GET may get.
            await request.refuse(Refusal(405, "All that was said on this stream was sent.\n", (("Allow", "POST"),)))
            return

        response = EventStreamResponse(request, self._core.settings.write_timeout)
        earlier, stream.response = stream.response, response
        if earlier is not None:
            # The client resumes: its earlier connection is dead, even if nothing has told us so.
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
        """End a session at its client's wish."""
        session = await self._session(request)
        if session is not None:
            try:
                await self.sessions.delete(session)
            except CannotRestore as error:
                await request.refuse(_unavailable(error))
            else:
                await request.answer_empty(204)

    async def _session(self, request: HttpRequest) -> HttpSession | None:
        """The session that a GET or DELETE is for; if there is none the request is answered."""
        session_id = request.header(_SESSION)
        if self._core.settings.stateless or (session_id is None and request.method == "GET"):
            # Also what a client of 2024-11-05 meets, whose first request is a GET.
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
        if self.sessions.shared is not None and (session is None or session.is_doubted):
            try:
                session = await self.sessions.restore(session_id, request)
            except CannotRestore as error:
                await request.refuse(_unavailable(error))
                return None

        if session is None:
            await request.fail_plainly(404, NOT_FOUND)
        return session


NO_STREAM = (
    "There is no stream here without a session: this is a Streamable HTTP endpoint, POST a JSON-RPC message to it.\n"
    "The HTTP+SSE transport of 2024-11-05 is not served; set your client to Streamable HTTP with this same URL.\n"
)


def _unavailable(why: object) -> Refusal:
    return Refusal(503, f"The server {why}; try again later.\n", (("Retry-After", "5"),))


def _settle(done: asyncio.Future[bytes | None], frame: bytes | None) -> None:
    if not done.done():
        done.set_result(frame)


def _id_of(message: Message | Parts) -> Id | None:
    return message.id if isinstance(message, Request) else None
