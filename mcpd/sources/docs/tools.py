"""Creates the tools over documents, with the arguments, results and texts that their wording specifies.

The results are structs, from which the output schemas are made. Fields with the value UNSET are left out. The fields
after a line `# for other shapes` are hidden by default; tables in mcpd.toml may use them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated, Any, TypeAlias, get_args, get_origin

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, to_builtins
from msgspec.structs import fields

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import CallToolResult, ContentBlock, ResourceLink
from mcpd.server import Server
from mcpd.server.entries import tool_entry
from mcpd.server.extensions.ui.results import VIEW_DATA, view_result
from mcpd.server.registry.entries import ToolEntry
from mcpd.sources.docs.readers.markdown import fenced
from mcpd.sources.tables import Doing
from .wording import Argument, Wording

_Text: TypeAlias = str | UnsetType
_Cursor = Annotated[str, Meta(description="Pass it as the argument cursor to get the next part.")]
_Near = Annotated[list[str], Meta(description="Existing names that are similar.")]
_Partial = Annotated[str, Meta(description="The progress of indexing, while pages are still being indexed.")]


class _Result(Struct, omit_defaults=True):
    """A result or a part of one."""


class PageLocation(_Result, kw_only=True):
    """A page or a place in it."""

    path: Annotated[str, Meta(description="The path of the page, for the tool that reads it.")]
    title: str
    section: str
    heading: _Text = UNSET
    anchor: _Text = UNSET
    uri: Annotated[str, Meta(description="The URI of the page as a resource.")]
    url: Annotated[_Text, Meta(description="The URL of the published page.")] = UNSET


class Hit(PageLocation, kw_only=True):
    snippet: str
    highlights: Annotated[
        list[tuple[int, int]] | UnsetType, Meta(description="Positions of matching words in the snippet.")
    ] = UNSET


class SearchResults(_Result):
    """The pages that match a query, best first."""

    query: str
    results: list[Hit]
    total: int
    has_more: bool
    next_cursor: _Cursor | UnsetType = UNSET
    corrected: Annotated[_Text, Meta(description="The corrected query that was used instead.")] = UNSET
    suggestion: _Text = UNSET
    progress: _Partial | UnsetType = UNSET


class SectionInfo(_Result):
    name: str
    title: str
    pages: int
    uri: str


class Sections(_Result):
    title: str
    sections: list[SectionInfo]
    total_pages: int
    # for other shapes
    total_sections: int | UnsetType = UNSET


class SectionPage(_Result, kw_only=True):
    """A page of a section or a part of it."""

    path: str
    title: str
    description: _Text = UNSET
    content: str
    is_part: Annotated[bool | UnsetType, Meta(description="Whether this is only a part of the page.")] = UNSET
    uri: str
    url: _Text = UNSET


class SectionText(_Result):
    """The pages of a section; if it does not exist, the existing sections."""

    section: str
    title: _Text = UNSET
    pages: list[SectionPage] | UnsetType = UNSET
    total: int | UnsetType = UNSET
    next_cursor: _Cursor | UnsetType = UNSET
    error: _Text = UNSET
    near: _Near | UnsetType = UNSET
    available_sections: list[str] | UnsetType = UNSET


class HeadingInfo(_Result):
    title: str
    anchor: str
    level: int


class PageText(_Result):
    """A page or one of its sections; if it does not exist, similar names."""

    path: str
    title: _Text = UNSET
    section: _Text = UNSET
    text: _Text = UNSET
    heading: _Text = UNSET
    anchor: _Text = UNSET
    headings: list[HeadingInfo] | UnsetType = UNSET
    uri: _Text = UNSET
    url: _Text = UNSET
    next_cursor: _Cursor | UnsetType = UNSET
    error: _Text = UNSET
    near: _Near | UnsetType = UNSET


class Example(PageLocation, kw_only=True):
    language: str
    code: str
    before: Annotated[_Text, Meta(description="The line that introduces it.")] = UNSET


class Document(PageLocation, kw_only=True):
    snippets: list[str]
    count: int


class CodeExamples(_Result):
    """Code examples, best first."""

    words: str
    examples: list[Example]
    total: int
    has_more: bool
    next_cursor: _Cursor | UnsetType = UNSET
    languages: Annotated[list[str] | UnsetType, Meta(description="The languages of existing examples.")] = UNSET
    suggestion: _Text = UNSET
    progress: _Partial | UnsetType = UNSET
    # for other shapes
    documents: list[Document] | UnsetType = UNSET
    total_documents: int | UnsetType = UNSET


class Description(PageLocation, kw_only=True):
    content: str


class LookupResults(_Result):
    """The descriptions of a name, best first; otherwise similar names."""

    name: str
    results: list[Description]
    total: int
    error: _Text = UNSET
    suggestion: _Text = UNSET
    near: _Near | UnsetType = UNSET
    progress: _Partial | UnsetType = UNSET
    # for other shapes
    found: list[Description] | UnsetType = UNSET
    found_total: int | UnsetType = UNSET
    first_title: _Text = UNSET
    first_url: _Text = UNSET
    first_content: _Text = UNSET


RESULTS: dict[Doing, tuple[type[Struct], tuple[str, ...]]] = {
    "search": (SearchResults, ()),
    "list_sections": (Sections, ("total_sections",)),
    "read_section": (SectionText, ()),
    "read_page": (PageText, ()),
    "find_code": (CodeExamples, ("documents", "total_documents")),
    "look_up": (LookupResults, ("found", "found_total", "first_title", "first_url", "first_content")),
}
"""The result of each operation, and its fields that are hidden by default."""

Project = Callable[[dict[str, Any]], dict[str, Any]]


class Shape(Struct, frozen=True):
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
        source = inner.get("of", name) if inner is not None else value
        field = known.get(source) if isinstance(source, str) else None
        if field is None or not name.isidentifier():
            raise ConfigurationError(f"{where}.{printable(name)}: expected one of {', '.join(known)}")

        member, project = field.type, None
        if inner is not None:
            item = _item(member)
            if item is None:
                raise ConfigurationError(f"{where}.{name}: {source} is not a list; write {name} = {source!r}")
            below = _shape(item, {key: one for key, one in inner.items() if key != "of"}, f"{where}.{name}")
            member, project = list[below.kind], below.project  # type: ignore[name-defined]
            if not field.required:
                member = member | UnsetType
        made.append((name, member) if field.required else (name, member, UNSET))
        steps.append((name, source, project))

    shaped = defstruct(kind.__name__, made, kw_only=True, omit_defaults=True, namespace={"__doc__": kind.__doc__})
    return Shape(shaped, _projection(steps))


def _item(kind: Any) -> type[Struct] | None:
    # Return the struct of a list's items, or None.
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


def text_of(result: Any, name: str, tools: dict[Doing, str], cursor: str) -> str:
    """Return the text of a result. `tools` has the names of all tools, `cursor` the name of that argument."""
    writers: dict[type, Any] = {
        SearchResults: _search_text, Sections: _sections_text, SectionText: _section_text, PageText: _page_text,
        CodeExamples: _code_text, LookupResults: _lookup_text,
    }  # fmt: skip
    lines = list(writers[type(result)](result, tools))
    following = getattr(result, "next_cursor", UNSET)
    if following is not UNSET:
        lines += ["", f'[To continue, call {name} again with {cursor} = "{following}".]']
    progress = getattr(result, "progress", UNSET)
    if progress is not UNSET:
        lines += ["", f"[Still being indexed: {progress}.]"]
    return "\n".join(lines)


def links_of(result: Any) -> list[ContentBlock]:
    if not isinstance(result, SearchResults | LookupResults):
        return []
    pages = {one.uri: one for one in result.results}
    return [
        ResourceLink(uri=uri, name=one.path, title=one.title, mime_type="text/markdown") for uri, one in pages.items()
    ]


def _search_text(found: SearchResults, tools: dict[Doing, str]) -> Iterator[str]:
    if not found.results:
        yield f"No page matches '{printable(found.query)}'." + _sentence(found.suggestion)
        return
    instead = f" (searched for {found.corrected!r})" if found.corrected is not UNSET else ""
    yield f"{len(found.results)} of {found.total} pages for '{printable(found.query)}'{instead}:"
    for number, hit in enumerate(found.results, 1):
        yield ""
        yield f"{number}. {_place(hit)}"
        yield f"   {hit.snippet}"

    if "read_page" in tools:
        yield ""
        yield f"[To read a page, call {tools['read_page']} with its path, and with a heading for one section only.]"


def _sections_text(found: Sections, tools: dict[Doing, str]) -> Iterator[str]:
    yield f"{found.title}: {found.total_pages} pages"
    for one in found.sections:
        title = f" ({one.title})" if one.title and one.title != one.name else ""
        yield f"- {one.name}{title}: {one.pages} {'page' if one.pages == 1 else 'pages'}"


def _section_text(found: SectionText, tools: dict[Doing, str]) -> Iterator[str]:
    if found.error is not UNSET or found.pages is UNSET:
        yield str(found.error)
        return
    yield f"Section {found.section}: {len(found.pages)} of {found.total} pages"
    for page in found.pages:
        part = " (a part)" if page.is_part is not UNSET else ""
        yield ""
        yield f"==== {page.title} — {page.path}{part} ===="
        yield page.content


def _page_text(found: PageText, tools: dict[Doing, str]) -> Iterator[str]:
    if found.error is not UNSET:
        search = tools.get("search")
        yield f"{found.error}." + (f" To find pages by their content, use {search}." if search else "")
        return
    yield f"{found.title} — {found.path}" + (f"#{found.anchor}" if found.anchor is not UNSET else "")
    if found.url is not UNSET:
        yield str(found.url)
    yield ""
    yield str(found.text)
    if found.next_cursor is not UNSET and found.headings is not UNSET:
        yield ""
        yield "[Its headings: " + "; ".join(one.title for one in found.headings[:40]) + "]"


def _code_text(found: CodeExamples, tools: dict[Doing, str]) -> Iterator[str]:
    if not found.examples:
        languages = f" Languages with examples: {', '.join(found.languages)}." if found.languages else ""
        yield f"No example matches '{printable(found.words)}'." + _sentence(found.suggestion) + languages
        return
    yield f"{len(found.examples)} of {found.total} examples for '{printable(found.words)}':"
    for one in found.examples:
        yield ""
        yield _place(one)
        if one.before is not UNSET:
            yield str(one.before)
        yield fenced(one.code.rstrip("\n"), one.language)


def _lookup_text(found: LookupResults, tools: dict[Doing, str]) -> Iterator[str]:
    if not found.results:
        search = tools.get("search")
        yield f"{found.error}.{_sentence(found.suggestion)}" + (f" To search, use {search}." if search else "")
        return
    for at, one in enumerate(found.results):
        if at:
            yield ""
        yield f"==== {_place(one)} ===="
        yield one.content


def _place(one: PageLocation) -> str:
    heading = f" › {one.heading}" if one.heading is not UNSET else ""
    anchor = f"#{one.anchor}" if one.anchor is not UNSET else ""
    url = f" <{one.url}>" if one.url is not UNSET else ""
    return f"{one.title}{heading} — {one.path}{anchor}{url}"


def _sentence(text: object) -> str:
    return "" if text is UNSET else f" {text}."


_READ_ONLY = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}

Answer = Callable[..., Awaitable[Any]]


def tool_of(server: Server, answer: Answer, wording: Wording, names: dict[Doing, str], ui: str) -> ToolEntry:
    # `names` are the names of all tools. Raises ConfigurationError for an invalid `result` table.
    options: Any = {
        "name": wording.name,
        "title": wording.title,
        "description": wording.description,
        "annotations": {"title": wording.title, **_READ_ONLY},
        "ui": ui,
    }
    return tool_entry(server.catalog, server.extensions.values(), _function(wording, answer, names), options)


def _function(wording: Wording, answer: Answer, names: dict[Doing, str]) -> Callable[..., Awaitable[CallToolResult]]:
    # Return a function with the signature of the wording that calls `answer`.
    shape = shape_of(wording.does, wording.result, f"docs.tools.{wording.name}.result")
    inner: dict[str, str] = {}
    fixed: dict[str, Any] = {} if wording.section is None else {"section": wording.section}
    parameters: list[inspect.Parameter] = []
    for name, argument in wording.arguments.items():
        if not argument.hidden:
            inner[argument.name] = name
            parameters.append(_parameter(argument))
        elif argument.default:
            fixed[name] = argument.default
    cursor = wording.arguments["cursor"].name if "cursor" in wording.arguments else "cursor"

    async def call(**given: Any) -> CallToolResult:
        """Return a result as text, as data with the names for callers, and as data for the View."""
        result = await answer(**fixed, **{inner[name]: value for name, value in given.items()})
        text = text_of(result, wording.name, names, cursor)
        data = to_builtins(result)
        is_error = "error" in data and "results" not in data
        return view_result([text, *links_of(result)], shape.project(data), meta={VIEW_DATA: data}, is_error=is_error)

    call.__signature__ = inspect.Signature(parameters, return_annotation=shape.kind)  # type: ignore[attr-defined]
    call.__annotations__ = {**{each.name: each.annotation for each in parameters}, "return": shape.kind}
    call.__name__ = wording.name
    return call


def _parameter(argument: Argument) -> inspect.Parameter:
    default = inspect.Parameter.empty if argument.is_required else argument.default
    annotation: Any = Annotated[argument.kind, Meta(description=argument.description)]
    return inspect.Parameter(argument.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
