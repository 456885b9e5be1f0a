"""Checks of what a View renders and of its use by keyboard, at several widths and in both colour schemes.

The measurements are in assets/verdict/look.js. Spec: WCAG 2.2, levels A and AA.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

from .policy import start_failure
from .report import Check, Finding, checked, failure, note, skipped, warning
from .trial import Trial

NOTHING_RENDERED: Final = "nothing is visible"
"""The cause of findings about a View that renders nothing."""

_MAX_STOPS: Final = 80
_LOOP_SECONDS: Final = 1.0
_MAX_SIZES: Final = 10
_FRAME_HEIGHT: Final = 400
# Pixels that a frame gets beyond the height of its content, to find out whether the View grows with it.
_EXTRA_HEIGHT: Final = 300


class Appearance(NamedTuple):
    text: str = ""
    picture: str = ""


async def rendered(trial: Trial, seconds: float = 2.0) -> str:
    """Return a sentence if the View renders something within this time, or an empty string."""

    async def is_rendered() -> bool:
        picture = await trial.picture()
        return bool(picture and await trial.evaluate("(look, picture) => look.shows(picture)", picture))

    return "something is visible" if await _wait_until(trial, is_rendered, seconds) else ""


async def appearance_of(trial: Trial) -> Appearance:
    return Appearance(await trial.evaluate("(look) => look.text()") or "", await trial.picture())


async def differs_from(trial: Trial, other: Appearance) -> bool:
    """Return whether the View looks different from another trial, now or within three seconds."""

    async def differs() -> bool:
        return await appearance_of(trial) != other

    return await _wait_until(trial, differs, 3.0)


async def _wait_until(trial: Trial, condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > end or trial.view.is_over:
            return False
        await asyncio.sleep(0.1)
    return True


async def layout_check(trial: Trial, width: int) -> Check:
    """Check that the View renders something at this width without horizontal scrolling."""
    text_if_rendered = await rendered(trial)
    overflow = await trial.evaluate("(look) => look.overflow()")
    findings = []
    if not text_if_rendered:
        text = f"nothing is visible at {width} px"
        if (unloaded := start_failure(trial)) is not None:
            text = f"{text}: {unloaded.text}"
        advice = "show the result, or a text without one: an empty frame looks broken"
        findings.append(failure(text, advice, cause=NOTHING_RENDERED))

    if overflow and overflow["by"] > 1:
        text = f"it is {overflow['by']:g} px too wide for {overflow['width']} px"
        wide = f"; {', '.join(overflow['wide'])} stick out" if overflow["wide"] else ""
        advice = "let it wrap or shrink, or give it a scroll bar of its own (overflow-x: auto)"
        findings.append(warning(f"{text}{wide}", advice, cause="too wide"))

    return checked(f"layout-{width}", f"It fits {width} px", findings, text_if_rendered)


async def contrast_check(trial: Trial, scheme: str) -> Check:
    """Check the contrast of all text with its background in the current colour scheme."""
    name, title = f"contrast-{scheme}", f"It can be read, {scheme}"
    await trial.evaluate("(look) => look.veiled(true)")
    measured = await trial.evaluate("(look, picture) => look.contrast(picture)", await trial.picture())
    if measured is None:
        return skipped(name, title, "nothing is shown")

    def found() -> Iterator[Finding]:
        for poor in measured["poor"]:
            text = f"{poor['text']!r} in {poor['element']}: {poor['front']} on {poor['back']} is {poor['ratio']}:1"
            advice = f"at least {poor['wanted']:g}:1 is needed"
            if poor["isBare"]:
                # The background belongs to the host, and that of another host may be different.
                advice += "; the app draws no background here: set one, and color-scheme on the root"
            yield warning(text, advice, element=poor["element"], cause="contrast")

    return checked(name, title, found(), f"{measured['looked']} texts have enough contrast")


async def resize_check(trial: Trial) -> Check:
    """Check that the View settles on a size."""
    before = len(trial.sizes())
    await asyncio.sleep(_LOOP_SECONDS)
    sizes = trial.sizes()
    requested = [(event.width, event.height) for event in sizes[before:]]
    changes = sum(one != other for one, other in itertools.pairwise(requested))
    findings = []
    text = ""
    if changes > _MAX_SIZES:
        first, last = requested[0][1] or 0, requested[-1][1] or 0
        text = f"it asks for a new size {changes} times in a second: {first:g} to {last:g} px high"
    elif sizes:
        height = sizes[-1].height or 0
        given = await trial.requested_height(_FRAME_HEIGHT) + _EXTRA_HEIGHT
        wanted = await trial.requested_height(given)
        if wanted > given + 1:
            text = f"it grows with its frame: in a frame {given:g} px high it asks for {wanted:g} px"
        await trial.requested_height(height)

    if text:
        advice = "report the height of the content, not of the window (100vh), or the frame grows without end"
        findings.append(failure(text, advice, "APP-V-02"))
    elif not sizes:
        advice = "send ui/notifications/size-changed, so that hosts can give it the height that it needs"
        findings.append(note("it never requests a size", advice, "APP-V-02"))

    ok = f"{sizes[-1].height or 0:g} px high" if sizes else "requests no size"
    return checked("resize", "It settles on a size", findings, ok, ["APP-V-02"])


async def keyboard_checks(trial: Trial) -> list[Check]:
    """Check that controls have names, that Tab reaches them, and that the focus is visible."""
    controls = await trial.evaluate("(look) => look.controls()")
    if controls is None:
        return [skipped("names", "Controls have names", "nothing is shown")]
    names = checked("names", "Controls have names", _name_findings(controls), f"{len(controls)} controls", [])
    if not controls:
        return [names, skipped("keyboard", "It can be used by keyboard", "it has no controls")]
    stops = await _press_tab(trial)
    findings = [*_reach_findings(controls, stops), *_focus_findings(stops)]
    return [names, checked("keyboard", "It can be used by keyboard", findings, f"{len(stops)} stops", [])]


def _name_findings(controls: list[Any]) -> Iterator[Finding]:
    for control in controls:
        element = control["element"]
        if not control["name"] and not control["isPlain"]:
            content = f" {control['text']!r}" if control["text"] else ""
            advice = "give it a text, a <label> or aria-label: a screen reader has no name for it"
            text = f"{element}{content} has no name"
            yield warning(text, advice, element=element, cause="names")

        if control["hasPositive"]:
            text = f"{element} has a tabindex above 0, which puts it before all others"
            advice = "write tabindex=0, and move the element to its place in the document"
            yield warning(text, advice, cause="tabindex")


async def _press_tab(trial: Trial) -> list[Any]:
    # Press Tab until the focus leaves the View or returns to a control, and return the stops.
    await trial.evaluate("(look) => look.unfocused()")
    await trial.page.evaluate("() => { document.body.tabIndex = -1; document.body.focus(); }")
    stops: list[Any] = []
    seen: set[int] = set()
    previous = -1
    for _ in range(_MAX_STOPS):
        await trial.page.keyboard.press("Tab")
        stop = await trial.evaluate("(look) => look.focus()")
        if stop is None:
            if stops:
                break
            continue

        # A date field has a stop for each of its parts.
        if stop["index"] == previous:
            continue
        if stop["index"] in seen:
            break
        previous = stop["index"]
        seen.add(previous)
        stops.append(stop)

    return stops


def _reach_findings(controls: list[Any], stops: list[Any]) -> Iterator[Finding]:
    if len(stops) >= _MAX_STOPS:
        return
    reached = {stop["index"] for stop in stops}
    for index, control in enumerate(controls):
        if index not in reached and not control["isPart"] and not control["isRadio"]:
            name = control["name"] or control["text"] or "without a name"
            text = f"{control['element']} ({name}) is not reached by Tab"
            advice = "use a <button>, <a href> or tabindex=0; tabindex=-1 is for parts of a widget with keys of its own"
            yield warning(text, advice, cause="not reached by Tab")


def _focus_findings(stops: list[Any]) -> Iterator[Finding]:
    for stop in stops:
        if not stop["isSeen"]:
            text = f"{stop['element']} ({stop['name']}) looks the same with the focus as without"
            advice = "keep the outline, or mark the focus in another way"
            yield warning(text, advice, cause="focus not visible")
