"""Try the apps of a server: read their metadata and HTML, call a tool of each, and show it in a browser.

An app is shown once as a strict host shows it, once with a spy, and once for each group of quirks of other hosts.
`try_apps` is the command `mcpd apps test` and the fixture `mcpd_apps`. The findings are one `AppsReport`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from mcpd.apps.host.document import grant, read_document
from mcpd.apps.host.host import Host, HostOptions
from mcpd.apps.host.shown_view import Hooks
from mcpd.apps.host.tool_call import ToolCall
from mcpd.apps.host.view.context import ContainerDimensions, HostContext
from mcpd.apps.preview.messages import Quirks
from mcpd.client.target import Target
from mcpd.errors import ConfigurationError
from . import rendering
from .browser import AppBrowser, open_browser
from .calling import call_app_tool
from .document import document_checks
from .metadata import App, read_apps, resource_checks, server_checks, tool_checks
from .policy import console_check, needs_check, new_errors, policy_check
from .protocol import HANDSHAKE, handshake_check, protocol_checks, spy_check, teardown_check
from .report import (
    AppReport,
    AppsReport,
    Check,
    Finding,
    TryOptions,
    checked,
    failure,
    skipped,
    warning,
)
from .trial import Trial, open_trial

_WIDE: Final = (1280, 800)
_NARROW: Final = (320, 800)
_LAYOUT: Final = (f"layout-{_WIDE[0]}", f"It fits {_WIDE[0]} px")
_RESULT: Final = ("shows-result", "It shows its result")
_FADE_SECONDS: Final = 0.35
_NO_QUIRKS: Final = Quirks()

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

# Quirks that are tried together, because none of them hides the effect of another.
_GROUPS: Final = (
    ("drop-meta", "opaque", "openai"),
    ("drop-structured", "early-input"),
    ("no-tool-input", "hidden"),
    ("error-result",),
)


class _AppTrials:
    """What all trials of one app share. `limit` bounds the Views of all apps that are open at a time."""

    def __init__(
        self,
        browser: AppBrowser,
        host: Host,
        call: ToolCall,
        options: TryOptions,
        report: AppReport,
        limit: asyncio.Semaphore,
    ) -> None:
        self.browser = browser
        self.host = host
        self.call = call
        self.options = options
        self.report = report
        self.limit = limit
        self.trials: list[Trial] = []
        self.with_result = self.without_result = rendering.Appearance()

    @asynccontextmanager
    async def open(self, quirks: Quirks = _NO_QUIRKS, *, spied: bool = False) -> AsyncIterator[Trial]:
        context = _context("light", _WIDE[0])
        opening = open_trial(
            self.browser, self.host, self.call, quirks=quirks, context=context, size=_WIDE, spied=spied
        )
        async with self.limit, opening as trial:
            yield trial

    async def take_screenshot(self, trial: Trial, name: str) -> None:
        if self.options.screenshots is not None:
            slug = re.sub(r"[^A-Za-z0-9._-]+", "-", self.report.uri.removeprefix("ui://").partition("?")[0])
            path = Path(self.options.screenshots) / f"{slug.strip('-.')[:80] or 'app'}-{name}.png"
            await trial.page.screenshot(path=path)
            self.report.screenshots.append(str(path))


async def show_app(
    browser: AppBrowser, host: Host, call: ToolCall, options: TryOptions, report: AppReport, limit: asyncio.Semaphore
) -> list[Check]:
    """Return all checks of an app that need a browser. `limit` bounds the Views of all apps open at a time."""
    trials = _AppTrials(browser, host, call, options, report, limit)
    try:
        first = await _first_checks(trials)
    except ConfigurationError as error:
        return [checked(*HANDSHAKE, [failure(str(error))], "")]
    if not trials.trials[0].sent("ui/notifications/initialized"):
        return [*first, _policy_check(trials)]

    known = {*trials.trials[0].exceptions, *trials.trials[0].console_errors}
    if any(finding.cause == rendering.NOTHING_RENDERED for check in first for finding in check.findings):
        known.add(rendering.NOTHING_RENDERED)
    spied = await _spied_check(trials)
    result = await _result_check(trials)
    groups = await asyncio.gather(*(_quirk_checks(trials, names, frozenset(known)) for names in _GROUPS))
    by_name = {check.name: check for checks in groups for check in checks}
    quirks = [by_name[f"quirk-{name}"] for name in QUIRKS]
    return [first[0], spied, result, *first[1:], *quirks, _policy_check(trials)]


def _policy_check(trials: _AppTrials) -> Check:
    return policy_check(trials.trials, trials.trials[0].view.grant.csp)


def _context(scheme: str, width: int) -> HostContext:
    return HostContext(
        theme="dark" if scheme == "dark" else "light",
        locale="en-GB",
        time_zone="UTC",
        platform="web",
        container_dimensions=ContainerDimensions(width=width, max_height=4000),
    )


async def _first_checks(trials: _AppTrials) -> list[Check]:
    # Check the handshake, the rendering in all sizes and schemes, the answers and the teardown.
    seconds = trials.options.timeout
    async with trials.open() as trial:
        trials.trials.append(trial)
        is_live = await trial.is_live(seconds)
        checks = [handshake_check(trial, is_live=is_live, seconds=seconds)]
        if not is_live:
            await trials.take_screenshot(trial, f"{_WIDE[0]}-light")
            why = "not tried, nor are rendering, answers and quirks: its handshake did not complete"
            return [*checks, skipped(*_LAYOUT, why), needs_check(trial), console_check(trial)]

        await trial.settle()
        trial.shown_refusal = await trial.evaluate("(look) => look.refusal()") or ""
        checks += [await rendering.layout_check(trial, _WIDE[0]), await rendering.contrast_check(trial, "light")]
        trials.with_result = await rendering.appearance_of(trial)
        await trials.take_screenshot(trial, f"{_WIDE[0]}-light")
        checks += await rendering.keyboard_checks(trial)
        checks.append(await rendering.resize_check(trial))

        await _change_context(trial, "light", _NARROW)
        checks.append(await rendering.layout_check(trial, _NARROW[0]))
        await trials.take_screenshot(trial, f"{_NARROW[0]}-light")
        await _change_context(trial, "dark", _NARROW)
        await trials.take_screenshot(trial, f"{_NARROW[0]}-dark")
        await _change_context(trial, "dark", _WIDE)
        checks.append(await rendering.contrast_check(trial, "dark"))
        await trials.take_screenshot(trial, f"{_WIDE[0]}-dark")

        checks += await protocol_checks(trial, seconds)
        checks.append(await teardown_check(trial))
        return [*checks, needs_check(trial), console_check(trial)]


async def _change_context(trial: Trial, scheme: str, size: tuple[int, int]) -> None:
    # Change the colour scheme and the width, and notify the View as a host does.
    await trial.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await trial.page.set_viewport_size({"width": size[0], "height": size[1]})
    if not trial.view.is_over:
        context = _context(scheme, size[0])
        changed = HostContext(theme=context.theme, container_dimensions=context.container_dimensions)
        trial.view.change_context(changed)
    await trial.settle(1.5)
    # Colours may fade into each other.
    await asyncio.sleep(_FADE_SECONDS)


async def _spied_check(trials: _AppTrials) -> Check:
    # Show the View with a spy that records when it listens, and without its input and result.
    is_live, log = False, None
    # Another check reports a page that does not respond.
    with suppress(ConfigurationError):
        async with trials.open(spied=True) as trial:
            is_live = await trial.is_live(trials.options.timeout)
            log = await trial.evaluate("() => window.__mcpdSpy")
            if is_live:
                await trial.settle()
                trials.without_result = await rendering.appearance_of(trial)

    return spy_check(log, is_live=is_live)


async def _result_check(trials: _AppTrials) -> Check:
    # Check that the View looks different with its result, or shows a value of it.
    trial, result = trials.trials[0], trials.call.result
    if trial.shown_refusal:
        return skipped(*_RESULT, "it shows that something was refused")
    csp = trial.view.grant.csp
    has_requests = any(trial.sent(method) for method in ("tools/call", "resources/read"))
    if has_requests or (csp is not None and (csp.connect_domains or csp.frame_domains)):
        return skipped(*_RESULT, "it loads its content itself")
    values = list(_values(result.structured_content or None)) if result and not result.is_error else []
    if not values:
        return skipped(*_RESULT, "structuredContent has nothing to show")

    findings = []
    text = trials.with_result.text
    if trials.with_result == trials.without_result and text.strip() and not any(value in text for value in values):
        async with trials.open() as again:
            is_live = await again.is_live(trials.options.timeout)
            if not (is_live and await rendering.differs_from(again, trials.without_result)):
                problem = "it shows nothing of its result: it looks the same without"
                advice = "listen for ui/notifications/tool-result before ui/initialize is sent, and draw its content"
                findings.append(failure(problem, advice))

    return checked(*_RESULT, findings, "it is shown", ["APP-V-03"])


def _values(value: Any) -> Iterator[str]:
    # Yield all texts and numbers of a result as they may appear on the page.
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _values(inner)
    elif value not in (None, "") and not isinstance(value, bool):
        yield f"{value:g}" if isinstance(value, float) else str(value)


async def _quirk_checks(trials: _AppTrials, names: tuple[str, ...], known: frozenset[str]) -> list[Check]:
    # Show the View with these quirks together and, if that fails, with each of them alone.
    try:
        findings, ok = await _quirk_findings(trials, names, known)
    except ConfigurationError as error:
        findings, ok = [failure(str(error))], ""
    if findings and len(names) > 1:
        return [check for name in names for check in await _quirk_checks(trials, (name,), known)]
    return [checked(f"quirk-{name}", f"It survives {QUIRKS[name][1]}", findings, ok, ["APP-V-05"]) for name in names]


async def _quirk_findings(
    trials: _AppTrials, names: tuple[str, ...], known: frozenset[str]
) -> tuple[list[Finding], str]:
    # Check that the View starts, renders something and raises nothing. Return the findings, and a text if it does.
    quirks, words = Quirks(), " and ".join(QUIRKS[name][1] for name in names)
    for name in names:
        members = [member for member in Quirks.__struct_fields__ if getattr(QUIRKS[name][0], member)]
        quirks = replace(quirks, **dict.fromkeys(members, True))

    async with trials.open(quirks) as trial:
        # With an opaque origin the policy blocks what it otherwise allows.
        if "opaque" not in names:
            trials.trials.append(trial)
        is_live = await trial.is_live(trials.options.timeout)
        ok, shows_result = "", True
        if is_live:
            await trial.settle()
            ok = await rendering.rendered(trial)
            # Only the text counts, because pictures may differ for other reasons.
            changes_text = trials.with_result.text != trials.without_result.text
            if changes_text and names != ("error-result",):
                shows_result = await rendering.differs_from(trial, trials.without_result)
            if not trial.view.is_over:
                await trial.view.close("the test is over")

        errors = new_errors(trial, known, has_error_result=names == ("error-result",))
        findings = [replace(finding, text=f"with {words}: {finding.text}") for finding in errors]
        if not is_live:
            why = trial.failure or (findings.pop(0).text if findings else "no answer in time")
            text = f"with {words} its handshake does not complete: {why.removeprefix(f'with {words}: ')}"
            findings.insert(0, failure(text, "complete it in any case"))
        elif not ok and rendering.NOTHING_RENDERED not in known:
            text, advice = f"with {words} nothing is visible", "show what there is, or a text that something is missing"
            findings.insert(0, failure(text, advice))
        elif not (shows_result or findings):
            text = f"with {words} nothing of its result is visible"
            advice = "take the result from content, structuredContent or _meta, whichever is there"
            findings.append(warning(text, advice))

        return findings, ok


_DEFAULT = TryOptions()
_DOCUMENT = ("document", "A complete HTML5 document")


async def try_apps(
    target: Target,
    options: TryOptions = _DEFAULT,
    *,
    host_options: HostOptions | None = None,
    name: str = "",
    on_report: Callable[[AppReport], object] = lambda report: None,
) -> AppsReport:
    """Try the apps of a server and return the report. `on_report` receives the report of each app when it is complete.

    `target` is the target of a `Host`, and `name` its name in the report. Raises ConfigurationError if nothing can be
    tried, because the server has no apps or no browser is found, and whatever a client raises.
    """
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        browser = None if options.static else await stack.enter_async_context(open_browser(options.browser))
        hooks = Hooks()
        if browser is not None:
            # The View may ask for anything, and nothing is done: no link is opened and no file is saved.
            hooks = Hooks(event=browser.on_event, open_link=lambda *_: True, download=lambda *_: True)
        host = await stack.enter_async_context(Host(target, hooks=hooks, options=_host_options(host_options, options)))
        server = await read_apps(host.client, options.app, options.calls)

        info = host.client.server_info
        report = AppsReport(
            target=name or str(target),
            strict=options.strict,
            server="" if info is None else f"{info.name} {info.version}".strip(),
            protocol_version=host.client.version,
            browser=None if browser is None else browser.name,
            checks=server_checks(server, host.client.server_capabilities.extensions),
        )
        apps_limit, views_limit = asyncio.Semaphore(options.at_once), asyncio.Semaphore(options.at_once)

        async def try_one(app: App) -> AppReport:
            async with apps_limit:
                app_report = await _try_app(host, app, options, browser, views_limit)
                on_report(app_report)
                return app_report

        report.apps = list(await asyncio.gather(*map(try_one, server.apps)))
    report.seconds = round(time.monotonic() - started, 3)
    return report


async def _try_app(
    host: Host, app: App, options: TryOptions, browser: AppBrowser | None, views_limit: asyncio.Semaphore
) -> AppReport:
    started = time.monotonic()
    report = AppReport(uri=app.uri, tools=[tool.name for tool in app.tools], strict=options.strict)
    report.checks += tool_checks(app)
    if not app.error:
        report.checks += [*resource_checks(app), *_document_checks(app)]
        called = await call_app_tool(host, app, options.calls)
        report.checks += called.checks
        if called.call is not None:
            report.called = {"tool": called.call.name, "arguments": called.arguments}

        if browser is None:
            why = "only a browser shows what scripts and styles load: try it without --static"
            report.checks.append(skipped("policy", "Nothing is blocked by the policy", why, ["APP-X-04", "APP-V-05"]))
        elif called.call is None:
            report.checks.append(skipped(*HANDSHAKE, "nothing was called that would open it", ["APP-V-03"]))
        else:
            report.checks += await show_app(browser, host, called.call, options, report, views_limit)

    report.seconds = round(time.monotonic() - started, 3)
    return report


def _document_checks(app: App) -> list[Check]:
    if not app.item:
        return [skipped(*_DOCUMENT, "there is none")]
    try:
        document = read_document(app.uri, app.contents, app.listed_meta)
    except ConfigurationError as error:
        return [checked(*_DOCUMENT, [failure(str(error))], "")]
    return document_checks(document.html, grant(document.csp).csp)


def _host_options(given: HostOptions | None, options: TryOptions) -> HostOptions:
    # Return the options of the host, with room for all Views and more time for a step than a trial waits for it.
    host_options = given or HostOptions()
    limits = replace(host_options.limits, step_seconds=2 * options.timeout)
    return replace(host_options, limits=limits, max_views=max(host_options.max_views, 2 * options.at_once))
