"""What the reader needs of a server: its page, and the tool that only the page calls.

The page opens for results of the tools over documents, whatever they are called. All that it goes on to, other pages,
sections and searches, it asks of its own tool, which gives pages as safe HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from msgspec import Meta

from mcpd.errors import ConfigurationError, ToolError
from mcpd.extensions.ui.apps import AppEntry
from mcpd.extensions.ui.constants import UI
from mcpd.extensions.ui.results import ViewResult
from mcpd.extensions.ui.views.entry import bundled_page
from mcpd.protocol.types.content import TextContent
from mcpd.server import Server
from mcpd.server.registry.entries import ToolEntry

if TYPE_CHECKING:
    from mcpd.extensions.ui.extension import AppsExtension
    from mcpd.sources.docs.library import Library
    from mcpd.sources.docs.page import Page

_HITS: Final = 10
_MOST_LISTED: Final = 2_000
_MOST_HTML: Final = 2_500_000
"""Characters. Hosts take messages of some megabytes."""


class ReaderParts:
    """The reader of one library. `prefix` is put before the names of its page and its tool."""

    def __init__(self, server: Server, library: Callable[[], Library], *, prefix: str = "", uri: str = "") -> None:
        """`library` is asked for when the tool is first called; `uri` is what addresses of its pages begin with."""
        self.ui = f"{prefix}docs-reader"
        """What the tools of the library give as `ui=`."""
        self.name = f"{prefix}show_docs"
        """The name of the reader's own tool."""
        named = (self.ui, "Documentation", "Shows documents, and what was found in them")
        self.page: AppEntry = bundled_page(server.name, "reader", self.name, {"prefix": uri} if uri else {}, named)
        # Clients are told at once that there are Views; the page itself is made when it is asked for.
        cast("AppsExtension", server.extensions[UI]).apps  # noqa: B018
        self._server = server
        self._library = library

    def tool(self) -> ToolEntry:
        """The tool that the page calls; `requires` of it is the extension `ui`."""
        from mcpd.server.entries import tool_entry

        options: Any = {
            "name": self.name,
            "title": "What the reader shows",
            "visibility": ["app"],
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        }
        entry = tool_entry(self._server.catalog, self._server.extensions.values(), self._show, options)
        assert entry.requires == UI
        return entry

    async def _show(
        self,
        path: str | None = None,
        anchor: str | None = None,
        query: Annotated[str, Meta(max_length=1000)] | None = None,
        section: str | None = None,
        kind: str | None = None,
        cursor: str | None = None,
    ) -> ViewResult:
        """What the reader shows: a page, what fits a query, the pages of a section, or else the sections."""
        from mcpd.sources.docs.page import UnreadablePage
        from mcpd.sources.docs.results import BadCursor, UnknownPage, UnknownSection

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
            near = f"; near it: {', '.join(error.near[:5])}" if error.near else ""
            raise ToolError(f"{error}{near}") from None
        except (UnreadablePage, BadCursor, ConfigurationError) as error:
            raise ToolError(str(error)) from None
        # Once only, where `view_result` would send it twice: a page may be large, and can be asked for again.
        return ViewResult(content=[TextContent("Shown in the reader.")], structured_content=data)


async def _page(library: Library, path: str) -> dict[str, Any]:
    from mcpd.server.functions.threads import run_in_thread
    from mcpd.sources.docs.rendering import MOST_CHARACTERS, PageImages, render

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
        "html": html[:_MOST_HTML],
        "toc": [{"level": one.level, "title": one.title, "anchor": one.anchor} for one in _contents(page)],
        "is_cut": len(page.text) > MOST_CHARACTERS or len(html) > _MOST_HTML,
        **({"previous": _place(beside[at - 1])} if at else {}),
        **({"next": _place(beside[at + 1])} if at is not None and at + 1 < len(beside) else {}),
    }


def _contents(page: Page) -> list[Any]:
    """The headings that a table of contents has: not the title again, and no deeper than two levels below the first."""
    found = [one for one in page.headings if one.level > 1 or one.title != page.title] or list(page.headings)
    top = min((one.level for one in found), default=1)
    return [one for one in found if one.level <= top + 1][:300]


async def _found(
    library: Library, query: str, section: str | None, kind: str | None, cursor: str | None
) -> dict[str, Any]:
    found = await library.search(query, section=section, kind=kind, limit=_HITS, cursor=cursor)
    titles = await _titles(library)
    return {
        "query": found.query,
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
    described = [{**_place(one), "description": one.description} for one in pages[:_MOST_LISTED]]
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
    """The titles of sections, by their names."""
    return {one.name: one.title for one in (await library.overview()).sections}


def _place(one: Any) -> dict[str, str]:
    return {"path": one.path, "title": one.title}
