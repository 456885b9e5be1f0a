"""`mcpd doctor`: tests a server step by step, or with `--hosts` the servers of all installed hosts."""

from __future__ import annotations

import asyncio
import os
import re
import textwrap
from typing import Any

import click

from mcpd.cli.doctor.program import try_command
from mcpd.cli.doctor.report import Report, Status, Step
from mcpd.cli.doctor.urls import try_url
from mcpd.cli.install.checks import CheckedFile, Finding, check_hosts, examine_entry
from mcpd.cli.options import (
    TARGET_HELP,
    ClientCommand,
    connection_options,
    flag_option,
    json_option,
    server_options,
    target_argument,
    value_option,
)
from mcpd.cli.talk.connecting import ServerOptions, resolve_target, without_secrets
from mcpd.cli.talk.terminal import Terminal, arrow, can_print, counted, json_text
from mcpd.cli.talk.words import WrongUse, with_help
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import mask_command, printable

_HELP = """Test a server step by step, as a host (an AI program such as Claude Code) would, and report what works,
what does not work, and how to fix it.

\b
  mcpd doctor server.py
  mcpd doctor claude-code:github         as Claude Code is configured to start it
  mcpd doctor https://example.com/mcp
  mcpd doctor -- npx -y some-server
  mcpd doctor --hosts                    every server of every installed host

A program is started several times, once for each protocol version. If a tool is marked as read-only and needs no
arguments, it is called.

"""

_EPILOG = "Exit codes: 0 everything works, 1 something does not work, 2 wrong use, 130 Ctrl-C."

_SIGNS: dict[Status, tuple[str, str, str]] = {
    "ok": ("✓", "ok", "green"),
    "warning": ("!", "warning", "yellow"),
    "problem": ("✗", "PROBLEM", "red"),
    "skipped": ("–", "skipped", "dim"),
}
_NAME_WIDTH = 20


@click.command(
    "doctor",
    cls=ClientCommand,
    help=f"{_HELP}\n{TARGET_HELP}",
    epilog=_EPILOG,
    params=[
        target_argument(),
        flag_option("--hosts", "all_hosts",
            help="Test the servers of every host on this machine, and say which do not start there and why."),
        json_option("Print the result as one JSON object."),
        value_option("--timeout", type=click.FloatRange(min=0.1), default=30.0, metavar="SECONDS",
            help="Wait this many seconds for each answer. Default: 30 s."),
        *connection_options(),
    ],
)  # fmt: skip
def doctor_command(
    target: str | None, all_hosts: bool, as_json: bool, timeout: float, command: tuple[str, ...], **shared: Any
) -> int:
    if all_hosts:
        if target is not None or command or any(shared.values()):
            raise click.UsageError("--hosts tests the configured servers, so leave out TARGET and other options")
        return _check_hosts(timeout, as_json=as_json)
    if target is not None and command:
        raise click.UsageError(f"write the target {target} or a command after --, not both")
    report = Report(lambda step: None if as_json else _print_step(step))
    if target is not None:
        examine_entry(target, report)
    server = server_options(target, command, {**shared, "timeout": timeout, "version": None})
    found = _find(server, report)
    if found is not None:
        if not as_json:
            click.echo(f"testing {printable(found)}", err=True)
        if isinstance(found, UrlTarget):
            asyncio.run(try_url(found, report, timeout))
        else:
            asyncio.run(try_command(found, report, timeout))

    if as_json:
        name = without_secrets(target) if target else " ".join(mask_command(command))
        click.echo(json_text({"target": name or None, "works": report.works, "steps": report.steps}))
    elif found is not None:
        click.echo(_summary(report))
    return 0 if report.works else 1


def _find(server: ServerOptions, report: Report) -> CommandTarget | UrlTarget | None:
    try:
        return resolve_target(server)
    except WrongUse:
        raise
    except ConfigurationError as error:
        what, sign, advice = with_help(error, server.called).partition("; ")
        report.fail("found", what, advice if sign else _advice_on(what))
        return None


def _advice_on(error_text: str) -> str:
    return next(advice for pattern, advice in _ADVICE.items() if re.search(pattern, error_text))


_ADVICE = {
    r", line \d+, column \d+: ": "correct the file there: a comma, quote or bracket is missing or extra",
    "no configuration": "check whether the host is installed: mcpd install --list shows all installed hosts",
    "no servers in its": "to add a server: mcpd install HOST SERVER",
    "no mcpServers|contains no servers": 'add servers to the file: {"mcpServers": {"NAME": {"command": "…"}}}',
    "is not a URL": "write http://HOST:PORT/mcp",
    "": "name a file, a URL, or a program after --",
}


def _print_step(step: Step) -> None:
    terminal = Terminal()
    sign, word, style = _SIGNS[step.status]
    sign = terminal.styled(sign if _has_signs() else word, style)
    took = f"  ({step.seconds * 1000:.0f} ms)" if step.seconds is not None and step.name != "first answer" else ""
    margin = " " * (_NAME_WIDTH + 2)
    lines = [(f"{sign} {step.name:<{_NAME_WIDTH}}", f"{printable(step.text, 2000)}{took}", margin)]
    if step.advice:
        lines.append((f"{margin}{arrow()} ", printable(step.advice, 2000), f"{margin}  "))

    for head, text, indent in lines:
        if terminal.width:
            room = max(terminal.width, 60) - len(indent)
            text = f"\n{indent}".join(textwrap.wrap(text, max(room, 30)))
        click.echo(head + text)


def _has_signs() -> bool:
    return can_print("✓✗–→")


def _summary(report: Report) -> str:
    problems = sum(step.status == "problem" for step in report.steps)
    warnings = sum(step.status == "warning" for step in report.steps)
    found = [counted(number, noun) for number, noun in ((problems, "problem"), (warnings, "warning")) if number]
    return f"{'It works' if report.works else 'Something does not work'}{': ' if found else '.'}{', '.join(found)}"


_HOST_NAME_WIDTH = 24
# The sign of a server, the word instead of it, and the text behind it.
_STATES = {
    "works": ("✓", "ok", ""),
    "broken": ("✗", "PROBLEM", "does not work"),
    "off": ("–", "off", "disabled"),
    "not started": ("–", "not started", "not started: it is in a project's file"),
}


def _check_hosts(timeout: float, *, as_json: bool) -> int:
    def on_file(checked: CheckedFile) -> None:
        if not as_json:
            _print_file(checked)

    found = asyncio.run(check_hosts(on_file, timeout=timeout, folder=os.getcwd()))
    is_well = all(checked.is_well for checked in found)
    if as_json:
        click.echo(json_text({"works": is_well, "hosts": [_file_members(checked) for checked in found]}))
    else:
        click.echo(_hosts_summary(found))
    return 0 if is_well else 1


def _print_file(checked: CheckedFile) -> None:
    click.echo(f"{checked.host.name}{' (this project)' if checked.is_project else ''}: {printable(checked.path, 1000)}")
    for finding in checked.findings:
        _print_finding(finding, "  ")
    if not checked.servers and not checked.findings:
        click.echo("  no servers")
    for server in checked.servers:
        sign, word, text = _STATES[server.state]
        text = text or f"{counted(server.tools, 'tool')}, first answer after {server.seconds:.2f} s"
        name = printable(server.name, 100)
        click.echo(f"  {sign if _has_signs() else word} {name:<{_HOST_NAME_WIDTH}} {text}")
        for finding in server.findings:
            _print_finding(finding, "      ")
        for line in server.stderr_tail:
            click.echo(f"        stderr: {printable(line, 500)}")


def _print_finding(finding: Finding, margin: str) -> None:
    click.echo(f"{margin}{'' if finding.is_problem else 'warning: '}{printable(finding.text, 1000)}")
    if finding.advice:
        click.echo(f"{margin}  {arrow()} {printable(finding.advice, 1000)}")


def _hosts_summary(found: list[CheckedFile]) -> str:
    if not found:
        return "No host with a configuration file was found on this machine."
    servers = [server for checked in found for server in checked.servers]
    broken = sum(server.state == "broken" for server in servers)
    works = sum(server.state == "works" for server in servers)
    bad_files = sum(any(finding.is_problem for finding in checked.findings) for checked in found)
    more = f", {counted(bad_files, 'file')} to correct" if bad_files else ""
    return f"{works} of {len(servers)} servers work, {broken} {'does' if broken == 1 else 'do'} not{more}."


def _file_members(checked: CheckedFile) -> dict[str, Any]:
    return {
        "host": checked.host.id,
        "name": checked.host.name,
        "file": checked.path,
        "isProject": checked.is_project,
        "findings": checked.findings,
        "servers": checked.servers,
    }
