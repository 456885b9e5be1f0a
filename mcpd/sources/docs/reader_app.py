"""The documentation reader: a View that opens for results of the tools over documents.

The View loads further pages, sections and search results with a tool of its own, which returns pages as safe HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from msgspec import Meta

from mcpd.errors import ConfigurationError, ToolError
from mcpd.protocol.types.features import TextContent
from mcpd.server import Server
from mcpd.server.extensions.ui.apps import AppEntry
from mcpd.server.extensions.ui.constants import UI
from mcpd.server.extensions.ui.pages import bundled_page
from mcpd.server.extensions.ui.results import ViewResult
from mcpd.server.registry.entries import ToolEntry

if TYPE_CHECKING:
    from mcpd.server.extensions.ui.extension import AppsExtension
    from .library import Library
    from .page import Page

_HITS: Final = 10
_MAX_LISTED: Final = 2_000
# In characters. Hosts limit messages to a few megabytes.
_MAX_HTML: Final = 2_500_000


UI_NAME: Final = "docs-reader"
"""The value of the option `ui` for the tools of the library."""

TOOL_NAME: Final = "show_docs"


class ReaderParts:
    def __init__(self, server: Server, library: Callable[[], Library], uri: str) -> None:
        """`library` is called when the tool is first used; `uri` is the prefix of the URIs of pages."""
        named = (UI_NAME, "Documentation", "Shows documents and search results")
        self.page: AppEntry = bundled_page(server.name, "reader", TOOL_NAME, {"prefix": uri}, named)
        # Announces Views from the start; the HTML is built when it is read.
        cast("AppsExtension", server.extensions[UI]).apps  # noqa: B018
        self._server = server
        self._library = library

    def tool(self) -> ToolEntry:
        """Return the tool that the View calls. It requires the extension `ui`."""
        from mcpd.server.entries import tool_entry

        options: Any = {
            "name": TOOL_NAME,
            "title": "Content for the documentation reader",
            "visibility": ["app"],
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        }
        return tool_entry(self._server.catalog, self._server.extensions.values(), self._show, options)

    async def _show(
        self,
        path: str | None = None,
        anchor: str | None = None,
        query: Annotated[str, Meta(max_length=1000)] | None = None,
        section: str | None = None,
        kind: str | None = None,
        cursor: str | None = None,
    ) -> ViewResult:
        """Show a page, search results, the pages of a section, or the sections."""
        from .page import BadCursor, UnknownPage, UnknownSection, UnreadablePage

        library = self._library()
        shown: Coroutine[Any, Any, dict[str, Any]]
        if query is not None:
            shown = _found(library, query, section, kind, cursor)
        elif path is not None:
            shown = _page(library, path)
        elif section is not None:
            shown = _listed(library, section)
        else:
            shown = _sections(library)

        try:
            data = await shown
        except (UnknownPage, UnknownSection) as error:
            near = f"; similar names: {', '.join(error.near[:5])}" if error.near else ""
            raise ToolError(f"{error}{near}") from None
        except (UnreadablePage, BadCursor, ConfigurationError) as error:
            raise ToolError(str(error)) from None

        # `view_result` would send the data twice, and pages may be large.
        return ViewResult(content=[TextContent("Shown in the reader.")], structured_content=data)


async def _page(library: Library, path: str) -> dict[str, Any]:
    from mcpd.server.functions.threads import run_in_thread
    from .rendering import MAX_CHARACTERS, PageImages, render

    page = await library.page(path)
    names = await library.names()
    html: str = await run_in_thread(render, page, names, PageImages(library.folder, page.path, library.settings))
    beside = await library.list_pages(page.section)
    at = next((number for number, info in enumerate(beside) if info.path == page.path), None)
    return {
        "path": page.path,
        "title": page.title,
        "section": page.section,
        "section_title": (await _titles(library)).get(page.section) or page.section,
        "html": html[:_MAX_HTML],
        "toc": [{"level": one.level, "title": one.title, "anchor": one.anchor} for one in _contents(page)],
        "is_cut": len(page.text) > MAX_CHARACTERS or len(html) > _MAX_HTML,
        **({"previous": _place(beside[at - 1])} if at else {}),
        **({"next": _place(beside[at + 1])} if at is not None and at + 1 < len(beside) else {}),
    }


def _contents(page: Page) -> list[Any]:
    # Return the headings for a table of contents: two levels, without the title.
    found = [one for one in page.headings if one.level > 1 or one.title != page.title] or list(page.headings)
    top = min((one.level for one in found), default=1)
    return [one for one in found if one.level <= top + 1][:300]


async def _found(
    library: Library, query: str, section: str | None, kind: str | None, cursor: str | None
) -> dict[str, Any]:
    found = await library.search(query, section=section, kind=kind, limit=_HITS, cursor=cursor)
    titles = await _titles(library)
    return {
        "query": query,
        "results": [
            {
                **_place(hit),
                "section": titles.get(hit.section) or hit.section,
                "heading": hit.heading,
                "anchor": hit.anchor,
                "snippet": hit.snippet,
                "highlights": hit.highlights,
            }
            for hit in found.hits
        ],
        "total": found.total,
        "corrected": found.corrected,
        "next_cursor": found.next_cursor,
    }


async def _listed(library: Library, section: str) -> dict[str, Any]:
    pages = await library.list_pages(section)
    described = [{**_place(one), "description": one.description} for one in pages[:_MAX_LISTED]]
    return {"section": section, "title": (await _titles(library)).get(section) or section, "pages": described}


async def _sections(library: Library) -> dict[str, Any]:
    there = await library.overview()
    kinds = sorted({one.kind for one in await library.list_pages()})
    return {
        "title": there.title,
        "sections": [{"name": one.name, "title": one.title, "pages": one.pages} for one in there.sections],
        "total_pages": there.pages,
        "kinds": kinds,
        "is_indexing": not there.progress.is_complete,
    }


async def _titles(library: Library) -> dict[str, str]:
    # Return the titles of sections by name.
    return {one.name: one.title for one in (await library.overview()).sections}


def _place(page: Any) -> dict[str, str]:
    return {"path": page.path, "title": page.title}
