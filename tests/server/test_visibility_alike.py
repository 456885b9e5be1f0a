"""Rules are asked once about entries that they cannot tell apart, and see and hide what they would if asked of each."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs, to_builtins
from msgspec.json import encode
from support.wires import MODERN, memory_wire

from mcpd import CatalogEntry, Context, Server
from mcpd.registry import visibility
from mcpd.registry.alike import Groups, Row, unnamed


def numbered(count: int = 12) -> Server:
    """Tools with tags of three kinds, some of them with `_meta`."""
    server = Server("alike", page_size=5)
    for number in range(count):
        options: dict[str, Any] = {"tags": {f"t{number % 3}"}} if number % 4 else {}
        if number % 5 == 0:
            options["meta"] = {"n": number}
        server.add_tool(lambda: "", name=f"tool-{number}", **options)
    return server


async def listed(server: Server) -> list[str]:
    """The bytes of all pages, as text."""
    pages = []
    async with memory_wire(server, MODERN) as wire:
        cursor: dict[str, Any] = {}
        while True:
            page = await wire.result("tools/list", cursor)
            pages.append(str(page))
            if "nextCursor" not in page:
                return pages
            cursor = {"cursor": page["nextCursor"]}


def of_tags(entry: CatalogEntry, ctx: Context) -> bool:
    return "t1" not in entry.tags


def of_names(entry: CatalogEntry, ctx: Context) -> bool:
    return entry.name not in ("tool-3", "tool-5")


def of_names_of_some(entry: CatalogEntry, ctx: Context) -> bool:
    return "t2" in entry.tags or not entry.name.endswith("1")


def of_meta(entry: CatalogEntry, ctx: Context) -> bool:
    return entry.meta.get("n", 0) < 6


def of_uri(entry: CatalogEntry, ctx: Context) -> bool:
    return entry.uri is None and entry.component == "tool"


def of_all_members(entry: CatalogEntry, ctx: Context) -> bool:
    return structs.asdict(entry)["name"] != "tool-4"


def of_a_copy(entry: CatalogEntry, ctx: Context) -> bool:
    return copy.copy(entry).name != "tool-4"


def of_text(entry: CatalogEntry, ctx: Context) -> bool:
    return "tool-7" not in repr(entry)


def of_text_that_is_caught(entry: CatalogEntry, ctx: Context) -> bool:
    try:
        return "tool-4" not in str(entry)
    except AttributeError:
        return True


def that_logs(entry: CatalogEntry, ctx: Context) -> bool:
    logging.getLogger("of the rule").warning("is %s seen?", entry)
    return True


def of_what_its_class_has(entry: CatalogEntry, ctx: Context) -> bool:
    return all(getattr(entry, name, None) != "tool-4" for name in type(entry).__annotations__)


def of_its_very_class(entry: CatalogEntry, ctx: Context) -> bool:
    return type(entry) is not CatalogEntry or entry.name != "tool-4"


def of_nothing(entry: CatalogEntry, ctx: Context) -> bool:
    return False


def that_fails_for_some(entry: CatalogEntry, ctx: Context) -> bool:
    if "t2" in entry.tags:
        raise ValueError("the rule is broken")
    return True


RULES = [
    of_tags, of_names, of_names_of_some, of_meta, of_uri, of_all_members, of_a_copy, of_text,
    of_what_its_class_has, of_its_very_class,
    of_text_that_is_caught, that_logs, of_nothing,
    that_fails_for_some,
]  # fmt: skip


def as_async(rule: Callable[[CatalogEntry, Context], bool]) -> Any:
    async def asked(entry: CatalogEntry, ctx: Context) -> bool:
        return rule(entry, ctx)

    return asked


def as_lambda(rule: Callable[[CatalogEntry, Context], bool]) -> Any:
    return lambda entry, ctx: as_async(rule)(entry, ctx)


@pytest.mark.parametrize("kind", [lambda rule: rule, as_async, as_lambda], ids=["plain", "async", "lambda"])
@pytest.mark.parametrize("rule", RULES)
async def test_the_lists_are_those_of_asking_about_each_entry(
    rule: Any, kind: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The plain way: each entry in a group of its own, of which there is nothing to spare."""

    class Apart(Groups):
        def __init__(self, rows: Any) -> None:
            super().__init__(())
            self._groups = [group for row in rows for group in Groups([row])]

    async def found() -> tuple[list[str], list[str]]:
        server = numbered()
        server.visibility(kind(rule))
        caplog.clear()
        pages = await listed(server)
        return pages, sorted(
            {record.getMessage() for record in caplog.records if record.name in ("mcpd", "of the rule")}
        )

    short = await found()
    monkeypatch.setattr(visibility, "Groups", Apart)
    assert await found() == short


async def test_a_rule_of_tags_is_asked_once_for_each_kind_and_one_of_names_about_each() -> None:
    server = numbered()
    asked: list[str] = []

    @server.visibility
    def tags(entry: CatalogEntry, ctx: Context) -> bool:
        asked.append("tags")
        return bool(entry.tags) or True

    @server.visibility
    def names(entry: CatalogEntry, ctx: Context) -> bool:
        asked.append(entry.name)
        return True

    async with memory_wire(server, MODERN) as wire:
        await wire.result("tools/list")
        # Without tags and with t0, t1 and t2, of which some have `_meta` of their own: that is not looked at.
        kinds = len({(tool.tags, not tool.tool.meta) for tool in server.catalog.tools})
        assert asked.count("tags") == kinds < 12
        assert {name for name in asked if name != "tags"} == {f"tool-{number}" for number in range(12)}


async def test_a_rule_of_several_entries_is_asked_once_and_each_time_anew() -> None:
    server = Server("alike")
    answers: list[bool] = []

    async def sees(ctx: Context) -> bool:
        answers.append(len(answers) % 2 == 0)
        return answers[-1]

    for number in range(5):
        server.add_tool(lambda: "", name=f"tool-{number}", visible=sees)
    async with memory_wire(server, MODERN) as wire:
        assert len((await wire.result("tools/list"))["tools"]) == 5
        assert (await wire.result("tools/list"))["tools"] == []
        assert answers == [True, False]


async def test_what_comes_and_goes_is_asked_about() -> None:
    server = numbered(3)
    server.visibility(lambda entry, ctx: "new" not in entry.tags)
    async with memory_wire(server, MODERN) as wire:
        assert len((await wire.result("tools/list"))["tools"]) == 3
        server.add_tool(lambda: "", name="fresh")
        server.add_tool(lambda: "", name="hidden", tags={"new"})
        names = {tool["name"] for tool in (await wire.result("tools/list"))["tools"]}
        assert names == {"tool-0", "tool-1", "tool-2", "fresh"}


ENTRY = CatalogEntry(component="resource", name="a", uri="a://b", tags=frozenset({"t"}), meta={"m": 1})


def _matched(entry: CatalogEntry) -> bool:
    match entry:
        case CatalogEntry(name="a"):
            return True
    return False


@pytest.mark.parametrize(
    ("look", "is_own"),
    [
        (lambda entry: entry.component, False),
        (lambda entry: entry.tags, False),
        (lambda entry: isinstance(entry, CatalogEntry), False),
        (type, False),
        (lambda entry: type(entry).__struct_fields__, False),
        (lambda entry: entry.name, True),
        (lambda entry: entry.uri, True),
        (lambda entry: entry.meta, True),
        (_matched, True),
        (lambda entry: [getattr(entry, name, None) for name in type(entry).__annotations__], True),
        (lambda entry: getattr(entry, "title", "none"), False),
        (repr, True),
        (str, True),
        (lambda entry: f"{entry}", True),
        (lambda entry: list(entry.__rich_repr__()), True),
        (lambda entry: entry == ENTRY, True),
        (lambda entry: ENTRY == entry, True),  # noqa: SIM300 - the other way round
        (lambda entry: entry in [ENTRY], True),
        (copy.copy, True),
        (copy.deepcopy, True),
        (lambda entry: pickle.loads(pickle.dumps(entry)), True),
    ],
)
def test_one_that_stands_for_others_is_as_the_entry_and_knows_what_was_looked_at(look: Any, is_own: bool) -> None:
    stands, noted = unnamed(ENTRY)
    assert look(stands) == look(ENTRY)
    assert noted.was_taken is is_own


@pytest.mark.parametrize(
    "look",
    [
        structs.asdict, structs.astuple, to_builtins, encode,
        lambda entry: CatalogEntry.name.__get__(entry),  # type: ignore[attr-defined]
    ],
)  # fmt: skip
def test_what_takes_one_that_stands_for_others_apart_fails_so_that_it_is_asked_about_each(look: Any) -> None:
    with pytest.raises(AttributeError):
        look(unnamed(ENTRY)[0])


def test_one_that_stands_for_others_cannot_be_changed() -> None:
    for name in ("name", "tags", "look"):
        with pytest.raises(AttributeError):
            setattr(unnamed(ENTRY)[0], name, "b")


def test_an_entry_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="'CatalogEntry' object has no attribute 'nam'"):
        ENTRY.nam  # type: ignore[attr-defined]  # noqa: B018
    assert vars(ENTRY) == {}


def test_the_keys_of_groups_are_the_same_object_for_the_same_groups() -> None:
    groups = Groups(Row(f"{number}", None, structs.replace(ENTRY, name=str(number))) for number in range(4))
    (group,) = groups
    assert groups.keys_of([group]) is groups.keys_of([group])
    assert groups.keys_of([group]) == {"0", "1", "2", "3"}
