"""`Tree`: the documents of one folder, offered as resources and tools.

Theory of operation. At the start the folder is scanned, but no file is read: lists show what the first lines of files
say until the pages are indexed. Indexing starts after a client has listed something, or with the first search.
"""

from __future__ import annotations

import os
from asyncio import get_running_loop
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from mcpd.errors import InternalError, InvalidParams, ResourceNotFound
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import (
    BlobResourceContents,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)
from mcpd.server import Server
from mcpd.server.context.exchange import Exchange
from mcpd.server.extensions.ui.constants import UI
from mcpd.server.registry.entries import ActiveExtensions, Entry, Problem, ResourceEntry, TemplateEntry, ToolEntry
from mcpd.sources.files import Report, Stamped, uri_name
from mcpd.sources.tables import DocsTable, Doing, ToolTable
from mcpd.transports.files import bundled_folder
from .addresses import Addresses, PageHead, page_head
from .files import File, scan
from .page import (
    DocsSettings,
    UnknownPage,
    UnknownSection,
    UnreadablePage,
    mime_type_of,
    section_of,
    title_of,
)
from .reader_app import TOOL_NAME, UI_NAME, ReaderParts

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import Completion
    from .answers import Answers
    from .library import Library
    from .wording import LazyTool, Wording


_MARKDOWN_TYPE = "text/markdown"


class ListResource(Stamped, ResourceEntry):
    """The pages of a section with their descriptions. The section "" is the overview: all sections and their pages."""

    def __init__(self, tree: Tree, section: str, paths: tuple[str, ...]) -> None:
        # Two are equal if they list the same paths.
        self.key = tree.addresses.section(section)
        self.stamp = paths
        self._tree = tree
        self._section = section

    def listed(self, active: ActiveExtensions) -> Resource:
        if self._section:
            title = self._tree.section_title(self._section)
            text = f"The pages of the section {title} with their descriptions"
        else:
            title = f"{self._tree.title}: overview"
            text = f"The sections of {self._tree.title} and the titles of their pages"
        name = self._section or "overview"
        return Resource(uri=self.key, name=name, title=title, description=text, mime_type=_MARKDOWN_TYPE)

    async def run(self, uri: str, exchange: Exchange) -> ReadResourceResult:
        if self._section:
            lines = [f"# {self._tree.section_title(self._section)}", "", *await self._pages(uri, self._section)]
        else:
            lines = [f"# {self._tree.title}", ""]
            for section in (await self._tree.library.overview()).sections:
                title = section.title or section.name or "Pages at the top"
                lines += [f"## {title}", "", *await self._pages(uri, section.name)]
        text = "\n".join(lines).rstrip("\n") + "\n"
        return ReadResourceResult(contents=[TextResourceContents(uri, text, _MARKDOWN_TYPE)])

    async def _pages(self, uri: str, section: str) -> list[str]:
        # Return the pages of a section as a Markdown list.
        try:
            pages = await self._tree.library.list_pages(section)
        except UnknownSection:
            raise ResourceNotFound(uri) from None
        lines = []
        for info in pages:
            title, description = self._tree.title_and_description(info.path, info.title, info.description)
            about = f" — {' '.join(description.split())}" if description else ""
            lines.append(f"- [{title}]({self._tree.addresses.page(info.path)}){about}")
        return [*lines, ""]


class PageResource(Stamped, ResourceEntry):
    def __init__(self, tree: Tree, file: File) -> None:
        self.key = tree.addresses.page(file.path)
        self.file = self.stamp = file
        self._tree = tree

    def listed(self, active: ActiveExtensions) -> Resource:
        title, description = self._tree.title_and_description(self.file.path)
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


class PageTemplate(Stamped, TemplateEntry):
    """All pages by path, including pages that were just created."""

    def __init__(self, tree: Tree, key: str, argument: str) -> None:
        from mcpd.server.registry.uri_template import UriTemplate

        self.key = key
        self._argument = argument
        self._tree = self.stamp = tree
        self._template = UriTemplate(key)

    @property
    def arguments(self) -> Collection[str]:
        return (self._argument,)

    def listed(self, active: ActiveExtensions) -> ResourceTemplate:
        return ResourceTemplate(
            uri_template=self.key,
            name="page",
            title=f"{self._tree.title}: a page",
            description=f"A page of {self._tree.title} by its path; #heading after the path selects a section",
            mime_type=_MARKDOWN_TYPE,
        )

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the path in a URI. Raises InvalidParams if it would lead out of the folder."""
        variables = self._template.match(uri)
        if variables:
            from mcpd.server.registry.uri_template import problem_of  # patterns cost start-up

            problem = problem_of(variables, frozenset())
            if problem is not None and "://" not in variables[self._argument]:
                text = f"uri: the value of {problem[0]!r} {problem[1]}; use a path below the resource's own"
                raise InvalidParams(text, {"uri": uri})
        return variables

    async def run(self, uri: str, variables: dict[str, str], exchange: Exchange) -> ReadResourceResult:
        """Return the text of the page, or of the section named after `#`."""
        return await _read(self._tree, variables[self._argument], uri)

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        from mcpd.server.registry.prompts import rank

        return rank(self._tree.completions(), value)


async def _read(tree: Tree, path: str, uri: str) -> ReadResourceResult:
    # Read a page or an image.
    try:
        text, mime_type = await tree.answers.page_at(path)
        return ReadResourceResult(contents=[TextResourceContents(uri, text, mime_type)])
    except UnknownPage:
        pass
    except UnreadablePage as error:
        raise InternalError(f"The page cannot be read: {error}") from None

    try:
        data, mime_type = await tree.library.image(path)
    except UnknownPage:
        raise ResourceNotFound(uri) from None
    except UnreadablePage as error:
        raise InternalError(f"The image cannot be read: it {error}") from None

    return ReadResourceResult(contents=[BlobResourceContents(uri, data, mime_type)])


class Profile(Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True, frozen=True):
    """A file in assets/docs_profiles/. Settings in mcpd.toml take precedence."""

    title: str | None = None
    uri: str | None = None
    base_url: str | None = None
    exclude: tuple[str, ...] = ()
    page_uri: str = "{path}"
    """The URI of a page after `uri`, with `{path}`, or with `{url}` for the escaped URL of the page."""
    section_uri: str = "{section}/"
    tools: dict[str, Any] = {}


def profile_of(table: DocsTable) -> Profile:
    if not isinstance(table.tools, str):
        return Profile(tools=table.tools)
    import tomllib

    with open(os.path.join(bundled_folder(), "docs_profiles", f"{table.tools}.toml"), "rb") as file:
        return msgspec.convert(tomllib.load(file), Profile)


_SETTLED_SECONDS = 1.0

E = TypeVar("E", bound=Entry)


class Tree:
    def __init__(self, server: Server, root: str, folder: str, table: DocsTable) -> None:
        """`root` is the folder of mcpd.toml, `folder` the folder of the documents. Raises ConfigurationError."""
        profile = self._profile = profile_of(table)
        self.folder = folder
        self._root = root
        self.table = table
        self._server = server
        title = table.title or profile.title
        self.title = title or server.identity.title or printable(server.name)
        self._title_for_models = title or f"the documents of {self.title}"
        self._settings = DocsSettings(
            title=self.title,
            include=table.include,
            exclude=(*table.exclude, *profile.exclude),
            max_files=table.max_files,
            max_bytes=table.max_bytes,
        )
        self._library: Library | None = None
        self.addresses = Addresses(
            base=table.uri or profile.uri or f"docs://{uri_name(server.name)}/",
            base_url=table.base_url or profile.base_url or "",
            page_form=profile.page_uri,
            section_form=profile.section_uri,
            slug_of=lambda path: self.head(path).slug,
        )
        self._heads: dict[str, tuple[int | None, PageHead]] = {}
        self._pages: dict[str, PageResource] = {}
        self._resources: list[ResourceEntry] = []
        self._is_stale = True
        self._found = Report(root)
        self._tools: list[LazyTool] | None = None
        self._template = PageTemplate(self, *_form(self.addresses))

        self._reader = ReaderParts(server, lambda: self.library, self.addresses.base)
        self._start_when_listed()

    @property
    def library(self) -> Library:
        """The pages and their index, created when first needed."""
        if self._library is None:
            from .library import Library

            self._library = Library(self.folder, self._settings, index_file(self.table.index, self.folder, self._root))
        return self._library

    @cached_property
    def answers(self) -> Answers:
        from .answers import Answers

        return Answers(lambda: self.library, self.addresses, lambda: self.paths, self._report_unreadable)

    # -- what it offers ----------------------------------------------------------------------

    def added(
        self,
        tools: Sequence[ToolEntry] | None,
        resources: Sequence[ResourceEntry] | None,
        templates: Sequence[TemplateEntry] | None,
        report: Report,
    ) -> tuple[list[ToolEntry], list[ResourceEntry], list[TemplateEntry]]:
        """Return the given entries and the entries of the documents. If two have the same name, the first is kept."""
        return (
            _joined(tools, self._tools_now(), report),
            _joined(resources, [*self._resources, self._reader.page], report),
            _joined(templates, [self._template], report),
        )

    def _tools_now(self) -> list[ToolEntry]:
        # Return the tools, always the same objects. Raises ConfigurationError for an invalid `result` table.
        if self._tools is None:
            from .wording import LazyTool, wordings

            tables = {name: msgspec.convert(table, ToolTable) for name, table in self._profile.tools.items()}
            worded = wordings(tables, self._title_for_models)
            names: dict[Doing, str] = {wording.does: wording.name for wording in reversed(worded)}
            self._tools = [LazyTool(wording.name, partial(self._tool, wording, names)) for wording in worded]
            self._tools.append(LazyTool(TOOL_NAME, self._reader.tool, requires=UI))
            if isinstance(self.table.tools, dict) and any(wording.result for wording in worded):
                for tool in self._tools:
                    tool.made()  # checks the tables that the author wrote
        return list(self._tools)

    def _tool(self, wording: Wording, names: dict[Doing, str]) -> ToolEntry:
        from .tools import tool_of

        return tool_of(self._server, getattr(self.answers, wording.does), wording, names, UI_NAME)

    def scan(self, report: Report) -> None:
        # No file is read, so that a large folder does not delay the start.
        if self._is_stale:
            self._is_stale = False
            self._found = Report(report.root)
            self._scan(self._found)
        report.problems += self._found.problems
        report.problems += self._unreadable()

    def _scan(self, report: Report) -> None:
        before, tree = self._pages, scan(self.folder, self._settings)
        pages: dict[str, PageResource] = {}
        sections: dict[str, list[str]] = {}
        for path, file in tree.files.items():
            page = before.get(path)
            pages[path] = page if page is not None and page.file == file else PageResource(self, file)
            sections.setdefault(section_of(path), []).append(path)

        for left_out in tree.left_out:
            text = f"{left_out.reason}; it is left out" if left_out.path else left_out.reason
            report.error(os.path.join(self.folder, left_out.path).rstrip(os.sep), text)

        self._pages = pages
        found: dict[str, ResourceEntry] = {}
        lists = {"": list(pages), **{name: paths for name, paths in sections.items() if name}}
        entries: list[ResourceEntry] = [ListResource(self, name, tuple(paths)) for name, paths in lists.items()]
        for entry in (*entries, *pages.values()):
            if found.setdefault(entry.key, entry) is not entry:
                report.error(self.folder, f"{entry.key} exists twice; only the first one is served")
        self._resources = list(found.values())
        if self._library is not None:
            self._library.refresh(path for path in {**before, **pages} if before.get(path) is not pages.get(path))

    def _unreadable(self) -> list[Problem]:
        # Return the files that the indexer could not read, except those that the scan has reported.
        if self._library is None:
            return []
        known = {problem.where for problem in self._found.problems}
        found = Report(self._root)
        for left_out in self._library.left_out:
            found.error(os.path.join(self.folder, left_out.path), f"{left_out.reason}; it cannot be searched or read")
        return [problem for problem in found.problems if problem.where not in known]

    # -- what lists show ---------------------------------------------------------------------

    def title_and_description(self, path: str, title: str = "", description: str = "") -> tuple[str, str]:
        # The title and description in the file take precedence over the index.
        head = self.head(path)
        return head.title or title or title_of(path), head.description or description

    def section_title(self, name: str) -> str:
        return title_of(name) or self.title

    def completions(self) -> Sequence[str]:
        if "{url}" in self.addresses.page_form:
            return [self.addresses.url(path) for path in self._pages]
        return list(self._pages)

    @property
    def paths(self) -> Sequence[str]:
        return list(self._pages)

    def head(self, path: str) -> PageHead:
        page = self._pages.get(path)
        changed = None if page is None else page.file.modified_ns
        known = self._heads.get(path)
        if known is None or known[0] != changed or changed is None:
            known = self._heads[path] = (changed, page_head(self.folder, path))
        return known[1]

    # -- its life ----------------------------------------------------------------------------

    def refresh(self, changed: Iterable[str] | None) -> None:
        """Scan again on the next `scan`, unless no file in the folder has changed."""
        below = os.path.join(self.folder, "")
        if changed is None or any(path == self.folder or path.startswith(below) for path in changed):
            self._is_stale = True

    def _report_unreadable(self) -> None:
        # Report the unreadable pages once all pages are indexed.
        report = Report(self._root)
        report.problems = self._unreadable()
        report.log_problems(report.found)

    def _start_when_listed(self) -> None:
        # Start indexing when a client has listed something, so that it does not delay the start.
        for listing in (self._server.catalog.tools, self._server.catalog.resources):
            before = listing.on_listed

            def listed(before: Callable[[], None] | None = before) -> None:
                # Not at once: lists read the first lines of files, and indexing would slow that down.
                get_running_loop().call_later(_SETTLED_SECONDS, lambda: self.library.start())
                if before is not None:
                    before()

            listing.on_listed = listed


def _joined(before: Sequence[E] | None, added: Sequence[E], report: Report) -> list[E]:
    # Return these entries together. If two have the same name, the first is kept.
    found = {entry.key: entry for entry in before or ()}
    for entry in added:
        if found.setdefault(entry.key, entry) is not entry:
            report.error("docs", f"{entry.key} already exists; the one of the documents is left out")
    return list(found.values())


def _form(addresses: Addresses) -> tuple[str, str]:
    # Return the URI template of all pages and the name of its variable.
    if "{url}" in addresses.page_form:
        return addresses.base + addresses.page_form, "url"
    return addresses.base + addresses.page_form.replace("{path}", "{+path}"), "path"


def index_file(said: str, folder: str, root: str) -> str | None:
    # `disk` means a file in the user's cache, one for each folder. Without a home directory, the index is in memory.
    if said == "memory":
        return None
    if said != "disk":
        return os.path.join(root, said)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):
        home = os.path.expanduser("~")
        if not os.path.isabs(home) or not os.path.isdir(home):
            return None
        cache = os.path.join(home, ".cache")
    from hashlib import sha256  # loads OpenSSL, which would slow down the start

    name = sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:32]
    return os.path.join(cache, "mcpd", "docs", f"{name}.sqlite")
