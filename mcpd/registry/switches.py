"""What is switched off for everybody: `Server.disable` and `Server.enable`, by names, tags and kinds.

The last of them that concerns an entry decides; those that none concerns are as they were registered.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from mcpd.errors import RegistrationError

Component: TypeAlias = Literal["tool", "resource", "template", "prompt"]
"""A kind of entry."""


class _Switch(Struct, frozen=True):
    is_on: bool
    names: frozenset[str] | None
    tags: frozenset[str] | None
    components: frozenset[str] | None

    def concerns(self, component: Component, entry: Any) -> bool:
        """Whether an entry is all that was said; of names, tags and kinds each may be one of several."""
        if self.components is not None and component not in self.components:
            return False
        if self.tags is not None and self.tags.isdisjoint(entry.tags):
            return False
        return self.names is None or not self.names.isdisjoint(names_of(component, entry))

    @property
    def key(self) -> object:
        """Equal for those that concern the same entries."""
        return self.names, self.tags, self.components


class Switches:
    """All that was enabled and disabled, in order."""

    def __init__(self) -> None:
        self._switches: list[_Switch] = []
        self._is_on: bool | None = None
        """What holds for entries that nothing concerns; None: as they were registered."""

    def turn(
        self,
        is_on: bool,
        *,
        names: Collection[str] | str | None,
        tags: Collection[str] | str | None,
        components: Collection[Component] | Component | None,
        only: bool = False,
    ) -> None:
        """Switch entries on or off; with `only` all others the other way. Raises RegistrationError."""
        kinds = _set_of(components, "components")
        switch = _Switch(is_on, _set_of(names, "names"), _set_of(tags, "tags"), kinds)
        what = "enable" if is_on else "disable"
        if switch.names is None and switch.tags is None and kinds is None:
            raise RegistrationError(f"{what}: say which, by names=, tags= or components=")
        unknown = (kinds or frozenset()).difference(get_args(Component))
        if unknown:
            known = ", ".join(get_args(Component))
            raise RegistrationError(f"{what}, components: there is no {min(unknown)!r}, only {known}")
        if only:
            self._is_on = not is_on
            self._switches.clear()
        # One that is said again goes before what was said meanwhile; the former need not be kept.
        self._switches = [*(other for other in self._switches if other.key != switch.key), switch]

    def is_on(self, component: Component, entry: Any) -> bool:
        """Whether an entry is there."""
        for switch in reversed(self._switches):
            if switch.concerns(component, entry):
                return switch.is_on
        return bool(entry.is_enabled) if self._is_on is None else self._is_on


def names_of(component: Component, entry: Any) -> tuple[str, ...]:
    """What an entry may be called by: its name, and its URI if it has one."""
    if component in ("tool", "prompt"):
        return (entry.key,)
    return entry.key, entry.listed(frozenset()).name


def _set_of(given: Collection[str] | str | None, what: str) -> frozenset[str] | None:
    if given is None:
        return None
    found = frozenset((given,) if isinstance(given, str) else given)
    if not all(isinstance(one, str) for one in found):
        raise RegistrationError(f"{what}: a set of texts, not {given!r}")
    return found
