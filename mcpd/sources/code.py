"""The Python files of a folder: the functions in `tools/` and the lifespan in `lifespan.py`.

Theory of operation. When a file changes, all files are imported again, as a package with a new name. Tools therefore
see the changes in the modules that they import, and running calls continue in the modules in which they started.
Modules that `lifespan.py` imported are not reloaded, because the objects that it opened are instances of their classes.
If a file can no longer be imported, its previous tools are still served.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import invalidate_caches
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.server import Server
from mcpd.server.entries import tool_entry
from mcpd.server.functions import Source, source
from mcpd.server.metadata import check_options
from mcpd.server.registry.entries import Problem, ToolEntry
from mcpd.server.registry.tools import FunctionTool
from .files import MAX_PER_KIND, File, Report, Stamp, files_of, folders_below, stamp_of
from .functions import ToolFunction, line_of, tool_functions
from .modules import FolderPackage
from .tables import Configuration

if TYPE_CHECKING:
    from .lifespan import Lifespan

_LIFESPAN = "lifespan.py:lifespan"
FileStamps: TypeAlias = dict[str, Stamp | None]


class FolderCode:
    """The code of one folder. Raises ConfigurationError if the lifespan cannot be loaded."""

    def __init__(
        self, root: str, tools: str, configuration: Configuration, file: str, left_out: Mapping[str, str]
    ) -> None:
        # `tools` and `file` are paths. `left_out` maps the paths of files that must not be imported to the reasons.
        self._root = root
        self._folder = tools
        self._seconds = configuration.tools.import_timeout
        self._package = FolderPackage(root, [tools, root])
        self._first = self._before = self._package
        self._seen: object = None
        self._is_broken = False
        self._left_out = {path: (reason, stamp_of(path)) for path, reason in left_out.items()}
        self._entries: list[ToolEntry] = []
        self._problems: list[Problem] = []
        # The tools of each file from its last successful import, with the package that they are in.
        self._good: dict[str, tuple[FolderPackage, list[ToolEntry]]] = {}
        self._source = source.get()
        self.sharing = self._find_sharing(configuration.lifespan, file)
        self._kept = self._package.stamps()

    def tools(self, server: Server, pages: frozenset[str], report: Report) -> list[ToolEntry]:
        """Return the tools of all files. A tool with an app of the same name opens that app."""
        files, others = self._files(), self._others()
        if (files, others, pages) != self._seen:
            found, before = Report(self._root), {**others, **files}
            if self._seen is not None:
                self._begin_anew(found)
            self._entries = self._load(server, pages, found)
            self._problems = found.problems

            # Stamps from before the files were read, so that a file written during the import is seen as changed next
            # time.
            since = {path: before.get(path, stamp) for path, stamp in self._others().items()}
            self._seen = (files, since, pages)
        report.problems += self._problems
        return self._entries

    def _files(self) -> FileStamps:
        files = files_of(self._folder, Report(self._root), limit=MAX_PER_KIND, is_wanted=_is_python)
        return {file.path: file.stamp for file in files}

    def _others(self) -> FileStamps:
        # Return the stamps of imported files, or None for a deleted file. If an import failed, the stamps of all Python
        # files are included, because the missing name may appear in any of them.
        found = dict(self._package.stamps().values())
        if self._is_broken:
            from glob import escape, glob

            for folder in folders_below([self._root]):
                found.update({path: stamp_of(path) for path in glob(os.path.join(escape(folder), "*.py"))})
        return found

    def _begin_anew(self, report: Report) -> None:
        for path in self._first.changed(self._kept):
            text = "has changed, but lifespan.py uses it; restart the server to load the new version"
            report.warning(path, text)
        invalidate_caches()
        before, self._before = self._before, self._package
        self._package = FolderPackage(self._root, [self._folder, self._root])
        self._package.adopt(self._first, self._kept)
        in_use = (self._first, self._before, *(package for package, _ in self._good.values()))
        if before not in in_use:
            before.close()

    def _load(self, server: Server, pages: frozenset[str], report: Report) -> list[ToolEntry]:
        found: dict[str, ToolEntry] = {}
        places: dict[str, str] = {}
        good: dict[str, tuple[FolderPackage, list[ToolEntry]]] = {}
        self._is_broken = False
        if self._source is not None:
            source.set(Source(self._source.loader, self._source.arguments))
        for file in files_of(self._folder, report, limit=MAX_PER_KIND, is_wanted=_is_python):
            if file.stem.startswith("_"):
                continue
            reason, stamp = self._left_out.get(file.path, ("", None))
            if stamp == file.stamp:
                report.error(file.path, f"{reason}; it is left out")
                continue
            instead = "its previous tools are served" if file.path in self._good else "it is left out"
            module = self._package.load(file.path, self._seconds, report, instead)
            self._is_broken |= module is None
            if module is not None:
                tools = [
                    _tool(server, function, file, pages, self.sharing, report)
                    for function in tool_functions(module, file.path, report)
                ]
                good[file.path] = self._package, [tool for tool in tools if tool is not None]
            elif file.path in self._good:
                good[file.path] = self._good[file.path]

            for entry in good[file.path][1] if file.path in good else ():
                if entry.key in found:
                    text = f"{places[entry.key]} already has a tool {entry.key}; this one is left out"
                    line = line_of(entry.callee.function) if isinstance(entry, FunctionTool) else None
                    report.error(file.path, text, line)
                    continue
                found[entry.key], places[entry.key] = entry, "/".join(file.parts)

        self._good = good
        return list(found.values())

    # -- what tools share --------------------------------------------------------------------

    def _find_sharing(self, setting: str | None, file: str) -> Lifespan | None:
        # Return the lifespan of the folder. Raises ConfigurationError if it cannot be loaded.
        #
        # Serving without it is not safe: clients could then set the parameters that the lifespan provides.
        place, _, name = (setting or _LIFESPAN).rpartition(":")
        path = os.path.normpath(os.path.join(self._root, place))
        if setting is None and not os.path.isfile(path):
            return None
        where = f"{file}: lifespan" if setting else path
        if not place.endswith(".py") or not name.isidentifier() or not path.startswith(self._root + os.sep):
            text = f"{where} must be FILE:FUNCTION in this folder, such as {_LIFESPAN}, not {setting!r}"
            raise ConfigurationError(text)
        from .lifespan import lifespan_of

        report = Report(self._root)
        module = self._package.load(path, self._seconds, report) if os.path.isfile(path) else None
        report.log_problems([problem for problem in report.problems if not problem.is_error])
        if module is None:
            problems = "; ".join(map(str, report.problems)) or f"{place}: no such file"
            raise ConfigurationError(f"{where}: the lifespan cannot be loaded: {problems}")

        found = getattr(module, name, None)
        if found is None:
            raise ConfigurationError(f"{where}: {place} has no function {name}")
        try:
            return lifespan_of(found)
        except RegistrationError as error:
            raise ConfigurationError(f"{path}: {name}: {error}") from error


def _is_python(path: str) -> bool:
    return path.endswith(".py")


def _tool(
    server: Server, tool: ToolFunction, file: File, pages: frozenset[str], sharing: Lifespan | None, report: Report
) -> ToolEntry | None:
    # Return the tool for a function, or None if it cannot be a tool, which is reported.
    options: dict[str, Any] = {"name": "_".join((*file.parts[:-1], tool.name)), **tool.options}
    has_page = any(options.get(option) is not None for option in ("ui", "view", "meta"))
    if options["name"] in pages and not has_page:
        options["ui"] = options["name"]
    try:
        if sharing is not None:
            sharing.give(tool.function)
        installed = server.extensions.values()
        check_options("tool", options, [option for extension in installed for option in extension.tool_options])
        return tool_entry(server.catalog, installed, tool.function, cast(Any, options))
    except Exception as error:  # annotations and defaults of the author may raise anything
        text = str(error) if isinstance(error, RegistrationError) else f"{type(error).__name__}: {error}"
        report.error(file.path, f"{text}; {tool.name} is left out", tool.line)
        return None
