"""A server object in a file, or in a module, that is edited while clients stay: what is exchanged, what is said."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import time_ns
from typing import Any

import pytest
from conftest import Child
from support.folders import write
from support.wires import LEGACY, MODERN, Wire, memory_wire, process_wire

from mcpd import Client, Server
from mcpd.cli.reloading import ReloadedTarget
from mcpd.cli.target import Watcher, load
from mcpd.server.settings import Options

ONE = """
from mcpd import Client, Server
from helper import NAME
server = Server("one")

@server.tool
def who() -> str:
    return NAME

@server.resource("x://it")
def it() -> str:
    return NAME

@server.prompt
def plan() -> str:
    return "plan"
"""

FILES: dict[str, str | bytes] = {"server.py": ONE, "helper.py": "NAME = 'a'\n"}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Modules of the targets' names are gone before and after a test, and the paths that they were found by."""
    path = list(sys.path)
    _forget()
    yield
    _forget()
    sys.path[:] = path


def _forget() -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in ("server", "helper", "more", "garden", "mcpd_server"):
            del sys.modules[name]


def opened(target: str, **options: Any) -> tuple[Server, ReloadedTarget]:
    made: list[Watcher] = []
    server = load(target, watched=made)
    assert server is not None
    watched = made[0](Options(**options), time_ns())
    assert isinstance(watched, ReloadedTarget)
    return server, watched


def edit(root: Path, watched: ReloadedTarget, **files: str) -> None:
    write(root, {f"{name}.py": text for name, text in files.items()})
    watched.refresh({str(root / f"{name}.py") for name in files})


async def heard(wire: Wire, count: int) -> list[str]:
    found = sorted([(await wire.receive())["method"].removeprefix("notifications/") for _ in range(count)])
    await wire.quiet()
    return found


async def test_what_is_exchanged(tmp_path: Path) -> None:
    server, watched = opened(str(write(tmp_path, FILES) / "server.py"))
    async with memory_wire(server, LEGACY[-1]) as wire:
        await wire.result("resources/subscribe", {"uri": "x://it"})
        assert await wire.text("who") == "a"
        edit(tmp_path, watched, helper="NAME = 'b'\n")
        # What it holds may be another thing now; no list is.
        assert await heard(wire, 1) == ["resources/updated"]
        assert await wire.text("who") == "b"
        watched.refresh(set())
        await wire.quiet()

        more = '\n@server.tool\ndef more() -> str:\n    """More."""\n    return "m"\n'
        edit(tmp_path, watched, server=ONE + more)
        assert await heard(wire, 2) == ["resources/updated", "tools/list_changed"]
        assert await wire.text("more") == "m"
        edit(tmp_path, watched, server=ONE.replace("@server.prompt", "@server.tool").replace("x://it", "x://other"))
        assert await heard(wire, 3) == ["prompts/list_changed", "resources/list_changed", "tools/list_changed"]
        assert (await wire.result("prompts/list"))["prompts"] == []
        assert await wire.text("plan") == "plan"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"server": "def x(:\n"}, "server.py cannot be imported: SyntaxError: invalid syntax (line 1)"),
        ({"helper": "NAME = = 1\n"}, "server.py cannot be imported: SyntaxError: invalid syntax (helper.py, line 1)"),
        ({"server": "x = 1\n"}, "it has no server; make one with server = mcpd.Server"),
        ({"server": "import sys\nsys.exit(3)\n"}, "server.py exited while it was imported (exit code 3)"),
        ({"server": "from mcpd import Server\nServer('x').run(stdio=True)\n"}, "calls run() while it is imported"),
        ({"server": ONE + "from more import nothing\n"}, "no module 'more'"),
        ({"server": "raise KeyboardInterrupt\n"}, "KeyboardInterrupt"),
    ],
)
async def test_what_cannot_be_loaded_keeps_what_it_had(
    tmp_path: Path, broken: dict[str, str], said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server, watched = opened(str(write(tmp_path, FILES) / "server.py"))
    helper = sys.modules["helper"]
    async with memory_wire(server, LEGACY[-1]) as wire:
        edit(tmp_path, watched, **broken)
        assert said in caplog.text
        assert caplog.records[-1].message.endswith("; the previous version stays in use")
        assert await wire.text("who") == "a"
        assert sys.modules["helper"] is helper
        await wire.quiet()
        # A file that it did not have before mends it, too.
        edit(tmp_path, watched, server=ONE, helper="NAME = 'b'\n", more="nothing = 1\n")
        assert await wire.text("who") == "b"
        assert watched._is_broken is False


async def test_an_import_that_never_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcpd.cli.reloading.IMPORT_SECONDS", 0.2)
    server, watched = opened(str(write(tmp_path, FILES) / "server.py"))
    async with memory_wire(server, MODERN) as wire:
        monkeypatch.setattr(sys, "_gate", gate := threading.Event(), raising=False)
        edit(tmp_path, watched, server="import sys\nsys._gate.wait(60)\n")
        assert "its import took more than 0.2 seconds; the previous version stays in use" in caplog.text
        assert await wire.text("who") == "a"
        edit(tmp_path, watched, server=ONE, helper="NAME = 'c'\n")
        assert await wire.text("who") == "c"
        gate.set()
        for thread in threading.enumerate():
            if thread.name == "mcpd-import":
                thread.join(30)
    assert Server.run.__name__ == "run"


LIFE = """
import asyncio
from contextlib import asynccontextmanager
from mcpd import Context, MiddlewareRequest, Server
from helper import NAME

seen = []

@asynccontextmanager
async def lifespan(server):
    seen.append("open")
    yield {"name": "life"}

server = Server("life", lifespan=lifespan, instructions="one")
notes = server.extension("com.example/notes")

@notes.method("com.example/notes/count")
async def count(ctx, params):
    return {"count": NAME}

@server.middleware("tools/call")
async def mark(request: MiddlewareRequest, call_next):
    result = await call_next(request)
    result.meta = {"com.example/by": NAME}
    return result

@server.tool
async def who(ctx: Context) -> str:
    return f"{NAME} {ctx.lifespan['name']} {seen}"

gates = asyncio.Event(), asyncio.Event()

@server.tool
async def slow() -> str:
    gates[0].set()
    await gates[1].wait()
    return NAME
"""


async def test_lifespan_middleware_extensions_and_calls_in_flight(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files: dict[str, str | bytes] = {"server.py": LIFE, "helper.py": "NAME = 'a'\n"}
    server, watched = opened(str(write(tmp_path, files) / "server.py"))
    gates = sys.modules["server"].gates
    offer = {"extensions": {"com.example/notes": {}}}
    async with memory_wire(server, MODERN, capabilities=offer) as wire:
        assert await wire.text("who") == "a life ['open']"
        asked = wire.ask("tools/call", {"name": "slow", "arguments": {}})
        await gates[0].wait()
        edit(tmp_path, watched, helper="NAME = 'b'\n")
        # What was opened stays open, and is what the new code gets; its own `seen` is a new list.
        called = await wire.call("who")
        assert called["content"][0]["text"] == "b life []"
        assert called["_meta"]["com.example/by"] == "b"
        assert (await wire.result("com.example/notes/count"))["count"] == "b"
        assert not [record for record in caplog.records if record.levelname == "WARNING"]
        gates[1].set()
        old = (await wire.answer(asked))["result"]
        assert (old["content"][0]["text"], old["_meta"]["com.example/by"]) == ("a", "a")

        changed = LIFE.replace('{"name": "life"}', '{"name": "other"}').replace('instructions="one"', 'version="2"')
        changed = (
            changed.replace("notes/count", "notes/sum") + "\n@server.route('/r')\ndef r() -> str:\n    return 'r'\n"
        )
        edit(tmp_path, watched, server=changed)
        assert await wire.text("who") == "b life []"
        assert [record.message.partition(": ")[2] for record in caplog.records if record.levelname == "WARNING"] == [
            "its lifespan changed; restart mcpd to apply this",
            "its HTTP routes changed; restart mcpd to apply this",
            "its name and instructions, for clients that are connected changed; restart mcpd to apply this",
        ]
        assert (await wire.result("com.example/notes/sum"))["count"] == "b"
        assert (await wire.request("com.example/notes/count"))["error"]["code"] == -32601
        assert server.identity.version == "2"
    await server.aclose()


async def test_what_comes_later_is_seen_through_the_first_server(tmp_path: Path) -> None:
    """Tools that the new code registers while it runs, its extensions' too, reach the clients that were there."""
    server, watched = opened(str(write(tmp_path, FILES) / "server.py"))
    async with memory_wire(server, LEGACY[-1]) as wire:
        for round in range(3):
            edit(tmp_path, watched, helper=f"NAME = 'b{round}'\n")
            new = sys.modules["server"].server
            assert new is not server
            new.add_tool(lambda: "late", name=f"late{round}")
            assert (await wire.receive())["method"] == "notifications/tools/list_changed"
            assert await wire.text(f"late{round}") == "late"
            await wire.quiet()


async def test_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files: dict[str, str | bytes] = {
        "garden/__init__.py": "", "garden/deep/__init__.py": "",
        "garden/deep/names.py": "NAME = 'a'\n", "garden/app.py": ONE.replace("helper", ".deep.names"),
    }  # fmt: skip
    write(tmp_path, files)
    server, watched = opened("garden.app:server")
    assert set(watched.folders()) == {str(tmp_path / "garden"), str(tmp_path / "garden" / "deep")}
    assert watched.concerns(str(tmp_path / "garden" / "deep" / "new.py"))
    assert not watched.concerns(str(tmp_path / "garden" / "deep" / "new.txt"))
    assert not watched.concerns(str(tmp_path / "other.py"))
    async with memory_wire(server, MODERN) as wire:
        edit(tmp_path / "garden" / "deep", watched, names="NAME = 'b'\n")
        assert await wire.text("who") == "b"


# -------------------------------------------------------------------------- in processes, watched


@pytest.mark.parametrize("words", [("--reload",), ()])
async def test_over_stdio(tmp_path: Path, child: Child, words: tuple[str, ...]) -> None:
    """Asked for or by itself; several edits in a second too."""
    write(tmp_path, FILES)
    async with process_wire(child, *words, str(tmp_path / "server.py"), version=LEGACY[-1]) as wire:
        await wire.result("resources/subscribe", {"uri": "x://it"})
        for name in "bcdb":
            write(tmp_path, {"helper.py": f"NAME = '{name}'\n"})
            assert (await wire.receive())["method"] == "notifications/resources/updated"
            # A file that was read while it was written is read again, and a notification follows.
            while await wire.text("who") != name:
                assert (await wire.receive())["method"] == "notifications/resources/updated"
        write(tmp_path, {"server.py": ONE + "def x(:\n"})
        await wire.said("the previous version stays in use")
        assert await wire.text("who") == "b"
    assert wire.code == 0


async def test_it_is_not_watched_where_nobody_wants_it(tmp_path: Path, child: Child) -> None:
    write(tmp_path, FILES)
    async with process_wire(child, "--no-reload", str(tmp_path / "server.py"), version=MODERN) as wire:
        write(tmp_path, {"helper.py": "NAME = 'b'\n"})
        assert await wire.text("who") == "a"
        threads = Path(f"/proc/{wire.process.pid}/task")
        names = {(each / "comm").read_text().strip() for each in threads.iterdir()}
        assert "mcpd-watch" not in names
    write(tmp_path, {"one/server.py": ONE, "one/helper.py": "NAME = 'a'\n"})
    code = child.mcpd("serve", "--stdio", "--reload", "--no-reload", str(tmp_path / "server.py"))
    process = await asyncio.create_subprocess_exec(
        *code, env=child.env, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert (process.returncode, said) == (1, b"mcpd: --reload and --no-reload exclude each other: give one of them\n")


async def test_over_http_and_websocket(tmp_path: Path, child: Child) -> None:
    """Connections of both, and of both eras, see it; a server of several targets too."""
    write(tmp_path, {**FILES, "two/other.py": 'from mcpd import Server\nserver = Server("two")\n'})
    process = await asyncio.create_subprocess_exec(
        *child.mcpd("serve", "--http", "127.0.0.1:0", "--reload", str(tmp_path / "server.py"),
                    str(tmp_path / "two" / "other.py")),
        env=child.env, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        said = ""
        while "Ctrl-C" not in said:
            said = (await process.stderr.readline()).decode()
        url = said.partition("listening on ")[2].partition(" ")[0]
        async with (
            Client(url) as http,
            Client(url.replace("http:", "ws:").removesuffix("/mcp"), version=LEGACY[-1]) as websocket,
        ):
            for client in (http, websocket):
                assert str((await client.call_tool("one_who")).content[0]).count("'a'")
            write(tmp_path, {"helper.py": "NAME = 'b'\n", "two/other.py": "from mcpd import Server\n"
                             "server = Server('two')\n@server.tool\ndef new() -> str:\n    return 'n'\n"})  # fmt: skip
            async with asyncio.timeout(30):
                for client in (http, websocket):
                    while "'b'" not in str((await client.call_tool("one_who")).content[0]):
                        pass
                    while "two_new" not in [tool.name for tool in await client.list_tools()]:
                        pass
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0
