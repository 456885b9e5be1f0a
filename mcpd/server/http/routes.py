"""Routes besides the endpoint: health, discovery with the Server Card, and the routes of authors; also CORS headers.

Checks are made in this order: `Host` and `Origin`, path and method, credentials, size of the body. Requests to the
endpoint never arrive here. Errors are JSON with an `error`, as all HTTP refusals (RFC 9110 15.5.6: 405 has `Allow`).

A Server Card describes the server, its endpoint and its versions, but not its tools. Spec: SEP-2127, with the schema of
its extension; the catalog is an AI Catalog; https://fetch.spec.whatwg.org/#http-cors-protocol.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from msgspec.json import encode

from mcpd.errors import ConfigurationError, InvalidParams, InvalidRequest, ResourceNotFound, ThreadsBusy, as_told
from mcpd.protocol.principal import Principal
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Implementation
from mcpd.protocol.versions import table
from mcpd.server.context.peer import is_failure
from mcpd.server.functions.results import to_builtins
from mcpd.server.functions.threads import run_in_thread
from mcpd.server.http_backend import Backend
from mcpd.transports.authentication import Refusal, RequestHeaders, unavailable
from mcpd.transports.guards import Guard
from mcpd.transports.routes import Route, RouteRequest, RouteResponse
from .core import Core, HttpSettings
from .request import BadRequest, Header, HttpRequest

_METHODS = b"GET, POST, DELETE"
_EXPOSED = b"DPoP-Nonce, Mcp-Session-Id, WWW-Authenticate"
_ALLOWED = (
    "Accept",
    "Authorization",
    "Content-Type",
    "DPoP",
    "Last-Event-ID",
    "Mcp-Method",
    "Mcp-Name",
    "MCP-Protocol-Version",
    "Mcp-Session-Id",
)
_MAX_AGE = b"7200"
_is_name = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch


class Cors:
    """The CORS headers for web pages of the configured origins.

    Pages of this machine that were not configured may send requests, but get no headers and cannot read responses.
    """

    def __init__(self, origins: Iterable[str]) -> None:
        self._origins = {origin.lower().encode() for origin in origins}
        self.is_enabled = bool(self._origins)

    def answer(self, request: HttpRequest, methods: bytes = _METHODS) -> Coroutine[Any, Any, None] | None:
        """Add the headers of every response. Returns the answer to a preflight, None for any other request.

        `methods` are the methods of the path.
        """
        request.response_headers = self._headers(request)
        is_preflight = request.method == "OPTIONS" and b"access-control-request-method" in request.headers
        if is_preflight and b"origin" in request.headers:
            return request.answer_empty(204, self._preflight(request, methods))
        return None

    def _headers(self, request: HttpRequest) -> tuple[Header, ...]:
        origin = request.headers.get(b"origin")
        if origin is None or origin.lower() not in self._origins:
            return ((b"vary", b"Origin"),)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        )

    def _preflight(self, request: HttpRequest, methods: bytes) -> tuple[Header, ...]:
        # Return the headers of a preflight response besides those of every response.
        # Tools may read any header, so a configured page may send all headers that it requests.
        if request.headers[b"origin"].lower() not in self._origins:
            return ()
        asked = request.headers.get(b"access-control-request-headers", b"").decode("latin-1").split(",")
        known = {name.lower() for name in _ALLOWED}
        own = [name for each in asked if _is_name(name := each.strip()) and name.lower() not in known]
        allowed = ", ".join([*_ALLOWED, *own])
        return (
            (b"access-control-allow-methods", methods),
            (b"access-control-allow-headers", allowed.encode()),
            (b"access-control-max-age", _MAX_AGE),
        )


CARD = "/server-card"
"""The path of the card below the endpoint."""

CATALOG = "/.well-known/ai-catalog.json"

_CARD_TYPE = "application/mcp-server-card+json"
_CATALOG_TYPE = "application/ai-catalog+json"
_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_MOST_CHARACTERS = 100
_FOR_PAGES = {
    "Access-Control-Allow-Methods": "GET",
    "Access-Control-Allow-Headers": "Content-Type, If-None-Match",
    "Access-Control-Expose-Headers": "ETag",
}
_in_no_route = re.compile(r"[?#\\ {}]").search
_is_full_name = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+").fullmatch
_is_address = re.compile(r"[\d.]+|\[.*|.*:.*").fullmatch


def checked_public_url(url: str) -> str:
    """Return the public URL of the endpoint without a slash at its end. Raises ConfigurationError."""
    parts = urlsplit(url)
    if url and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
        raise ConfigurationError(
            f"public_url {url!r}: write the whole URL of the endpoint, such as https://example.com/mcp"
        )
    return url.rstrip("/")


class ServerCard:
    """The Server Card of one application, and the catalog that names it.

    `endpoint` is the path of the endpoint. Credentials are needed if the endpoint `asks` for them, unless the card is
    public. `needs_token` declares that clients need a bearer token.
    """

    def __init__(
        self,
        identity: Implementation,
        endpoint: str,
        settings: HttpSettings,
        *,
        asks: bool,
        needs_token: bool,
    ) -> None:
        self._identity = identity
        self._endpoint = endpoint.rstrip("/")
        self._url = checked_public_url(settings.public_url)
        self._needs_token = needs_token
        # By default, a page in a browser cannot find out what runs on its machine.
        any_origin = settings.server_card == "public"
        is_public = any_origin or not asks
        self._headers = {"Cache-Control": f"{'public' if is_public else 'private'}, max-age=3600"}
        if any_origin:
            self._headers |= _FOR_PAGES
        # A route cannot have some characters that the path of an endpoint may have.
        paths = (f"{self._endpoint}{CARD}", CATALOG)
        self.routes = tuple(
            Route(path, function, public=is_public, any_origin=any_origin)
            for path, function in zip(paths, (self.card, self.catalog), strict=True)
            if not _in_no_route(paths[0])
        )

    async def card(self, request: RouteRequest) -> RouteResponse:
        """Return the Server Card."""
        identity, url = self._identity, self._url_of(request)
        remote: dict[str, Any] = {
            "type": "streamable-http",
            "url": url,
            "supportedProtocolVersions": [name for name in table.SUPPORTED if name >= _FIRST_OVER_HTTP],
        }
        if self._needs_token:
            remote["headers"] = [{"name": "Authorization", "isRequired": True, "isSecret": True}]
        members: dict[str, Any] = {
            "$schema": _SCHEMA,
            "name": self._name(url),
            "version": identity.version[:255],
            "description": _cut(identity.description or identity.title or f"The MCP server {identity.name}"),
            "title": _cut(identity.title or ""),
            "websiteUrl": identity.website_url,
            "icons": to_builtins(identity.icons),
            "remotes": [remote],
        }
        card = {name: value for name, value in members.items() if value or name == "version"}
        return self._answer(request, card, _CARD_TYPE)

    async def catalog(self, request: RouteRequest) -> RouteResponse:
        """Return the catalog, which names the Server Card."""
        url = self._url_of(request)
        shown = self._identity.title or self._identity.name
        space, _, last = self._name(url).partition("/")
        # The publisher is a domain: the one in the server's name if it has that form.
        publisher = ".".join(reversed(space.split("."))) if self._has_full_name else _publisher(_host(url))
        entry = {
            "identifier": f"urn:air:{publisher}:mcp:{last}",
            "displayName": shown,
            "type": _CARD_TYPE,
            "url": f"{url}{CARD}",
        }
        catalog = {"specVersion": "1.0", "host": {"displayName": shown}, "entries": [entry]}
        return self._answer(request, catalog, _CATALOG_TYPE)

    def _answer(self, request: RouteRequest, document: dict[str, Any], kind: str) -> RouteResponse:
        # Return a document with its ETag, or 304 for a client that has it (RFC 9110 13.1.2).
        body = encode(document)
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {**self._headers, "ETag": tag}
        known = request.headers.get("if-none-match", "")
        if known.strip() == "*" or tag in re.findall(r'"[^"]*"', known):  # of weak tags the part that counts
            return RouteResponse(status=304, headers=headers)
        return RouteResponse(body, headers=headers, content_type=kind)

    def _url_of(self, request: RouteRequest) -> str:
        # `Host` was checked, so it names this server.
        host = request.headers.get("host") or "localhost"
        return self._url or f"{request.scheme}://{host}{request.root_path.rstrip('/')}{self._endpoint}"

    @property
    def _has_full_name(self) -> bool:
        return _is_full_name(self._identity.name) is not None and len(self._identity.name) <= 200

    def _name(self, url: str) -> str:
        # Return a name in reverse-DNS form: the server's own if it has that form, otherwise one below the host.
        name = self._identity.name
        if self._has_full_name:
            return name
        host = _host(url)
        space = host if _is_address(host) else ".".join(reversed(host.split(".")))
        last = re.sub(r"[^a-zA-Z0-9._-]+", "-", name).strip("-.") or "mcpd"
        return f"{re.sub(r'[^a-zA-Z0-9.-]', '-', space)}/{last}"[:200]


_FIRST_OVER_HTTP = "2025-03-26"


def _host(url: str) -> str:
    return urlsplit(url).hostname or "localhost"


def _publisher(host: str) -> str:
    # Return a host as a part of a URN, which is ASCII without colons (RFC 8141).
    with suppress(UnicodeError):
        host = host.encode("idna").decode()
    return re.sub(r"[^a-zA-Z0-9.-]", "-", host)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


log = logging.getLogger("mcpd.http")

# Clients look for authorization metadata below the root and below the endpoint (RFC 8615, RFC 9728, RFC 8414).
_DISCOVERY = "/.well-known/"
_TO_ANY_PAGE = ((b"access-control-allow-origin", b"*"),)
_EMPTY = (204, 304)
_FRAMING = frozenset(("connection", "content-length", "keep-alive", "trailer", "transfer-encoding", "upgrade"))
_is_value = re.compile(r"[\t\x20-\x7e\x80-\xff]*").fullmatch
_FAILED = Refusal(500, "The server failed to answer; details are in its log.\n")
_ENDING = unavailable("The server is shutting down.\n")
_NOT_STARTED = unavailable("The server could not start; details are in its log.\n")

FindSender: TypeAlias = Callable[[HttpRequest], Coroutine[Any, Any, Principal | Refusal]]
"""Returns the sender of a request, or its refusal."""


class _Caller(NamedTuple):
    # The owner of the thread that a plain function takes, like the exchange of a call.
    owner: tuple[object, str]
    subject: str


class Router:
    """The routes of one application: of its settings, of its server, and built-in ones.

    `find_sender` is None without authentication; `endpoint` are the paths of the endpoint. Raises ConfigurationError
    for a route with the endpoint's path.
    """

    def __init__(
        self,
        core: Core,
        server: Backend,
        guard: Guard,
        cors: Cors,
        find_sender: FindSender | None,
        endpoint: tuple[str, str],
    ) -> None:
        self._core = core
        self._guard = guard
        self._cors = cors
        self._find_sender = find_sender
        self._lifespan = server.lifespan
        self._added = server.routes
        for route in (*core.settings.routes, *self._added):
            if route.path in endpoint:
                raise ConfigurationError(f"route {route.path!r}: this is the path of the MCP endpoint; use another")

        probes = (Route("/healthz", self._is_alive, public=True), Route("/readyz", self._is_ready, public=True))
        self._own = (
            *probes,
            *_documents(guard, endpoint[0]),
            *_card_routes(core, server, guard, asks=find_sender is not None, endpoint=endpoint[0]),
        )
        self._extensions = server.extensions
        self._endpoint = endpoint[0]
        self._exact: dict[str, list[Route]] = {}
        self._templates: list[Route] = []
        self._count = 0
        self._running: set[asyncio.Task[Any]] = set()
        self._stopped: set[asyncio.Task[Any]] = set()
        self._build()  # extensions learn the endpoint

    def _not_found(self, request: HttpRequest) -> Refusal:
        # Return the refusal for an unknown path. It names the endpoint, including the mount point.
        endpoint = f"{request.scope.get('root_path') or ''}{self._endpoint}"
        return Refusal(
            404,
            f"Nothing is served at this path: the MCP endpoint is {printable(endpoint)}, POST a JSON-RPC message to it "
            "(Streamable HTTP).\nThe HTTP+SSE transport of 2024-11-05 is not served.\n",
            (),
            "not_found" if _is_of_oauth(request.path) else "",
        )

    # -- finding routes ----------------------------------------------------------------------

    def find(self, path: str) -> dict[str, Route]:
        """Return the routes of a path by method.

        An exact path takes precedence over one with parameters, and the first route over later ones: first routes
        of the settings, then routes of the server, then built-in ones.
        """
        if self._count != self._total() or not self._exact:
            self._build()
        routes: dict[str, Route] = {}
        for route in self._exact.get(path, ()):
            for method in route.methods:
                routes.setdefault(method, route)

        for route in self._templates:
            if route.match(path) is not None:
                for method in route.methods:
                    routes.setdefault(method, route)

        return routes

    def _build(self) -> None:
        self._exact.clear()
        self._templates.clear()
        self._count = self._total()
        url = checked_public_url(self._core.settings.public_url)
        extra = [route for extension in self._extensions() for route in extension.routes(self._endpoint, url)]
        for route in (*self._core.settings.routes, *self._added, *extra, *self._own):
            if route.between is None:
                self._exact.setdefault(route.path, []).append(route)
            else:
                self._templates.append(route)

    def _total(self) -> int:
        # A number that changes when an author or an extension has added routes.
        return len(self._added) + len(list(self._extensions()))

    async def _is_alive(self) -> RouteResponse:
        return RouteResponse("ok\n")

    async def _is_ready(self) -> RouteResponse:
        core = self._core
        if core.is_draining:
            return RouteResponse("shutting down\n", 503)
        trouble = "" if core.sharing is None else core.sharing.trouble
        if not trouble:
            return RouteResponse("ok\n")
        # All processes lose the backplane at once: 503 would stop a service that still works without it.
        return RouteResponse(f"{trouble}\n", 503) if core.settings.strict_ready else RouteResponse(f"ok\n{trouble}\n")

    # -- a request ---------------------------------------------------------------------------

    async def serve(self, request: HttpRequest, refusal: Refusal | None) -> None:
        """Answer a request to another path than the endpoint's; `refusal` is for its Host and Origin."""
        routes = self.find(request.path)
        route = routes.get(request.method)
        open_methods = _open_methods(request, routes, route)
        if open_methods:
            # Also for pages that may not call tools: a refusal would look to them like a network error.
            refusal = self._guard.check_source(request.header(b"host"), None)
        if refusal is not None:
            await _refuse(request, refusal)
            return

        if open_methods:
            request.response_headers = _TO_ANY_PAGE
            if request.method == "OPTIONS" and route is None:
                allowed = (b"access-control-allow-methods", ", ".join(open_methods).encode())
                await request.answer_empty(204, (allowed, (b"access-control-allow-headers", b"*")))
                return
        elif self._cors.is_enabled:
            preflight = self._cors.answer(request, ", ".join(routes).encode())
            if preflight is not None:
                await preflight
                return

        if route is None:
            await request.refuse(_not_allowed(request.method, routes) if routes else self._not_found(request))
            return
        if not route.public and self._find_sender is not None:
            known = await self._find_sender(request)
            if isinstance(known, Refusal):
                await _refuse(request, known)
                return
            request.user = known

        await self._serve_route(request, route)

    async def _serve_route(self, request: HttpRequest, route: Route) -> None:
        settings = self._core.settings
        most = settings.max_body_bytes if route.max_body_bytes is None else route.max_body_bytes
        try:
            body = b"" if route.streams else await request.read(most, settings.body_timeout, self._core.owner)
        except BadRequest as bad:
            # The unread part of the body would be parsed as the next request.
            refusal = unavailable(f"{bad}\n") if bad.status == 503 else Refusal(bad.status, f"{bad}\n")
            await request.refuse(refusal, ((b"connection", b"close"),))
            return

        value = await self._run(request, route, body)
        try:
            answer = _check_refusal(value) if isinstance(value, Refusal) else _response_parts(value)
        except Exception as error:
            log.error("The result of the route %s cannot be sent: %s", printable(route.path), printable(error))
            await request.refuse(_FAILED)
            return

        # The unread part of the body would be parsed as the next request.
        close: tuple[Header, ...] = ((b"connection", b"close"),) if route.streams else ()
        if isinstance(answer, Refusal):
            await request.refuse(answer, close)
            return

        status, kind, content, fields = answer
        fields += close
        if status in _EMPTY:
            await request.answer_empty(status, fields)
        else:
            await request.answer(status, content, kind, fields)

    async def _run(self, request: HttpRequest, route: Route, body: bytes) -> object:
        # Return the result of the route's function; a Refusal if it fails.
        lifespan: Any = None
        if self._lifespan is not None and route not in self._own:
            try:
                await self._lifespan.open()
            except ConfigurationError:  # it is logged already
                return _NOT_STARTED
            lifespan = self._lifespan.value

        task: asyncio.Task[Any] | None = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            principal = self._core.principal(request)
            asked = _route_request(request, route, body, lifespan, principal) if route.takes_request else None
            arguments = () if asked is None else (asked,)
            if route.is_async:
                return await route.function(*arguments)  # type: ignore[misc]
            caller = _Caller((request, self._core.owner(request)), request.path)
            return await run_in_thread(route.function, *arguments, exchange=caller)
        except (InvalidRequest, InvalidParams) as error:
            return Refusal(404 if isinstance(error, ResourceNotFound) else 400, error.message + "\n")
        except ThreadsBusy as error:
            return unavailable(f"{error}\n")
        except BaseException as error:  # whatever it is, it ends its request, not the server
            if task in self._stopped and isinstance(error, asyncio.CancelledError):
                task.uncancel()
                return _ENDING
            # A function may raise CancelledError although its task was not cancelled.
            if task.cancelling() or not (is_failure(error) or isinstance(error, asyncio.CancelledError)):
                raise
            log.error("The route %s failed", printable(route.path), exc_info=as_told(error))
            return _FAILED
        finally:
            self._running.discard(task)
            self._stopped.discard(task)

    # -- ending ------------------------------------------------------------------------------

    async def finish(self, grace: float) -> None:
        """Let running functions answer for `grace` seconds, then `abort` the others."""
        if self._running:
            await asyncio.wait(self._running, timeout=grace)
        self.abort()
        if self._running:
            await asyncio.wait(self._running, timeout=1)

    def abort(self) -> None:
        """Cancel all running functions except plain ones in threads. Their requests are answered with 503."""
        self._stopped.update(self._running)
        for task in self._stopped:
            task.cancel()


def _documents(guard: Guard, endpoint: str) -> Sequence[Route]:
    # Return public routes for the metadata of the endpoint's protection.
    if guard.protection is None:
        return ()
    documents = [
        Route(path, partial(_document, content), public=True, any_origin=True)
        for path, content in guard.protection.documents(endpoint).items()
    ]
    return [*documents, *guard.protection.routes]


async def _document(content: Callable[[str], bytes], request: RouteRequest) -> RouteResponse:
    document = content(request.headers.get("host", ""))
    return RouteResponse(document, headers={"Cache-Control": "max-age=3600"}, content_type="application/json")


def _is_of_oauth(path: str) -> bool:
    # Whether clients look for authorization at a path. They parse the response as JSON, whatever they accept.
    return _DISCOVERY in path or path in ("/authorize", "/token", "/register")


def _card_routes(core: Core, server: Backend, guard: Guard, *, asks: bool, endpoint: str) -> Sequence[Route]:
    # Return the routes of the Server Card and its catalog. They need credentials if the endpoint does.
    settings = core.settings
    if settings.server_card not in ("auto", "public", "never"):
        raise ConfigurationError(f"server_card {settings.server_card!r}: use auto, public or never")
    if settings.server_card == "never":
        checked_public_url(settings.public_url)
        return ()
    return ServerCard(server.identity, endpoint, settings, asks=asks, needs_token=guard.has_token).routes


def _open_methods(request: HttpRequest, found: Mapping[str, Route], route: Route | None) -> list[str]:
    # Return the methods at a path that every web page may use; [] if the request uses another method.
    if not found:
        return ["GET"] if _DISCOVERY in request.path else []  # a document that is not there is 404 to all
    if route is not None and not route.any_origin:
        return []
    return [method for method, other in found.items() if other.any_origin]


def _not_allowed(method: str, found: Mapping[str, Route]) -> Refusal:
    # Spec: RFC 9110 15.5.6.
    allowed = ", ".join(found)
    return Refusal(405, f"{method[:20]} is not supported here; use {allowed}.\n", (("Allow", allowed),))


async def _refuse(request: HttpRequest, refusal: Refusal) -> None:
    log.warning("Refused a request: %d %s", refusal.status, printable(refusal.text.rstrip()))
    await request.refuse(refusal)


def _route_request(request: HttpRequest, route: Route, body: bytes, lifespan: Any, principal: str) -> RouteRequest:
    scope = request.scope
    return RouteRequest(
        method=request.method,
        path=request.path,
        params=route.match(request.path) or {},
        headers=RequestHeaders(request.headers, request.repeated),
        query_string=scope.get("query_string", b"").decode("latin-1"),
        body=body,
        user=request.user,
        client=request.peer,
        root_path=scope.get("root_path") or "",
        scheme=scope.get("scheme") or "http",
        lifespan=lifespan,
        principal=principal,
        parts=request.parts,
    )


def _response_parts(value: object) -> tuple[int, Header, bytes, list[Header]]:
    # Return status, content type, body and headers for the result of a function. Raises ValueError or TypeError.
    # The headers must not state where the response ends: a proxy or the client could see another response after it.
    response = RouteResponse(status=204) if value is None else value
    if not isinstance(response, RouteResponse):
        response = RouteResponse(response)
    _check_status(response.status, 200)

    kind, body = _content(response.body)
    headers = response.headers
    fields: list[Header] = []
    for name, text in headers.items() if isinstance(headers, Mapping) else headers:
        _check_header(name, text)
        lower = name.lower()
        if lower == "content-type":
            kind = text
        else:
            fields.append((lower.encode(), text.encode("latin-1")))

    if response.content_type is not None:
        if not _is_value(response.content_type):
            raise ValueError(f"the content type {response.content_type!r} is not one line")
        kind = response.content_type

    return response.status, (b"content-type", kind.encode("latin-1")), body, fields


def _check_refusal(refusal: Refusal) -> Refusal:
    # Return a refusal unchanged. Raises ValueError if it cannot be sent.
    _check_status(refusal.status, 300)
    if refusal.status in _EMPTY:
        raise ValueError(f"a Refusal has a text, which status {refusal.status} cannot have")
    for name, text in refusal.headers:
        _check_header(name, text)
    return refusal


def _check_status(status: object, least: int) -> None:
    # True and 200.0 compare equal to a status, but are not valid on the wire.
    if not isinstance(status, int) or isinstance(status, bool) or not least <= status <= 599:
        raise ValueError(f"the status {status!r} is not between {least} and 599")


def _check_header(name: str, text: str) -> None:
    if not _is_name(name) or not _is_value(text) or name.lower() in _FRAMING:
        raise ValueError(f"the header {name!r} is not allowed, or its value is not one line")


def _content(body: object) -> tuple[str, bytes]:
    if isinstance(body, (bytes, bytearray, memoryview)):
        return "application/octet-stream", bytes(body)
    if isinstance(body, str):
        return "text/plain; charset=utf-8", body.encode()
    return "application/json", encode(to_builtins(body))
