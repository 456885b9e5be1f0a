"""One app in the browser: shown once as it should be, once watched, and once for each quirk of other hosts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from mcpd.apps.host.host import Host
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view.context import HostContext
from mcpd.apps.preview.messages import Quirks
from mcpd.apps.verdict.browser import Theatre
from mcpd.apps.verdict.looks import (  # fmt: skip
    NO_LOOKS,
    NOTHING_SEEN,
    contrast_check,
    is_unlike,
    keyboard_checks,
    layout_check,
    looks_of,
    resize_check,
    shows,
)
from mcpd.apps.verdict.policy import console_check, needs_check, new_errors, policy_check
from mcpd.apps.verdict.protocol import ending_checks, handshake_check, protocol_checks, spy_check
from mcpd.apps.verdict.report import AppReport, Check, Finding, TryOptions, checked, skipped
from mcpd.apps.verdict.scene import Scene, show
from mcpd.errors import ConfigurationError
from mcpd.extensions.ui.csp_sources import UiCsp

_WIDE: Final = (1280, 800)
_NARROW: Final = (320, 800)
_LOOKS: Final = (
    f"layout-{_WIDE[0]}",
    f"It fits {_WIDE[0]} px",
    "not tried, nor how it looks, answers and does in other hosts: its handshake did not come to an end",
)
_RESULT: Final = ("shows-result", "It shows its result")
_ALL_AGAIN: Final = 0.35

QUIRKS: Final = {
    "drop-meta": (Quirks(drop_meta=True), "results without _meta"),
    "drop-structured": (Quirks(drop_structured_content=True), "results without structuredContent"),
    "no-tool-input": (Quirks(no_tool_input=True), "no tool-input"),
    "early-input": (Quirks(input_before_initialized=True), "tool-input before initialized"),
    "hidden": (Quirks(hidden_until_initialized=True), "a frame that is hidden until initialized"),
    "opaque": (Quirks(opaque_origin=True), "an opaque origin: no storage"),
    "error-result": (Quirks(error_result=True), "a result with isError"),
    "openai": (Quirks(openai_global=True), "window.openai"),
}
"""What other hosts do, by the name of its check: the switch, and what it is in words."""

_TOGETHER: Final = (
    ("drop-meta", "opaque", "openai"),
    ("drop-structured", "early-input"),
    ("no-tool-input", "hidden"),
    ("error-result",),
)
"""Quirks that are switched on in one showing. None of them takes from an app what another one tries."""


class _Stage:
    """What all showings of one app have in common."""

    def __init__(
        self, theatre: Theatre, host: Host, call: ToolCall, options: TryOptions, room: asyncio.Semaphore
    ) -> None:
        self.theatre = theatre
        self.host = host
        self.call = call
        self.options = options
        self.room = room
        self.scenes: list[Scene] = []
        self.looks = self.untold = NO_LOOKS
        """How it looks with its result, and before it is told of the call."""


async def show_app(
    theatre: Theatre, host: Host, call: ToolCall, options: TryOptions, report: AppReport, room: asyncio.Semaphore
) -> list[Check]:
    """All checks of an app that need a browser; pictures are added to the report.

    `room` is how many showings there may be at once, of all apps together.
    """
    stage = _Stage(theatre, host, call, options, room)
    try:
        first = await _first(stage, report)
    except ConfigurationError as error:
        return [checked("handshake", "It answers in time", [Finding(severity="failure", text=str(error))], "")]
    if not stage.scenes[0].sent("ui/notifications/initialized"):
        return [*first, *_blocked(stage)]

    known = {*stage.scenes[0].errors, *stage.scenes[0].complaints}
    if any(finding.cause == NOTHING_SEEN for check in first for finding in check.findings):
        known.add(NOTHING_SEEN)
    watched = await _watched(stage)
    of_result = await _result_check(stage)
    groups = await asyncio.gather(*(_with_quirks(stage, names, frozenset(known)) for names in _TOGETHER))
    by_name = {check.name: check for checks in groups for check in checks}
    others = [by_name[f"quirk-{name}"] for name in QUIRKS]
    return [first[0], watched, of_result, *first[1:], *others, *_blocked(stage)]


def _blocked(stage: _Stage) -> list[Check]:
    granted: UiCsp | None = stage.scenes[0].view.grant.csp
    return [policy_check(stage.scenes, granted)]


def _context(scheme: str, width: int) -> HostContext:
    from mcpd.apps.host.view.context import ContainerDimensions

    return HostContext(
        theme="dark" if scheme == "dark" else "light",
        locale="en-GB",
        time_zone="UTC",
        platform="web",
        container_dimensions=ContainerDimensions(width=width, max_height=4000),
    )


async def _first(stage: _Stage, report: AppReport) -> list[Check]:
    """As it should be: the handshake, what it answers, how it looks in all dresses, its end."""
    seconds = stage.options.timeout
    async with (
        stage.room,
        show(stage.theatre, stage.host, stage.call, context=_context("light", _WIDE[0]), size=_WIDE) as scene,
    ):
        stage.scenes.append(scene)
        is_live = await scene.is_live(seconds)
        checks = [handshake_check(scene, is_live=is_live, seconds=seconds)]
        if not is_live:
            await _picture(scene, stage.options, report, f"{_WIDE[0]}-light")
            return [*checks, skipped(*_LOOKS), needs_check(scene), console_check(scene)]

        await scene.settle()
        scene.refusal = await scene.look("(look) => look.refusal()") or ""
        checks += [await layout_check(scene, _WIDE[0]), await contrast_check(scene, "light")]
        stage.looks = await looks_of(scene)
        await _picture(scene, stage.options, report, f"{_WIDE[0]}-light")
        checks += await keyboard_checks(scene)
        checks.append(await resize_check(scene))

        await _dress(scene, "light", _NARROW)
        checks.append(await layout_check(scene, _NARROW[0]))
        await _picture(scene, stage.options, report, f"{_NARROW[0]}-light")
        await _dress(scene, "dark", _NARROW)
        await _picture(scene, stage.options, report, f"{_NARROW[0]}-dark")
        await _dress(scene, "dark", _WIDE)
        checks.append(await contrast_check(scene, "dark"))
        await _picture(scene, stage.options, report, f"{_WIDE[0]}-dark")

        checks += await protocol_checks(scene, seconds)
        checks += await ending_checks(scene)
        return [*checks, needs_check(scene), console_check(scene)]


async def _dress(scene: Scene, scheme: str, size: tuple[int, int]) -> None:
    """Another theme and another width, as a host tells them."""
    await scene.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await scene.page.set_viewport_size({"width": size[0], "height": size[1]})
    if not scene.view.is_over:
        told = _context(scheme, size[0])
        scene.view.change_context(HostContext(theme=told.theme, container_dimensions=told.container_dimensions))
    await scene.settle(1.5)
    # Colours may fade into each other.
    await asyncio.sleep(_ALL_AGAIN)


async def _picture(scene: Scene, options: TryOptions, report: AppReport, name: str) -> None:
    if options.screenshots is None:
        return
    folder = Path(options.screenshots)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", report.uri.removeprefix("ui://").partition("?")[0]).strip("-.")[:80]
    path = folder / f"{slug or 'app'}-{name}.png"
    await scene.page.screenshot(path=path)
    report.screenshots.append(str(path))


async def _watched(stage: _Stage) -> Check:
    """Once more, with a spy that writes down when it listens, and without a word of the call."""
    context = _context("light", _WIDE[0])
    is_live, log = False, None
    with suppress(ConfigurationError):  # others say so
        async with stage.room, show(stage.theatre, stage.host, stage.call, context=context, spied=True) as scene:
            is_live = await scene.is_live(stage.options.timeout)
            log = await scene.look("() => window.__mcpdSpy")
            if is_live:
                await scene.settle()
                stage.untold = await looks_of(scene)
    return spy_check(log, is_live=is_live)


async def _result_check(stage: _Stage) -> Check:
    """Whether it looks different with its result than without, or shows it all the same."""
    scene, result = stage.scenes[0], stage.call.result
    if scene.refusal:
        return skipped(*_RESULT, "it shows that something was refused")
    csp = scene.view.grant.csp
    asks = any(scene.sent(method) for method in ("tools/call", "resources/read"))
    if asks or (csp is not None and (csp.connect_domains or csp.frame_domains)):
        return skipped(*_RESULT, "it gets what it shows by itself")
    values = list(_values(result.structured_content or None)) if result and not result.is_error else []
    if not values:
        return skipped(*_RESULT, "there is nothing in structuredContent that could be shown")
    findings = []
    text = stage.looks[0]
    if stage.looks == stage.untold and text.strip() and not any(one in text for one in values):
        async with (
            stage.room,
            show(stage.theatre, stage.host, stage.call, context=_context("light", _WIDE[0])) as again,
        ):
            if not (await again.is_live(stage.options.timeout) and await is_unlike(again, stage.untold)):
                advice = "listen for ui/notifications/tool-result before ui/initialize is sent, and draw what it brings"
                said = "nothing of its result is to be seen: it looks the same without"
                findings.append(Finding(severity="failure", text=said, advice=advice))
    return checked(*_RESULT, findings, "it is to be seen", ["APP-V-03"])


def _values(value: Any) -> Iterator[str]:
    """All texts and numbers in a result, as they may be read on the page."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _values(inner)
    elif value not in (None, "") and not isinstance(value, bool):
        yield f"{value:g}" if isinstance(value, float) else str(value)


async def _with_quirks(stage: _Stage, names: tuple[str, ...], known: frozenset[str]) -> list[Check]:
    """Once more, as a host with these quirks treats it; if that goes wrong once for each, to know which it was."""
    try:
        findings, shown = await _treated(stage, names, known)
    except ConfigurationError as error:
        findings, shown = [Finding(severity="failure", text=str(error))], ""
    if findings and len(names) > 1:
        return [check for name in names for check in await _with_quirks(stage, (name,), known)]
    return [checked(f"quirk-{name}", f"It survives {QUIRKS[name][1]}", findings, shown, ["APP-V-05"]) for name in names]


async def _treated(stage: _Stage, names: tuple[str, ...], known: frozenset[str]) -> tuple[list[Finding], str]:
    """What goes wrong with these quirks, and what is shown: it has to live, show something, and throw nothing."""
    quirks, words = Quirks(), " and ".join(QUIRKS[name][1] for name in names)
    for name in names:
        told = QUIRKS[name][0]
        quirks = replace(quirks, **{member: True for member in Quirks.__struct_fields__ if getattr(told, member)})

    async with (
        stage.room,
        show(stage.theatre, stage.host, stage.call, quirks=quirks, context=_context("light", _WIDE[0])) as scene,
    ):
        if "opaque" not in names:
            stage.scenes.append(scene)
        is_live = await scene.is_live(stage.options.timeout)
        shown, is_told = "", True
        if is_live:
            await scene.settle()
            shown = await shows(scene)
            # By what is to be read: pictures may differ for other reasons, too.
            is_read = stage.looks[0] != stage.untold[0] and names != ("error-result",)
            is_told = not is_read or await is_unlike(scene, stage.untold)
            if not scene.view.is_over:
                await scene.view.close("the test is over")

        wrong = new_errors(scene, known, has_error_result=names == ("error-result",))
        findings = [replace(finding, text=f"with {words}: {finding.text}") for finding in wrong]
        if not is_live:
            why = scene.failure or (findings.pop(0).text if findings else "no answer in time")
            text = f"with {words} its handshake does not come to an end: {why.removeprefix(f'with {words}: ')}"
            findings.insert(0, Finding(severity="failure", text=text, advice="finish it whatever comes"))
        elif not shown and NOTHING_SEEN not in known:
            text, advice = f"with {words} nothing is to be seen", "show what there is, or say what is missing"
            findings.insert(0, Finding(severity="failure", text=text, advice=advice))
        elif not (is_told or findings):
            advice = "take it from content, structuredContent or _meta, whichever comes"
            text = f"with {words} nothing of its result is to be seen"
            findings.append(Finding(severity="warning", text=text, advice=advice))
        return findings, shown
