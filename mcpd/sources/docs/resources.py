"""Documents as resources: the overview, a resource for each section and each page, and the family of all pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from mcpd.errors import InternalError, InvalidParams, ResourceNotFound
from mcpd.protocol.types.content import BlobResourceContents, TextResourceContents
from mcpd.protocol.types.resources import ReadResourceResult, Resource, ResourceTemplate
from mcpd.server.context.exchange import Exchange
from mcpd.server.registry.entries import ResourceEntry, TemplateEntry
from mcpd.server.registry.listing import ActiveExtensions
from mcpd.sources.docs.page import mime_type_of
from mcpd.sources.docs.results import UnknownPage, UnknownSection

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import Completion
    from mcpd.server.registry.uri_template import UriTemplate
    from mcpd.sources.docs.addresses import Addresses
    from mcpd.sources.docs.answers import Answers
    from mcpd.sources.docs.files import File
    from mcpd.sources.docs.library import Library

_MARKDOWN = "text/markdown"


class Shelf(Protocol):
    """Where the documents stand."""

    title: str
    addresses: Addresses

    @property
    def answers(self) -> Answers:
        """What is found in them."""

    @property
    def library(self) -> Library:
        """Their pages and index."""

    def shown_of(self, path: str, title: str = "", description: str = "") -> tuple[str, str]:
        """The title and the description of a page, as far as they are known."""

    def section_title(self, name: str) -> str:
        """A section's title."""

    def completions(self) -> Sequence[str]:
        """What the argument of the family of all pages can be."""


class OverviewResource(ResourceEntry):
    """What there is: all sections, with their pages. Equal to another one of the same documents that lists the same."""

    def __init__(self, shelf: Shelf, stamp: object) -> None:
        self.key = shelf.addresses.overview
        self._shelf = shelf
        self._stamp = stamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OverviewResource) and (self.key, self._stamp) == (other.key, other._stamp)

    def __hash__(self) -> int:
        return hash(self.key)

    def listed(self, active: ActiveExtensions) -> Resource:
        """The overview as lists show it."""
        title = self._shelf.title
        text = f"What there is in {title}: its sections, and the titles of their pages"
        return Resource(
            uri=self.key, name="overview", title=f"{title}: overview", description=text, mime_type=_MARKDOWN
        )

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        """The sections and the titles of their pages, with links."""
        overview = await self._shelf.library.overview()
        lines = [f"# {self._shelf.title}", ""]
        for section in overview.sections:
            lines += [f"## {section.title or section.name or 'Pages at the top'}", ""]
            lines += await _list_of(self._shelf, section.name)
        return _markdown(uri, "\n".join(lines))


class SectionResource(ResourceEntry):
    """A section: its pages, with their descriptions. Equal to another one of the same name that lists the same."""

    def __init__(self, shelf: Shelf, name: str, stamp: object) -> None:
        self.key = shelf.addresses.section(name)
        self._shelf = shelf
        self._name = name
        self._stamp = stamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SectionResource) and (self.key, self._stamp) == (other.key, other._stamp)

    def __hash__(self) -> int:
        return hash(self.key)

    def listed(self, active: ActiveExtensions) -> Resource:
        """The section as lists show it."""
        title = self._shelf.section_title(self._name)
        text = f"The pages of the section {title}, with what each is about"
        return Resource(uri=self.key, name=self._name or ".", title=title, description=text, mime_type=_MARKDOWN)

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        """Its pages, with links."""
        try:
            lines = await _list_of(self._shelf, self._name)
        except UnknownSection:
            raise ResourceNotFound(uri) from None
        return _markdown(uri, "\n".join([f"# {self._shelf.section_title(self._name)}", "", *lines]))


class PageResource(ResourceEntry):
    """One page. Equal to another one if its file and what lists say of it have not changed."""

    __slots__ = ("_shelf", "file", "key")

    def __init__(self, shelf: Shelf, file: File) -> None:
        self.key = shelf.addresses.page(file.path)
        self.file = file
        self._shelf = shelf

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, PageResource) and (self.key, self.file) == (other.key, other.file)

    def __hash__(self) -> int:
        return hash(self.key)

    def listed(self, active: ActiveExtensions) -> Resource:
        """The page as lists show it; the size is its file's."""
        title, description = self._shelf.shown_of(self.file.path)
        return Resource(
            uri=self.key,
            name=self.file.path,
            title=title,
            description=description or None,
            mime_type=mime_type_of(self.file.kind),
            size=self.file.size,
        )

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        """Its text."""
        return await _read(self._shelf, self.file.path, uri)


class PageTemplate(TemplateEntry):
    """All pages, by their paths; of one that is just being made too."""

    def __init__(self, shelf: Shelf, key: str, argument: str) -> None:
        from mcpd.server.registry.uri_template import UriTemplate

        self.key = key
        self._argument = argument
        self._shelf = shelf
        self._template: UriTemplate = UriTemplate(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PageTemplate) and self.key == other.key and self._shelf is other._shelf

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def arguments(self) -> Collection[str]:
        """The path."""
        return (self._argument,)

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        """The family as lists show it."""
        return ResourceTemplate(
            uri_template=self.key,
            name="page",
            title=f"{self._shelf.title}: a page",
            description=f"A page of {self._shelf.title} by its path; with #heading behind it what stands there",
            mime_type=_MARKDOWN,
        )

    def match(self, uri: str) -> dict[str, str] | None:
        """The path in a URI. Raises InvalidParams for one that would lead out of the folder."""
        variables = self._template.match(uri)
        if variables:
            from mcpd.server.registry.uris import problem_of  # patterns cost start-up

            problem = problem_of(variables, frozenset())
            if problem is not None and "://" not in variables[self._argument]:
                text = f"uri: the value of {problem[0]!r} {problem[1]}; ask for a path below the resource's own"
                raise InvalidParams(text, {"uri": uri})
        return variables

    async def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> ReadResourceResult:
        """The text of the page, or what stands below the heading that is named behind `#`."""
        return await _read(self._shelf, variables[self._argument], uri)

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        """The paths that begin with a value, then those that contain it."""
        from mcpd.server.registry.prompts import rank

        return rank(self._shelf.completions(), value)


async def _list_of(shelf: Shelf, section: str) -> list[str]:
    """The pages of a section as a list in Markdown."""
    lines = []
    for info in await shelf.library.list_pages(section):
        title, description = shelf.shown_of(info.path, info.title, info.description)
        about = f" — {' '.join(description.split())}" if description else ""
        lines.append(f"- [{title}]({shelf.addresses.page(info.path)}){about}")
    return [*lines, ""]


async def _read(shelf: Shelf, path: str, uri: str) -> ReadResourceResult:
    from mcpd.sources.docs.page import UnreadablePage

    try:
        found = await shelf.answers.page_at(path)
    except UnknownPage:
        return await _image(shelf, path, uri)
    except UnreadablePage as error:
        raise InternalError(f"The page cannot be read: {error}") from None
    return ReadResourceResult(contents=[TextResourceContents(uri, found[0], found[1])])


async def _image(shelf: Shelf, path: str, uri: str) -> ReadResourceResult:
    """An image that pages name."""
    from mcpd.sources.docs.page import UnreadablePage

    try:
        data, mime_type = await shelf.library.image(path)
    except UnknownPage:
        raise ResourceNotFound(uri) from None
    except UnreadablePage as error:
        raise InternalError(f"The image cannot be read: it {error}") from None
    return ReadResourceResult(contents=[BlobResourceContents(uri, data, mime_type)])


def _markdown(uri: str, text: str) -> ReadResourceResult:
    return ReadResourceResult(contents=[TextResourceContents(uri, text.rstrip("\n") + "\n", _MARKDOWN)])
