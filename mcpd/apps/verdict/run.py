"""All of it: a server is asked for its apps, each is looked at and shown, and what was found is one report."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec.structs import replace

from mcpd.apps.host.document import grant_csp, read_document
from mcpd.apps.host.host import Host
from mcpd.apps.host.options import HostOptions
from mcpd.apps.host.shown_view import Hooks
from mcpd.apps.verdict.browser import Theatre, open_theatre
from mcpd.apps.verdict.calling import Called, call_for
from mcpd.apps.verdict.document import document_checks
from mcpd.apps.verdict.metadata import App, app_item, gather, resource_checks, server_checks, tool_checks
from mcpd.apps.verdict.protocol import HANDSHAKE
from mcpd.apps.verdict.report import AppReport, AppsReport, Check, Finding, TryOptions, checked, skipped
from mcpd.client.target import Target
from mcpd.errors import ConfigurationError

_DEFAULT = TryOptions()


async def try_apps(
    target: Target,
    options: TryOptions = _DEFAULT,
    *,
    host_options: HostOptions | None = None,
    name: str = "",
    tell: Callable[[AppReport], object] = lambda report: None,
) -> AppsReport:
    """Try the apps of a server. `tell` is given each report as soon as it is complete.

    `target` is what a `Host` takes; `name` is what the report calls it. Raises ConfigurationError where nothing can be
    tried (no apps, no browser), and what a client raises.
    """
    begun = time.monotonic()
    async with AsyncExitStack() as stack:
        theatre = None if options.static else await stack.enter_async_context(open_theatre(options.browser))
        hooks = Hooks() if theatre is None else _hooks(theatre)
        host = await stack.enter_async_context(Host(target, hooks=hooks, options=_host_options(host_options, options)))
        gathered = await gather(host.client, options.app, options.calls)
        info = host.client.server_info
        report = AppsReport(
            target=name or str(target),
            strict=options.strict,
            server="" if info is None else f"{info.name} {info.version}".strip(),
            protocol_version=host.client.version,
            browser=None if theatre is None else theatre.browser_name,
            checks=server_checks(
                gathered.tools, gathered.apps, host.client.server_capabilities.extensions, gathered.resources_error
            ),
        )
        apps_at_once, room = asyncio.Semaphore(options.at_once), asyncio.Semaphore(options.at_once)

        async def try_one(app: App) -> AppReport:
            async with apps_at_once:
                made = await _try_app(host, app, options, theatre, room)
                tell(made)
                return made

        report.apps = list(await asyncio.gather(*map(try_one, gathered.apps)))
    report.seconds = round(time.monotonic() - begun, 3)
    return report


async def _try_app(
    host: Host, app: App, options: TryOptions, theatre: Theatre | None, room: asyncio.Semaphore
) -> AppReport:
    """One app: what is said of it, its HTML, the call that opens it, and how it does in a browser."""
    begun = time.monotonic()
    report = AppReport(uri=app.uri, tools=[tool.name for tool in app.tools], strict=options.strict)
    report.checks += tool_checks(app)
    if not app.error:
        report.checks += resource_checks(app)
        report.checks += _document(app)
        called = await call_for(host, app, options.calls)
        report.checks += called.checks
        if called.call is not None:
            report.called = {"tool": called.call.name, "arguments": called.arguments}
        if theatre is not None:
            report.checks += await _show(theatre, host, called, options, report, room)
        else:
            why = "only a browser shows what scripts and styles load: try it without --static"
            report.checks.append(skipped("policy", "Nothing is blocked by the policy", why, ["APP-X-04", "APP-V-05"]))
    report.seconds = round(time.monotonic() - begun, 3)
    return report


async def _show(
    theatre: Theatre, host: Host, called: Called, options: TryOptions, report: AppReport, room: asyncio.Semaphore
) -> list[Check]:
    if called.call is None:
        return [skipped(*HANDSHAKE, "nothing was called that would open it", ["APP-V-03"])]
    from mcpd.apps.verdict.showing import show_app

    return await show_app(theatre, host, called.call, options, report, room)


def _hooks(theatre: Theatre) -> Hooks:
    """A host that lets a View do what it may ask for, and does none of it: no link is opened, no file is kept."""
    return Hooks(
        event=theatre.hear,
        open_link=lambda view, url: True,
        download=lambda view, items: True,
    )


def _host_options(given: HostOptions | None, options: TryOptions) -> HostOptions:
    """Patience with each step, and room for all showings."""
    made = given or HostOptions()
    limits = replace(made.limits, step_seconds=options.timeout)
    return replace(made, limits=limits, max_views=max(made.max_views, 2 * options.at_once))


def _document(app: App) -> list[Check]:
    item = app_item(app)
    if not item:
        return [skipped("document", "A complete HTML5 document", "there is none")]
    try:
        document = read_document(app.uri, app.contents, None if app.listed is None else app.listed.meta)
    except ConfigurationError as error:
        return [checked("document", "A complete HTML5 document", [Finding(severity="failure", text=str(error))], "")]
    granted, _ = grant_csp(document.csp)
    return document_checks(document.html, granted)
