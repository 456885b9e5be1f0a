"""A client whose server floods it: what it holds is bounded, what it logs too, and it says which limit was reached."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.clock import Clock, until
from support.memory import memory

from mcpd import Callbacks, Client
from mcpd.client import ClientLimits
from mcpd.errors import ConfigurationError, ConnectionLost, McpdError, ProtocolError
from mcpd.protocol.types.base import LogMessageParams
from mcpd.protocol.types.interaction import ElicitFormParams, ElicitResult
from mcpd.transports.memory import MemoryChannel, pair

pytestmark = pytest.mark.slow

BAD_SERVER = str(Path(__file__).with_name("bad_server.py"))
VERSION = "2025-11-25"
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
MB = 1024 * 1024


def bad(behaviour: str, number: int = 0) -> list[str]:
    return [sys.executable, "-S", BAD_SERVER, behaviour, str(number)]


async def said(client: Client, **options: Any) -> str:
    return (await client.call_tool("any", **options)).content[0].text  # type: ignore[union-attr]


async def held(client: Client) -> None:
    """The client reads its server no longer, and has had the time to take what was on its way."""
    assert client._open is not None
    await until(lambda: client._open._notifications.is_paused)
    for _ in range(100):
        await asyncio.sleep(0.001)


class Gate:
    """A callback that waits until it is opened, and counts."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.heard: list[Any] = []
        """The first hundred."""
        self.count = 0

    async def __call__(self, told: Any) -> Any:
        self.count += 1
        if self.count <= 100:
            self.heard.append(told)
        await self.opened.wait()
        return ElicitResult(action="decline") if isinstance(told, ElicitFormParams) else None


# --------------------------------------------------------------------------- child processes


@pytest.mark.slow
async def test_log_messages_wait_with_the_server_while_callbacks_are_slow() -> None:
    """60 MB of them, of which none is lost, and few are held."""
    gate = Gate()
    async with Client(bad("logs", 60_000), Callbacks(log=gate), version=VERSION) as client:
        with memory(30 * MB):
            calling = asyncio.create_task(said(client))
            await held(client)
            assert len(gate.heard) == 1
            told = 0

            async def count(params: LogMessageParams) -> None:
                nonlocal told
                told += 1
                if told % 100 == 0:
                    await asyncio.sleep(0)

            client._callbacks = client._open._notifications._callbacks = Callbacks(log=count)  # type: ignore[union-attr]
            gate.opened.set()
            assert await calling == "done"
        assert told > 58_000


@pytest.mark.parametrize("behaviour", ["pings", "unknown", "progress", "answers", "other_updates", "rubbish"])
async def test_what_needs_no_callback_is_not_held(behaviour: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcpd")
    async with Client(bad(behaviour, 30_000), version=VERSION) as client:
        with memory(50 * MB):
            progressed = 0

            def count(progress: float, total: float | None, message: str | None) -> None:
                nonlocal progressed
                progressed += 1

            assert await said(client, on_progress=count) == "done"
    assert (progressed == 30_000) == (behaviour == "progress")
    assert len(caplog.records) < 20
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("behaviour", ["pings_unread", "unknown_unread"])
async def test_a_server_that_asks_and_does_not_read_loses_its_connection(
    behaviour: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(bad(behaviour, 50_000), version=VERSION) as client:
        with memory(50 * MB), pytest.raises(ConnectionLost, match=r"ClientLimits\.unread_bytes"):
            await said(client)
        with pytest.raises(ConnectionLost, match=r"ClientLimits\.unread_bytes"):
            await client.ping()
    assert len(caplog.records) == 1


async def test_questions_beyond_the_limit_are_refused() -> None:
    gate = Gate()
    async with Client(bad("questions", 20_000), Callbacks(elicit_form=gate), version=VERSION) as client:
        with memory(50 * MB):
            calling, before = asyncio.create_task(said(client)), len(asyncio.all_tasks())
            assert await calling == "done"
            assert len(gate.heard) == 64
            assert len(asyncio.all_tasks()) <= before + 64
            gate.opened.set()


async def test_an_update_that_waits_is_not_told_twice() -> None:
    gate = Gate()
    async with Client(bad("updates", 30_000), Callbacks(resource_updated=gate), version=VERSION) as client:
        with memory(50 * MB):
            assert await said(client) == "done"
            gate.opened.set()
            await until(lambda: len(gate.heard) >= 4)
    assert gate.heard[:4] == ["x://0", "x://1", "x://2", "x://0"]
    assert len(gate.heard) < 10


@pytest.mark.slow
async def test_updates_of_ever_other_resources_wait_with_the_server() -> None:
    gate = Gate()
    async with Client(bad("other_updates", 40_000), Callbacks(resource_updated=gate), version=VERSION) as client:
        with memory(30 * MB):
            calling = asyncio.create_task(said(client))
            await held(client)
            gate.opened.set()
            assert await calling == "done"
    assert gate.count > 38_000


@pytest.mark.parametrize(("count", "is_good"), [(300, True), (2000, False)])
async def test_a_callback_that_asks_the_server_gets_its_answer(count: int, is_good: bool) -> None:
    """It stands behind what was told: that is read, up to four times the limit."""
    client: Client
    asked = False

    async def ask(params: LogMessageParams) -> None:
        nonlocal asked
        if not asked:
            asked = True
            await asyncio.create_task(client.ping())

    limits = ClientLimits(waiting_messages=100)
    async with Client(bad("logs_unread", count), Callbacks(log=ask), version=VERSION, limits=limits) as client:
        if is_good:
            assert await said(client) == "done"
        else:
            with pytest.raises(ConnectionLost, match=r"400 messages wait .*ClientLimits\.waiting_messages"):
                await said(client)


async def test_a_request_waits_as_long_as_callbacks_get_on() -> None:
    """Its answer stands behind what is not read: each callback that ends is a sign of life."""

    async def slow(params: LogMessageParams) -> None:
        nonlocal waited
        if not waited:
            await until(lambda: client._open._notifications.is_paused)  # type: ignore[union-attr]
        if waited < 1500 and client._open._notifications.is_paused:  # type: ignore[union-attr]
            waited += 150
            await clock.advance(150)

    waited = 0
    clock = Clock()
    limits = ClientLimits(waiting_messages=10)
    async with Client(bad("logs", 100), Callbacks(log=slow), version=VERSION, limits=limits, timeout=200) as client:
        assert await said(client) == "done"
    assert waited > 200


async def test_callbacks_that_fail_are_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    def fail(params: Any) -> None:
        raise ValueError("no")

    callbacks = Callbacks(log=fail, elicit_form=fail)  # type: ignore[arg-type]
    for behaviour in ("logs", "questions"):
        caplog.clear()
        async with Client(bad(behaviour, 3000), callbacks, version=VERSION) as client:
            assert await said(client) == "done"
        assert 10 <= len(caplog.records) <= 13


# ------------------------------------------------------------------------- a server by script


class Script:
    """A server over memory that answers as it is told: `answers` by method, each a result or a function."""

    def __init__(self, version: str, answers: dict[str, Any]) -> None:
        self.version = version
        self.answers = answers
        self.asked: list[dict[str, Any]] = []
        self.closed_by_client = False

    def connect_memory(self) -> MemoryChannel:
        near, far = pair()
        self.channel = far
        far.start(self)
        return near

    def receive(self, frame: bytes) -> None:
        message = json.loads(frame)
        self.asked.append(message)
        if "id" not in message or "method" not in message:
            return
        capabilities = {"tools": {}, "resources": {}, "prompts": {}}
        if message["method"] == "initialize":
            info = {"name": "script", "version": "1"}
            answer: Any = {"protocolVersion": self.version, "capabilities": capabilities, "serverInfo": info}
        elif message["method"] == "server/discover":
            answer = {"supportedVersions": [self.version], "capabilities": capabilities, "resultType": "complete"}
        else:
            given = self.answers[message["method"]]
            answer = given(message.get("params") or {}) if callable(given) else given
        body = answer if isinstance(answer, str) else json.dumps(answer)
        self.channel.send(f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":{body}}}'.encode())

    def receive_error(self, error: ProtocolError) -> None:
        raise error

    def closed(self, error: McpdError | None = None) -> None:
        self.closed_by_client = True


@asynccontextmanager
async def scripted(
    method: str, answer: Any, callbacks: Callbacks | None = None, version: str = VERSION, **limits: Any
) -> AsyncIterator[Client]:
    script = Script(version, {method: answer})
    async with Client(script, callbacks or Callbacks(), version=version, limits=ClientLimits(**limits)) as client:
        yield client


TOOL = {"name": "t", "inputSchema": {"type": "object"}}


@pytest.mark.parametrize("entry", ["0", "{}", '{"name":1}', "[]"])
async def test_bad_entries_of_a_list_are_one_line_of_the_log(entry: str, caplog: pytest.LogCaptureFixture) -> None:
    page = f'{{"tools":[{",".join([entry] * 60_000)},{json.dumps(TOOL)}]}}'
    async with scripted("tools/list", page) as client:
        with memory(50 * MB):
            assert [tool.name for tool in await client.list_tools()] == ["t"]
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "tools/list: 60000 invalid entries of 60001 are left out"
    ]


def pages(entries: int, cursor: Callable[[int], str]) -> Callable[[dict[str, Any]], Any]:
    number = 0

    def answer(params: dict[str, Any]) -> Any:
        nonlocal number
        number += 1
        return {"tools": [TOOL] * entries, "nextCursor": cursor(number)}

    return answer


@pytest.mark.parametrize(
    ("answer", "limits", "reason"),
    [
        (pages(1, lambda number: "same"), {}, "repeats a page"),
        (pages(1, lambda number: str(number % 3)), {}, "repeats a page"),
        (pages(1, str), {}, r"more than 1000 pages \(ClientLimits\.list_pages\)"),
        (pages(1, str), {"list_pages": 7}, r"more than 7 pages"),
        (pages(60, str), {"list_entries": 100}, r"more than 100 entries \(ClientLimits\.list_entries\)"),
        (pages(60, str), {"list_bytes": 10_000}, r"more than 10000 bytes \(ClientLimits\.list_bytes\)"),
        (f'{{"tools":[{"0," * 3_000_000}0]}}', {}, r"more than 100000 entries \(ClientLimits\.list_entries\)"),
    ],
)
async def test_a_list_without_end_is_an_error(answer: Any, limits: dict[str, int], reason: str) -> None:
    async with scripted("tools/list", answer, **limits) as client:
        with memory(50 * MB), pytest.raises(ProtocolError, match=reason):
            await client.list_tools()


@pytest.mark.parametrize(
    "answer", [f'{{"a":{"[" * 100_000}{"]" * 100_000}}}', '{"content":[', '{"content":[]}}', '{"a":"\x01"}']
)
async def test_an_answer_that_is_no_json_fails_its_call(answer: str, caplog: pytest.LogCaptureFixture) -> None:
    """At once, and not when its time is over: the id stands before it."""
    async with scripted("tools/call", answer) as client:
        client.timeout = None
        with pytest.raises(ProtocolError, match="Parse error"):
            async with asyncio.timeout(20):
                await client.call_tool("any")
        assert len(caplog.records) == 1


async def test_a_result_that_asks_too_much_is_an_error() -> None:
    """2026-07-28: questions come in results."""
    gate = Gate()
    question = {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": {}}}
    answer = {"resultType": "input_required", "inputRequests": {str(number): question for number in range(100)}}
    async with scripted("tools/call", answer, Callbacks(elicit_form=gate), MODERN) as client:
        with pytest.raises(ProtocolError, match=r"ClientLimits\.questions"):
            await client.call_tool("any")
    assert gate.heard == []


async def test_a_question_given_up_keeps_its_place_until_its_callback_ends() -> None:
    """A server that asks and takes back in a loop gets no more work done at a time; an id may be used again."""
    ending = asyncio.Event()
    running = 0

    async def stubborn(params: ElicitFormParams) -> ElicitResult:
        nonlocal running
        running += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ending.wait()
            raise
        finally:
            running -= 1
        raise AssertionError

    script = Script(VERSION, {"ping": {}})
    limits = ClientLimits(questions=8)
    async with Client(script, Callbacks(elicit_form=stubborn), version=VERSION, limits=limits) as client:
        for _ in range(50):
            ask = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}, "id": "same"}
            script.channel.send(json.dumps({"jsonrpc": "2.0", **ask}).encode())
            told = {"method": "notifications/cancelled", "params": {"requestId": "same"}}
            await client.ping()
            script.channel.send(json.dumps({"jsonrpc": "2.0", **told}).encode())
            await client.ping()
        assert running == 8
        assert sum("error" in message for message in script.asked) == 42
        ending.set()


async def test_one_small_message_of_a_large_frame_does_not_keep_the_frame() -> None:
    gate = Gate()
    script = Script(VERSION, {"ping": {}})
    async with Client(script, Callbacks(log=gate), version=VERSION) as client:
        junk = b"x" * (2 * MB)
        with memory(60 * MB):
            for _ in range(100):
                script.channel.send(
                    b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1},"z":"%b"}'
                    % junk
                )
                await client.ping()
        gate.opened.set()


@pytest.mark.slow
async def test_memory_channels_hold_a_fast_sender_back() -> None:
    """A server of this process waits as one elsewhere does."""
    gate = Gate()
    script = Script(VERSION, {"ping": {}})
    frame = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%b"}}' % (b"x" * 1000)
    async with Client(script, Callbacks(log=gate), version=VERSION) as client:
        sent = 0

        async def send() -> None:
            nonlocal sent
            for _ in range(50_000):
                script.channel.send(frame)
                sent += 1
                if script.channel.is_congested:
                    await script.channel.drain()

        with memory(30 * MB):
            sending = asyncio.create_task(send())
            await held(client)
            assert sent < 5000
            gate.opened.set()
            await sending


@pytest.mark.parametrize(
    "wrong", [{"questions": 0}, {"waiting_bytes": -1}, {"list_pages": None}, {"message_bytes": "1"}]
)
def test_a_limit_is_a_number_above_0(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        ClientLimits(**wrong)
    assert ClientLimits(stderr_bytes_per_second=None).stderr_bytes_per_second is None
