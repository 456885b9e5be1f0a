"""Creates the tools over documents, with the arguments, results and texts that their wording specifies."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any

from msgspec import UNSET, Meta, to_builtins

from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import CallToolResult, ContentBlock, ResourceLink
from mcpd.server import Server
from mcpd.server.entries import tool_entry
from mcpd.server.extensions.ui.results import VIEW_DATA, view_result
from mcpd.server.registry.entries import ToolEntry
from mcpd.sources.docs.readers.markdown import fenced
from mcpd.sources.docs.tool_results import (
    CodeExamples,
    LookupResults,
    PageLocation,
    PageText,
    SearchResults,
    Sections,
    SectionText,
    shape_of,
)
from mcpd.sources.docs.wording import Argument, Wording
from mcpd.sources.tables import Doing


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
    """Return links to the pages of a result."""
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
    """Return one tool, which calls `answer`. `names` are the names of all tools, `ui` is the option of that name.

    Raises ConfigurationError for an invalid `result` table, and RegistrationError for other mistakes.
    """
    options: Any = {
        "name": wording.name,
        "title": wording.title,
        "description": wording.description,
        "annotations": {"title": wording.title, **_READ_ONLY},
        "ui": ui,
    }
    return tool_entry(server.catalog, server.extensions.values(), _function(wording, answer, names), options)


def _function(wording: Wording, answer: Answer, names: dict[Doing, str]) -> Callable[..., Awaitable[CallToolResult]]:
    """Return a function with the signature of the wording that calls `answer`."""
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
