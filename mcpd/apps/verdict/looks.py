"""Checks of how a View looks and whether it can be used: wide and narrow, light and dark, by keyboard.

What is measured is in assets/verdict/look.js. Spec: WCAG 2.2, levels A and AA.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from mcpd.apps.verdict.policy import start_failure
from mcpd.apps.verdict.report import Check, Finding, checked, skipped
from mcpd.apps.verdict.scene import Scene

NOTHING_SEEN: Final = "nothing is to be seen"
NO_LOOKS: Final = ("", "")
_MOST_STOPS: Final = 80
_LOOP_SECONDS: Final = 1.0
_MOST_SIZES: Final = 10
_FRAME: Final = 400
_ROOM: Final = 300
"""Pixels: a frame of some height, and how much more than its content needs it is given to see whether that grows."""


async def shows(scene: Scene, seconds: float = 2.0) -> str:
    """That something is painted in the View, in words; "" if nothing is after so many seconds."""

    async def is_painted() -> bool:
        picture = await scene.picture()
        return bool(picture and await scene.look("(look, picture) => look.shows(picture)", picture))

    return "something is to be seen" if await _becomes(scene, is_painted, seconds) else ""


async def looks_of(scene: Scene) -> tuple[str, str]:
    """The text and the picture of a View, to be compared with those of another showing."""
    return await scene.look("(look) => look.text()") or "", await scene.picture()


async def is_unlike(scene: Scene, other: tuple[str, str], seconds: float = 3.0) -> bool:
    """Whether the View looks different from another showing, or does so after a while."""

    async def differs() -> bool:
        return await looks_of(scene) != other

    return await _becomes(scene, differs, seconds)


async def _becomes(scene: Scene, holds: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not await holds():
        if time.monotonic() > end or scene.view.is_over:
            return False
        await asyncio.sleep(0.1)
    return True


async def layout_check(scene: Scene, width: int) -> Check:
    """Whether it shows something at the width that its frame has now, without scrolling to the side."""
    name, title = f"layout-{width}", f"It fits {width} px"
    shown = await shows(scene)
    told = await scene.look("(look) => look.overflow()")
    findings = []
    if not shown:
        advice = "show the result, or say that there is none: an empty frame looks broken"
        text = f"nothing is to be seen at {width} px"
        if (unloaded := start_failure(scene)) is not None:
            text = f"{text}: {unloaded.text}"
        findings.append(Finding(severity="failure", text=text, advice=advice, cause=NOTHING_SEEN))
    if told and told["by"] > 1:
        text = f"it is {told['by']:g} px too wide for {told['width']} px"
        wide = f"; {', '.join(told['wide'])} stick out" if told["wide"] else ""
        advice = "let it wrap or shrink, or scroll by itself (overflow-x: auto)"
        findings.append(Finding(severity="warning", text=f"{text}{wide}", advice=advice, cause="too wide"))
    return checked(name, title, findings, shown)


async def contrast_check(scene: Scene, scheme: str) -> Check:
    """Whether all text can be told from what is behind it, in the scheme that is set."""
    name, title = f"contrast-{scheme}", f"It can be read, {scheme}"
    await scene.look("(look) => look.veiled(true)")
    told = await scene.look("(look, picture) => look.contrast(picture)", await scene.picture())
    if told is None:
        return skipped(name, title, "there is nothing to look at")

    def found() -> Iterator[Finding]:
        for poor in told["poor"]:
            text = f"{poor['text']!r} in {poor['element']}: {poor['front']} on {poor['back']} is {poor['ratio']}:1"
            advice = f"at least {poor['wanted']:g}:1 is needed"
            if poor["isBare"]:
                # Nothing of its own is behind the text: it may look better on the background of another host.
                advice += "; nothing of the app's is behind it: set a background, and color-scheme on the root"
            yield Finding(severity="warning", text=text, advice=advice, element=poor["element"], cause="contrast")

    return checked(name, title, found(), f"{told['looked']} texts have enough contrast")


async def resize_check(scene: Scene) -> Check:
    """Whether it settles on a size."""
    before = len(scene.sizes())
    await asyncio.sleep(_LOOP_SECONDS)
    sizes = scene.sizes()
    asked = [(event.width, event.height) for _, event in sizes[before:]]
    more = sum(one != other for one, other in itertools.pairwise(asked))
    findings = []
    text = ""
    if more > _MOST_SIZES:
        text = f"it asks for a new size {more} times in a second: {asked[0][1] or 0:g} to {asked[-1][1] or 0:g} px high"
    elif sizes:
        last = sizes[-1][1].height or 0
        given = await scene.asked_height(_FRAME) + _ROOM
        wanted = await scene.asked_height(given)
        if wanted > given + 1:
            text = f"it grows with its frame: in a frame {given:g} px high it asks for {wanted:g} px"
        await scene.asked_height(last)
    if text:
        advice = "report the height of the content, not of the window (100vh): the frame grows with it, without end"
        findings.append(Finding(severity="failure", text=text, advice=advice, rule="APP-V-02"))
    elif not sizes:
        advice = "send ui/notifications/size-changed, so that hosts can give it the height that it needs"
        findings.append(Finding(severity="note", text="it never says how large it is", advice=advice, rule="APP-V-02"))
    last_size = f"{sizes[-1][1].height or 0:g} px high" if sizes else "says no size"
    return checked("resize", "It settles on a size", findings, last_size, ["APP-V-02"])


async def keyboard_checks(scene: Scene) -> list[Check]:
    """Whether all that can be used has a name and is reached by Tab, and whether one sees where the focus is."""
    controls = await scene.look("(look) => look.controls()")
    if controls is None:
        return [skipped("names", "Controls have names", "there is nothing to look at")]
    names = checked("names", "Controls have names", _of_names(controls), f"{len(controls)} controls", [])
    if not controls:
        return [names, skipped("keyboard", "It can be used by keyboard", "there is nothing to use")]
    stops = await _tab_through(scene)
    return [
        names,
        checked("keyboard", "It can be used by keyboard", _of_stops(controls, stops), f"{len(stops)} stops", []),
    ]


def _of_names(controls: list[Any]) -> Iterator[Finding]:
    for control in controls:
        if not control["name"] and not control["isPlain"]:
            inner = f" {control['text']!r}" if control["text"] else ""
            text = f"{control['element']}{inner} has no name"
            advice = "give it a text, a <label> or aria-label: a screen reader says nothing of what it does"
            yield Finding(severity="warning", text=text, advice=advice, element=control["element"], cause="names")
        if control["hasPositive"]:
            text = f"{control['element']} has a tabindex above 0, which puts it before all others"
            yield Finding(
                severity="warning", text=text, advice="write tabindex=0, and put it where it belongs", cause="tabindex"
            )


async def _tab_through(scene: Scene) -> list[Any]:
    """Press Tab until the focus leaves the View, or comes round: where it stopped."""
    await scene.look("(look) => look.unfocused()")
    await scene.page.evaluate("() => { document.body.tabIndex = -1; document.body.focus(); }")
    stops: list[Any] = []
    seen: set[int] = set()
    last = -1
    for _ in range(_MOST_STOPS):
        await scene.page.keyboard.press("Tab")
        stop = await scene.look("(look) => look.focus()")
        if stop is None:
            if stops:
                break
            continue
        # A field for a date has a stop for each of its parts.
        if stop["index"] == last:
            continue
        if stop["index"] in seen:
            break
        last = stop["index"]
        seen.add(last)
        stops.append(stop)
    return stops


def _of_stops(controls: list[Any], stops: list[Any]) -> Iterator[Finding]:
    reached = {stop["index"] for stop in stops}
    if len(stops) < _MOST_STOPS:
        for index, control in enumerate(controls):
            if index in reached or control["isPart"] or control["isRadio"]:
                continue
            called = control["name"] or control["text"] or "without a name"
            text = f"{control['element']} ({called}) is not reached by Tab"
            advice = "use a <button> or <a href>, or tabindex=0; tabindex=-1 only within a widget that has its own keys"
            yield Finding(severity="warning", text=text, advice=advice, cause="not reached by Tab")
    for stop in stops:
        if not stop["isSeen"]:
            text = f"{stop['element']} ({stop['name']}) looks the same with the focus as without"
            advice = "keep the outline, or draw another sign of the focus"
            yield Finding(severity="warning", text=text, advice=advice, cause="focus not seen")
