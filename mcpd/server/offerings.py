"""What authors register with a server: tools, resources, prompts, their completion, and what sources bring.

Functions become entries of the catalog in `entries`; here they are put into it, and extensions and clients hear of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NewType, TypeVar, Unpack, overload

from mcpd.dispatcher.announcer import Announcer
from mcpd.errors import RegistrationError, collects
from mcpd.extensions.base import Extension
from mcpd.registry.catalog import Catalog
from mcpd.registry.resources import FunctionTemplate
from mcpd.server.entries import prompt_entry, resource_entry, text_entry, tool_entry
from mcpd.server.metadata import check_options, decorate

if TYPE_CHECKING:
    from mcpd.registry.entries import Entries
    from mcpd.registry.options import DescribedPrompt, DescribedResource
    from mcpd.server.options import ToolOptions
    from mcpd.server.overrides import Override
else:
    # For whoever evaluates annotations (`inspect.signature`): the real ones would cost every start-up.
    Entries = NewType("Entries", object)
    Override = NewType("Override", object)
    for _name in ("DescribedPrompt", "DescribedResource", "ToolOptions"):
        globals()[_name] = NewType(_name, dict)

F = TypeVar("F", bound=Callable[..., Any])


class Offerings:
    """A part of `Server`: no object of its own."""

    catalog: Catalog
    extensions: dict[str, Extension]
    _connections: Announcer

    # -- tools -------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /, **options: Unpack[ToolOptions]) -> F: ...

    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    @collects
    def tool(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a tool, as `@server.tool` or `@server.tool(name=…, …)`.

        The signature gives the input schema, the return annotation the output schema, the docstring the
        description; `name`, `title`, `description`, `icons` and `meta` say it otherwise. `annotations` are hints
        like {"readOnlyHint": True}. Plain functions run in a thread.
        `tags`, `enabled` and `visible` say who sees it, see `enable` and `visibility`; `scopes` what a caller's token
        needs, with `hide` also to see it, and `anonymous` that none is needed. With `structured_output=False` what it
        returns is text alone.
        After `timeout` seconds the caller gets an error; by default that is the server's `tool_timeout`.
        `extensions` is what other extensions take, by their id.
        With `input_schema`, a JSON Schema, the function takes one dict of arguments that fit it; `output_schema` is
        one for what it returns. Both need jsonschema-rs: pip install "mcpd-server[schema]".
        Raises RegistrationError for a signature that cannot be served, or a name that is taken.
        Spec: 2026-07-28 server/tools.
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
        """Tell clients that the list of tools is another one now, as when what decides who gets one has changed."""
        self.catalog.is_decided_outside = True
        self.catalog.tools.changed()

    # -- resources ---------------------------------------------------------------------------

    @collects
    def resource(self, uri: str, **options: Unpack[DescribedResource]) -> Callable[[F], F]:
        """Register a function as a resource, or with `{variables}` in the URI as a template of resources.

        The function returns str, bytes, or data that become JSON; the variables of a template are its
        arguments. FileNotFoundError, or `errors.ResourceNotFound`, says that there is none. Options are `name`,
        `title`, `description`, `mime_type`, `size`, `annotations`, `icons` and `meta`; `tags`, `enabled` and `visible`
        say who sees it, `scopes`, `hide` and `anonymous` who may read it. A variable's value that is an
        absolute path, or has `..`, a backslash, drive letter or NUL, is refused with InvalidParams, however it is
        encoded; `unsafe_paths=True`, or the names of variables, takes them. `cache` is how long clients may keep it.
        Raises RegistrationError for a URI or signature that cannot be served.
        Spec: 2026-07-28 server/resources; RFC 6570 levels 1 to 3.
        """
        if not isinstance(uri, str):
            raise RegistrationError('resource: its URI comes first, as in @server.resource("notes://today")')
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

    # -- dependencies ------------------------------------------------------------------------

    def override(self, dependency: Callable[..., Any], replacement: Callable[..., Any]) -> Override:
        """Call `replacement` wherever `dependency` stands in a `Depends`: for tests, from now on.

        As `with server.override(get_db, fake_db):` until the end of the block. The replacement may be whatever a
        dependency may be, and have dependencies of its own.
        """
        from mcpd.server.overrides import Override  # for tests

        return Override(self.catalog.overrides, dependency, replacement)

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
    def prompt(self, function: F, /, **options: Unpack[DescribedPrompt]) -> F: ...

    @overload
    def prompt(self, **options: Unpack[DescribedPrompt]) -> Callable[[F], F]: ...

    @collects
    def prompt(self, function: Any = None, **options: Any) -> Any:
        """Register a function as a prompt, as `@server.prompt` or `@server.prompt(name=…, …)`.

        Its parameters are the arguments (values come as strings and are converted); it returns text, a content
        block, a ("user" or "assistant", content) pair, a PromptMessage, or a list of these. Options are `name`,
        `title`, `description`, `icons` and `meta`; `tags`, `enabled` and `visible` say who sees it, `scopes`, `hide`
        and `anonymous` who may use it.
        Raises RegistrationError. Spec: 2026-07-28 server/prompts.
        """
        return decorate("prompt", function, partial(self.add_prompt, **options))

    def add_prompt(self, function: Callable[..., Any], **options: Unpack[DescribedPrompt]) -> None:
        """`prompt` without the decorator."""
        check_options("prompt", options)
        self.catalog.prompts.add(prompt_entry(self.catalog, function, options))

    def remove_prompt(self, name: str) -> bool:
        """Take a prompt away; False if there is none of that name."""
        return self.catalog.prompts.remove(name)

    @collects
    def completion(self, argument: str, *, prompt: str | None = None, template: str | None = None) -> Callable[[F], F]:
        """Register what completes one argument of a prompt, or one variable of a resource template.

        The function takes the text so far, and if it wants a dict of the other arguments; beside them a Context and
        dependencies, if it says so. It gives candidates, which are matched, ranked and cut to 100. Arguments with a
        fixed set of values complete by themselves.
        """
        if (prompt is None) == (template is None):
            raise RegistrationError("completion: name either a prompt= or a template=")

        from mcpd.registry.completion import Completer  # few servers complete anything

        def register(function: F) -> F:
            self.catalog.completers[prompt or template or "", argument] = Completer(function, self.catalog.overrides)
            self.catalog.offer("completions")
            return function

        return register
