"""Try the apps of a server: read their metadata and HTML, call a tool of each, and show it in a browser.

`try_apps` is the command `mcpd apps test` and the fixture `mcpd_apps`. The findings are one `AppsReport`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from msgspec.structs import replace

from mcpd.apps.host.document import grant, read_document
from mcpd.apps.host.host import Host
from mcpd.apps.host.options import HostOptions
from mcpd.apps.host.shown_view import Hooks
from mcpd.apps.verdict.browser import AppBrowser, open_browser
from mcpd.apps.verdict.calling import call_app_tool
from mcpd.apps.verdict.document import document_checks
from mcpd.apps.verdict.metadata import App, read_apps, resource_checks, server_checks, tool_checks
from mcpd.apps.verdict.protocol import HANDSHAKE
from mcpd.apps.verdict.report import AppReport, AppsReport, Check, TryOptions, checked, failure, skipped
from mcpd.apps.verdict.showing import show_app
from mcpd.client.target import Target
from mcpd.errors import ConfigurationError

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
    """Return the options of the host, with room for all Views and more time for a step than a trial waits for it."""
    host_options = given or HostOptions()
    limits = replace(host_options.limits, step_seconds=2 * options.timeout)
    return replace(host_options, limits=limits, max_views=max(host_options.max_views, 2 * options.at_once))
