"""How long somebody waits for `mcpd preview`: until its page is painted, and from a call until its View is.

Each round starts `mcpd preview` as a process of its own, opens its page in a Chromium that runs already, and calls a
tool with an app: `python tests/bench/preview_paint.py`. Needs Chromium. Milliseconds:

    start      from the start of the command until it has printed the address
    page       from the navigation to the page's first contentful paint
    tools      from the navigation until the tools are listed
    live       from the press of "Call" until the View has sent `initialized`
    view       from the press of "Call" until the first contentful paint of the View's own frame
    again      the same for a second call, of which the document is known
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.browser import Chromium, Frame, Page, find_chromium  # noqa: E402

NAMES = ("start", "page", "tools", "live", "view", "again")

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
# Both clocks count from the start of their own document; of two documents on one machine they can be compared.
CALLED = "performance.timeOrigin + performance.getEntriesByName('mcpd:call').at(-1).startTime"
SHOWN = f"({PAINT}) && performance.timeOrigin + {PAINT}"
LIVE = "performance.getEntriesByName('mcpd:view').at(-1)?.duration"


@contextlib.asynccontextmanager
async def preview(target: list[str], folder: str) -> AsyncIterator[tuple[str, float]]:
    """The command as a process: the address that it printed, and when."""
    command = [sys.executable, "-m", "mcpd", "preview", "--no-open", *target]
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        yield line.decode().strip(), (time.perf_counter() - began) * 1000
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        await process.wait()


async def guest(page: Page, *before: Frame) -> Frame:
    """The View's own frame."""
    known = {frame.url for frame in before}
    while True:
        for frame in list(page.frames.values()):
            if "/guest" in frame.url and frame.url not in known and frame.context is not None:
                return frame
        await asyncio.sleep(0.005)


async def shown(page: Page, main: Frame, *before: Frame) -> tuple[Frame, float]:
    """Press "Call": the View's frame, and milliseconds until its first contentful paint."""
    await main.evaluate("document.querySelector('.actions .primary').click()")
    frame = await guest(page, *before)
    painted = float(await frame.until(SHOWN))
    return frame, painted - float(await main.evaluate(CALLED))


async def one_round(chromium: Chromium, target: list[str], folder: str) -> dict[str, float]:
    """One start of the command, one page, two calls."""
    took: dict[str, float] = {}
    async with preview(target, folder) as (url, started), chromium.page(width=1280, height=800) as page:
        took["start"] = started
        main = await page.goto(url)
        took["page"] = float(await main.until(PAINT))
        ready = "document.querySelector('.actions .primary') && performance.now()"
        took["tools"] = float(await main.until(ready))
        await main.evaluate("new Promise((idle) => requestIdleCallback(idle))")
        first, took["view"] = await shown(page, main)
        took["live"] = float(await main.until(LIVE))
        _, took["again"] = await shown(page, main, first)
    return took


async def measure(rounds: int, target: list[str]) -> dict[str, list[float]]:
    """All rounds in one browser, after one that is not counted."""
    executable = find_chromium()
    if executable is None:
        raise SystemExit("needs Chromium: apt-get install chromium, or name one in MCPD_TEST_CHROMIUM")
    chromium = Chromium(executable)
    took: dict[str, list[float]] = {name: [] for name in NAMES}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number in range(rounds + 1):
                told = await one_round(chromium, target, folder)
                for name in NAMES if number else ():
                    took[name].append(told[name])
    finally:
        chromium.close()
    return took


def main() -> None:
    """Print median and maximum of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="*", help="what is previewed; left out: the starter, with its diagnostics app")
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    target = [os.path.abspath(word) if os.path.exists(word) else word for word in arguments.target]
    for name, times in asyncio.run(measure(arguments.rounds, target)).items():
        print(f"{name:6} median {statistics.median(times):6.0f} ms   max {max(times):6.0f} ms")


if __name__ == "__main__":
    main()
