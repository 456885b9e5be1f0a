"""What tools, resources, templates and prompts have in common."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mcpd.compat.missing import warn_of_unheard
from mcpd.compat.types.content import Icon

__all__ = ["Component", "newest", "public", "version_of"]


def version_of(value: Any) -> str | None:
    """A version as text. Raises TypeError, ValueError for what is none."""
    if value is None or isinstance(value, str):
        if value and "@" in value:
            raise ValueError(f"Version string cannot contain '@' (used as key delimiter): {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"Version must be a string, int, or float, got {type(value).__name__}: {value!r}")
    return str(value)


def _tags(value: Any) -> Any:
    return set() if value is None else set(value)


class Component(BaseModel):
    """A name, texts and icons for people, tags, and the `_meta` that clients see."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="ignore", defer_build=True)

    KEY_PREFIX: ClassVar[str] = ""

    name: str
    version: Annotated[str | None, BeforeValidator(version_of)] = None
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    tags: Annotated[set[str], BeforeValidator(_tags)] = Field(default_factory=set)
    meta: dict[str, Any] | None = None
    auth: Any = Field(default=None, exclude=True)
    enabled: bool = True

    @model_validator(mode="before")
    @classmethod
    def _names_what_is_unheard(cls, said: Any) -> Any:
        for name in said if isinstance(said, dict) else ():
            if name not in cls.model_fields:
                warn_of_unheard(f"{cls.__name__}({name}=…)", said[name], usual=False)
        return said

    @property
    def identity(self) -> str:
        """What tells it from others of its kind."""
        return self.name

    @property
    def key(self) -> str:
        """The same with its kind and its version."""
        return f"{self.KEY_PREFIX}:{self.identity}@{self.version or ''}"

    def get_meta(self) -> dict[str, Any]:
        """Its `_meta`, with tags and version."""
        meta = {**(self.meta or {})}
        told: dict[str, Any] = {"tags": sorted(self.tags)}
        if self.version is not None:
            told["version"] = self.version
        upstream = meta.get("fastmcp") or {}
        meta["fastmcp"] = {**{name: one for name, one in upstream.items() if not name.startswith("_")}, **told}
        return meta

    def enable(self) -> None:
        """Offer it."""
        self.enabled = True

    def disable(self) -> None:
        """Do not."""
        self.enabled = False

    def copy(self, **_: Any) -> Self:
        """Another one like it."""
        return self.model_copy()


def public(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """A `_meta` for results: without what is the library's own."""
    if not meta:
        return None
    found = {**meta}
    own = found.get("fastmcp")
    if isinstance(own, dict):
        found["fastmcp"] = {name: value for name, value in own.items() if not name.startswith("_")}
        if not found["fastmcp"]:
            del found["fastmcp"]
    return found or None


def newest(components: list[Any]) -> list[Any]:
    """Of each the newest version, in the order of their names' first appearance; it says which others there are."""
    groups: dict[str, list[Any]] = {}
    for one in components:
        groups.setdefault(one.identity, []).append(one)
    found = []
    for group in groups.values():
        best = max(group, key=lambda one: _order(one.version))
        if any(one.version is not None for one in group):
            known = sorted((one.version for one in group if one.version is not None), key=_order, reverse=True)
            meta = {**(best.meta or {})}
            meta["fastmcp"] = {**(meta.get("fastmcp") or {}), "versions": known}
            best = best.model_copy(update={"meta": meta})
        found.append(best)
    return found


def _order(version: str | None) -> Any:
    """How versions compare: numbers as numbers, none before all others."""
    if version is None:
        return (0, ())
    parts = version.lstrip("v").replace("-", ".").split(".")
    return (1, tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts))
