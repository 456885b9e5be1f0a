"""`mcpd apps test`: tests the apps of a server."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpd.cli.client_options import client_command, json_option, server_options
from mcpd.cli.talk.connecting import ServerOptions, describe_error, resolve_target, run, without_secrets
from mcpd.cli.talk.terminal import Terminal, can_print, counted, json_text
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.printable import mask_command, printable

if TYPE_CHECKING:
    from mcpd.apps.verdict.report import AppReport, AppsReport, Check, Status, TryOptions

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
    click.Argument(["target"], required=False),
    json_option("Print the result as one JSON object."),
    click.Option(["--verbose", "-v"], is_flag=True, help="Print each check and finding instead of one line per cause."),
    click.Option(["--strict"], is_flag=True, help="Count warnings (accessibility, advice) as failures."),
    click.Option(["--junit"], metavar="FILE", help="Write the result to FILE too, as JUnit XML."),
    click.Option(["--static"], is_flag=True, help="Check only metadata and HTML, without a browser."),
    click.Option(["--screenshots"], metavar="DIR", help="Save screenshots of each app: wide and narrow, light and "
                 "dark."),
    click.Option(["--browser"], metavar="PATH", help="Use this Chromium. Default: the first one that is found."),
    click.Option(
        ["--app", "apps"], multiple=True, metavar="NAME",
        help="Test only this app: its URI, its name, or a tool that opens it. Can be repeated.",
    ),
    click.Option(
        ["--call", "calls"], multiple=True, metavar="TOOL=JSON",
        help="Call TOOL with these arguments. Default: arguments made from its schema. Can be repeated.",
    ),
    click.Option(
        ["--step-timeout"], type=click.FloatRange(min=0.1), default=10.0, metavar="SECONDS",
        help="Wait this many seconds for the handshake and for each answer of an app. Default: 10 s.",
    ),
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
    return run(lambda terminal: _test(terminal, server, options, as_json, junit, verbose), server)


apps_command.add_command(_test_command)


def _calls(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    from msgspec import DecodeError
    from msgspec.json import decode

    found: dict[str, dict[str, Any]] = {}
    for word in words:
        name, sign, text = word.partition("=")
        try:
            arguments = decode(text)
        except DecodeError:
            arguments = None
        if not sign or not name or not isinstance(arguments, dict):
            raise WrongUse(f"--call {printable(word)}: write --call 'TOOL={{\"name\": value}}' with a JSON object")
        found[name] = arguments
    return found


async def _test(
    terminal: Terminal, server: ServerOptions, options: TryOptions, as_json: bool, junit: str | None, verbose: bool
) -> int:
    from mcpd.apps.host.options import HostOptions
    from mcpd.apps.verdict.run import try_apps

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
            name=_name(server),
            on_report=tell,
        )
        if junit is not None:
            _write(junit, found)
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


def _name(server: ServerOptions) -> str:
    if server.command:
        return shlex.join(mask_command(server.command))
    return without_secrets(server.target) if server.target else "the demo server"


def _write(path: str, found: AppsReport) -> None:
    from mcpd.apps.verdict.report import junit_xml

    try:
        Path(path).write_text(junit_xml(found), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--junit {path}: {error.strerror}; name a file that can be written") from None


# ------------------------------------------------------------------------------------------- output


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
    """Print one line per cause; with `verbose` each check and finding."""
    if verbose:
        for check in report.checks:
            _print_check(terminal, check)
        return
    for cause in report.causes:
        status: Status = "failure" if cause.severity == "failure" else "warning"
        advice = f" {_arrow()} {cause.advice}" if cause.advice else ""
        terminal.out_safe(f"  {_mark(terminal, status)} {printable(cause.text + advice, 4000)}")


def _mark(terminal: Terminal, status: Status) -> str:
    sign, word, style = _SIGNS[status]
    return terminal.styled(sign if can_print(sign) else word, style)


def _arrow() -> str:
    return "→" if can_print("→") else "->"


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
            terminal.out_safe(f"{margin}{_arrow()} {printable(finding.advice, 2000)}")


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
