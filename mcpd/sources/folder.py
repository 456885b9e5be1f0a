"""Serves a folder: functions in `tools/`, HTML in `apps/`, files in `resources/`, prompts in `prompts/`, skills in
`skills/` and documents in `docs/`.

A file that cannot be used is left out and named in the log with its line; everything else is served. Code is imported
only if the folder was named on the command line or has a configuration file (D9).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from mcpd.errors import ConfigurationError, missing_extra
from mcpd.protocol.printable import printable
from mcpd.server import Server
from mcpd.server.registry.entries import Entries, Problem, PromptEntry, ResourceEntry, TemplateEntry, ToolEntry
from .configuration import read
from .files import Report, uri_name
from .lookup import FILE, FOLDERS, ServerFolder
from .tables import Configuration, OpenApiTable

if TYPE_CHECKING:
    from mcpd.server.extensions.ui.apps import AppEntry
    from mcpd.sources.docs.source import Tree
    from .apps import FolderApp
    from .code import FolderCode
    from .notebooks import Notebooks
    from .openapi.source import ServedDocument
    from .prompts import FilePrompt


class Folder:
    """One served folder: collects what it offers and keeps `server` up to date.

    `configuration` is the content of its file, if it has already been read. Raises ConfigurationError if the folder has
    nothing to serve or its configuration is not valid.

    With `is_growing` the server announces every kind of offering from the start, because files may be added later.
    `left_out` maps paths of Python files to the reason why they are not imported as long as they are unchanged.
    """

    def __init__(
        self,
        place: ServerFolder,
        configuration: Configuration | None = None,
        *,
        is_growing: bool = False,
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self.configuration = configuration or (read(place.file) if place.file else Configuration())
        self.root = place.root
        self.owner = f"folder {place.root}"
        self._place = place
        self._is_growing = is_growing
        self._left_out = left_out or {}
        self._logged: set[Problem] = set()
        self._pages: dict[str, FolderApp] = {}
        self._prompts: dict[str, FilePrompt] = {}
        self._notebooks: Notebooks | None = None
        self.docs: Tree | None = None
        """The folder's documents, if it has any."""
        _check(place, self.configuration)
        self._code = self._make_code()
        self.server = self._make_server()
        if self.configuration.mounts:
            self._mount(self.configuration)
        self.documents: Sequence[ServedDocument] = [
            _add_openapi(self.server, self.root, *each) for each in self.configuration.openapi.items()
        ]
        """The OpenAPI documents of its configuration."""
        self.server.replace(self.owner, self.load())

    def load(self) -> Entries:
        report = Report(self.root)
        pages = self._load_pages(report)
        tools = self._load_tools(frozenset(pages or ()), report)
        files = self._load_resources(report)
        prompts = self._load_prompts(report)
        skills = self._load_skills(report)
        docs = self._load_docs(report)

        resources: list[ResourceEntry] | None = None
        plain, templates = files if files is not None else ([], None)
        if pages is not None or files is not None or skills is not None:
            resources = [*(pages or {}).values(), *plain, *(skills or ())]
        added = self._load_notebooks(plain, docs)
        if added:
            tools, resources = [*(tools or ()), *added[0]], [*(resources or ()), *added[1]]
        if docs is not None:
            tools, resources, templates = docs.added(tools, resources, templates, report)

        # Problems are logged once.
        found = report.found
        report.log_problems([problem for problem in found if problem not in self._logged])
        self._logged = set(found)
        if self._is_growing:
            tools, resources, templates, prompts = tools or [], resources or [], templates or [], prompts or []
        return Entries(tools=tools, resources=resources, templates=templates, prompts=prompts, problems=found)

    def _mount(self, said: Configuration) -> None:
        from .mounts.mounted import mounts_of
        from .mounts.passing import server_of
        from .mounts.targets import of_table

        wanted = of_table(said.mounts, self._place.file)
        # A file that says nothing else is only a way to name the server.
        is_bare = msgspec.structs.replace(said, mounts={}, serve={}, auth=None) == Configuration()
        if len(wanted) == 1 and is_bare and not any(self._is_there(name) for name in FOLDERS):
            self.server = server_of(wanted, group=self.owner)
            return
        mounts_of(self.server).update(self.owner, wanted)

    def reconfigure(self) -> bool:
        """Read the configuration file again, and apply its mounts. Returns whether anything else in it has changed.

        Raises ConfigurationError, and changes nothing, for an invalid file.
        """
        before, now = self.configuration, read(self._place.file)
        if before.mounts != now.mounts:
            from .mounts.mounted import mounts_of
            from .mounts.targets import of_table

            mounts_of(self.server).update(self.owner, of_table(now.mounts, self._place.file))
        self.configuration = msgspec.structs.replace(before, mounts=now.mounts)
        return self.configuration != now

    @property
    def docs_folder(self) -> str:
        # The folder may be the root itself, lie outside it, or not exist.
        return self._folder("docs")

    def refresh(self, changed: Iterable[str] | None = None) -> None:
        # Any thread may call it, but only one call at a time. `changed` is None if the paths are unknown.
        if self.docs is not None:
            self.docs.refresh(changed)
        before = {path: page.entry for path, page in self._pages.items()}
        self.server.replace(self.owner, self.load())
        for path, entry in before.items():
            page = self._pages.get(path)
            if page is not None and page.entry is not entry:
                # The listed URI contains the hash of the content, and clients may have subscribed to it.
                self.server.resource_updated(entry.versioned_uri)

    # -- the server --------------------------------------------------------------------------

    def _make_server(self) -> Server:
        said = self.configuration
        sharing = None if self._code is None else self._code.sharing
        return Server(
            said.name or printable(os.path.basename(self.root)) or "folder",
            version=said.version,
            title=said.title,
            description=said.description,
            instructions=said.instructions,
            website_url=said.website_url,
            page_size=said.page_size,
            tool_timeout=said.tool_timeout,
            show_errors=said.show_errors,
            lifespan=None if sharing is None else sharing.enter,
        )

    def _folder(self, name: str) -> str:
        return os.path.normpath(os.path.join(self.root, getattr(self.configuration, name).folder))

    def _is_there(self, name: str) -> bool:
        return getattr(self.configuration, name).enabled and os.path.isdir(self._folder(name))

    # -- its kinds; what only some folders have is loaded for those -----------------------------

    def _make_code(self) -> FolderCode | None:
        has_any = self._is_there("tools") or self.configuration.lifespan is not None
        if not self._place.is_trusted or not (has_any or self._is_growing):
            return None
        from .code import FolderCode

        return FolderCode(self.root, self._folder("tools"), self.configuration, self._place.file, self._left_out)

    def _load_tools(self, pages: frozenset[str], report: Report) -> list[ToolEntry] | None:
        if not self._is_there("tools"):
            return None
        if self._code is None:
            text = "is not imported because no target was named; run mcpd serve . or add an mcpd.toml"
            report.warning(self._folder("tools"), text)
            return []
        return self._code.tools(self.server, pages, report)

    def _load_pages(self, report: Report) -> dict[str, AppEntry] | None:
        if not self._is_there("apps"):
            return None
        from .apps import apps_of

        self._pages = apps_of(self.server, self._folder("apps"), report, self._pages)
        return {page.name: page.entry for page in self._pages.values()}

    def _load_resources(self, report: Report) -> tuple[list[ResourceEntry], list[TemplateEntry]] | None:
        if not self._is_there("resources"):
            return None
        from .resources import resources_of

        table = self.configuration.resources
        uri = table.uri or f"resource://{uri_name(self.server.name)}/"
        return resources_of(self._folder("resources"), table, uri, report)

    def _load_notebooks(
        self, files: Iterable[ResourceEntry], docs: Tree | None
    ) -> tuple[list[ToolEntry], list[ResourceEntry]] | None:
        below = () if docs is None else docs.paths
        has_any = any(entry.key.endswith(".ipynb") for entry in files) or any(path.endswith(".ipynb") for path in below)
        if self._notebooks is None and not has_any:
            return None
        from .notebooks import Notebooks, notebooks_among, notebooks_below

        if self._notebooks is None:
            self._notebooks = Notebooks(self.server)
        return self._notebooks.entries([*notebooks_among(files), *notebooks_below(self._folder("docs"), below)])

    def _load_prompts(self, report: Report) -> list[PromptEntry] | None:
        if not self._is_there("prompts"):
            return None
        from .prompts import prompts_of

        self._prompts = prompts_of(self._folder("prompts"), report, self._prompts)
        return list(self._prompts.values())

    def _load_skills(self, report: Report) -> list[ResourceEntry] | None:
        if not self._is_there("skills"):
            return None
        from .skills import offer_skills, skills_of

        offer_skills(self.server)
        return skills_of(self._folder("skills"), self.configuration.skills, report)

    def _load_docs(self, report: Report) -> Tree | None:
        if not self._is_there("docs"):
            said = self.configuration.docs
            if said.enabled and said.folder != "docs":
                text = "is not a folder (docs.folder in mcpd.toml); no documents are served"
                report.error(self._folder("docs"), text)
            return None
        if self.docs is None:
            from mcpd.sources.docs.source import Tree

            self.docs = Tree(self.server, self.root, self._folder("docs"), self.configuration.docs)
        self.docs.scan(report)
        return self.docs


def _add_openapi(server: Server, root: str, name: str, table: OpenApiTable) -> ServedDocument:
    try:
        from mcpd.sources.openapi.source import add_table
    except ModuleNotFoundError as error:
        raise missing_extra(error, f"[openapi.{name}]", "openapi") from None

    return add_table(server, root, name, table)


# A folder with such files is probably meant to be a folder of documents.
_PAGES = (".md", ".mdx", ".rst", ".html", ".pdf")


def _check(place: ServerFolder, said: Configuration) -> None:
    # Raise ConfigurationError if a folder has nothing to serve and no configuration file.
    if place.file or any(os.path.isdir(os.path.join(place.root, getattr(said, name).folder)) for name in FOLDERS):
        return
    # Hosts start servers in the root directory, from which a relative path such as "home/me" means nothing.
    shown = place.root if os.path.dirname(os.getcwd()) == os.getcwd() else os.path.relpath(place.root)
    folders = ", ".join(FOLDERS)
    names = sorted(os.listdir(place.root))
    if files := [name for name in names if name.endswith(".py")]:
        best = next((name for name in ("server.py", "main.py", "app.py") if name in files), files[0])
        file = os.path.join(shown, best)
        raise ConfigurationError(f"{shown} has none of the folders {folders}; name a file in it, such as {file}")

    problem = f"{shown} has neither an mcpd.toml nor one of the folders {folders}"
    if any(name.lower().endswith(_PAGES) for name in names):
        file = os.path.join(shown, FILE)
        raise ConfigurationError(f'{problem}; to serve its documents, write docs.folder = "." into {file}')
    raise ConfigurationError(f"{problem}; mcpd init {shown} creates them")
