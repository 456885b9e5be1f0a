"""`mcpd apps test`: a verdict on the apps of a server."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mcpd.cli.client_options import client_command, json_option, reach_of
from mcpd.cli.talk.reach import Reach, in_words, named_target, run, without_secrets
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.printable import mask_command, printable

if TYPE_CHECKING:
    from mcpd.apps.verdict.report import AppReport, AppsReport, Check, Status, TryOptions

_HELP = """Try the apps of a server (MCP Apps: tools with a page that hosts show), and say what would not work.

Each app is looked at: what is said of it, what its HTML loads and whether that was declared. Then it is shown in
Chromium, without a window, for a call of its tool, as a strict host would: does it answer, is anything blocked, does
it survive what hosts do differently, can it be read and used by keyboard.

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
_EXIT_CODES = "Exit codes: 0 all apps pass, 1 one does not, 2 nothing could be tried, or wrong use, 130 Ctrl-C."
_NAME_WIDTH = 24


@click.group("apps", no_args_is_help=True)
def command() -> None:
    """Try the apps of a server: tools with a page that hosts show."""


@client_command(
    "test",
    _HELP,
    click.Argument(["target"], required=False),
    json_option("Print everything as one JSON object, for programs."),
    click.Option(["--verbose", "-v"], is_flag=True, help="Print each check and each finding, not one line per cause."),
    click.Option(["--strict"], is_flag=True, help="Count warnings (accessibility, advice) as failures."),
    click.Option(["--junit"], metavar="FILE", help="Write the verdict as JUnit XML too, for CI."),
    click.Option(["--static"], is_flag=True, help="Only look at texts: no browser."),
    click.Option(["--screenshots"], metavar="DIR", help="Keep pictures of each app, wide and narrow, light and dark."),
    click.Option(["--browser"], metavar="PATH", help="The Chromium to use, not the first that is found."),
    click.Option(
        ["--app", "apps"], multiple=True, metavar="NAME",
        help="Only this app: its URI, its name, or a tool that opens it. Can be repeated.",
    ),
    click.Option(
        ["--call", "calls"], multiple=True, metavar="TOOL=JSON",
        help="The arguments for a tool; else they are made from its schema. Can be repeated.",
    ),
    click.Option(
        ["--step-timeout"], type=click.FloatRange(min=0.1), default=10.0, show_default=True, metavar="SECONDS",
        help="How long an app has for its handshake, and for each answer.",
    ),
    epilog=_EXIT_CODES,
)  # fmt: skip
def _test_command(
    target: str | None, command: tuple[str, ...], as_json: bool, junit: str | None, apps: tuple[str, ...],
    calls: tuple[str, ...], step_timeout: float, verbose: bool, **shared: Any,
) -> int:  # fmt: skip
    from mcpd.apps.verdict.report import TryOptions

    said = {name: shared.pop(name) for name in ("static", "strict", "screenshots", "browser")}
    reach = reach_of(target, command, shared)
    options = TryOptions(app=apps, calls=_calls(calls), timeout=step_timeout, **said)
    return run(lambda terminal: _test(terminal, reach, options, as_json, junit, verbose), reach)


command.add_command(_test_command)


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
            raise WrongUse(f"--call {printable(word)}: write --call 'TOOL={{\"name\": value}}', with a JSON object")
        found[name] = arguments
    return found


async def _test(
    terminal: Terminal, reach: Reach, options: TryOptions, as_json: bool, junit: str | None, verbose: bool
) -> int:
    from mcpd.apps.host.options import HostOptions
    from mcpd.apps.verdict.run import try_apps

    # What a host says in its log of a View is in the report.
    logging.getLogger("mcpd.host").setLevel(logging.CRITICAL)

    def tell(report: AppReport) -> None:
        if not as_json:
            _print_app(terminal, report, verbose=verbose)

    try:
        found = await try_apps(
            named_target(reach),
            options,
            host_options=HostOptions(version=reach.version, timeout=reach.timeout),
            name=_name(reach),
            on_report=tell,
        )
        if junit is not None:
            _write(junit, found)
    except WrongUse:
        raise
    except McpdError as error:
        text = in_words(error, reach)
        terminal.note(f"mcpd: {text}", "red")
        if as_json:
            terminal.out_json(_json({"format": 1, "passed": False, "error": text}))
        return 2

    if as_json:
        terminal.out_json(_json(found.as_json()))
    else:
        _print_findings(terminal, found, verbose=verbose)
        terminal.out_safe(_summary(terminal, found))
    return 0 if found.passed else 1


def _name(reach: Reach) -> str:
    if reach.command:
        return shlex.join(mask_command(reach.command))
    return without_secrets(reach.target) if reach.target else "the demo server"


def _write(path: str, found: AppsReport) -> None:
    from mcpd.apps.verdict.report import junit_xml

    try:
        Path(path).write_text(junit_xml(found), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"--junit {path}: {error.strerror}; name a file that can be written") from None


def _json(value: Any) -> str:
    from msgspec.json import encode, format

    return format(encode(value), indent=2).decode()


# ------------------------------------------------------------------------------------------- output


def _print_app(terminal: Terminal, report: AppReport, *, verbose: bool) -> None:
    opened = f" ({', '.join(report.tools)})" if report.tools else ""
    status: Status = "failure" if not report.passed else "warning" if report.warnings else "ok"
    name = f"{terminal.styled(printable(report.uri), 'bold')}{printable(opened, 200)}"
    terminal.out_safe(f"{_mark(terminal, status)} {name}: {report.verdict}")
    _print_findings(terminal, report, verbose=verbose)
    if report.screenshots:
        terminal.out_safe(
            f"  {_count(len(report.screenshots), 'picture')}, the first: {printable(report.screenshots[0])}"
        )


def _print_findings(terminal: Terminal, report: AppReport | AppsReport, *, verbose: bool) -> None:
    """One line for each cause; with `verbose` each check and each finding."""
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
    return terminal.styled(sign if _can_print(sign) else word, style)


def _arrow() -> str:
    return "→" if _can_print("→") else "->"


def _print_check(terminal: Terminal, check: Check) -> None:
    worst = [finding for finding in check.findings if finding.severity != "note"]
    text = check.text if not worst else check.title
    terminal.out_safe(f"  {_mark(terminal, check.status)} {check.name:<{_NAME_WIDTH}}{printable(text, 1000)}")
    margin = " " * (_NAME_WIDTH + 4)
    for at, finding in enumerate(worst):
        rule = f" [{finding.rule}]" if finding.rule else ""
        terminal.out_safe(f"{margin}{printable(finding.text, 2000)}{rule}")
        # One advice for several that follow each other is given once, after the last.
        is_last = at + 1 == len(worst) or worst[at + 1].advice != finding.advice
        if finding.advice and is_last:
            terminal.out_safe(f"{margin}{_arrow()} {printable(finding.advice, 2000)}")


def _can_print(text: str) -> bool:
    import sys

    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _summary(terminal: Terminal, found: AppsReport) -> str:
    failed = sum(not app.passed for app in found.apps)
    where = f"in {found.browser}" if found.browser else "by their texts, without a browser"
    counts = f"{_count(len(found.apps), 'app')} tried {where} in {found.seconds:.1f} s"
    counted = [_count(len(lines), what) for lines, what in
               ((found.failures, "failure"), (found.warnings, "warning")) if lines]  # fmt: skip
    said = f"{counts}: {', '.join(counted) or 'nothing is wrong'}"
    if failed:
        said += f"; {_count(failed, 'app')} did not pass"
    return terminal.styled(said, "green" if found.passed else "red")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
