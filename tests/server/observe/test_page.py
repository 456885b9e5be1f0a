"""The table of metrics in docs/reference/metrics.md says what there is: names, types, labels and meanings."""

from __future__ import annotations

import asyncio
import re

from conftest import REPOSITORY
from support.http_peer import serving
from support.wires import LEGACY, stdio_wire

from mcpd import Server
from mcpd.server.backplane.memory import MemoryBackplane
from mcpd.server.http import HttpSettings
from mcpd.server.observe.metrics import Family, Meter
from mcpd.server.observe.report import Heartbeat, Report
from mcpd.server.observe.watching import events_of

PAGE = REPOSITORY / "docs" / "reference" / "metrics.md"
_SUFFIXES = {"counter": "_total", "info": "_info"}
_ROW = re.compile(r"\| `(\w+)` \| (\w+) \| ([\w` ]*)\| (.+) \|")


def said() -> dict[str, tuple[str, set[str], str]]:
    """What the page says of each metric: type, labels, meaning."""
    found = {}
    for line in PAGE.read_text("utf-8").splitlines():
        row = _ROW.fullmatch(line)
        if row is not None and row[2] in ("counter", "gauge", "histogram", "info"):
            found[row[1]] = row[2], set(row[3].replace("`", "").split()), row[4]
    return found


async def everything() -> list[Family]:
    """All families of a server that has done all that is counted."""
    server = Server("all", state_key=b"k" * 32)
    meter = Meter(server.catalog.tools.find_enabled)
    server.add_observer(meter)
    server.tool(name="echo")(lambda: "x")
    server.event("made")(lambda event: True)
    async with stdio_wire(server, LEGACY[-1]) as wire:
        await wire.call("echo")
    async with serving(server, HttpSettings(backplane=MemoryBackplane())) as port:
        report = Report(server.identity, lambda: port.app.connections)
        report.meter, report.heartbeat = meter, Heartbeat(asyncio.get_running_loop())
        report.events = lambda: events_of(server)
        report.services.append(port.app.status)
        session = await port.open()
        await session.ask("tools/call", {"name": "none such"})
        await session.ask("no/such")
        await port.ask(session.delete())
        meter.backplane_answered("get", 0.1, "away")
        meter.task_changed("echo", None, 0.0)
        meter.task_changed("echo", "completed", 0.1)
        return report.families()


async def test_the_table_of_metrics_is_that_of_the_code() -> None:
    """OBS-01: what is not in the table is not there, and the other way round."""
    found = {
        family.name + _SUFFIXES.get(family.kind, ""): (
            str(family.kind), {name for sample in family.samples for name, _ in sample.labels}, family.help,
        )
        for family in await everything()
    }  # fmt: skip
    assert all(family.samples for family in await everything())
    assert found == said()
