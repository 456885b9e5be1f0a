"""`mcpd ping`: whether a server answers, and how fast."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from mcpd.cli.client_options import client_command, json_option, reach_of
from mcpd.cli.talk.reach import Reach, in_words, opened, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import McpdError
from mcpd.protocol.printable import printable

_HELP = """Ask a server several times whether it is there, and print how long each answer took.

\b
  mcpd ping server.py
  mcpd ping --count 100 --interval 0 server.py
"""


@client_command(
    "ping",
    _HELP,
    click.Argument(["target"], required=False),
    click.Option(["--count", "-c"], type=click.IntRange(min=1), default=4, show_default=True, help="How many times."),
    click.Option(
        ["--interval", "-i"],
        type=click.FloatRange(min=0),
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        help="The pause between two.",
    ),
    json_option("Print one line of JSON, with all times in seconds."),
)
def command(
    target: str | None, count: int, interval: float, as_json: bool, command: tuple[str, ...], **shared: Any
) -> int:
    if target is not None and command:
        raise WrongUse(f"{target!r} is one word too many; the command behind -- is the server")
    reach = reach_of(target, command, shared)
    return run(lambda terminal: _ping(terminal, reach, count, interval, as_json=as_json), reach)


async def _ping(terminal: Terminal, reach: Reach, count: int, interval: float, *, as_json: bool) -> int:
    began = time.perf_counter()
    async with opened(reach) as client:
        opening = time.perf_counter() - began
        info = client.server_info
        name = f"{printable(info.name)} {printable(info.version)}" if info is not None else "the server"
        if not as_json:
            terminal.out_safe(f"{name} (protocol {client.version}), ready after {_ms(opening)}")

        times: list[float] = []
        failed = 0
        for number in range(count):
            if number:
                await asyncio.sleep(interval)
            at = time.perf_counter()
            try:
                await client.ping()
            except McpdError as error:
                failed += 1
                terminal.note(f"mcpd: {number + 1}: {in_words(error, reach)}", "red")
                continue
            times.append(time.perf_counter() - at)
            if not as_json:
                terminal.out_safe(f"{number + 1}: {_ms(times[-1])}")

    if as_json:
        from mcpd.cli.talk.content import one_line

        said = {"server": info, "protocolVersion": client.version, "ready": opening, "times": times, "failed": failed}
        terminal.out_json(one_line(said))
    elif times:
        average = sum(times) / len(times)
        shown = " / ".join(map(_ms, (min(times), average, max(times))))
        terminal.out_safe(f"{len(times)} of {count} answered; least / mean / most: {shown}")
    return 1 if failed else 0


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
