"""A folder is a server: functions in `tools/`, pages in `apps/`, files in `resources/`, prompts in `prompts/`.

A file that cannot be used is named in the log, with its line, and left out; the rest is served. Code is imported only
from a folder that was named, or that says itself that it is a server (D9).
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError, RegistrationError
from ..printable import printable
from ..registry.entries import Entries, PromptEntry, ResourceEntry, TemplateEntry, ToolEntry
from ..server import Server
from ..server.entries import tool_entry
from ..server.metadata import check_options
from .base import refresh
from .configuration import Configuration, read
from .functions import ToolFunction, tool_functions
from .lookup import FOLDERS, Place
from .modules import FolderPackage
from .reports import Report
from .tree import MOST_OF_A_KIND, files_of

if TYPE_CHECKING:
    from .sharing import Sharing

__all__ = ["Folder", "open_folder"]

_LIFESPAN = "lifespan.py:lifespan"


def open_folder(place: Place, configuration: Configuration | None = None) -> Server:
    """The server that a folder is; `configuration` is what its file says, if that was read already.

    Raises ConfigurationError for a folder that is none, and for a file whose keys or values are wrong.
    """
    return Folder(place, configuration).server


class Folder:
    """The source of all that a folder offers, and the server that is made for it."""

    def __init__(self, place: Place, configuration: Configuration | None = None) -> None:
        self.configuration = configuration or (read(place.file) if place.file else Configuration())
        self.owner = f"folder {place.root}"
        self._place = place
        self._report = Report(place.root)
        self._package: FolderPackage | None = None
        _check(place, self.configuration)
        self._sharing = self._find_sharing()
        self.server = self._make_server()
        refresh(self.server, self)

    def load(self) -> Entries:
        """All that is in the folder now."""
        pages = self._pages()
        tools = self._tools(set(pages or ()))
        files = self._resources()
        prompts = self._prompts()
        report, self._report = self._report, Report(self._place.root)
        report.tell()

        resources: list[ResourceEntry] | None = None
        if pages is not None or files is not None:
            resources = [*(pages or {}).values(), *(files[0] if files else ())]
        templates = files[1] if files else None
        return Entries(tools=tools, resources=resources, templates=templates, prompts=prompts, problems=report.found)

    # -- the server --------------------------------------------------------------------------

    def _make_server(self) -> Server:
        said = self.configuration
        return Server(
            said.name or printable(os.path.basename(self._place.root)) or "folder",
            version=said.version,
            title=said.title,
            description=said.description,
            instructions=said.instructions,
            website_url=said.website_url,
            page_size=said.page_size,
            tool_timeout=said.tool_timeout,
            show_errors=said.show_errors,
            lifespan=None if self._sharing is None else self._sharing.enter,
        )

    def _folder(self, name: str) -> str | None:
        """The sub-folder for a kind, if it is there and wanted."""
        table = getattr(self.configuration, name)
        path = os.path.join(self._place.root, *table.folder.split("/"))
        return path if table.enabled and os.path.isdir(path) else None

    # -- code --------------------------------------------------------------------------------

    @property
    def _modules(self) -> FolderPackage:
        if self._package is None:
            plain_from = [self._folder("tools"), self._place.root]
            self._package = FolderPackage(self._place.root, self._report, [one for one in plain_from if one])
        return self._package

    def _import(self, path: str) -> ModuleType | None:
        package = self._modules
        package.report = self._report
        return package.load(path, self.configuration.tools.import_timeout)

    def _find_sharing(self) -> Sharing | None:
        """What tools share. Raises ConfigurationError if it cannot be had.

        Without it a parameter of its types would be one that clients set.
        """
        said = self.configuration.lifespan
        place, _, name = (said or _LIFESPAN).rpartition(":")
        path = os.path.normpath(os.path.join(self._place.root, place))
        if said is None and (not self._place.is_trusted or not os.path.isfile(path)):
            return None
        where = f"{self._place.file}: lifespan" if said else path
        if not place.endswith(".py") or not name.isidentifier() or not path.startswith(self._place.root + os.sep):
            raise ConfigurationError(f"{where} is to be FILE:FUNCTION in this folder, as {_LIFESPAN}, not {said!r}")
        from .sharing import sharing_of

        module = self._import(path) if os.path.isfile(path) else None
        if module is None:
            problems = "; ".join(map(str, self._report.problems)) or f"there is no file {place}"
            raise ConfigurationError(f"{where}: what the tools share cannot be opened: {problems}")
        found = getattr(module, name, None)
        if found is None:
            raise ConfigurationError(f"{where}: {place} has no function {name}")
        try:
            return sharing_of(found)
        except RegistrationError as error:
            raise ConfigurationError(f"{path}: {name}: {error}") from error

    def _tools(self, pages: set[str]) -> list[ToolEntry] | None:
        folder = self._folder("tools")
        if folder is None:
            return None
        if not self._place.is_trusted:
            self._report.warning(
                folder,
                "is not imported: no target was named; mcpd serve . serves it, and mcpd init makes it so for good",
            )
            return []
        found: dict[str, ToolEntry] = {}
        places: dict[str, str] = {}
        files = files_of(folder, self._report, most=MOST_OF_A_KIND, is_wanted=lambda parts: parts[-1].endswith(".py"))
        for file in files:
            if file.stem.startswith("_"):
                continue
            module = self._import(file.path)
            for each in tool_functions(module, file.path, self._report) if module is not None else ():
                entry = self._tool(each, file.path, file.parts[:-1], pages)
                if entry is None:
                    continue
                if entry.key in found:
                    text = f"there is a tool {entry.key} already ({places[entry.key]}); this one is left out"
                    self._report.error(file.path, text, each.line)
                    continue
                found[entry.key], places[entry.key] = entry, "/".join(file.parts)
        return list(found.values())

    def _tool(self, each: ToolFunction, path: str, above: tuple[str, ...], pages: set[str]) -> ToolEntry | None:
        options = {"name": "_".join((*above, each.name)), **each.options}
        name = str(options["name"])
        server = self.server
        if name in pages:
            from .app_files import has_page

            if not has_page(options):
                options["ui"] = name
        try:
            if self._sharing is not None:
                self._sharing.give(each.function)
            installed = server.extensions.values()
            check_options("tool", options, [one for extension in installed for one in extension.tool_options])
            return tool_entry(server.catalog, installed, each.function, _typed(options))
        except Exception as error:  # whatever an annotation or a default of the author's raises
            what = str(error) if isinstance(error, RegistrationError) else f"{type(error).__name__}: {error}"
            self._report.error(path, f"{what}; {each.name} is left out", each.line)
            return None

    # -- files -------------------------------------------------------------------------------

    def _pages(self) -> dict[str, ResourceEntry] | None:
        folder = self._folder("apps")
        if folder is None:
            return None
        from .app_files import apps_of

        return dict(apps_of(self.server, folder, self._report))

    def _resources(self) -> tuple[list[ResourceEntry], list[TemplateEntry]] | None:
        folder = self._folder("resources")
        if folder is None:
            return None
        from .resource_files import resources_of, uri_prefix

        table = self.configuration.resources
        return resources_of(folder, table, table.uri or uri_prefix(self.server.name), self._report)

    def _prompts(self) -> list[PromptEntry] | None:
        folder = self._folder("prompts")
        if folder is None:
            return None
        from .prompt_files import prompts_of

        return prompts_of(folder, self._report)


def _typed(options: dict[str, Any]) -> Any:
    """What the decorator takes too; its names were checked."""
    return options


def _check(place: Place, said: Configuration) -> None:
    """Raise ConfigurationError for a folder that offers nothing, nor says that it will."""
    if place.file or any(os.path.isdir(os.path.join(place.root, getattr(said, name).folder)) for name in FOLDERS):
        return
    shown = os.path.relpath(place.root)
    files = sorted(name for name in os.listdir(place.root) if name.endswith(".py"))
    if files:
        best = next((name for name in ("server.py", "main.py", "app.py") if name in files), files[0])
        raise ConfigurationError(
            f"{shown} is a folder without {', '.join(FOLDERS)}; name a file in it, as {os.path.join(shown, best)}"
        )
    raise ConfigurationError(
        f"{shown} is a folder without {', '.join(FOLDERS)} or mcpd.toml; mcpd init {shown} writes what it takes"
    )
