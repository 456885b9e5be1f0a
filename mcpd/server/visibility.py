"""What authors say of who sees what: `enable`, `disable` and `visibility` of `Server`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NewType, TypeVar

from mcpd.dispatcher.announcer import Announcer, Kind
from mcpd.errors import RegistrationError
from mcpd.registry.catalog import Catalog

if TYPE_CHECKING:
    from mcpd.registry.rules import VisibilityRule
    from mcpd.registry.switches import Component
else:
    # For whoever evaluates annotations (`inspect.signature`): the real ones would cost every start-up.
    Component, VisibilityRule = NewType("Component", str), NewType("VisibilityRule", object)

R = TypeVar("R", bound="VisibilityRule")

_KINDS: tuple[Kind, ...] = ("tools", "resources", "prompts")


class VisibilityMethods:
    """A part of `Server`: no object of its own."""

    catalog: Catalog
    _connections: Announcer

    def enable(
        self,
        *,
        names: Collection[str] | str | None = None,
        tags: Collection[str] | str | None = None,
        components: Collection[Component] | Component | None = None,
        only: bool = False,
    ) -> None:
        """Let tools, resources, templates and prompts be there again, those that are registered later too.

        They are those with one of the `names` (or URIs), one of the `tags`, and of one of the kinds `components`
        ("tool", "resource", "template", "prompt"); what is not said is any. With `only` nothing else is there from now
        on. Of several calls that concern an entry the last one counts. Clients hear once of each kind of list that is
        another one now. Safe from any thread. Raises RegistrationError if nothing is said.
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
        """Let tools, resources, templates and prompts be as if they had never been registered, until `enable`.

        For what the options mean see there.
        """
        self.catalog.switch(lambda switches: switches.turn(False, names=names, tags=tags, components=components))

    def visibility(self, rule: R) -> R:
        """Register a rule of who sees what: `@server.visibility`, above a function (entry, ctx) that gives a bool.

        It is asked for each request, `def` or `async def`, of the entries that the request is about: a `CatalogEntry`
        and the Context (who asks, their scopes, headers, client). What it hides does not exist for that request. An
        entry is seen if all rules and its own `visible=` say so; one that fails is logged, and says no.
        Raises RegistrationError for what cannot be called.
        """
        if not callable(rule):
            raise RegistrationError(f"visibility: expected a function (entry, context) -> bool, not {rule!r}")
        self.catalog.ask_rules().append(rule)
        self.visibility_changed()
        return rule

    def visibility_changed(self) -> None:
        """Tell clients that they may see something else now: what rules depend on has changed. Safe from any thread."""
        self.catalog.is_decided_outside = True
        for kind in _KINDS:
            if kind in self.catalog.offers:
                self._connections.changed(kind)
