"""`mcpd doctor`."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
import textwrap

import click

from mcpd.cli.client_options import TARGET_HELP, ClientCommand, demo_option, json_option, reach_of
from mcpd.cli.talk.reach import Reach, named_target, without_secrets
from mcpd.cli.talk.terminal import as_json_text
from mcpd.cli.talk.words import WrongUse, with_help
from mcpd.client.targets.named import CommandTarget, UrlTarget
from mcpd.doctor.report import Report, Status, Step
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import mask_command, printable

_HELP = """Try a server step by step, as a host would (an AI program such as Claude Code), and say what works, what does
not and what to do.

\b
  mcpd doctor server.py
  mcpd doctor claude-code:github         as Claude Code is configured to start it
  mcpd doctor https://example.com/mcp
  mcpd doctor -- npx -y some-server
  mcpd doctor --hosts                    every server of every host that is installed here

A program is started several times, once for each version of the protocol. Of its tools one is called, if it is marked
as read-only and needs no arguments.

"""

_EPILOG = "Exit codes: 0 all works, 1 something does not, 2 wrong use, 130 Ctrl-C."

_SIGNS: dict[Status, str] = {"ok": "✓", "warning": "!", "problem": "✗", "skipped": "–"}
_WORDS: dict[Status, str] = {"ok": "ok", "warning": "warning", "problem": "PROBLEM", "skipped": "skipped"}
_COLOURS: dict[Status, str] = {"ok": "\x1b[32m", "warning": "\x1b[33m", "problem": "\x1b[31m", "skipped": "\x1b[2m"}
_OFF = "\x1b[0m"
_NAME_WIDTH = 20


@click.command(
    "doctor",
    cls=ClientCommand,
    help=f"{_HELP}\n{TARGET_HELP}",
    epilog=_EPILOG,
    params=[
        click.Argument(["target"], required=False),
        click.Option(
            ["--hosts", "all_hosts"], is_flag=True,
            help="Look at every host on this machine: which of its servers do not start there, and why.",
        ),
        json_option("Print everything as one JSON object, for programs."),
        click.Option(
            ["--timeout"], type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="SECONDS",
            help="How long the server has for each answer.",
        ),
        click.Option(["--env"], multiple=True, metavar="NAME=VALUE", help="A variable for a program. Can be repeated."),
        click.Option(
            ["-H", "--header", "headers"], multiple=True, metavar="NAME:VALUE",
            help="A header for a server behind a URL. Can be repeated.",
        ),
        click.Option(["--token-file"], metavar="FILE", help="Read the token that a URL wants from this file."),
        demo_option(),
    ],
)  # fmt: skip
def command(
    target: str | None,
    all_hosts: bool,
    as_json: bool,
    timeout: float,
    env: tuple[str, ...],
    headers: tuple[str, ...],
    token_file: str | None,
    demo: bool,
    command: tuple[str, ...],
) -> int:
    if all_hosts:
        if target is not None or command or env or headers or demo or token_file is not None:
            raise click.UsageError("--hosts looks at all that the hosts are set up with, and takes no target")
        from mcpd.cli.doctor_hosts import run

        return run(timeout, as_json=as_json)
    if target is not None and command:
        raise click.UsageError(f"give the target {target} or a command behind --, not both")
    said = {"headers": headers, "token_file": token_file, "timeout": timeout, "version": None, "env": env, "demo": demo}
    report = Report(lambda step: None if as_json else _Lines().print(step))
    if target is not None and ":" in target:
        from mcpd.install.checks import look_at_entry

        look_at_entry(target, report)
    reach = reach_of(target, command, said)
    named = _named(reach, report)
    if named is not None:
        if not as_json:
            click.echo(f"trying {printable(named)}", err=True)
        asyncio.run(_try(named, report, timeout))
    if as_json:
        click.echo(_as_json(report, without_secrets(target) if target else " ".join(mask_command(command))))
    elif named is not None:
        click.echo(_summary(report))
    return 0 if report.works else 1


def _named(reach: Reach, report: Report) -> CommandTarget | UrlTarget | None:
    """What is to be tried; None if there is nothing of that name, which is the first thing to say. Raises WrongUse."""
    try:
        return named_target(reach)
    except WrongUse:
        raise
    except ConfigurationError as error:
        what, sign, advice = with_help(error, reach.called).partition("; ")
        report.fail("found", what, advice if sign else _advice_on(what))
        return None


def _advice_on(what: str) -> str:
    """What to do about an error that does not say it."""
    for said, advice in _ADVICE:
        if said.search(what):
            return advice
    return "name a file, a URL, or a program behind --"


_ENTRY = '{"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}'
_ADVICE = (
    (re.compile(r", line \d+, column \d+: "), "mend the file there: a comma, a quote or a bracket too few or too many"),
    (
        re.compile("has no configuration here"),
        "is the host installed here? mcpd install --list says which are",
    ),
    (re.compile("no servers in its configuration"), "mcpd install HOST SERVER tells the host of one"),
    (re.compile("there are no servers in it|there is no mcpServers in it"), f"write servers into it: {_ENTRY}"),
    (re.compile("this is no URL"), "write http://HOST:PORT/mcp"),
)


async def _try(named: CommandTarget | UrlTarget, report: Report, timeout: float) -> None:
    if isinstance(named, UrlTarget):
        from mcpd.doctor.urls import try_url

        await try_url(named, report, timeout)
        return
    from mcpd.doctor.program import try_command

    await try_command(named, report, timeout)


# ------------------------------------------------------------------------------------------- output


class _Lines:
    """Steps as lines: in colour and folded to its width on a terminal."""

    def __init__(self) -> None:
        is_terminal = sys.stdout.isatty()
        self._has_colours = is_terminal and not os.environ.get("NO_COLOR")
        self._width = max(shutil.get_terminal_size().columns, 60) if is_terminal else 0

    def print(self, step: Step) -> None:
        """One step: a sign, its name, what was found; below it what to do."""
        sign = _SIGNS[step.status] if _can_print("✓✗–→") else _WORDS[step.status]
        if self._has_colours:
            sign = f"{_COLOURS[step.status]}{sign}{_OFF}"
        took = f"  ({step.seconds * 1000:.0f} ms)" if step.seconds is not None and step.name != "first answer" else ""
        self._put(f"{sign} {step.name:<{_NAME_WIDTH}}", f"{printable(step.text, 2000)}{took}", " " * (_NAME_WIDTH + 2))
        if step.advice:
            arrow = "→" if _can_print("→") else "->"
            self._put(" " * (_NAME_WIDTH + 2) + f"{arrow} ", printable(step.advice, 2000), " " * (_NAME_WIDTH + 4))

    def _put(self, head: str, text: str, margin: str) -> None:
        if not self._width:
            click.echo(head + text)
            return
        lines = textwrap.wrap(text, max(self._width - len(margin), 30)) or [""]
        click.echo(head + f"\n{margin}".join(lines))


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _summary(report: Report) -> str:
    problems = sum(step.status == "problem" for step in report.steps)
    warnings = sum(step.status == "warning" for step in report.steps)
    found = [f"{number} {what}{'s' if number > 1 else ''}" for number, what in
             ((problems, "problem"), (warnings, "warning")) if number]  # fmt: skip
    return f"{'It works' if report.works else 'Something does not work'}{': ' if found else '.'}{', '.join(found)}"


def _as_json(report: Report, target: str) -> str:
    from msgspec.json import encode, format

    said = {"target": target or None, "works": report.works, "steps": report.steps}
    return as_json_text(format(encode(said), indent=2).decode())
