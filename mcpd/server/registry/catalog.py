"""`Catalog`: the tools, resources, templates and prompts of one server, and which of them a request can see."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mcpd.protocol.types.base import Implementation
from mcpd.protocol.types.prompts import ListPromptsResult
from mcpd.protocol.types.resources import ListResourcesResult, ListResourceTemplatesResult
from mcpd.protocol.types.tools import ListToolsResult
from mcpd.server.registry.listing import ActiveExtensions, Listing

if TYPE_CHECKING:
    from mcpd.protocol.envelope import ClientIdentity
    from mcpd.server.context.context import Context
    from mcpd.server.context.exchange import Exchange
    from mcpd.server.registry.entries import Entries, Problem, PromptEntry, ResourceEntry, TemplateEntry, ToolEntry
    from mcpd.server.registry.prompts import Completer
    from mcpd.server.registry.rules import Condition, Needs, Switches, VisibilityRule
    from mcpd.transports.authentication import Protection

Kind: TypeAlias = 'Literal["tools", "resources", "prompts"]'  # a text: `Literal[…]` is made at each start

_NONE_ACTIVE: ActiveExtensions = frozenset()


class Catalog:
    """The registries of one server. `extension_filters` says for each extension whether it is active for a client."""

    is_guarded = False
    """Whether it is asked what those may do who send requests."""
    has_anonymous = False
    how_to_ask = "start the server with --issuer URL or --tokens-file FILE"
    """What those may do who serve and ask nobody for a token."""
    """Whether an entry is for those too who do not say who they are."""
    protection: Protection | None = None
    """What protects the server, if that speaks OAuth."""
    known_scopes: Collection[str] = ()
    """The scopes of all entries that name theirs."""
    is_decided_outside = False
    """Whether the server said that lists are others, though the same entries are in them."""
    on_guard: Callable[[], None] | None = None
    """Called when it becomes guarded."""

    def __init__(self, identity: Implementation, instructions: str | None, page_size: int) -> None:
        self.identity = identity
        self.instructions = instructions
        self.offers: set[str] = set()
        """The capabilities in use: tools, resources … Once offered, a capability stays."""
        self.on_offer: Callable[[], None] | None = None
        # One lock for all four: `replace` changes them together. Its holder may take it again.
        self._lock = RLock()
        self.tools: Listing[ToolEntry] = Listing(
            "tool", lambda items, cursor: ListToolsResult(tools=items, next_cursor=cursor), page_size, self._lock
        )
        self.resources: Listing[ResourceEntry] = Listing(
            "resource",
            lambda items, cursor: ListResourcesResult(resources=items, next_cursor=cursor),
            page_size,
            self._lock,
        )
        self.templates: Listing[TemplateEntry] = Listing(
            "resource template",
            lambda items, cursor: ListResourceTemplatesResult(resource_templates=items, next_cursor=cursor),
            page_size,
            self._lock,
        )
        self.prompts: Listing[PromptEntry] = Listing(
            "prompt", lambda items, cursor: ListPromptsResult(prompts=items, next_cursor=cursor), page_size, self._lock
        )

        self.completers: dict[tuple[str, str], Completer] = {}
        """(name of a prompt or URI of a template, argument) -> what completes it."""

        self.tools.on_change = lambda: self._changed("tools")
        self.resources.on_change = self.templates.on_change = lambda: self._changed("resources")
        self.prompts.on_change = lambda: self._changed("prompts")
        self._has_parts = False
        """Whether resources are parts of tools, and there only with them."""
        self.on_change: Callable[[Kind], None] | None = None
        """Called with the kind of list that is another one now."""

        self.switches: Switches | None = None
        """What was enabled or disabled."""
        self.rules: list[VisibilityRule] | None = None
        """What is asked about every entry; None: everybody sees everything, and no entry has a rule of its own."""
        self.on_rules: Callable[[], None] | None = None
        """Called with the first rule."""
        self.source_problems: dict[str, Sequence[Problem]] = {}
        """What sources could not use, by owner."""
        self.overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """Dependencies, and the functions that are called instead of them."""

        self.extension_filters: dict[str, Callable[[ClientIdentity], bool]] = {}
        self.extensions: dict[str, dict[str, Any]] = {}
        """Extension id -> the settings this server announces for it."""

        self.registered_uri: Callable[[str], str | None] | None = None
        """For a URI under which nothing is registered: the one that is meant, if it is another form of that."""
        self.shows_errors = False
        """Whether the texts of all exceptions reach the client."""
        self.tool_timeout: float | None = None
        """How many seconds tools may take that say nothing of it themselves."""
        self._conditions: list[Condition] | None = None

    def listings(self, kind: Kind) -> list[Listing[Any]]:
        """Those whose change is one of that kind."""
        match kind:
            case "tools":
                return [self.tools]
            case "resources":
                return [self.resources, self.templates]
            case "prompts":
                return [self.prompts]

    def active_extensions(self, exchange: Exchange | Context) -> ActiveExtensions:
        """The ids of the extensions that are active for this request."""
        if not self.extension_filters:
            return _NONE_ACTIVE
        client = exchange.client
        return frozenset([name for name, admits in self.extension_filters.items() if admits(client)])

    async def active_in_lists(self, exchange: Exchange, active: ActiveExtensions) -> ActiveExtensions:
        """`active` with the keys of the conditions that hold now, on which the list of tools depends."""
        if not self.conditions:
            return active
        from mcpd.server.registry.rules import with_conditions  # few servers have any

        return await with_conditions(self.conditions, active, exchange)

    @property
    def conditions(self) -> list[Condition]:
        """The conditions that the list of tools depends on."""
        if self._conditions is None:
            added = [meta for entry in self.tools for meta in entry.extension_meta.values()]
            self._conditions = [meta.condition for meta in added if meta.condition is not None]
        return self._conditions

    def find_resource(self, uri: str, active: ActiveExtensions) -> ResourceEntry | None:
        """The resource with that URI, None if there is none with those extensions."""
        entry = self.resources.get(uri, active)
        if entry is None and self.registered_uri is not None:
            registered = self.registered_uri(uri)
            if registered is not None:
                entry = self.resources.get(registered, active)
        return entry

    def has_resource(self, uri: str, active: ActiveExtensions) -> bool:
        """Whether a resource can be read under that URI."""
        if self.find_resource(uri, active) is not None:
            return True
        return any(
            template.match(uri) is not None
            for template in self.templates
            if template.requires is None or template.requires in active
        )

    def ask_rules(self) -> list[VisibilityRule]:
        """The rules of who sees what, which are asked from now on."""
        if self.rules is None:
            self.rules = []
            if self.on_rules is not None:
                self.on_rules()
        return self.rules

    def guard(self, needs: Needs | None = None, protection: Protection | None = None) -> None:
        """From now on it is asked what those may do who send requests: an entry needs something, or all do."""
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
        """Enable and disable entries, with one `on_change` for each kind of list that is another one now."""
        with self._lock:
            if self.switches is None:
                from mcpd.server.registry.rules import Switches  # few servers disable anything

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
        """Add a part of a tool (`of_tool`), in the place of what had its URI: it is there as long as the tool is."""
        self._has_parts = True
        self.resources.is_on = self._is_resource_on
        self.resources.add(entry, replace=True)

    def _is_resource_on(self, entry: ResourceEntry) -> bool:
        if entry.of_tool is not None:
            return not entry.of_tool or self.tools.offered(entry.of_tool) is not None
        return entry.is_enabled if self.switches is None else self.switches.is_on("resource", entry)

    def replace(self, owner: str, entries: Entries) -> dict[str, bool]:
        """Replace all that `owner` offers, at once, with one `on_change` for each kind of list that changed.

        Gives the URIs of the resources and templates that came, went or are others now, and whether they went.
        Raises RegistrationError, and changes nothing, for a key that another owner has, or that is there twice.
        Safe from any thread.
        """
        with self._lock:
            # First all are checked: from then on nothing fails.
            self.tools.check(owner, entries.tools or ())
            self.resources.check(owner, entries.resources or ())
            self.templates.check(owner, entries.templates or ())
            self.prompts.check(owner, entries.prompts or ())

            tools = self.tools.exchange(owner, entries.tools or ())
            resources = self.resources.exchange(owner, entries.resources or ())
            resources |= self.templates.exchange(owner, entries.templates or ())
            prompts = self.prompts.exchange(owner, entries.prompts or ())
            self.source_problems[owner] = entries.problems

        # Told outside the lock: who hears of it may look at the lists.
        has_resources = entries.resources is not None or entries.templates is not None
        self._replaced("tools", tools, is_offered=entries.tools is not None)
        self._replaced("resources", resources, is_offered=has_resources)
        self._replaced("prompts", prompts, is_offered=entries.prompts is not None)
        return resources

    def _replaced(self, kind: Kind, touched: dict[str, bool], *, is_offered: bool) -> None:
        if touched:
            self._changed(kind)
        elif is_offered:
            self.offer(kind)

    def _changed(self, kind: Kind) -> None:
        self._conditions = None
        self.offer(kind)
        if kind == "prompts" or len(self.templates):
            self.offer("completions")
        if self.on_change is not None:
            self.on_change(kind)
        if kind == "tools" and self._has_parts and self.resources.switched():
            self._changed("resources")

    def offer(self, capability: str) -> None:
        """From now on this server offers a capability."""
        if capability not in self.offers:
            self.offers.add(capability)
            if self.on_offer is not None:
                self.on_offer()
