"""The documents of a folder: lists, pages, search, code, names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.folders import indexed

from mcpd.sources.docs.library import Library
from mcpd.sources.docs.page import BadCursor, DocsSettings, UnknownPage, UnknownSection

PAGES = {
    "index.md": "# Garden handbook\n\nHow to grow things.\n",
    "01-basics/01-soil.md": "---\ntitle: Soil\ndescription: What plants stand in.\n---\n\n## Compost\n\nCompost feeds "
    "the soil.\n\nTurn it over like this:\n\n```sh\nfork --turn heap\n```\n\n## Loam\n\nLoam holds water.\n",
    "01-basics/02-water.md": "# Watering\n\nWater in the morning. See [soil](01-soil.md#loam).\n",
    "02-reference/settings.md": "# Settings\n\n- `drip_rate` (number): litres in an hour.\n  Default is 4.\n"
    "- `max_depth`: how deep roots go.\n",
    "notes.txt": "Plain notes\n\nThe zucchini is taller than the shed.\n",
}


def write(folder: Path, pages: dict[str, str]) -> None:
    for path, text in pages.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


@pytest.fixture
def garden(tmp_path: Path) -> Iterator[Library]:
    write(tmp_path, PAGES)
    library = Library(str(tmp_path), DocsSettings(search_wait=20))
    yield library
    asyncio.run(library.aclose())


async def test_what_there_is(garden: Library) -> None:
    await indexed(garden, 20)
    overview = await garden.overview()
    assert overview.title == "Garden handbook"
    assert [(one.name, one.title, one.pages) for one in overview.sections] == [
        ("", "", 2), ("basics", "Basics", 2), ("reference", "Reference", 1)
    ]  # fmt: skip
    assert overview.progress.is_complete
    assert [page.title for page in await garden.list_pages("basics")] == ["Soil", "Watering"]
    with pytest.raises(UnknownSection) as unknown:
        await garden.list_pages("basic")
    assert unknown.value.near == ["basics"]


async def test_a_section_by_its_title_or_in_another_case(tmp_path: Path) -> None:
    write(
        tmp_path,
        dict.fromkeys(("01-getting-started/a.md", "guides/Deep End/b.md", "one/same/c.md", "two/same/d.md"), "x"),
    )
    library = Library(str(tmp_path), DocsSettings(search_wait=20))
    try:
        for said, path in (
            ("Getting started", "01-getting-started/a.md"), ("GETTING_STARTED", "01-getting-started/a.md"),
            ("Guides/deep-end/", "guides/Deep End/b.md"), ("deep end", "guides/Deep End/b.md"),
            ("ONE/Same", "one/same/c.md"),
        ):  # fmt: skip
            assert [page.path for page in await library.list_pages(said)] == [path]
            assert [hit.path for hit in (await library.search("x", section=said)).hits] == [path]
        with pytest.raises(UnknownSection):  # two are called so
            await library.list_pages("Same")
    finally:
        await library.aclose()


async def test_a_page(garden: Library) -> None:
    page = await garden.page("01-basics/01-soil.md")
    assert (page.title, page.description, page.order, page.section) == ("Soil", "What plants stand in.", 1, "basics")
    assert [(one.title, page.text[one.start : one.end].count("\n")) for one in page.headings] == [
        ("Compost", 10), ("Loam", 2)
    ]  # fmt: skip
    assert [(one.language, one.text, one.before) for one in page.code] == [
        ("sh", "fork --turn heap", "Turn it over like this:")
    ]
    for path in ("01-basics/soil.md", "../secret.md", "/etc/passwd.txt", "01-basics/../index.md", "", ".git/x.md"):
        with pytest.raises(UnknownPage) as unknown:
            await garden.page(path)
    assert unknown.value.path == ".git/x.md"


async def test_a_search_says_where(garden: Library) -> None:
    found = await garden.search("how does loam hold water?")
    assert (found.hits[0].path, found.hits[0].heading, found.hits[0].anchor) == ("01-basics/01-soil.md", "Loam", "loam")
    hit = found.hits[0]
    assert [hit.snippet[start:end] for start, end in hit.highlights] == ["Loam", "holds", "water"]
    assert found.progress.is_complete


@pytest.mark.parametrize(
    ("query", "path", "corrected"),
    [
        ("compsot", "01-basics/01-soil.md", "compost"),
        ("zuchini", "notes.txt", "zucchini"),
        ("zucch", "notes.txt", None),
        ("comp*", "01-basics/01-soil.md", None),
        ('"feeds the soil"', "01-basics/01-soil.md", None),
        ("drip_rate", "02-reference/settings.md", None),
    ],
)
async def test_what_is_meant_is_found(garden: Library, query: str, path: str, corrected: str | None) -> None:
    found = await garden.search(query)
    assert found.hits[0].path == path
    assert found.corrected == corrected


@pytest.mark.parametrize("sections", [300, 2100])
async def test_a_long_page_hides_no_others(tmp_path: Path, sections: int) -> None:
    """A changelog or an all-in-one page matches with hundreds of sections, also where too many match to rank them."""
    changelog = "# Changelog\n\n" + "".join(f"## Version {n}\n\nThe hose got better.\n\n" for n in range(sections))
    write(tmp_path, {"00-changelog.md": changelog, **{f"guide-{n}.md": f"# Guide {n}\n\nA hose.\n" for n in range(64)}})
    library = Library(str(tmp_path), DocsSettings(search_wait=20))
    await indexed(library, 20)
    found = await library.search("hose", limit=50)
    await library.aclose()
    assert found.total == 65
    assert len({hit.path for hit in found.hits}) == 50


async def test_cursors(garden: Library, tmp_path: Path) -> None:
    whole = await garden.search("soil water", limit=50)
    first = await garden.search("soil water", limit=1)
    assert first.total == whole.total == 2
    rest = await garden.search("soil water", limit=1, cursor=first.next_cursor)
    assert [*first.hits, *rest.hits] == whole.hits
    assert rest.next_cursor is None
    for query, cursor in (("soil", first.next_cursor), ("soil water", "x"), ("soil water", "é")):
        with pytest.raises(BadCursor):
            await garden.search(query, cursor=cursor)

    write(tmp_path, {"new.md": "soil and water"})
    garden.refresh(["new.md"])
    await indexed(garden, 20)
    with pytest.raises(BadCursor, match="changed"):
        await garden.search("soil water", limit=1, cursor=first.next_cursor)


async def test_code_and_names(garden: Library) -> None:
    found = await garden.find_code("turn", language="sh")
    assert [(hit.text, hit.before) for hit in found.hits] == [("fork --turn heap", "Turn it over like this:")]
    assert (await garden.find_code("turn", language="hcl")).languages == ["sh"]
    entry = (await garden.look_up("drip_rate")).entries[0]
    assert entry.text == "- `drip_rate` (number): litres in an hour.\n  Default is 4."
    assert (await garden.look_up("settigns")).near == ["Settings"]
    json.dumps(entry.text)


async def test_changes(garden: Library, tmp_path: Path) -> None:
    assert (await garden.search("marigold")).total == 0
    write(tmp_path, {"flowers/marigold.md": "# Marigold"})
    (tmp_path / "notes.txt").unlink()
    garden.refresh()
    await indexed(garden, 20)
    assert (await garden.search("marigold")).hits[0].path == "flowers/marigold.md"
    assert (await garden.search("zucchini")).total == 0
