"""The results of the tools over documents as structs, from which their output schemas are made.

Fields with the value UNSET are left out. The fields after a line `# for other shapes` are hidden by default; tables in
mcpd.toml may use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct
from msgspec.structs import fields

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.sources.tables import Doing

_Cursor = Annotated[str, Meta(description="Pass it as the argument cursor to get the next part.")]
_Near = Annotated[list[str], Meta(description="Existing names that are similar.")]
_Partial = Annotated[str, Meta(description="The progress of indexing, while pages are still being indexed.")]


class PageLocation(Struct, kw_only=True, omit_defaults=True):
    """A page or a place in it."""

    path: Annotated[str, Meta(description="The path of the page, for the tool that reads it.")]
    title: str
    section: str
    heading: str | UnsetType = UNSET
    anchor: str | UnsetType = UNSET
    uri: Annotated[str, Meta(description="The URI of the page as a resource.")]
    url: Annotated[str | UnsetType, Meta(description="The URL of the published page.")] = UNSET


class Hit(PageLocation, kw_only=True, omit_defaults=True):
    snippet: str
    highlights: Annotated[
        list[tuple[int, int]] | UnsetType, Meta(description="Positions of matching words in the snippet.")
    ] = UNSET


class SearchResults(Struct, kw_only=True, omit_defaults=True):
    """The pages that match a query, best first."""

    query: str
    results: list[Hit]
    total: int
    has_more: bool
    next_cursor: _Cursor | UnsetType = UNSET
    corrected: Annotated[str | UnsetType, Meta(description="The corrected query that was used instead.")] = UNSET
    suggestion: str | UnsetType = UNSET
    progress: _Partial | UnsetType = UNSET


class SectionInfo(Struct, kw_only=True, omit_defaults=True):
    name: str
    title: str
    pages: int
    uri: str


class Sections(Struct, kw_only=True, omit_defaults=True):
    title: str
    sections: list[SectionInfo]
    total_pages: int
    # for other shapes
    total_sections: int | UnsetType = UNSET


class SectionPage(Struct, kw_only=True, omit_defaults=True):
    """A page of a section or a part of it."""

    path: str
    title: str
    description: str | UnsetType = UNSET
    content: str
    is_part: Annotated[bool | UnsetType, Meta(description="Whether this is only a part of the page.")] = UNSET
    uri: str
    url: str | UnsetType = UNSET


class SectionText(Struct, kw_only=True, omit_defaults=True):
    """The pages of a section; if it does not exist, the existing sections."""

    section: str
    title: str | UnsetType = UNSET
    pages: list[SectionPage] | UnsetType = UNSET
    total: int | UnsetType = UNSET
    next_cursor: _Cursor | UnsetType = UNSET
    error: str | UnsetType = UNSET
    near: _Near | UnsetType = UNSET
    available_sections: list[str] | UnsetType = UNSET


class HeadingInfo(Struct, kw_only=True):
    title: str
    anchor: str
    level: int


class PageText(Struct, kw_only=True, omit_defaults=True):
    """A page or one of its sections; if it does not exist, similar names."""

    path: str
    title: str | UnsetType = UNSET
    section: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    heading: str | UnsetType = UNSET
    anchor: str | UnsetType = UNSET
    headings: list[HeadingInfo] | UnsetType = UNSET
    uri: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    next_cursor: _Cursor | UnsetType = UNSET
    error: str | UnsetType = UNSET
    near: _Near | UnsetType = UNSET


class Example(PageLocation, kw_only=True, omit_defaults=True):
    language: str
    code: str
    before: Annotated[str | UnsetType, Meta(description="The line that introduces it.")] = UNSET


class Document(PageLocation, kw_only=True, omit_defaults=True):
    """A page with its examples."""

    snippets: list[str]
    count: int


class CodeExamples(Struct, kw_only=True, omit_defaults=True):
    """Code examples, best first."""

    words: str
    examples: list[Example]
    total: int
    has_more: bool
    next_cursor: _Cursor | UnsetType = UNSET
    languages: Annotated[list[str] | UnsetType, Meta(description="The languages of existing examples.")] = UNSET
    suggestion: str | UnsetType = UNSET
    progress: _Partial | UnsetType = UNSET
    # for other shapes
    documents: list[Document] | UnsetType = UNSET
    total_documents: int | UnsetType = UNSET


class Description(PageLocation, kw_only=True, omit_defaults=True):
    content: str


class LookupResults(Struct, kw_only=True, omit_defaults=True):
    """The descriptions of a name, best first; otherwise similar names."""

    name: str
    results: list[Description]
    total: int
    error: str | UnsetType = UNSET
    suggestion: str | UnsetType = UNSET
    near: _Near | UnsetType = UNSET
    progress: _Partial | UnsetType = UNSET
    # for other shapes
    found: list[Description] | UnsetType = UNSET
    found_total: int | UnsetType = UNSET
    first_title: str | UnsetType = UNSET
    first_url: str | UnsetType = UNSET
    first_content: str | UnsetType = UNSET


RESULTS: dict[Doing, tuple[type[Struct], tuple[str, ...]]] = {
    "search": (SearchResults, ()),
    "list_sections": (Sections, ("total_sections",)),
    "read_section": (SectionText, ()),
    "read_page": (PageText, ()),
    "find_code": (CodeExamples, ("documents", "total_documents")),
    "look_up": (LookupResults, ("found", "found_total", "first_title", "first_url", "first_content")),
}
"""The result of each operation, and its fields that are hidden by default."""

_OF = "of"

Project = Callable[[dict[str, Any]], dict[str, Any]]


class Shape(Struct, frozen=True):
    """The type of a tool's result, and the function that converts the data to it."""

    kind: type[Struct]
    project: Project


def shape_of(does: Doing, said: Mapping[str, Any], where: str) -> Shape:
    """Return the default shape, or the shape described by a `result` table.

    A field is set to the original field, `total = "total"`; fields of list items are in a table that names the list
    with `of`: `results = { of = "results", title = "title" }`. Raises ConfigurationError with a message that begins
    with `where`.
    """
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
                raise ConfigurationError(f"{where}.{name}: {source} is not a list; write {name} = {source!r}")
            below = _shape(item, {key: one for key, one in inner.items() if key != _OF}, f"{where}.{name}")
            member, project = list[below.kind], below.project  # type: ignore[name-defined]
            if not field.required:
                member = member | UnsetType
        made.append((name, member) if field.required else (name, member, UNSET))
        steps.append((name, source, project))

    shaped = defstruct(kind.__name__, made, kw_only=True, omit_defaults=True, namespace={"__doc__": kind.__doc__})
    return Shape(shaped, _projection(steps))


def _item(kind: Any) -> type[Struct] | None:
    """Return the struct of a list's items, or None."""
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
