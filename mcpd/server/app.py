"""`Server`: registration of tools, resources and apps, and the connection of a channel to them.

Composition only: functions become tools in `registry`, methods are served in `handlers`, transports
are opened in `serving`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from msgspec import Raw
from msgspec.json import encode

from ..context import Context
from ..context.core import is_failure
from ..dispatcher import Connection
from ..dispatcher.subscriptions import Subscriptions
from ..errors import ConfigurationError, RegistrationError
from ..extensions.ui.gate import UI, AppsMode, UiExtension
from ..handlers.table import bind as bind_handlers
from ..registry.catalog import Catalog, Kind
from ..registry.completion import Completer
from ..registry.foreign import to_builtins
from ..registry.resources import TemplateEntry
from ..registry.threads import run_in_thread
from ..session import Session
from ..transports.memory import MemoryChannel
from ..types.base import META, Icon
from ..types.content import TextContent
from ..types.lifecycle import Implementation
from ..wire.mirrors import Mirror
from .described import check_options, checked, icons_of
from .entries import prompt_entry, resource_entry, text_entry, tool_entry

if TYPE_CHECKING:
    from ..context.seal import Sealer
    from ..extensions.ui.apps import AppEntry, Apps
    from ..registry.problems import Problem
    from ..transports.guards import Access
    from ..transports.http import HttpApp, HttpSettings
    from ..transports.http.core import Identify
    from .options import AppOptions, Described, ResourceOptions, ToolOptions

__all__ = ["Server"]

log = logging.getLogger("mcpd")

F = TypeVar("F", bound=Callable[..., Any])


class Server:
    """An MCP server: register tools and resources with its decorators, then serve it.

    `apps` says who gets MCP Apps: clients that offer it (`auto`), all (`always`), none (`never`); with
    `strict_model_list` tools that are for Views only are in no list, though clients with Apps can call them.
    `page_size` is the length of one page of a list; `max_in_flight` how many requests of one connection
    are worked on at once, more are refused. `state_key` (16 bytes or more; MCPD_STATE_KEY in the environment)
    seals what clients carry between the rounds of one request; processes that serve the same clients share it,
    one alone makes its own.
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
    ) -> None:
        if page_size < 1 or max_in_flight < 1:
            raise ValueError("page_size and max_in_flight are at least 1")
        where = f"server {name!r}"
        self.identity = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons_of(icons, where),
        )
        checked(self.identity, where)
        if instructions is not None:
            checked(TextContent(instructions), f"{where}, instructions")
        self.max_in_flight = max_in_flight
        self.ui = UiExtension(apps)
        self._strict_model_list = strict_model_list
        self._apps: Apps | None = None
        self.catalog = Catalog(self.identity, instructions, page_size)
        self.handlers = bind_handlers(self.catalog)
        self._connections: set[Connection] = set()
        state_key = state_key or os.environ.get("MCPD_STATE_KEY", "")
        self._state_key = state_key.encode() if isinstance(state_key, str) else state_key
        if 0 < len(self._state_key) < 16:
            raise ValueError("the state key (state_key, or MCPD_STATE_KEY) needs at least 16 bytes")
        self._sealer: Sealer | None = None
        self._roots_watchers: list[Callable[..., Any]] = []
        self.catalog.on_change = self._announce_change
        self._identity_meta = Raw(encode({f"{META}serverInfo": self.identity}))

    @property
    def name(self) -> str:
        """The server's name, as clients see it."""
        return self.identity.name

    # -- tools -------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a tool, as `@server.tool` or `@server.tool(name=…, …)`.

        The signature gives the input schema, the return annotation the output schema, the docstring the
        description; `name`, `title`, `description`, `icons` and `meta` say it otherwise. `annotations` are hints
        like {"readOnlyHint": True}. Plain functions run in a thread.
        With `input_schema`, a JSON Schema, the function takes one dict of arguments that fit it; `output_schema` is
        one for what it returns. Both need the extra mcpd[schema].

        For clients with MCP Apps: `ui` is the View that shows the result, by its `ui://` URI or the name that
        `app` was given; `ui_when`, a function of a Context or of nothing, says for each request whether the tool
        has it now, and works as text otherwise; `visibility=["app"]` keeps the tool from the model.
        Raises RegistrationError for a signature that cannot be served, or a name that is taken.
        Spec: 2026-07-28 server/tools; MCP Apps 2026-01-26, resource discovery.
        """
        if function is not None:
            _refuse_text("tool", function)
            self.add_tool(function, **options)
            return function

        def register(function: F) -> F:
            self.add_tool(function, **options)
            return function

        return register

    def add_tool(self, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        """`tool` without the decorator."""
        check_options("tool", options, tool_entry)
        self.catalog.tools.add(tool_entry(self.catalog, self._use_apps, function, **options))

    def remove_tool(self, name: str) -> bool:
        """Take a tool away; False if there is none of that name."""
        return self.catalog.tools.remove(name)

    def tools_changed(self) -> None:
        """Tell clients that the list of tools is another one now, as when what `ui_when` looks at has changed."""
        self.catalog.tools.changed()

    # -- resources ---------------------------------------------------------------------------

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
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
        check_options("resource", options, resource_entry)

        def register(function: F) -> F:
            entry = resource_entry(self._use_apps, uri, function, **options)
            if isinstance(entry, TemplateEntry):
                self.catalog.templates.add(entry)
            else:
                self.catalog.resources.add(entry)
            if entry.requires is not None and self._apps is not None:
                self._apps.links_changed(uri)
            return function

        return register

    def add_text(self, uri: str, text: str | bytes, *, name: str, mime_type: str | None = None) -> None:
        """Register a resource whose content is known already, text or bytes."""
        if uri.startswith("ui://"):
            raise RegistrationError(f"{uri!r}: the HTML of a View is registered with server.app()")
        self.catalog.resources.add(text_entry(uri, text, name, mime_type))

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch a resource that it holds something else now. Safe from any thread."""
        self._announce(lambda subscriptions: subscriptions.updated(uri))

    def remove_resource(self, uri: str) -> bool:
        """Take a resource or template away, by its URI or URI template; False if there is none."""
        removed = self.catalog.resources.remove(uri) or self.catalog.templates.remove(uri)
        if removed and self._apps is not None:
            self._apps.removed(uri)
        return removed

    # -- prompts -----------------------------------------------------------------------------

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(self, **options: Unpack[Described]) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a prompt, as `@server.prompt` or `@server.prompt(name=…, …)`.

        Its parameters are the arguments (values come as strings and are converted); it returns text, a content
        block, a ("user" or "assistant", content) pair, a PromptMessage, or a list of these. Options are `name`,
        `title`, `description`, `icons` and `meta`.
        Raises RegistrationError. Spec: 2026-07-28 server/prompts.
        """
        if function is not None:
            _refuse_text("prompt", function)
            self.add_prompt(function, **options)
            return function

        def register(function: F) -> F:
            self.add_prompt(function, **options)
            return function

        return register

    def add_prompt(self, function: Callable[..., Any], **options: Unpack[Described]) -> None:
        """`prompt` without the decorator."""
        check_options("prompt", options, prompt_entry)
        self.catalog.prompts.add(prompt_entry(function, **options))

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
        self._roots_watchers.append(function)
        return function

    async def _tell_roots_changed(self, ctx: Context) -> None:
        for function in self._roots_watchers:
            try:
                if iscoroutinefunction(function):
                    await function(ctx)
                else:
                    await run_in_thread(function, ctx)
            except BaseException as error:
                if not is_failure(error):
                    raise
                log.error("%r failed, which runs when roots change", function, exc_info=error)

    # -- apps --------------------------------------------------------------------------------

    def app(self, app: str, html: str | bytes, **options: Unpack[AppOptions]) -> str:
        """Register the HTML of a View, and give its URI, for the `ui=` of tools.

        `app` is a `ui://` URI, or a name: "chart" is `ui://<name of the server>/chart`. `csp` are the origins
        it needs, as {"connectDomains": ["https://api.example.com"]}; `permissions` any of camera, microphone,
        geolocation and clipboardWrite; `prefers_border` whether the host is to draw one; `domain` an origin of its
        own, in the format of one host. `name`, `title`, `description`, `icons` and `meta` are those of any resource.
        `replace` allows for a View with that URI, whose place this one takes.

        Clients get the URI with a hash of the content, so that none shows an older one; all forms are answered.
        Raises RegistrationError for what no host could show. Spec: MCP Apps 2026-01-26, UI resource format.
        """
        apps = self._use_apps()
        uri, replaced = apps.add_html(app, html, **options)
        self._apps_replaced([replaced])
        return uri

    def add_apps(self, folder: str, namespace: str | None = None, *, replace: bool = False) -> list[str]:
        """Register every `x.html` of a folder as `ui://<namespace>/x`, with `x.json` as its metadata; gives the URIs.

        `x.json` is like {"title": …, "ui": {"csp": …, "permissions": …, "prefersBorder": …}}. What cannot be used
        is logged and left out, and `mcpd check` names it; nothing is raised.
        """
        uris, replaced = self._use_apps().add_folder(folder, namespace, replace=replace)
        self._apps_replaced(replaced)
        return uris

    def set_apps(self, mode: AppsMode | None = None, *, strict_model_list: bool | None = None) -> None:
        """Change who gets MCP Apps, and whether app-only tools are in no list; before serving. None is no change."""
        if mode is not None:
            self.ui = UiExtension(mode)
        if strict_model_list is not None:
            self._strict_model_list = strict_model_list
        if self._apps is not None:
            self._apps.use(self.ui, strict_list=self._strict_model_list)

    def has_apps(self, ctx: Context) -> bool:
        """Whether the client of this request gets MCP Apps, for tools that do more for a View."""
        return UI in self.catalog.audience(ctx)

    def problems(self) -> list[Problem]:
        """What would not work for clients, errors first; [] if all is well. Builds every schema on the way."""
        from .checks import find_problems

        return find_problems(self.catalog, self._apps)

    def _use_apps(self) -> Apps:
        """What is known about Apps; servers without any never load it."""
        if self._apps is None:
            from ..extensions.ui.apps import Apps

            self._apps = Apps(self.catalog, self.name)
            self._apps.use(self.ui, strict_list=self._strict_model_list)
        return self._apps

    def _apps_replaced(self, replaced: Iterable[AppEntry | None]) -> None:
        for entry in replaced:
            if entry is not None:
                self.resource_updated(entry.key)
                self.resource_updated(entry.versioned_uri)

    # -- serving -----------------------------------------------------------------------------

    def connect(self, channel: Any, *, hears_changes: bool = True) -> Connection:
        """Serve one channel: a new session with this server's handlers. The caller starts the channel.

        `hears_changes` is false for a connection that ends with its one request: it need not be told of changes.
        """
        session = Session(self._identity_meta, max_in_flight=self.max_in_flight)
        connection = Connection(session, self.handlers, channel, self._get_sealer)
        connection.on_roots_changed = self._tell_roots_changed
        connection.to_builtins = to_builtins
        if hears_changes:
            self._connections.add(connection)
            connection.ended.add_done_callback(lambda _: self._connections.discard(connection))
        return connection

    def asgi_app(
        self,
        *,
        token: str | None = None,
        allowed_hosts: Sequence[str] = (),
        allowed_origins: Sequence[str] = (),
        identify: Identify | None = None,
        settings: HttpSettings | None = None,
    ) -> HttpApp:
        """This server as an ASGI application: Streamable HTTP and WebSocket, to be mounted in any ASGI server.

        Only requests for this machine's own names are served unless `allowed_hosts` names others; web pages only
        from `allowed_origins`, which also get the CORS headers. `identify` gives the user of a request, for what
        authenticates before this application: sessions are bound to it. Needs no extra to be installed.
        """
        from ..transports.guards import Access

        access = Access(token=token, hosts=tuple(allowed_hosts), origins=tuple(allowed_origins))
        return self.http_app(access, settings, identify=identify)

    def http_app(
        self,
        access: Access,
        settings: HttpSettings | None = None,
        *,
        bound: str = "",
        identify: Identify | None = None,
    ) -> HttpApp:
        """`asgi_app` for whoever has an `Access` already; `bound` is the host that is listened on."""
        from ..transports.http import HttpApp, HttpSettings

        return HttpApp(self.connect, self._mirrors, access, settings or HttpSettings(), bound=bound, identify=identify)

    def _mirrors(self, tool: str) -> Sequence[Mirror]:
        entry = self.catalog.tools.find(tool)
        return () if entry is None else entry.mirrors

    def _announce_change(self, kind: Kind) -> None:
        self._announce(lambda subscriptions: subscriptions.changed(kind))

    def _announce(self, say: Callable[[Subscriptions], None]) -> None:
        """Say something to every connection, each on its own event loop's thread."""
        for connection in list(self._connections):
            try:
                connection.loop.call_soon_threadsafe(say, connection.subscriptions)
            except RuntimeError:
                pass  # its loop is closed, and so is the connection

    def _get_sealer(self) -> Sealer:
        if self._sealer is None:
            from ..context.seal import Sealer  # few servers ask anything of their clients

            self._sealer = Sealer(self._state_key or os.urandom(32))
        return self._sealer

    def connect_memory(self) -> MemoryChannel:
        """Serve an in-memory channel, and give the client's end of it."""
        from ..transports.memory import pair

        near, far = pair()
        far.start(self.connect(far))
        return near

    def run(self, *, stdio: bool = False, ws: str | None = None, http: str | None = None, **settings: Any) -> None:
        """Serve until stopped, over stdio, WebSocket or HTTP at an address like `:8080`, or several; blocks.

        `settings` are those of `serving.Settings`. Where an event loop runs already, await `serving.serve` instead.
        Raises ConfigurationError for an address that cannot be used.
        """
        from .serving import Settings, run

        unknown = [name for name in settings if name not in Settings.__struct_fields__]
        if unknown:
            ways = 'say how to serve with stdio=True, ws=":8080" or http=":8080"'
            others = ", ".join(name for name in Settings.__struct_fields__ if name not in ("stdio", "ws", "http"))
            raise TypeError(f"run() has no option {unknown[0]}; {ways}; the others are {others}")
        for name, address in (("ws", ws), ("http", http)):
            if address is not None and not isinstance(address, str):
                raise ConfigurationError(f'{name}={address!r} is no address; write it as text, for example ":8080"')
        run(self, Settings(stdio=stdio or (ws is None and http is None), ws=ws, http=http, **settings))


def _refuse_text(decorator: str, given: object) -> None:
    if isinstance(given, str):
        raise RegistrationError(f"{decorator}: a name goes in name=, as in @server.{decorator}(name={given!r})")
