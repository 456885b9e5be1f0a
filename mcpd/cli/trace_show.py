"""`mcpd trace show`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import click

from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.trace.reading import Entry, TraceReader, read_lines
from mcpd.trace.showing import Filter, as_json, as_line, readable_time

_HELP = """Print a trace, a line for each message.

FILE was written by mcpd trace, by mcpd serve --wire-log, or saved in the preview. Without FILE it is the one in your
state folder that was written last. Each line has the time, the direction (→ to the server, ← to the host), the id, the
method, of an answer how long it took, the size, and the beginning of what it says.
What has no answer is named at the end. Options go together: all of them have to fit.
"""

_MOST_CHARACTERS = 120
_COLUMNS_BEFORE = 68
_RED, _DIM, _OFF = "\x1b[31m", "\x1b[2m", "\x1b[0m"


@click.command(
    "show",
    help=_HELP,
    params=[
        click.Argument(["file"], required=False),
        click.Option(
            ["--method", "methods"], multiple=True, metavar="NAME", help="Of this method; tools/* for several."
        ),
        click.Option(["--id", "ids"], multiple=True, metavar="ID", help="The request of this id, and its answer."),
        click.Option(["--errors"], is_flag=True, help="What failed: errors, tools, no messages on stdout, exit codes."),
        click.Option(["--slow"], type=float, metavar="MS", help="Answers that took so many milliseconds or more."),
        click.Option(["--grep"], metavar="REGEX", help="What holds this, in small or capital letters."),
        click.Option(["--full"], is_flag=True, help="Show messages whole."),
        click.Option(["--follow", "-f"], is_flag=True, help="Wait for more, until Ctrl-C."),
        click.Option(["--json", "as_json_lines"], is_flag=True, help="Print the records as JSON, one on each line."),
    ],
)
def show(
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
    wanted = Filter(methods, ids, errors, slow, _pattern(grep))
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
        what = "has no records" if not reader.unreadable else "is not a trace: none of its lines is a record"
        kinds = "mcpd trace, mcpd serve --wire-log and the preview write such files"
        raise ConfigurationError(f"{printable(path, 1000)} {what}; {kinds}")
    if reader.unreadable:
        text = f"{reader.unreadable} lines of {path} are no records of a trace"
        click.echo(f"mcpd: {printable(text, 1000)}", err=True)


def _pattern(grep: str | None) -> re.Pattern[str] | None:
    try:
        return None if grep is None else re.compile(grep, re.IGNORECASE)
    except re.error as error:
        raise click.UsageError(f"--grep: {error}; in front of ( [ . * and others goes a backslash") from error


def _path(file: str | None) -> Path:
    if file is not None:
        return Path(file)
    from mcpd.trace.reading import default_folder, newest_trace

    path = newest_trace()
    if path is None:
        folder = printable(default_folder(), 1000)
        raise ConfigurationError(f"no trace in {folder}; make one with mcpd trace -- COMMAND, or name a file")
    click.echo(f"mcpd: {printable(path, 1000)}", err=True)
    return path


class _Printer:
    """Lines on stdout: in colour and as wide as the terminal, if it is one."""

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
        """One entry."""
        if self._is_json:
            self._put(as_json(entry))
            return
        colour = _RED if entry.is_failure else _DIM if entry.role in ("stderr", "event", "run") else ""
        self._put(as_line(entry, self._most), colour)

    def print_unanswered(self, missing: list[Entry]) -> None:
        """The requests that nobody answered."""
        last = missing[-1].at
        for entry in missing:
            who = "the server" if entry.source == "host" else "the host"
            since = f", asked {readable_time(last - entry.at)} before the last of these" if entry.at < last else ""
            text = f"no answer from {who}: {printable(entry.method)}, id {printable(entry.id)}{since}"
            self._put(text, _RED)

    def _put(self, text: str, colour: str = "") -> None:
        shown = f"{colour}{text}{_OFF}" if colour and self._has_colours else text
        encoding = sys.stdout.encoding or "utf-8"
        print(shown.encode(encoding, "backslashreplace").decode(encoding), flush=True)
