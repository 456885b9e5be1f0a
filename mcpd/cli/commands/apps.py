"""`mcpd preview` shows a server and its apps in a page on this machine; `mcpd apps test` tests the apps."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.json import decode

from mcpd.cli.install.files import explained
from mcpd.cli.options import (
    client_command,
    flag_option,
    json_option,
    repeated_option,
    server_options,
    target_argument,
    value_option,
)
from mcpd.cli.talk.connecting import describe_error, resolve_target, run, without_secrets
from mcpd.cli.talk.terminal import Terminal, arrow, can_print, counted, json_text
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import McpdError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import mask_command, printable

if TYPE_CHECKING:
    from mcpd.apps.verdict.report import AppReport, AppsReport, Check, Status


_SYSTEM: str = sys.platform

_PREVIEW_HELP = """Open a page in the browser that shows everything a server offers, until Ctrl-C.

The page has a form for each tool. It shows apps (MCP Apps) as a strict host does, each on its own origin, and reports
what their content security policy blocks. It lists all messages of server, host and apps, and it can imitate the faults
of other hosts. If you edit the files of your server meanwhile, the page is updated.

\b
  mcpd preview server.py
  mcpd preview https://host/mcp -H 'X-Key: …'
  mcpd preview -- npx -y @modelcontextprotocol/server-budget-allocator --stdio

The page is served on this machine only, and requires the token in the printed address.
"""

_PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboard-write": "clipboardWrite",
}


@client_command(
    "preview",
    _PREVIEW_HELP,
    target_argument(),
    value_option(
        "--port",
        type=click.IntRange(0, 65535),
        default=0,
        metavar="PORT",
        help="Serve the page on this port. Default: any free port.",
    ),
    flag_option("--no-open", help="Print the address of the page, and do not open a browser."),
    value_option(
        "--profile",
        type=click.Choice(["strict", "compat", "opaque"]),
        default="strict",
        help="Isolate apps as the specification says (strict), as loosely as the official example host (compat), or "
        "strictly and without an origin of their own (opaque). The page can change this. Default: strict.",
    ),
    value_option(
        "--allow",
        metavar="NAME,…",
        default="",
        help=f"Grant these permissions to apps that request them: {', '.join(_PERMISSIONS)}. The page can grant more. "
        "Default: none.",
    ),
)
def preview_command(
    target: str | None,
    command: tuple[str, ...],
    port: int,
    no_open: bool,
    profile: Any,
    allow: str,
    **shared: Any,
) -> int:
    server = server_options(target, command, shared)
    names = [name.strip() for name in allow.split(",") if name.strip()]
    for name in names:
        if name not in _PERMISSIONS:
            raise WrongUse(f"--allow {printable(name, 40)}: the permissions are {', '.join(_PERMISSIONS)}")
    permissions = tuple(_PERMISSIONS[name] for name in names)

    async def preview_server(terminal: Terminal) -> int:
        found = resolve_target(server)
        from mcpd.apps.preview.preview import Preview
        from mcpd.apps.preview.session import SessionOptions

        options = SessionOptions(
            target=found,
            name=without_secrets(str(found)),
            version=server.version,
            timeout=server.timeout,
            profile=profile,
            permissions=permissions,
        )
        async with Preview(options, port=port) as preview:
            resolves = _resolves_localhost_names()
            url = preview.url if resolves else preview.plain_url
            terminal.out(url)
            terminal.note(f"mcpd: a preview of {printable(options.name, 300)}; press Ctrl-C to stop it", "dim")
            if resolves:
                terminal.note(f"mcpd: if the browser does not find the page, use {preview.plain_url}", "dim")
            if not no_open and not await _open(url):
                terminal.note("mcpd: no browser could be opened; open the address yourself", "dim")
            await asyncio.Event().wait()
        return 0

    return run(preview_server, server)


def _resolves_localhost_names() -> bool:
    # Safari relies on the system to resolve names such as mcpd.localhost; other browsers need no help.
    if _SYSTEM != "darwin":
        return True
    import socket

    try:
        socket.getaddrinfo("mcpd.localhost", 80)
    except OSError:
        return False
    return True


async def _open(url: str) -> bool:
    # Without a screen, a text browser could take over the terminal.
    if _SYSTEM not in ("darwin", "win32") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    import webbrowser

    return await asyncio.get_running_loop().run_in_executor(None, webbrowser.open, url)


_HELP = """Test the apps of a server (MCP Apps: tools with a page that hosts show), and say what would not work.

mcpd checks the metadata and the HTML of each app, and whether everything it loads was declared. Then it calls the app's
tool and shows the app in Chromium without a window, as a strict host would. It checks that the app answers, that
nothing is blocked, that the app works in hosts that behave differently, and that it is accessible by keyboard.

\b
  mcpd apps test server.py
  mcpd apps test server.py --call 'forecast={"city": "Oslo"}'
  mcpd apps test --junit apps.xml --screenshots shots -- npx -y some-server
  mcpd apps test server.py --static        without a browser
"""

_SIGNS: dict[Status, tuple[str, str, str]] = {
    "ok": ("✓", "ok     ", "green"),
    "warning": ("!", "warning", "yellow"),
    "failure": ("✗", "FAILURE", "red"),
    "skipped": ("–", "skipped", "dim"),
}
_EXIT_CODES = "Exit codes: 0 all apps pass, 1 an app does not, 2 nothing could be tested or wrong use, 130 Ctrl-C."
_NAME_WIDTH = 24


@click.group("apps", no_args_is_help=True)
def apps_command() -> None:
    """Test the apps of a server: tools with a page that hosts show."""


@client_command(
    "test",
    _HELP,
    target_argument(),
    json_option("Print the result as one JSON object."),
    flag_option("--verbose", "-v", help="Print each check and finding instead of one line per cause."),
    flag_option("--strict", help="Count warnings (accessibility, advice) as failures."),
    value_option("--junit", metavar="FILE", help="Write the result to FILE too, as JUnit XML."),
    flag_option("--static", help="Check only metadata and HTML, without a browser."),
    value_option("--screenshots", metavar="DIR", help="Save screenshots of each app: wide and narrow, light and "
                 "dark."),
    value_option("--browser", metavar="PATH", help="Use this Chromium. Default: the first one that is found."),
    repeated_option("--app", "apps", metavar="NAME",
        help="Test only this app: its URI, its name, or a tool that opens it."),
    repeated_option("--call", "calls", metavar="TOOL=JSON",
        help="Call TOOL with these arguments. Default: arguments made from its schema."),
    value_option("--step-timeout", type=click.FloatRange(min=0.1), default=10.0, metavar="SECONDS",
        help="Wait this many seconds for the handshake and for each answer of an app. Default: 10 s."),
    epilog=_EXIT_CODES,
)  # fmt: skip
def _test_command(
    target: str | None, command: tuple[str, ...], as_json: bool, junit: str | None, apps: tuple[str, ...],
    calls: tuple[str, ...], step_timeout: float, verbose: bool, **shared: Any,
) -> int:  # fmt: skip
    from mcpd.apps.verdict.report import TryOptions

    given = {name: shared.pop(name) for name in ("static", "strict", "screenshots", "browser")}
    server = server_options(target, command, shared)
    options = TryOptions(app=apps, calls=_calls(calls), timeout=step_timeout, **given)

    async def test(terminal: Terminal) -> int:
        from mcpd.apps.host.host import HostOptions
        from mcpd.apps.verdict.report import junit_xml
        from mcpd.apps.verdict.run import try_apps

        name = without_secrets(server.target) if server.target else "the demo server"
        if server.command:
            name = shlex.join(mask_command(server.command))
        # The report contains what the host logs about a View.
        logging.getLogger("mcpd.host").setLevel(logging.CRITICAL)

        def tell(report: AppReport) -> None:
            if not as_json:
                _print_app(terminal, report, verbose=verbose)

        try:
            found = await try_apps(
                resolve_target(server),
                options,
                host_options=HostOptions(version=server.version, timeout=server.timeout),
                name=name,
                on_report=tell,
            )
            if junit is not None:
                _write(junit, junit_xml(found))
        except WrongUse:
            raise
        except McpdError as error:
            text = describe_error(error, server)
            terminal.note(f"mcpd: {text}", "red")
            if as_json:
                terminal.out_json(json_text({"format": 1, "passed": False, "error": text}))
            return 2

        if as_json:
            terminal.out_json(json_text(found.as_json()))
        else:
            _print_findings(terminal, found, verbose=verbose)
            terminal.out_safe(_summary(terminal, found))
        return 0 if found.passed else 1

    return run(test, server)


apps_command.add_command(_test_command)


def _write(path: str, text: str) -> None:
    with explained(f"--junit {path}"):
        Path(path).write_text(text, encoding="utf-8")


def _calls(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        try:
            arguments = decode(text.encode(errors="surrogateescape"))
        except MALFORMED:
            arguments = None
        if not sign or not name or not isinstance(arguments, dict):
            raise WrongUse(f"--call {printable(word)}: write --call 'TOOL={{\"name\": value}}' with a JSON object")
        found[name] = arguments
    return found


def _print_app(terminal: Terminal, report: AppReport, *, verbose: bool) -> None:
    opened = f" ({', '.join(report.tools)})" if report.tools else ""
    status: Status = "failure" if not report.passed else "warning" if report.warnings else "ok"
    name = f"{terminal.styled(printable(report.uri), 'bold')}{printable(opened, 200)}"
    terminal.out_safe(f"{_mark(terminal, status)} {name}: {report.verdict}")
    _print_findings(terminal, report, verbose=verbose)
    if report.screenshots:
        count = counted(len(report.screenshots), "screenshot")
        terminal.out_safe(f"  {count}, the first is {printable(report.screenshots[0])}")


def _print_findings(terminal: Terminal, report: AppReport | AppsReport, *, verbose: bool) -> None:
    if verbose:
        for check in report.checks:
            _print_check(terminal, check)
        return
    for cause in report.causes:
        status: Status = "failure" if cause.severity == "failure" else "warning"
        advice = f" {arrow()} {cause.advice}" if cause.advice else ""
        terminal.out_safe(f"  {_mark(terminal, status)} {printable(cause.text + advice, 4000)}")


def _mark(terminal: Terminal, status: Status) -> str:
    sign, word, style = _SIGNS[status]
    return terminal.styled(sign if can_print(sign) else word, style)


def _print_check(terminal: Terminal, check: Check) -> None:
    worst = [finding for finding in check.findings if finding.severity != "note"]
    text = check.text if not worst else check.title
    terminal.out_safe(f"  {_mark(terminal, check.status)} {check.name:<{_NAME_WIDTH}}{printable(text, 1000)}")
    margin = " " * (_NAME_WIDTH + 4)
    for at, finding in enumerate(worst):
        rule = f" [{finding.rule}]" if finding.rule else ""
        terminal.out_safe(f"{margin}{printable(finding.text, 2000)}{rule}")
        # Consecutive findings with the same advice show it once, after the last one.
        is_last = at + 1 == len(worst) or worst[at + 1].advice != finding.advice
        if finding.advice and is_last:
            terminal.out_safe(f"{margin}{arrow()} {printable(finding.advice, 2000)}")


def _summary(terminal: Terminal, found: AppsReport) -> str:
    failed = sum(not app.passed for app in found.apps)
    where = f"in {found.browser}" if found.browser else "without a browser"
    problems = [counted(len(lines), noun) for lines, noun in
                ((found.failures, "failure"), (found.warnings, "warning")) if lines]  # fmt: skip
    text = f"{counted(len(found.apps), 'app')} tested {where} in {found.seconds:.1f} s: "
    text += ", ".join(problems) or "no problems"
    if failed:
        text += f"; {counted(failed, 'app')} did not pass"
    return terminal.styled(text, "green" if found.passed else "red")
