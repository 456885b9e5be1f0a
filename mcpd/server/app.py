"""`Server`: the connection of a channel to what was registered.

Composition only: tools, resources and prompts are registered in `offerings`, methods are served in `handlers`,
transports are opened in `serving`, and the extensions that every server has are listed in `extensions/builtin.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, NewType, TypeVar, Unpack, overload

from msgspec import Raw
from msgspec.json import encode
from msgspec.structs import replace

from mcpd.dispatcher import ServerConnection
from mcpd.dispatcher.announcer import Announcer
from mcpd.dispatcher.connection import NotificationListener
from mcpd.errors import RegistrationError, collects
from mcpd.extensions.base import Extension
from mcpd.extensions.builtin import BuiltInMethods, make_extensions, with_help
from mcpd.handlers.table import bind as bind_handlers
from mcpd.protocol.session import MAX_FRAME_BYTES, Opening, Session
from mcpd.protocol.types.base import META, Icon, Params
from mcpd.registry.catalog import Catalog
from mcpd.registry.hooks import to_builtins
from mcpd.server.extension_methods import ExtensionMethods
from mcpd.server.http_routes import RouteMethods
from mcpd.server.metadata import checked_seconds, identity_of, one_of, state_keys_of
from mcpd.server.offerings import Offerings
from mcpd.server.visibility import VisibilityMethods

if TYPE_CHECKING:
    from mcpd.backplane.base import Backplane, ChangeBus
    from mcpd.context.request_state import RequestStateCodec
    from mcpd.extensions.options import BuiltInOptions
    from mcpd.handlers.middleware import Middleware
    from mcpd.http import HttpApp, HttpSettings
    from mcpd.http.core import Identify
    from mcpd.protocol.channel import Channel
    from mcpd.protocol.observer import Observer
    from mcpd.protocol.session import SessionHooks
    from mcpd.protocol.wire.headers import Mirror
    from mcpd.registry.cache import CacheableMethod, CacheHint
    from mcpd.registry.problems import Problem
    from mcpd.server.lifespan import Lifespan
    from mcpd.server.options import RunOptions
    from mcpd.server.roots import RootsWatchers
    from mcpd.transports.authentication import Authenticator, Protection
    from mcpd.transports.guards import Access
    from mcpd.transports.memory import MemoryChannel
else:
    # For whoever evaluates annotations (`inspect.signature`): the real ones would cost every start-up.
    for _name in ("Access", "Authenticator", "Backplane", "CacheHint", "CacheableMethod", "ChangeBus", "Channel",
                  "HttpApp", "HttpSettings", "Identify",
                  "MemoryChannel", "Mirror", "Observer", "Problem", "Protection"):  # fmt: skip
        globals()[_name] = NewType(_name, object)
    for _name in ("BuiltInOptions", "RunOptions"):
        globals()[_name] = NewType(_name, dict)

log = logging.getLogger("mcpd")

_OPENING = Opening()

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="Middleware")


@with_help
class Server(Offerings, VisibilityMethods, BuiltInMethods, RouteMethods):
    """An MCP server: register tools and resources with its decorators, then serve it.

    `page_size` is the length of one page of a list; `max_in_flight` how many requests of one connection
    are worked on at once, more are refused. `state_key` (16 bytes or more; MCPD_STATE_KEY in the environment)
    seals what clients carry between the rounds of one request; processes that serve the same clients share it,
    one alone makes its own. `show_errors` lets the texts of all exceptions reach the client and its model; without it
    those of ToolError and its like do, and of others the client learns only that they happened. `tool_timeout` is how
    many seconds a tool that is a function may take, if it does not say so itself. `extensions` are those of this server
    beside the built-in ones. `lifespan`, a function of the server that gives an async context manager, is entered once
    per process before the first call, and left after the last; its value is `ctx.lifespan`.
    `cache` is how long clients may keep lists, or by method what; see `CacheHint`. `observers` hear of connections,
    calls and frames. `auth` is one of those in `mcpd.auth`, as `Jwt(issuer=…)`; or `authenticate(headers)` (`def` or
    `async def`) gives a `Principal` or `Refusal` within `authenticate_timeout` seconds. Servers that share a
    `change_bus` tell their clients of each other's changes.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        instructions: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Iterable[Icon | Mapping[str, Any]] = (),
        page_size: int = 1000,
        max_in_flight: int = 1024,
        state_key: bytes | str | None = None,
        show_errors: bool = False,
        tool_timeout: float | None = None,
        cache: CacheHint | Mapping[CacheableMethod, CacheHint] | None = None,
        extensions: Iterable[Extension] = (),
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None = None,
        observers: Iterable[Observer] = (),
        auth: Protection | None = None,
        authenticate: Authenticator | None = None,
        authenticate_timeout: float = 10.0,
        change_bus: ChangeBus | None = None,
        **extension_options: Unpack[BuiltInOptions],
    ) -> None:
        if page_size < 1 or max_in_flight < 1 or not authenticate_timeout > 0:
            raise ValueError("page_size and max_in_flight are at least 1, and authenticate_timeout is more than 0")
        self.identity = identity_of(
            name, instructions, icons, version=version, title=title, description=description, website_url=website_url
        )
        self.authenticate = one_of(auth, authenticate)
        self.authenticate_timeout, self.max_in_flight = authenticate_timeout, max_in_flight
        self._max_frame_bytes = MAX_FRAME_BYTES
        self.catalog = Catalog(self.identity, instructions, page_size)
        self.catalog.shows_errors = show_errors
        self.catalog.tool_timeout = checked_seconds(tool_timeout, f"server {name!r}, tool_timeout")
        self.handlers = bind_handlers(self.catalog)
        self._put_hints(cache)
        self.extensions: dict[str, Extension] = {}
        self._listeners: dict[str, NotificationListener] = {}
        self._methods = ExtensionMethods(self.handlers.put, self._listen)
        self._connections = Announcer(change_bus)
        self._state_keys = state_keys_of(state_key)
        self._codec_getter = self._get_state_codec  # one bound method for all connections
        self._state_codec: RequestStateCodec | None = None
        self._observers = tuple(observers)
        self._roots_watchers: RootsWatchers | None = None
        self._routes = []
        self.lifespan: Lifespan | None = None

        if lifespan is not None:
            from mcpd.server.lifespan import guarded

            self.lifespan = guarded(lifespan, self, self.handlers)

        self.protect(self.authenticate)
        self.catalog.on_change = self._connections.changed
        self._identity_meta = Raw(encode({f"{META}serverInfo": self.identity}))
        for extension in (*make_extensions(extension_options), *extensions):
            self.add_extension(extension)

    def _put_hints(self, cache: CacheHint | Mapping[CacheableMethod, CacheHint] | None) -> None:
        if cache is not None:
            from mcpd.handlers.caching import put_hints
            from mcpd.registry.cache import checked_hints

            put_hints(self.handlers, self.catalog, checked_hints(cache, f"server {self.name!r}, cache"))

    @property
    def name(self) -> str:
        """The server's name, as clients see it."""
        return self.identity.name

    # -- the client's roots ------------------------------------------------------------------

    def roots_changed(self, function: F) -> F:
        """Register what runs when a client says that its roots changed: `@server.roots_changed`.

        The function takes a Context that belongs to no request; it can ask for the roots with it. Clients of
        2026-07-28 never say so. Spec: 2025-11-25 client/roots.
        """
        if self._roots_watchers is None:
            from mcpd.server.roots import RootsWatchers

            self._roots_watchers = RootsWatchers()
            self._listen("notifications/roots/list_changed", self._roots_watchers.tell)
        self._roots_watchers.functions.append(function)
        return function

    # -- extensions --------------------------------------------------------------------------

    def extension(self, id: str, *, settings: Mapping[str, Any] | None = None) -> Extension:
        """An extension of your own, for clients that offer it too: `notes = server.extension("com.example/notes")`.

        `settings` is what clients see of it. Its methods are registered with `@notes.method(…)`, or with
        `@server.method`. Raises RegistrationError for an id without a prefix, or one that is there already.
        Spec: 2026-07-28 basic/versioning, extension negotiation.
        """
        extension = Extension(id, settings=settings)
        self.add_extension(extension)
        return extension

    def add_extension(self, extension: Extension) -> None:
        """Add an extension that was made elsewhere. Raises RegistrationError if one of its id is there already."""
        if extension.id in self.extensions:
            raise RegistrationError(f"There is an extension {extension.id!r} already")
        self.extensions[extension.id] = extension
        extension.bind(self)

    def method(
        self, name: str, params: type[Params] = Params, *, versions: Collection[str] | None = None
    ) -> Callable[[F], F]:
        """Register what answers a method of an extension: `@server.method("com.example/notes/search", SearchParams)`.

        Its extension is the one whose id the name begins with. For more see `Extension.method`.
        """
        for extension in self.extensions.values():
            if name.startswith(f"{extension.id}/"):
                return extension.method(name, params, versions=versions)
        raise RegistrationError(
            f"method {name!r}: no extension has it; make one first, as in server.extension({name.rpartition('/')[0]!r})"
        )

    def announce(self, extension: Extension) -> None:
        """What an extension says of itself has changed: offer it as it is now. Extensions call it."""
        self.catalog.extension_filters[extension.id] = extension.admits
        self.catalog.extensions[extension.id] = extension.settings
        for capability in extension.capabilities:
            self.catalog.offer(capability)
        self._methods.add(extension)

    def _listen(self, method: str, listener: NotificationListener) -> None:
        self._listeners[method] = listener if self.lifespan is None else self.lifespan.guard(listener)

    def problems(self) -> list[Problem]:
        """What would not work for clients, errors first; [] if all is well. Builds every schema on the way."""
        from mcpd.server.checks import find_problems

        return find_problems(self.catalog, self.extensions.values())

    # -- serving -----------------------------------------------------------------------------

    @overload
    def middleware(self, function: M, /) -> M: ...

    @overload
    def middleware(self, method: str, /, *methods: str) -> Callable[[M], M]: ...

    @collects
    def middleware(self, function: Any, /, *methods: str) -> Any:
        """Put an `async def function(request, call_next)` round handlers: `@server.middleware` round those of all
        methods, `@server.middleware("tools/call")` round those of the methods that are named; or as a call.

        It gets a `MiddlewareRequest`, and gives the result of `await call_next(request)` or one of its own. The first
        one added is the outermost. `RateLimit` and `ResultLimit` are ready to be added. Raises RegistrationError for
        what is no coroutine function, and for a method that is none.
        """
        from mcpd.handlers.middleware import check_methods, put_round

        if not isinstance(function, str):
            return put_round(self.handlers, self.catalog, function)
        named = (function, *methods)
        check_methods(self.handlers, named)
        return lambda given: put_round(self.handlers, self.catalog, given, named)

    @property
    def observers(self) -> Sequence[Observer]:
        """Who hears of connections and calls."""
        return self._observers

    def add_observer(self, observer: Observer) -> None:
        """Let one more hear what `Server(observers=[…])` hear, of connections and applications made from now on."""
        self._observers = (*self._observers, observer)

    async def open(self) -> None:
        """Start the lifespan now, for programs that embed a server; else its first call does. Safe to call twice.

        Raises ConfigurationError if it fails.
        """
        if self.lifespan is not None:
            self.lifespan.hold(self)
            await self.lifespan.open()

    async def aclose(self) -> None:
        """End the lifespan, unless a transport of ours still needs it, and wait for that. Safe to call twice."""
        if self.lifespan is not None:
            await self.lifespan.let_go(self)

    def connect(self, channel: Channel, opening: Opening = _OPENING) -> ServerConnection:
        """Serve one channel: a new session with this server's handlers. The caller starts the channel.

        `opening` says what is known of it before its first message; by default nothing, and it lasts.
        """
        hooks: Sequence[SessionHooks] = ()
        if self._observers or log.isEnabledFor(logging.DEBUG):
            from mcpd.dispatcher.observing import hooks_for

            hooks = hooks_for(self._observers, channel)
        session = Session(
            self._identity_meta,
            max_in_flight=self.max_in_flight,
            max_frame_bytes=self._max_frame_bytes,
            vocabulary=self._methods.vocabulary,
            opening=opening,
            hooks=hooks,
        )
        connection = ServerConnection(session, self.handlers, channel, self._codec_getter, self._listeners, to_builtins)
        if opening.subscribes:
            self._connections.add(connection)
            if hooks:
                connection.report_life()
        return connection

    def asgi_app(
        self,
        *,
        token: str | None = None,
        allowed_hosts: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
        identify: Identify | None = None,
        auth: Protection | None = None,
        authenticate: Authenticator | None = None,
        settings: HttpSettings | None = None,
        backplane: str | Backplane | None = None,
        metrics: bool = False,
    ) -> HttpApp:
        """This server as an ASGI application: Streamable HTTP and WebSocket, to be mounted in any ASGI server.

        Only requests for this machine's own names are served unless `allowed_hosts` names others; web pages only
        from `allowed_origins`, which also get the CORS headers. `identify` gives the user of a request, for what
        authenticates before this application: sessions are bound to it. `auth`, with the `public_url` that clients
        use, or `authenticate` goes before the server's.
        `backplane` is what processes share that serve the same clients, or its URL, as redis://HOST:PORT/0; a URL
        needs a state key that all of them have. Raises ConfigurationError for one that is wrong.
        With `metrics` it counts, and has `/metrics` and `/statusz` beside its endpoint, for who has the `token`. That
        is needed then, for where it will listen is not known here.
        Mounted below another application, which passes on no lifespan, it closes the server's lifespan on SIGTERM.
        Needs no extra. When uvicorn or hypercorn stops, streams that listen end; others may need a limit for that.
        """
        from mcpd.server.listening import host_of
        from mcpd.transports.guards import Access

        hosts, origins = (*allowed_hosts, *host_of(auth or self.authenticate)), tuple(allowed_origins)
        access = Access(
            token=token,
            hosts=hosts,
            origins=origins,
            authenticate=one_of(auth, authenticate),
            authenticate_timeout=self.authenticate_timeout,
            is_hosted=True,
        ).or_by(self.authenticate)
        if access.protection is not None:
            # What is listened on is not known here, and what a request says of it is not believed.
            known = "" if settings is None else settings.public_url
            access.protection.locate(known, is_public=True, is_guess=not known, is_hosted=True)
        self.catalog.how_to_ask = "pass auth= to asgi_app()"
        if backplane is not None:
            from mcpd.http import HttpSettings

            settings = replace(settings or HttpSettings(), backplane=backplane)
        companion = None
        if metrics:
            from mcpd.http import HttpSettings
            from mcpd.observe.embedded import Embedded

            companion = Embedded(self, access)
            settings = settings or HttpSettings()
            settings = replace(settings, routes=(*settings.routes, *companion.routes))
        app = self.http_app(access, settings, identify=identify, is_hosted=True)
        if companion is not None:
            app.companion = companion
            companion.join(app)
        return app

    def protect(self, authenticate: Authenticator | None) -> None:
        """It is asked what those may do who send requests, where it is known who they are; what serves calls this."""
        if authenticate is None:
            return
        from mcpd.transports.authentication import Protection

        protection = authenticate if isinstance(authenticate, Protection) else None
        if protection is not None:
            protection.share(self._state_keys)
        self.catalog.guard(protection=protection)

    def allow_frames(self, size: int) -> None:
        """Send messages of up to so many bytes, if that is more than 64 MiB: a transport takes as many."""
        self._max_frame_bytes = max(self._max_frame_bytes, size)

    def http_app(
        self,
        access: Access,
        settings: HttpSettings | None = None,
        *,
        bound: str = "",
        identify: Identify | None = None,
        is_hosted: bool = False,
    ) -> HttpApp:
        """`asgi_app` for whoever has an `Access` already; `bound` is the host that is listened on.

        With `is_hosted` another ASGI server runs it.
        """
        from mcpd.http import HttpApp, HttpSettings
        from mcpd.http.core import Backend
        from mcpd.server.hiding import Hiding
        from mcpd.server.shown_lists import ListDigests

        settings = settings or HttpSettings()
        self.allow_frames(settings.max_body_bytes)
        access = access.or_by(self.authenticate)
        self.protect(access.authenticate)
        hiding = Hiding(self.catalog, self.lifespan)
        backend = Backend(
            self.connect, self._mirrors, self.lifespan, self._observers, self._routes, self.identity, hiding,
            self._state_keys, self._connections, ListDigests(lambda: self.catalog),
        )  # fmt: skip
        make = HttpApp
        if is_hosted:
            from mcpd.http.hosted import HostedApp

            make = HostedApp
        return make(backend, access, settings, bound=bound, identify=identify)

    def _mirrors(self, tool: str) -> Sequence[Mirror]:
        entry = self.catalog.tools.offered(tool)
        return () if entry is None else entry.mirrors

    def _get_state_codec(self) -> RequestStateCodec:
        if self._state_codec is None:
            from mcpd.context.request_state import RequestStateCodec  # few servers ask anything of their clients

            self._state_codec = RequestStateCodec(self._state_keys.of("state") or [os.urandom(32)])
        return self._state_codec

    def connect_memory(self, ends: tuple[MemoryChannel, MemoryChannel] | None = None) -> MemoryChannel:
        """Serve an in-memory channel, and give the client's end of it; `ends` are the client's and ours, if made."""
        from mcpd.transports.memory import pair

        near, far = ends or pair()
        connection = self.connect(far, Opening(principal=far.origin().user.id))
        far.start(connection)
        if self.lifespan is not None:
            near.after_close = self.lifespan.follow(connection)
        return near

    def run(
        self, *, stdio: bool = False, ws: str | None = None, http: str | None = None, **settings: Unpack[RunOptions]
    ) -> None:
        """Serve until stopped, over stdio, WebSocket or HTTP at an address like `:8080`, or several; blocks.

        `settings` are those of `serving.Settings`, as `grace=10`, and options of extensions, which go before what the
        constructor was told; `extensions` has these by the extension's id. Where an event loop runs already, await
        `serving.serve` instead.
        Raises ConfigurationError for an address that cannot be used.
        """
        from mcpd.server.serving import run
        from mcpd.server.settings import settings_for

        run(self, settings_for(stdio=stdio, ws=ws, http=http, installed=self.extensions.values(), **settings))
