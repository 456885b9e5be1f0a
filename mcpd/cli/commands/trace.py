"""`mcpd trace -- COMMAND` records messages; `mcpd trace show` prints them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import click

from mcpd.cli.options import Size, flag_option, repeated_option, value_option
from mcpd.cli.talk.words import note
from mcpd.cli.trace.reading import (
    Entry,
    Filter,
    TraceReader,
    as_json,
    as_line,
    default_folder,
    new_default_path,
    newest_trace,
    read_lines,
    readable_time,
)
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_HELP = """Run a server for a host, and record the messages between them in a file.

In the host's configuration, write `mcpd trace --` before the server's command: set `command` to the path of mcpd, and
begin `args` with "trace", "--" and the server's command. Messages in both directions, stderr, signals, the end of stdin
and the exit code are passed on unchanged and without delay. If the server cannot be started, the exit code is 127 or
126.

\b
  mcpd trace -- npx -y some-server                     to a file in your state folder; stderr shows its name
  mcpd trace --file /tmp/t.jsonl -- python server.py
  mcpd trace show                                      print the newest trace, one line per message
  mcpd trace show --errors /tmp/t.jsonl                print what failed

Only you can read the file (0600). It contains your requests and the results. Values with secret names, such as tokens
and passwords, are masked; still, read the file before you share it.
"""

_EPILOG = """\b
The file contains JSON Lines, which docs/reference/metrics.md describes. A full file is renamed to FILE.1, which is
replaced. The state folder keeps the newest 20 traces.
"""

_SHOW_HELP = """Print a trace, one line per message.

FILE was written by mcpd trace or by mcpd serve --wire-log, or saved in the preview. Default: the newest trace in your
state folder. Each line shows the time, the direction (→ to the server, ← to the host), the id, the method, the time
until the answer, the size, and the beginning of the content. Requests without an answer are listed at the end. If you
give several options, messages must match all of them.
"""

_MOST_CHARACTERS = 120
_COLUMNS_BEFORE = 68
_RED, _DIM, _OFF = "\x1b[31m", "\x1b[2m", "\x1b[0m"


class _Trace(click.Group):
    """A group in which all words after `--` are the server's command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args and args[0] != "show":
            at = args.index("--")
            ctx.obj = tuple(args[at + 1 :])
            rest = click.Command.parse_args(self, ctx, args[:at])
            if rest or not ctx.obj:
                text = f"unexpected {rest[0]!r} before --" if rest else "no command after --"
                raise click.UsageError(f"{text}; write mcpd trace -- COMMAND, with the server's command", ctx)
            return rest

        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "show":
            return super().resolve_command(ctx, args)
        raise click.UsageError(f"write -- before the server's command: mcpd trace -- {printable(' '.join(args))}", ctx)


@click.group(
    "trace",
    cls=_Trace,
    help=_HELP,
    epilog=_EPILOG,
    invoke_without_command=True,
    params=[
        value_option("--file", metavar="FILE", help="Append to this file. Default: a new file in your state folder."),
        value_option("--max-size", type=Size(), default="64M", metavar="SIZE",
            help="Rename the file to FILE.1 when it reaches this size. Default: 64 MiB."),
        value_option("--max-message", type=Size(), default="1M", metavar="SIZE",
            help="Record at most this much of one message. Default: 1 MiB."),
        flag_option("--secrets", help="Do not mask tokens and passwords."),
    ],
)  # fmt: skip
@click.pass_context
def trace_command(ctx: click.Context, file: str | None, max_size: int, max_message: int, secrets: bool) -> int:
    words: tuple[str, ...] = ctx.obj or ()
    if ctx.invoked_subcommand is not None:
        return 0
    if not words:
        raise click.UsageError("no command; write mcpd trace -- COMMAND, or mcpd trace show", ctx)
    return _trace(words, file, max_size, max_message, secrets)


def _trace(words: tuple[str, ...], file: str | None, max_size: int, max_message: int, secrets: bool) -> int:
    try:
        from mcpd.cli.trace.proxy import Guardian, end_like, run
    except ImportError as error:
        raise ConfigurationError(f"mcpd trace cannot run on this system: {error}") from error
    from mcpd.transports.recorder import Recorder, Recording, TraceFile

    opened = TraceFile(new_default_path(words[0]) if file is None else Path(file), max_size)
    if file is None or opened.path != Path(file).absolute():
        _print(f"recording to {printable(opened.path, 1000)}")

    guardian = Guardian()  # it forks, so it must start before any thread
    recording = Recording(max_bytes=max_message, shows_secrets=secrets)
    recorder = Recorder(opened, words, recording, complain=_print)
    try:
        code = run(words, recorder, guardian)
    finally:
        recorder.close()
        guardian.close()
    return end_like(code)


def _print(text: str) -> None:
    with suppress(OSError):
        print(f"mcpd trace: {text}", file=sys.stderr, flush=True)


@click.command(
    "show",
    help=_SHOW_HELP,
    params=[
        click.Argument(["file"], required=False),
        repeated_option("--method", "methods", metavar="NAME",
            help="Print messages of this method, for example tools/*."),
        repeated_option("--id", "ids", metavar="ID", help="Print the request with this id and its answer."),
        flag_option("--errors", help="Print failures: errors, failed tools, lines on stdout that are "
                     "not messages, exit codes."),
        value_option("--slow", type=float, metavar="MS", help="Print answers that took this many milliseconds or "
                     "more."),
        value_option("--grep", metavar="REGEX", help="Print messages that match this pattern, ignoring case."),
        flag_option("--full", help="Print whole messages."),
        flag_option("--follow", "-f", help="Wait for new messages, until Ctrl-C."),
        flag_option("--json", "as_json_lines", help="Print the records as JSON, one per line."),
    ],
)  # fmt: skip
def _show_command(
    file: str | None,
    methods: tuple[str, ...],
    ids: tuple[str, ...],
    errors: bool,
    slow: float | None,
    grep: str | None,
    full: bool,
    follow: bool,
    as_json_lines: bool,
) -> None:
    try:
        pattern = None if grep is None else re.compile(grep, re.IGNORECASE)
    except re.error as error:
        raise click.UsageError(f"--grep: {error}; write a backslash before characters such as ( [ . *") from error
    wanted = Filter(methods, ids, errors, slow, pattern)
    path = _path(file)
    printer = _Printer(full, as_json_lines)
    reader = TraceReader()
    has_records = False

    try:
        for line in read_lines(path, (lambda: False) if follow else None):
            for entry in reader.feed(line):
                has_records = True
                if wanted.wants(entry):
                    printer.print(entry)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise ConfigurationError(f"{printable(path)} cannot be read: {error.strerror}") from error

    missing = [entry for entry in reader.unanswered() if wanted.wants_unanswered(entry)]
    if missing and not as_json_lines:
        printer.print_unanswered(missing)
    if not has_records:
        what = "is empty" if not reader.unreadable else "is not a trace: none of its lines is a record"
        writers = "mcpd trace, mcpd serve --wire-log and the preview write traces"
        raise ConfigurationError(f"{printable(path, 1000)} {what}; {writers}")
    if reader.unreadable:
        text = f"{reader.unreadable} lines of {path} are not records of a trace"
        note(printable(text, 1000))


trace_command.add_command(_show_command)


def _path(file: str | None) -> Path:
    if file is not None:
        return Path(file)
    path = newest_trace()
    if path is None:
        folder = printable(default_folder(), 1000)
        raise ConfigurationError(f"no trace in {folder}; record one with mcpd trace -- COMMAND, or name a file")
    note(printable(path, 1000))
    return path


class _Printer:
    """Prints lines on stdout; on a terminal in colour and cut to its width."""

    def __init__(self, is_full: bool, is_json: bool) -> None:
        is_terminal = sys.stdout.isatty()
        self._most = _MOST_CHARACTERS
        if is_full:
            self._most = sys.maxsize
        elif is_terminal:
            self._most = max(shutil.get_terminal_size().columns - _COLUMNS_BEFORE, 20)
        self._has_colours = is_terminal and not os.environ.get("NO_COLOR")
        self._is_json = is_json

    def print(self, entry: Entry) -> None:
        if self._is_json:
            self._put(as_json(entry))
            return
        colour = _RED if entry.is_failure else _DIM if entry.role in ("stderr", "event", "run") else ""
        self._put(as_line(entry, self._most), colour)

    def print_unanswered(self, missing: list[Entry]) -> None:
        last = missing[-1].at
        for entry in missing:
            who = "the server" if entry.source == "host" else "the host"
            since = f", sent {readable_time(last - entry.at)} before the last of these" if entry.at < last else ""
            text = f"no answer from {who}: {printable(entry.method)}, id {printable(entry.id)}{since}"
            self._put(text, _RED)

    def _put(self, text: str, colour: str = "") -> None:
        shown = f"{colour}{text}{_OFF}" if colour and self._has_colours else text
        encoding = sys.stdout.encoding or "utf-8"
        print(shown.encode(encoding, "backslashreplace").decode(encoding), flush=True)
