"""The shared parts of tools, resources, templates and prompts: versions, visibility, mounts, and marked functions.

Beside them are lifespans, which servers combine and mount in the same way.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MethodType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from mcpd.compat.install import warn_of_unused
from mcpd.compat.types.features import Icon
from mcpd.protocol.printable import printable

log = logging.getLogger("mcpd")

M = TypeVar("M", bound=BaseModel)


def version_text(value: Any) -> str | None:
    """Return a version as text. Raises TypeError, ValueError for an invalid one."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str | None):
        raise TypeError(f"Version must be a string, int, or float, got {type(value).__name__}: {value!r}")
    if value and "@" in value:
        raise ValueError(f"Version string cannot contain '@' (used as key delimiter): {value!r}")
    return value


class Component(BaseModel):
    """A tool, resource, template or prompt."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="ignore", defer_build=True)

    KEY_PREFIX: ClassVar[str] = ""

    name: str
    version: Annotated[str | None, BeforeValidator(version_text)] = None
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    tags: Annotated[set[str], BeforeValidator(lambda tags: set(tags or ()))] = Field(default_factory=set)
    meta: dict[str, Any] | None = None
    auth: Any = Field(default=None, exclude=True)
    enabled: bool = True

    _function: Any = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _warn_of_unused(cls, members: Any) -> Any:
        for name in members if isinstance(members, dict) else ():
            if name not in cls.model_fields:
                warn_of_unused(f"{cls.__name__}({name}=…)", members[name], default=False)
        return members

    @property
    def identity(self) -> str:
        """The name or URI that distinguishes it from others of its kind."""
        return self.name

    @property
    def key(self) -> str:
        return f"{self.KEY_PREFIX}:{self.identity}@{self.version or ''}"

    def get_meta(self) -> dict[str, Any]:
        meta = self.meta or {}
        own = {**_public(meta.get("fastmcp")), "tags": sorted(self.tags), **given({"version": self.version})}
        return {**meta, "fastmcp": own}

    def _listed(self, model: type[M], changed: Mapping[str, Any], **members: Any) -> M:
        # Returns what clients see of it, with some members changed.
        shared = {name: getattr(self, name) for name in ("name", "title", "description", "icons")}
        return model(**{**shared, **members, "_meta": self.get_meta(), **changed})

    def enable(self) -> None:
        self.enabled = True

    def disable(self) -> None:
        self.enabled = False

    def copy(self, **_: Any) -> Self:
        return self.model_copy()


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def _public(meta: Any) -> dict[str, Any]:
    # Returns the library's own part of a `_meta` without private members.
    return {name: value for name, value in (meta or {}).items() if not name.startswith("_")}


def public_meta(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a `_meta` for results: without the private members of the library."""
    members = {**(meta or {})}
    own = _public(members.pop("fastmcp", None))
    return (members | {"fastmcp": own} if own else members) or None


def check_items(member: str, items: Any, kind: type, others: str) -> None:
    """Raise TypeError unless this is a list of items of a kind. `others` says what else the member may be."""
    if not isinstance(items, list):
        raise TypeError(f"{member} must be {others} list[{kind.__name__}], got {type(items).__name__}")

    for index, item in enumerate(items):
        if not isinstance(item, kind):
            raise TypeError(
                f"{member}[{index}] must be {kind.__name__}, got {type(item).__name__}. "
                f"Use {kind.__name__}({item!r}) to wrap the value."
            )


def newest(components: list[Any]) -> list[Any]:
    """Return the newest version of each component. Its `_meta` lists the other versions."""
    groups: dict[str, list[Any]] = {}
    for component in components:
        groups.setdefault(component.identity, []).append(component)
    return [_newest(group) for group in groups.values()]


def _newest(group: list[Any]) -> Any:
    # Lists show one component for each name, since clients know nothing of versions.
    best = max(group, key=lambda component: _order(component.version))
    versions = [component.version for component in group if component.version is not None]
    if not versions:
        return best

    meta = best.meta or {}
    own = {**(meta.get("fastmcp") or {}), "versions": sorted(versions, key=_order, reverse=True)}
    return best.model_copy(update={"meta": {**meta, "fastmcp": own}})


def _order(version: str | None) -> Any:
    # Returns the sort key of a version. Numbers compare as numbers, and no version comes before all others.
    if version is None:
        return (0, ())
    parts = version.lstrip("v").replace("-", ".").split(".")
    return (1, tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts))


# -- storage and visibility ------------------------------------------------------------------

OnDuplicate = Literal["warn", "error", "replace", "ignore"]


class Store:
    """A server's own components of one kind, by identity and version."""

    def __init__(self, on_duplicate: OnDuplicate) -> None:
        self.on_duplicate = on_duplicate
        self._by_key: dict[tuple[str, str | None], Any] = {}

    def add(self, component: Any) -> Any:
        """Add a component. Returns the one that has its key. Raises ValueError if duplicates are errors."""
        # Different versions of a component are kept side by side; only an equal version is replaced.
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
        """Remove a version of a component, or all versions. Returns False for an unknown one."""
        keys = [key for key in self._by_key if key[0] == identity and version in (None, key[1])]
        for key in keys:
            del self._by_key[key]
        return bool(keys)

    def all(self) -> list[Any]:
        return list(self._by_key.values())


class Rule(NamedTuple):
    """Enables or disables the components that match all its filters. A filter that is None matches every component."""

    enables: bool
    filters: Mapping[str, Any]

    def matches(self, component: Component) -> bool:
        actual: dict[str, set[str]] = {
            "names": {component.name, component.identity},
            "keys": {component.key, component.key.rpartition("@")[0]},
            "tags": component.tags,
            "components": {component.KEY_PREFIX},
        }
        version = self.filters.get("version")
        if version is not None and str(getattr(version, "eq", version)) != component.version:
            return False
        filters = {name: values for name, values in self.filters.items() if name in actual and values is not None}
        return all(not actual[name].isdisjoint(values) for name, values in filters.items())


class Visibility:
    """Rules that enable and disable components. The last rule that matches a component decides."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, enables: bool, *, only: bool = False, **filters: Any) -> None:
        """Add a rule. With `only`, it disables all other components."""
        # Later rules win, so this one comes before the rule that enables.
        if only:
            self._rules.append(Rule(False, {}))
        self._rules.append(Rule(enables, filters))

    def clear(self) -> None:
        self._rules.clear()

    def enabled(self, components: Iterable[Any], overrides: Visibility | None) -> list[Any]:
        """Return the components that are enabled. The rules of `overrides` come first."""
        rules = [*self._rules, *(overrides._rules if overrides else ())]
        return [
            component
            for component in components
            if next((rule.enables for rule in reversed(rules) if rule.matches(component)), component.enabled)
        ]


class VisibilityTransform:
    """A rule for `add_transform`, as in `Visibility(False, tags={"admin"})`."""

    def __init__(self, enabled: bool, *, match_all: bool = False, **filters: Any) -> None:
        self.enabled = enabled
        # Without any filter it matches nothing.
        self.filters = filters if match_all or given(filters) else {"names": ()}


# -- marked functions ------------------------------------------------------------------------


class Marked(NamedTuple):
    """What `@tool`, `@resource` and `@prompt` keep at a function until it is added to a server."""

    kind: str
    options: dict[str, Any]


def options_of(function: Any, kind: str) -> dict[str, Any] | None:
    """Return the options in the mark of a function, None if it is not marked as this kind."""
    marked = getattr(function, "__fastmcp__", None)
    return marked.options if isinstance(marked, Marked) and marked.kind == kind else None


def with_mark(function: Any, kind: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options for a function, with those in its mark for the ones that are None."""
    marked = options_of(function, kind)
    return options if marked is None else {**marked, **given(options)}


def mark(kind: str, name_or_fn: Any, name: str | None, options: dict[str, Any]) -> Any:
    """Mark a function, or return a decorator that does. Raises TypeError for other objects."""

    def put(function: Any) -> Any:
        target: Any = function.__func__ if isinstance(function, (staticmethod, MethodType)) else function
        target.__fastmcp__ = Marked(kind, {"name": name, **options})
        return function

    function, name = decorated(kind, name_or_fn, name, inspect.isroutine)
    return put if function is None else put(function)


def decorated(kind: str, name_or_fn: Any, name: str | None, is_function: Callable[[Any], bool]) -> tuple[Any, Any]:
    """Return the function and the name of `@tool`, `@tool("name")` or `@tool(name=…)`. Raises TypeError."""
    if isinstance(name_or_fn, classmethod):
        raise TypeError(f"To decorate a classmethod, use @classmethod above @{kind}.")
    if isinstance(name_or_fn, str):
        if name is not None:
            raise TypeError("Cannot specify name both as first argument and keyword")
        return None, name_or_fn
    if name_or_fn is not None and not is_function(name_or_fn):
        raise TypeError(f"Invalid first argument: {type(name_or_fn)}")
    return name_or_fn, name


# -- mounted servers -------------------------------------------------------------------------


class Mount:
    """A mounted server. Its components appear under a namespace: `weather_forecast`, `data://weather/today`."""

    def __init__(self, server: Any, namespace: str | None, tool_names: Mapping[str, str] | None = None) -> None:
        self.server = server
        self.namespace = namespace or ""
        self._tool_names = {**(tool_names or {})}
        self._own_tool_names = {new: old for old, new in self._tool_names.items()}

    def tool_name(self, name: str) -> str:
        return self._tool_names.get(name) or self.prompt_name(name)

    def prompt_name(self, name: str) -> str:
        return f"{self.namespace}_{name}" if self.namespace else name

    def uri(self, uri: str) -> str:
        # The scheme stays, since hosts choose by it what to do with a resource.
        scheme, mark, path = uri.partition("://")
        return f"{scheme}{mark}{self.namespace}/{path}" if self.namespace and mark else uri

    # And back, None if the name cannot belong to this server.

    def own_tool_name(self, name: str) -> str | None:
        return self._own_tool_names.get(name) or self.own_prompt_name(name)

    def own_prompt_name(self, name: str) -> str | None:
        prefix = self.prompt_name("")
        return name.removeprefix(prefix) if name.startswith(prefix) else None

    def own_uri(self, uri: str) -> str | None:
        if not self.namespace:
            return uri

        scheme, mark, path = uri.partition("://")
        prefix = f"{self.namespace}/"
        return f"{scheme}{mark}{path.removeprefix(prefix)}" if path.startswith(prefix) else None


# -- lifespans -------------------------------------------------------------------------------


class Lifespan:
    """A lifespan that yields a dict. `first | second` opens both, one after the other.

    `fn` takes the server. It is an async generator function, or returns an async context manager.
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._open = asynccontextmanager(fn) if inspect.isasyncgenfunction(fn) else fn

    @asynccontextmanager
    async def __call__(self, server: Any) -> AsyncIterator[dict[str, Any]]:
        async with self._open(server) as value:
            yield {} if value is None else value

    def __or__(self, other: Lifespan) -> Lifespan:
        @asynccontextmanager
        async def both(server: Any) -> AsyncIterator[dict[str, Any]]:
            async with self(server) as first, other(server) as second:
                yield {**first, **second}

        return Lifespan(both)


ContextManagerLifespan = Lifespan


def lifespan(fn: Callable[[Any], Any]) -> Lifespan:
    return Lifespan(fn)


def has_lifespan(server: Any) -> bool:
    return server.own_lifespan is not None or any(has_lifespan(mount.server) for mount in server.mounts)


@asynccontextmanager
async def open_lifespans(server: Any) -> AsyncIterator[Any]:
    """Open the lifespan of a server, and those of mounted servers. Yields the value of the first."""
    async with AsyncExitStack() as stack:
        own = server.own_lifespan
        value = {} if own is None else await stack.enter_async_context(own(server))
        # Mounted servers run in the same process, for as long as the outer server.
        for mount in server.mounts:
            await stack.enter_async_context(open_lifespans(mount.server))
        yield value
