"""The index on disk: kept, broken, foreign, of several processes; and folders that are not as they should be."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from support.folders import indexed

from mcpd.sources.docs import indexer as indexer_module
from mcpd.sources.docs.index import Store
from mcpd.sources.docs.library import Library
from mcpd.sources.docs.page import DocsSettings, Page, UnknownPage, UnreadablePage
from mcpd.sources.docs.readers import reading
from mcpd.sources.docs.readers.markdown import read_markdown


@asynccontextmanager
async def library(folder: Path, cache: Path | None = None, **settings: object) -> AsyncIterator[Library]:
    opened = Library(str(folder), DocsSettings(search_wait=30, **settings), str(cache) if cache else None)  # type: ignore[arg-type]
    try:
        yield opened
    finally:
        await opened.aclose()


async def found(opened: Library, query: str) -> list[str]:
    return [hit.path for hit in (await opened.search(query, limit=50)).hits]


def pages(folder: Path, number: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    for at in range(number):
        (folder / f"page-{at}.md").write_text(f"# Page {at}\n\nBeetroot number{at}.\n")
    return folder


# ------------------------------------------------------------------------------------ on disk


async def test_what_was_indexed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, cache = pages(tmp_path / "docs"), tmp_path / "cache" / "index.sqlite"
    async with library(folder, cache) as first:
        cursor = (await first.search("beetroot", limit=1)).next_cursor
    read: list[str] = []
    original = indexer_module.read_page

    def counted(path: str, data: bytes, **more: object) -> object:
        read.append(path)
        return original(path, data, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(indexer_module, "read_page", counted)
    (folder / "page-0.md").touch()  # written, and the same
    (folder / "page-1.md").write_text("# Page 1\n\nTurnips.\n")
    (folder / "page-2.md").unlink()
    async with library(folder, cache) as second:
        assert await found(second, "beetroot") == ["page-0.md"]
        assert await found(second, "turnips") == ["page-1.md"]
    assert read == ["page-1.md"]

    async with library(pages(folder), cache) as third:  # as at first, but another index
        await indexed(third, 30)
        assert cursor is not None
        with pytest.raises(Exception, match="changed"):
            await third.search("beetroot", limit=1, cursor=cursor)
        cursor = (await third.search("beetroot", limit=1)).next_cursor
    async with library(folder, cache) as fourth:  # a cursor outlives the process
        assert len((await fourth.search("beetroot", limit=1, cursor=cursor)).hits) == 1


def broken(cache: Path) -> None:
    cache.write_bytes(b"SQLite format 3\0" + b"\xff" * 8000)


def foreign(cache: Path) -> None:
    cache.unlink()
    with sqlite3.connect(cache) as connection:
        connection.execute("CREATE TABLE photographs(x)")
    connection.close()


def older(cache: Path) -> None:
    with sqlite3.connect(cache) as connection:
        connection.execute("PRAGMA user_version = 0")
    connection.close()


def torn(cache: Path) -> None:
    """Its head is right, and what is behind is not."""
    data = bytearray(cache.read_bytes())
    data[4096 * 2 :] = b"\xee" * (len(data) - 4096 * 2)
    cache.write_bytes(data)


def of_another_folder(cache: Path) -> None:
    with sqlite3.connect(cache) as connection:
        connection.execute("UPDATE meta SET value = '/elsewhere' WHERE name = 'folder'")
    connection.close()


def text(cache: Path) -> None:
    cache.write_text("this is no database, and never was one; " * 400)


@pytest.mark.parametrize("spoil", [broken, foreign, older, torn, of_another_folder, text])
async def test_a_file_that_is_no_index_of_ours_is_made_anew(tmp_path: Path, spoil: object) -> None:
    folder, cache = pages(tmp_path / "docs"), tmp_path / "index.sqlite"
    async with library(folder, cache) as first:
        await indexed(first, 30)
    for suffix in ("-wal", "-shm"):
        Path(f"{cache}{suffix}").unlink(missing_ok=True)
    spoil(cache)  # type: ignore[operator]
    async with library(folder, cache) as second:
        assert sorted(await found(second, "beetroot")) == ["page-0.md", "page-1.md", "page-2.md"]
    with sqlite3.connect(cache) as connection:
        assert connection.execute("SELECT count(*) FROM files").fetchone() == (3,)
    connection.close()


async def test_what_lacked_a_library_is_read_once_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache = pages(tmp_path / "docs", 1), tmp_path / "cache" / "index.sqlite"

    def without(path: str, data: bytes, **_: object) -> object:
        raise UnreadablePage("HTML needs libraries: pip install 'mcpd-server[docs]'")

    with monkeypatch.context() as patched:
        patched.setattr(indexer_module, "read_page", without)
        async with library(folder, cache) as first:
            assert await found(first, "beetroot") == []
    async with library(folder, cache) as second:
        assert await found(second, "beetroot") == ["page-0.md"]


async def test_an_index_that_breaks_while_it_is_used_is_made_anew(tmp_path: Path) -> None:
    folder, cache = pages(tmp_path / "docs"), tmp_path / "index.sqlite"
    async with library(folder, cache) as opened:
        await indexed(opened, 30)
        with sqlite3.connect(cache) as connection:
            connection.execute("DROP TABLE chunks")
        connection.close()
        assert len(await found(opened, "beetroot")) == 3


async def test_where_nothing_can_be_written_the_index_is_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    folder = pages(tmp_path / "docs")
    async with library(folder, tmp_path / "file" / "cache" / "index.sqlite") as opened:
        assert len(await found(opened, "beetroot")) == 3
    assert "kept in memory" in caplog.text


async def test_a_full_disk_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Store._connected

    def small(self: Store, cache: str) -> sqlite3.Connection:
        connection = original(self, cache)
        connection.execute("PRAGMA max_page_count = 24")  # SQLite says then what it says of a full disk
        return connection

    monkeypatch.setattr(Store, "_connected", small)
    folder = pages(tmp_path / "docs", 2)
    (folder / "large.md").write_text("\n\n".join(f"# Part {at}\n\nword{at} beetroot" for at in range(3000)))
    async with library(folder, tmp_path / "index.sqlite") as opened:
        assert sorted(await found(opened, "beetroot")) == ["large.md", "page-0.md", "page-1.md"]


PROCESS = """
import asyncio, sys
from mcpd.sources.docs.library import Library
from mcpd.sources.docs.page import DocsSettings
async def main():
    library = Library(sys.argv[1], DocsSettings(search_wait=60), sys.argv[2])
    found = await library.search("beetroot", limit=50)
    await library.aclose()
    print(found.total, found.progress.is_complete)
asyncio.run(main())
"""


def test_several_processes_share_one_file(tmp_path: Path) -> None:
    folder, cache = pages(tmp_path / "docs", 40), tmp_path / "index.sqlite"
    command = [sys.executable, "-c", PROCESS, str(folder), str(cache)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=60)[0] for process in started] == ["40 True\n"] * 3
    with sqlite3.connect(cache) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT path) FROM files").fetchone() == (40, 40)
        connection.execute("INSERT INTO words(words) VALUES ('integrity-check')")
    connection.close()


# ------------------------------------------------------------------------------------ hostile folders


@pytest.mark.skipif(os.name != "posix", reason="names and links as POSIX has them")
async def test_what_is_no_page_is_left_out_and_named(tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("# Password\n\nbeetroot1234")
    folder = pages(tmp_path / "docs", 1)
    (folder / "out.md").symlink_to(secret)
    (folder / "out").symlink_to(tmp_path, target_is_directory=True)
    (folder / "in.md").symlink_to(folder / "page-0.md")
    (folder / "nowhere.md").symlink_to(folder / "nothing.md")
    os.mkfifo(folder / "pipe.md")
    (folder / "binary.md").write_bytes(b"\x00\x01\x02")
    (folder / "large.md").write_bytes(b"a" * 20_001)
    (folder / "bad.ipynb").write_text("no notebook")
    (folder / "new\nline \u202e.md").write_text("# Named oddly\n\nturnip \N{SNOWMAN}")
    (folder / ".hidden.md").write_text("# Hidden")
    deep = folder.joinpath(*"abcd")
    deep.mkdir(parents=True)
    (deep / "deep.md").write_text("# Deep")
    async with library(folder, max_bytes=20_000, max_depth=3) as opened:
        assert sorted(await found(opened, "beetroot")) == ["in.md", "page-0.md"]
        assert await found(opened, "oddly") == ["new\nline \u202e.md"]
        assert not await found(opened, "hidden deep password")
        left_out = {one.path: one.reason for one in opened.left_out}
        assert set(left_out) == {
            "out.md", "nowhere.md", "pipe.md", "binary.md", "large.md", "bad.ipynb", "a/b/c/d"
        }  # fmt: skip
        assert left_out["out.md"] == "is a link that leads out of the folder"
        listed = [one.path for one in await opened.list_pages()]
        assert "binary.md" not in listed
        assert "out.md" not in listed
        for path in ("out.md", "out/secret.md", "pipe.md", ".hidden.md", "../secret.md", "x\0.md"):
            with pytest.raises(UnknownPage):
                await opened.page(path)
        with pytest.raises(UnreadablePage, match="binary"):
            await opened.page("binary.md")


async def test_more_files_than_are_taken(tmp_path: Path) -> None:
    async with library(pages(tmp_path / "docs", 8), max_files=5) as opened:
        assert len(await found(opened, "beetroot")) == 5
        assert opened.left_out[0].reason == "3 documents beyond the limit of 5 are left out"


async def test_files_that_go_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pages(tmp_path / "docs", 4)

    def read(path: str, data: bytes) -> Page:
        (folder / "page-3.md").unlink(missing_ok=True)
        if path == "page-1.md":
            raise RuntimeError("a reader that fails")
        return read_markdown(path, data)

    monkeypatch.setitem(reading._READERS, "markdown", read)
    async with library(folder) as opened:
        assert sorted(await found(opened, "beetroot")) == ["page-0.md", "page-2.md"]


async def test_a_search_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers with what is there, and says how far indexing is; closing stops that at once."""
    folder = pages(tmp_path / "docs", 200)
    is_slow, go_on = threading.Event(), threading.Event()
    original = indexer_module.read_page

    def slow(path: str, data: bytes, **more: object) -> object:
        if path == "page-99.md":
            is_slow.set()
            go_on.wait(60)
        return original(path, data, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(indexer_module, "read_page", slow)
    opened = Library(str(folder), DocsSettings(search_wait=0.01))
    try:
        result = await opened.search("beetroot")
        assert not result.progress.is_complete
        assert await asyncio.to_thread(is_slow.wait, 60)  # the folder is read by now
        result = await opened.search("beetroot")
        assert not result.progress.is_complete
        assert result.progress.total == 200
    finally:
        closing = asyncio.create_task(opened.aclose())
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait_for(closing, 20)


# ------------------------------------------------------------------------------------ whatever is asked


@given(st.text(max_size=60), st.sampled_from([None, "", "a"]))
def test_whatever_is_asked_is_an_answer(garden_index: Library, query: str, section: str | None) -> None:
    async def ask() -> None:
        found = await garden_index.search(query, section=section)
        assert all(0 <= start < end <= len(hit.snippet) for hit in found.hits for start, end in hit.highlights)
        await garden_index.find_code(query, language=query[:5])
        await garden_index.look_up(query)

    asyncio.run(ask())


@pytest.mark.parametrize(
    "query",
    ['"', '""', '"a', "a AND", "NEAR(a b, 2)", "title:a", "a:b", "^a", "-a", "{a}", "a + b", "(", "*", "a*b",
     "' OR 1=1", "\0", "a\0b", "%_!", "\ud800", "a" * 5000, "x " * 5000, "🥕", "é", "日本語", "col : word", 'x"y'],
)  # fmt: skip
async def test_no_query_is_syntax(garden_index: Library, query: str) -> None:
    await garden_index.search(query)
    await garden_index.find_code(query)
    await garden_index.look_up(query)


@pytest.fixture(scope="module")
def garden_index(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Library]:
    folder = tmp_path_factory.mktemp("garden")
    (folder / "a").mkdir()
    (folder / "a" / "beds.md").write_text(
        "# Beds\n\n- `rate`: litres.\n\n```sh\nhose --on\n```\n\n日本語の庭について\n"
    )
    (folder / "soil.md").write_text("# Soil\n\nCafé compost, 🥕 and a_b-c.\n")
    opened = Library(str(folder), DocsSettings(search_wait=30))
    yield opened
    asyncio.run(opened.aclose())


async def test_scripts_without_spaces_and_letters_with_marks(garden_index: Library) -> None:
    assert await found(garden_index, "日本") == ["a/beds.md"]
    assert await found(garden_index, "cafe") == ["soil.md"]
    assert await found(garden_index, "a_b-c") == ["soil.md"]
