"""Notebooks in a folder: a tool that shows one, its View, and the tool from which the View loads cells.

The tools are offered if the folder has notebooks, which are read on each call. The result has the notebook as text. The
View loads the cells in batches with a tool of its own, because hosts limit messages to a few megabytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Annotated, Any, Final, cast

from msgspec import Meta, Struct

from mcpd.errors import ToolError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import TextContent
from mcpd.server import Server
from mcpd.server.entries import tool_entry
from mcpd.server.extensions.ui.apps import AppEntry
from mcpd.server.extensions.ui.pages import bundled_page
from mcpd.server.extensions.ui.results import ViewResult, view_result
from mcpd.server.folder_files import read_within
from mcpd.server.registry.entries import ResourceEntry, ToolEntry
from mcpd.sources.docs.notebook import Notebook, UnreadableNotebook
from .resources import FileResource

SUFFIX: Final = ".ipynb"

_PAGE: Final = "notebook-viewer"
_TOOL: Final = "show_notebook"
_CELLS: Final = "show_notebook_cells"
MAX_BYTES: Final = 64 * 1024 * 1024
_NAMED: Final = 20


class NotebookFile(Struct, frozen=True):
    """A notebook. `name` is the argument of the tools: the sub-folder and the path in it."""

    name: str
    path: str
    folder: str


def notebooks_among(entries: Iterable[ResourceEntry]) -> Iterator[NotebookFile]:
    for entry in entries:
        if isinstance(entry, FileResource) and entry.origin.file.suffix == SUFFIX:
            file = entry.origin.file
            yield NotebookFile("/".join(("resources", *file.parts)), file.path, entry.origin.folder)


def notebooks_below(folder: str, paths: Iterable[str]) -> Iterator[NotebookFile]:
    """Yield the notebooks among the documents. `paths` are relative to `folder`."""
    for path in paths:
        if path.lower().endswith(SUFFIX):
            yield NotebookFile(f"docs/{path}", os.path.join(folder, *path.split("/")), folder)


class Notebooks:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._files: dict[str, NotebookFile] = {}
        self._tools: list[ToolEntry] = []
        self._page: AppEntry | None = None

    def entries(self, files: Iterable[NotebookFile]) -> tuple[list[ToolEntry], list[ResourceEntry]]:
        """Return the tools and resources for these files. The same files give the same entries."""
        found = {file.name: file for file in files}
        if not found:
            self._files = {}
            return [], []
        if self._page is None:
            named = (_PAGE, "Notebook", "Shows a notebook with the outputs of its cells")
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
        return tool_entry(server.catalog, server.extensions.values(), function, cast(Any, options))

    # -- the tools; in threads, as they are plain functions ------------------------------------------

    def _show(self, names: list[str]) -> Any:
        # Return the function of the tool for models. Its schema has the names as examples.

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
        """Return cells of a notebook for its View, starting with the number `first`."""
        from mcpd.sources.docs.notebook_views import shown_cells

        file, notebook = self._read(path)
        shown = shown_cells(notebook, file.name, _within(first, len(notebook.cells)))
        last = first + len(shown.cells) - 1
        # `view_result` would send the data twice, and it may have several megabytes.
        return ViewResult(content=[TextContent(f"Cells {first} to {last} of {file.name}")], structured_content=shown)

    # -- files ---------------------------------------------------------------------------------------

    def _read(self, path: str) -> tuple[NotebookFile, Notebook]:
        from mcpd.sources.docs.notebook import read_notebook

        file = self._found(path)
        try:
            data = read_within(file.path, file.folder, MAX_BYTES + 1)
        except OSError as error:
            raise ToolError(f"{file.name} cannot be read: {error.strerror}") from None

        if len(data) > MAX_BYTES:
            raise ToolError(f"{file.name} is larger than {MAX_BYTES} bytes; clear the outputs of its cells")

        try:
            return file, read_notebook(data)
        except UnreadableNotebook as error:
            raise ToolError(f"{file.name} cannot be shown: {error}") from None

    def _found(self, path: str) -> NotebookFile:
        # Find a notebook by its name, the end of its name, or its URI. Raises ToolError if the match is not unique.
        files = self._files
        wanted = path.strip().removeprefix("./").lstrip("/")
        for name in (wanted, f"{wanted}.ipynb"):
            if name in files:
                return files[name]
            low = f"/{name.casefold()}"
            ends = [known for known in files if f"/{known}".casefold().endswith(low)]
            matches = ends or [known for known in files if low.endswith(known[known.index("/") :].casefold())]
            if len(matches) == 1:
                return files[matches[0]]
            if matches:
                names = ", ".join(sorted(matches)[:_NAMED])
                raise ToolError(f"several notebooks match {printable(path, 200)!r}: {names}")

        stems = {os.path.basename(name): name for name in files}
        near_stems = get_close_matches(os.path.basename(wanted), stems, 5, 0.4)
        near = get_close_matches(wanted, files, 5, 0.5) or [stems[stem] for stem in near_stems]
        names = f"similar notebooks: {', '.join(near)}" if near else f"notebooks: {', '.join(sorted(files)[:_NAMED])}"
        raise ToolError(f"notebook not found: {printable(path, 200)!r}; {names}")


_FIRST: Final = Meta(ge=1, description="The number of the first cell, to continue a long notebook.")
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
        "description": f"Show a Jupyter notebook: text, code and outputs. No code is run. Notebooks: {there}{more}.",
        "ui": _PAGE,
        "annotations": {"readOnlyHint": True},
    }


def _within(first: int, total: int) -> int:
    if first > max(total, 1):
        raise ToolError(f"cell {first} does not exist: the notebook has {total} cells")
    return first
