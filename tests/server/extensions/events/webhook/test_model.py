"""Any history of emits, failures, refreshes and ends of processes, against a list of what may and must arrive.

What a store has accepted arrives, whatever ends; no cursor passes an event that its receiver has not accepted; nothing
arrives that was emitted before the subscription or after its end.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from support.clock import until
from support.webhook_receiver import Receiver, Request, certificate, receiving, reply
from support.webhook_stage import Node, event

from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.extensions.events.wire import order_of

LEASE = 0.05
AGAIN = {"delays": (0.01,) * 1000, "window": 10_000.0}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("emit"), st.integers(1, 4)),
        st.tuples(st.just("answer"), st.sampled_from(["ok", "fail", "odd", "drop"])),
        st.tuples(st.sampled_from(["die", "close", "refresh", "end", "begin", "flush"]), st.just(0)),
    ),
    max_size=14,
)


class World:
    """One service with one subscriber, whose processes come and go."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.backplane = MemoryBackplane()
        self.count = 0
        self.mode = "ok"
        self.accepted: set[str] = set()
        self.must: set[str] = set()
        self.may: set[str] = set()
        self.is_subscribed = False
        self.positions: dict[str, tuple[int, ...]] = {}
        self.node = self.started()
        receiver.answer = self.answer

    def started(self) -> Node:
        return Node(self.receiver, self.backplane, LEASE, AGAIN, allow=(f"{self.receiver.origin}/",))

    def answer(self, request: Request) -> Any:
        if "eventId" not in request.json:
            return None
        number = int(request.id[1:])
        self.check(request)
        if self.mode == "fail" or (self.mode == "odd" and number % 2):
            return reply(503)
        if self.mode == "drop":
            return _hang_up
        self.accepted.add(request.id)
        return None

    def check(self, request: Request) -> None:
        # EVT-061: all at or before the cursor was accepted, or is nothing to this subscriber any more.
        passed = order_of(request.json["cursor"].removeprefix("at "))
        self.positions.update({each.id: order_of(position) for position, each in self.node.events})
        late = {key for key in self.must - self.accepted if key in self.positions and self.positions[key] <= passed}
        assert not late, (request.id, late)

    async def emit(self, number: int) -> None:
        events = [event(self.count + each) for each in range(1, number + 1)]
        self.count += number
        self.node.emit(*events)
        await self.node.hooks.stored()
        if self.is_subscribed:
            self.must.update(each.id for each in events)
            self.may.update(each.id for each in events)

    async def do(self, step: str, value: Any) -> None:
        node = self.node
        if step == "emit":
            await self.emit(value)
        elif step == "answer":
            self.mode = value
        elif step in ("die", "close"):
            await (node.die() if step == "die" else node.aclose())
            self.node = self.started()
            await self.node.hooks.open()
        elif step in ("refresh", "begin"):
            await node.subscribe()
            self.is_subscribed = True
        elif step == "end":
            assert await node.unsubscribe() is self.is_subscribed
            self.is_subscribed = False
            self.must.clear()
        elif self.mode == "ok":
            await node.hooks.flush()


async def _hang_up(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.close()


# asyncio forgets a connection of TLS that is cancelled before its first turn; the collector closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(history=steps)
async def test_any_history(history: list[tuple[str, Any]]) -> None:
    """EVT-061, EVT-063, EVT-072, EVT-074."""
    async with receiving() as receiver:
        world = World(receiver)
        await world.node.hooks.open()
        for step, value in [("begin", 0), ("emit", 1), *history]:
            await world.do(step, value)
        world.mode = "ok"
        # A host that was not reached is tried again after a second or more: a refresh is quicker.
        await until(lambda: world.must <= world.accepted or _hurry(world))
        assert {each.id for each in receiver.events} <= world.may
        await world.node.aclose()
    gc.collect()


def _hurry(world: World) -> bool:
    for link in world.node.hooks.deliveries.links.values():
        link.host.retry_at = min(link.host.retry_at, asyncio.get_running_loop().time())
    return False


CHILD = """
import asyncio, sys
from support.webhook_receiver import Receiver
from support.webhook_stage import Node, event
from mcpd.server.backplane.sqlite import SqliteBackplane

async def main(path, port, first, number):
    receiver = Receiver()
    receiver.port = port
    node = Node(receiver, SqliteBackplane(path), 0.3, {"delays": (0.01,) * 1000}, allow=(receiver.origin + "/",))
    await node.subscribe()
    print("ready", flush=True)
    for each in range(first, first + number):
        node.emit(event(each))
        await node.hooks.stored()
        print(each, flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
"""


async def test_killed_in_the_middle(tmp_path: Path) -> None:
    """EVT-044, EVT-074: every event that the file has accepted arrives, after two kills by signal 9."""
    certificate()
    tests = str(Path(__file__).resolve().parents[4])
    environment = {**os.environ, "PYTHONPATH": tests, "MCPD_RECEIVER": str(certificate())}
    accepted: list[str] = []
    async with receiving() as receiver:
        failing = iter(range(10**9))
        receiver.answer = lambda _: reply(503) if next(failing) % 3 == 0 else None
        for first, number in ((1, 10_000), (20_001, 10_000), (40_001, 5)):
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CHILD, str(tmp_path / "events.db"), str(receiver.port), str(first), str(number),
                stdout=asyncio.subprocess.PIPE, env=environment,
            )  # fmt: skip
            assert child.stdout is not None
            assert await child.stdout.readline() == b"ready\n"
            for _ in range(min(number, 60)):
                accepted.append("E" + (await child.stdout.readline()).decode().strip())
            if number == 5:
                await receiver.until(lambda: set(accepted) <= {each.id for each in receiver.events})
            child.send_signal(signal.SIGKILL)
            await child.communicate()
    assert len(accepted) == 125
    assert len({each.headers["x-mcp-subscription-id"] for each in receiver.events}) == 1
