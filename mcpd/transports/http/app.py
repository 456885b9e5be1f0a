"""Streamable HTTP as an ASGI application: who may come in, which era a request is of, what is beside the endpoint.

The order of the checks is that of design: where from (Host, Origin), who (token), then method, `Accept` and
`Content-Type`, size, JSON; what follows is the era's own room. The body decides the era, headers only confirm it.
Spec: 2026-07-28 and 2025-11-25 basic/transports; 2026-07-28 basic/versioning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from time import perf_counter
from typing import Any, NamedTuple

from msgspec import Raw

from ...errors import ConfigurationError, InvalidRequest, ParseError, ProtocolError
from ...jsonrpc import ABSENT, Batch, Message, Notification, Request, decode, decode_batch
from ...session import has_envelope
from ...versions import table
from ..guards import Access, Guard, Refusal
from .core import Answering, Connect, Core, HttpSettings, Identify
from .cors import Cors
from .headers import Mirrors
from .legacy import LegacyEndpoint
from .modern import ModernEndpoint
from .upgrade import serve_websocket
from .visit import BadBody, Gone, Receive, Scope, Send, Visit

__all__ = ["HttpApp"]

log = logging.getLogger("mcpd.http")

_MODERN = table.MODERN[-1].encode()
_MOST_MANNERS = 1024
_DEFAULT_ACCESS = Access()
_DEFAULT_SETTINGS = HttpSettings()
_HEALTH = ("/healthz", "/readyz")

Step = Coroutine[Any, Any, Any]
"""A part of the work on a request; it gives the next one, or None."""


class _Manners(NamedTuple):
    """What is wrong with requests that have these headers: where they come from, and what a POST of them says."""

    refusal: Refusal | None
    fault: tuple[int, str] | None


class HttpApp:
    """The application: give it to any ASGI server, or to `listener.listen`, which runs it with uvicorn.

    `connect` is the server behind it, `mirrors` names a tool's mirrored arguments, `bound` is the host that is
    listened on. `identify` says who sends a request where something before this application found that out.
    """

    def __init__(
        self,
        connect: Connect,
        mirrors: Mirrors,
        access: Access = _DEFAULT_ACCESS,
        settings: HttpSettings = _DEFAULT_SETTINGS,
        *,
        bound: str = "",
        identify: Identify | None = None,
    ) -> None:
        if not settings.path.startswith("/"):
            raise ConfigurationError(f"path {settings.path!r}: write the endpoint's path from the root, such as /mcp")
        self.settings = settings
        self.core = Core(connect, mirrors, settings, identify)
        self.guard = Guard(access, bound)
        self._cors = Cors(access.origins)
        self._has_token = access.token is not None
        path = settings.path.rstrip("/")
        self.paths = (path, path + "/") if path else ("/", "")
        """Where the endpoint is, first as it is told to people."""
        self._modern = ModernEndpoint(self.core)
        self._legacy = LegacyEndpoint(self.core)
        self._manners: dict[tuple[bytes | None, ...], _Manners] = {}

    # -- what the ASGI server calls ----------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, WebSocket, or life of the server. Spec: ASGI 3."""
        if scope["type"] == "http":
            began = perf_counter() if log.isEnabledFor(logging.DEBUG) else 0.0
            visit = Visit(scope, receive, send)
            step: Step | None = self._route(visit)
            try:
                while step is not None:
                    # One after the other, not inside each other: a call that lasts keeps nothing of its way here.
                    step = await step
            except Gone:
                pass
            if began:
                took = (perf_counter() - began) * 1000
                log.debug("%s %s %s %.1f ms", visit.method, visit.path[:200], visit.status or "gone", took)
        elif scope["type"] == "websocket":
            visit = Visit({**scope, "method": "GET"}, receive, send)
            await serve_websocket(self.core, visit, send, self._refuse_websocket(visit))
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self.aclose(0)
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    def _route(self, visit: Visit) -> Step:
        """What this request gets, by all that its head says."""
        manners = self._check_manners(visit)
        refusal = manners.refusal
        if refusal is not None:
            log.warning("Refused a request: %d %s", refusal.status, refusal.text.rstrip())
            return visit.refuse(refusal)
        if self._cors.is_enabled:
            visit.extra = self._cors.headers(visit)
            if visit.method == "OPTIONS" and self._cors.is_preflight(visit):
                return visit.answer_empty(204, self._cors.preflight(visit))
        if visit.path not in self.paths:
            return self._elsewhere(visit)
        if self._has_token:
            refusal = self.guard.check_token(visit.text(b"authorization"))
            if refusal is not None:
                log.warning("Refused a request: %d", refusal.status)
                return visit.refuse(refusal)
        if visit.method == "POST":
            return self._post(visit) if manners.fault is None else visit.fail_plainly(*manners.fault)
        if visit.method not in ("GET", "DELETE"):
            text = f"{visit.method[:20]} means nothing here.\n"
            return visit.answer_text(405, text, ((b"allow", b"GET, POST, DELETE"),))
        if visit.fields.get(b"mcp-protocol-version") == _MODERN:
            text = f"In {_MODERN.decode()} there is only POST: listen with subscriptions/listen.\n"
            return visit.answer_text(405, text, ((b"allow", b"POST"),))
        return self._legacy.get(visit) if visit.method == "GET" else self._legacy.delete(visit)

    def _refuse_websocket(self, visit: Visit) -> Refusal | None:
        refusal = self._check_manners(visit).refusal or self.guard.check_token(visit.text(b"authorization"))
        if refusal is not None:
            log.warning("Refused a WebSocket: %d", refusal.status)
            return refusal
        if visit.path not in self.paths and visit.path != "/":
            return Refusal(404, f"Nothing is served at this path: connect to {self.paths[0]}.\n")
        if self.core.is_draining:
            return Refusal(503, "The server is shutting down.\n")
        return None

    def _check_manners(self, visit: Visit) -> _Manners:
        """What is wrong with a request by itself. Most clients send the same each time: what was found is kept."""
        get = visit.fields.get
        key = (get(b"host"), get(b"origin"), get(b"accept"), get(b"content-type"), get(b"content-encoding"))
        manners = self._manners.get(key)
        if manners is None:
            fault: tuple[int, str] | None = None
            if not visit.accepts_both:
                fault = 406, "Not acceptable: Accept has to name application/json and text/event-stream"
            elif not visit.has_json:
                fault = 415, "Unsupported media type: the body has to be application/json in UTF-8, as it is"
            refusal = self.guard.check_source(visit.text(b"host"), visit.text(b"origin"))
            manners = _Manners(refusal, fault)
            if len(self._manners) >= _MOST_MANNERS:
                self._manners.clear()
            self._manners[key] = manners
        return manners

    # -- the endpoint ------------------------------------------------------------------------

    async def _post(self, visit: Visit) -> Step:
        """Read a message; gives what is to be done with it."""
        try:
            body = await visit.read(self.settings.max_body_bytes, self.settings.body_timeout)
            if not body.isascii():
                _check_utf8(body)
            message = decode(body)
        except BadBody as bad:
            return visit.fail_plainly(bad.status, bad.text)
        except ProtocolError as error:
            return visit.fail(400, error, error.request_id)
        is_modern = visit.fields.get(b"mcp-protocol-version") == _MODERN
        if message.__class__ is not Request:
            return self._post_other(visit, message, body, is_modern)
        if is_modern or self._is_modern(visit, message, body):
            return self._modern.post(visit, message)
        return self._legacy.post(visit, message, body)

    def _is_modern(self, visit: Visit, request: Request, body: bytes) -> bool:
        """Whether a request whose header does not say so is of 2026-07-28: it has its `_meta`, or exists only there."""
        if b"protocolVersion" in body and has_envelope(request.params):
            return True
        return request.method in _ONLY_MODERN and b"mcp-session-id" not in visit.fields

    def _post_other(self, visit: Visit, message: Message | Batch, body: bytes, is_modern: bool) -> Step:
        """What is no request: notifications, answers, batches."""
        if isinstance(message, Batch):
            parts = decode_batch(message)
            if is_modern or any(_has_envelope(part) for part in parts):
                text = f"{_MODERN.decode()} has no batches: POST each message by itself"
                return visit.fail(400, InvalidRequest(text))
            return self._legacy.post(visit, parts, body)
        if isinstance(message, Notification):
            if is_modern or _has_envelope(message):
                # No notification of a client means anything here: giving up is closing the stream (S26-053).
                return visit.answer_empty(202)
        elif is_modern:
            text = f"In {_MODERN.decode()} the server asks nothing: there is no answer to send"
            return visit.fail(400, InvalidRequest(text))
        return self._legacy.post(visit, message, body)

    async def _elsewhere(self, visit: Visit) -> None:
        if visit.path in _HEALTH and visit.method in ("GET", "HEAD"):
            if visit.path == "/readyz" and self.core.is_draining:
                await visit.answer_text(503, "shutting down\n")
            else:
                await visit.answer_text(200, "ok\n")
            return
        await visit.answer_text(
            404,
            f"Nothing is served at this path: the MCP endpoint is {self.paths[0]}, POST a JSON-RPC message to it "
            "(Streamable HTTP).\nThe HTTP+SSE transport of 2024-11-05 is not served.\n",
        )

    # -- ending ------------------------------------------------------------------------------

    @property
    def connections(self) -> list[Answering]:
        """Everything that may have calls running."""
        return [*self.core.open, *(session.connection for session in self._legacy.sessions)]

    def drain(self) -> None:
        """Begin no more sessions, and say so at /readyz; what runs goes on."""
        self.core.is_draining = True

    async def aclose(self, grace: float = 0) -> None:
        """End everything: calls get `grace` seconds, subscriptions their result, sessions and streams just end."""
        self.drain()
        await asyncio.gather(*(connection.finish(grace) for connection in self.connections))
        self._legacy.sessions.end_all()
        for channel in list(self.core.sockets):
            await channel.aclose("the server is shutting down")
        self.core.beats.stop()
        await self.core.settle()


def _check_utf8(body: bytes) -> None:
    """Raise ParseError for what is no UTF-8 (S25-026, S26-043): parts that are passed on undecoded would hide it."""
    try:
        str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(f"Parse error: not UTF-8: {error.reason} at byte {error.start}") from None


def _has_envelope(part: Message | ProtocolError) -> bool:
    params: Raw = getattr(part, "params", ABSENT)
    return params is not ABSENT and has_envelope(params)


_ONLY_MODERN = frozenset(table.get(table.MODERN[-1]).requests) - frozenset(table.get(table.NEWEST_LEGACY).requests)
