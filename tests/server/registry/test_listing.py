"""Lists in pages: cursors, changes between two pages, who sees what. Spec: 2026-07-28 server/utilities/pagination."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.wires import Wire, each_version, each_wire, memory_wire

from mcpd import Server
from mcpd.errors import InvalidParams, RegistrationError
from mcpd.server.registry.entries import ActiveExtensions, Listing


class Thing:
    """The least that can be listed."""

    tags: frozenset[str] = frozenset()
    is_enabled = True
    visible = None

    def __init__(self, key: str, requires: str | None = None) -> None:
        self.key = key
        self.requires = requires

    def listed(self, active: ActiveExtensions) -> str:
        return self.key


Page = tuple[list[str], str | None]


def listing(size: int, *keys: str) -> Listing[Thing]:
    things: Listing[Thing] = Listing("thing", lambda items, cursor: (items, cursor), size)
    for key in keys:
        things.add(Thing(key))
    return things


def walk(things: Listing[Thing], active: ActiveExtensions = frozenset()) -> list[list[str]]:
    pages, cursor = [], None
    while True:
        items, cursor = things.page(active, cursor)
        pages.append(items)
        if cursor is None:
            return pages


# ------------------------------------------------------------------------------------- pages


def test_pages_hold_all_in_order_of_registration() -> None:
    assert walk(listing(2, *"edcba")) == [["e", "d"], ["c", "b"], ["a"]]
    assert walk(listing(5, *"abcde")) == [list("abcde")]
    assert walk(listing(1000)) == [[]]


def test_the_last_page_has_no_cursor() -> None:
    """A missing nextCursor is the end."""
    things = listing(2, *"abcd")
    _, cursor = things.page(frozenset(), None)
    assert things.page(frozenset(), cursor) == (["c", "d"], None)


def test_the_same_page_is_the_same_object_until_something_changes() -> None:
    """Its bytes can be kept as long."""
    things = listing(2, *"abc")
    first = things.page(frozenset(), None)
    assert things.page(frozenset(), None) is first
    things.add(Thing("d"))
    assert things.page(frozenset(), None) is not first


@pytest.mark.parametrize("gone", ["a", "b", "c", "d", "e"])
def test_an_entry_that_goes_makes_no_page_skip_or_repeat_another(gone: str) -> None:
    """Not even the one that the cursor was made from."""
    things = listing(2, *"abcde")
    first, cursor = things.page(frozenset(), None)
    things.remove(gone)
    rest: list[str] = []
    while cursor is not None:
        items, cursor = things.page(frozenset(), cursor)
        rest += items
    assert first + [key for key in rest if key not in first] == first + rest
    assert set(first + rest) | {gone} == set("abcde")


def test_an_entry_that_goes_and_comes_back_is_at_the_end() -> None:
    things = listing(2, *"abcd")
    _, cursor = things.page(frozenset(), None)
    things.remove("b")
    things.add(Thing("b"))
    assert things.page(frozenset(), cursor) == (["c", "d"], things.page(frozenset(), cursor)[1])
    assert walk(things) == [["a", "c"], ["d", "b"]]


def test_an_entry_that_is_replaced_keeps_its_place() -> None:
    things = listing(2, *"abc")
    things.add(Thing("a", requires="x"), replace=True)
    assert walk(things) == [["b", "c"]]
    assert walk(things, frozenset("x")) == [["a", "b"], ["c"]]


def test_an_entry_that_comes_is_at_the_end_of_a_walk_that_has_begun() -> None:
    things = listing(2, *"abc")
    _, cursor = things.page(frozenset(), None)
    things.add(Thing("d"))
    things.add(Thing("e"))
    assert things.page(frozenset(), cursor)[0] == ["c", "d"]


def test_after_all_are_gone_the_rest_is_an_empty_page() -> None:
    things = listing(1, *"ab")
    _, cursor = things.page(frozenset(), None)
    things.remove("a")
    things.remove("b")
    assert things.page(frozenset(), cursor) == ([], None)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8),
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["add", "remove", "replace", "page"]), st.sampled_from("abcdefgh"))),
)
def test_whatever_happens_between_pages_what_stays_is_listed_once(
    keys: list[str], size: int, changes: list[tuple[str, str]]
) -> None:
    """A walk gives every entry that was there from its beginning to its end, and none twice."""
    things = listing(size, *keys)
    stayed = set(keys)
    seen, cursor = things.page(frozenset(), None)
    seen = list(seen)
    for change, key in changes:
        if change == "page" and cursor is not None:
            items, cursor = things.page(frozenset(), cursor)
            seen += items
        elif change == "remove":
            things.remove(key)
            stayed.discard(key)
            seen = [item for item in seen if item != key]  # if it comes back it is another one
        elif change == "replace" or (change == "add" and key not in things):
            things.add(Thing(key), replace=True)
    while cursor is not None:
        items, cursor = things.page(frozenset(), cursor)
        seen += items
    assert len(seen) == len(set(seen))
    assert stayed <= set(seen)


# ----------------------------------------------------------------------------------- cursors


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    ["", " ", "x", "é", "====", "bm90IG91cnM=", encoded("0"), encoded("-1"), encoded("99"), encoded("1.0"),
     encoded(" 1"), encoded("1_0"), encoded("01"), encoded("9" * 5000), encoded("１"),
     encoded("1") + "\n", "\0", "a" * 10**5],
)  # fmt: skip
def test_what_is_no_cursor_of_ours_is_refused(cursor: str) -> None:
    """Bad cursor: -32602; "" is a cursor like any other, and none of ours (protocol-versions 3, pagination)."""
    with pytest.raises(InvalidParams, match="cursor"):
        listing(2, *"abcde").page(frozenset(), cursor)


@given(st.text() | st.binary().map(lambda raw: base64.b64encode(raw).decode()))
def test_any_text_is_a_cursor_or_is_refused(cursor: str) -> None:
    things = listing(2, *"abcde")
    try:
        items, _ = things.page(frozenset(), cursor)
    except InvalidParams:
        return
    assert items == list("abcde")[(int(base64.b64decode(cursor))) :][:2]


def test_a_client_that_invents_cursors_fills_no_memory() -> None:
    things = listing(1, *(str(number) for number in range(1100)))
    assert len(walk(things)) == 1100
    assert len(things._pages) <= 1024


# ------------------------------------------------------------------------------ who sees what


def test_entries_that_need_an_extension_are_there_for_who_has_it() -> None:
    things = listing(2, *"ab")
    things.add(Thing("x", requires="ui"))
    things.add(Thing("c"))
    assert walk(things) == [["a", "b"], ["c"]]
    assert walk(things, frozenset(["ui"])) == [["a", "b"], ["x", "c"]]
    assert things.get("x") is None
    assert things.get("x", frozenset(["other"])) is None
    found = things.get("x", frozenset(["ui", "other"]))
    assert found is not None
    assert found.key == "x"
    assert things.get("nothing") is None


def test_a_collection_like_any_other() -> None:
    things = listing(2, *"ab")
    assert len(things) == 2
    assert "a" in things
    assert "x" not in things
    assert [thing.key for thing in things] == ["a", "b"]
    assert not things.remove("x")
    with pytest.raises(RegistrationError, match="'a' is already registered"):
        things.add(Thing("a"))


def test_each_change_is_told() -> None:
    things, told = listing(2), []
    things.on_change = lambda: told.append(len(things))
    things.add(Thing("a"))
    things.add(Thing("a"), replace=True)
    things.remove("nothing")
    things.remove("a")
    things.changed()
    assert told == [1, 1, 0, 0]


def test_entries_may_come_and_go_while_pages_are_made() -> None:
    """From another thread: no page fails, and none that was made meanwhile is kept."""
    things = listing(10, *(f"fixed{number}" for number in range(20)))
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            things.add(Thing(f"x{number}"))
            things.remove(f"x{number}")
            number += 1

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(300):
            keys = [key for page in walk(things) for key in page]
            assert [key for key in keys if key.startswith("fixed")] == [f"fixed{number}" for number in range(20)]
    finally:
        stop.set()
        thread.join()
    assert [key for page in walk(things) for key in page] == [f"fixed{number}" for number in range(20)]


# -------------------------------------------------------------------------------- on the wire


def make_server() -> Server:
    server = Server("t", page_size=2)
    for number in range(5):
        server.add_text(f"x://{number}", "text", name=f"r{number}")
        server.resource(f"x{number}://{{name}}", name=f"t{number}")(_read)
        server.add_tool(_tool, name=f"f{number}")
        server.add_prompt(_prompt, name=f"p{number}")
    return server


async def _read(name: str) -> str:
    return name


async def _tool() -> str:
    return ""


async def _prompt() -> str:
    return ""


LISTS = {
    "tools/list": ("tools", "f"),
    "resources/list": ("resources", "r"),
    "resources/templates/list": ("resourceTemplates", "t"),
    "prompts/list": ("prompts", "p"),
}


async def names(wire: Wire, method: str) -> list[list[str]]:
    found, params = [], {}
    while True:
        result = await wire.result(method, params)
        found.append([item["name"] for item in result[LISTS[method][0]]])
        assert result.get("nextCursor") != ""
        if "nextCursor" not in result:
            return found
        params = {"cursor": result["nextCursor"]}


@each_version
@each_wire
async def test_every_list_comes_in_pages(open_wire: Any, version: str) -> None:
    async with open_wire(make_server(), version) as wire:
        for method, (_, letter) in LISTS.items():
            expected = [[f"{letter}{a}", f"{letter}{b}"] for a, b in ((0, 1), (2, 3))]
            assert await names(wire, method) == [*expected, [f"{letter}4"]]


@each_version
async def test_a_bad_cursor_is_bad_params(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        for method in LISTS:
            for cursor in ("", "nonsense", encoded("77")):
                error = await wire.error(method, {"cursor": cursor})
                assert error["code"] == -32602
                assert "cursor" in error["message"]


@each_version
async def test_null_is_no_cursor(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        assert len((await wire.result("tools/list", {"cursor": None}))["tools"]) == 2


async def test_a_walk_survives_changes_of_the_list() -> None:
    server = make_server()
    async with memory_wire(server, "2025-11-25") as wire:
        first = await wire.result("tools/list")
        server.remove_tool("f1")
        server.remove_tool("f0")
        server.add_tool(_tool, name="new")
        await asyncio.sleep(0)
        second = await wire.result("tools/list", {"cursor": first["nextCursor"]})
        assert [tool["name"] for tool in second["tools"]] == ["f2", "f3"]


async def test_two_connections_see_the_same_list() -> None:
    """S26-105, S26-114: independent of the connection and of what was asked before; cursors too."""
    server = make_server()
    async with memory_wire(server, "2025-11-25") as one, memory_wire(server, "2025-11-25") as two:
        cursor = (await one.result("tools/list"))["nextCursor"]
        second = await two.result("tools/list", {"cursor": cursor})
        assert [tool["name"] for tool in second["tools"]] == ["f2", "f3"]


@pytest.mark.parametrize("size", [0, -1])
def test_a_page_holds_at_least_one(size: int) -> None:
    with pytest.raises(ValueError, match="page_size"):
        Server("t", page_size=size)
