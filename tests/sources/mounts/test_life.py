"""How long mounted servers live: instances, failures, lists that are kept, changes and reloads, on the wire."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.clock import until
from support.http_peer import serving
from support.wires import LEGACY, Wire, memory_wire

from mcpd import Client, Server, TextContent
from mcpd.client.targets.named import CommandTarget
from mcpd.errors import ConfigurationError
from mcpd.server.reloading import take_over
from mcpd.sources.folder import Folder
from mcpd.sources.lookup import folder_at
from mcpd.sources.mounts.mounted import mounts_of
from mcpd.sources.mounts.passing import server_of
from mcpd.sources.mounts.targets import Wanted, servers_in, wanted_by
from mcpd.sources.watch import WatchedFolder

OLD = LEGACY[-1]


class Peers:
    """Commands of `mount_peer`, and what the processes have written down."""

    def __init__(self, folder: Path, child: Child) -> None:
        self._folder = folder
        self._child = child

    def command(self, mode: str) -> CommandTarget:
        words = [self._child.python, "-m", "support.mount_peer", mode, str(self._folder / mode)]
        path = os.pathsep.join([str(REPOSITORY / "tests"), self._child.env["PYTHONPATH"]])
        return CommandTarget(tuple(words), {**self._child.env, "PYTHONPATH": path})

    def said(self, mode: str) -> Counter[str]:
        path = self._folder / mode
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(line.partition(" ")[0] for line in lines)

    def pids(self, mode: str) -> set[int]:
        return {int(line.split()[1]) for line in (self._folder / mode).read_text().splitlines()}


@pytest.fixture
def peers(tmp_path: Path, child: Child) -> Peers:
    return Peers(tmp_path, child)


@asynccontextmanager
async def clients(server: Server, number: int = 1) -> AsyncIterator[list[Wire]]:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.aclose)
        wires = [await stack.enter_async_context(memory_wire(server)) for _ in range(number)]
        for wire in wires:
            await wire.open(OLD)
        yield wires


async def text(wire: Wire, tool: str) -> str:
    result = await wire.call(tool)
    return str(result["content"][0]["text"])


async def names(wire: Wire) -> list[str]:
    return [each["name"] for each in (await wire.result("tools/list"))["tools"]]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("mode", ["crash", "silent", "flood", "garbage"])
async def test_a_bad_server_leaves_the_others_alone(mode: str, peers: Peers) -> None:
    """MNT-23: one that crashes, is silent, floods stderr or sends garbage; the others are listed and answer."""
    server = Server("front")
    server.mount("good", peers.command("good"))
    server.mount("bad", peers.command(mode), start_timeout=0.5 if mode in ("silent", "garbage") else 10)
    async with clients(server) as [wire]:
        listed = await names(wire)
        assert listed[:3] == ["good_count", "good_once", "good_safe"]
        assert (len(listed) == 6) is (mode == "flood")
        assert await text(wire, "good_count") == "1"
        mounts_of(server).by_name["bad"].forgive()
        async with asyncio.timeout(60):  # neither calls nor lists wait for it again
            assert [await text(wire, "good_count") for _ in range(3)] == ["2", "3", "4"]
            assert (await names(wire))[:3] == listed[:3]
        if mode == "crash":
            (bad,) = [each for each in mounts_of(server).mounts() if each.name == "bad"]
            assert bad.failures >= 1
            assert "connection refused: db:5432" in bad.last_error


async def test_a_crashing_server_is_not_started_for_each_call(peers: Peers) -> None:
    """MNT-24: a thousand calls start it a few times at most, and each says why and when the next try is."""
    server = server_of([Wanted("db", peers.command("dies"))])
    async with clients(server) as [wire]:
        assert "exit code 5" in await text(wire, "once")
        for _ in range(1000):
            result = await wire.call("once")
            assert result["isError"]
            assert 'mount "db" is not available' in result["content"][0]["text"]
        assert "; next try in " in result["content"][0]["text"]
        assert peers.said("dies")["start"] <= 8
    await until(lambda: not any(map(is_alive, peers.pids("dies"))))


async def test_a_call_is_run_again_only_if_its_tool_allows_it(peers: Peers) -> None:
    """MNT-29: once, and only with readOnlyHint or idempotentHint."""
    server = server_of([Wanted("db", peers.command("dies"))])
    async with clients(server) as [wire]:
        await names(wire)
        assert (await wire.call("once"))["isError"]
        assert peers.said("dies")["once"] == 1
        upstream = mounts_of(server).by_name["db"]
        upstream.forgive()
        assert (await wire.call("safe"))["isError"]
        assert peers.said("dies")["safe"] == 1, "the second try waits for the pause"


async def test_clients_of_an_older_server_share_no_instance(peers: Peers) -> None:
    """MNT-25: what one client sets is not there for another; its process ends with the client."""
    server = Server("front")
    server.mount("up", peers.command("good"))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.aclose)
        async with memory_wire(server) as first:
            await first.open(OLD)
            other = await stack.enter_async_context(memory_wire(server))
            await other.open(OLD)
            await names(first)
            assert [await text(first, "up_count"), await text(first, "up_count")] == ["1", "2"]
            assert await text(other, "up_count") == "1"
            assert mounts_of(server).mounts()[0].instances == 2
        await until(lambda: sum(map(is_alive, peers.pids("good"))) == 1)
        assert await text(other, "up_count") == "2"


@pytest.mark.parametrize(("instances", "expected"), [("shared", ["1", "2"]), ("call", ["1", "1"])])
async def test_instances_can_be_shared_or_made_for_each_call(instances: Any, expected: list[str], peers: Peers) -> None:
    server = Server("front")
    server.mount("up", peers.command("good"), instances=instances)
    async with clients(server, 2) as [first, other]:
        await names(first)
        assert [await text(first, "up_count"), await text(other, "up_count")] == expected


async def test_no_list_is_requested_for_a_call(peers: Peers) -> None:
    server = Server("front")
    server.mount("up", peers.command("good"))
    async with clients(server) as [wire]:
        for _ in range(5):
            await names(wire)
            await text(wire, "up_count")
        assert peers.said("good")["list"] == 1


async def test_a_warm_start_needs_no_server(peers: Peers, tmp_path: Path) -> None:
    """MNT-27: initialize and all lists are answered from the last start, with every mounted server down."""
    for is_warm in (False, True):
        server = server_of([Wanted("up", peers.command("good"))])
        async with AsyncExitStack() as stack:
            stack.push_async_callback(server.aclose)
            wire = await stack.enter_async_context(memory_wire(server))
            assert (await wire.open(OLD))["serverInfo"]["name"] == "peer"
            assert await names(wire) == ["count", "once", "safe"]
            for method in ("resources/list", "resources/templates/list", "prompts/list"):
                await wire.result(method)
        assert peers.said("good")["start"] == 1, is_warm
    (kept,) = (tmp_path / "cache" / "mcpd" / "mounts").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600


async def test_a_protocol_leaves_nothing_to_mounts_that_speak_another(peers: Peers, tmp_path: Path) -> None:
    """MNT-27: a server has other lists, and perhaps no sessions, in another protocol."""
    for starts, options in ((1, {"protocol": "legacy"}), (2, {}), (2, {"protocol": "legacy"}), (2, {})):
        server = Server("front")
        server.mount("up", peers.command("good"), **options)  # type: ignore[arg-type]
        async with clients(server) as [wire]:
            assert await names(wire) == ["up_count", "up_once", "up_safe"]
        assert peers.said("good")["start"] == starts
    assert len(list((tmp_path / "cache" / "mcpd" / "mounts").iterdir())) == 2


async def test_a_change_is_told_once_and_only_if_the_list_differs(peers: Peers) -> None:
    """MNT-28: a notification without a change is not passed on."""
    server = Server("front")
    server.mount("up", peers.command("good"))
    async with clients(server) as [wire]:
        await names(wire)
        await wire.request("tools/call", {"name": "up_same", "arguments": {}})  # unknown here
        upstream = mounts_of(server).by_name["up"]
        connection = await upstream.connection(None)
        await connection.client.request("tools/call", {"name": "same"}, timeout=10)
        await until(lambda: peers.said("good")["list"] >= 2)
        await wire.quiet()
        assert wire.heard == []
        await connection.client.request("tools/call", {"name": "change"}, timeout=10)
        assert (await wire.receive())["method"] == "notifications/tools/list_changed"
        assert await names(wire) == ["up_count", "up_once", "up_safe", "up_added"]
        assert wire.heard == []


async def test_endless_lists_are_bounded(peers: Peers, caplog: pytest.LogCaptureFixture) -> None:
    """MNT-30: pages without end are named in the log; the server can still be called."""
    server = Server("front")
    server.mount("up", peers.command("pages"))
    async with clients(server) as [wire]:
        with caplog.at_level(logging.WARNING, "mcpd"):
            assert await names(wire) == []
        assert "more than 10000 entries" in caplog.text


async def test_invalid_entries_are_left_out(peers: Peers, caplog: pytest.LogCaptureFixture) -> None:
    """MNT-07: the rest is served, in a single mount, too."""
    for server in (Server("front"), server_of([Wanted("up", peers.command("invalid"))])):
        if server.name == "front":
            server.mount("up", peers.command("invalid"), prefix="")
        async with clients(server) as [wire]:
            assert await names(wire) == ["count", "once", "safe"]
    assert "mount up: an entry of tools/list is left out: inputSchema: expected" in caplog.text


async def test_a_reload_changes_one_mount_only(peers: Peers, tmp_path: Path) -> None:
    """MNT-32: mounts that stay the same keep their instances; the others come and go, and clients hear of it."""
    file = tmp_path / "mcpd.toml"

    def write(**mounts: str) -> None:
        target = peers.command("good")
        tables = [
            f"[mounts.{name}]\ncommand = {json.dumps(list(target.command))}\nenv = {{ {more} }}\n"
            for name, more in mounts.items()
        ]
        file.write_text("\n".join(tables))

    path = f'PYTHONPATH = "{(peers.command("good").env or {})["PYTHONPATH"]}"'
    write(one=path, two=path)
    folder = Folder(folder_at(str(tmp_path)))
    watched = WatchedFolder(folder)
    async with clients(folder.server) as [wire]:
        assert len(await names(wire)) == 6
        assert await text(wire, "one_count") == "1"
        write(one=path, three=path)
        await asyncio.to_thread(watched.refresh, {str(file)})
        assert {name.partition("_")[0] for name in await names(wire)} == {"one", "three"}
        assert await text(wire, "one_count") == "2"
        assert await text(wire, "three_count") == "1"
        write(one=f'{path}, MORE = "1"', three=path)
        await asyncio.to_thread(watched.refresh, {str(file)})
        assert await text(wire, "one_count") == "1"
        assert await text(wire, "three_count") == "2"


async def test_the_end_waits_for_mounts_that_were_removed(peers: Peers) -> None:
    """Their processes end before the server has ended."""
    server = Server("front")
    server.mount("one", peers.command("good"))
    async with clients(server) as [wire]:
        assert await text(wire, "one_count") == "1"
        mounts_of(server).remove("one")
    assert not any(map(is_alive, peers.pids("good")))


def write_servers(path: Path, **servers: Any) -> str:
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


def test_a_file_names_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSN", "secret-dsn")
    monkeypatch.setenv("MCPD_INPUT_API_KEY", "secret-key")
    file = write_servers(
        tmp_path / "mcp.json",
        My_DB={"command": "db", "args": ["${DSN}", "${workspaceFolder}/x"], "env": {"KEY": "${input:api-key}"}},
        web={
            "type": "http",
            "serverUrl": "https://x.example/mcp",
            "headers": {"A": "{env:DSN}"},
            "includeTools": ["a"],
        },
        off={"command": "off", "disabled": True},
        broken={"command": "x", "args": ["${NOT_SET}"]},
    )
    found = {each.name: each for each in servers_in(file)}
    assert list(found) == ["my-db", "web", "broken"]
    target: Any = found["my-db"].target
    assert target.command == ("db", "secret-dsn", f"{tmp_path}/x")
    assert (target.env, target.cwd) == ({"KEY": "secret-key"}, str(tmp_path))
    assert found["my-db"].secrets == {"secret-dsn", "secret-key"}
    assert found["web"].settings.allow == ("a",)
    assert found["broken"].problem.endswith("the variable NOT_SET is not set; set it, or write ${NOT_SET:-}")


def test_a_file_that_was_not_named_starts_nothing(tmp_path: Path) -> None:
    """MNT-40: `.mcp.json` and the like in the folder are not read."""
    (tmp_path / "resources").mkdir()
    for name in (".mcp.json", "mcp.json", "claude_desktop_config.json"):
        write_servers(tmp_path / name, bad={"command": "bad"})
    assert "mcpd/mounts" not in Folder(folder_at(str(tmp_path))).server.extensions


def test_two_servers_of_a_file_with_one_name_are_an_error(tmp_path: Path) -> None:
    file = write_servers(tmp_path / "mcp.json", **{"my db": {"command": "a"}, "my_db": {"command": "b"}})
    with pytest.raises(ConfigurationError, match="would both be called my-db"):
        servers_in(file)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["npx", "-y", "@modelcontextprotocol/server-everything@1.2"], "server-everything"),
        (["python3.11", "-m", "some_server"], "some-server"),
        (["uvx", "mcp-server-time"], "mcp-server-time"),
        (["node", "/srv/index.js"], "index"),
        (["docker", "run", "-i", "image"], "image"),
    ],
)
def test_a_command_gives_the_name(command: list[str], name: str) -> None:
    """MNT-03: names are decided from the configuration alone."""
    assert [each.name for each in wanted_by([], command)] == [name]


def test_the_same_url_twice_gets_a_number() -> None:
    found = wanted_by(["https://x.example/a", "https://x.example/b"])
    assert [each.name for each in found] == ["x-example", "x-example-2"]


RENAMED: Callable[[Any], list[str]] = lambda tools: [each["name"] for each in tools]  # noqa: E731


async def test_settings_hold_for_lists_and_calls(peers: Peers) -> None:
    """MNT-06: allow, deny, rename, describe and fixed arguments; a denied name is an unknown one."""
    up = Server("up")

    @up.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @up.tool
    async def secret() -> str:
        return "x"

    @up.prompt
    def secret_prompt() -> str:
        return "x"

    server = Server("front")
    server.mount(
        "up", up, deny=["sec*"], rename={"add": "plus"}, describe={"add": "Adds one."}, arguments={"add": {"b": 1}}
    )
    async with clients(server) as [wire]:
        (tool,) = (await wire.result("tools/list"))["tools"]
        assert (tool["name"], tool["description"]) == ("up_plus", "Adds one.")
        assert list(tool["inputSchema"]["properties"]) == ["a"]
        assert tool["inputSchema"]["required"] == ["a"]
        assert (await wire.result("prompts/list"))["prompts"] == []
        assert await wire.text("up_plus", a=2) == "3"
        assert await wire.text("up_plus", a=2, b=5) == "3"
        unknown = (await wire.error("tools/call", {"name": "up_nothing"}))["message"]
        for name in ("up_secret", "up_add"):
            error = await wire.error("tools/call", {"name": name})
            assert error["message"] == unknown.replace("up_nothing", name)


async def test_the_first_of_two_equal_names_wins(caplog: pytest.LogCaptureFixture) -> None:
    one, two = Server("one"), Server("two")
    for up in (one, two):

        @up.tool
        async def who(of: str = up.name) -> str:
            return of

    server = Server("front")
    server.mount("one", one, prefix="")
    server.mount("two", two, prefix="")
    async with clients(server) as [wire]:
        assert await names(wire) == ["who"]
        assert await wire.text("who") == "one"
    assert "mount two" in caplog.text


async def test_mounts_in_a_circle_end() -> None:
    """MNT-31: two servers that mount each other list their tools once around, and calls are refused after 8 hops."""
    one, two = Server("one"), Server("two")
    for server, other in ((one, two), (two, one)):

        @server.tool
        async def who(of: str = server.name) -> str:
            return of

        server.mount("up", other)
    async with clients(one) as [wire]:
        found = await names(wire)
        assert found[:3] == ["who", "up_who", "up_up_who"][: len(found)]
        assert await wire.text("up_who") == "two"
        result = await wire.request("tools/call", {"name": "up_" * 12 + "who"})
        assert "error" in result or result["result"]["isError"]
    await two.aclose()


async def test_lists_have_the_order_of_the_mounts(peers: Peers) -> None:
    """MNT-03: whichever server answers first; an earlier mount keeps a name that a later one has, too."""
    fast = Server("fast")

    @fast.tool
    async def count() -> str:
        return "fast"

    server = Server("front")
    server.mount("slow", peers.command("good"), prefix="")
    server.mount("fast", fast, prefix="")
    server.mount("last", fast)
    async with clients(server) as [wire]:
        assert await names(wire) == ["count", "once", "safe", "last_count"]
        assert await text(wire, "count") == "1"
        await wire.quiet()
        assert wire.heard == []


async def test_a_program_that_is_reloaded_keeps_its_mounts(peers: Peers) -> None:
    """MNT-32: those of the command line, and those that the program mounts as before."""

    def make(tool: str) -> Server:
        server = Server("front")
        server.add_tool(lambda: tool, name=tool)
        server.mount("own", peers.command("good"))
        return server

    server = make("before")
    mounts_of(server).update("command line", [Wanted("line", peers.command("invalid"))])
    async with clients(server) as [wire]:
        assert len(await names(wire)) == 7
        assert [await text(wire, "own_count"), await text(wire, "line_count")] == ["1", "1"]
        await asyncio.to_thread(take_over, server, make("after"))
        listed = await names(wire)
        assert (listed[0], len(listed)) == ("after", 7)
        assert [await text(wire, "own_count"), await text(wire, "line_count")] == ["2", "2"]
        assert peers.said("good")["start"] == peers.said("invalid")["start"] == 1


async def test_many_clients_over_http_share_nothing_and_leave_nothing(peers: Peers) -> None:
    """MNT-24, MNT-25: more clients than instances; the longest idle instance goes, and all go with their clients."""
    server = Server("front")
    server.mount("up", peers.command("good"))
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(serving(server))
        stack.push_async_callback(server.aclose)
        async with AsyncExitStack() as open_clients:
            for _ in range(40):
                client = await open_clients.enter_async_context(Client(port.listener.url, version=OLD))
                result = await client.call_tool("up_count")
                assert result.content == [TextContent("1")]
            assert mounts_of(server).mounts()[0].instances == 32
        await until(lambda: mounts_of(server).mounts()[0].instances == 0)
    await until(lambda: not any(map(is_alive, peers.pids("good"))))
