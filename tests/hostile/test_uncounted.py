"""What was held without being counted, and who got more than a share by giving another name each time."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from support.clock import until
from support.http_peer import MODERN, call, envelope, initialize, post, serving
from support.http_stage import Stage
from support.wires import OpenWire, memory_wire, stdio_wire, websocket_wire

from mcpd import Context, Params, Server
from mcpd.errors import ToolError
from mcpd.protocol.budget import BUDGET, OVER, Budget, client_of, weigh
from mcpd.server.functions import arguments
from mcpd.server.functions.arguments import DATETIME_FORMATS, coerce
from mcpd.server.functions.threads import Borrower, ThreadSlots
from mcpd.server.http import HttpSettings

pytestmark = pytest.mark.slow

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    gc.collect()
    assert BUDGET.used == 0
    BUDGET.most = 8 * MIB
    yield
    gc.collect()
    assert BUDGET.used == 0
    BUDGET.most = 0


# ------------------------------------------------------------------------------------ what is heavy


@pytest.mark.parametrize("piece", ["[],", "{},", "[   ],", '{"a":1},', "[[]],", '"ab",'])
@pytest.mark.parametrize("count", [2_000, 200_000])
def test_values_weigh_what_they_become(piece: str, count: int) -> None:
    text = (piece * count).encode()
    found = sorted(weigh(text) for _ in range(20))
    # Of each, 50 to 250 bytes become values of Python; where they stand helps nobody to hide them.
    assert found[3] > 35 * count
    assert found[-1] < 400 * count


def test_text_weighs_twice_its_length() -> None:
    assert weigh(b"x" * MIB) == 2 * MIB
    assert weigh(b"") == 0


@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire])
async def test_a_message_of_many_small_values_takes_what_they_become(open_wire: OpenWire) -> None:
    stage = Stage()
    async with open_wire(stage.server, MODERN) as wire:
        error = await wire.error("tools/call", {"name": "echo", "arguments": {"text": "x", "more": [[]] * 150_000}})
        assert error["message"] == OVER
        assert await wire.text("echo", text="x" * MIB) == "x" * MIB


async def test_a_body_of_many_small_values_takes_what_they_become() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        answer = await port.modern("tools/call", {"name": "echo", "arguments": {"text": "x", "more": [[]] * 150_000}})
        assert answer.status == 503


# ------------------------------------------------------------------------------ what is small but many


@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire])
@pytest.mark.parametrize("version", ["2025-11-25", MODERN])
async def test_many_small_calls_that_run_are_counted(open_wire: OpenWire, version: str) -> None:
    stage = Stage()
    BUDGET.most = 3 * MIB
    async with open_wire(stage.server, version) as wire, open_wire(stage.server, version) as other:
        calls = [wire.ask("tools/call", {"name": "wait", "arguments": {"door": "x" * 1000}}) for _ in range(480)]
        last = wire.ask("ping")
        refused = 0
        while (message := await wire.receive())["id"] != last:
            assert message["error"]["message"] == OVER
            calls.remove(message["id"])
            refused += 1
        assert refused > 150
        assert 64 < len(calls) < 320
        assert BUDGET.used < 3 * MIB
        # A few are free, and others are served.
        assert await other.text("echo", text="small") == "small"
        for request_id in calls:
            wire.cancel(request_id)
        await wire.quiet()
        assert await wire.text("echo", text="small") == "small"


async def test_what_clients_say_of_themselves_is_counted_as_long_as_their_session() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        statuses = []
        for _ in range(6):
            large = initialize(capabilities={"experimental": {"com.example/x": {"text": "x" * (MIB // 2)}}})
            answer = await port.ask(post(large))
            statuses.append(answer.status)
        assert statuses[:2] == [200, 200]
        assert statuses[-1] != 200
        assert BUDGET.used > MIB
        assert (await port.open()).id


class Note(Params):
    text: str = ""


def noted(entered: list[str], go: asyncio.Event) -> Server:
    server = Server("noted", max_in_flight=10)
    extension = server.extension("com.example/notes")

    @extension.notification("com.example/notes/wait", Note)
    async def wait(ctx: Context, params: Note) -> None:
        entered.append(params.text)
        await go.wait()

    return server


async def test_notifications_over_http_take_of_the_budget(caplog: pytest.LogCaptureFixture) -> None:
    entered: list[str] = []
    go = asyncio.Event()
    BUDGET.most = MIB
    meta = envelope({"extensions": {"com.example/notes": {}}})
    note = {"jsonrpc": "2.0", "method": "com.example/notes/wait", "params": {"_meta": meta, "text": "x"}}
    data = post(note, {"MCP-Protocol-Version": MODERN, "Mcp-Method": "com.example/notes/wait"})
    async with serving(noted(entered, go)) as port:
        statuses = [(await port.ask(data)).status for _ in range(120)]
        assert statuses[0] == 202
        assert statuses[-1] == 503
        assert len(entered) == statuses.count(202) < 100
        assert "Dropped com.example/notes/wait" in caplog.text
        go.set()
        await asyncio.sleep(0)
        await until(lambda: not BUDGET.used)
        assert (await port.ask(data)).status == 202


@pytest.mark.parametrize("open_wire", [memory_wire, stdio_wire, websocket_wire])
async def test_notifications_of_a_connection_are_bounded(open_wire: OpenWire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    entered: list[str] = []
    go = asyncio.Event()
    capabilities: dict[str, Any] = {"extensions": {"com.example/notes": {}}}
    async with open_wire(noted(entered, go), "2025-11-25", capabilities=capabilities) as wire:
        for number in range(100):
            wire.notify("com.example/notes/wait", {"text": str(number)})
        await wire.result("ping")
        assert len(entered) == 20
        assert "Dropped com.example/notes/wait" in caplog.text
        go.set()
        await wire.result("ping")


# ------------------------------------------------------------------------------ what takes the loop's time


def test_only_as_much_is_repaired_as_models_write() -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"type": "array", "items": {"type": "integer"}}, "y": {"type": "integer"}},
        "additionalProperties": {"type": "integer"},
    }
    assert coerce({"x": ["1"] * 5000, "y": "2"}, schema) == {"x": [1] * 5000, "y": 2}
    for huge in ({"x": ["1"] * 100_000}, {str(number): "1" for number in range(100_000)}):
        assert coerce(huge, schema) is huge
    nested = {"type": "object", "properties": {"x": {"type": "array", "items": schema["properties"]["x"]}}}  # type: ignore[index]
    found = coerce({"x": [["1"] * 1000] * 1000}, nested)
    assert sum(row != ["1"] * 1000 for row in found["x"]) < 10


@pytest.mark.parametrize("kind", DATETIME_FORMATS)
def test_what_is_too_long_for_a_date_is_not_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five megabytes of "1 day 1 day …" took eight seconds of the event loop."""
    monkeypatch.setattr(arguments, "_MAKERS", {})
    long = "1 day " * 1000
    assert arguments.reread(long, kind) is long


# ----------------------------------------------------------------------------------- another name each time


def test_an_address_is_a_client_whatever_its_second_half() -> None:
    assert client_of("2001:db8:1:2::1") == client_of("2001:db8:1:2:ffff::9%eth0") != client_of("2001:db8:1:3::1")
    assert (
        len({client_of(peer) for peer in ("::1", "::ffff:10.0.0.1", "::ffff:10.0.0.2", "10.0.0.1", "", "unix:")}) == 6
    )
    assert client_of("10.0.0.1", "who") == "who@10.0.0.1"


class _Program:
    """What a function runs for: a request of that client, by a connection that has no other unless one is given."""

    subject = "hang"

    def __init__(self, client: str, connection: object = None) -> None:
        self.owner = (connection or self, client)


async def test_made_up_tokens_leave_threads_to_other_addresses() -> None:
    slots = ThreadSlots(96, 0.01)
    took = 0
    for number in range(200):
        borrower = Borrower(_Program(client_of("10.0.0.1", f"token{number}")))
        try:
            await slots.acquire(borrower)
        except Exception:
            break
        took += 1
    assert 60 < took < 96
    await slots.acquire(Borrower(_Program(client_of("10.0.0.2", "somebody"))))


async def test_two_programs_that_hang_leave_threads_to_a_third_on_their_machine() -> None:
    """Nobody has a token, so all three are one address's; and another address still finds some."""
    slots = ThreadSlots(96, 0.01)

    async def take_all(program: object, client: str) -> int:
        took = 0
        with pytest.raises(ToolError, match="Try again later"):
            while True:
                await slots.acquire(Borrower(_Program(client, program)))
                took += 1
        return took

    local = client_of("127.0.0.1")
    took = [await take_all(object(), local) for _ in range(3)]
    assert took[0] == 64
    assert all(took)
    assert await take_all(object(), local) == 0
    assert await take_all(object(), client_of("10.0.0.2")) > 1


def test_made_up_tokens_leave_memory_to_other_addresses() -> None:
    took = 0
    while BUDGET.take(took, client_of("10.0.0.1", f"token{took}"), 70_000):
        took += 1
    assert BUDGET.take("other", client_of("10.0.0.2"), 70_000)
    BUDGET.give_back("other", client_of("10.0.0.2"), 70_000)
    for number in range(took):
        BUDGET.give_back(number, client_of("10.0.0.1", f"token{number}"), 70_000)
    assert BUDGET.used == 0
    assert not BUDGET._held


async def test_made_up_tokens_cost_other_addresses_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    async with serving(stage.server, HttpSettings(max_sessions=4)) as port:
        where = "10.0.0.2"
        core = port.app.core
        monkeypatch.setattr(core, "owner", lambda visit: client_of(where, core.principal(visit)))
        quiet = await port.open()
        where = "10.0.0.1"
        for number in range(8):
            answer = await port.ask(post(initialize(), {"Authorization": f"Bearer {number}"}))
            assert answer.status == 200
        assert (await quiet.ask("ping", id=9)).status == 200


async def test_long_headers_are_not_remembered() -> None:
    stage = Stage()
    async with serving(stage.server) as port:
        for number in range(5):
            await port.ask(post(call("ping"), {"Accept": f"application/json, text/event-stream, {number}{'x' * 5000}"}))
        assert sum(len(json.dumps(key, default=repr)) for key in port.app._checked) < 5000


async def test_that_the_budget_is_used_up_is_said_again(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    now, own = 1000.0, Budget(MIB)
    monkeypatch.setattr("mcpd.protocol.budget.monotonic", lambda: now)
    for _ in range(10):
        now += 20
        assert not own.take("one", "", 100 * MIB)
    assert 3 <= caplog.text.count("Refused 104857600 bytes") <= 4
