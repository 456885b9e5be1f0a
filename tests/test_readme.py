"""The README and the tour in docs/first-server.md are true: each of their blocks is run.

A block without a test fails `test_every_block_is_run`, and so does a test whose block is gone.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import Child
from support.apps_scene import OPAQUE, STRICT, initialize_result
from support.browser import Chromium, chromium, find_chromium
from support.http_peer import Peer, call, post
from support.our_plugin import OUR_PLUGIN
from support.pages import Pages
from support.wires import MODERN, ProcessWire, Wire, each_version, initialize, process_wire
from websockets.asyncio.client import connect

__all__ = ["chromium"]

REPOSITORY = Path(__file__).resolve().parent.parent
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
TOUR = (REPOSITORY / "docs" / "first-server.md").read_text(encoding="utf-8")
APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


class Block(NamedTuple):
    """One fenced block: its language and its text."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that the block is a part of, as its first line says."""
        found = re.match(r"(?:# |<!-- )([\w./]+)", self.text) if self.language in ("python", "html") else None
        return found[1] if found else None


def blocks(text: str) -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


FIRST = blocks(README)[0]
HELLO, *BLOCKS = blocks(TOUR)
FILES = [block for block in BLOCKS if block.file]
BEFORE_CHECK = 3  # blocks of server.py
SHELL = [line for block in [*blocks(README), *BLOCKS] if block.language == "sh" for line in block.text.splitlines()]
OUTPUT = [block.text for block in BLOCKS if block.language == "text"]

RUN_BY_A_TEST = {
    "mcpd call server.py water bed=south      # call the tool from a terminal",
    "mcpd install claude-desktop server.py    # add the server to Claude Desktop",
    "mcpd preview server.py                   # try tools and apps in a browser",
    "mcpd serve --http :8080 server.py        # serve it over HTTP and WebSocket",
    "make serve    # start a demo server on http://127.0.0.1:8080/mcp",
    "make test     # run all tests",
    "claude mcp add --transport http mcpd http://127.0.0.1:8080/mcp",
    """code --add-mcp '{"name":"mcpd","type":"http","url":"http://127.0.0.1:8080/mcp"}'""",
    "npx @modelcontextprotocol/inspector --transport http --server-url http://127.0.0.1:8080/mcp",
    "mcpd install claude-desktop --demo       # the demo server of mcpd",
    "mcpd install claude-desktop server.py    # a server of your own",
    "mcpd check server.py",
    "mcpd serve --stdio server.py",
    "mcpd serve --ws :8080 server.py",
    "mcpd serve --http :8080 server.py",
}


def test_every_block_is_run() -> None:
    assert set(SHELL) == RUN_BY_A_TEST
    assert [block.file for block in FILES] == [
        *["server.py"] * BEFORE_CHECK,
        "test_server.py",
        "server.py",
        "apps/bed.html",
        "apps/bed.html",
        "server.py",
        "server.py",
        "asgi.py",
    ]
    assert len(OUTPUT) == 1
    assert len(BLOCKS) == len(FILES) + len(OUTPUT) + sum(block.language == "sh" for block in BLOCKS)
    assert TOUR.count("```") == 2 * (len(BLOCKS) + 1)
    assert [block.language for block in blocks(README)[1:]] == ["sh"] * 4


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 100
    assert max(len(line) for line in README.splitlines() if not line.startswith("|")) <= 120
    assert len([line for line in FIRST.text.splitlines()[1:] if line]) <= 6


@pytest.mark.parametrize(("block", "file", "words", "said"), [
    (FIRST, "server.py", ["water", "bed=south"], "Watered south for 10 minutes."),
    (HELLO, "hello.py", ["greet", "name=Ada"], "Hello, Ada!"),
])  # fmt: skip
def test_the_first_example(block: Block, file: str, words: list[str], said: str, child: Child, tmp_path: Path) -> None:
    (tmp_path / file).write_text(block.text)
    done = subprocess.run(
        child.mcpd("call", file, *words), env=child.env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{said}\n"


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    for link in links:
        assert (REPOSITORY / link.partition("#")[0]).is_file(), link


def test_the_folders_it_names_are_there() -> None:
    for folder in ("mcpd/", "examples/", "conformance/", "tests/", "tests/bench/"):
        assert f"`{folder}`" in README
        assert (REPOSITORY / folder).is_dir()


def test_what_it_says_of_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "mcpd-server"
    assert project["requires-python"] == ">=3.11"
    assert {re.split(r"[><=]", one)[0] for one in project["dependencies"]} == {
        "anyio",
        "click",
        "msgspec",
        "websockets",
    }
    assert "http" in project["optional-dependencies"]
    assert "msgspec, anyio, websockets and click" in README


# --------------------------------------------------------------------------------------- make


@pytest.mark.parametrize("target", re.findall(r"`?make (\w+)", README))
def test_make_has_this_target(target: str) -> None:
    """Not run again here: `make test` is running this, and `mcpd serve` is run below."""
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    runs = {"serve": ".venv/bin/mcpd serve --http :8080", "test": "-m pytest", "bench": "tests/bench/run.py"}
    assert runs[target] in done.stdout


@pytest.mark.medium
def test_make_serve_installs_what_it_serves() -> None:
    """HTTP needs an extra: on a bare install `make serve` would end with advice instead of an address."""
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "--no-print-directory", "setup-serve"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    assert "install --editable '.[http,client,yaml]'" in done.stdout


# ---------------------------------------------------------------------------------------- hosts


def test_later_blocks_of_a_file_say_that_they_are_added() -> None:
    heads = [block.text.partition("\n")[0] for block in FILES if block.file == "server.py"]
    assert heads == ["# server.py", *["# server.py: add this at the end"] * (len(heads) - 1)]


async def test_the_lines_for_hosts_are_those_that_make_serve_prints(child: Child, tmp_path: Path) -> None:
    """And they lead somewhere: the address answers at once, over HTTP and over WebSocket."""
    from urllib.request import Request, urlopen

    process, url = await listening(child, ["serve", "--http", ":8080"], tmp_path)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = Request(url, json.dumps(initialize("2025-11-25", 1)).encode(), headers)
    answer = await asyncio.to_thread(lambda: urlopen(request, timeout=100).read().decode())
    assert '"name":"mcpd"' in answer
    async with connect(url.replace("http://", "ws://")) as client:
        await client.send(json.dumps(initialize("2025-11-25", 1)))
        assert json.loads(await client.recv())["result"]["serverInfo"]["name"] == "mcpd"
    said = await stopped(process)
    assert f"for WebSocket on {url.replace('http://', 'ws://')}" in said
    for line in SHELL:
        if line.startswith(("claude", "code", "npx")):
            assert line.replace("http://127.0.0.1:8080/mcp", url) in said


# ------------------------------------------------------------------------------- Claude Desktop


@asynccontextmanager
async def started(command: list[str], **how: Any) -> AsyncIterator[ProcessWire]:
    """A wire to any program that speaks MCP on its stdin and stdout."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, **how)
    wire = ProcessWire(process)
    try:
        yield wire
    finally:
        await wire.close()
    wire.check()
    assert wire.code == 0, wire.stderr


def as_claude_desktop_starts_it(entry: dict[str, Any], child: Child) -> tuple[list[str], dict[str, Any]]:
    """The command and how it is started: with next to no environment, in the root folder."""
    assert set(entry) <= {"command", "args", "env"}
    assert os.path.isabs(entry["command"])
    path = {"PYTHONPATH": child.env["PYTHONPATH"]} if "PYTHONPATH" in child.env else {}
    environment = {"HOME": os.environ.get("HOME", "/"), "PATH": "/usr/bin:/bin", **path, **entry.get("env", {})}
    return [entry["command"], *entry["args"]], {"cwd": "/", "env": environment}


def installed_entry(line: str, folder: Path, home: Path, child: Child) -> dict[str, Any]:
    """What a line of the README writes for Claude Desktop, in a home folder that has nothing in it."""
    command, host, *target = shlex.split(line.partition("#")[0])[1:]
    environment = {**child.env, "HOME": str(home), "XDG_CONFIG_HOME": ""}
    done = subprocess.run(
        [child.python, "-m", "mcpd", command, host, *target],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "quit Claude Desktop" in done.stdout
    (file,) = home.rglob("claude_desktop_config.json")
    (entry,) = json.loads(file.read_text(encoding="utf-8"))["mcpServers"].values()
    return dict(entry)


INSTALLS = [line for line in SHELL if line.startswith("mcpd install claude-desktop") and "# add" not in line]


async def test_claude_desktop_starts_the_starter(child: Child, tmp_path: Path) -> None:
    """As it stands: initialize, a list, a call."""
    entry = await asyncio.to_thread(installed_entry, INSTALLS[0], tmp_path, tmp_path / "home", child)
    command, how = as_claude_desktop_starts_it(entry, child)
    async with started(command, **how) as wire:
        answer = await wire.open("2025-11-25")
        assert answer["serverInfo"]["name"] == "mcpd"
        names = [tool["name"] for tool in (await wire.result("tools/list"))["tools"]]
        assert "echo" in names
        assert await wire.text("echo", text="hello") == "hello"


async def test_claude_desktop_starts_a_server_of_ones_own(child: Child, garden: Path, tmp_path: Path) -> None:
    entry = await asyncio.to_thread(installed_entry, INSTALLS[1], garden.parent, tmp_path / "home", child)
    command, how = as_claude_desktop_starts_it(entry, child)
    async with started(command, **how) as wire:
        await wire.open("2025-11-25")
        assert [tool["name"] for tool in (await wire.result("tools/list"))["tools"]] == ["plant", "water", "show_bed"]
        assert json.loads(await wire.text("plant", bed="north", what="kale"))["plants"] == ["kale"]


# -------------------------------------------------------------------------------- five minutes


@pytest.fixture
def garden(tmp_path: Path) -> Path:
    """The server.py of the tour, with the files beside it."""
    for block in FILES:
        path = tmp_path / str(block.file)
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(block.text + "\n\n")
    return tmp_path / "server.py"


def test_check_prints_what_it_says(tmp_path: Path, child: Child) -> None:
    """At this point of the tour server.py has its first blocks."""
    (tmp_path / "server.py").write_text("\n\n".join(block.text for block in FILES[:BEFORE_CHECK]))
    done = subprocess.run(
        child.mcpd("check", "server.py"), env=child.env, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == OUTPUT[0]
    assert done.stderr == ""


def test_check_finds_nothing_wrong_with_all_of_it(garden: Path, child: Child) -> None:
    done = subprocess.run(
        child.mcpd("check", "server.py"), env=child.env, cwd=garden.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def data_of(result: dict[str, Any]) -> Any:
    """What a tool gave, as text and, where the version has that, as structured content: they say the same."""
    data = json.loads(result["content"][0]["text"])
    assert result.get("structuredContent", data) == data
    return data


@each_version
async def test_serve_on_stdio(garden: Path, child: Child, version: str) -> None:
    async with process_wire(child, "server.py", version=version, cwd=garden.parent) as wire:
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        schema = tools["plant"]["inputSchema"]
        assert tools["plant"]["description"] == "Plant something in a bed."
        assert schema["properties"]["bed"]["description"] == "Name of the bed."
        assert schema["properties"]["rows"]["maximum"] == 12
        assert ("outputSchema" in tools["plant"]) == (version >= "2025-06-18")
        assert "_meta" not in tools["show_bed"]

        planted = await wire.call("plant", bed="north", what="kale", rows=2)
        assert data_of(planted) == {"name": "north", "plants": ["kale", "kale"]}
        assert ("structuredContent" in planted) == (version >= "2025-06-18")
        wrong = await wire.call("plant", bed="west", what="kale")
        assert wrong["isError"]
        assert wrong["content"][0]["text"] == "There is no bed 'west'. There are: south, north"
        assert (await wire.request("tools/call", {"name": "plant", "arguments": {"bed": "north", "rows": 13}})).get(
            "result", {"isError": True}
        )["isError"]

        read = await wire.result("resources/read", {"uri": "bed://north"})
        assert json.loads(read["contents"][0]["text"])["plants"] == ["kale", "kale"]
        assert (await wire.error("resources/read", {"uri": "bed://west"}))[
            "message"
        ] == "Resource not found: bed://west"
        prompt = await wire.result("prompts/get", {"name": "plan", "arguments": {"season": "spring"}})
        assert "in spring" in prompt["messages"][0]["content"]["text"]
        assert data_of(await wire.call("show_bed")) == {"name": "south", "plants": ["beans"]}


# ------------------------------------------------------------------- progress, asking the user


async def answered(wire: Wire, params: dict[str, Any], content: dict[str, Any]) -> Any:
    """The result of a call in which the user is asked once and accepts with these values."""
    if wire.version == MODERN:
        first = await wire.result("tools/call", params)
        assert first["resultType"] == "input_required"
        ((key, question),) = first["inputRequests"].items()
        assert question["params"]["message"] == "Water for 40 minutes?"
        answers = {key: {"action": "accept", "content": content}}
        again = {**params, "inputResponses": answers, "requestState": first["requestState"]}
        return await wire.result("tools/call", again)
    call = wire.ask("tools/call", params)
    question = await wire.receive()
    assert question["method"] == "elicitation/create"
    assert question["params"]["message"] == "Water for 40 minutes?"
    wire.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": content}})
    return (await wire.answer(call))["result"]


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_progress_and_asking(garden: Path, child: Child, version: str) -> None:
    async with process_wire(child, "server.py", cwd=garden.parent) as wire:
        await wire.open(version, {"elicitation": {}})
        result = await wire.call("water", {"progressToken": "p"}, minutes=3)
        assert result["content"][0]["text"] == "Watered for 3 minutes."
        told = [one["params"] for one in wire.heard if one["method"] == "notifications/progress"]
        assert [(one["progress"], one["total"]) for one in told] == [(1, 3), (2, 3), (3, 3)]

        params = {"name": "water", "arguments": {"minutes": 40}}
        yes = await answered(wire, params, {"really": True})
        assert yes["content"][0]["text"] == "Watered for 40 minutes."
        no = await answered(wire, params, {"really": False})
        assert no["content"][0]["text"] == "Nothing was watered."


# ------------------------------------------------------------------------------------ an app


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_only_hosts_with_apps_learn_of_the_page(garden: Path, child: Child, version: str) -> None:
    """From another folder: the apps are found beside server.py. The metadata that the README names is used."""
    meta = re.search(r"`(\{\"title\".*\})`", TOUR.replace("\n", " "))
    assert meta is not None
    (garden.parent / "apps" / "bed.json").write_text(meta[1])
    async with process_wire(child, str(garden), cwd="/") as wire:
        await wire.open(version, APPS)
        tools = {tool["name"]: tool for tool in (await wire.result("tools/list"))["tools"]}
        uri = tools["show_bed"]["_meta"]["ui"]["resourceUri"]
        assert uri.startswith("ui://garden/bed")
        (listed,) = (await wire.result("resources/list"))["resources"]
        assert listed["title"] == "A bed"
        (page,) = (await wire.result("resources/read", {"uri": uri}))["contents"]
        assert page["text"] == (garden.parent / "apps" / "bed.html").read_text()
        assert page["_meta"]["ui"]["prefersBorder"] is True


async def test_the_page_shows_the_result(garden: Path, child: Child, chromium: Chromium) -> None:
    """In Chromium, under the specification's strictest policy, with and without structured content."""
    async with process_wire(child, str(garden), version="2025-11-25") as wire:
        result = await wire.call("show_bed", bed="south")
        planted = await wire.call("plant", bed="south", what="<b>kale</b>")
    del planted["structuredContent"]
    pages = Pages()
    try:
        pages.put("/host", (REPOSITORY / "tests" / "apps" / "scripted_host.html").read_text(encoding="utf-8"))
        pages.put("/view", (garden.parent / "apps" / "bed.html").read_text(), content_security_policy=STRICT)
        async with chromium.page(width=400, height=300) as page:
            host = await page.goto(pages.url("/host"))
            answers = {"ui/initialize": {"result": initialize_result()}}
            scenario = {"view": pages.url("/view", "view"), "answers": answers, "sandbox": OPAQUE}
            await host.call("(scenario) => host.open(scenario)", scenario)
            await host.until("host.of('ui/notifications/initialized').length === 1")
            view = await page.frame("/view")
            listed = "[...document.querySelectorAll('#plants li')].map((one) => one.textContent).join()"
            for shown, plants in ((result, "beans"), (planted, "beans,<b>kale</b>")):
                await host.call("(result) => host.notify('ui/notifications/tool-result', result)", shown)
                await view.until(f"{listed} === {plants!r}")
            answer = await host.evaluate("host.request('ui/resource-teardown', { reason: 'done' })")
            assert answer["result"] == {}
            assert page.violations == []
            assert page.errors == []
    finally:
        pages.close()


def test_the_app_passes_apps_test(garden: Path, child: Child) -> None:
    if (browser := find_chromium()) is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    done = subprocess.run(
        child.mcpd("apps", "test", "--strict", "--browser", browser, "--step-timeout", "30", "server.py"),
        env=child.env, cwd=garden.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


# --------------------------------------------------------------- listening; a program of one's own


async def listening(child: Child, words: list[str], folder: Path, **env: str) -> tuple[asyncio.subprocess.Process, str]:
    """The process of a command of the README, on a free port, and the address it says it listens on."""
    process = await asyncio.create_subprocess_exec(
        *child.mcpd(*(word.replace(":8080", ":0") for word in words)),
        cwd=folder, env={**child.env, **env}, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(60):
        line = (await process.stderr.readline()).decode()
    found = re.search(r"listening on (\S+)", line)
    if found is None:
        process.kill()
        await process.communicate()
        raise AssertionError(line)
    return process, found[1]


async def stopped(process: asyncio.subprocess.Process) -> str:
    """End it as Ctrl-C does; what it still said."""
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(60):
        _, said = await process.communicate()
    assert process.returncode == 0, said
    return said.decode()


async def test_serve_on_websocket(garden: Path, child: Child) -> None:
    process, url = await listening(child, ["serve", "--ws", ":8080", "server.py"], garden.parent)
    async with connect(url) as client:
        await client.send(json.dumps(initialize("2025-11-25", 1)))
        assert json.loads(await client.recv())["result"]["serverInfo"]["name"] == "garden"
    said = await stopped(process)
    block = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert block["mcpServers"]["garden"]["args"][-3:] == ["serve", "--stdio", str(garden)]


async def test_serve_on_http(garden: Path, child: Child) -> None:
    from urllib.request import Request, urlopen

    process, url = await listening(child, ["serve", "--http", ":8080", "server.py"], garden.parent)
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = Request(url, json.dumps(initialize("2025-11-25", 1)).encode(), headers)
    answer = await asyncio.to_thread(lambda: urlopen(request, timeout=100).read().decode())
    assert '"name":"garden"' in answer
    await stopped(process)


def test_a_wider_address_needs_a_token(garden: Path, child: Child) -> None:
    done = subprocess.run(
        child.mcpd("serve", "--ws", "0.0.0.0:0", "server.py"),
        cwd=garden.parent, env=child.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "--token-file FILE, MCPD_TOKEN" in done.stderr


async def test_clients_send_the_token(garden: Path, child: Child) -> None:
    from websockets.exceptions import InvalidStatus

    process, url = await listening(child, ["serve", "--ws", ":8080", "server.py"], garden.parent, MCPD_TOKEN="secret")
    with pytest.raises(InvalidStatus):
        async with connect(url):
            pass
    async with connect(url, additional_headers={"Authorization": "Bearer secret"}):
        pass
    with pytest.raises(InvalidStatus):
        async with connect(
            url, origin="https://app.example.com", additional_headers={"Authorization": "Bearer secret"}
        ):  # type: ignore[arg-type]
            pass
    await stopped(process)


async def test_a_program_of_its_own(garden: Path, child: Child) -> None:
    """`python server.py`."""
    async with started([child.python, "server.py"], cwd=garden.parent, env=child.env) as wire:
        await wire.open("2025-11-25")
        assert data_of(await wire.call("show_bed", bed="north")) == {"name": "north", "plants": []}


async def test_the_asgi_application(garden: Path, child: Child) -> None:
    """`uvicorn asgi:app`, asked by the name that it allows, by another, and over WebSocket."""
    process = await asyncio.create_subprocess_exec(
        *(child.python, "-m", "uvicorn", "asgi:app", "--port", "0"),
        cwd=garden.parent, env=child.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while (found := re.search(rb"127.0.0.1:(\d+)", line := await process.stderr.readline())) is None:
                assert line
        port = int(found[1])
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        show = call("tools/call", {"name": "show_bed", "arguments": {"bed": "north"}})
        answer = await peer.ask(post(show, host="garden.example"))
        assert answer.json["result"]["content"][0]["text"] == '{"name":"north","plants":[]}'
        assert (await peer.ask(post(show, host="elsewhere.example"))).status == 403
        await peer.aclose()
        async with connect(f"ws://127.0.0.1:{port}/mcp", proxy=None) as client:
            await client.send('{"jsonrpc":"2.0","id":1,"method":"ping"}')
            assert await client.recv() == '{"jsonrpc":"2.0","id":1,"result":{}}'
    finally:
        process.terminate()
        async with asyncio.timeout(60):
            await process.wait()


async def test_the_asgi_application_mounted(garden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At `/mcp` below the place of the mount, in each of the two ways that servers say so; `identify` is asked."""
    monkeypatch.syspath_prepend(str(garden.parent))
    monkeypatch.delitem(sys.modules, "server", raising=False)
    server = importlib.import_module("server").server
    asked: list[str] = []
    app = server.asgi_app(identify=lambda scope: asked.append(scope["path"]))
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    for path in ("/garden/mcp", "/mcp"):
        scope = {"type": "http", "method": "POST", "path": path, "root_path": "/garden", "headers": headers}
        said: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": ping}

        async def send(message: Any, said: list[Any] = said) -> None:
            said.append(message)

        await app(scope, receive, send)
        assert said[0]["status"] == 200
        assert said[1]["body"] == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert asked == ["/garden/mcp", "/mcp"]


def test_the_test_of_the_garden(garden: Path, child: Child) -> None:
    done = subprocess.run(
        [child.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *OUR_PLUGIN, "test_server.py"],
        cwd=garden.parent, env=child.env, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
