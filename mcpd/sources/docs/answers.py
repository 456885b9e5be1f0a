"""Computes the results of the tools over documents.

A search without a match also has a result: it suggests names that exist and are similar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from mcpd.errors import ToolError
from mcpd.protocol.printable import printable
from .page import BadCursor, Place, UnknownPage, UnknownSection, UnreadablePage
from .tools import (
    CodeExamples,
    Description,
    Document,
    Example,
    HeadingInfo,
    Hit,
    LookupResults,
    PageText,
    SearchResults,
    SectionInfo,
    SectionPage,
    Sections,
    SectionText,
)

if TYPE_CHECKING:
    from .addresses import Addresses
    from .library import Library
    from .page import Heading, Page, PageInfo, Progress

# Characters of pages in one result. The rest is available with the next cursor.
MAX_CHARS = 20_000

# The name of the section for pages that are in no section.
_TOP_SECTION = "."
_MAX_HEADINGS = 200
_NEAR = 5


class Answers:
    """The operations of the tools. They raise ToolError for arguments that are not valid."""

    def __init__(
        self,
        library: Callable[[], Library],
        addresses: Addresses,
        paths: Callable[[], Iterable[str]],
        when_indexed: Callable[[], None],
    ) -> None:
        # `library` may create the library. `when_indexed` is called after the first search that found all pages
        # indexed.
        self._library = library
        self._addresses = addresses
        self._paths = paths
        self._when_indexed = when_indexed
        self._was_indexed = False

    @property
    def library(self) -> Library:
        return self._library()

    async def page_at(self, reference: str) -> tuple[str, str]:
        """Return the text of a page, or of the section named after `#`, and its MIME type. Raises UnknownPage."""
        place, fragment = self._addresses.path_in(reference)
        page = await self._page(reference, place)
        has_fragment = fragment and page.path != reference
        found = _heading(page, fragment) if has_fragment else None
        if has_fragment and found is None:
            raise UnknownPage(reference, [])
        return _text_below(page, found), page.mime_type

    async def search(
        self, query: str, section: str | None = None, kind: Any = None, limit: int = 5, cursor: str | None = None
    ) -> SearchResults:
        if not query.strip():
            raise ToolError("query: is required; describe in a few words what to search for")
        with _argument_errors():
            found = await self.library.search(
                query, section=_library_section(section), kind=kind, limit=limit, cursor=cursor
            )

        if found.progress.is_complete and not self._was_indexed:
            self._was_indexed = True
            self._when_indexed()

        hits = [
            Hit(**self._location(hit), snippet=hit.snippet, highlights=hit.highlights or UNSET) for hit in found.hits
        ]
        return SearchResults(
            query=query,
            results=hits,
            total=found.total,
            has_more=found.next_cursor is not None,
            next_cursor=found.next_cursor or UNSET,
            corrected=found.corrected or UNSET,
            suggestion=UNSET if hits else "No page matches; try fewer or other words, or no section",
            progress=_partial(found.progress),
        )

    async def list_sections(self) -> Sections:
        overview = await self.library.overview()
        sections = [
            SectionInfo(
                name=section.name or _TOP_SECTION,
                title=section.title,
                pages=section.pages,
                uri=self._addresses.section(section.name),
            )
            for section in overview.sections
        ]
        return Sections(
            title=overview.title, sections=sections, total_pages=overview.pages, total_sections=len(sections)
        )

    async def read_section(self, section: str, cursor: str | None = None) -> SectionText:
        # The result has as many pages as fit into it, starting at the cursor.
        try:
            infos = await self.library.list_pages(_library_section(section))
        except UnknownSection as error:
            return await self._no_such_section(section, error.near)

        at, begin = _page_and_offset(cursor, len(infos))
        pages: list[SectionPage] = []
        room, following = MAX_CHARS, ""
        while at < len(infos) and not following:
            info = infos[at]
            page = await self._page_or_none(info.path)
            text = "" if page is None else page.text
            part, end = _slice(text, begin, room)
            if part or not text:
                pages.append(self._section_page(page, info, part, is_part=begin > 0 or end < len(text)))
            room -= len(part)
            if end < len(text):
                following = f"{at}:{end}"
            else:
                at, begin = at + 1, 0
                following = f"{at}:0" if at < len(infos) and room < MAX_CHARS // 20 else ""

        return SectionText(
            section=section,
            title=await self._section_title(section),
            pages=pages,
            total=len(infos),
            next_cursor=following or UNSET,
        )

    async def read_page(self, path: str, heading: str | None = None, cursor: str | None = None) -> PageText:
        place, fragment = self._addresses.path_in(path)
        try:
            page = await self._page(path, place)
        except UnreadablePage as error:
            return PageText(path=path, error=f"The page {printable(path)} cannot be read: {error}")
        except UnknownPage as error:
            text = f"Page not found: {printable(path)}" if path.strip() else "path: is required; name a page"
            near = f"; similar pages: {', '.join(error.near)}" if error.near else ""
            return PageText(path=path, error=f"{text}{near}", near=error.near)

        wanted = heading or (fragment if page.path != path else "")
        found = _heading(page, wanted) if wanted else None
        if wanted and found is None:
            titles = [heading.title for heading in page.headings]
            similar = get_close_matches(wanted, titles, _NEAR, 0.4) or titles[: _NEAR * 4]
            text = f"{page.path} has no heading {printable(wanted)}"
            text += f"; its headings: {', '.join(similar)}" if similar else ""
            return PageText(path=page.path, title=page.title, error=text, near=similar)

        whole = _text_below(page, found)
        part, end = _slice(whole, _offset(cursor, len(whole)), MAX_CHARS)
        headings = [HeadingInfo(title=one.title, anchor=one.anchor, level=one.level) for one in page.headings]
        return PageText(
            **self._location(_place(page, found)),
            text=part,
            headings=headings[:_MAX_HEADINGS] if found is None and headings else UNSET,
            next_cursor=str(end) if end < len(whole) else UNSET,
        )

    async def find_code(
        self,
        words: str,
        language: str | None = None,
        section: str | None = None,
        limit: int = 5,
        cursor: str | None = None,
    ) -> CodeExamples:
        if not words.strip() and not language:
            raise ToolError("words: is required; describe what the example should show")
        with _argument_errors():
            found = await self.library.find_code(
                words, language=language, section=_library_section(section), limit=limit, cursor=cursor
            )

        examples = [
            Example(
                **self._location(hit),
                language=hit.language,
                code=_slice(hit.text, 0, MAX_CHARS // 4)[0],
                before=hit.before or UNSET,
            )
            for hit in found.hits
        ]
        documents = _documents(examples)
        return CodeExamples(
            words=words,
            examples=examples,
            total=found.total,
            has_more=found.next_cursor is not None,
            next_cursor=found.next_cursor or UNSET,
            languages=found.languages if not examples else UNSET,
            suggestion=UNSET if examples else "No example matches; try other words or another language",
            progress=_partial(found.progress),
            documents=documents,
            total_documents=len(documents),
        )

    async def look_up(self, name: str, section: str | None = None, limit: int = 3) -> LookupResults:
        if not name.strip():
            raise ToolError("name: is required; give the name to look up")
        with _argument_errors():
            found = await self.library.look_up(name, section=_library_section(section), limit=limit)
        results = [Description(**self._location(entry), content=entry.text) for entry in found.entries]
        results = results or await self._mentions(name, section, limit)
        if not results:
            near = f"similar names: {', '.join(found.near)}" if found.near else "no name is similar"
            return LookupResults(
                name=name,
                results=[],
                total=0,
                error=f"No documentation found for: {printable(name)}",
                suggestion=f"{near[0].upper()}{near[1:]}; or search for it in other words",
                near=found.near or UNSET,
                progress=_partial(found.progress),
            )

        first = results[0]
        return LookupResults(
            name=name,
            results=results,
            total=len(results),
            progress=_partial(found.progress),
            found=results,
            found_total=len(results),
            first_title=first.title,
            first_url=first.url,
            first_content=first.content,
        )

    async def _mentions(self, name: str, section: str | None, limit: int) -> list[Description]:
        # Return places that mention a name in running text. Used if no heading and no list item has that name.
        phrase = name.replace('"', " ").strip()
        if not phrase:
            return []
        words = r"\s+".join(map(re.escape, phrase.split()))
        written = re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
        found = await self.library.search(f'"{phrase}"', section=_library_section(section), limit=limit)
        results = []
        for hit in found.hits:
            page = await self._page_or_none(hit.path)
            mention = None if page is None else _mention(page, written, hit.anchor)
            if page is not None and mention is not None:
                heading, content = mention
                results.append(Description(**self._location(_place(page, heading)), content=content))

        return results

    # -- parts -------------------------------------------------------------------------------

    def _location(self, place: Place) -> dict[str, Any]:
        # Return the fields of `PageLocation`.
        return {
            "path": place.path,
            "title": place.title,
            "section": place.section or _TOP_SECTION,
            "heading": place.heading or UNSET,
            "anchor": place.anchor or UNSET,
            "uri": self._addresses.page(place.path),
            "url": self._url(place.path, place.anchor),
        }

    def _url(self, path: str, anchor: str = "") -> str | UnsetType:
        url = self._addresses.url(path)
        return UNSET if not url else f"{url}#{anchor}" if anchor else url

    async def _page_or_none(self, path: str) -> Page | None:
        # Return a page, or None if it is gone or cannot be read.
        try:
            return await self.library.page(path)
        except (UnknownPage, UnreadablePage):
            return None

    async def _page(self, reference: str, place: str) -> Page:
        # Return the page with a path, URI, URL or slug. Raises UnknownPage.
        first: UnknownPage | None = None
        for path in dict.fromkeys(
            (reference, reference.strip(), place, place.removeprefix("./"), self._published(place))
        ):
            try:
                if path:
                    return await self.library.page(path)
            except UnknownPage as error:
                first = first or error
        raise first or UnknownPage(reference, [])

    def _published(self, place: str) -> str:
        # Return the path of the page with this published address or URL, or "".
        wanted = place.removeprefix(self._addresses.base_url).strip("/")
        published = self._addresses.published
        return next((path for path in self._paths() if published(path).strip("/") == wanted), "")

    def _section_page(self, page: Page | None, info: PageInfo, text: str, *, is_part: bool) -> SectionPage:
        return SectionPage(
            path=info.path,
            title=info.title if page is None else page.title,
            description=(info.description if page is None else page.description) or UNSET,
            content=text,
            is_part=is_part or UNSET,
            uri=self._addresses.page(info.path),
            url=self._url(info.path),
        )

    async def _section_title(self, section: str) -> str | UnsetType:
        sections = (await self.library.overview()).sections
        wanted = (_library_section(section) or "").casefold()
        return next((one.title for one in sections if wanted in (one.name.casefold(), one.title.casefold())), UNSET)

    async def _no_such_section(self, section: str, near: list[str]) -> SectionText:
        names = [known.name or _TOP_SECTION for known in (await self.library.overview()).sections]
        text = f"Section not found: {printable(section)}; sections: {', '.join(names)}"
        return SectionText(section=section, error=text, near=near or UNSET, available_sections=names)


def _library_section(section: str | None) -> str | None:
    # Return a section's name in the library.
    return "" if section == _TOP_SECTION else section and (section.strip().strip("/") or section)


@contextmanager
def _argument_errors() -> Iterator[None]:
    # Raise ToolError for a section or cursor that the library does not accept.
    try:
        yield
    except UnknownSection as error:
        sections = f"; sections: {', '.join(error.near)}" if error.near else ""
        raise ToolError(f"section: {error}{sections}") from None
    except BadCursor as error:
        raise ToolError(f"cursor: {error}") from None


def _partial(progress: Progress) -> str | UnsetType:
    return UNSET if progress.is_complete else f"{progress.done} of {progress.total} pages can be found so far"


def _documents(examples: Iterable[Example]) -> list[Document]:
    # Group examples by page, in the order of the first example of each page.
    found: dict[str, Document] = {}
    for example in examples:
        path, title, section, uri, url = example.path, example.title, example.section, example.uri, example.url
        new = Document(path=path, title=title, section=section, uri=uri, url=url, snippets=[], count=0)
        document = found.setdefault(path, new)
        document.snippets.append(example.code)
        document.count += 1
    return list(found.values())


def _heading(page: Page, wanted: str) -> Heading | None:
    # Return the heading with this anchor or title, ignoring case.
    plain = wanted.strip().lstrip("#").strip().casefold()
    return next((one for one in page.headings if plain in (one.anchor.casefold(), one.title.casefold())), None)


def _place(page: Page, heading: Heading | None) -> Place:
    title, anchor = ("", "") if heading is None else (heading.title, heading.anchor)
    return Place(page.path, page.title, page.section, title, anchor)


def _text_below(page: Page, heading: Heading | None) -> str:
    return page.text if heading is None else page.text[heading.start : heading.end]


def _mention(page: Page, written: re.Pattern[str], anchor: str) -> tuple[Heading | None, str] | None:
    # Return the heading above the first mention of a name and the text below that heading, or None.
    #
    # The section of `anchor` is searched first. A long text is cut around the mention.
    best = _heading(page, anchor) if anchor else None
    at = written.search(page.text, best.start, best.end) if best is not None else None
    at = at or written.search(page.text)
    if at is None:
        return None
    above = [one for one in page.headings if one.start <= at.start() < one.end]
    heading = above[-1] if above else None
    start, end = (heading.start, heading.end) if heading is not None else (0, len(page.text))
    room = MAX_CHARS // 5
    if at.end() - start > room:
        start = page.text.rfind("\n", start, at.start() - room // 2) + 1 or at.start() - room // 2
    return heading, _slice(page.text[start:end], 0, room)[0]


def _slice(text: str, begin: int, room: int) -> tuple[str, int]:
    # Return at most `room` characters from `begin`, ending after a line if possible, and the end position.
    if len(text) - begin <= room:
        return text[begin:], len(text)
    if room <= 0:
        return "", begin
    end = text.rfind("\n", begin + room // 2, begin + room) + 1 or begin + room
    return text[begin:end], end


def _offset(cursor: str | None, limit: int) -> int:
    # Return the offset in a cursor. Raises ToolError.
    if not cursor:
        return 0
    if not re.fullmatch(r"[0-9]{1,12}", cursor) or int(cursor) >= max(limit, 1):
        raise ToolError("cursor: does not belong to this page; call again without it")
    return int(cursor)


def _page_and_offset(cursor: str | None, pages: int) -> tuple[int, int]:
    # Return the page number and offset in a cursor. Raises ToolError.
    if not cursor:
        return 0, 0
    found = re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", cursor)
    if found is None or int(found[1]) >= pages:
        raise ToolError("cursor: does not belong to this section; call again without it")
    return int(found[1]), int(found[2])
