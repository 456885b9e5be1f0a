"""`Names`: what one module of another library holds, and where each of it lives here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

__all__ = ["Names"]


class Names:
    """The names of one module. `homes` has for each the module here that has it, as `"lowlevel.server"`, or
    `"lowlevel.server:OtherName"`; what is not there is looked for in the modules of `rest`, by their `__all__`.
    """

    MISSING: ClassVar[object] = object()
    """What `find` gives for a name that there is not."""

    def __init__(
        self, homes: Mapping[str, str] | None = None, rest: tuple[str, ...] = (), *, doc: str | None = None
    ) -> None:
        self.homes = dict(homes or {})
        self.rest = rest
        self.doc = doc

    @classmethod
    def of(cls, home: str, *names: str) -> Names:
        """All from one module of ours."""
        return cls(dict.fromkeys(names, home))

    def joined(self, other: Names) -> Names:
        """Both together; the names of the other one go before."""
        return Names({**self.homes, **other.homes}, (*self.rest, *other.rest), doc=self.doc or other.doc)

    def find(self, name: str) -> Any:
        """What has that name; MISSING if nothing has."""
        home = self.homes.get(name)
        if home is not None:
            module, _, other = home.partition(":")
            return getattr(_module(module), other or name)
        for place in self.rest:
            module_found = _module(place)
            if name in module_found.__all__:
                return getattr(module_found, name)
        return self.MISSING

    def all(self) -> set[str]:
        """Every name."""
        return set(self.homes).union(*(_module(place).__all__ for place in self.rest))


def _module(place: str) -> Any:
    return import_module(f"{__package__}.{place}")
