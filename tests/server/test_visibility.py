"""Tags, what is enabled and disabled, and rules of who sees what: hidden is as if it had never been registered."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from msgspec import Meta, structs
from support.http_peer import serving
from support.wires import MODERN, OpenWire, Wire, each_version, each_wire, memory_wire

from mcpd import CatalogEntry, Context, Server
from mcpd.errors import RegistrationError

NAMES = {"open", "closed"}


def offer(server: Server, **of_closed: Any) -> Server:
    """A tool, a resource, a template and a prompt that are open to all, and as many with the options given."""
    for name in ("open", "closed"):
        options: dict[str, Any] = of_closed if name == "closed" else {}

        def tool() -> str:
            return "called"

        def item(id: str) -> str:
            return id

        async def page() -> str:
            return "read"

        server.add_tool(tool, name=name, **options)
        server.resource(f"thing://{name}", name=name, **options)(page)
        server.resource(f"{name}://things/{{id}}", name=name, **options)(item)
        server.add_prompt(item, name=name, **options)
    return server


async def seen(wire: Wire) -> set[str]:
    """The names in all lists, which have to agree with each other and with what can be called, read, got, completed."""
    found = set()
    for kind, method in (
        ("tools", "tools/list"), ("resources", "resources/list"),
        ("resourceTemplates", "resources/templates/list"), ("prompts", "prompts/list"),
    ):  # fmt: skip
        listed = {item["name"] for item in (await wire.result(method))[kind]}
        found |= {(name, kind) for name in listed}
    for name in NAMES:
        is_seen = {kind for each, kind in found if each == name}
        assert not is_seen or len(is_seen) == 4, found
        for method, params in requests(name):
            answer = await wire.request(method, params)
            assert ("result" in answer) is bool(is_seen), (method, answer)
            if not is_seen:
                unknown = await wire.error(method, dict(requests("nothing"))[method])
                assert str(answer["error"]).replace(name, "nothing") == str(unknown)
    return {name for name, _ in found}


def requests(name: str) -> list[tuple[str, dict[str, Any]]]:
    argument = {"name": "id", "value": ""}
    return [
        ("tools/call", {"name": name}),
        ("prompts/get", {"name": name, "arguments": {"id": "1"}}),
        ("resources/read", {"uri": f"{name}://things/1"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": name}, "argument": argument}),
    ]


async def also_fixed(wire: Wire) -> set[str]:
    """The fixed resources that can be read, and where there is such a thing watched."""
    found = set()
    for name in NAMES:
        answer = await wire.request("resources/read", {"uri": f"thing://{name}"})
        if "result" in answer:
            found.add(name)
        if wire.version not in (None, MODERN):
            watched = await wire.request("resources/subscribe", {"uri": f"thing://{name}"})
            assert ("result" in watched) is (name in found)
        ref = {"type": "ref/resource", "uri": f"{name}://things/{{id}}"}
        completed = await wire.request("completion/complete", {"ref": ref, "argument": {"name": "id", "value": ""}})
        assert ("result" in completed) is (name in found)
    return found


# -- tags --------------------------------------------------------------------------------------


@each_version
async def test_tags_are_where_clients_look_for_them(version: str) -> None:
    server = offer(Server("tagged"), tags={"b", "a"}, meta={"fastmcp": {"version": "1"}, "mine": 1})
    async with memory_wire(server, version) as wire:
        plain, tagged = (await wire.result("tools/list"))["tools"]
        if version >= "2025-06-18":
            assert "_meta" not in plain
            groups = {"io.modelcontextprotocol/groups": ["a", "b"]}
            assert tagged["_meta"] == {"fastmcp": {"tags": ["a", "b"], "version": "1"}, "mine": 1, **groups}
            for method, kind in (("resources/list", "resources"), ("prompts/list", "prompts")):
                assert (await wire.result(method))[kind][1]["_meta"]["fastmcp"]["tags"] == ["a", "b"]
        assert await seen(wire) == NAMES


# -- enabled and disabled ----------------------------------------------------------------------

SWITCHES: list[tuple[Callable[[Server], None], set[str]]] = [
    (lambda server: None, NAMES),
    (lambda server: server.disable(names={"closed"}), {"open"}),
    (lambda server: server.disable(tags="admin"), {"open"}),
    (lambda server: server.disable(tags={"other"}), NAMES),
    (lambda server: server.disable(names={"closed"}, tags={"other"}), NAMES),
    (lambda server: server.enable(tags={"admin"}, only=True), {"closed"}),
    (lambda server: server.disable(components={"tool", "resource", "template", "prompt"}), set()),
]


@pytest.mark.parametrize(("switch", "expected"), SWITCHES)
async def test_what_is_switched_off_is_not_there(switch: Callable[[Server], None], expected: set[str]) -> None:
    server = offer(Server("switched"), tags={"admin"})
    async with memory_wire(server, MODERN) as wire:
        assert await seen(wire) == NAMES
        switch(server)
        names = {name for name in expected if name in NAMES}
        if names != NAMES - {"open"} or not names:
            assert await seen(wire) == expected
        else:  # templates of another name match no URI of this one
            assert {tool["name"] for tool in (await wire.result("tools/list"))["tools"]} == expected


@each_version
async def test_the_last_word_counts_and_holds_for_what_comes_later(version: str) -> None:
    server = Server("later")
    server.disable(tags={"admin"})
    offer(server, tags={"admin"})
    async with memory_wire(server, version) as wire:
        assert await seen(wire) == {"open"}
        assert await also_fixed(wire) == {"open"}
        server.enable(names="closed", components="tool")
        tools = (await wire.result("tools/list"))["tools"]
        assert [tool["name"] for tool in tools] == ["open", "closed"], "it has its place again"
        assert await wire.text("closed") == "called"
        server.disable(tags={"admin"})
        assert await seen(wire) == {"open"}
        for _ in range(3):
            server.enable(tags={"admin"})
        assert await seen(wire) == NAMES


async def test_registered_as_disabled() -> None:
    server = offer(Server("off"), enabled=False)
    with pytest.raises(RegistrationError, match="tool 'closed' is already registered"):
        server.add_tool(lambda: "", name="closed")
    async with memory_wire(server, MODERN) as wire:
        assert await seen(wire) == {"open"}
        server.enable(names={"closed", "thing://closed", "closed://things/{id}"})
        assert await seen(wire) == NAMES
        assert server.remove_tool("closed")
        assert not server.remove_tool("closed")
    assert offer(Server("checked"), enabled=False).problems() is not None


@each_wire
async def test_one_notification_for_each_kind_that_is_another_one(open_wire: OpenWire) -> None:
    server = offer(Server("told"), tags={"admin"})
    async with open_wire(server, "2025-11-25") as wire:
        await wire.quiet()
        for switch in (server.disable, server.enable):
            switch(tags={"admin"})
            told = [(await wire.receive())["method"] for _ in range(3)]
            assert sorted(told) == [f"notifications/{kind}/list_changed" for kind in ("prompts", "resources", "tools")]
            switch(tags={"admin"})  # nothing is another one now
            await wire.quiet()
        server.disable(names={"closed"}, components={"tool"})
        assert (await wire.receive())["method"] == "notifications/tools/list_changed"
        await wire.quiet()


async def test_what_is_not_seen_tells_nobody_that_it_came_or_went() -> None:
    server = offer(Server("quiet"))
    server.disable(tags={"admin"})
    async with memory_wire(server, "2025-11-25") as wire:
        server.add_tool(lambda: "", name="hidden", tags={"admin"})
        server.remove_tool("hidden")
        await wire.quiet()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "pass names=, tags= or components="),
        ({"components": {"tols"}}, "there is no 'tols', only tool, resource, template, prompt"),
        ({"names": [1]}, "names: expected a set of strings"),
    ],
)
def test_switches_that_say_nothing(options: dict[str, Any], message: str) -> None:
    server = Server("refusing")
    for switch in (server.enable, server.disable):
        with pytest.raises(RegistrationError, match=message):
            switch(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"tags": "admin"}, "tags: expected a set of strings"), ({"visible": True}, "visible: expected a function")],
)
def test_options_that_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        offer(Server("refusing"), **options)


# -- rules -------------------------------------------------------------------------------------


def is_friend(ctx: Context) -> bool:
    return ctx.client_info is not None and ctx.client_info.name != "wire"


async def is_friend_async(ctx: Context) -> bool:
    return is_friend(ctx)


def no_admin(entry: CatalogEntry, ctx: Context) -> bool:
    return "admin" not in entry.tags


async def no_admin_async(entry: CatalogEntry, ctx: Context) -> bool:
    return no_admin(entry, ctx)


def fails(ctx: Context) -> bool:
    raise ValueError("the rule is broken")


async def fails_async(ctx: Context) -> bool:
    raise ValueError("the rule is broken")


@each_version
@pytest.mark.parametrize(
    "rule",
    [
        is_friend,
        is_friend_async,
        fails,
        fails_async,
        lambda ctx: is_friend_async(ctx),  # a plain function whose answer is awaited: by itself it would count as yes
        lambda ctx: fails_async(ctx),
    ],
)
async def test_a_rule_of_an_entry(version: str, rule: Any) -> None:
    async with memory_wire(offer(Server("ruled"), visible=rule), version) as wire:
        assert await seen(wire) == {"open"}
        assert await also_fixed(wire) == {"open"}


@each_version
@pytest.mark.parametrize("rule", [no_admin, no_admin_async, lambda entry, ctx: no_admin_async(entry, ctx)])
async def test_a_rule_of_the_server(version: str, rule: Any) -> None:
    server = offer(Server("ruled"), tags={"admin"})
    async with memory_wire(server, version) as wire:
        assert await seen(wire) == NAMES
        server.visibility(rule)
        assert await seen(wire) == {"open"}
        assert await also_fixed(wire) == {"open"}
        told = [message["method"] for message in wire.heard]
        if version != MODERN:
            assert sorted(told) == [f"notifications/{kind}/list_changed" for kind in ("prompts", "resources", "tools")]


async def test_rules_that_are_awaited_and_plain_ones_together() -> None:
    server = offer(Server("ruled"), tags={"admin"}, visible=lambda ctx: is_friend_async(ctx))
    server.visibility(no_admin)
    async with memory_wire(server, MODERN) as wire:
        assert await seen(wire) == {"open"}


async def test_what_a_rule_is_told() -> None:
    server = offer(Server("told"), tags={"admin"}, meta={"mine": 1})
    asked: dict[tuple[str, str], CatalogEntry] = {}
    threads = set()

    @server.visibility
    def rule(entry: CatalogEntry, ctx: Context) -> bool:
        asked[ctx.method, entry.name] = entry
        threads.add(threading.current_thread())
        return True

    async with memory_wire(server, MODERN) as wire:
        assert await seen(wire) == NAMES
    closed = asked["resources/list", "closed"]
    assert (closed.component, closed.uri, closed.tags) == ("resource", "thing://closed", {"admin"})
    groups = {"io.modelcontextprotocol/groups": ["admin"]}
    assert closed.meta == {"mine": 1, "fastmcp": {"tags": ["admin"]}, **groups}
    assert asked["tools/call", "open"] == CatalogEntry(
        component="tool", name="open", uri=None, tags=frozenset(), meta={}
    )
    assert asked["resources/read", "closed"].uri == "closed://things/{id}"
    assert threading.main_thread() not in threads


def fails_for_some(entry: CatalogEntry, ctx: Context) -> bool:
    if "t2" in entry.tags:
        raise ValueError("the rule is broken")
    return True


@pytest.mark.parametrize("kind", ["plain", "async", "lambda"])
@pytest.mark.parametrize(
    ("rule", "hidden"),
    [
        (lambda entry, ctx: "t1" not in entry.tags, {1, 7, 10}),
        (lambda entry, ctx: entry.name not in ("tool-3", "tool-5"), {3, 5}),
        (lambda entry, ctx: entry.meta.get("n", 0) < 6, {10}),
        (lambda entry, ctx: entry.uri is None and entry.component == "tool", set()),
        (lambda entry, ctx: structs.asdict(entry)["name"] != "tool-4", {4}),
        (lambda entry, ctx: "tool-7" not in repr(copy.copy(entry)), {7}),
        (lambda entry, ctx: False, set(range(12))),
        (fails_for_some, {2, 5, 11}),
    ],
)
async def test_a_rule_is_asked_once_about_each_entry_of_a_list(rule: Any, hidden: set[int], kind: str) -> None:
    server = Server("numbered")
    for number in range(12):
        options: dict[str, Any] = {"tags": {f"t{number % 3}"}} if number % 4 else {}
        if number % 5 == 0:
            options["meta"] = {"n": number}
        server.add_tool(lambda: "", name=f"tool-{number}", **options)
    asked: list[str] = []

    def plain(entry: CatalogEntry, ctx: Context) -> bool:
        asked.append(entry.name)
        return rule(entry, ctx)  # type: ignore[no-any-return]

    async def awaited(entry: CatalogEntry, ctx: Context) -> bool:
        return plain(entry, ctx)

    kinds: dict[str, Any] = {"plain": plain, "async": awaited, "lambda": lambda entry, ctx: awaited(entry, ctx)}
    server.visibility(kinds[kind])
    async with memory_wire(server, MODERN) as wire:
        for _ in range(2):
            listed = [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]
            assert listed == [f"tool-{number}" for number in range(12) if number not in hidden]
            assert asked == [f"tool-{number}" for number in range(12)]
            asked.clear()


async def test_what_comes_is_asked_about() -> None:
    server = Server("growing")
    server.add_tool(lambda: "", name="first")
    server.visibility(lambda entry, ctx: "new" not in entry.tags)
    async with memory_wire(server, MODERN) as wire:
        assert len((await wire.result("tools/list"))["tools"]) == 1
        server.add_tool(lambda: "", name="fresh")
        server.add_tool(lambda: "", name="hidden", tags={"new"})
        assert {tool["name"] for tool in (await wire.result("tools/list"))["tools"]} == {"first", "fresh"}


async def test_all_rules_have_to_agree_and_each_request_is_asked_anew() -> None:
    server = offer(Server("ruled"), visible=lambda ctx: allowed["entry"])
    allowed = {"entry": True, "first": True, "second": True}
    server.visibility(lambda entry, ctx: allowed["first"] or entry.name == "open")

    async def second(entry: CatalogEntry, ctx: Context) -> bool:
        return allowed["second"] or entry.name == "open"

    server.visibility(second)
    async with memory_wire(server, MODERN) as wire:
        for name in allowed:
            assert await seen(wire) == NAMES
            allowed[name] = False
            assert await seen(wire) == {"open"}
            allowed[name] = True


async def test_a_hidden_resource_is_watched_as_little_as_one_that_is_not_there() -> None:
    server = offer(Server("watched"), visible=is_friend)
    wanted = {"resourceSubscriptions": ["thing://closed", "thing://open", "thing://nothing", "open://things/1"]}
    async with memory_wire(server, MODERN) as wire:
        wire.ask("subscriptions/listen", {"notifications": wanted})
        acknowledged = await wire.receive()
    assert acknowledged["params"]["notifications"]["resourceSubscriptions"] == ["thing://open", "open://things/1"]


async def test_pages_of_what_is_seen_are_whole_and_kept() -> None:
    server = Server("paged", page_size=2)
    for number in range(10):
        server.add_tool(lambda: "", name=f"tool-{number}", visible=_odd if number % 2 else None)
    for number in range(5):
        server.add_tool(lambda: "", name=f"last-{number}")

    async def listed(wire: Wire) -> list[str]:
        names, params = [], {}
        while True:
            page = await wire.result("tools/list", params)
            names += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                return names
            assert len(page["tools"]) == 2
            params = {"cursor": page["nextCursor"]}

    expected = [f"tool-{number}" for number in range(0, 10, 2)] + [f"last-{number}" for number in range(5)]
    async with memory_wire(server, MODERN) as wire:
        assert await listed(wire) == expected
        pages = dict(server.catalog.tools._pages)
        assert await listed(wire) == expected
        assert {key: id(page) for key, page in pages.items()} == {
            key: id(page) for key, page in server.catalog.tools._pages.items()
        }


def _odd(ctx: Context) -> bool:
    return False


async def test_who_is_told_to_look_again() -> None:
    server = offer(Server("changing"))
    wanted = {"toolsListChanged": True, "promptsListChanged": True}
    async with memory_wire(server, MODERN) as wire:
        wire.ask("subscriptions/listen", {"notifications": wanted})
        await wire.receive()
        server.visibility_changed()
        told = [(await wire.receive())["method"] for _ in range(2)]
        assert sorted(told) == [f"notifications/{kind}/list_changed" for kind in ("prompts", "tools")]


async def test_headers_that_repeat_arguments_tell_nothing_of_what_is_hidden() -> None:
    server = Server("mirrored")
    allowed = {"tool": False}

    async def is_allowed(ctx: Context) -> bool:
        return allowed["tool"]

    @server.tool(visible=is_allowed)
    def query(region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})]) -> str:
        return region

    async with serving(server) as port:

        async def answer(name: str, arguments: Any) -> tuple[int, str]:
            said = await port.modern("tools/call", {"name": name, "arguments": arguments})
            return said.status, said.body.decode().replace(name, "it")

        for arguments in ({"region": "eu"}, 5):
            assert await answer("query", arguments) == await answer("nothing", arguments)
        allowed["tool"] = True
        status, body = await answer("query", {"region": "eu"})
        assert (status, "-32020" in body) == (400, True)


async def test_rules_go_inside_of_middleware() -> None:
    server = offer(Server("layers"))
    heard = []

    @server.middleware
    async def note(request: Any, call_next: Any) -> Any:
        heard.append(request.method)
        return await call_next(request)

    async with memory_wire(server, MODERN) as wire:
        server.visibility(lambda entry, ctx: entry.name == "open")
        assert await seen(wire) == {"open"}
    assert heard.count("tools/list") == 1
