"""A client whose connection ends by itself: what the next request does, what is repeated, what is asked for again."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.clock import Clock, until
from support.wires import each_version

from mcpd import CacheHint, Callbacks, Client, Context, Server
from mcpd.client import eras, link
from mcpd.client.target import resolve
from mcpd.errors import CannotConnect, ConnectionLost, McpdError, RemoteError, RequestTimeout, SessionLost
from mcpd.protocol.types.base import LogMessageParams
from mcpd.transports.websocket.server import WebSocketListener

MODERN = "2026-07-28"
LEGACY = "2025-11-25"


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eras, "_legacy", {})
    monkeypatch.setattr(link, "FIRST_PAUSE", 0.01)


def make_server(released: asyncio.Event | None = None) -> Server:
    server = Server("there")
    released = released or asyncio.Event()

    @server.tool(annotations={"readOnlyHint": True})
    def look() -> str:
        return "seen"

    @server.tool(annotations={"readOnlyHint": False, "idempotentHint": True})
    def put() -> str:
        return "put"

    @server.tool
    def add() -> str:
        return "added"

    @server.tool
    async def forever() -> str:
        await released.wait()
        return "never"

    server.add_text("notes://a", "x", name="a")
    return server


class Line:
    """A server whose connection is cut when the test says so; `frames` is what each connection was sent."""

    def __init__(self, server: Server | None = None) -> None:
        self.released = asyncio.Event()
        self.server = server or make_server(self.released)
        self.channels: list[Any] = []
        self.frames: list[list[dict[str, Any]]] = []
        self.fails: Callable[[dict[str, Any]], McpdError | None] = lambda message: None
        """What becomes of a message instead of being sent."""
        self.is_down = 0

    def connect_memory(self) -> Any:
        if self.is_down:
            self.is_down -= 1
            raise CannotConnect("there: cannot connect")
        channel = self.server.connect_memory()
        frames: list[dict[str, Any]] = []
        self.channels.append(channel)
        self.frames.append(frames)
        send = channel.send

        def watched(frame: bytes, *more: Any) -> None:
            message = json.loads(frame)
            frames.append(message)
            error = self.fails(message)
            if error is None:
                send(frame, *more)
            elif isinstance(error, SessionLost):
                channel._receiver.failed(message["id"], error)
                channel._receiver.closed(error)
            else:
                channel._receiver.failed(message["id"], error)

        channel.send = watched
        return channel

    def cut(self) -> None:
        channel = self.channels[-1]
        channel.other._receiver.abort()  # as who serves a transport ends what its client left
        channel._receiver.closed(ConnectionLost("there: the connection was cut"))

    def methods(self, number: int = -1) -> list[str]:
        return [message["method"] for message in self.frames[number] if "method" in message]


def once(method: str, error: McpdError) -> Callable[[dict[str, Any]], McpdError | None]:
    left = [error]

    def fails(message: dict[str, Any]) -> McpdError | None:
        is_it = message.get("method") == method
        return left.pop() if is_it and left else None

    return fails


# -------------------------------------------------------------------------------------- a new connection


@each_version
async def test_the_next_request_opens_a_new_connection(version: str, caplog: pytest.LogCaptureFixture) -> None:
    line = Line()
    async with Client(line, version=version) as client:
        waiting = asyncio.create_task(client.call_tool("forever"))
        await until(lambda: line.methods()[-1] == "tools/call")
        line.cut()
        with pytest.raises(ConnectionLost, match="there: the connection was cut"):
            await waiting
        assert await client.call("add") == "added"
        assert client.version == version
        assert len(line.channels) == 2
        line.released.set()
    assert "reconnecting to the server after the connection was lost: there: the connection was cut" in caplog.text


async def test_who_comes_together_gets_one_connection() -> None:
    line = Line()
    async with Client(line) as client:
        line.cut()
        assert await asyncio.gather(*(client.call("add") for _ in range(20))) == ["added"] * 20
        assert len(line.channels) == 2


async def test_without_reconnect_the_error_stays() -> None:
    line = Line()
    async with Client(line, reconnect=False) as client:
        line.cut()
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="was cut"):
                await client.ping()
        with pytest.raises(ConnectionLost, match="was cut"):
            await client.subscribe("notes://a")
    assert len(line.channels) == 1


async def test_an_open_channel_is_opened_by_nobody_else() -> None:
    line = Line()
    async with Client(line.connect_memory()) as client:
        line.cut()
        with pytest.raises(ConnectionLost):
            await client.ping()


@pytest.mark.medium
async def test_tries_are_bounded_and_pauses_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "FIRST_PAUSE", 0.1)
    line, pauses = Line(), []
    sleep = asyncio.sleep

    async def recorded(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    async with Client(line) as client:
        await Clock().advance(link.LIVED_SECONDS + 1)
        line.cut()
        line.is_down = 100
        monkeypatch.setattr(link.asyncio, "sleep", recorded)
        for tries in (link.TRIES, 2 * link.TRIES):
            with pytest.raises(CannotConnect, match="cannot connect"):
                await client.ping()
            assert 100 - line.is_down == tries
        monkeypatch.undo()
        line.is_down = 0
        await client.ping()
    assert pauses[:3] == [0.1, 0.2, 0.4]
    assert max(pauses) == link.LONGEST_PAUSE
    assert sorted(pauses) == pauses


async def test_a_request_waits_no_longer_than_its_time_out() -> None:
    line = Line()
    async with Client(line) as client:
        line.cut()
        line.is_down = 10**6
        client._failures = 20
        with pytest.raises(RequestTimeout, match=r"could not be reached again within 0\.05 s"):
            await client.call_tool("add", timeout=0.05)


async def test_closing_while_it_is_opened_anew() -> None:
    line = Line()
    client = Client(line)
    await client.open()
    line.cut()
    client._failures = 20
    asking = asyncio.create_task(client.ping())
    await until(client._reconnecting.locked)
    await client.aclose()
    asking.cancel()
    await asyncio.wait([asking])
    assert len(line.channels) == 1
    with pytest.raises(ConnectionLost):
        await client.ping()
    assert not client._tasks


# --------------------------------------------------------------------------------- what is asked for again


@each_version
async def test_subscriptions_and_the_log_level_are_renewed(version: str) -> None:
    updated, lists, logged = asyncio.Queue[str](), asyncio.Queue[str](), asyncio.Queue[LogMessageParams]()
    line = Line()

    line.server.tool(speaking, name="says")
    callbacks = Callbacks(resource_updated=updated.put_nowait, list_changed=lists.put_nowait, log=logged.put_nowait)
    async with Client(line, callbacks, version=version) as client:
        await client.subscribe("notes://a")
        await client.set_log_level("debug")
        line.cut()

        # It listens, so that nobody has to ask for a new connection; what was missed may be anything.
        assert {await lists.get(), await lists.get()} == {"tools", "resources"}
        assert await updated.get() == "notes://a"
        line.server.resource_updated("notes://a")
        assert await updated.get() == "notes://a"
        line.server.add_text("notes://b", "x", name="b")
        assert await lists.get() == "resources"
        await client.call_tool("says")
        assert (await logged.get()).data == "spoken"
        assert len(line.channels) == 2

        await client.unsubscribe("notes://a")
        line.cut()
        await until(lambda: len(line.channels) == 3)
        await client.ping()
        assert updated.empty()


async def test_a_subscription_that_is_cut_alone_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As over HTTP, where it has a connection of its own."""
    monkeypatch.setattr("mcpd.client.eras.AGAIN_SECONDS", 0.01)
    lists, line = asyncio.Queue[str](), Line()
    async with Client(line, Callbacks(list_changed=lists.put_nowait), version=MODERN) as client:
        for _ in range(2):
            asked = [message for message in line.frames[0] if message.get("method") == "subscriptions/listen"][-1]
            line.channels[0]._receiver.failed(asked["id"], ConnectionLost("there: the stream was cut"))
            assert [await lists.get(), await lists.get()] == ["tools", "resources"]
            await client.ping()
        line.server.add_text("notes://b", "x", name="b")
        assert await lists.get() == "resources"
    assert len(line.channels) == 1
    for connection in list(line.server._connections._connections):
        connection.abort()


async def speaking(ctx: Context) -> None:
    await ctx.debug("spoken")


async def test_what_was_kept_is_forgotten() -> None:

    server = Server("there", cache=CacheHint(3600))
    server.tool(lambda: "x", name="one")
    line = Line(server)
    async with Client(line, version=MODERN) as client:
        await client.list_tools()
        await client.list_tools()
        assert line.methods().count("tools/list") == 1
        line.cut()
        line.server.tool(lambda: "x", name="two")
        assert {tool.name for tool in await client.list_tools()} >= {"one"}
        await client.ping()
        assert {tool.name for tool in await client.list_tools()} == {"one", "two"}


# ------------------------------------------------------------------------------------- what is repeated


@pytest.mark.medium
async def test_a_lost_session_is_replaced_and_what_is_harmless_repeated() -> None:
    line = Line()
    async with Client(line, version=LEGACY) as client:
        await client.list_tools()
        for method, ask in [
            ("tools/list", client.list_tools),
            ("resources/read", lambda: client.read_resource("notes://a")),
            ("ping", client.ping),
            ("tools/call", lambda: client.call("look")),
            ("tools/call", lambda: client.call("put")),
        ]:
            before = len(line.channels)
            line.fails = once(method, SessionLost("there: 404"))
            await ask()  # type: ignore[operator]
            assert len(line.channels) == before + 1
            assert line.methods()[0] == "initialize"

        line.fails = once("tools/call", SessionLost("there: 404"))
        before = len(line.channels)
        with pytest.raises(SessionLost, match="404"):
            await client.call("add")
        assert await client.call("add") == "added"
        assert len(line.channels) == before + 1


async def test_a_server_that_loses_every_session_is_given_up() -> None:
    line = Line()
    async with Client(line, version=LEGACY) as client:
        line.fails = lambda message: SessionLost("there: 404") if message.get("method") == "tools/list" else None
        with pytest.raises(SessionLost):
            await client.list_tools()
        assert len(line.channels) == 1 + link.TRIES


async def test_what_never_left_is_sent_again() -> None:
    line = Line()
    async with Client(line, version=LEGACY) as client:
        line.fails = once("tools/call", CannotConnect("there: cannot connect"))
        assert await client.call("add") == "added"
        assert line.methods().count("tools/call") == 2
        line.fails = lambda message: CannotConnect("there: cannot connect")
        with pytest.raises(CannotConnect):
            await client.call("add")
        assert len(line.channels) == 1
    line.fails = lambda message: CannotConnect("there: cannot connect")
    with pytest.raises(CannotConnect):
        await Client(line, version=LEGACY).open()


# ------------------------------------------------------------------------------------ child processes


CHILD = """
import json, os, sys
from pathlib import Path
count = Path(sys.argv[1])
count.write_text(count.read_text() + "x" if count.exists() else "x")
info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "n", "version": "1"}}
for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    with open(sys.argv[1] + ".heard", "a") as heard:
        heard.write(method + "\\n")
    if "id" not in message:
        continue
    if method == sys.argv[2]:
        sys.exit("it broke")
    if method == "initialize":
        answer = {"result": info}
    elif method == "ping":
        answer = {"result": {}}
    else:
        answer = {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


def child(tmp_path: Path, breaks_at: str) -> list[str]:
    return [sys.executable, "-S", "-c", CHILD, str(tmp_path / "count"), breaks_at]


def starts(tmp_path: Path) -> int:
    return len((tmp_path / "count").read_text())


async def test_a_crashed_child_is_started_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Client(child(tmp_path, "tools/call")) as client:
        assert client.version == LEGACY
        for count in (1, 2):
            await client.ping()
            assert starts(tmp_path) == count
            with pytest.raises(ConnectionLost, match="has ended with exit code 1; stderr: it broke"):
                await client.call_tool("any")
    assert "reconnecting to the server" in caplog.text
    assert "it broke" in caplog.text
    # Once it is known to be a legacy server it is not probed again.
    assert (tmp_path / "count.heard").read_text().split().count("server/discover") == 1


async def test_an_era_is_remembered_for_other_clients(tmp_path: Path) -> None:
    command = child(tmp_path, "never")
    for _ in range(2):
        async with Client(command) as client:
            await client.ping()
    heard = (tmp_path / "count.heard").read_text().split()
    assert heard.count("server/discover") == 1
    assert heard.count("initialize") == 2


@pytest.mark.medium
async def test_a_server_that_has_become_modern_is_probed_again() -> None:
    command = [sys.executable, "-m", "mcpd", "serve", "--stdio"]
    target = resolve(command)
    eras.remember_era(target, supports_discover=False)  # type: ignore[arg-type]
    async with Client(command) as client:
        assert client.version == LEGACY  # it speaks both
    line = Line()
    async with Client(line) as client:
        assert client.version == MODERN
        client._is_old = True
        line.fails = once("initialize", RemoteError(-32601, "no initialize any more"))
        line.cut()
        await client.ping()
        assert client.version == MODERN
    assert [line.methods(n)[0] for n in range(3)] == ["server/discover", "initialize", "server/discover"]


async def test_a_server_that_ends_when_it_is_probed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcpd.client")
    async with Client(child(tmp_path, "server/discover")) as client:
        assert client.version == LEGACY
        await client.ping()
    assert "the server ended after the version probe" in caplog.text
    assert starts(tmp_path) == 2


async def test_a_server_that_always_ends_is_told_as_it_is(tmp_path: Path) -> None:
    """One that ends before it has read a word was not ended by the probe: it is not started a second time."""
    note = f"open({str(tmp_path / 'starts')!r}, 'a').write('x'); "
    for read, count in (("", 1), ("sys.stdin.readline(); ", 2)):
        command = [sys.executable, "-S", "-c", f"import sys; {note}{read}sys.exit('no licence')"]
        with pytest.raises(ConnectionLost, match="has ended with exit code 1; stderr: no licence"):
            await Client(command).open()
        assert len((tmp_path / "starts").read_text()) == count
        (tmp_path / "starts").unlink()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eras, "_MAX_ENTRIES", 3)
    targets: list[Any] = [resolve([str(n)]) for n in range(5)]
    for target in targets:
        eras.remember_era(target, supports_discover=False)
    assert [eras.is_known_legacy(target) for target in targets] == [False, False, True, True, True]
    eras.remember_era(targets[-1], supports_discover=True)
    assert not eras.is_known_legacy(targets[-1])


# ------------------------------------------------------------------------------------------ WebSocket


@pytest.mark.medium
async def test_a_websocket_server_that_goes_and_comes_back() -> None:
    released = asyncio.Event()
    server = make_server(released)
    listener = WebSocketListener("127.0.0.1:0")
    await listener.start(server.connect)
    address = listener.url.removeprefix("ws://").removesuffix("/mcp")
    async with Client(listener.url) as client:
        waiting = asyncio.create_task(client.call_tool("forever"))
        await client.ping()
        await listener.aclose()
        released.set()
        with pytest.raises(ConnectionLost, match=r"ws://.*: the server closed the WebSocket: 1001 \(going away\)"):
            await waiting
        with pytest.raises(CannotConnect, match="does the server run"):
            await client.ping()

        again = WebSocketListener(address)
        await again.start(server.connect)
        assert await client.call("add") == "added"
        await client.aclose()
        await again.aclose()


@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_server_that_is_not_there_is_a_short_traceback(scheme: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(CannotConnect) as caught:
            async with Client(f"{scheme}://127.0.0.1:{unused.getsockname()[1]}/mcp"):
                pass
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    ours = [entry for entry in caught.traceback if "/mcpd/" in str(entry.path) and "/tests/" not in str(entry.path)]
    assert len(ours) <= 2  # `__aenter__` and `open`
