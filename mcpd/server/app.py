"""`Server`: the methods for authors, which register tools, resources and prompts, and the ways to serve them.

Functions become entries of the catalog in `entries`. Connections and extensions are in `core`, transports in `serving`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from mcpd.errors import RegistrationError, as_told, collects, missing_extra
from mcpd.protocol.printable import printable
from mcpd.protocol.types.base import Params
from mcpd.server.extensions.base import Extension
from mcpd.server.extensions.builtin import ConstructorSignature
from mcpd.server.extensions.tasks.settings import TASKS
from mcpd.server.extensions.ui.constants import UI
from mcpd.server.registry.resources import FunctionTemplate
from .core import ServerCore
from .entries import prompt_entry, resource_entry, text_entry, tool_entry
from .metadata import check_options, decorate, one_authenticator

if TYPE_CHECKING:
    from mcpd.protocol.principal import Principal
    from mcpd.server.backplane.base import Backplane
    from mcpd.server.context.context import Context
    from mcpd.server.context.exchange import Exchange
    from mcpd.server.extensions.events.extension import EventsExtension
    from mcpd.server.extensions.options import AppOptions
    from mcpd.server.extensions.tasks.authors import ServerTasks
    from mcpd.server.extensions.tasks.extension import TasksExtension
    from mcpd.server.extensions.ui.constants import AppsMode
    from mcpd.server.extensions.ui.extension import AppsExtension
    from mcpd.server.functions.dependencies import Override
    from mcpd.server.handlers.middleware import Middleware
    from mcpd.server.http.core import Identify
    from mcpd.server.registry.catalog import Kind
    from mcpd.server.registry.entries import Entries, Problem
    from mcpd.server.registry.options import DescribedPrompt, DescribedResource
    from mcpd.server.registry.rules import Component, VisibilityRule
    from mcpd.transports.authentication import Authenticator, Protection
    from .http import HttpApp, HttpSettings
    from .options import (
        EmitOptions,
        EventDecorator,
        EventOptions,
        MountOptions,
        OpenApiOptions,
        RunOptions,
        ToolOptions,
    )

log = logging.getLogger("mcpd")

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="Middleware")
R = TypeVar("R", bound="VisibilityRule")

_EVENTS = "io.modelcontextprotocol/events"
_KINDS: tuple[Kind, ...] = ("tools", "resources", "prompts")


class Server(ServerCore):
    """An MCP server: register tools and resources with its decorators, then serve it.

    `page_size` is the length of one page of a list. `max_in_flight` is how many requests of one connection are worked
    on at once; further requests are refused. `state_key` (at least 16 bytes; `MCPD_STATE_KEY` in the environment)
    seals the state that clients carry between the rounds of one request. Processes that serve the same clients must
    share the key; a single process makes its own. With `show_errors` the texts of all exceptions reach the client and
    its model; otherwise only ToolError and its subclasses do. `tool_timeout` is the default time limit of tools in
    seconds. `extensions` are added to the built-in ones. `lifespan` is a function that takes the server and returns an
    async context manager. It is entered once per process before the first call and left after the last one; its
    value is `ctx.lifespan`. `cache` says how long clients may keep lists, as one `CacheHint` or by method. `observers`
    are notified of connections, calls and frames. `auth` is an object from `mcpd.auth` such as `Jwt(issuer=…)`;
    alternatively `authenticate(headers)` (`def` or `async def`) returns a `Principal` or a `Refusal` within
    `authenticate_timeout` seconds. Servers that share a `change_bus` notify their clients of each other's changes.
    `attach` says what clients have in common that share a daemon (`mcpd serve --stdio --attach`). `events` are the
    settings of event types (`event`).

    For MCP Apps: `apps` is "auto" (clients that offer them), "always" or "never". `strict_model_list` leaves tools that
    only Views may call out of `tools/list`, although clients with MCP Apps can call them.
    `tasks` are the limits of tasks (`TaskSettings`), and `task_store` is where they are kept: sqlite:///PATH or
    redis://HOST; by default memory, or the backplane of the processes that serve together. With `task_fallback`
    "poll" a client without tasks gets a text after 45 s, and tools to ask for the result.
    `files` is the folder of files that tools take and return, `file_limits` are their limits (`FileSettings`), and on
    stdio tools may read files below the folders of `allow_path`.
    """

    __signature__ = ConstructorSignature()

    # -- tools -------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /, **options: Unpack[ToolOptions]) -> F: ...
    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    @collects
    def tool(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a tool, as `@server.tool` or `@server.tool(name=…, …)`.

        The signature becomes the input schema, the return annotation the output schema, the docstring the
        description; `name`, `title`, `description`, `icons` and `meta` replace them. `annotations` are hints
        like {"readOnlyHint": True}. Plain functions run in a thread.
        `tags`, `enabled` and `visible` decide who sees the tool, see `enable` and `visibility`. `scopes` are the
        scopes that a caller's token needs. With `hide` callers without them do not see the tool either. With
        `anonymous` callers need no token. With `structured_output=False` the result is text only.
        After `timeout` seconds the caller receives an error; the default is the server's `tool_timeout`.
        With `process` the function runs in a process of its own, which is ended when the call is cancelled or takes too
        long; a crash there is an error of the call. `memory` is its limit, such as "1G"; with `calls=1` each call has a
        new process; `process_start` is "fork" or "spawn". The function must be registered while its module is imported.
        `extensions` has the options of other extensions, by their id.
        `search_hint` has words for hosts that search tools, and `always_load` asks them to show the tool always.
        With `input_schema`, a JSON Schema, the function takes one dict of arguments that fit the schema;
        `output_schema` describes what it returns. Both need jsonschema-rs: pip install "mcpd-server[schema]".
        Raises RegistrationError for a signature that cannot be served, or a name that is taken.
        Spec: 2026-07-28 server/tools.

        For clients with MCP Apps: `ui` is the View that shows the result, by its `ui://` URI or its name in `app`.
        `view` is a bundled View instead: table, form, chart, markdown or image, or a `mcpd.View` with options.
        `ui_when` is a function, with or without a Context, that returns whether the tool has its View for a request.
        `visibility=["app"]` hides the tool from the model. Spec: MCP Apps 2026-01-26, resource discovery.
        With `task="auto"` a call that takes longer than `task_after` seconds (1) continues as a task, if the client
        takes tasks; with "required" it always does. `retry` is how often it may begin again after a crash.
        """
        return decorate("tool", function, partial(self.add_tool, **options))

    def add_tool(self, function: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        """Register a tool without the decorator."""
        installed = self.extensions.values()
        check_options("tool", options, [name for extension in installed for name in extension.tool_options])
        self.catalog.tools.add(tool_entry(self.catalog, installed, function, options))

    def remove_tool(self, name: str) -> bool:
        """Remove a tool. Returns False for an unknown name."""
        return self.catalog.tools.remove(name)

    def tools_changed(self) -> None:
        """Notify clients that the list of tools has changed, for example because a visibility rule now differs."""
        self.catalog.has_external_rules = True
        self.catalog.tools.changed()

    # -- resources ---------------------------------------------------------------------------

    @collects
    def resource(self, uri: str, **options: Unpack[DescribedResource]) -> Callable[[F], F]:
        """Register a function as a resource, or as a template of resources if the URI has `{variables}`.

        The function returns str, bytes, or data that become JSON; the variables of a template are its
        arguments. FileNotFoundError and `errors.ResourceNotFound` mean that there is no such resource. Options are
        `name`, `title`, `description`, `mime_type`, `size`, `annotations`, `icons` and `meta`; `tags`, `enabled` and
        `visible` decide who sees it, `scopes`, `hide` and `anonymous` who may read it. A value of a variable that is an
        absolute path, or has `..`, a backslash, a drive letter or NUL, is refused with InvalidParams in any encoding.
        `unsafe_paths=True`, or the names of variables, accepts such values. `cache` is how long clients may keep it.
        Raises RegistrationError for a URI or signature that cannot be served.
        Spec: 2026-07-28 server/resources; RFC 6570 levels 1 to 3.

        A `ui://` URI makes it a View for clients with MCP Apps, whose HTML the function returns.
        """
        if not isinstance(uri, str):
            raise RegistrationError('resource: the URI is the first argument, as in @server.resource("notes://today")')
        check_options("resource", options)

        def register(function: F) -> F:
            entry = resource_entry(self.catalog, self.extensions.values(), uri, function, options)
            if isinstance(entry, FunctionTemplate):
                self.catalog.templates.add(entry)
            else:
                self.catalog.resources.add(entry)
            self._resource_changed(uri, is_removed=False)
            return function

        return register

    def add_text(self, uri: str, text: str | bytes, *, name: str, mime_type: str | None = None) -> None:
        """Register a resource with fixed content, text or bytes."""
        self.catalog.resources.add(text_entry(self.extensions.values(), uri, text, name, mime_type))
        self._resource_changed(uri, is_removed=False)

    def remove_resource(self, uri: str) -> bool:
        """Remove a resource or template by its URI or URI template. Returns False for an unknown URI."""
        removed = self.catalog.resources.remove(uri) or self.catalog.templates.remove(uri)
        if removed:
            self._resource_changed(uri, is_removed=True)
        return removed

    def _resource_changed(self, uri: str, *, is_removed: bool) -> None:
        for extension in self.extensions.values():
            extension.resource_changed(uri, is_removed=is_removed)

    # -- prompts -----------------------------------------------------------------------------

    @overload
    def prompt(self, function: F, /, **options: Unpack[DescribedPrompt]) -> F: ...
    @overload
    def prompt(self, **options: Unpack[DescribedPrompt]) -> Callable[[F], F]: ...

    @collects
    def prompt(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a prompt, as `@server.prompt` or `@server.prompt(name=…, …)`.

        Its parameters are the arguments, whose values come as strings and are converted. It returns text, a content
        block, a ("user" or "assistant", content) pair, a PromptMessage, or a list of these. Options are `name`,
        `title`, `description`, `icons` and `meta`; `tags`, `enabled` and `visible` decide who sees it, `scopes`, `hide`
        and `anonymous` who may use it.
        Raises RegistrationError. Spec: 2026-07-28 server/prompts.
        """
        return decorate("prompt", function, partial(self.add_prompt, **options))

    def add_prompt(self, function: Callable[..., Any], **options: Unpack[DescribedPrompt]) -> None:
        """Register a prompt without the decorator."""
        check_options("prompt", options)
        self.catalog.prompts.add(prompt_entry(self.catalog, function, options))

    def remove_prompt(self, name: str) -> bool:
        """Remove a prompt. Returns False for an unknown name."""
        return self.catalog.prompts.remove(name)

    @collects
    def completion(self, argument: str, *, prompt: str | None = None, template: str | None = None) -> Callable[[F], F]:
        """Register a function that completes one argument of a prompt, or one variable of a resource template.

        The function takes the text so far and optionally a dict of the other arguments, a Context and dependencies.
        It returns candidates, which are matched, ranked and cut to 100. Arguments with a fixed set of values need no
        such function.
        """
        if (prompt is None) == (template is None):
            raise RegistrationError("completion: pass either prompt= or template=")

        from mcpd.server.registry.prompts import Completer  # few servers complete anything

        def register(function: F) -> F:
            self.catalog.completers[prompt or template or "", argument] = Completer(function, self.catalog.overrides)
            self.catalog.offer("completions")
            return function

        return register

    # -- events ------------------------------------------------------------------------------

    @property
    def _events(self) -> EventsExtension:
        extension = self.extensions.get(_EVENTS)
        if extension is None:
            from mcpd.server.extensions.events.extension import EventsExtension  # few servers have events

            extension = EventsExtension(self._event_settings)
            self.add_extension(extension)
        return cast("EventsExtension", extension)

    @collects
    def event(self, name: str, *, payload: Any = dict[str, Any], **options: Unpack[EventOptions]) -> EventDecorator:
        """Register a type of event: `@server.event("incident.created", payload=Incident)`.

        The first parameter of the function is the payload, the others are what clients subscribe with. It runs for
        each subscriber and returns True (the event is for it), False, or another payload for it; with a docstring
        alone every subscriber gets every event. `ctx: EventContext` has the subscriber. The result has `emit`,
        `authorize`, `subscribed` and `unsubscribed`.

        `on` names arguments that must equal the payload's field of that name, which is fast for many subscribers.
        `delivery` are some of webhook, push and poll. `visible` is a function (ctx) that says who sees the type.
        `replay=False` keeps no events for clients that return. With `channel=True` its events are also put into
        running conversations; a function (payload) makes their text. Raises RegistrationError. Spec: SEP-3415.
        """
        return self._events.declaring(name, payload, options)

    @collects
    def event_source(
        self, name: str, *, payload: Any = dict[str, Any], every: float = 30.0, **options: Unpack[EventOptions]
    ) -> EventDecorator:
        """Register a type of event that another system keeps: `@server.event_source("mail.received", payload=Mail)`.

        The function takes the last cursor (None: only return one), and the arguments of the subscription, and returns
        a `Batch`. It runs every `every` seconds for all subscribers with the same arguments; with `private=True` for
        each user apart. Raises RegistrationError.
        """
        return self._events.declaring(name, payload, options, every)

    def remove_event(self, name: str) -> bool:
        """Remove a type of event, and end its subscriptions. Returns False for an unknown name."""
        return self._events.remove(name)

    def emit(self, name: str, payload: Any, **options: Unpack[EmitOptions]) -> str:
        """Tell the subscribers of an event, and return its id. Never waits. Safe to call from any thread.

        `id` is the id that the event has elsewhere, and `timestamp` when it happened. With `to` only this user gets it,
        with `subscription` only this webhook subscription. Raises ValueError for a payload that does not fit the type,
        and KeyError for an unknown type.
        """
        return self._events.emit(name, payload, **options)

    async def flush(self) -> None:
        """Wait until all events that were emitted are on their way, for tests and before the end."""
        await self._events.hub.flush()

    async def revoke(self, principal: Principal | str) -> None:
        """Ask again whether a user may have its events, because its rights have changed."""
        await self._events.hub.revoke(principal)

    # -- dependencies and sources ------------------------------------------------------------

    def override(self, dependency: Callable[..., Any], replacement: Callable[..., Any]) -> Override:
        """Call `replacement` wherever a `Depends` names `dependency`, from now on. Meant for tests.

        As a context manager, `with server.override(get_db, fake_db):`, it ends with the block. The replacement may
        have dependencies of its own.
        """
        from mcpd.server.functions.dependencies import Override  # for tests

        return Override(self.catalog.overrides, dependency, replacement)

    def replace(self, owner: str, entries: Entries) -> None:
        """Replace all entries of `owner`. Entries of decorators and of other owners stay.

        For entries that are not functions, such as files of a folder or another server's tools. Clients receive one
        `list_changed` notification per list that changed, and subscribers of a resource an update if its entry
        changed. Safe to call from any thread.
        Raises RegistrationError, and changes nothing, for a name or URI that another owner has.
        """
        for uri, is_removed in self.catalog.replace(owner, entries).items():
            self._resource_changed(uri, is_removed=is_removed)
            if not is_removed:
                self.resource_updated(uri)

    def mount(self, name: str, target: Any, **settings: Unpack[MountOptions]) -> None:
        """Offer what another server offers, too: `server.mount("db", ["npx", "-y", "some-server"])`.

        `target` is a command as a list, a URL, or anything else that `Client` accepts. Tools and prompts are named
        `db_query`, URIs begin with `db+`. The server is started with the first request that needs it. `settings` are
        those of `[mounts.NAME]` in mcpd.toml. Raises ConfigurationError.
        """
        from importlib import import_module  # few servers have mounts, and their package is above this one

        import_module("mcpd.sources.mounts.mounted").mount(self, name, target, **settings)

    def add_openapi(
        self, document: str | os.PathLike[str] | Mapping[str, Any], **options: Unpack[OpenApiOptions]
    ) -> list[str]:
        """Add the operations of an OpenAPI 3 document as tools, and return their names.

        `document` is a file, a URL or a dict. `base` is the URL of the API, `allow` and `deny` are patterns of
        operations such as `tag:pets`, `GET /pets/*` or `list_*`, and `prefix` and `rename` change names. `headers`,
        `query`, `security` and `token_file` authorize requests; `forward_headers` and `forward_authorization` pass on
        headers of the client. `timeout` and `max_bytes` limit a request. Operations that cannot be tools are left out,
        and `mcpd check` lists them. Needs the extra `openapi`. Raises ConfigurationError.
        """
        from importlib import import_module  # few servers have one, and the package is above this one

        try:
            source: Any = import_module("mcpd.sources.openapi.source")
        except ModuleNotFoundError as error:
            raise missing_extra(error, "serving OpenAPI documents", "openapi") from None
        return source.add(self, document, options)  # type: ignore[no-any-return]

    # -- visibility --------------------------------------------------------------------------

    def enable(
        self,
        *,
        names: Collection[str] | str | None = None,
        tags: Collection[str] | str | None = None,
        components: Collection[Component] | Component | None = None,
        only: bool = False,
    ) -> None:
        """Enable tools, resources, templates and prompts again, also those that are registered later.

        `names` are names or URIs, `components` kinds of entries ("tool", "resource", "template", "prompt"). Several
        values mean "any of these"; if you combine the options, all must match. With `only` all other entries are
        disabled. The last call that matches an entry decides. Clients receive one `list_changed` notification per list
        that changed. Safe to call from any thread. Raises RegistrationError without any option.
        """
        self.catalog.switch(
            lambda switches: switches.turn(True, names=names, tags=tags, components=components, only=only)
        )

    def disable(
        self,
        *,
        names: Collection[str] | str | None = None,
        tags: Collection[str] | str | None = None,
        components: Collection[Component] | Component | None = None,
    ) -> None:
        """Disable tools, resources, templates and prompts until `enable`, as if they had never been registered.

        The options are those of `enable`.
        """
        self.catalog.switch(lambda switches: switches.turn(False, names=names, tags=tags, components=components))

    def visibility(self, rule: R) -> R:
        """Register a visibility rule: `@server.visibility` above a function (entry, ctx) that returns a bool.

        The rule, `def` or `async def`, is called for each request and each entry that the request concerns, with a
        `CatalogEntry` and the Context (user, scopes, headers, client). An entry is visible if all rules and its own
        `visible=` return true; a rule that fails is logged and hides the entry. For a request a hidden entry does not
        exist. Raises RegistrationError if the rule is not callable.
        """
        if not callable(rule):
            raise RegistrationError(f"visibility: expected a function (entry, context) -> bool, not {rule!r}")
        self.catalog.use_rules().append(rule)
        self.visibility_changed()
        return rule

    def visibility_changed(self) -> None:
        """Notify clients that their lists may have changed, because data that rules use has. Safe from any thread."""
        self.catalog.has_external_rules = True
        for kind in _KINDS:
            if kind in self.catalog.offers:
                self._connections.changed(kind)

    # -- MCP Apps and tasks ------------------------------------------------------------------

    @property
    def _apps(self) -> AppsExtension:
        return cast("AppsExtension", self.extensions[UI])

    def app(self, app: str, html: str | bytes | os.PathLike[str], **options: Unpack[AppOptions]) -> str:
        """Register the HTML of a View, or its file (a Path). Returns the URI, for the `ui=` of tools.

        `app` is a `ui://` URI, or a name: "chart" means `ui://<name of the server>/chart`. `csp` declares the origins
        that the View needs, as {"connectDomains": ["https://api.example.com"]}, and `permissions` any of camera,
        microphone, geolocation and clipboardWrite. `prefers_border` asks the host for a border, and `domain` for an
        origin of its own, in the format of one host. `name`, `title`, `description`, `icons` and `meta` are as for any
        resource. `replace` allows replacing a View with the same URI.

        Clients receive the URI with a hash of the content, so that they show no older content; the server answers both
        forms. Raises RegistrationError for HTML or options that no host accepts.
        Spec: MCP Apps 2026-01-26, UI resource format.
        """
        return self._apps.apps.add_html(app, html, options)

    def add_apps(self, folder: str, namespace: str | None = None, *, replace: bool = False) -> list[str]:
        """Register each `x.html` of a folder as `ui://<namespace>/x`, with the metadata in `x.json`. Returns the URIs.

        `x.json` is like {"title": …, "ui": {"csp": …, "permissions": …, "prefersBorder": …}}. Files that cannot be used
        are logged and left out, and `mcpd check` lists them. Raises nothing.
        """
        return self._apps.apps.add_folder(folder, namespace, replace=replace)

    def set_apps(self, mode: AppsMode | None = None, *, strict_model_list: bool | None = None) -> None:
        """Change the options of MCP Apps before serving; None leaves an option unchanged."""
        self._apps.configure({"apps": mode, "strict_model_list": strict_model_list})

    def has_apps(self, ctx: Context) -> bool:
        """Whether the client of a request gets MCP Apps, for tools that return more for a View."""
        return self._apps.is_active(ctx)

    @property
    def tasks(self) -> ServerTasks:
        """The tasks of this server, to end and describe tasks whose work is done elsewhere (`Context.hand_over`)."""
        from mcpd.server.extensions.tasks.authors import ServerTasks  # few servers use it

        return ServerTasks(cast("TasksExtension", self.extensions[TASKS]).tasks)

    # -- extensions, routes and middleware ---------------------------------------------------

    def roots_changed(self, function: F) -> F:
        """Register a function that runs when a client's roots have changed: `@server.roots_changed`.

        The function takes a Context without a request, through which it can list the roots. Clients of 2026-07-28
        never send this notification. Spec: 2025-11-25 client/roots.
        """
        if not self._roots_functions:
            self._listen("notifications/roots/list_changed", partial(_run_all, self._roots_functions))
        self._roots_functions.append(function)
        return function

    def extension(self, id: str, *, settings: Mapping[str, Any] | None = None) -> Extension:
        """Return a new extension for clients that offer it too: `notes = server.extension("com.example/notes")`.

        Clients see its `settings`. Register its methods with `@notes.method(…)` or `@server.method`.
        Raises RegistrationError for an id without a prefix, or one that is taken.
        Spec: 2026-07-28 basic/versioning, extension negotiation.
        """
        extension = Extension(id, settings=settings)
        self.add_extension(extension)
        return extension

    def method(
        self, name: str, params: type[Params] = Params, *, versions: Collection[str] | None = None
    ) -> Callable[[F], F]:
        """Register a handler for a method of an extension: `@server.method("com.example/notes/search", SearchParams)`.

        The name begins with the extension's id. See `Extension.method`.
        """
        for extension in self.extensions.values():
            if name.startswith(f"{extension.id}/"):
                return extension.method(name, params, versions=versions)
        raise RegistrationError(
            f"method {name!r}: no extension has this prefix; add one with server.extension({name.rpartition('/')[0]!r})"
        )

    @collects
    def route(
        self, path: str, *, methods: Collection[str] = ("GET",), public: bool = False, any_origin: bool = False
    ) -> Callable[[F], F]:
        """Register a handler for HTTP requests to a path beside the endpoint: `@server.route("/orders/{id}")`.

        The function takes a RouteRequest or nothing, and may be async; a plain function runs in a thread. It returns a
        RouteResponse, or only its body (bytes, text, or data that become JSON), a Refusal, or None for status 204.
        `methods` are HTTP methods; GET includes HEAD. A route requires the same authorization as the endpoint, unless
        it is `public`. With `any_origin` any web page may read a public route.
        Raises RegistrationError for a path or function that cannot be served, and for a path that is taken.
        """

        def register(function: F) -> F:
            from mcpd.transports.routes import Route  # few servers have one, and this costs start-up

            route = Route(path, function, methods=methods, public=public, any_origin=any_origin)
            taken = {method for other in self._routes if other.path == path for method in other.methods}
            if taken := taken.intersection(route.methods):
                raise RegistrationError(f"route {path!r}: already registered for {', '.join(sorted(taken))}")
            self._routes.append(route)
            return function

        return register

    @overload
    def middleware(self, function: M, /) -> M: ...
    @overload
    def middleware(self, method: str, /, *methods: str) -> Callable[[M], M]: ...

    @collects
    def middleware(self, function: Any, /, *methods: str) -> Any:
        """Wrap handlers in an `async def function(request, call_next)`.

        `@server.middleware` wraps the handlers of all methods, `@server.middleware("tools/call")` only the handlers of
        the named methods. The function takes a `MiddlewareRequest` and returns the result of `await call_next(request)`
        or its own. The first one added is the outermost. `RateLimit` and `ResultLimit` are ready to use. Raises
        RegistrationError for a function that is not a coroutine function, and for an unknown method.
        """
        from mcpd.server.handlers.middleware import add_middleware, check_methods

        if not isinstance(function, str):
            return add_middleware(self.handlers, self.catalog, function)
        named = (function, *methods)
        check_methods(self.handlers, named)
        return lambda given: add_middleware(self.handlers, self.catalog, given, named)

    # -- serving -----------------------------------------------------------------------------

    def problems(self) -> list[Problem]:
        """Return what would not work for clients, errors first. Builds every schema on the way."""
        from .checks import find_problems

        return find_problems(self.catalog, self.extensions.values())

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
        """Return this server as an ASGI application, Streamable HTTP and WebSocket, for any ASGI server.

        Only requests for this machine's own names are served, unless `allowed_hosts` names others. Web pages are
        served only from `allowed_origins`, which also receive the CORS headers. `identify` returns the user of a
        request, for applications that authenticate before this one; sessions are bound to that user. `auth`, with the
        `public_url` that clients use, or `authenticate` replaces the server's own.
        `backplane` is what processes that serve the same clients share, or its URL such as redis://HOST:PORT/0; a URL
        needs a state key that all of them have. `metrics` adds `/metrics` and `/statusz`, which require `token`.
        If the application is mounted below another one that passes on no lifespan, SIGTERM ends the server's lifespan.
        Streams end when uvicorn or hypercorn stops; other ASGI servers may need a time limit for that.
        Needs no extra. Raises ConfigurationError for an invalid backplane.
        """
        from mcpd.transports.guards import Access
        from .http import HttpSettings
        from .listening import host_of

        settings = settings or HttpSettings()
        hosts, origins = (*allowed_hosts, *host_of(auth or self.authenticate)), tuple(allowed_origins)
        access = Access(
            token=token,
            hosts=hosts,
            origins=origins,
            authenticate=one_authenticator(auth, authenticate),
            authenticate_timeout=self.authenticate_timeout,
            is_hosted=True,
        ).or_by(self.authenticate)
        if access.protection is not None:
            # The address is not known here, and what a request says about it is not trusted.
            known = settings.public_url
            access.protection.locate(known, is_public=True, is_guess=not known, is_hosted=True)
        self.catalog.authentication_hint = "pass auth= to asgi_app()"
        if backplane is not None:
            settings = replace(settings, backplane=backplane)
        embedded = None
        if metrics:
            from mcpd.server.observe.watching import Embedded

            embedded = Embedded(self, access)
            settings = replace(settings, routes=(*settings.routes, *embedded.routes))
        app = self.http_app(access, settings, identify=identify, is_hosted=True)
        if embedded is not None:
            embedded.join(app)
        return app

    def run(
        self, *, stdio: bool = False, ws: str | None = None, http: str | None = None, **settings: Unpack[RunOptions]
    ) -> None:
        """Serve until stopped, over stdio, WebSocket, HTTP at an address like `:8080`, or several; blocks.

        `settings` are those of `server.settings.Settings`, such as `grace=10`, and options of extensions, which replace
        options of the constructor; `extensions` has them by the extension's id. If an event loop is already running,
        await `serving.serve` instead. Raises ConfigurationError for an address that cannot be used.
        """
        from .serving import run, settings_for

        run(self, settings_for(stdio=stdio, ws=ws, http=http, installed=self.extensions.values(), **settings))


async def _run_all(functions: Sequence[Callable[..., Any]], exchange: Exchange, params: object) -> None:
    # If one function fails, the others still run.
    from mcpd.server.context.context import Context
    from mcpd.server.context.peer import is_failure
    from mcpd.server.functions.threads import run_in_thread

    ctx = Context(exchange)
    for function in functions:
        try:
            if iscoroutinefunction(function):
                await function(ctx)
            else:
                await run_in_thread(function, ctx, exchange=exchange)
        except BaseException as error:
            if not is_failure(error):
                raise
            log.error("%s failed after a change of roots", printable(function), exc_info=as_told(error))
