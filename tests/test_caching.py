"""How long what a server gives may be kept, and by whom: S26-128 to S26-132, on the wire, and what a client keeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw, structs
from support.clock import Clock, turns
from support.ui_stage import each_wire
from support.wires import LEGACY, MODERN, OpenWire, Wire, memory_wire

from mcpd import (
    CacheHint,
    Callbacks,
    CallNext,
    Client,
    ClientLimits,
    Context,
    ElicitResult,
    MiddlewareRequest,
    ReadResourceResult,
    Result,
    ResultLimit,
    Server,
    TextResourceContents,
)
from mcpd.client.results import ResultCache
from mcpd.errors import RegistrationError
from mcpd.server.registry import entries

LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
PUBLIC = CacheHint(60, "public")


def make_server(calls: list[str] | None = None, **options: Any) -> Server:
    server = Server("kept", **options)
    seen: list[str] = [] if calls is None else calls

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.prompt
    def plan(season: str) -> str:
        return season

    @server.resource("notes://hinted", cache=CacheHint(30, "public"))
    async def hinted() -> str:
        seen.append("hinted")
        return str(len(seen))

    @server.resource("notes://plain")
    def plain() -> str:
        seen.append("plain")
        return str(len(seen))

    @server.resource("notes://of/{day}", cache=CacheHint(0.5))
    def of(day: str) -> str:
        return day

    made = ReadResourceResult(contents=[TextResourceContents("notes://own", "own")], ttl_ms=5, cache_scope="private")

    @server.resource("notes://own", cache=PUBLIC)
    def own() -> ReadResourceResult:
        return made

    return server


async def hint(wire: Wire, method: str, **params: Any) -> tuple[int, str]:
    result = await wire.result(method, params or None)
    return result["ttlMs"], result["cacheScope"]


async def hints(wire: Wire) -> set[tuple[int, str]]:
    return {await hint(wire, method) for method in LISTS}


async def read(wire: Wire, uri: str) -> tuple[int, str]:
    return await hint(wire, "resources/read", uri=uri)


@each_wire
async def test_hints_of_lists_and_of_entries(open_wire: OpenWire) -> None:
    async with open_wire(make_server(cache=PUBLIC), MODERN) as wire:
        assert await hints(wire) == {(60_000, "public")}
        # What it offers depends on the client's extensions.
        assert await hint(wire, "server/discover") == (60_000, "private")
        assert await read(wire, "notes://hinted") == (30_000, "public")
        assert await read(wire, "notes://plain") == (0, "private")
        assert await read(wire, "notes://of/monday") == (500, "private")
        assert await read(wire, "notes://own") == (5, "private")
    async with open_wire(make_server(), MODERN) as wire:
        assert await hints(wire) == {(0, "private")}
        assert await read(wire, "notes://hinted") == (30_000, "public")


async def test_hints_by_method() -> None:
    cache = {"tools/list": PUBLIC, "resources/read": CacheHint(7)}
    async with memory_wire(make_server(cache=cache), MODERN) as wire:
        assert [await hint(wire, method) for method in LISTS] == [(60_000, "public"), *[(0, "private")] * 3]
        assert await read(wire, "notes://plain") == (7000, "private")
        assert await read(wire, "notes://hinted") == (30_000, "public")


@pytest.mark.parametrize("version", LEGACY)
async def test_older_versions_have_none(version: str) -> None:
    async with memory_wire(make_server(cache=PUBLIC), version) as wire:
        for method in LISTS:
            assert not {"ttlMs", "cacheScope"} & set(await wire.result(method))
        assert not {"ttlMs", "cacheScope"} & set(await wire.result("resources/read", {"uri": "notes://hinted"}))


async def test_all_pages_of_a_list_have_one_scope() -> None:
    """S26-130."""
    server = make_server(cache=PUBLIC, page_size=1)
    async with memory_wire(server, MODERN) as wire:
        first = await wire.result("resources/list")
        second = await wire.result("resources/list", {"cursor": first["nextCursor"]})
        assert first["cacheScope"] == second["cacheScope"] == "public"


def with_a_rule(server: Server) -> None:
    @server.visibility
    def all_see(entry: Any, ctx: Context) -> bool:
        return True


def with_a_visible(server: Server) -> None:
    server.add_tool(lambda: "", name="mine", visible=lambda ctx: True)


@pytest.mark.parametrize("rule", [with_a_rule, with_a_visible])
async def test_what_depends_on_who_asks_is_never_public(rule: Callable[[Server], None]) -> None:
    """S26-131, S26-132."""
    server = make_server(cache={**dict.fromkeys(LISTS, PUBLIC), "resources/read": PUBLIC})
    async with memory_wire(server, MODERN) as wire:
        assert await hints(wire) == {(60_000, "public")}
        assert await read(wire, "notes://plain") == (60_000, "public")
        rule(server)
        assert await hints(wire) == {(60_000, "private")}
        for uri in ("notes://plain", "notes://hinted"):
            assert (await read(wire, uri))[1] == "private"


async def test_a_list_that_a_middleware_changed_is_not_public() -> None:
    server = make_server(cache=PUBLIC)
    is_changing = False

    @server.middleware("tools/list")
    async def filtered(request: MiddlewareRequest, call_next: CallNext) -> Result:
        result: Any = await call_next(request)
        return structs.replace(result, tools=[]) if is_changing else result

    async with memory_wire(server, MODERN) as wire:
        assert await hint(wire, "tools/list") == (60_000, "public")
        is_changing = True
        assert await hint(wire, "tools/list") == (60_000, "private")


@pytest.mark.parametrize("options", [{}, {"cache": {"resources/read": PUBLIC}}])
async def test_what_a_middleware_made_of_a_resource_is_not_public(options: dict[str, Any]) -> None:
    server = Server("notes", **options)
    is_changing = False

    @server.resource("notes://public", cache=PUBLIC)
    def note() -> str:
        return "for all"

    @server.middleware("resources/read")
    async def signed(request: MiddlewareRequest, call_next: CallNext) -> Result:
        result: Any = await call_next(request)
        contents = [structs.replace(one, text="for you") for one in result.contents]
        return structs.replace(result, contents=contents) if is_changing else result

    @server.middleware
    async def outer(request: MiddlewareRequest, call_next: CallNext) -> Result:
        return await call_next(request)

    async with memory_wire(server, MODERN) as wire:
        assert await read(wire, "notes://public") == (60_000, "public")
        is_changing = True
        assert await read(wire, "notes://public") == (60_000, "private")


async def test_a_result_of_an_authors_own_is_not_public_where_rules_decide() -> None:
    server = Server("notes")

    @server.resource("notes://own")
    def own() -> ReadResourceResult:
        return ReadResourceResult(contents=[], ttl_ms=1000, cache_scope="public")

    async with memory_wire(server, MODERN) as wire:
        assert await read(wire, "notes://own") == (1000, "public")
        server.visibility(lambda entry, ctx: True)
        assert await read(wire, "notes://own") == (1000, "private")


async def test_all_pages_have_one_scope_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "_MOST_PAGES", 3)
    server = Server("many", cache=PUBLIC, page_size=1)
    for number in range(9):
        server.add_tool(_drawn, name=f"tool{number}")

    async with memory_wire(server, MODERN) as wire:
        scopes, cursor = [], None
        while len(scopes) < 9:
            page = await wire.result("tools/list", {} if cursor is None else {"cursor": cursor})
            scopes.append(page["cacheScope"])
            cursor = page.get("nextCursor")
        assert (cursor, set(scopes)) == (None, {"public"})


async def test_a_list_that_extensions_change_is_not_public() -> None:
    server = make_server(cache=PUBLIC)
    server.tool(ui=server.app("chart", "<!doctype html><title>x</title>"))(_drawn)
    async with memory_wire(server, MODERN) as wire:
        assert await hint(wire, "tools/list") == (60_000, "private")


def _drawn() -> str:
    return ""


async def test_results_that_are_kept_for_one_are_not_public() -> None:
    server = make_server(cache={"resources/read": PUBLIC})
    server.middleware(ResultLimit(10))
    async with memory_wire(server, MODERN) as wire:
        link = (await wire.call("echo", text="x" * 100))["content"][-1]
        assert await read(wire, link["uri"]) == (0, "private")


@pytest.mark.parametrize(
    "wrong",
    [
        60, CacheHint(-1), CacheHint(math.nan), CacheHint(math.inf), CacheHint(1, "all"),  # type: ignore[arg-type]
        {"tools/call": PUBLIC}, {"tools/list": 5},
    ],
)  # fmt: skip
def test_what_is_no_hint(wrong: Any) -> None:
    with pytest.raises(RegistrationError, match="cache"):
        Server("t", cache=wrong)
    if not isinstance(wrong, dict):
        with pytest.raises(RegistrationError, match="resource 'x://a', cache"):
            Server("t").resource("x://a", cache=wrong)(lambda: "")


# ----------------------------------------------------------------------------------- the client


def asked(server: Server) -> list[str]:
    """The requests that reach the server."""
    methods: list[str] = []

    @server.middleware(*LISTS, "resources/read")
    async def note(request: MiddlewareRequest, call_next: CallNext) -> Result:
        methods.append(request.method)
        return await call_next(request)

    return methods


async def test_a_client_keeps_what_is_fresh_and_no_longer() -> None:
    server = make_server(cache=CacheHint(60))
    methods = asked(server)
    async with Client(server, version=MODERN) as client:
        clock = Clock()
        for _ in range(3):
            assert [tool.name for tool in await client.list_tools()] == ["echo"]
            await client.list_prompts()
            await client.list_resources()
            await client.list_resource_templates()
            await client.read_resource("notes://hinted")
            await client.read_resource("notes://plain")
        assert sorted(methods) == sorted([*LISTS, "resources/read", *["resources/read"] * 3])
        methods.clear()
        await clock.advance(31)
        await client.read_resource("notes://hinted")
        await client.list_tools()
        assert methods == ["resources/read"]
        await clock.advance(30)
        await client.list_tools()
        assert methods[1:] == ["tools/list"]


async def test_it_can_be_gone_round_and_left_out() -> None:
    server = make_server(cache=CacheHint(60))
    methods = asked(server)
    async with Client(server, version=MODERN) as client:
        for _ in range(2):
            await client.list_tools(fresh=True)
            await client.read_resource("notes://hinted", fresh=True)
        assert len(methods) == 4
        await client.list_tools()  # what came last is kept
        assert len(methods) == 4
    async with Client(server, version=MODERN, cache=False) as client:
        methods.clear()
        for _ in range(2):
            await client.list_tools()
        assert len(methods) == 2


async def test_each_client_has_its_own() -> None:
    server = make_server(cache=PUBLIC)
    methods = asked(server)
    async with Client(server, version=MODERN) as one, Client(server, version=MODERN) as other:
        await one.list_tools()
        await other.list_tools()
    assert len(methods) == 2


@pytest.mark.parametrize("version", LEGACY)
async def test_of_older_servers_nothing_is_kept(version: str) -> None:
    server = make_server(cache=PUBLIC)
    methods = asked(server)
    async with Client(server, version=version) as client:
        await client.list_tools()
        await client.list_tools()
    assert len(methods) == 2


async def test_pages_are_kept_each_by_itself() -> None:
    server = make_server(cache=CacheHint(60), page_size=1)
    methods = asked(server)
    async with Client(server, version=MODERN) as client:
        for _ in range(2):
            assert len(await client.list_resources()) == 3
        assert methods == ["resources/list"] * 3


async def test_a_result_that_asked_something_is_not_kept() -> None:
    server = Server("asks")
    reads: list[str] = []

    @server.resource("notes://asks", cache=CacheHint(60))
    async def asks(ctx: Context) -> str:
        reads.append("")
        answer = await ctx.elicit("Sure?", {"type": "object", "properties": {}})
        return answer.action

    async def decline(params: Any) -> ElicitResult:
        return ElicitResult(action="decline")

    async with Client(server, Callbacks(elicit_form=decline), version=MODERN) as client:
        for _ in range(2):
            assert (await client.read_resource("notes://asks")).contents[0].text == "decline"  # type: ignore[union-attr]
    assert len(reads) == 4


class Kept:
    """A cache whose server and clock are the test's."""

    def __init__(self, most: int = 10_000) -> None:
        self.now = 0.0
        self.cache = ResultCache(most, lambda: self.now)
        self.asked = 0

    async def get(self, method: str = "tools/list", parameter: str = "", result: str = '{"ttlMs":1000}') -> Raw:
        async def ask() -> tuple[Raw, bool]:
            self.asked += 1
            return Raw(result.encode()), True

        return await self.cache.get(method, parameter, ask)


@pytest.mark.parametrize(
    ("told", "params", "forgotten"),
    [
        ("notifications/tools/list_changed", "{}", {"tools/list"}),
        ("notifications/prompts/list_changed", "{}", {"prompts/list"}),
        ("notifications/resources/list_changed", "{}", {"resources/list", "resources/templates/list"}),
        ("notifications/resources/updated", '{"uri":"a://b"}', {"resources/read a://b", "resources/read a://b/c"}),
        ("notifications/resources/updated", '{"uri":5}', set()),
        ("notifications/message", "{}", set()),
    ],
)
async def test_what_has_changed_is_forgotten(told: str, params: str, forgotten: set[str]) -> None:
    kept = Kept()
    every = [*LISTS, "resources/read a://b", "resources/read a://b/c", "resources/read a://bc"]
    for one in every:
        await kept.get(*one.split(" "))
    kept.cache.on_notification(told, Raw(params.encode()))
    found = set()
    for one in every:
        before = kept.asked
        await kept.get(*one.split(" "))
        if kept.asked > before:
            found.add(one)
    assert found == forgotten


async def test_an_answer_that_was_on_its_way_at_a_change_is_not_kept() -> None:
    kept = Kept()

    async def ask() -> tuple[Raw, bool]:
        kept.cache.on_notification("notifications/tools/list_changed", Raw(b"{}"))
        return Raw(b'{"ttlMs":1000}'), True

    await kept.cache.get("tools/list", "", ask)
    await kept.get()
    assert kept.asked == 1


@pytest.mark.parametrize(
    "result",
    [
        "{}", '{"ttlMs":0}', '{"ttlMs":-5}', '{"ttlMs":"x"}', '{"ttlMs":1e300}', "[]", '{"ttlMs":null}',
        '{"ttlMs":5000,"resultType":"input_required"}', f'{{"ttlMs":5000,"x":"{"y" * 10_000}"}}',
    ],
)  # fmt: skip
async def test_what_no_server_should_say_is_not_kept(result: str) -> None:
    kept = Kept()
    for _ in range(2):
        await kept.get(result=result)
    assert kept.asked == 2


async def test_the_one_not_used_for_longest_is_forgotten() -> None:
    kept = Kept(500)
    for uri in ("a", "b", "a", "c"):
        await kept.get("resources/read", f"x://{uri}")
    assert kept.asked == 3
    await kept.get("resources/read", "x://a")
    assert kept.asked == 3
    await kept.get("resources/read", "x://b")
    assert kept.asked == 4


async def test_a_change_reaches_a_client_that_listens() -> None:
    server = make_server(cache=CacheHint(600))
    methods = asked(server)
    heard: list[str] = []
    callbacks = Callbacks(list_changed=heard.append)
    async with Client(server, callbacks, version=MODERN, limits=ClientLimits(cache_bytes=100_000)) as client:
        await client.list_tools()
        server.add_tool(_drawn, name="later")
        for _ in range(20):
            await turns()
        assert [tool.name for tool in await client.list_tools()] == ["echo", "later"]
    assert methods == ["tools/list"] * 2
    assert heard == ["tools"]


def test_without_hints_the_handlers_are_themselves() -> None:
    server = make_server()
    assert all(server.handlers[method] is server.handlers._bare[method] for method in LISTS)
