"""Results under other names: what `result` in a table of mcpd.toml says, as a type and as what makes values of it.

A member is named by the one that it is, `total = "total"`; members of the things in a list by a table that says with
`of` which list: `results = { of = "results", title = "title" }`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from msgspec import UNSET, Struct, UnsetType, defstruct
from msgspec.structs import fields

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.sources.docs.results import RESULTS
from mcpd.sources.docs_table import Doing

_OF = "of"

Project = Callable[[dict[str, Any]], dict[str, Any]]


class Shape(Struct, frozen=True):
    """The type of a tool's result, and what makes it of what the tool found."""

    kind: type[Struct]
    project: Project


def shape_of(does: Doing, said: Mapping[str, Any], where: str) -> Shape:
    """What results look like, by default or as `said`. Raises ConfigurationError that begins with `where`."""
    kind, hidden = RESULTS[does]
    if not said:
        said = {field.name: field.name for field in fields(kind) if field.name not in hidden}
    return _shape(kind, said, where)


def _shape(kind: type[Struct], said: Mapping[str, Any], where: str) -> Shape:
    known = {field.name: field for field in fields(kind)}
    made: list[Any] = []
    steps: list[tuple[str, str, Project | None]] = []
    for name, value in said.items():
        inner = value if isinstance(value, Mapping) else None
        source = inner.get(_OF, name) if inner is not None else value
        field = known.get(source) if isinstance(source, str) else None
        if field is None or not name.isidentifier():
            raise ConfigurationError(f"{where}.{printable(name)}: expected one of {', '.join(known)}")

        member, project = field.type, None
        if inner is not None:
            item = _item(member)
            if item is None:
                raise ConfigurationError(f"{where}.{name}: {source} is no list; write {name} = {source!r}")
            below = _shape(item, {key: one for key, one in inner.items() if key != _OF}, f"{where}.{name}")
            member, project = list[below.kind], below.project  # type: ignore[name-defined]
            if not field.required:
                member = member | UnsetType
        made.append((name, member) if field.required else (name, member, UNSET))
        steps.append((name, source, project))

    shaped = defstruct(kind.__name__, made, kw_only=True, omit_defaults=True, namespace={"__doc__": kind.__doc__})
    return Shape(shaped, _projection(steps))


def _item(kind: Any) -> type[Struct] | None:
    """The struct that a list is of; None if it is none of structs."""
    while get_origin(kind) is Annotated:
        kind = kind.__origin__
    for one in (kind, *get_args(kind)):
        args = get_args(one) if get_origin(one) is list else ()
        if args and isinstance(args[0], type) and issubclass(args[0], Struct):
            return args[0]
    return None


def _projection(steps: list[tuple[str, str, Project | None]]) -> Project:
    def project(found: dict[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, source, inner in steps:
            if source in found:
                value = found[source]
                result[name] = value if inner is None else [inner(one) for one in value]
        return result

    return project
