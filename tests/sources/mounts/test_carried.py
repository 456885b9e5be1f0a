"""Apps, tasks and subscriptions through a mount."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.clock import Clock, until
from support.http_peer import serving
from support.wires import LEGACY, MODERN, Wire, memory_wire

from mcpd import CacheHint, Client, Context, Server
from mcpd.client.callbacks import Callbacks
from mcpd.errors import RemoteError
from mcpd.protocol.envelope import SERVER_INFO, Opening, OpeningOfPart
from mcpd.server.extensions.ui.results import view_result
from mcpd.server.registry.content import link
from mcpd.sources.mounts.carried import for_host
from mcpd.sources.mounts.mounted import mounts_of
from mcpd.sources.mounts.passing import server_of
from mcpd.sources.mounts.settings import MountSettings
from mcpd.sources.mounts.targets import Wanted
from mcpd.sources.skills import add_skills
from mcpd.types import ElicitResult
from .asking import FORM

OLD = LEGACY[-1]
SERVER = {SERVER_INFO}
UI = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
TASKS = {"io.modelcontextprotocol/tasks": {}}
BOTH = pytest.mark.parametrize("version", [OLD, MODERN])
HTML = "<!doctype html><html><body>hello</body></html>"


@asynccontextmanager
async def through(
    server: Server, depth: int, version: str, extensions: Any = None, **settings: Any
) -> AsyncIterator[Wire]:
    """A client of a server that is mounted on one which is mounted on …"""
    fronts = [server]
    for number in range(depth):
        front = Server(f"front{number}")
        front.mount("up", fronts[-1], **settings)
        fronts.append(front)
        async with memory_wire(front, MODERN) as first:
            await first.result("tools/list")  # a mount is known from its first connection on
    async with memory_wire(fronts[-1]) as wire:
        await wire.open(version, {"extensions": extensions or {}})
        await wire.result("tools/list")
        yield wire
    for front in reversed(fronts):
        await front.aclose()


# -------------------------------------------------------------------------------------------- apps


def apps_server() -> Server:
    server = Server("charts")
    csp = {"connectDomains": ["https://api.example.com", "https://other.example.org"]}
    uri = server.app("chart", HTML, csp=csp, domain="abc.example.com")

    @server.tool(ui=uri)
    async def draw() -> str:
        return "drawn"

    @server.tool(ui=uri, visibility=["app"])
    async def refresh() -> str:
        return "fresh"

    return server


@BOTH
@pytest.mark.parametrize("depth", [1, 3])
async def test_an_app_is_found_through_mounts(depth: int, version: str) -> None:
    """MNT-05, MNT-33: nested and flat key name the View, which can be read under that URI."""
    async with through(apps_server(), depth, version, UI) as wire:
        prefix = "up_" * depth
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        assert list(tools) == [f"{prefix}draw", f"{prefix}refresh"]
        meta = tools[f"{prefix}draw"]["_meta"]
        uri = meta["ui"]["resourceUri"]
        assert uri == meta["ui/resourceUri"]
        assert uri.startswith(f"ui://{'up/' * depth}charts/chart")
        assert uri.partition("?")[0] in {
            each["uri"].partition("?")[0] for each in (await wire.result("resources/list"))["resources"]
        }
        (content,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
        assert content["uri"] == uri
        assert content["text"] == HTML
        assert content["mimeType"] == "text/html;profile=mcp-app"
        assert "domain" not in content["_meta"]["ui"]
        assert (await wire.text(f"{prefix}refresh")) == "fresh"


@BOTH
async def test_a_client_without_apps_sees_tools_only(version: str) -> None:
    """MNT-34: as of an own tool, no `_meta`, no View, and no tool for Views."""
    async with through(apps_server(), 1, version) as wire:
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert tool["name"] == "up_draw"
        assert "ui" not in str(tool.get("_meta"))
        assert (await wire.result("resources/list"))["resources"] == []
        assert (await wire.error("tools/call", {"name": "up_refresh", "arguments": {}}))["code"] == -32602


@pytest.mark.parametrize("protocol", ["legacy", "modern"])
@pytest.mark.parametrize("is_alone", [False, True])
@BOTH
async def test_a_client_without_apps_gets_no_data_of_views(version: str, is_alone: bool, protocol: str) -> None:
    """MNT-34: results of calls are those of own tools."""
    server = apps_server()

    @server.tool(ui="ui://charts/chart")
    async def plot() -> Any:
        return view_result(
            ["plotted", link("ui://charts/chart", "chart")], {"secret": 1}, meta={"ui": {"a": 1}, "b": 2}
        )

    @server.tool(ui="ui://charts/chart", output_schema={"type": "object"})
    async def typed() -> Any:
        return view_result("typed", {"number": 1})

    front = server_of([Wanted("up", server, MountSettings(protocol=protocol))]) if is_alone else Server("front")  # type: ignore[arg-type]
    if not is_alone:
        front.mount("up", server, protocol=protocol)
    for extensions in ({}, UI):
        async with memory_wire(server) as own, memory_wire(front) as wire:
            for each in (own, wire):
                await each.open(version, {"extensions": extensions})
                await each.result("tools/list")
            for tool in ("plot", "typed"):
                expected, result = await own.call(tool), await wire.call(tool if is_alone else f"up_{tool}")
                assert result.get("structuredContent") == expected.get("structuredContent")
                assert [each["type"] for each in result["content"]] == [each["type"] for each in expected["content"]]
                metas = [each.get("_meta", {}) for each in (result, expected)]
                assert metas[0].keys() - SERVER == metas[1].keys() - SERVER
                assert ("mcpd/data" in metas[0]) is (extensions == UI)
    await front.aclose()


@BOTH
async def test_a_result_fits_the_schema_that_was_listed(version: str) -> None:
    """Lists are fetched with apps, for which values are in objects; so calls are made with apps, too."""
    server = apps_server()

    @server.tool
    async def count() -> int:
        return 5

    for extensions in ({}, UI):
        async with through(server, 1, version, extensions) as wire:
            tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
            assert tools["up_count"]["outputSchema"]["required"] == ["result"]
            assert (await wire.call("up_count"))["structuredContent"] == {"result": 5}


@BOTH
async def test_a_view_calls_tools_by_the_names_of_its_own_server(version: str) -> None:
    """MNT-33: if only one server with apps has such a tool, and none of that very name is offered."""
    front = Server("front")
    front.mount("up", apps_server())
    front.mount("plain", plain := Server("plain"))

    @plain.tool
    async def lonely() -> str:
        return "plain"

    async with memory_wire(front) as wire:
        await wire.open(version, {"extensions": UI})
        await wire.result("tools/list")
        assert await wire.text("refresh") == "fresh"
        assert (await wire.error("tools/call", {"name": "lonely", "arguments": {}}))["code"] == -32602
        front.mount("two", apps_server())
        await wire.result("tools/list")
        assert (await wire.error("tools/call", {"name": "refresh", "arguments": {}}))["code"] == -32602
        assert await wire.text("two_refresh") == "fresh"
    await front.aclose()


async def test_the_origins_of_a_view_can_be_fewer_never_more() -> None:
    async with through(apps_server(), 1, MODERN, UI, csp=("https://*.example.com", "https://more.example")) as wire:
        (view,) = (await wire.result("resources/list"))["resources"]
        (content,) = (await wire.result("resources/read", {"uri": view["uri"]}))["contents"]
        for found in (view, content):
            assert found["_meta"]["ui"]["csp"]["connectDomains"] == ["https://api.example.com"]
    async with through(apps_server(), 1, MODERN, UI, csp="deny") as wire:
        (view,) = (await wire.result("resources/list"))["resources"]
        assert not any(view["_meta"]["ui"]["csp"].values())


def test_what_is_unknown_about_an_app() -> None:
    meta = {"ui": {"visibility": ["app", "moon"], "domain": "d", "other": 1}, "x": 2}
    assert for_host(meta, None) == {"ui": {"visibility": ["app"], "other": 1}, "x": 2}


# ------------------------------------------------------------------------------------------- tasks


def tasks_server() -> tuple[Server, asyncio.Event]:
    server, released = Server("slow"), asyncio.Event()

    @server.tool(task="required")
    async def slow() -> str:
        await released.wait()
        return "finished"

    return server, released


async def finished(wire: Wire, task_id: str) -> Any:
    while True:
        task = await wire.result("tasks/get", {"taskId": task_id})
        if task["status"] != "working":
            return task
        await asyncio.sleep(0)


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_task_is_found_by_its_id(depth: int) -> None:
    """MNT-02: for get and cancel, through any number of mounts."""
    server, released = tasks_server()
    async with through(server, depth, MODERN, TASKS) as wire:
        assert TASKS.items() <= (await wire.result("server/discover"))["capabilities"]["extensions"].items()
        created = await wire.call(f"{'up_' * depth}slow")
        assert created["resultType"] == "task"
        assert created["taskId"].startswith("up.")
        assert (await wire.result("tasks/get", {"taskId": created["taskId"]}))["status"] == "working"
        released.set()
        task = await finished(wire, created["taskId"])
        assert task["taskId"] == created["taskId"]
        assert task["result"]["content"][0]["text"] == "finished"

        released.clear()
        other = (await wire.call(f"{'up_' * depth}slow"))["taskId"]
        await wire.result("tasks/cancel", {"taskId": other})
        assert (await finished(wire, other))["status"] == "cancelled"


async def test_a_task_of_another_user_is_not_found() -> None:
    """MNT-35: neither with the id of another user, nor with one that was made up."""
    server, _ = tasks_server()
    front = Server("front")
    front.mount("up", server)

    @asynccontextmanager
    async def user(name: str) -> AsyncIterator[Wire]:
        async with memory_wire(front) as wire:
            wire.connection.session.opening = Opening(principal=name)
            await wire.open(MODERN, {"extensions": TASKS})
            yield wire

    async with user("ada") as ada, user("bob") as bob:
        task_id = (await ada.call("up_slow"))["taskId"]
        mount, tag, own = task_id.split(".", 2)
        for wire, wanted in ((bob, task_id), (ada, f"{mount}.{'0' * 16}.{own}"), (ada, f"{mount}.{tag}.x"), (ada, own)):
            for method in ("tasks/get", "tasks/cancel"):
                assert (await wire.error(method, {"taskId": wanted}))["code"] == -32602
        assert (await ada.result("tasks/get", {"taskId": task_id}))["status"] == "working"
        await ada.result("tasks/cancel", {"taskId": task_id})
    await front.aclose()


@pytest.mark.parametrize("depth", [1, 2])
async def test_changes_of_a_task_are_notified(depth: int) -> None:
    """MNT-02: with the id that the client knows, after the acknowledgement, and not to another user."""
    server, released = tasks_server()
    async with through(server, depth, MODERN, TASKS) as wire:
        task_id = (await wire.call(f"{'up_' * depth}slow"))["taskId"]
        name, tag, own = task_id.split(".", 2)
        ids = [task_id, f"{name}.{tag[::-1]}.{own}", f"other.{tag}.{own}"]
        number = wire.ask("subscriptions/listen", {"notifications": {"taskIds": ids}})
        begun = await wire.receive()
        assert begun["method"] == "notifications/subscriptions/acknowledged"
        assert begun["params"]["notifications"]["taskIds"] == [task_id]
        released.set()
        while (params := (await wire.receive())["params"])["status"] == "working":
            pass
        assert params["taskId"] == task_id
        assert params["result"]["content"][0]["text"] == "finished"
        assert params["_meta"]["io.modelcontextprotocol/subscriptionId"] == number


@pytest.mark.parametrize("is_only", [False, True])
async def test_a_task_of_another_mount_is_not_found(is_only: bool) -> None:
    """MNT-36: neither at the path of one mount, nor with `--only`: not read, changed, cancelled or listened to."""
    server, released = tasks_server()
    front = Server("front")
    front.mount("a", Server("a"))
    front.mount("b", server)

    @asynccontextmanager
    async def at(*names: str) -> AsyncIterator[Wire]:
        async with memory_wire(front) as wire:
            if is_only:
                mounts_of(front).only = names
            else:
                wire.connection.session.opening = OpeningOfPart(named=names)
            await wire.open(MODERN, {"extensions": TASKS})
            yield wire

    async with at("b") as wire:
        task_id = (await wire.call("b_slow"))["taskId"]
    async with at("a") as wire:
        for method in ("tasks/get", "tasks/cancel", "tasks/update"):
            params = {"taskId": task_id, "inputResponses": {}}
            assert (await wire.error(method, params))["code"] == -32602
        wire.ask("subscriptions/listen", {"notifications": {"taskIds": [task_id]}})
        begun = await wire.receive()
        assert begun["method"] == "notifications/subscriptions/acknowledged"
        assert not begun["params"]["notifications"].get("taskIds")
    async with at("b") as wire:
        assert (await wire.result("tasks/get", {"taskId": task_id}))["status"] == "working"
        released.set()
        assert (await finished(wire, task_id))["status"] == "completed"
    await front.aclose()


# ----------------------------------------------------------------------------------- subscriptions


def notes_server() -> Server:
    server = Server("notes")

    @server.resource("notes://today")
    async def today() -> str:
        return "today"

    @server.resource("notes://{day}/long")
    async def long(day: str) -> str:
        return day

    return server


@pytest.mark.parametrize("uri", ["notes://today", "notes://monday/long"])
@pytest.mark.parametrize("protocol", ["legacy", "modern"])
@BOTH
async def test_changes_of_a_resource_reach_those_who_watch_it(version: str, protocol: str, uri: str) -> None:
    """MNT-02, MNT-25: with the URI that the client knows, and not those who do not watch it."""
    server = notes_server()
    front = Server("front")
    front.mount("up", server, protocol=protocol)
    heard: list[str] = []
    other: list[str] = []
    async with (
        Client(front, Callbacks(resource_updated=heard.append), version=version) as client,
        Client(front, Callbacks(resource_updated=other.append), version=version) as idle,
    ):
        await client.list_resources()
        await idle.list_resources()
        await client.subscribe(f"up+{uri}")
        server.resource_updated(uri)
        await until(lambda: heard)
        assert heard == [f"up+{uri}"]
        await client.unsubscribe(f"up+{uri}")
        await client.subscribe(f"up+{uri}")
        server.resource_updated(uri)
        await until(lambda: len(heard) == 2)
    assert other == []
    await front.aclose()


@BOTH
async def test_a_lost_connection_is_watched_again_with_one_notification(version: str) -> None:
    server = notes_server()
    heard: list[str] = []
    async with serving(server) as port:
        front = Server("front")
        front.mount("up", port.listener.url.replace("http", "ws"), protocol="legacy")
        async with Client(front, Callbacks(resource_updated=heard.append), version=version) as client:
            await client.list_resources()
            await client.subscribe("up+notes://today")
            mount: Any = front.extensions["mcpd/mounts"]
            for connection in mount.by_name["up"].connections():
                await connection.client.channel.aclose()
                connection.client.closed()
            await until(lambda: heard)
            server.resource_updated("notes://today")
            await until(lambda: len(heard) == 2)
        await front.aclose()


# ------------------------------------------------------------------------------------------- reads


@BOTH
async def test_a_resource_is_read_once_while_its_hints_allow_it(version: str) -> None:
    """Public ones only, with the time that is left, and anew after they have changed."""
    server = Server("notes")
    reads: list[str] = []

    @server.resource("notes://open", cache=CacheHint(60, scope="public"))
    async def public() -> str:
        reads.append("open")
        return "open"

    @server.resource("notes://own", cache=CacheHint(60))
    async def private() -> str:
        reads.append("own")
        return "own"

    front = Server("front")
    front.mount("up", server, protocol="modern")
    async with memory_wire(front) as wire, memory_wire(front) as other:
        for each in (wire, other):
            await each.open(version)
            await each.result("resources/list")
            for uri in ("notes://open", "notes://own"):
                result = await each.result("resources/read", {"uri": f"up+{uri}"})
                assert result["contents"][0]["uri"] == f"up+{uri}"
                if version == MODERN:
                    assert 0 < result["ttlMs"] <= 60_000
        assert reads == ["open", "own", "own"]
    await front.aclose()


async def test_a_private_read_is_not_shared() -> None:
    """Not between two users, nor with a client without one; a public one is."""
    server, front = Server("notes", cache=CacheHint(60, scope="public")), Server("front")
    numbers = count()
    for name, scope in (("open", "public"), ("own", "private")):

        @server.resource(f"notes://{name}", cache=CacheHint(60, scope=scope))  # type: ignore[arg-type]
        async def read() -> str:
            return str(next(numbers))

    front.mount("up", server, protocol="modern")
    seen: dict[str, list[str]] = {"open": [], "own": []}
    for user in ("ada", "bob", "", "ada"):
        async with memory_wire(front) as wire:
            wire.connection.session.opening = Opening(principal=user)
            await wire.open(MODERN)
            for name, texts in seen.items():
                result = await wire.result("resources/read", {"uri": f"up+notes://{name}"})
                texts.append(result["contents"][0]["text"])
    assert len(set(seen["open"])) == 1
    assert len(set(seen["own"])) == 4
    await front.aclose()


@BOTH
async def test_a_read_that_needs_an_answer_is_not_kept(version: str) -> None:
    """Spec: 2026-07-28 server/utilities/caching: the result of a retry "MUST NOT be cached"."""
    server, front = Server("notes"), Server("front")

    @server.resource("notes://mine", cache=CacheHint(60, scope="public"))
    async def mine(ctx: Context) -> str:
        return str((await ctx.elicit("who?", FORM)).content["n"])

    front.mount("up", server, protocol="modern")
    for name in ("ada", "bob"):
        callbacks = Callbacks(elicit_form=lambda _, name=name: ElicitResult(action="accept", content={"n": name}))
        async with Client(front, callbacks, version=version) as client:
            (content,) = (await client.read_resource("up+notes://mine")).contents
            assert content.text == name
    await front.aclose()


async def test_a_read_during_a_change_is_not_kept() -> None:
    """The notification may arrive before a result that was made earlier."""
    server, front = Server("notes"), Server("front")
    texts, begun, changed = ["new", "old"], asyncio.Event(), asyncio.Event()

    @server.resource("notes://now", cache=CacheHint(60, scope="public"))
    async def now() -> str:
        text = texts.pop()
        begun.set()
        await changed.wait()
        return text

    front.mount("up", server, protocol="modern")
    async with Client(front, Callbacks(resource_updated=lambda uri: changed.set()), version=MODERN) as client:
        await client.subscribe("up+notes://now")
        reading = asyncio.create_task(client.read_resource("up+notes://now"))
        await begun.wait()
        server.resource_updated("notes://now")
        assert (await reading).contents[0].text == "old"
        async with Client(front, version=MODERN) as other:
            assert (await other.read_resource("up+notes://now")).contents[0].text == "new"
    await front.aclose()


# ------------------------------------------------------------------------------------------ events


def pager() -> Server:
    server = Server("pager")

    @server.event("incident.created")
    def incident_created(event: dict[str, Any], severity: str | None = None) -> bool:
        """A new incident was opened."""
        return severity in (None, event["severity"])

    @server.event("internal.tick", delivery=["push"])
    def tick(event: dict[str, Any]) -> None:
        """Only on streams."""

    return server


@pytest.mark.parametrize("delivery", ["push", "poll"])
async def test_events_of_a_mounted_server(delivery: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each type that can be polled is offered under the prefix; cursors are those of the mounted server."""
    monkeypatch.setattr("mcpd.sources.mounts.events._EVERY_SECONDS", 1.0)
    up, front = pager(), Server("front")
    front.mount("up", up)
    async with Client(front) as client:
        await client.list_tools()  # a mount is known from its first connection on
        kinds = await client.list_events()
        assert [(kind.name, kind.description) for kind in kinds] == [
            ("up_incident.created", "A new incident was opened.")
        ]
        clock = Clock()
        async with client.events("up_incident.created", {"severity": "P1"}, delivery=delivery) as events:
            assert events.mode == delivery
            up.emit("incident.created", {"severity": "P2"}, id="a")
            up.emit("incident.created", {"severity": "P1"}, id="b")
            found = asyncio.create_task(anext(events))
            while not found.done():
                await clock.advance(1)
            event = await found
            assert (event.id, event.name, event.data) == ("b", "up_incident.created", {"severity": "P1"})
            assert event.cursor == events.cursor or delivery == "poll"
            up.emit("incident.created", {"severity": "P1"}, id="c")
            found = asyncio.create_task(anext(events))
            while not found.done():
                await clock.advance(1)
            assert (await found).id == "c"
        with pytest.raises(RemoteError) as caught:
            await client.events("up_incident.created", {"severity": 7}, delivery="poll").__aenter__()
        assert caught.value.code == -32602
    await front.aclose()


# ------------------------------------------------------------------------------------------ skills


def skills_server(folder: Path, words: str) -> Server:
    (folder / "tend").mkdir(parents=True)
    (folder / "tend" / "SKILL.md").write_text(f"---\nname: tend\ndescription: {words}\n---\nTend it.")
    (folder / "tend" / "order.md").write_text(words)
    server = Server(words)
    add_skills(server, folder)
    return server


@BOTH
async def test_skills_of_several_mounts_are_merged(version: str, tmp_path: Path) -> None:
    """MNT-02, MNT-36: with front matter and digests as they are; at the path of a mount only its own."""
    ups = {name: skills_server(tmp_path / name, name) for name in ("a", "b")}
    front = Server("front")
    for name, up in ups.items():
        front.mount(name, up)

    @front.resource("notes://own")
    async def own() -> str:
        return "own"

    async with memory_wire(front, version) as wire:
        await wire.result("resources/list")
        assert [one["uri"] for one in (await wire.result("skills/list"))["skills"]] == [
            "skill://a/tend/SKILL.md",
            "skill://b/tend/SKILL.md",
        ]
        for name, up in ups.items():
            async with memory_wire(up, version) as direct:
                plain = (await direct.result("skills/get", {"uri": "skill://tend/SKILL.md"}))["skill"]
            skill = (await wire.result("skills/get", {"uri": f"skill://{name}/tend/SKILL.md"}))["skill"]
            assert skill["frontmatter"] == plain["frontmatter"] == {"name": "tend", "description": name}
            assert [each["digest"] for each in skill["resources"]] == [each["digest"] for each in plain["resources"]]
            for each in skill["resources"]:
                assert (await wire.result("resources/read", {"uri": each["uri"]}))["contents"][0]["uri"] == each["uri"]
            listed = await wire.result("resources/directory/read", {"uri": f"skill://{name}/tend"})
            assert [each["uri"] for each in listed["resources"]] == [each["uri"] for each in skill["resources"]]

    async with memory_wire(front) as wire:
        wire.connection.session.opening = OpeningOfPart(named=("b",))
        await wire.open(version)
        assert [one["uri"] for one in (await wire.result("skills/list"))["skills"]] == ["skill://b/tend/SKILL.md"]
        assert (await wire.error("skills/get", {"uri": "skill://a/tend/SKILL.md"}))["code"] == -32602
    await front.aclose()
