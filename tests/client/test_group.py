"""`ClientGroup`: lists of several servers as one, calls that find theirs, servers that go and come again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import Child
from support.clock import until

from mcpd import Callbacks, Client, ClientGroup, Context, ElicitFormParams, ElicitResult, McpdError, Server, ToolError
from mcpd.client import group as groups
from mcpd.client.group import Collision
from mcpd.errors import ConfigurationError, ConnectionLost, LocalProtocolError, RemoteError
from mcpd.protocol.types.interaction import PromptReference, ResourceTemplateReference
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.server.registry.content import embedded, link

each_version = pytest.mark.parametrize("version", SUPPORTED)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(groups, "LONGEST_RETRY_SECONDS", 0.02)


def make_server(name: str) -> Server:
    server = Server(name)

    @server.tool
    async def who(suffix: str = "") -> str:
        """Say who serves."""
        return name + suffix

    @server.tool
    def fails() -> None:
        raise ToolError(f"{name} cannot")

    @server.tool
    async def asks(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    @server.tool
    def links() -> list[Any]:
        return [link(f"notes://{name}", "n"), embedded(f"notes://{name}", "text")]

    server.add_text("notes://all", f"notes of {name}", name="all")
    server.add_text("https://same.example/", f"page of {name}", name="page")

    @server.resource("notes://{topic}/long")
    def long(topic: str) -> str:
        return f"{name} on {topic}"

    @server.prompt
    def greet(whom: str) -> str:
        return f"{name} greets {whom}"

    @server.completion("whom", prompt="greet")
    def people(typed: str) -> list[str]:
        return [f"{typed} of {name}"]

    @server.completion("topic", template="notes://{topic}/long")
    def topics(typed: str) -> list[str]:
        return [f"topic of {name}"]

    return server


class Flaky:
    """A server that can be down, and whose connection can be cut."""

    def __init__(self, server: Server, *, is_down: bool = False) -> None:
        self.server = server
        self.is_down = is_down
        self.tries = 0
        self.channel: Any = None

    def connect_memory(self) -> Any:
        self.tries += 1
        if self.is_down:
            raise ConfigurationError("it is down")
        self.channel = self.server.connect_memory()
        return self.channel

    def cut(self) -> None:
        self.channel._receiver.closed(None)


@pytest.fixture
def servers() -> dict[str, Server]:
    return {name: make_server(name) for name in ("a", "b")}


@each_version
async def test_lists_are_one_and_calls_find_their_server(servers: dict[str, Server], version: str) -> None:
    async with ClientGroup(servers, version=version) as group:
        assert list(group.clients) == ["a", "b"]
        names = [tool.name for tool in await group.list_tools()]
        assert names == ["a_who", "a_fails", "a_asks", "a_links", "b_who", "b_fails", "b_asks", "b_links"]
        assert await group.call("a_who", suffix="!") == "a!"
        assert await group.call("b_who", {"suffix": "?"}, returns=str) == "b?"
        assert (await group.call_tool("b_fails")).is_error
        with pytest.raises(ToolError, match="a cannot"):
            await group.call("a_fails")

        assert [prompt.name for prompt in await group.list_prompts()] == ["a_greet", "b_greet"]
        (message,) = (await group.get_prompt("b_greet", {"whom": "Ada"})).messages
        assert message.content.text == "b greets Ada"  # type: ignore[union-attr]
        assert group.client("b").server_info is not None
        await group.set_log_level("error")
        for wrong in ("c_who", "who", ""):
            with pytest.raises(ConfigurationError, match=f"no server of this group has a tool '{wrong}'"):
                await group.call(wrong)
        with pytest.raises(RemoteError):
            await group.get_prompt("a_none")
        with pytest.raises(ConfigurationError, match="available: a, b"):
            group.client("c")
        with pytest.raises(LocalProtocolError, match="opened only once"):
            await group.open()


@each_version
async def test_every_uri_that_is_given_out_can_be_given_back(servers: dict[str, Server], version: str) -> None:
    async with ClientGroup(servers, version=version) as group:
        uris = [resource.uri for resource in await group.list_resources()]
        assert uris == ["a+notes://all", "https://same.example/", "b+notes://all"]
        assert group.collisions == [Collision("resource", "https://same.example/", "a", "b")]
        read = [(await group.read_resource(uri)).contents[0] for uri in uris]
        assert [(entry.uri, entry.text) for entry in read] == [  # type: ignore[union-attr]
            ("a+notes://all", "notes of a"),
            ("https://same.example/", "page of a"),
            ("b+notes://all", "notes of b"),
        ]
        # What is hidden can be had by the name of its server.
        hidden = (await group.read_resource("b+https://same.example/")).contents[0]
        assert hidden.text == "page of b"  # type: ignore[union-attr]

        templates = [template.uri_template for template in await group.list_resource_templates()]
        assert templates == ["a+notes://{topic}/long", "b+notes://{topic}/long"]
        assert (await group.read_resource("b+notes://x/long")).contents[0].text == "b on x"  # type: ignore[union-attr]
        with pytest.raises(ConfigurationError, match="no server of this group has a resource 'notes://all'"):
            await group.read_resource("notes://all")

        text = msgspec.json.encode((await group.call_tool("b_links")).content).decode()
        # Before 2025-06-18 there are no links.
        assert text.count('"uri":"b+notes://b"') == (2 if version >= "2025-06-18" else text.count('"uri"')), text


async def test_completions_find_their_server(servers: dict[str, Server]) -> None:
    async with ClientGroup(servers) as group:
        found = await group.complete(PromptReference(name="b_greet"), "whom", "A")
        assert found.completion.values == ["A of b"]
        found = await group.complete(ResourceTemplateReference(uri="a+notes://{topic}/long"), "topic", "")
        assert found.completion.values == ["topic of a"]


async def test_pages_keep_their_scheme(servers: dict[str, Server]) -> None:
    server, page = servers["a"], "<!doctype html><html><body>hi</body></html>"

    @server.tool(ui=server.app("clock", page))
    def clock() -> str:
        return "noon"

    async with ClientGroup({"one": server, "two": servers["b"]}, extensions=APPS) as group:
        (tool,) = [tool for tool in await group.list_tools() if tool.name == "one_clock"]
        assert tool.meta is not None
        uri = tool.meta["ui"]["resourceUri"]
        assert uri.startswith("ui://one/a/clock")
        assert "hi</body>" in (await group.read_resource(uri)).contents[0].text  # type: ignore[union-attr]


APPS = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}


async def test_without_prefixes_the_first_counts_and_the_others_are_told(
    servers: dict[str, Server], caplog: pytest.LogCaptureFixture
) -> None:
    servers["b"].add_tool(lambda: "only b", name="own")
    async with ClientGroup(servers, prefixes=False) as group:
        assert await group.call("own") == "only b"
        names = [tool.name for tool in await group.list_tools()]
        assert names == ["who", "fails", "asks", "links", "own"]
        assert Collision("tool", "who", "a", "b") in group.collisions
        assert "tool who of the server b is hidden by an entry of a with the same name" in caplog.text
        assert await group.call("who") == "a"
        assert await group.client("b").call("who") == "b"
        assert (await group.read_resource("notes://x/long")).contents[0].text == "a on x"  # type: ignore[union-attr]
        assert [one.name for one in await group.list_prompts()] == ["greet"]
        with pytest.raises(ConfigurationError, match="no server of this group has a tool 'none'; servers: a, b"):
            await group.call("none")


async def test_a_server_that_does_not_come_is_reported_and_the_others_serve(
    servers: dict[str, Server], child: Child, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[str, str | None]] = []

    def on_server(name: str, error: McpdError | None) -> None:
        told.append((name, None if error is None else str(error)))

    broken = {
        "missing": ["/nowhere/server"],
        "ends": [child.python, "-c", "raise SystemExit"],
        "nothing": "no-such-target",
    }
    group = ClientGroup({**broken, **servers}, on_server=on_server)
    async with group:
        assert list(group.clients) == ["a", "b"]
        assert set(group.errors) == set(broken)
        assert len(await group.list_tools()) == 8
        assert await group.call("a_who") == "a"
        with pytest.raises(ConnectionLost, match="the server missing is unavailable: .*nowhere"):
            await group.call("missing_tool")
        with pytest.raises(ConnectionLost, match="the server ends is unavailable"):
            group.client("ends")
        await until(lambda: group._members["missing"].tried.is_set())
    assert sorted(name for name, _ in told) == ["a", "b", "ends", "missing", "nothing"], "each is told once"
    assert caplog.text.count("the server missing is unavailable") == 1


async def test_it_comes_back_by_itself(servers: dict[str, Server]) -> None:
    changed: list[str] = []
    told: list[tuple[str, bool]] = []
    flaky = Flaky(servers["b"], is_down=True)
    both = {"a": servers["a"], "b": flaky}
    group = ClientGroup(
        both,
        Callbacks(list_changed=changed.append, resource_updated=changed.append),
        on_server=lambda name, error: told.append((name, error is None)),
    )
    async with group:
        assert list(group.clients) == ["a"]
        await until(lambda: flaky.tries > 3)
        flaky.is_down = False
        await until(lambda: "b" in group.clients)
        await until(lambda: len(changed) == 3)
        assert sorted(changed) == ["prompts", "resources", "tools"]
        assert await group.call("b_who") == "b"
        await group.subscribe("b+notes://all")

        # Cut and down, it is missed without anybody asking for it; up again, what was subscribed to is so still.
        changed.clear()
        flaky.is_down = True
        flaky.cut()
        await until(lambda: "b" in group.errors)
        await until(lambda: len(changed) == 3)
        assert [tool.name for tool in await group.list_tools()][-1] == "a_links"
        flaky.is_down = False
        await until(lambda: "b" in group.clients)
        await until(lambda: len(changed) == 6)
        servers["b"].resource_updated("notes://all")
        await until(lambda: "b+notes://all" in changed)
        await group.unsubscribe("b+notes://all")
    assert [is_there for name, is_there in told if name == "b"] == [False, True, False, True]
    assert told.count(("a", True)) == 1


async def test_changes_of_many_servers_are_told_once_each(servers: dict[str, Server]) -> None:
    changed: list[str] = []

    async def hear(kind: str) -> None:
        changed.append(kind)
        assert len(await group.list_tools()) == 10  # it may ask

    async with ClientGroup(servers, Callbacks(list_changed=hear)) as group:
        for server in servers.values():
            server.add_tool(lambda: "x", name="new")
        await until(lambda: "tools" in changed)
        await until(lambda: not group._notifying)
    assert changed == ["tools"]


async def test_callbacks_can_be_those_of_one_server(servers: dict[str, Server]) -> None:
    asked: list[str] = []

    def callbacks(name: str) -> Callbacks:
        def agree(form: ElicitFormParams) -> ElicitResult:
            asked.append(name)
            return ElicitResult(action="decline")

        return Callbacks(elicit_form=agree)

    async with ClientGroup(servers, callbacks) as group:
        assert await group.call("b_asks") == "decline"
    assert asked == ["b"]


async def test_tools_of_all_servers_are_functions(servers: dict[str, Server]) -> None:
    async with ClientGroup(servers) as group:
        one, other = await group.tool_functions("b_who", "a_fails")
        assert (one.__name__, one.__doc__, await one("!")) == ("b_who", "Say who serves.", "b!")
        with pytest.raises(ToolError, match="a cannot"):
            await other()


async def test_one_that_takes_long_is_not_waited_for(servers: dict[str, Server], child: Child) -> None:
    slow = [child.python, "-c", "import sys; sys.stdin.read()"]
    async with ClientGroup({"slow": slow, **servers}, opening_seconds=0.2) as group:
        assert await group.call("a_who") == "a"
        with pytest.raises(ConnectionLost, match="the server slow is unavailable: it has not connected"):
            await group.call("slow_who")


async def test_a_whole_file_is_a_group(tmp_path: Path, child: Child) -> None:
    (tmp_path / "one.py").write_text(
        'from mcpd import Server\nserver = Server("one")\nserver.add_tool(lambda: "one", name="who")\n',
        encoding="utf-8",
    )
    servers = {
        "My Server": {"command": child.python, "args": ["-m", "mcpd", "serve", "--stdio", str(tmp_path / "one.py")]},
        "off": {"command": "x", "disabled": True},
        "broken": {"nothing": 1},
    }
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    async with ClientGroup(file) as group:
        assert await group.call("my-server_who") == "one"
        assert list(group.clients) == ["my-server"]
        assert "neither command nor url" in str(group.errors["broken"])
        assert group.client("My Server") is group.client("my-server")
    with pytest.raises(ConfigurationError, match="no such file"):
        ClientGroup(tmp_path / "none.json")
    with pytest.raises(ConfigurationError, match="not a configuration file, and none of the hosts"):
        ClientGroup("nowhere")
    file.write_text(json.dumps({"mcpServers": {"off": {"command": "x", "enabled": False}}}), encoding="utf-8")
    with pytest.raises(ConfigurationError, match="all its servers are disabled"):
        ClientGroup(str(file))


def test_names_that_cannot_be_are_refused() -> None:
    server = Server("s")
    for names, problem in (
        (["a b", "a-b"], "'a b' and 'a-b' would both be called a-b"),
        (["__"], "'__' is not a valid name of a server"),
        ([], "a group needs at least one server"),
    ):
        with pytest.raises(ConfigurationError, match=problem):
            ClientGroup(dict.fromkeys(names, server))


async def test_a_list_that_cannot_be_had_is_left_out(
    servers: dict[str, Server], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ClientGroup(servers) as group:

        async def refuse(**_: Any) -> Any:
            raise RemoteError(-32603, "not today")

        monkeypatch.setattr(group.client("a"), "list_tools", refuse)
        assert [tool.name for tool in await group.list_tools()][0] == "b_who"
        assert "the tools of the server a are left out: not today" in caplog.text


async def test_a_channel_that_does_what_none_may_is_one_more_that_does_not_come(servers: dict[str, Server]) -> None:
    class Broken:
        def connect_memory(self) -> Any:
            raise ZeroDivisionError("oh")

    async with ClientGroup({"broken": Broken(), **servers}) as group:
        assert str(group.errors["broken"]) == "ZeroDivisionError: oh"
        assert await group.call("b_who") == "b"


async def test_it_closes_while_a_server_is_opened(child: Child) -> None:
    slow = [child.python, "-c", "import sys; sys.stdin.read()"]
    group = ClientGroup({"slow": slow})
    opening = asyncio.create_task(group.open())
    await until(lambda: bool(group._members))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await group.aclose()


async def test_a_program_hears_why_its_connection_ended() -> None:
    lost: list[str] = []
    flaky = Flaky(make_server("a"))
    client = Client(flaky, reconnect=False)
    client.on_lost = lambda error: lost.append(str(error))
    async with client:
        flaky.cut()
        await until(lambda: bool(lost))
        with pytest.raises(ConnectionLost):
            await client.call("who")
    assert len(lost) == 1
