"""Documents as resources: the overview, one resource per section and page, and a resource template for all pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

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
    from mcpd.sources.docs.files import File
    from mcpd.sources.docs.source import Tree

_MARKDOWN = "text/markdown"


class OverviewResource(ResourceEntry):
    """The sections and their pages. Two are equal if they list the same."""

    def __init__(self, tree: Tree, stamp: object) -> None:
        self.key = tree.addresses.overview
        self._tree = tree
        self._stamp = stamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OverviewResource) and (self.key, self._stamp) == (other.key, other._stamp)

    def __hash__(self) -> int:
        return hash(self.key)

    def listed(self, active: ActiveExtensions) -> Resource:
        title = self._tree.title
        text = f"The sections of {title} and the titles of their pages"
        return Resource(
            uri=self.key, name="overview", title=f"{title}: overview", description=text, mime_type=_MARKDOWN
        )

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        overview = await self._tree.library.overview()
        lines = [f"# {self._tree.title}", ""]
        for section in overview.sections:
            lines += [f"## {section.title or section.name or 'Pages at the top'}", ""]
            lines += await _list_of(self._tree, section.name)
        return _markdown(uri, "\n".join(lines))


class SectionResource(ResourceEntry):
    """A section with the descriptions of its pages. Two are equal if they list the same."""

    def __init__(self, tree: Tree, name: str, stamp: object) -> None:
        self.key = tree.addresses.section(name)
        self._tree = tree
        self._name = name
        self._stamp = stamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SectionResource) and (self.key, self._stamp) == (other.key, other._stamp)

    def __hash__(self) -> int:
        return hash(self.key)

    def listed(self, active: ActiveExtensions) -> Resource:
        title = self._tree.section_title(self._name)
        text = f"The pages of the section {title} with their descriptions"
        return Resource(uri=self.key, name=self._name or ".", title=title, description=text, mime_type=_MARKDOWN)

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        try:
            lines = await _list_of(self._tree, self._name)
        except UnknownSection:
            raise ResourceNotFound(uri) from None
        return _markdown(uri, "\n".join([f"# {self._tree.section_title(self._name)}", "", *lines]))


class PageResource(ResourceEntry):
    """One page. Two are equal if the file has not changed in between."""

    __slots__ = ("_tree", "file", "key")

    def __init__(self, tree: Tree, file: File) -> None:
        self.key = tree.addresses.page(file.path)
        self.file = file
        self._tree = tree

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, PageResource) and (self.key, self.file) == (other.key, other.file)

    def __hash__(self) -> int:
        return hash(self.key)

    def listed(self, active: ActiveExtensions) -> Resource:
        title, description = self._tree.shown_of(self.file.path)
        return Resource(
            uri=self.key,
            name=self.file.path,
            title=title,
            description=description or None,
            mime_type=mime_type_of(self.file.kind),
            size=self.file.size,
        )

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        return await _read(self._tree, self.file.path, uri)


class PageTemplate(TemplateEntry):
    """All pages by path, including pages that were just created."""

    def __init__(self, tree: Tree, key: str, argument: str) -> None:
        from mcpd.server.registry.uri_template import UriTemplate

        self.key = key
        self._argument = argument
        self._tree = tree
        self._template: UriTemplate = UriTemplate(key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PageTemplate) and self.key == other.key and self._tree is other._tree

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def arguments(self) -> Collection[str]:
        return (self._argument,)

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        return ResourceTemplate(
            uri_template=self.key,
            name="page",
            title=f"{self._tree.title}: a page",
            description=f"A page of {self._tree.title} by its path; #heading after the path selects a section",
            mime_type=_MARKDOWN,
        )

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the path in a URI. Raises InvalidParams if it would lead out of the folder."""
        variables = self._template.match(uri)
        if variables:
            from mcpd.server.registry.uris import problem_of  # patterns cost start-up

            problem = problem_of(variables, frozenset())
            if problem is not None and "://" not in variables[self._argument]:
                text = f"uri: the value of {problem[0]!r} {problem[1]}; use a path below the resource's own"
                raise InvalidParams(text, {"uri": uri})
        return variables

    async def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> ReadResourceResult:
        """Return the text of the page, or of the section named after `#`."""
        return await _read(self._tree, variables[self._argument], uri)

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        """Return the paths that begin with a value, then those that contain it."""
        from mcpd.server.registry.prompts import rank

        return rank(self._tree.completions(), value)


async def _list_of(tree: Tree, section: str) -> list[str]:
    """Return the pages of a section as a Markdown list."""
    lines = []
    for info in await tree.library.list_pages(section):
        title, description = tree.shown_of(info.path, info.title, info.description)
        about = f" — {' '.join(description.split())}" if description else ""
        lines.append(f"- [{title}]({tree.addresses.page(info.path)}){about}")
    return [*lines, ""]


async def _read(tree: Tree, path: str, uri: str) -> ReadResourceResult:
    from mcpd.sources.docs.page import UnreadablePage

    try:
        found = await tree.answers.page_at(path)
    except UnknownPage:
        return await _image(tree, path, uri)
    except UnreadablePage as error:
        raise InternalError(f"The page cannot be read: {error}") from None
    return ReadResourceResult(contents=[TextResourceContents(uri, found[0], found[1])])


async def _image(tree: Tree, path: str, uri: str) -> ReadResourceResult:
    from mcpd.sources.docs.page import UnreadablePage

    try:
        data, mime_type = await tree.library.image(path)
    except UnknownPage:
        raise ResourceNotFound(uri) from None
    except UnreadablePage as error:
        raise InternalError(f"The image cannot be read: it {error}") from None
    return ReadResourceResult(contents=[BlobResourceContents(uri, data, mime_type)])


def _markdown(uri: str, text: str) -> ReadResourceResult:
    return ReadResourceResult(contents=[TextResourceContents(uri, text.rstrip("\n") + "\n", _MARKDOWN)])
