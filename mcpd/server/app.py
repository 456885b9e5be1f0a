"""`Server`: registration of tools, resources and apps, and the connection of a channel to them.

Composition only: functions become tools in `registry`, methods are served in `handlers`, transports
are opened in `serving`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, NewType, TypeVar, Unpack, overload

from msgspec import Raw
from msgspec.json import encode

from ..channel import Channel
from ..dispatcher import ServerConnection
from ..dispatcher.connection import NotificationListener
from ..dispatcher.subscriptions import Announcer
from ..errors import RegistrationError
from ..extensions.base import Extension
from ..extensions.ui.api import AppsMethods
from ..extensions.ui.constants import AppsMode
from ..extensions.ui.extension import AppsExtension
from ..handlers.table import bind as bind_handlers
from ..registry.catalog import Catalog
from ..registry.completion import Completer
from ..registry.msgspec_hooks import to_builtins
from ..registry.resources import FunctionTemplate
from ..session import MAX_FRAME_BYTES, Opening, Session
from ..transports.memory import MemoryChannel
from ..types.base import META, Icon, Params
from ..wire.mirrors import Mirror
from .entries import prompt_entry, resource_entry, text_entry, tool_entry
from .extension_methods import ExtensionMethods
from .metadata import check_options, decorate, identity_of, state_key_of

if TYPE_CHECKING:
    from ..backplane.base import ChangeBus
    from ..context.request_state import RequestStateCodec
    from ..handlers.middleware import Middleware
    from ..http import HttpApp, HttpSettings
    from ..http.core import Identify
    from ..observer import Observer
    from ..registry.entries import Entries
    from ..registry.options import Described, DescribedResource
    from ..registry.problems import Problem
    from ..transports.authentication import Authenticator
    from ..transports.guards import Access
    from .lifespan import Lifespan
    from .options import RunOptions, ToolOptions
    from .roots import RootsWatchers
else:
    # For whoever evaluates annotations (`inspect.signature`): the real ones would cost every start-up.
    for _name in ("Access", "Authenticator", "ChangeBus", "Entries", "HttpApp", "HttpSettings", "Identify",
                  "Observer", "Problem"):  # fmt: skip
        globals()[_name] = NewType(_name, object)
    for _name in ("Described", "DescribedResource", "RunOptions", "ToolOptions"):
        globals()[_name] = NewType(_name, dict)

__all__ = ["Server"]

log = logging.getLogger("mcpd")

_OPENING = Opening()

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="Middleware")


class Server(AppsMethods):
    """An MCP server: register tools and resources with its decorators, then serve it.

    `apps` says who gets MCP Apps: clients that offer it (`auto`), all (`always`), none (`never`); with
    `strict_model_list` tools that are for Views only are in no list, though clients with Apps can call them.
    `page_size` is the length of one page of a list; `max_in_flight` how many requests of one connection
    are worked on at once, more are refused. `state_key` (16 bytes or more; MCPD_STATE_KEY in the environment)
    seals what clients carry between the rounds of one request; processes that serve the same clients share it,
    one alone makes its own. `show_errors` lets the texts of all exceptions reach the client and its model; without it
    those of ToolError and its like do, and of others the client learns only that they happened. `extensions` are
    those of this server beside MCP Apps. `lifespan`, a function of the server that gives an async context manager, is
    entered once per process before the first call, and left after the last; its value is `ctx.lifespan`.
    `observers` hear of connections and calls. `authenticate(headers)` (or `async`) gives a `Principal` or `Refusal`
    within `authenticate_timeout` seconds. Servers that share a `change_bus` tell their clients of each other's changes.
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
        apps: AppsMode = "auto",
        strict_model_list: bool = False,
        page_size: int = 1000,
        max_in_flight: int = 1024,
        state_key: bytes | str | None = None,
        show_errors: bool = False,
        extensions: Iterable[Extension] = (),
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None = None,
        observers: Iterable[Observer] = (),
        authenticate: Authenticator | None = None,
        authenticate_timeout: float = 10.0,
        change_bus: ChangeBus | None = None,
    ) -> None:
        if page_size < 1 or max_in_flight < 1 or not authenticate_timeout > 0:
            raise ValueError("page_size and max_in_flight are at least 1, and authenticate_timeout is more than 0")
        self.identity = identity_of(
            name, instructions, icons, version=version, title=title, description=description, website_url=website_url
        )
        self.authenticate = authenticate
        self.authenticate_timeout = authenticate_timeout
        self.max_in_flight = max_in_flight
        self._max_frame_bytes = MAX_FRAME_BYTES
        self.catalog = Catalog(self.identity, instructions, page_size)
        self.catalog.shows_errors = show_errors
        self.handlers = bind_handlers(self.catalog)
        self.extensions: dict[str, Extension] = {}
        self._listeners: dict[str, NotificationListener] = {}
        self._methods = ExtensionMethods(self.handlers.put, self._listen)
        self._connections = Announcer(change_bus)
        self._state_key = state_key_of(state_key)
        self._state_codec: RequestStateCodec | None = None
        self._observers = tuple(observers)
        self._roots_watchers: RootsWatchers | None = None
        self.lifespan: Lifespan | None = None
        if lifespan is not None:
            from .lifespan import guarded

            self.lifespan = guarded(lifespan, self, self.handlers)
        self.catalog.on_change = self._connections.changed
        self._identity_meta = Raw(encode({f"{META}serverInfo": self.identity}))
        for extension in (AppsExtension(apps, strict_list=strict_model_list), *extensions):
            self.add_extension(extension)

    @property
    def name(self) -> str:
        """The server's name, as clients see it."""
        return self.identity.name

    # -- tools -------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /, **options: Unpack[ToolOptions]) -> F: ...

    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a tool, as `@server.tool` or `@server.tool(name=…, …)`.

        The signature gives the input schema, the return annotation the output schema, the docstring the
        description; `name`, `title`, `description`, `icons` and `meta` say it otherwise. `annotations` are hints
        like {"readOnlyHint": True}. Plain functions run in a thread.
        `extensions` is what other extensions take, by their id.
        With `input_schema`, a JSON Schema, the function takes one dict of arguments that fit it; `output_schema` is
        one for what it returns. Both need jsonschema-rs: pip install "mcpd-server[schema]".

        For clients with MCP Apps: `ui` is the View that shows the result, by its `ui://` URI or the name that
        `app` was given; `ui_when`, a function of a Context or of nothing, says for each request whether the tool
        has it now, and works as text otherwise; `visibility=["app"]` keeps the tool from the model.
        Raises RegistrationError for a signature that cannot be served, or a name that is taken.
        Spec: 2026-07-28 server/tools; MCP Apps 2026-01-26, resource discovery.
        """
        return decorate("tool", function, partial(self.add_tool, **options))

    def add_tool(self, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        """`tool` without the decorator."""
        installed = self.extensions.values()
        check_options("tool", options, [name for extension in installed for name in extension.tool_options])
        self.catalog.tools.add(tool_entry(self.catalog, installed, function, options))

    def remove_tool(self, name: str) -> bool:
        """Take a tool away; False if there is none of that name."""
        return self.catalog.tools.remove(name)

    def tools_changed(self) -> None:
        """Tell clients that the list of tools is another one now, as when what `ui_when` looks at has changed."""
        self.catalog.tools.changed()

    # -- resources ---------------------------------------------------------------------------

    def resource(self, uri: str, **options: Unpack[DescribedResource]) -> Callable[[F], F]:
        """Register a function as a resource, or with `{variables}` in the URI as a template of resources.

        The function returns str, bytes, or data that become JSON; the variables of a template are its
        arguments. FileNotFoundError, or `errors.ResourceNotFound`, says that there is none. Options are `name`,
        `title`, `description`, `mime_type`, `size`, `annotations`, `icons` and `meta`.
        Under `ui://` it is a View whose HTML the function makes, and only for clients with MCP Apps.
        Raises RegistrationError for a URI or signature that cannot be served.
        Spec: 2026-07-28 server/resources; RFC 6570 levels 1 to 3.
        """
        if not isinstance(uri, str):
            raise RegistrationError('resource: its URI comes first, as in @server.resource("notes://today")')
        check_options("resource", options)

        def register(function: F) -> F:
            entry = resource_entry(self.extensions.values(), uri, function, options)
            if isinstance(entry, FunctionTemplate):
                self.catalog.templates.add(entry)
            else:
                self.catalog.resources.add(entry)
            self._resource_changed(uri, is_removed=False)
            return function

        return register

    def add_text(self, uri: str, text: str | bytes, *, name: str, mime_type: str | None = None) -> None:
        """Register a resource whose content is known already, text or bytes."""
        self.catalog.resources.add(text_entry(self.extensions.values(), uri, text, name, mime_type))
        self._resource_changed(uri, is_removed=False)

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch a resource that it holds something else now. Safe from any thread."""
        self._connections.updated(uri)

    def remove_resource(self, uri: str) -> bool:
        """Take a resource or template away, by its URI or URI template; False if there is none."""
        removed = self.catalog.resources.remove(uri) or self.catalog.templates.remove(uri)
        if removed:
            self._resource_changed(uri, is_removed=True)
        return removed

    def _resource_changed(self, uri: str, *, is_removed: bool) -> None:
        for extension in self.extensions.values():
            extension.resource_changed(uri, is_removed=is_removed)

    # -- sources -----------------------------------------------------------------------------

    def replace(self, owner: str, entries: Entries) -> None:
        """Let `entries` be all that `owner` offers from now on, beside what the decorators and other owners have.

        For what comes from elsewhere than functions: folders, other servers. Clients hear once of each kind of list
        that is another one now, and those that watch a resource whose entry is another one hear that it was updated.
        Raises RegistrationError, and changes nothing, for a name or URI that somebody else has. Safe from any thread.
        """
        for uri, is_removed in self.catalog.replace(owner, entries).items():
            self._resource_changed(uri, is_removed=is_removed)
            if not is_removed:
                self.resource_updated(uri)

    # -- prompts -----------------------------------------------------------------------------

    @overload
    def prompt(self, function: F, /, **options: Unpack[Described]) -> F: ...

    @overload
    def prompt(self, **options: Unpack[Described]) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a prompt, as `@server.prompt` or `@server.prompt(name=…, …)`.

        Its parameters are the arguments (values come as strings and are converted); it returns text, a content
        block, a ("user" or "assistant", content) pair, a PromptMessage, or a list of these. Options are `name`,
        `title`, `description`, `icons` and `meta`.
        Raises RegistrationError. Spec: 2026-07-28 server/prompts.
        """
        return decorate("prompt", function, partial(self.add_prompt, **options))

    def add_prompt(self, function: Callable[..., Any], **options: Unpack[Described]) -> None:
        """`prompt` without the decorator."""
        check_options("prompt", options)
        self.catalog.prompts.add(prompt_entry(function, options))

    def remove_prompt(self, name: str) -> bool:
        """Take a prompt away; False if there is none of that name."""
        return self.catalog.prompts.remove(name)

    def completion(self, argument: str, *, prompt: str | None = None, template: str | None = None) -> Callable[[F], F]:
        """Register what completes one argument of a prompt, or one variable of a resource template.

        The function takes the text so far, and if it wants a dict of the other arguments; it gives candidates,
        which are matched, ranked and cut to 100. Arguments with a fixed set of values complete by themselves.
        """
        if (prompt is None) == (template is None):
            raise RegistrationError("completion: name either a prompt= or a template=")

        def register(function: F) -> F:
            self.catalog.completers[prompt or template or "", argument] = Completer(function)
            self.catalog.offer("completions")
            return function

        return register

    # -- the client's roots ------------------------------------------------------------------

    def roots_changed(self, function: F) -> F:
        """Register what runs when a client says that its roots changed: `@server.roots_changed`.

        The function takes a Context that belongs to no request; it can ask for the roots with it. Clients of
        2026-07-28 never say so. Spec: 2025-11-25 client/roots.
        """
        if self._roots_watchers is None:
            from .roots import RootsWatchers

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
        from .checks import find_problems

        return find_problems(self.catalog, self.extensions.values())

    # -- serving -----------------------------------------------------------------------------

    def middleware(self, function: M) -> M:
        """Put an `async def function(request, call_next)` round all handlers: `@server.middleware`, or as a call.

        It gets a `MiddlewareRequest`, and gives the result of `await call_next(request)` or one of its own. The first
        one added is the outermost. Raises RegistrationError for what is no coroutine function.
        """
        from ..handlers.middleware import put_round

        return put_round(self.handlers, function)

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
        make_session: Any = Session
        if self._observers or log.isEnabledFor(logging.DEBUG):
            from ..dispatcher.observed import ObservedSession

            make_session = partial(ObservedSession, self._observers)
        session = make_session(
            self._identity_meta,
            max_in_flight=self.max_in_flight,
            max_frame_bytes=self._max_frame_bytes,
            vocabulary=self._methods.vocabulary,
            opening=opening,
        )
        connection = ServerConnection(
            session, self.handlers, channel, self._get_state_codec, self._listeners, to_builtins
        )
        if opening.subscribes:
            self._connections.add(connection)
            if make_session is not Session:
                session.follow(connection.ended)
        return connection

    def asgi_app(
        self,
        *,
        token: str | None = None,
        allowed_hosts: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
        identify: Identify | None = None,
        authenticate: Authenticator | None = None,
        settings: HttpSettings | None = None,
    ) -> HttpApp:
        """This server as an ASGI application: Streamable HTTP and WebSocket, to be mounted in any ASGI server.

        Only requests for this machine's own names are served unless `allowed_hosts` names others; web pages only
        from `allowed_origins`, which also get the CORS headers. `identify` gives the user of a request, for what
        authenticates before this application: sessions are bound to it. `authenticate` goes before the server's.
        Needs no extra. When uvicorn or hypercorn stops, streams that listen end; others may need a limit for that.
        """
        from ..transports.guards import Access

        hosts, origins = tuple(allowed_hosts), tuple(allowed_origins)
        access = Access(
            token=token,
            hosts=hosts,
            origins=origins,
            authenticate=authenticate,
            authenticate_timeout=self.authenticate_timeout,
        )
        app = self.http_app(access, settings, identify=identify)
        app.watch_server()
        return app

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
    ) -> HttpApp:
        """`asgi_app` for whoever has an `Access` already; `bound` is the host that is listened on."""
        from ..http import HttpApp, HttpSettings
        from ..http.core import Backend

        settings = settings or HttpSettings()
        self.allow_frames(settings.max_body_bytes)
        access = access.or_by(self.authenticate)
        backend = Backend(self.connect, self._mirrors, self.lifespan)
        return HttpApp(backend, access, settings, bound=bound, identify=identify)

    def _mirrors(self, tool: str) -> Sequence[Mirror]:
        entry = self.catalog.tools.find(tool)
        return () if entry is None else entry.mirrors

    def _get_state_codec(self) -> RequestStateCodec:
        if self._state_codec is None:
            from ..context.request_state import RequestStateCodec  # few servers ask anything of their clients

            self._state_codec = RequestStateCodec(self._state_key or os.urandom(32))
        return self._state_codec

    def connect_memory(self, ends: tuple[MemoryChannel, MemoryChannel] | None = None) -> MemoryChannel:
        """Serve an in-memory channel, and give the client's end of it; `ends` are the client's and ours, if made."""
        from ..transports.memory import pair

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

        `settings` are those of `serving.Settings`, as `grace=10`. Where an event loop runs already, await
        `serving.serve` instead.
        Raises ConfigurationError for an address that cannot be used.
        """
        from .serving import run, settings_for

        run(self, settings_for(stdio=stdio, ws=ws, http=http, **settings))
