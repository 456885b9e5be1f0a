"""`Library`: the documents of a folder, to be listed, read and searched."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import ParamSpec, TypeVar

from mcpd.sources.docs.readers.reading import read_page
from .files import File, file_at, read_document, scan
from .indexer import Indexer
from .page import (
    CodeResult,
    DocsSettings,
    EntryResult,
    LeftOut,
    Overview,
    Page,
    PageInfo,
    Progress,
    SearchResult,
    Section,
    UnknownPage,
    UnknownSection,
    folder_of,
    mime_type_of,
    order_of,
    section_of,
    title_of,
)
from .rendering import names_of, read_image
from .search import State, code_result, entry_result, search_result
from .words import named_like, near_names

P = ParamSpec("P")
R = TypeVar("R")

_KEPT_PAGES = 32
_THREADS = 2


class Library:
    """The pages of a folder and their index. All methods may be called from any thread and any event loop."""

    def __init__(self, folder: str, settings: DocsSettings | None = None, cache: str | None = None) -> None:
        """`cache` is the path of the index, which is created if necessary; None keeps the index in memory."""
        self.folder = os.path.realpath(folder)
        self.settings = settings or DocsSettings()
        self._lock = threading.Lock()
        self._index = Indexer(self.folder, self.settings, cache)
        self._slots = threading.BoundedSemaphore(_THREADS)
        self._is_closed = False
        self._pages: OrderedDict[tuple[str, int, int], Page] = OrderedDict()

    # -- the index, behind everything ------------------------------------------------------------

    def start(self) -> None:
        self._index.start()

    def scan(self) -> dict[str, File]:
        """Return the current documents by path. Blocks while the folder is scanned; no file is read."""
        tree = scan(self.folder, self.settings)
        self._index.use_scan(tree)
        return tree.files

    def refresh(self, changed: Iterable[str] | None = None) -> None:
        """Update the index in the background for these paths, relative or absolute, or for all files."""
        if changed is not None:
            # A path that is relative already stays as it is.
            paths = (os.path.relpath(os.path.join(self.folder, path), self.folder) for path in changed)
            changed = [path.replace(os.sep, "/") for path in paths]
        self._index.refresh(changed)

    @property
    def progress(self) -> Progress:
        return self._index.progress

    @property
    def left_out(self) -> list[LeftOut]:
        return self._index.left_out

    async def aclose(self) -> None:
        await self._run(self._index.stop)
        self._is_closed = True

    # -- lists and pages -------------------------------------------------------------------------

    async def overview(self) -> Overview:
        # The index is not needed for this.
        return await self._run(self._overview)

    async def list_pages(self, section: str | None = None) -> list[PageInfo]:
        """Return all pages, or the pages of a section or of a folder in it, in order. Raises UnknownSection."""
        return await self._run(self._list_pages, section)

    async def page(self, path: str) -> Page:
        """Return the current version of a page. Raises UnknownPage, or UnreadablePage if its file cannot be read."""
        return await self._run(self._page, path)

    async def image(self, path: str) -> tuple[bytes, str]:
        """Return an image of the folder and its MIME type. Raises UnknownPage or UnreadablePage."""
        return await self._run(read_image, self.folder, path, self.settings)

    async def names(self) -> dict[str, str]:
        return await self._run(lambda: names_of(self._files()))

    # -- questions -------------------------------------------------------------------------------

    async def search(
        self,
        query: str,
        *,
        section: str | None = None,
        kind: str | None = None,
        limit: int = 5,
        cursor: str | None = None,
    ) -> SearchResult:
        """Return the pages that match a query, best first.

        A query has words, "phrases in quotes" and prefixes such as `config*`. Misspelt words are corrected. `section`
        is a section or a folder in one, `kind` a value of `Page.kind`, and `limit` is at most 50. Raises UnknownSection
        and BadCursor.
        """
        return await self._ask(partial(search_result, query=query, kind=kind, limit=limit, cursor=cursor), section)

    async def find_code(
        self, words: str, *, language: str | None = None, section: str | None = None, limit: int = 5,
        cursor: str | None = None,
    ) -> CodeResult:  # fmt: skip
        """Return code blocks that contain these words or are near them; without words, all blocks in a language."""
        question = partial(code_result, words=words, language=language, limit=limit, cursor=cursor)
        return await self._ask(question, section)

    async def look_up(self, name: str, *, section: str | None = None, limit: int = 5) -> EntryResult:
        """Return the places that describe a command or setting, such as `run-all`. Raises UnknownSection."""
        return await self._ask(partial(entry_result, name=name, limit=limit), section)

    async def _ask(self, question: Callable[[State, str | None], R], section: str | None) -> R:
        # The time that a search waits for a thread counts too.
        return await self._run(self._answer, question, section, time.monotonic())

    # -- in threads of the library ---------------------------------------------------------------

    async def _run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        # Call a function in a daemon thread, which does not delay the end of the process.
        if self._is_closed:
            raise RuntimeError("the library is closed")
        future: Future[R] = Future()

        def call() -> None:
            with self._slots:
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(function(*args, **kwargs))
                    except BaseException as error:
                        future.set_exception(error)

        threading.Thread(target=call, name="mcpd docs", daemon=True).start()
        return await asyncio.wrap_future(future)

    def _files(self) -> dict[str, File]:
        files = self._index.files
        return self.scan() if files is None else files

    def _answer(self, question: Callable[[State, str | None], R], section: str | None, since: float) -> R:
        # Run a search once all pages are indexed or the waiting time is over. A damaged index is created again.
        index = self._index
        if section is not None:
            section = self._section(section)
        for attempt in range(3):
            index.wait(since + self.settings.search_wait - time.monotonic())
            try:
                store = index.store()
                with store.read() as connection:
                    state = State(connection, store.generation(connection), index.progress, index.vocabulary)
                    return question(state, section)
            except sqlite3.Error as error:
                if attempt == 2:
                    raise
                index.broken(error)
                since = time.monotonic()

        raise AssertionError

    def _section(self, section: str) -> str:
        # Return the path of a section given by its path, ignoring case, or by its title. Raises UnknownSection.
        folders = {folder_of(path) for path in self._files()} - {""}
        if not section or any(f"{folder}/".startswith(f"{section}/") for folder in folders):
            return section
        parts = [folder.split("/") for folder in folders]
        found = named_like(section, {"/".join(part[:size]) for part in parts for size in range(1, len(part) + 1)})
        if found is not None:
            return found
        tops = sorted({part[0] for part in parts})
        raise UnknownSection(section, near_names(section, folders) or tops[:20])

    def _overview(self) -> Overview:
        files = self._files()
        counts = Counter(section_of(path) for path in files)
        places: dict[str, str] = {}
        for path in files:
            places.setdefault(section_of(path), path)
        sections = [
            Section(name, title_of(name), counts[name])
            for name in sorted(counts, key=lambda name: (name != "", places[name]))
        ]
        return Overview(self._title(files), sections, len(files), self.progress)

    def _title(self, files: dict[str, File]) -> str:
        if self.settings.title:
            return self.settings.title
        firsts = [path for path in files if "/" not in path and order_of(path) == 0]
        for info in self._infos(firsts[:1]):
            if info.title and info.title != title_of(info.path):
                return info.title
        return title_of(os.path.basename(self.folder))

    def _list_pages(self, section: str | None) -> list[PageInfo]:
        paths = list(self._files())
        if section is not None:
            wanted = f"{self._section(section)}/"
            # Pages at the top have the folder "", which is the only one that begins with "/" then.
            paths = [path for path in paths if f"{folder_of(path)}/".startswith(wanted)]
        infos = self._infos(paths)
        infos.sort(key=lambda info: (info.path.split("/")[:-1], info.order, info.path))
        return infos

    def _infos(self, paths: list[str]) -> list[PageInfo]:
        files = self._files()
        known = self._index.titles()
        found = []
        for path in paths:
            file = files.get(path)
            if file is None or path in self._index.unreadable:
                continue
            title, description, order = known.get(path) or (title_of(path), "", order_of(path))
            mime_type, section = mime_type_of(file.kind), section_of(path)
            size, modified = file.size, file.modified_ns
            found.append(PageInfo(path, title, section, description, mime_type, file.kind, size, order, modified))

        return found

    def _page(self, path: str) -> Page:
        file = file_at(self.folder, path, self.settings)
        if not isinstance(file, File):
            raise UnknownPage(path, near_names(path, self._files()))
        key = (path, file.size, file.modified_ns)
        page = self._pages.get(key)
        if page is None:
            data, _ = read_document(self.folder, file, self.settings)
            page = read_page(path, data, process=self._index.process)
            with self._lock:
                self._pages[key] = page
                while len(self._pages) > _KEPT_PAGES:
                    self._pages.popitem(last=False)

        return page
