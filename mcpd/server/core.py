"""`ServerCore`: the half of `Server` that is served. It has the catalog, the extensions and the connections.

Transports, `serving` and the HTTP application use this class; the methods for authors are in `app`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Unpack

from mcpd.errors import RegistrationError
from mcpd.protocol.defaults import HEARTBEAT
from mcpd.protocol.envelope import result_meta
from mcpd.protocol.session import MAX_FRAME_BYTES, Opening, Session
from mcpd.protocol.types.base import Icon, Implementation
from mcpd.protocol.versions.table import Vocabulary, is_known_method
from mcpd.server.context.exchange import Handler
from mcpd.server.dispatcher.announcer import Announcer
from mcpd.server.dispatcher.connection import NotificationListener
from mcpd.server.extensions.base import Extension
from mcpd.server.extensions.builtin import make_extension, make_extensions
from mcpd.server.functions.results import to_builtins
from mcpd.server.handlers.methods import OpenTable, bind as bind_handlers
from mcpd.server.registry.catalog import Catalog
from .dispatcher import ServerConnection
from .metadata import checked_seconds, identity_of, one_authenticator, state_keys_of

if TYPE_CHECKING:
    from mcpd.protocol.channel import Channel
    from mcpd.protocol.observer import Observer
    from mcpd.protocol.session import SessionHooks
    from mcpd.protocol.state_keys import StateKeys
    from mcpd.protocol.wire.headers import Mirror
    from mcpd.server.backplane.base import ChangeBus
    from mcpd.server.context.request_state import RequestStateCodec
    from mcpd.server.extensions.events.settings import Events
    from mcpd.server.extensions.options import BuiltInOptions
    from mcpd.server.http.core import Identify
    from mcpd.server.registry.caching import CacheableMethod, CacheHint
    from mcpd.transports.authentication import Authenticator, Protection
    from mcpd.transports.guards import Access
    from mcpd.transports.memory import MemoryChannel
    from mcpd.transports.routes import Route
    from .http import HttpApp, HttpSettings
    from .lifespan import Lifespan
    from .settings import Attach

log = logging.getLogger("mcpd")

_OPENING = Opening()


class ServerCore:
    """What transports need of a server: connections with its handlers, and settings for all of them."""

    _state_codec: RequestStateCodec | None = None  # made when it is needed

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
        lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
        observers: Iterable[Observer] = (),
        auth: Protection | None = None,
        authenticate: Authenticator | None = None,
        authenticate_timeout: float = 10.0,
        change_bus: ChangeBus | None = None,
        attach: Attach | None = None,
        events: Events | None = None,
        **extension_options: Unpack[BuiltInOptions],
    ) -> None:
        if page_size < 1 or max_in_flight < 1 or not authenticate_timeout > 0:
            raise ValueError("page_size and max_in_flight must be at least 1, and authenticate_timeout more than 0")
        self.identity = identity_of(
            name, instructions, icons, version=version, title=title, description=description, website_url=website_url
        )
        self.authenticate = one_authenticator(auth, authenticate)
        self.authenticate_timeout, self.max_in_flight, self.attach = authenticate_timeout, max_in_flight, attach
        self._event_settings = events
        self.heartbeat, self._max_frame_bytes = HEARTBEAT, MAX_FRAME_BYTES
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
        self._codec_getter = self.state_codec  # one bound method for all connections
        self._observers = tuple(observers)
        self._roots_functions: list[Callable[..., Any]] = []
        self._routes: list[Route] = []
        self.lifespan: Lifespan | None = None

        if lifespan is not None:
            self._use_lifespan(lifespan)
        self.protect(self.authenticate)
        self.catalog.on_change = self._connections.changed
        self.catalog.need = self.need
        self._identity_meta = result_meta(self.identity)
        for extension in (*make_extensions(extension_options), *extensions):
            self.add_extension(extension)

    def _put_hints(self, cache: CacheHint | Mapping[CacheableMethod, CacheHint] | None) -> None:
        if cache is not None:
            from mcpd.server.registry.caching import checked_hints, put_hints

            put_hints(self.handlers.wrap, self.catalog, checked_hints(cache, f"server {self.name!r}, cache"))

    @property
    def name(self) -> str:
        """The server's name, as clients see it."""
        return self.identity.name

    @property
    def state_keys(self) -> StateKeys:
        """The secret keys that all processes of this service share; none if nobody gave any."""
        return self._state_keys

    def each_connection(self, step: Callable[[ServerConnection], object]) -> None:
        """Call a function with each connection that lasts, on the thread of its loop."""
        self._connections.for_each(step)

    # -- extensions --------------------------------------------------------------------------

    def add_extension(self, extension: Extension) -> None:
        """Add an extension object. Raises RegistrationError if the server has an extension with this id."""
        if extension.id in self.extensions:
            raise RegistrationError(f"the server already has an extension {extension.id!r}")
        self.extensions[extension.id] = extension
        extension.bind(self)

    def need(self, id: str) -> Extension:
        """Return a built-in extension, which is added now if the server does not have it yet."""
        if id not in self.extensions:
            self.add_extension(make_extension(id))
        return self.extensions[id]

    def announce(self, extension: Extension) -> None:
        """Offer an extension as it is now. Extensions call this when their settings or methods have changed."""
        self.catalog.extension_filters[extension.id] = extension.admits
        self.catalog.extensions[extension.id] = extension.settings
        for capability in extension.capabilities:
            self.catalog.offer(capability)
        self._methods.add(extension)

    def answer_others(self, handler: Callable[[str], Handler]) -> None:
        """Let `handler(method)` answer requests whose method nobody has declared. Call it before the first client."""
        handlers = OpenTable(handler)
        handlers.adopt(self.handlers)
        self.handlers = handlers
        self._methods.vocabulary.answers_others = True

    def identify(self, identity: Implementation) -> None:
        """Have another name and version from now on, for connections that are opened later."""
        if identity != self.identity:
            self.identity = self.catalog.identity = identity
            self._identity_meta = result_meta(identity)

    def _listen(self, method: str, listener: NotificationListener) -> None:
        self._listeners[method] = listener if self.lifespan is None else self.lifespan.guard(listener)

    # -- observers and the lifespan ----------------------------------------------------------

    @property
    def observers(self) -> Sequence[Observer]:
        """The observers of connections and calls."""
        return self._observers

    def add_observer(self, observer: Observer) -> None:
        """Add an observer. It sees the connections and applications that are made from now on."""
        self._observers = (*self._observers, observer)

    def _use_lifespan(self, function: Callable[[Any], AbstractAsyncContextManager[Any]]) -> Lifespan:
        from .lifespan import Lifespan

        self.catalog.lifespan = self.lifespan = own = Lifespan(function, self)
        self.handlers.wrap(lambda _, handler: own.guard(handler))
        return own

    def at_end(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call a coroutine function when the server's lifespan ends, for sources that keep connections."""
        lifespan = self.lifespan or self._use_lifespan(lambda _: nullcontext())
        lifespan.closing.append(close)

    async def open(self) -> None:
        """Start the lifespan now, for programs that embed a server. Otherwise the first call starts it.

        Safe to call twice. Raises ConfigurationError if the lifespan fails.
        """
        if self.lifespan is not None:
            self.lifespan.hold(self)
            await self.lifespan.open()

    async def aclose(self) -> None:
        """End the lifespan and wait for its end, unless a transport still uses it; end mounted servers.

        Safe to call twice.
        """
        for extension in self.extensions.values():
            await extension.aclose()
        if self.lifespan is not None:
            await self.lifespan.release(self)

    # -- connections -------------------------------------------------------------------------

    def connect(self, channel: Channel, opening: Opening = _OPENING) -> ServerConnection:
        """Return a new connection for a channel, with this server's handlers. The caller starts the channel.

        `opening` has what is known before the first message; by default nothing is, and the connection lasts.
        """
        hooks: Sequence[SessionHooks] = ()
        if self._observers or log.isEnabledFor(logging.DEBUG):
            from mcpd.server.dispatcher.observing import hooks_for

            hooks = hooks_for(self._observers, channel)
        session = Session(
            self._identity_meta,
            max_in_flight=self.max_in_flight,
            max_frame_bytes=self._max_frame_bytes,
            vocabulary=self._methods.vocabulary,
            opening=opening,
            hooks=hooks,
        )
        connection = ServerConnection(
            session, self.handlers, channel, self._codec_getter, self._listeners, to_builtins, self.heartbeat
        )
        if hooks:
            connection.frame_hooks = [one for one in hooks if one.observes_frames]
        if opening.subscribes:
            self._connections.add(connection)
            if hooks:
                connection.report_life()
        return connection

    def connect_memory(self, ends: tuple[MemoryChannel, MemoryChannel] | None = None) -> MemoryChannel:
        """Serve an in-memory channel and return the client's end. `ends` are the client's and the server's end."""
        from mcpd.transports.memory import pair

        near, far = ends or pair()
        connection = self.connect(far, Opening(principal=far.origin().user.id))
        far.start(connection)
        if self.lifespan is not None:
            near.after_close = self.lifespan.follow(connection)
        return near

    def resource_updated(self, uri: str) -> None:
        """Notify the subscribers of a resource that its content has changed. Safe to call from any thread."""
        self._connections.updated(uri)

    def protect(self, authenticate: Authenticator | None) -> None:
        """Check the scopes of authenticated users from now on. Callers that serve pass their authenticator."""
        if authenticate is None:
            return
        from mcpd.transports.authentication import Protection

        protection = authenticate if isinstance(authenticate, Protection) else None
        if protection is not None:
            protection.share(self._state_keys)
        self.catalog.guard(protection=protection)

    def allow_frames(self, size: int) -> None:
        """Send messages of up to `size` bytes, if that is more than 64 MiB and a transport accepts as many."""
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
        """Return the ASGI application for callers that have an `Access`. Programs use `asgi_app`.

        `bound` is the host that is listened on. `is_hosted` means that another ASGI server runs the application.
        """
        from .http import HttpApp, HttpSettings
        from .http_backend import Backend, Hiding, ListDigests

        settings = settings or HttpSettings()
        self.allow_frames(settings.max_body_bytes)
        access = access.or_by(self.authenticate)
        self.protect(access.authenticate)
        hiding = Hiding(self.catalog, self.lifespan)
        backend = Backend(
            self.connect, self._mirrors, self.lifespan, self._observers, self._routes, self.identity, hiding,
            self._state_keys, self._connections, ListDigests(lambda: self.catalog),
            lambda: self.extensions.values(),
        )  # fmt: skip
        make = HttpApp
        if is_hosted:
            from mcpd.server.http.hosted import HostedApp

            make = HostedApp
        return make(backend, access, settings, bound=bound, identify=identify)

    def _mirrors(self, tool: str) -> Sequence[Mirror]:
        entry = self.catalog.tools.find_enabled(tool)
        return () if entry is None else entry.mirrors

    def state_codec(self) -> RequestStateCodec:
        """Return the codec of sealed values, made when it is first needed."""
        if self._state_codec is None:
            from mcpd.server.context.request_state import RequestStateCodec  # few servers ask anything of their clients

            self._state_codec = RequestStateCodec(self._state_keys.of("state") or [os.urandom(32)])
        return self._state_codec


class ExtensionMethods:
    """The methods that extensions add to a server: `serve` registers a handler, `listen` a notification listener."""

    def __init__(
        self, serve: Callable[[str, Handler], None], listen: Callable[[str, NotificationListener], None]
    ) -> None:
        self.vocabulary = Vocabulary()
        self._serve = serve
        self._listen = listen
        self._owners: dict[str, Extension] = {}

    def adopt(self, other: ExtensionMethods) -> None:
        """Have the methods of another object, now and later."""
        self.vocabulary.adopt(other.vocabulary)
        self._serve, self._listen, self._owners = other._serve, other._listen, other._owners

    def add(self, extension: Extension) -> None:
        """Serve the methods that an extension has declared so far.

        Raises RegistrationError for a method that belongs to the protocol or to another extension.
        """
        for name, method in extension.requests.items():
            if self._is_new(name, extension):
                self.vocabulary.add_request(name, method.params, method.versions, method.named)
                self._serve(name, extension.handler(name, method))
        for name, method in extension.notifications.items():
            if self._is_new(name, extension):
                self.vocabulary.add_notification(name, method.params, method.versions)
                self._listen(name, extension.listener(method))
        for name, versions in extension.server_notifications.items():
            self.vocabulary.add_server_notification(name, versions, extension.admits)

    def _is_new(self, name: str, extension: Extension) -> bool:
        owner = self._owners.setdefault(name, extension)
        if is_known_method(name) or owner is not extension:
            raise RegistrationError(f"method {name!r} belongs to the protocol or to another extension")
        return name not in self.vocabulary
