"""`mcpd doctor`."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import textwrap

import click

from ..client.targets import CommandTarget, FileTarget, UrlTarget, command_of, from_words
from ..client.targets.named import NamedTarget
from ..doctor.report import Report, Status, Step
from ..errors import ConfigurationError
from ..printable import printable

__all__ = ["command"]

_HELP = """Try a server step by step, as a host would, and say what works, what does not and what to do.

TARGET is a file, a module, a URL, FILE.json:NAME of an mcpServers file or HOST:NAME of a host's configuration; without
one it is the built-in starter. A program is given behind --:

\b
  mcpd doctor server.py
  mcpd doctor claude-code:github         as Claude Code is configured to start it
  mcpd doctor https://example.com/mcp
  mcpd doctor -- npx -y some-server

A program is started several times, once for each version of the protocol. Of its tools one is called, if it is marked
as read-only and needs no arguments.

Exit codes: 0 all works, 1 something does not, 2 wrong use.
"""

_SIGNS: dict[Status, str] = {"ok": "✓", "warning": "!", "problem": "✗", "skipped": "–"}
_WORDS: dict[Status, str] = {"ok": "ok", "warning": "warning", "problem": "PROBLEM", "skipped": "skipped"}
_COLOURS: dict[Status, str] = {"ok": "\x1b[32m", "warning": "\x1b[33m", "problem": "\x1b[31m", "skipped": "\x1b[2m"}
_OFF = "\x1b[0m"
_NAME_WIDTH = 20


class _Doctor(click.Command):
    """Words behind `--` are a command of their own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        behind: list[str] = []
        if "--" in args:
            at = args.index("--")
            args, behind = args[:at], args[at + 1 :]
            if not behind:
                raise click.UsageError("behind -- stands the command of a server, as -- npx -y some-server", ctx)
        rest = super().parse_args(ctx, args)
        ctx.params["words"] = tuple(behind)
        return rest


@click.command(
    "doctor",
    cls=_Doctor,
    help=_HELP,
    params=[
        click.Argument(["target"], required=False),
        click.Option(["--json", "as_json"], is_flag=True, help="Print everything as one JSON object, for programs."),
        click.Option(
            ["--timeout"], type=click.FloatRange(min=0.1), default=30.0, show_default=True, metavar="SECONDS",
            help="How long the server has for each answer.",
        ),
        click.Option(["--env"], multiple=True, metavar="NAME=VALUE", help="A variable for a program. Can be repeated."),
        click.Option(
            ["-H", "--header", "headers"], multiple=True, metavar="NAME:VALUE",
            help="A header for a server behind a URL. Can be repeated.",
        ),
        click.Option(["--token-file"], metavar="FILE", help="Read the bearer token for a URL from this file."),
    ],
)  # fmt: skip
def command(
    target: str | None,
    as_json: bool,
    timeout: float,
    env: tuple[str, ...],
    headers: tuple[str, ...],
    token_file: str | None,
    words: tuple[str, ...],
) -> int:
    if target is not None and words:
        raise click.UsageError(f"give the target {target} or a command behind --, not both")
    report = Report(lambda step: None if as_json else _Lines().print(step))
    more = _pairs(headers, ":", "-H")
    if token_file is not None:
        more["Authorization"] = f"Bearer {_token(token_file)}"

    named = _with(_named(target, words, report), _pairs(env, "=", "--env"), more)
    if named is not None:
        if not as_json:
            click.echo(f"trying {printable(named)}", err=True)
        asyncio.run(_try(named, report, timeout))
    if as_json:
        click.echo(_as_json(report, target or " ".join(words)))
    elif named is not None:
        click.echo(_summary(report))
    return 0 if report.works else 1


def _named(target: str | None, words: tuple[str, ...], report: Report) -> NamedTarget | None:
    """What is to be tried; None if there is nothing of that name, which is the first thing to say."""
    try:
        return from_words(target, words)
    except ConfigurationError as error:
        what, sign, advice = str(error).partition("; ")
        report.fail("found", what, advice if sign else "name a file, a URL, or a program behind --")
        return None


def _with(named: NamedTarget | None, env: dict[str, str], headers: dict[str, str]) -> NamedTarget | None:
    """A target with what was said besides; a file as the command that serves it."""
    from msgspec.structs import replace

    if isinstance(named, UrlTarget):
        if env:
            raise click.UsageError("--env is for programs; a URL has -H NAME:VALUE")
        return replace(named, headers={**named.headers, **headers}) if headers else named
    if headers and named is not None:
        raise click.UsageError("-H and --token-file are for URLs; a program has --env NAME=VALUE")
    if isinstance(named, FileTarget):
        named = command_of(named)
    if isinstance(named, CommandTarget) and env:
        return replace(named, env={**(named.env or {}), **env})
    return named


async def _try(named: NamedTarget, report: Report, timeout: float) -> None:
    if isinstance(named, UrlTarget):
        raise ConfigurationError(f"{named}: only programs and files can be tried yet, no URLs")
    from ..doctor.commands import try_command

    assert isinstance(named, CommandTarget)
    await try_command(named, report, timeout)


def _pairs(said: tuple[str, ...], sign: str, option: str) -> dict[str, str]:
    found = {}
    for word in said:
        name, there, value = word.partition(sign)
        if not there or not name.strip():
            raise click.UsageError(f"{option} {word}: write {option} NAME{sign}VALUE")
        found[name.strip()] = value.strip() if sign == ":" else value
    return found


def _token(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--token-file {path} cannot be read: {error}") from error


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
    text = format(encode(said), indent=2).decode()
    return "".join(c if c == "\n" or c.isprintable() else f"\\u{ord(c):04x}" for c in text)
