"""What a server has itself, by kind, and which of it is offered."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from mcpd.compat.fastmcp.components import Component
from mcpd.protocol.printable import printable

__all__ = ["OnDuplicate", "Rule", "Store", "Visibility", "VisibilityTransform"]

log = logging.getLogger("mcpd")

OnDuplicate = Literal["warn", "error", "replace", "ignore"]


class Store:
    """Components of one kind by what tells them apart and their version; the last one of a key stays, mostly."""

    def __init__(self, on_duplicate: OnDuplicate) -> None:
        self.on_duplicate = on_duplicate
        self._by_key: dict[tuple[str, str | None], Any] = {}

    def add(self, component: Any) -> Any:
        """Add one; gives the one that has its key then. Raises ValueError where a second one is an error."""
        key = component.identity, component.version
        if key in self._by_key:
            if self.on_duplicate == "error":
                raise ValueError(f"Component already exists: {component.key}")
            if self.on_duplicate == "warn":
                log.warning("Component already exists: %s", printable(component.key))
            elif self.on_duplicate == "ignore":
                return self._by_key[key]
        self._by_key[key] = component
        return component

    def remove(self, identity: str, version: str | None = None) -> bool:
        """Take all versions of one away, or one; False if there is none."""
        keys = [key for key in self._by_key if key[0] == identity and version in (None, key[1])]
        for key in keys:
            del self._by_key[key]
        return bool(keys)

    def all(self) -> list[Any]:
        """All of them."""
        return list(self._by_key.values())


@dataclass(frozen=True)
class Rule:
    """That some are offered, or not; what is None matches all."""

    offers: bool
    names: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    kinds: frozenset[str] | None = None
    version: Any = None

    def fits(self, component: Component) -> bool:
        """Whether it is about this one."""
        named = {component.name, component.identity}
        keys = {component.key, component.key.rpartition("@")[0]}
        return (
            (self.names is None or not self.names.isdisjoint(named))
            and (self.keys is None or not self.keys.isdisjoint(keys))
            and (self.tags is None or not self.tags.isdisjoint(component.tags))
            and (self.kinds is None or component.KEY_PREFIX in self.kinds)
            and (self.version is None or str(getattr(self.version, "eq", self.version)) == component.version)
        )


class Visibility:
    """Which components are offered: what the last rule says that is about one."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, offers: bool, *, only: bool = False, **about: Any) -> None:
        """Add a rule; with `only`, nothing else is offered."""
        if only:
            self._rules.append(Rule(False))
        self._rules.append(
            Rule(
                offers,
                names=_set(about.get("names")),
                keys=_set(about.get("keys")),
                tags=_set(about.get("tags")),
                kinds=_set(about.get("components")),
                version=about.get("version"),
            )
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no rule."""
        return not self._rules

    def clear(self) -> None:
        """There are no rules any more."""
        self._rules.clear()

    def says(self, component: Any) -> bool | None:
        """Whether one is offered; None if no rule is about it."""
        return next((rule.offers for rule in reversed(self._rules) if rule.fits(component)), None)

    def offered(self, components: Iterable[Any], more: Visibility | None = None) -> list[Any]:
        """Those that are offered; what the rules of `more` say goes before."""
        found = []
        for one in components:
            said = None if more is None else more.says(one)
            if said is None:
                said = self.says(one)
            if one.enabled if said is None else said:
                found.append(one)
        return found


class VisibilityTransform:
    """`Visibility(False, tags={"admin"})`, for `add_transform`: a rule as `enable` and `disable` add them."""

    def __init__(self, enabled: bool, *, match_all: bool = False, **about: Any) -> None:
        self.enabled = enabled
        # Without anything that it is about it is about nothing.
        self.about = about if match_all or any(each is not None for each in about.values()) else {"names": ()}


def _set(given: Iterable[str] | None) -> frozenset[str] | None:
    return None if given is None else frozenset(given)
