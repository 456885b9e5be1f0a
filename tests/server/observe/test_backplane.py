"""What is seen of a backplane: whether it is there, and how long it takes, command by command."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from support.clock import until
from support.http_peer import serving

from mcpd import Server
from mcpd.server.backplane import base
from mcpd.server.backplane.base import Backplane, BackplaneAway
from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.backplane.node import timed_backplane
from mcpd.server.http import HttpSettings
from mcpd.server.observe.metrics import SHORT_BOUNDS, Meter, Sample, expose
from mcpd.server.observe.report import Report


class Leaving(MemoryBackplane):
    """One that can go away."""

    def leave(self) -> None:
        self.away_since = asyncio.get_running_loop().time() - 3

    async def get(self, key: str) -> bytes | None:
        if self.away_since is not None:
            raise BackplaneAway("gone")
        return await super().get(key)


def commands(meter: Meter) -> dict[tuple[str, str], Sample]:
    (family,) = (each for each in meter.families() if each.name == "mcpd_backplane_command_seconds")
    assert family.bounds == SHORT_BOUNDS
    return {
        (dict(sample.labels)["command"], dict(sample.labels).get("error_type", "")): sample for sample in family.samples
    }


async def test_a_session_on_a_backplane_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("shared", state_key=b"k" * 32)
    meter = Meter(server.catalog.tools.find_enabled)
    server.add_observer(meter)
    backplane = Leaving()
    async with serving(server, HttpSettings(backplane=backplane)) as port:
        report = Report(server.identity, lambda: port.app.connections)
        report.meter = meter
        report.services.append(port.app.status)
        session = await port.open()
        await session.ask("ping")
        seen = commands(meter)
        assert {name for name, _ in seen} >= {"set", "subscribe"}
        assert all(sum(sample.counts) > 0 and len(sample.counts) == len(SHORT_BOUNDS) + 1 for sample in seen.values())
        assert b"mcpd_backplane_up 1\n" in expose(report.families())
        assert b'mcpd_backplane_command_seconds_bucket{command="set",le="0.0005"}' in expose(report.families())
        assert report.status().backplane == ""
        assert report.status().sessions == 1

        # SCALE-18: what somebody else says on the bus is counted where it can be seen.
        assert b"mcpd_backplane_refused_total 0\n" in expose(report.families())
        for junk in (b"", b"x", bytes(5000)):
            assert await backplane.publish("all", junk) == 1
        await until(lambda: b"mcpd_backplane_refused_total 3\n" in expose(report.families()))
        assert b"mcpd_backplane_dropped_total 0\n" in expose(report.families())

        backplane.leave()
        assert b"mcpd_backplane_up 0\n" in expose(report.families())
        assert report.status().backplane == "backplane away for 3 s"
        with pytest.raises(BackplaneAway):
            await port.app.core.sharing.node.backplane.get("k")
        assert sum(commands(meter)["get", "away"].counts) == 1
        backplane.away_since = None


async def test_one_that_nobody_shares_is_none() -> None:
    """A state key alone seals ids: nothing is there that could be away."""
    server = Server("alone", state_key=b"k" * 32)
    async with serving(server) as port:
        report = Report(server.identity, tuple)
        report.services.append(port.app.status)
        assert b"backplane" not in expose(report.families())
        assert report.status().backplane is None


async def test_every_primitive_is_timed_and_gives_what_it_is_given() -> None:
    """One that is added to `Backplane` has to be timed too."""
    told: list[tuple[str, str]] = []
    timed: Backplane = timed_backplane(MemoryBackplane(), [lambda name, seconds, error: told.append((name, error))])
    heard: list[bytes] = []
    assert await timed.set("a", b"1", 60)
    assert not await timed.set("a", b"2", 60, only_new=True)
    assert await timed.get("a") == b"1"
    assert await timed.swap("a", b"1", b"2", 60)
    await timed.delete("a")
    await timed.append("log", [b"x"], 10, 60)
    assert [data for _, data in await timed.read("log")] == [b"x"]
    await timed.subscribe("c", heard.append)
    assert await timed.publish("c", b"y") == 1
    await timed.unsubscribe("c", heard.append)
    timed.on_gap(lambda: None)
    assert timed.away_since is None
    await timed.aclose()
    asynchronous = {name for name, each in vars(base.Backplane).items() if inspect.iscoroutinefunction(each)}
    assert {name for name, _ in told} == asynchronous - {"aclose"}
    assert {error for _, error in told} == {""}


async def test_what_a_command_raises_is_told_by_its_class() -> None:
    class Broken(MemoryBackplane):
        async def get(self, key: str) -> bytes | None:
            raise ValueError("hunter2")

    told: list[Any] = []
    timed = timed_backplane(Broken(), [lambda *what: told.append(what)])
    with pytest.raises(ValueError, match="hunter2"):
        await timed.get("k")
    ((name, seconds, error),) = told
    assert (name, error) == ("get", "ValueError")
    assert seconds >= 0
