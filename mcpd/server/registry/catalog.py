"""`Catalog`: the tools, resources, templates and prompts of one server, and which of them a request can see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Sequence
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from mcpd.protocol.types.base import Implementation
from mcpd.protocol.types.features import (
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
)
from mcpd.server.functions.annotations import Function
from .entries import ActiveExtensions, Listing

if TYPE_CHECKING:
    from mcpd.protocol.envelope import ClientIdentity
    from mcpd.protocol.types.interaction import ListenResult, SubscriptionFilter
    from mcpd.server.context.context import Context
    from mcpd.server.context.exchange import Exchange
    from mcpd.server.lifespan import Lifespan
    from mcpd.transports.authentication import Protection
    from .entries import Entries, Problem, PromptEntry, ResourceEntry, TemplateEntry, ToolEntry
    from .prompts import Completer
    from .rules import Condition, Needs, Switches, VisibilityRule

Kind: TypeAlias = 'Literal["tools", "resources", "prompts", "events"]'  # a text: `Literal[…]` is made at each start

_NONE_ACTIVE: ActiveExtensions = frozenset()


class TaskOffer(Protocol):
    """The tasks of a server, as its handlers see them."""

    def capabilities_for(self, exchange: Exchange, extensions: dict[str, Any]) -> dict[str, Any] | None:
        """Return the capability `tasks` for a client, and change its `extensions`."""

    def listen(
        self, exchange: Exchange, honoured: SubscriptionFilter, ids: list[str]
    ) -> Coroutine[Any, Any, ListenResult]:
        """Keep a subscription open that names tasks."""


class EventOffer(Protocol):
    """The events of a server, as its handlers see them."""

    experimental: dict[str, Any] | None
    """What is announced under `experimental`."""

    def capabilities_for(self, exchange: Exchange, extensions: dict[str, Any]) -> dict[str, Any] | None:
        """Return the capability `events` for a client, and change its `extensions`."""


class Catalog:
    """The entries of one server. `extension_filters` says for each extension whether it is active for a client."""

    # Whether scopes of authenticated users are checked.
    is_guarded = False
    has_anonymous = False
    # How an operator of this server enables authentication, for error messages.
    authentication_hint = "start the server with --issuer URL or --tokens-file FILE"
    # The server's authenticator, if it speaks OAuth.
    protection: Protection | None = None
    # The scopes that entries name.
    known_scopes: Collection[str] = ()
    # Whether the server announced changes of lists whose entries have not changed.
    has_external_rules = False
    # The tasks that tools offer to clients; None without such a tool.
    tasks: TaskOffer | None = None
    # The events; None without an event type.
    events: EventOffer | None = None
    # Called when the first entry or authenticator is guarded.
    on_guard: Callable[[], None] | None = None

    need: Callable[[str], Any]
    """Returns the extension with an id. A built-in one is added to the server if it is not there yet."""

    def __init__(self, identity: Implementation, instructions: str | None, page_size: int) -> None:
        self.identity = identity
        self.instructions = instructions
        # The capabilities in use: tools, resources and so on. A capability that was offered stays.
        self.offers: set[str] = set()
        self.on_offer: Callable[[], None] | None = None
        # One reentrant lock for all four lists, because `replace` changes them together.
        self._lock = RLock()

        def listing(what: str, result: type, member: str) -> Listing[Any]:
            def make_page(items: list[Any], cursor: str | None) -> Any:
                return result(**{member: items, "next_cursor": cursor})

            return Listing(what, make_page, page_size, self._lock)

        self.tools: Listing[ToolEntry] = listing("tool", ListToolsResult, "tools")
        self.resources: Listing[ResourceEntry] = listing("resource", ListResourcesResult, "resources")
        self.templates: Listing[TemplateEntry] = listing(
            "resource template", ListResourceTemplatesResult, "resource_templates"
        )
        self.prompts: Listing[PromptEntry] = listing("prompt", ListPromptsResult, "prompts")

        # The completers by (name of a prompt or URI of a template, argument).
        self.completers: dict[tuple[str, str], Completer] = {}

        self.tools.on_change = lambda: self._changed("tools")
        self.resources.on_change = self.templates.on_change = lambda: self._changed("resources")
        self.prompts.on_change = lambda: self._changed("prompts")
        # Whether some resources are parts of tools, and exist only with them.
        self._has_parts = False
        # Called with the kind of list that has changed.
        self.on_change: Callable[[Kind], None] | None = None

        # The entries that were enabled or disabled.
        self.switches: Switches | None = None
        # The visibility rules; None if neither the server nor an entry has one.
        self.rules: list[VisibilityRule] | None = None
        # Returns the part of this catalog that a request is limited to, or None for everything. None without parts.
        self.part_for: Callable[[Exchange], Catalog | None] | None = None
        # Called when the first rule is added, and when `part_for` is set.
        self.on_rules: Callable[[], None] | None = None
        # The problems of sources, by owner.
        self.source_problems: dict[str, Sequence[Problem]] = {}
        # Replacements of dependencies.
        self.overrides: dict[Function, Function] = {}

        self.extension_filters: dict[str, Callable[[ClientIdentity], bool]] = {}
        # The settings that this server announces, by extension id.
        self.extensions: dict[str, dict[str, Any]] = {}

        # Returns the registered URI that another form of it means, or None.
        self.registered_uri: Callable[[str], str | None] | None = None
        # Whether the texts of all exceptions reach the client.
        self.shows_errors = False
        # The default time limit of tools in seconds.
        self.tool_timeout: float | None = None
        # The server's lifespan, for tools in other processes.
        self.lifespan: Lifespan | None = None
        self._conditions: list[Condition] | None = None

    def listings(self, kind: Kind) -> list[Listing[Any]]:
        """Return the lists that belong to a kind."""
        match kind:
            case "tools":
                return [self.tools]
            case "resources":
                return [self.resources, self.templates]
            case "prompts":
                return [self.prompts]
            case "events":
                return []

    def active_extensions(self, exchange: Exchange | Context) -> ActiveExtensions:
        """Return the ids of the extensions that are active for this request."""
        if not self.extension_filters:
            return _NONE_ACTIVE
        client = exchange.client
        return frozenset([name for name, admits in self.extension_filters.items() if admits(client)])

    @property
    def conditions(self) -> list[Condition]:
        """The conditions that the list of tools depends on."""
        if self._conditions is None:
            added = [meta for entry in self.tools for meta in entry.extension_meta.values()]
            self._conditions = [meta.condition for meta in added if meta.condition is not None]
        return self._conditions

    def find_resource(self, uri: str, active: ActiveExtensions) -> ResourceEntry | None:
        """Return the resource with this URI, or None if it does not exist with these extensions."""
        entry = self.resources.get(uri, active)
        if entry is None and self.registered_uri is not None:
            registered = self.registered_uri(uri)
            if registered is not None:
                entry = self.resources.get(registered, active)
        return entry

    def has_resource(self, uri: str, active: ActiveExtensions) -> bool:
        """Return whether a resource can be read under this URI."""
        return self.reader(uri, active) is not None

    def reader(self, uri: str, active: ActiveExtensions) -> Callable[[Exchange], Any] | None:
        """Return the function that reads a URI: of the resource with that URI, otherwise of the first template that
        matches; None without one.
        """
        entry = self.find_resource(uri, active)
        if entry is not None:
            return partial(entry.run, uri)
        for template in self.templates:
            if template.requires is None or template.requires in active:
                variables = template.match(uri)
                if variables is not None:
                    return partial(template.run, uri, variables)
        return None

    def use_rules(self) -> list[VisibilityRule]:
        """Return the list of visibility rules, which are applied from now on."""
        if self.rules is None:
            self.rules = []
            if self.on_rules is not None:
                self.on_rules()
        return self.rules

    def guard(self, needs: Needs | None = None, protection: Protection | None = None) -> None:
        """Check scopes from now on, because an entry has needs or an authenticator was set."""
        if protection is not None:
            self.protection = protection
        if needs is not None:
            self.known_scopes = {*self.known_scopes, *needs.scopes}
            self.has_anonymous = self.has_anonymous or needs.is_anonymous
        if self.protection is not None:
            self.protection.known_scopes.update(self.known_scopes)
            self.protection.has_anonymous = self.protection.has_anonymous or self.has_anonymous
        if not self.is_guarded:
            self.is_guarded = True
            if self.on_guard is not None:
                self.on_guard()

    def switch(self, turn: Callable[[Switches], None]) -> None:
        """Enable and disable entries, with one `on_change` per kind of list that has changed."""
        with self._lock:
            if self.switches is None:
                from .rules import Switches  # few servers disable anything

                self.switches = Switches()
            turn(self.switches)
            self.tools.is_on = partial(self.switches.is_on, "tool")
            self.resources.is_on = self._is_resource_on
            self.templates.is_on = partial(self.switches.is_on, "template")
            self.prompts.is_on = partial(self.switches.is_on, "prompt")
            changed: list[Kind] = ["tools"] if self.tools.switched() else []
            are_others = [self.resources.switched(), self.templates.switched()]
            changed += ["resources"] if any(are_others) else []
            changed += ["prompts"] if self.prompts.switched() else []
        for kind in changed:
            self._changed(kind)

    def add_part(self, entry: ResourceEntry) -> None:
        """Add a part of a tool (`of_tool`), replacing the resource with its URI. It exists as long as the tool does."""
        self._has_parts = True
        self.resources.is_on = self._is_resource_on
        self.resources.add(entry, replace=True)

    def _is_resource_on(self, entry: ResourceEntry) -> bool:
        if entry.of_tool is not None:
            return not entry.of_tool or self.tools.find_enabled(entry.of_tool) is not None
        return entry.is_enabled if self.switches is None else self.switches.is_on("resource", entry)

    def replace(self, owner: str, entries: Entries, *, is_known: bool = True) -> dict[str, bool]:
        """Replace all entries of `owner` at once, with one `on_change` per kind of list that has changed.

        Without `is_known` no client can know the lists yet, and `on_change` is not called.

        Returns the URIs of the resources and templates that were added, removed or changed, and whether they were
        removed. Raises RegistrationError, and changes nothing, for a key that another owner has or that occurs twice.
        Safe to call from any thread.
        """
        with self._lock:
            # All checks come first: nothing fails after them.
            self.tools.check(owner, entries.tools or ())
            self.resources.check(owner, entries.resources or ())
            self.templates.check(owner, entries.templates or ())
            self.prompts.check(owner, entries.prompts or ())

            tools = self.tools.exchange(owner, entries.tools or ())
            resources = self.resources.exchange(owner, entries.resources or ())
            resources |= self.templates.exchange(owner, entries.templates or ())
            prompts = self.prompts.exchange(owner, entries.prompts or ())
            self.source_problems[owner] = entries.problems

        # Notifies outside the lock, because listeners may read the lists.
        has_resources = entries.resources is not None or entries.templates is not None
        self._replaced("tools", tools, is_known, is_offered=entries.tools is not None)
        self._replaced("resources", resources, is_known, is_offered=has_resources)
        self._replaced("prompts", prompts, is_known, is_offered=entries.prompts is not None)
        return resources

    def _replaced(self, kind: Kind, touched: dict[str, bool], is_known: bool, *, is_offered: bool) -> None:
        if touched:
            self._changed(kind, is_known=is_known)
        elif is_offered:
            self.offer(kind)

    def _changed(self, kind: Kind, *, is_known: bool = True) -> None:
        self._conditions = None
        self.offer(kind)
        if kind == "prompts" or len(self.templates):
            self.offer("completions")
        if is_known and self.on_change is not None:
            self.on_change(kind)
        if kind == "tools" and self._has_parts and self.resources.switched():
            self._changed("resources")

    def offer(self, capability: str) -> None:
        """Offer a capability from now on."""
        if capability not in self.offers:
            self.offers.add(capability)
            if self.on_offer is not None:
                self.on_offer()
