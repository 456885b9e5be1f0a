"""`Server`: registration of tools, resources and apps, and the connection of a channel to them.

Composition only: functions become tools in `registry`, methods are served in `handlers`, transports
are opened in `serving`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from msgspec import Raw, convert
from msgspec.json import decode, encode

from ..context import Context
from ..dispatcher import Connection
from ..dispatcher.subscriptions import Subscriptions
from ..errors import McpdError, RegistrationError
from ..extensions.ui.gate import MIME_TYPE, UI, AppsMode, UiExtension
from ..handlers.table import bind as bind_handlers
from ..registry.catalog import Catalog, Kind
from ..registry.completion import Completer
from ..registry.content import encode_data, is_content
from ..registry.prompts import PromptEntry
from ..registry.resources import ResourceEntry, TemplateEntry
from ..registry.signature import bind
from ..registry.threads import run_in_thread
from ..registry.tools import ToolEntry
from ..registry.uri_template import UriTemplate
from ..session import Session
from ..transports.memory import MemoryChannel
from ..types.base import META, Icon
from ..types.content import Annotations
from ..types.lifecycle import Implementation
from ..types.prompts import Prompt
from ..types.resources import Resource, ResourceTemplate
from ..types.tools import Tool, ToolAnnotations
from ..wire.mirrors import Mirror, mirrors

if TYPE_CHECKING:
    from ..context.seal import Sealer
    from ..transports.guards import Access
    from ..transports.http import HttpApp, HttpSettings
    from ..transports.http.core import Identify

__all__ = ["Server"]

log = logging.getLogger("mcpd")

F = TypeVar("F", bound=Callable[..., Any])
Visibility = Sequence[Literal["model", "app"]]


class Server:
    """An MCP server: register tools and resources with its decorators, then serve it.

    `apps` says who gets MCP Apps: clients that offer it (`auto`), all (`always`), none (`never`).
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
        page_size: int = 1000,
        max_in_flight: int = 1024,
        state_key: bytes | str | None = None,
    ) -> None:
        if page_size < 1 or max_in_flight < 1:
            raise ValueError("page_size and max_in_flight are at least 1")
        self.identity = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=_icons(icons),
        )
        self.max_in_flight = max_in_flight
        self.ui = UiExtension(apps)
        self.catalog = Catalog(self.identity, instructions, page_size)
        self.handlers = bind_handlers(self.catalog)
        self._connections: set[Connection] = set()
        self._state_key = state_key.encode() if isinstance(state_key, str) else state_key
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
    def tool(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon | Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        ui: str | None = None,
        visibility: Visibility | None = None,
    ) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a tool, as `@server.tool` or `@server.tool(name=…, …)`.

        The signature gives the input schema, the return annotation the output schema, the docstring the
        description. `annotations` are hints like {"readOnlyHint": True}; `ui` is the `ui://` URI of the View that
        shows the result; `visibility=["app"]` keeps the tool from the model. Plain functions run in a thread.
        With `input_schema`, a JSON Schema, the function takes one dict of arguments that fit it; `output_schema` is
        one for what it returns. Both need the extra mcpd[schema].
        Raises RegistrationError for a signature that cannot be served, or a name that is taken.
        Spec: 2026-07-28 server/tools.
        """
        if function is not None:
            self.add_tool(function, **options)
            return function

        def register(function: F) -> F:
            self.add_tool(function, **options)
            return function

        return register

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon | Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        ui: str | None = None,
        visibility: Visibility | None = None,
    ) -> None:
        """`tool` without the decorator."""
        callee: Any = bind(function, context_type=Context, is_content=is_content)
        check_output = None
        if input_schema is not None or output_schema is not None:
            from ..registry.json_schema import JsonSchema, SchemaCallee  # needs an extra

            what = f"tool {name or callee.name!r}"
            if input_schema is not None:
                callee = SchemaCallee(function, input_schema, callee, f"{what}, input schema")
            if output_schema is not None:
                schema = JsonSchema(output_schema, f"{what}, output schema")
                check_output = lambda content: schema.problems(_as_json(content))  # noqa: E731
        tool = Tool(
            name=_checked_name(name or callee.name),
            title=title,
            description=description if description is not None else callee.description or None,
            annotations=convert(annotations, ToolAnnotations) if isinstance(annotations, Mapping) else annotations,
            icons=_icons(icons),
            input_schema={},
            output_schema=dict(output_schema) if output_schema is not None else None,
            meta=_checked_meta(meta),
        )
        extras: dict[str, Mapping[str, Any]] = {}
        requires = None
        if ui is not None or visibility is not None:
            from ..extensions.ui.meta import tool_meta  # only servers with apps need it

            extras[UI] = tool_meta(ui, visibility)
            requires = UI if visibility is not None and "model" not in visibility else None
            self._use_apps()
        self.catalog.tools.add(ToolEntry(tool, callee, extras=extras, requires=requires, check_output=check_output))

    def remove_tool(self, name: str) -> bool:
        """Take a tool away; False if there is none of that name."""
        return self.catalog.tools.remove(name)

    # -- resources ---------------------------------------------------------------------------

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon | Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> Callable[[F], F]:
        """Register a function as a resource, or with `{variables}` in the URI as a template of resources.

        The function returns str, bytes, or data that become JSON; the variables of a template are its
        arguments. FileNotFoundError, or `errors.ResourceNotFound`, says that there is none.
        Raises RegistrationError for a URI or signature that cannot be served.
        Spec: 2026-07-28 server/resources; RFC 6570 levels 1 to 3.
        """
        shared: dict[str, Any] = {
            "title": title,
            "mime_type": mime_type,
            "annotations": convert(annotations, Annotations) if isinstance(annotations, Mapping) else annotations,
            "icons": _icons(icons),
            "meta": _checked_meta(meta),
        }

        def register(function: F) -> F:
            callee = bind(function, context_type=Context)
            shared["name"] = name or callee.name
            shared["description"] = description if description is not None else callee.description
            template = UriTemplate(uri)
            if template.variables:
                _check_variables(uri, template.variables, callee.arguments.__struct_fields__)
                entry = TemplateEntry(ResourceTemplate(uri_template=uri, **shared), template, callee)
                self.catalog.templates.add(entry)
            else:
                _check_variables(uri, (), callee.arguments.__struct_fields__)
                self.catalog.resources.add(ResourceEntry(Resource(uri=_checked_uri(uri), size=size, **shared), callee))
            return function

        return register

    def add_text(self, uri: str, text: str | bytes, *, name: str, mime_type: str | None = None) -> None:
        """Register a resource whose content is known already, text or bytes."""
        data = text.encode() if isinstance(text, str) else text
        resource = Resource(uri=_checked_uri(uri), name=name, mime_type=mime_type, size=len(data))
        self.catalog.resources.add(ResourceEntry(resource, content=text))

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch a resource that it holds something else now. Safe from any thread."""
        self._announce(lambda subscriptions: subscriptions.updated(uri))

    def remove_resource(self, uri: str) -> bool:
        """Take a resource or template away, by its URI or URI template; False if there is none."""
        return self.catalog.resources.remove(uri) or self.catalog.templates.remove(uri)

    # -- prompts -----------------------------------------------------------------------------

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Iterable[Icon | Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> Callable[[F], F]: ...

    def prompt(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a prompt, as `@server.prompt` or `@server.prompt(name=…, …)`.

        Its parameters are the arguments (values come as strings and are converted); it returns text, a content
        block, a ("user" or "assistant", content) pair, a PromptMessage, or a list of these.
        Raises RegistrationError. Spec: 2026-07-28 server/prompts.
        """
        if function is not None:
            self.add_prompt(function, **options)
            return function

        def register(function: F) -> F:
            self.add_prompt(function, **options)
            return function

        return register

    def add_prompt(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Iterable[Icon | Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """`prompt` without the decorator."""
        callee = bind(function, context_type=Context)
        prompt = Prompt(
            name=name or callee.name,
            title=title,
            description=(description if description is not None else callee.description) or None,
            icons=_icons(icons),
            meta=_checked_meta(meta),
        )
        self.catalog.prompts.add(PromptEntry(prompt, callee))

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
            except (Exception, SystemExit) as error:
                log.error("%r failed, which runs when roots change", function, exc_info=error)

    # -- apps --------------------------------------------------------------------------------

    def add_apps(self, folder: str, namespace: str | None = None) -> list[str]:
        """Register every `x.html` of a folder (with `x.json` as its metadata) as `ui://<namespace>/x`.

        Gives the URIs. Only clients with MCP Apps see them.
        """
        from ..extensions.ui.assets import load_folder

        apps = load_folder(folder, namespace or self.name)
        for app in apps:
            self.app(app.uri, app.html, name=app.name, title=app.title, description=app.description, meta=app.meta)
        return [app.uri for app in apps]

    def app(
        self,
        uri: str,
        html: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        """Register the HTML of a View under a `ui://` URI. `meta` is {"ui": {csp, permissions, prefersBorder, …}}.

        Listing and content carry the same `_meta` (APP-S-10).
        """
        if not uri.startswith("ui://"):
            raise RegistrationError(f"{uri!r}: the URI of a View begins with ui://")
        checked = _checked_meta(meta)
        resource = Resource(
            uri=_checked_uri(uri),
            name=name or uri.removeprefix("ui://"),
            title=title,
            description=description,
            mime_type=MIME_TYPE,
            size=len(html.encode()),
            meta=checked,
        )
        self.catalog.resources.add(ResourceEntry(resource, content=html, requires=UI, content_meta=checked))
        self._use_apps()

    def set_apps(self, mode: AppsMode) -> None:
        """Change who gets MCP Apps; before serving."""
        self.ui = UiExtension(mode)
        if UI in self.catalog.gates:
            self._use_apps()

    def _use_apps(self) -> None:
        self.catalog.gates[UI] = self.ui.admits
        self.catalog.extensions[UI] = self.ui.settings()

    def problems(self) -> list[str]:
        """What would not work for clients, a line each; [] if all is well. Builds every schema on the way."""
        found = []
        for entry in self.catalog.tools:
            try:
                mirrors(entry.tool.input_schema or entry.callee.input_schema)
                entry.listed(frozenset((UI,)))
            except McpdError as error:
                found.append(f"tool {entry.key}: {error}")
            uri = entry.extras.get(UI, {}).get("ui/resourceUri")
            if uri is not None and uri not in self.catalog.resources:
                found.append(f"tool {entry.key}: its View {uri} is not registered")
        return found

    # -- serving -----------------------------------------------------------------------------

    def connect(self, channel: Any, *, hears_changes: bool = True) -> Connection:
        """Serve one channel: a new session with this server's handlers. The caller starts the channel.

        `hears_changes` is false for a connection that ends with its one request: it need not be told of changes.
        """
        session = Session(self._identity_meta, max_in_flight=self.max_in_flight)
        connection = Connection(session, self.handlers, channel, self._get_sealer)
        connection.on_roots_changed = self._tell_roots_changed
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

        return HttpApp(
            self.connect, self._mirrors, access, settings or HttpSettings(), bound=bound, identify=identify
        )

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

            key = self._state_key or os.environ.get("MCPD_STATE_KEY", "").encode() or os.urandom(32)
            self._sealer = Sealer(key)
        return self._sealer

    def connect_memory(self) -> MemoryChannel:
        """Serve an in-memory channel, and give the client's end of it."""
        from ..transports.memory import pair

        near, far = pair()
        far.start(self.connect(far))
        return near

    def run(self, *, stdio: bool = False, ws: str | None = None, http: str | None = None, **settings: Any) -> None:
        """Serve until stopped, over stdio, WebSocket or HTTP at an address like `:8080`, or several; blocks.

        `settings` are those of `serving.Settings`.
        """
        from .serving import Settings, run

        run(self, Settings(stdio=stdio or (ws is None and http is None), ws=ws, http=http, **settings))


def _as_json(content: Any) -> Any:
    """Structured content as plain JSON values, for a validator."""
    return decode(content if isinstance(content, Raw) else encode_data(content))


def _icons(icons: Iterable[Icon | Mapping[str, Any]]) -> list[Icon] | None:
    return [convert(icon, Icon) if isinstance(icon, Mapping) else icon for icon in icons] or None


def _checked_name(name: str) -> str:
    """Spec: 2025-11-25 server/tools, tool names: 1 to 128 of A-Z a-z 0-9 _ - . and nothing else."""
    if not 1 <= len(name) <= 128 or not all(c.isascii() and (c.isalnum() or c in "_-.") for c in name):
        raise RegistrationError(f"tool name {name!r}: use 1 to 128 letters, digits, '_', '-' and '.'")
    return name


def _checked_uri(uri: str) -> str:
    """Spec: RFC 3986: a scheme, a colon, and no white space."""
    scheme, colon, rest = uri.partition(":")
    valid = scheme[:1].isalpha() and all(c.isascii() and (c.isalnum() or c in "+-.") for c in scheme)
    if not colon or not rest or not valid or any(c.isspace() or ord(c) < 33 for c in uri):
        raise RegistrationError(f"resource URI {uri!r}: expected scheme:rest, such as notes://today")
    return uri


def _checked_meta(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if meta is None else dict(meta)


def _check_variables(uri: str, variables: Sequence[str], parameters: Sequence[str]) -> None:
    unknown = [name for name in variables if name not in parameters]
    if unknown:
        raise RegistrationError(f"resource {uri!r}: the function has no parameter for {', '.join(unknown)}")
