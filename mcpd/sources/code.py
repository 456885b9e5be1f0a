"""The Python files of a folder: what `tools/` has, and what `lifespan.py` opens for it.

Theory of operation. When a file has changed, all of them are imported anew, as a package of another name: tools see
what changed in their neighbours, and calls that run go on in the modules that they began in. What `lifespan.py` loaded
stays as it is, since what it opened is of its classes. A file that cannot be imported any more keeps what it had.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import invalidate_caches
from typing import TYPE_CHECKING, Any, TypeAlias

from mcpd.errors import ConfigurationError, RegistrationError
from mcpd.server import Server
from mcpd.server.entries import tool_entry
from mcpd.server.metadata import check_options
from mcpd.server.registry.entries import Problem, ToolEntry
from mcpd.sources.files import MOST_OF_A_KIND, Report, files_of, folders_below
from mcpd.sources.functions import ToolFunction, tool_functions
from mcpd.sources.modules import FolderPackage
from mcpd.sources.tables import Configuration

if TYPE_CHECKING:
    from mcpd.sources.lifespan import Sharing

_LIFESPAN = "lifespan.py:lifespan"
FileStamps: TypeAlias = dict[str, tuple[int, int] | None]


class Code:
    """The code of one folder. Raises ConfigurationError if what its tools share cannot be had."""

    def __init__(
        self, root: str, tools: str, configuration: Configuration, file: str, left_out: Mapping[str, str]
    ) -> None:
        """`tools` is the path of the sub-folder, `file` that of mcpd.toml; `left_out` says why of which files."""
        self._root = root
        self._folder = tools
        self._seconds = configuration.tools.import_timeout
        self._package = FolderPackage(root, [tools, root])
        self._first = self._before = self._package
        self._seen: object = None
        self._is_broken = False
        self._left_out = {path: (why, _time_of(path)) for path, why in left_out.items()}
        self._entries: list[ToolEntry] = []
        self._problems: list[Problem] = []
        self._good: dict[str, tuple[FolderPackage, list[ToolEntry]]] = {}
        """What each file had when it could last be imported."""
        self.sharing = self._find_sharing(configuration.lifespan, file)
        self._kept = self._package.stamps()

    def tools(self, server: Server, pages: frozenset[str], report: Report) -> list[ToolEntry]:
        """The tools of all files; those with a page of their name open it."""
        files, others = self._files(), self._others()
        if (files, others, pages) != self._seen:
            found, before = Report(self._root), {**others, **files}
            if self._seen is not None:
                self._begin_anew(found)
            self._entries = self._load(server, pages, found)
            self._problems = found.problems

            # Each as it was before it was read: who writes meanwhile, half of it as it may be, is heard of again.
            since = {path: before.get(path, stamp) for path, stamp in self._others().items()}
            self._seen = (files, since, pages)
        report.problems += self._problems
        return self._entries

    def _files(self) -> FileStamps:
        """Size and time of each file in the sub-folder."""
        files = files_of(self._folder, Report(self._root), most=MOST_OF_A_KIND, is_wanted=_is_python)
        return {file.path: (file.size, file.modified_ns) for file in files}

    def _others(self) -> FileStamps:
        """Size and time of those that were imported, None for one that is gone. Where something could not be imported
        of all that are there: what it lacks may be in any of them."""
        found = dict(self._package.stamps().values())
        if self._is_broken:
            for folder in folders_below([self._root]):
                found.update(_stamps_in(folder))
        return found

    def _begin_anew(self, report: Report) -> None:
        for path in self._first.changed(self._kept):
            text = (
                "has changed, and is what lifespan.py opened things with; it is read when the server is started again"
            )
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
        for file in files_of(self._folder, report, most=MOST_OF_A_KIND, is_wanted=_is_python):
            if file.stem.startswith("_"):
                continue
            if (why := self._left_out.get(file.path)) and why[1] == file.modified_ns:
                report.error(file.path, f"{why[0]}; it is left out")
                continue
            instead = "what it had before is served" if file.path in self._good else "it is left out"
            module = self._package.load(file.path, self._seconds, report, instead)
            self._is_broken |= module is None
            if module is not None:
                functions = tool_functions(module, file.path, report)
                tools = [
                    _tool(server, each, file.path, file.parts[:-1], pages, self.sharing, report) for each in functions
                ]
                good[file.path] = self._package, [tool for tool in tools if tool is not None]
            elif file.path in self._good:
                good[file.path] = self._good[file.path]

            for entry in good[file.path][1] if file.path in good else ():
                if entry.key in found:
                    text = f"there is a tool {entry.key} already ({places[entry.key]}); this one is left out"
                    report.error(file.path, text, _line_of(entry))
                    continue
                found[entry.key], places[entry.key] = entry, "/".join(file.parts)
        self._good = good
        return list(found.values())

    # -- what tools share --------------------------------------------------------------------

    def _find_sharing(self, said: str | None, file: str) -> Sharing | None:
        """What tools share. Raises ConfigurationError if it cannot be had.

        Without it a parameter of its types would be one that clients set.
        """
        place, _, name = (said or _LIFESPAN).rpartition(":")
        path = os.path.normpath(os.path.join(self._root, place))
        if said is None and not os.path.isfile(path):
            return None
        where = f"{file}: lifespan" if said else path
        if not place.endswith(".py") or not name.isidentifier() or not path.startswith(self._root + os.sep):
            raise ConfigurationError(f"{where} is to be FILE:FUNCTION in this folder, as {_LIFESPAN}, not {said!r}")
        from mcpd.sources.lifespan import sharing_of

        report = Report(self._root)
        module = self._package.load(path, self._seconds, report) if os.path.isfile(path) else None
        report.tell([problem for problem in report.problems if not problem.is_error])
        if module is None:
            problems = "; ".join(map(str, report.problems)) or f"there is no file {place}"
            raise ConfigurationError(f"{where}: what the tools share cannot be opened: {problems}")
        found = getattr(module, name, None)
        if found is None:
            raise ConfigurationError(f"{where}: {place} has no function {name}")
        try:
            return sharing_of(found)
        except RegistrationError as error:
            raise ConfigurationError(f"{path}: {name}: {error}") from error


def _time_of(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _stamps_in(folder: str) -> FileStamps:
    """Size and time of the Python files of one folder."""
    found: FileStamps = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    found[entry.path] = status.st_size, status.st_mtime_ns
    except OSError:
        pass  # what is gone already has no stamps
    return found


def _is_python(parts: tuple[str, ...]) -> bool:
    return parts[-1].endswith(".py")


def _tool(
    server: Server,
    each: ToolFunction,
    path: str,
    above: tuple[str, ...],
    pages: frozenset[str],
    sharing: Sharing | None,
    report: Report,
) -> ToolEntry | None:
    """A function as a tool; None if it cannot be one, which is reported."""
    options: dict[str, Any] = {"name": "_".join((*above, each.name)), **each.options}
    if options["name"] in pages:
        from mcpd.sources.apps import has_page  # what only folders with pages need

        if not has_page(options):
            options["ui"] = options["name"]
    try:
        if sharing is not None:
            sharing.give(each.function)
        installed = server.extensions.values()
        check_options("tool", options, [one for extension in installed for one in extension.tool_options])
        return tool_entry(server.catalog, installed, each.function, _typed(options))
    except Exception as error:  # whatever an annotation or a default of the author's raises
        what = str(error) if isinstance(error, RegistrationError) else f"{type(error).__name__}: {error}"
        report.error(path, f"{what}; {each.name} is left out", each.line)
        return None


def _typed(options: dict[str, Any]) -> Any:
    """What the decorator takes too; its names were checked."""
    return options


def _line_of(entry: ToolEntry) -> int | None:
    from mcpd.server.functions.annotations import plain_function
    from mcpd.server.registry.tools import FunctionTool

    if not isinstance(entry, FunctionTool):
        return None
    line: int = plain_function(entry.callee.function).__code__.co_firstlineno
    return line
