"""`mcpd.sync.Client`: the methods of `Client` for programs without a loop, from any thread, and how it ends."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY, Child
from support.task_script import STATES

from mcpd import Callbacks, Client, ClientGroup, Context, ElicitFormParams, ElicitResult, Server, sync
from mcpd.client.blocking import BlockingClient
from mcpd.errors import (
    ConfigurationError,
    ConnectionLost,
    LocalProtocolError,
    ProtocolError,
    RemoteError,
    RequestTimeout,
    TaskCancelled,
    ToolError,
)
from mcpd.protocol.types.base import LogMessageParams
from mcpd.protocol.types.interaction import PromptReference
from mcpd.protocol.versions.table import SUPPORTED

EVENT_SCRIPT = str(REPOSITORY / "tests" / "support" / "event_script.py")
TASK_SCRIPT = str(REPOSITORY / "tests" / "support" / "task_script.py")
AWAITED = ("list[AwaitedToolFunction]", "list[ToolFunction[Any]]")
each_version = pytest.mark.parametrize("version", SUPPORTED)


def make_server() -> Server:
    server = Server("known", instructions="Be kind.")

    @server.tool
    def add(a: int, b: int = 1) -> int:
        return a + b

    @server.tool
    async def steps(ctx: Context, count: int = 3) -> str:
        for step in range(count):
            await ctx.progress(step + 1, total=count, message=f"step {step + 1}")
        return "done"

    @server.tool
    async def asks(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool)
        return str(answer.get()) if answer.is_accepted else answer.action

    @server.tool
    async def says(text: str, ctx: Context) -> None:
        await ctx.error(text)

    @server.tool
    def fails() -> str:
        raise ToolError("no way")

    @server.tool
    async def forever() -> None:
        import asyncio

        await asyncio.Event().wait()

    server.add_text("text://a", "ä", name="a")

    @server.resource("text://{name}/long")
    def long(name: str) -> str:
        return name * 3

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    @server.completion("name", prompt="greet")
    def names(value: str) -> list[str]:
        return [name for name in ("Ada", "Alan") if name.startswith(value)]

    return server


def test_it_has_the_methods_of_client() -> None:
    """With the same parameters and results: only nothing is awaited, and it is closed by `close`."""

    def api(kind: type[Any]) -> dict[str, Any]:
        return {name: one for name, one in inspect.getmembers(kind) if not name.startswith("_")}

    ours, theirs = api(sync.Client), api(Client)
    assert set(ours) - {"close"} == set(theirs) - {"aclose", "probe_seconds", "era"}
    for name in set(ours) - {"close"}:
        one, other = ours[name], theirs[name]
        if isinstance(one, property):
            one, other = one.fget, other.fget
        signature = str(inspect.signature(one)).replace("Blocking", "")
        assert signature == str(inspect.signature(other)).replace(*AWAITED), name
        assert not inspect.iscoroutinefunction(one), name
    assert inspect.signature(sync.Client) == inspect.signature(Client)
    assert "mcpd.sync" in (inspect.getdoc(inspect.getmodule(BlockingClient)) or "")


def test_the_group_has_the_methods_of_the_group() -> None:
    ours, theirs = (
        {name: one for name, one in inspect.getmembers(kind) if not name.startswith("_")}
        for kind in (sync.ClientGroup, ClientGroup)
    )
    assert set(ours) - {"close"} == set(theirs) - {"aclose", "client", "clients"}
    for name in {name for name in ours if inspect.isfunction(ours[name])} - {"close"}:
        signature = str(inspect.signature(theirs[name])).replace("-> 'TaskHandle'", "-> 'BlockingTaskHandle'")
        assert str(inspect.signature(ours[name])) == signature.replace(*AWAITED), name
    assert list(inspect.signature(sync.ClientGroup).parameters) == list(inspect.signature(ClientGroup).parameters)


def test_several_servers_are_asked() -> None:
    heard = threading.Event()

    def changed(kind: str) -> None:
        if len(group.list_tools()) == 7:  # it may ask
            heard.set()

    servers = {"one": make_server(), "gone": ["/no/such/server"]}
    with sync.ClientGroup(servers, Callbacks(list_changed=changed)) as group:
        assert group.call("one_add", a=1, returns=int) == 2
        assert group.read_resource("one+text://a").contents[0].text == "ä"  # type: ignore[union-attr]
        assert "/no/such/server" in str(group.errors["gone"])
        assert group.collisions == []
        (add,) = group.tool_functions("one_add")
        assert add(3, b=4) == 7
        servers["one"].add_tool(lambda: "x", name="new")  # type: ignore[union-attr]
        assert heard.wait(20)
    assert "mcpd-client-group" not in {thread.name for thread in threading.enumerate()}


@each_version
def test_everything_is_asked(version: str) -> None:
    with sync.Client(make_server(), version=version) as client:
        assert (client.version, client.is_modern) == (version, version == SUPPORTED[0])
        assert client.instructions == (None if version == "2024-10-07" else "Be kind.")
        assert client.server_info is not None
        assert client.server_info.name == "known"
        assert client.server_capabilities.tools is not None
        assert "add" in [tool.name for tool in client.list_tools()]
        assert client.call("add", {"b": 2}, a=1, returns=int) == 3
        assert client.call_tool("fails").is_error
        with pytest.raises(ToolError, match="no way"):
            client.call("fails")
        with pytest.raises(RequestTimeout):
            client.call("forever", timeout=0.01)
        assert [one.uri for one in client.list_resources()] == ["text://a"]
        assert [one.uri_template for one in client.list_resource_templates()] == ["text://{name}/long"]
        assert client.read_resource("text://b/long", fresh=True).contents[0].text == "bbb"  # type: ignore[union-attr]
        assert [prompt.name for prompt in client.list_prompts(fresh=True)] == ["greet"]
        (message,) = client.get_prompt("greet", {"name": "Ada"}).messages
        assert message.content.text == "Hello Ada"  # type: ignore[union-attr]
        found = client.complete(PromptReference(name="greet"), "name", "Al")
        assert found.completion.values == ["Alan"]
        assert client.faults is not None
        client.ping()
        if version != "2024-10-07":  # which has no roots
            client.roots_changed()
        client.subscribe("text://a")
        client.unsubscribe("text://a")
        with pytest.raises(RemoteError):
            client.request("prompts/get", {"name": "none"})
    client.close()
    with pytest.raises(LocalProtocolError, match="use it inside `with`"):
        client.ping()
    with pytest.raises(LocalProtocolError, match="opened only once"):
        client.open()


@pytest.mark.medium
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_tasks(era: str) -> None:
    """A handle and `tasks` have the methods of the awaited ones."""
    with sync.Client([sys.executable, TASK_SCRIPT, era]) as client:
        assert client.call("render", returns=str) == "a forest"
        handle = client.start_tool("render")
        assert handle.id == "busy"
        assert handle.status().status == "completed"
        assert handle.result().content[0].text == "a forest"  # type: ignore[union-attr]
        assert client.resume_task("done").result() == handle.result()
        assert client.tasks.get("failed").status == "failed"
        client.tasks.cancel("asks")
        with pytest.raises(TaskCancelled, match="as asked"):
            client.resume_task("asks").result()
        assert [task.task_id for task in client.tasks.list()] == ([] if era == "modern" else [*STATES])


def test_events() -> None:
    """A subscription is a plain loop, with the position of the events that were taken."""
    with sync.Client([sys.executable, EVENT_SCRIPT]) as client:
        assert [kind.name for kind in client.list_events()] == ["incident.created"]
        with client.events("incident.created", {"severity": "P1"}, cursor="c-1") as events:
            assert (events.mode, events.cursor) == ("push", "c-1")
            assert next(events).data == {"number": 2, "arguments": {"severity": "P1"}}
            assert (events.cursor, events.gaps) == ("c-2", 0)
            numbers = []
            with pytest.raises(RemoteError, match="revoked"):
                for event in events:
                    numbers.append(event.id)
            assert numbers == ["e-3"]


@each_version
def test_progress_is_told_where_it_is_waited_for(version: str) -> None:
    told: list[tuple[float, int]] = []

    def note(progress: float, total: float | None, message: str | None) -> None:
        # It may ask the client meanwhile.
        told.append((progress, threading.get_ident()))
        assert client.call("add", a=1, returns=int) == 2

    with sync.Client(make_server(), version=version) as client:
        assert client.call("steps", on_progress=note) == "done"
        assert told == [(step, threading.get_ident()) for step in (1, 2, 3)]

        def stops(progress: float, total: float | None, message: str | None) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            client.call("steps", on_progress=stops)

        async def awaits(progress: float, total: float | None, message: str | None) -> None:
            raise AssertionError

        with pytest.raises(ConfigurationError, match="must be a plain function"):
            client.call("steps", on_progress=awaits)
        assert client.call("add", a=1, returns=int) == 2


@pytest.mark.parametrize("version", [name for name in SUPPORTED if name >= "2025-06-18"])
def test_plain_callbacks_may_block_and_ask(version: str) -> None:
    heard = threading.Event()

    def agree(asked: ElicitFormParams) -> ElicitResult:
        assert client.call("add", a=1, returns=int) == 2
        return ElicitResult(action="accept", content={"value": True})

    async def log(params: LogMessageParams) -> None:
        with pytest.raises(LocalProtocolError, match="call it from another"):
            client.ping()
        heard.set()

    def wrong(asked: ElicitFormParams) -> ElicitResult:
        sys.exit(1)

    with sync.Client(make_server(), Callbacks(elicit_form=agree, log=log), version=version) as client:
        assert client.call("asks") == "True"
        client.set_log_level("debug")
        client.call("says", text="hi")
        assert heard.wait(10)
    with sync.Client(make_server(), Callbacks(elicit_form=wrong), version=version) as client:
        if client.is_modern:
            with pytest.raises(ProtocolError, match="elicitation/create: Internal error"):
                client.call("asks")
        else:
            assert client.call_tool("asks").is_error, "the server is told, and says what it makes of it"
        assert client.call("add", a=1, returns=int) == 2


def test_several_threads_ask_at_once() -> None:
    with sync.Client(make_server()) as client, ThreadPoolExecutor(8) as threads:
        sums = list(threads.map(lambda number: client.call("add", a=number, b=number), range(200)))
    assert sums == [2 * number for number in range(200)]


def test_who_waits_while_it_is_closed_is_told() -> None:
    ended: list[BaseException] = []
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        try:
            client.call("forever")
        except BaseException as error:
            ended.append(error)

    with sync.Client(make_server()) as client:
        thread = threading.Thread(target=wait)
        thread.start()
        begun.wait()
        client.ping()
    thread.join(10)
    assert [type(error) for error in ended] in ([ConnectionLost], [LocalProtocolError])
    assert "mcpd-client" not in {thread.name for thread in threading.enumerate()}


def test_one_that_cannot_open_leaves_no_thread(child: Child) -> None:
    with pytest.raises(ConnectionLost):
        with sync.Client([child.python, "-c", "raise SystemExit"]):
            pass
    assert "mcpd-client" not in {thread.name for thread in threading.enumerate()}


SERVER = """
import sys, time
from mcpd import Server
server = Server("child")
@server.tool
def add(a: int) -> int:
    return a + 1
@server.tool
async def forever() -> None:
    import asyncio
    print("asked", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
server.run(stdio=True)
open(sys.argv[1], "w").write("ended")
"""


@pytest.fixture
def server_file(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER, encoding="utf-8")
    return path


def program(child: Child, server: Path, text: str) -> subprocess.Popen[str]:
    source = f"""
import os, signal, sys, threading
from mcpd import sync
from mcpd.errors import LocalProtocolError
client = sync.Client([sys.executable, {str(server)!r}, {str(server.with_name("ended"))!r}])
{textwrap.dedent(text)}
"""
    return subprocess.Popen(
        [child.python, "-c", source], env=child.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    said, complained = process.communicate(timeout=60)
    return process.returncode, said, complained


def test_a_program_that_forgets_to_close_ends_and_its_child_too(child: Child, server_file: Path) -> None:
    code, said, complained = outcome(program(child, server_file, "client.open(); print(client.call('add', a=1))"))
    assert (code, said) == (0, "2\n"), complained
    assert server_file.with_name("ended").read_text(encoding="utf-8") == "ended", "the child ended by itself"


def test_a_program_ends_while_other_threads_wait(child: Child, server_file: Path) -> None:
    text = """
        client.open()
        threading.Thread(target=lambda: client.call("forever", timeout=None), daemon=True).start()
        client.ping()
        print("over")
    """
    code, said, _ = outcome(program(child, server_file, text))
    assert (code, said) == (0, "over\n")


def test_ctrl_c_gives_up_the_call(child: Child, server_file: Path) -> None:
    text = """
        with client:
            try:
                client.call("forever", timeout=None)
            except KeyboardInterrupt:
                print("given up", client.call("add", a=1))
    """
    process = program(child, server_file, text)
    assert process.stderr is not None
    while "asked" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, said, complained = outcome(process)
    assert (code, said) == (0, "given up 2\n"), complained


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told(child: Child, server_file: Path) -> None:
    text = """
        import warnings
        warnings.simplefilter("ignore")
        with client:
            pid = os.fork()
            if pid == 0:
                try:
                    client.ping()
                except LocalProtocolError as error:
                    os._exit("forked" in str(error))
                os._exit(2)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), client.call("add", a=1))
    """
    code, said, complained = outcome(program(child, server_file, text))
    assert (code, said) == (0, "1 2\n"), complained
