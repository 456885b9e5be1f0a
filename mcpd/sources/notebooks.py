"""Notebooks among the files of a folder: a tool that shows one, the page that it opens, and what that page asks for.

They are offered where a folder has notebooks, and read when they are asked for. The result says which notebook, and has
it as text; the page gets the cells some at a time, by a tool of its own, as hosts do not pass on more than some
megabytes at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from mcpd.errors import ToolError
from mcpd.extensions.ui.apps import AppEntry
from mcpd.extensions.ui.results import ViewResult, view_result
from mcpd.extensions.ui.views.entry import bundled_page
from mcpd.protocol.printable import printable
from mcpd.protocol.types.content import TextContent
from mcpd.server import Server
from mcpd.server.entries import tool_entry
from mcpd.server.folder_files import read_within
from mcpd.server.registry.entries import ResourceEntry, ToolEntry
from mcpd.sources.docs.notebook import Notebook, UnreadableNotebook
from mcpd.sources.resources import FileResource

SUFFIX: Final = ".ipynb"

_PAGE: Final = "notebook-viewer"
_TOOL: Final = "show_notebook"
_CELLS: Final = "show_notebook_cells"
MOST_BYTES: Final = 64 * 1024 * 1024
_NAMED: Final = 20


class NotebookFile(Struct, frozen=True):
    """A notebook. `name` is what callers call it: the sub-folder, and its path in there."""

    name: str
    path: str
    folder: str


def notebooks_among(entries: Iterable[ResourceEntry]) -> Iterator[NotebookFile]:
    """The notebooks among the files of `resources/`."""
    for entry in entries:
        if isinstance(entry, FileResource) and entry.origin.file.suffix == SUFFIX:
            file = entry.origin.file
            yield NotebookFile("/".join(("resources", *file.parts)), file.path, entry.origin.folder)


def notebooks_below(folder: str, paths: Iterable[str]) -> Iterator[NotebookFile]:
    """The notebooks among the documents of `docs/`; `paths` are below it."""
    for path in paths:
        if path.lower().endswith(SUFFIX):
            yield NotebookFile(f"docs/{path}", os.path.join(folder, *path.split("/")), folder)


class Notebooks:
    """The tools and the page for the notebooks of one folder."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._files: dict[str, NotebookFile] = {}
        self._tools: list[ToolEntry] = []
        self._page: AppEntry | None = None

    def entries(self, files: Iterable[NotebookFile]) -> tuple[list[ToolEntry], list[ResourceEntry]]:
        """What is offered for these files; nothing without any. The same entries as long as they are the same files."""
        found = {file.name: file for file in files}
        if not found:
            self._files = {}
            return [], []
        if self._page is None:
            named = (_PAGE, "Notebook", "Shows a notebook, and what its cells gave")
            self._page = bundled_page(self._server.name, "notebook", _CELLS, {}, named)
        if found.keys() != self._files.keys() or not self._tools:
            self._tools = [
                self._tool(self._show(sorted(found)), _shown_options(found)),
                self._tool(self.cells, _CELLED),
            ]
        self._files = found
        return self._tools, [self._page]

    def _tool(self, function: Any, options: dict[str, Any]) -> ToolEntry:
        server = self._server
        return tool_entry(server.catalog, server.extensions.values(), function, _typed(options))

    # -- the tools; in threads, as they are plain functions ------------------------------------------

    def _show(self, names: list[str]) -> Any:
        """The tool for models, with the names that there are in its schema."""

        def show_notebook(path: str, first_cell: int = 1) -> ViewResult:
            from mcpd.sources.docs.notebook_views import notebook_text

            file, notebook = self._read(path)
            total = len(notebook.cells)
            text, after = notebook_text(notebook, _within(first_cell, total))
            head = f"{file.name}: {total} cells{f', {notebook.language}' if notebook.language else ''}"
            if after is not None:
                head += f". These are cells {first_cell} to {after - 1}; the rest: first_cell={after}"
            title = notebook.title or os.path.basename(file.name)
            data = {"path": file.name, "title": title, "language": notebook.language, "cells": total}
            return view_result(f"{head}\n\n{text}", data)

        which = Meta(description="Which notebook.", examples=names[:_NAMED])
        show_notebook.__annotations__ = {"path": Annotated[str, which], "first_cell": Annotated[int, _FIRST],
                                         "return": ViewResult}  # fmt: skip
        return show_notebook

    def cells(self, path: str, first: Annotated[int, Meta(ge=1)] = 1) -> ViewResult:
        """Cells of a notebook for the page that shows it, from the one with this number on."""
        from mcpd.sources.docs.notebook_views import shown_cells

        file, notebook = self._read(path)
        shown = shown_cells(notebook, file.name, _within(first, len(notebook.cells)))
        last = first + len(shown.cells) - 1
        # Not by `view_result`, which sends data twice: it may be some megabytes.
        return ViewResult(content=[TextContent(f"Cells {first} to {last} of {file.name}")], structured_content=shown)

    # -- files ---------------------------------------------------------------------------------------

    def _read(self, path: str) -> tuple[NotebookFile, Notebook]:
        from mcpd.sources.docs.notebook import read_notebook

        file = self._found(path)
        try:
            data = read_within(file.path, file.folder, MOST_BYTES + 1)
        except OSError as error:
            raise ToolError(f"{file.name} cannot be read: {error.strerror}") from None
        if len(data) > MOST_BYTES:
            raise ToolError(
                f"{file.name} has more than {MOST_BYTES} bytes and is not shown; clear outputs of its cells"
            )
        try:
            return file, read_notebook(data)
        except UnreadableNotebook as error:
            raise ToolError(f"{file.name} cannot be shown: {error}") from None

    def _found(self, path: str) -> NotebookFile:
        """The notebook that is meant: by its name, by the end of its name, or by its URI. Raises ToolError."""
        files = self._files
        wanted = path.strip().removeprefix("./").lstrip("/")
        for name in (wanted, f"{wanted}.ipynb"):
            if name in files:
                return files[name]
            low = name.casefold()
            fitting = [file for key, file in files.items() if f"/{key.casefold()}".endswith(f"/{low}")]
            fitting = fitting or [
                file for key, file in files.items() if low.endswith("/" + key.partition("/")[2].casefold())
            ]
            if len(fitting) == 1:
                return fitting[0]
            if fitting:
                names = ", ".join(sorted(file.name for file in fitting)[:_NAMED])
                raise ToolError(f"there is more than one notebook {printable(path, 200)!r}: {names}")

        stems = {os.path.basename(name): name for name in files}
        near = get_close_matches(wanted, files, 5, 0.5) or [
            stems[stem] for stem in get_close_matches(os.path.basename(wanted), stems, 5, 0.4)
        ]
        names = ", ".join(near or sorted(files)[:_NAMED])
        raise ToolError(f"there is no notebook {printable(path, 200)!r}; {'near it' if near else 'there'}: {names}")


_FIRST: Final = Meta(ge=1, description="The number of the cell to begin with, for what did not fit before.")
_CELLED: Final[dict[str, Any]] = {
    "name": _CELLS,
    "title": "Cells of a notebook",
    "visibility": ["app"],
    "annotations": {"readOnlyHint": True},
}


def _shown_options(names: dict[str, NotebookFile]) -> dict[str, Any]:
    there = ", ".join(sorted(names)[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return {
        "name": _TOOL,
        "title": "Show a notebook",
        "description": f"Show a Jupyter notebook: text, code, and what it gave. Nothing is run. There: {there}{more}.",
        "ui": _PAGE,
        "annotations": {"readOnlyHint": True},
    }


def _within(first: int, total: int) -> int:
    if first > max(total, 1):
        raise ToolError(f"the notebook has {total} cells; there is no cell {first}")
    return first


def _typed(options: dict[str, Any]) -> Any:
    """What the decorator takes too."""
    return options
