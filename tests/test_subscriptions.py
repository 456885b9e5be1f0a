"""What a server says unasked: changed lists, updated resources, and the subscriptions that ask for them.

Spec: 2026-07-28 basic/patterns/subscriptions; server/{tools,resources,prompts} of every version.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from support.clock import until
from support.wires import META, MODERN, Wire, each_legacy, each_version, initialize, memory_wire

from mcpd import Server
from mcpd.server.handlers import methods

SUBSCRIPTION = f"{META}subscriptionId"
CHANGED = {kind: f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}


def make_server(**settings: Any) -> Server:
    server = Server("t", **settings)
    server.add_tool(nothing, name="first")
    server.add_prompt(nothing, name="first")
    server.add_text("test://one", "1", name="one")
    server.add_text("test://two", "2", name="two")

    @server.resource("test://many/{name}")
    def many(name: str) -> str:
        return name

    return server


def nothing() -> str:
    """Nothing."""
    return ""


def change(server: Server, kind: str) -> None:
    """Add something to a list, and take it away the next time."""
    if kind == "tools":
        if not server.remove_tool("second"):
            server.add_tool(nothing, name="second")
    elif kind == "prompts":
        if not server.remove_prompt("second"):
            server.add_prompt(nothing, name="second")
    elif not server.remove_resource("test://second"):
        server.add_text("test://second", "", name="second")


async def listen(wire: Wire, id: Any = None, **wanted: Any) -> Any:
    """Open a subscription; gives its id, after the acknowledgement."""
    request_id = wire.ask("subscriptions/listen", {"notifications": wanted}, id=id)
    acknowledged = await wire.receive()
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["_meta"] == {SUBSCRIPTION: request_id}
    assert acknowledged["params"]["notifications"] == {key: value for key, value in wanted.items() if value}
    return request_id


# ------------------------------------------------------------------------------------ list changes


@each_legacy
@pytest.mark.parametrize("kind", CHANGED)
async def test_a_session_hears_of_changed_lists(version: str, kind: str) -> None:
    server = make_server()
    async with memory_wire(server, version) as wire:
        for _ in range(2):
            change(server, kind)
            assert await wire.receive() == {"jsonrpc": "2.0", "method": CHANGED[kind]}
        await wire.quiet()


@each_legacy
async def test_the_changed_list_is_the_new_one(version: str) -> None:
    """Its bytes are kept between changes, and not longer."""
    server = make_server()
    async with memory_wire(server, version) as wire:
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["first"]
        change(server, "tools")
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["first", "second"]
        change(server, "tools")
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["first"]


@each_legacy
async def test_a_template_changes_the_list_of_resources(version: str) -> None:
    server = make_server()
    async with memory_wire(server, version) as wire:
        server.remove_resource("test://many/{name}")
        assert (await wire.receive())["method"] == CHANGED["resources"]
        assert (await wire.result("resources/templates/list"))["resourceTemplates"] == []


@each_legacy
async def test_many_changes_at_once_are_one(version: str) -> None:
    server = make_server()
    async with memory_wire(server, version) as wire:
        for number in range(100):
            server.add_tool(nothing, name=f"t{number}")
            server.add_text(f"test://t/{number}", "", name="t")
            server.resource_updated("test://one")
        assert {(await wire.receive())["method"], (await wire.receive())["method"]} == {
            CHANGED["tools"],
            CHANGED["resources"],
        }
        await wire.quiet()
        assert len((await wire.result("tools/list"))["tools"]) == 101


@each_version
async def test_changes_from_other_threads(version: str) -> None:
    """Each is heard in the end, none is lost, and what is listed meanwhile is never torn."""
    server = make_server()

    def work(name: str) -> None:
        for number in range(50):
            server.add_tool(nothing, name=f"{name}{number}")
        for number in range(49):
            server.remove_tool(f"{name}{number}")

    async with memory_wire(server, version) as wire:
        if version == MODERN:
            await listen(wire, "watch", toolsListChanged=True)
        await wire.quiet()  # before `notifications/initialized` has come nothing is announced
        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            names = [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]
            assert len(names) == len(set(names))
        for thread in threads:
            thread.join()
        # What was announced from a thread takes two turns of the loop, and each answer more than that.
        for _ in range(2):
            await wire.result("tools/list")
        assert {message["method"] for message in wire.heard} == {CHANGED["tools"]}
        names = [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]
        assert sorted(names) == ["a49", "b49", "c49", "d49", "first"]


@each_legacy
async def test_nothing_is_said_before_the_client_is_ready(version: str) -> None:
    """S25-020: until `notifications/initialized` the server does not speak of its own."""
    server = make_server()
    async with memory_wire(server) as wire:
        wire.send(initialize(version, "hello"))
        await wire.answer("hello")
        wire.version = version
        change(server, "tools")
        await wire.quiet()
        wire.notify("notifications/initialized")
        await wire.quiet()
        change(server, "tools")
        assert (await wire.receive())["method"] == CHANGED["tools"]


async def test_a_modern_connection_hears_only_what_it_listens_to() -> None:
    """S26-091: without a subscription nothing comes at all."""
    server = make_server()
    async with memory_wire(server, MODERN) as wire:
        for kind in CHANGED:
            change(server, kind)
        server.resource_updated("test://one")
        await wire.quiet()


async def test_changes_reach_every_connection_and_none_that_is_gone() -> None:
    server = make_server()
    async with memory_wire(server, "2025-11-25") as one, memory_wire(server, MODERN) as other:
        async with memory_wire(server, "2025-06-18"):
            pass
        await listen(other, 1, toolsListChanged=True)
        change(server, "tools")
        assert await one.receive() == {"jsonrpc": "2.0", "method": CHANGED["tools"]}
        assert (await other.receive())["params"]["_meta"] == {SUBSCRIPTION: 1}
        other.cancel(1)
    change(server, "tools")  # nobody is left to hear it


def test_a_change_after_the_loop_has_ended_is_nobodys_business() -> None:
    server = make_server()

    async def leave() -> None:
        server.connect_memory()
        await asyncio.sleep(0)

    asyncio.run(leave())
    change(server, "tools")


# --------------------------------------------------------------------- resources/subscribe, legacy


@each_legacy
async def test_updates_of_watched_resources(version: str) -> None:
    server = make_server()
    async with memory_wire(server, version) as wire:
        assert await wire.result("resources/subscribe", {"uri": "test://one"}) == {}
        assert await wire.result("resources/subscribe", {"uri": "test://one"}) == {}  # once is enough
        assert await wire.result("resources/subscribe", {"uri": "test://many/x"}) == {}
        server.resource_updated("test://two")
        server.resource_updated("test://one")
        server.resource_updated("test://many/x")
        for uri in ("test://one", "test://many/x"):
            assert await wire.receive() == {
                "jsonrpc": "2.0",
                "method": "notifications/resources/updated",
                "params": {"uri": uri},
            }
        assert await wire.result("resources/unsubscribe", {"uri": "test://one"}) == {}
        assert await wire.result("resources/unsubscribe", {"uri": "test://one"}) == {}
        server.resource_updated("test://one")
        await wire.quiet()


@each_legacy
async def test_what_is_not_there_cannot_be_watched(version: str) -> None:
    async with memory_wire(make_server(), version) as wire:
        error = await wire.error("resources/subscribe", {"uri": "test://nowhere"})
        assert error["code"] == -32002
        assert error["data"] == {"uri": "test://nowhere"}
        assert (await wire.error("resources/subscribe", {}))["code"] == -32602


async def test_sessions_watch_for_themselves() -> None:
    server = make_server()
    async with memory_wire(server, "2025-11-25") as one, memory_wire(server, "2025-11-25") as other:
        await one.result("resources/subscribe", {"uri": "test://one"})
        server.resource_updated("test://one")
        assert (await one.receive())["method"] == "notifications/resources/updated"
        await other.quiet()


@each_version
async def test_a_client_watches_so_many_resources_and_no_more(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "MAX_WATCHED", 2)
    async with memory_wire(make_server(), version) as wire:
        uris = [f"test://many/{number}" for number in range(3)]
        if version == MODERN:
            error = await wire.error("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
            assert error["code"] == -32602
            return
        for uri in uris[:2]:
            await wire.result("resources/subscribe", {"uri": uri})
        assert (await wire.error("resources/subscribe", {"uri": uris[2]}))["code"] == -32602
        assert await wire.result("resources/subscribe", {"uri": uris[0]}) == {}
        await wire.result("resources/unsubscribe", {"uri": uris[0]})
        assert await wire.result("resources/subscribe", {"uri": uris[2]}) == {}


# ------------------------------------------------------------------------ subscriptions/listen, 2026


@pytest.mark.parametrize("request_id", [1, 0, "s", "", "1", -5])
async def test_all_of_a_subscription_carries_its_id(request_id: Any) -> None:
    """S26-034, S26-092, S26-093: the acknowledgement is first, and the id keeps its JSON type."""
    server = make_server()
    async with memory_wire(server, MODERN) as wire:
        await listen(
            wire,
            request_id,
            toolsListChanged=True,
            promptsListChanged=True,
            resourcesListChanged=True,
            resourceSubscriptions=["test://one"],
        )
        for kind, method in CHANGED.items():
            change(server, kind)
            message = await wire.receive()
            assert message == {
                "jsonrpc": "2.0",
                "method": method,
                "params": {"_meta": {SUBSCRIPTION: request_id}},
            }
            assert type(message["params"]["_meta"][SUBSCRIPTION]) is type(request_id)
        server.resource_updated("test://two")
        server.resource_updated("test://one")
        assert (await wire.receive())["params"] == {"uri": "test://one", "_meta": {SUBSCRIPTION: request_id}}
        wire.cancel(request_id)
        await wire.quiet()


async def test_only_what_the_filter_asks_for() -> None:
    """S26-091."""
    server = make_server()
    async with memory_wire(server, MODERN) as wire:
        await listen(wire, "p", promptsListChanged=True, toolsListChanged=False)
        for kind in CHANGED:
            change(server, kind)
        server.resource_updated("test://one")
        assert (await wire.receive())["method"] == CHANGED["prompts"]
        await wire.quiet()
        wire.cancel("p")


async def test_an_empty_filter_is_acknowledged_and_hears_nothing() -> None:
    server = make_server()
    async with memory_wire(server, MODERN) as wire:
        await listen(wire, "nothing")
        for kind in CHANGED:
            change(server, kind)
        await wire.quiet()
        wire.cancel("nothing")


async def test_what_the_server_does_not_have_is_not_acknowledged() -> None:
    """S26-092: the acknowledgement names the subset that will be honoured."""
    server = Server("t")
    server.add_tool(nothing)
    async with memory_wire(server, MODERN) as wire:
        wanted = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourcesListChanged": True,
            "resourceSubscriptions": ["test://one"],
        }
        wire.ask("subscriptions/listen", {"notifications": wanted}, id="all")
        acknowledged = await wire.receive()
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        wire.cancel("all")


async def test_several_subscriptions_at_once() -> None:
    """One copy for each that asked for it, each with its own id."""
    server = make_server()
    async with memory_wire(server, MODERN) as wire:
        await listen(wire, 1, toolsListChanged=True)
        await listen(wire, "1", toolsListChanged=True, resourceSubscriptions=["test://one"])
        await listen(wire, 2, resourceSubscriptions=["test://one", "test://two"])
        change(server, "tools")
        assert [(await wire.receive())["params"]["_meta"][SUBSCRIPTION] for _ in range(2)] == [1, "1"]
        server.resource_updated("test://one")
        assert [(await wire.receive())["params"]["_meta"][SUBSCRIPTION] for _ in range(2)] == ["1", 2]
        wire.cancel(1)
        change(server, "tools")
        assert (await wire.receive())["params"]["_meta"][SUBSCRIPTION] == "1"
        await wire.quiet()
        wire.cancel("1")
        wire.cancel(2)


async def test_other_requests_go_on_beside_a_subscription() -> None:
    server = make_server()
    async with memory_wire(server, MODERN) as wire:
        await listen(wire, "s", toolsListChanged=True)
        assert await wire.text("first") == ""
        error = await wire.error("subscriptions/listen", {"notifications": {}}, id="s")
        assert error["code"] == -32600  # the id is in use
        change(server, "tools")
        assert (await wire.receive())["method"] == CHANGED["tools"]
        wire.cancel("s")


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({}, "notifications"),
        ({"notifications": None}, "notifications"),
        ({"notifications": {"toolsListChanged": "yes"}}, "toolsListChanged"),
        ({"notifications": {"resourceSubscriptions": "test://one"}}, "resourceSubscriptions"),
        ({"notifications": {"resourceSubscriptions": [5]}}, "resourceSubscriptions"),
    ],
)
async def test_a_filter_that_cannot_be_read(params: Any, named: str) -> None:
    async with memory_wire(make_server(), MODERN) as wire:
        error = await wire.error("subscriptions/listen", params)
        assert error["code"] == -32602
        assert named in error["message"]


async def test_the_server_ends_its_subscriptions_gracefully() -> None:
    """S26-094: each gets its result, which names it, and on a shared channel `notifications/cancelled` for its id."""
    server = make_server()
    async with memory_wire(server, MODERN) as wire:
        await listen(wire, "a", toolsListChanged=True)
        await listen(wire, 2, promptsListChanged=True)
        await wire.connection.finish(1)
        messages = [await wire.receive() for _ in range(4)]
        for request_id in ("a", 2):
            result, cancelled = (
                message
                for message in messages
                if request_id in (message.get("id"), message.get("params", {}).get("requestId"))
            )
            assert result["result"]["resultType"] == "complete"
            assert result["result"]["_meta"][SUBSCRIPTION] == request_id
            assert cancelled["method"] == "notifications/cancelled"
        change(server, "tools")
        assert wire.connection.session.in_flight.by_id == {}


async def test_cancelled_is_said_of_nothing_else() -> None:
    """S26-095: a call that the server gives up has an error for an answer, and no notification."""
    server = make_server()

    @server.tool
    async def forever() -> None:
        await asyncio.Event().wait()

    async with memory_wire(server, MODERN) as wire:
        call = wire.ask("tools/call", {"name": "forever"})
        await wire.connection.finish(0)
        assert (await wire.answer(call))["error"]["code"] == -32603
        assert not wire.heard


# -------------------------------------------------------------------------------- slow readers


class SlowChannel:
    """A channel whose peer takes nothing until it is told to."""

    is_multiplexed = True

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.is_congested = False
        self.taken = asyncio.Event()

    def send(self, frame: bytes, related_request_id: Any = None, method: str | None = None) -> None:
        self.sent.append(frame)

    async def drain(self) -> None:
        await self.taken.wait()
        self.is_congested = False

    async def aclose(self, reason: str = "") -> None: ...


async def test_what_a_slow_reader_has_not_taken_is_said_once() -> None:
    """However much changes meanwhile, no more waits for it than one message of a kind."""
    server = make_server()
    channel = SlowChannel()
    connection = server.connect(channel)
    connection.receive(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"clientInfo":{"name":"c","version":"1"}}}'
    )
    connection.receive(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    connection.receive(b'{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"test://one"}}')
    channel.sent.clear()
    channel.is_congested = True
    for _ in range(50):
        change(server, "tools")
        server.resource_updated("test://one")
        await asyncio.sleep(0)
    assert not channel.sent
    channel.taken.set()
    await until(lambda: len(channel.sent) >= 2)
    await asyncio.sleep(0)
    assert len(channel.sent) == 2
    change(server, "prompts")
    await until(lambda: len(channel.sent) >= 3)
    assert b"notifications/prompts/list_changed" in channel.sent[2]
    connection.abort()
