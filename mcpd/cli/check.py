"""`mcpd check`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext, redirect_stdout
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

import click
from msgspec.json import encode, format

from mcpd.cli.client_options import or_demo
from mcpd.cli.options import parameter, target
from mcpd.cli.protection import table_of
from mcpd.cli.target import find
from mcpd.errors import NAMESAKE, ConfigurationError, collecting
from mcpd.protocol.printable import printable
from mcpd.serve_defaults import DEMO
from mcpd.serve_options import Option, command_options
from mcpd.server.checks import token_problems
from mcpd.server.registry.entries import Problem

if TYPE_CHECKING:
    from mcpd.approval import Change
    from mcpd.protocol.principal import Principal
    from mcpd.server import Server
    from mcpd.server.registry.entries import ToolEntry

_HELP = """Load TARGET, list what it offers, and name every problem that a client would run into.

TARGET is a folder, file.py, file.py:object or package.module:object; without one it is the folder that this is in, or
the demo server. The list goes to stdout, problems to stderr; a warning is about what works, but not everywhere or
not as well as it could.

With --lock FILE it is held against an approval file, which --write writes: what breaks callers and what does not is
named. Exit codes: 0 no problem (with --strict no warning either) and no change, 1 a problem, a change or nothing to
load, 2 wrong use.
"""


_PARAMETERS: list[click.Parameter] = [
    target(),
    parameter(
        "verbose",
        Option("--verbose", "Other", "Show the schemas of each tool, and the arguments of prompts."),
        bool,
        False,
    ),
    parameter("strict", Option("--strict", "Other", "Count warnings as problems."), bool, False),
    parameter("as_json", Option("--json", "Other", "Print everything as one JSON object, for programs."), bool, False),
    parameter(
        "lock",
        Option("--lock", "Other", "Fail if what it offers is not what this approval file says.", metavar="FILE"),
        str,
        None,
    ),
    parameter("write", Option("--write", "Other", "Write the approval file of --lock, or write it anew."), bool, False),
    parameter("demo", *command_options()["demo"], False),
    parameter("tokens_file", *command_options()["tokens_file"], None),
    parameter("log_level", *command_options()["log_level"], "error"),
    parameter("no_compat", *command_options()["no_compat"], False),
    click.Argument(["arguments"], nargs=-1),
]


@click.command("check", params=_PARAMETERS, help=_HELP)
def command(
    target: str | None,
    verbose: bool,
    strict: bool,
    as_json: bool,
    lock: str | None,
    write: bool,
    log_level: str,
    demo: bool,
    tokens_file: str | None,
    no_compat: bool,
    arguments: tuple[str, ...],
) -> int:
    target = or_demo(target, demo)
    if write and lock is None:
        raise click.UsageError("--write goes with --lock FILE")
    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    report = _Report(target)
    refused: list[Problem] = []

    try:
        # What the author's code prints while it is loaded is no JSON.
        with redirect_stdout(sys.stderr) if as_json else nullcontext(), closing(_Complaints()) as heard:
            with collecting(lambda error: refused.append(_refusal(target, error))):
                server = _load(target, no_compat, arguments)
            report.problems = [*refused, *_problems(server, heard, _principals(target, tokens_file, server))]
        if lock is not None and not (write and refused):
            _approve(server, lock, write, report)
        elif lock is not None:
            report.note = f"{lock} is not written: it would lack what was not registered"
    except ConfigurationError as error:
        report.problems = refused
        if not as_json:
            report.tell()
            raise
        report.problems.append(Problem(target or "the demo server", str(error)))
        click.echo(report.as_json(None))
        return 1

    if find(target).name == DEMO and not demo:
        click.echo("mcpd: no server was named, so this is the demo server of mcpd", err=True)
    if as_json:
        click.echo(report.as_json(server))
    else:
        _list(server, verbose)
        report.tell()
    return 1 if report.has_failed(strict) else 0


def _load(target: str | None, no_compat: bool, arguments: tuple[str, ...]) -> Server:
    from mcpd.cli.header_files import surroundings
    from mcpd.cli.programs import Looker, look_into
    from mcpd.cli.target import load

    found, looker = find(target), Looker()
    left_out = surroundings([found])
    server = load(found, None if no_compat else looker, arguments, left_out=left_out) or looker.found
    if server is None:
        raise ConfigurationError(f"{target}: the program ended without serving anything")
    look_into(server)
    return server


def _refusal(target: str | None, error: Exception) -> Problem:
    """The error of a decorator, and the line of the user's code where that is used. Called where it is raised."""
    from mcpd.cli.target import split
    from mcpd.cli.user_errors import is_own

    place = split(target or "")[0]
    folder = os.path.dirname(os.path.abspath(place)) if os.path.isfile(place) else os.getcwd()
    for frame, line in walk_stack(None):
        path = frame.f_code.co_filename
        if is_own(path, folder):
            where = f"{printable(os.path.relpath(path))}, line {line}"
            return Problem(where, printable(error, 2000) or type(error).__name__)
    return Problem(target or "", printable(error, 2000) or type(error).__name__)


def _list(server: Server, verbose: bool) -> None:
    click.echo(f"{server.name} {server.identity.version}")
    for title, offers in _offers(server):
        if offers:
            click.echo(f"{title} ({len(offers)})")
        for name, text, details in offers:
            click.echo(f"  {name}{'  ' + text if text else ''}")
            for what, schema in details if verbose else ():
                shown = format(encode(schema), indent=2).decode().replace("\n", "\n      ")
                click.echo(f"    {what}\n      {shown}")


def _principals(target: str | None, tokens_file: str | None, server: Server) -> Iterable[Principal]:
    """Who is known beforehand: by a file of tokens, or as the server says. Raises ConfigurationError."""
    found = find(target)
    if tokens_file is None and found.place is not None and found.configuration is not None and found.configuration.auth:
        tokens_file = table_of(found.configuration.auth, found.place)["tokens_file"]
    if tokens_file is None:
        return getattr(server.authenticate, "principals", ())
    from mcpd.auth.tokens import read_tokens

    return read_tokens(tokens_file).values()


def _problems(server: Server, heard: _Complaints, principals: Iterable[Principal]) -> list[Problem]:
    """All that is wrong, errors first, each once."""
    said = [Problem("", text, level >= logging.ERROR) for text, level in heard.texts.items()]
    found = {
        _in_words(problem): problem
        for problem in (*said, *server.problems(), *token_problems(server.catalog, principals))
    }
    for name in _namesakes():
        found[name] = Problem("", f"the distribution {name} is installed too. {NAMESAKE}")
    return sorted(found.values(), key=lambda problem: not problem.is_error)


def _approve(server: Server, lock: str, write: bool, report: _Report) -> None:
    """Hold the server against an approval file, or write it. Raises ConfigurationError."""
    from mcpd.approval import check_lock, write_lock

    if write:
        report.changes = write_lock(server, lock)
        report.note = f"wrote {lock}"
        return
    changes = check_lock(server, lock)
    if changes is None:
        report.problems.append(Problem("", f"there is no approval file {lock} yet; the same with --write writes it"))
        return
    report.changes = changes
    report.is_approved = not changes
    if changes:
        count = sum(change.is_breaking for change in changes)
        report.note = (
            f"{lock} says otherwise: {count} breaking and {len(changes) - count} harmless changes; "
            "if they are meant, the same with --write writes it anew"
        )


class _Report:
    """What was found: problems, and what changed since an approval file was written."""

    def __init__(self, target: str | None) -> None:
        self.target = target
        self.problems: list[Problem] = []
        self.changes: list[Change] | None = None
        self.is_approved = True
        self.note = ""

    def has_failed(self, strict: bool) -> bool:
        """Whether the exit code says so."""
        return not self.is_approved or any(problem.is_error or strict for problem in self.problems)

    def tell(self) -> None:
        """All of it, a line each, on stderr."""
        for problem in self.problems:
            click.echo(f"mcpd: {'problem' if problem.is_error else 'warning'}: {_in_words(problem)}", err=True)
        for change in self.changes or ():
            click.echo(f"mcpd: {'breaking' if change.is_breaking else 'harmless'}: {printable(change, 1000)}", err=True)
        if self.note:
            click.echo(f"mcpd: {self.note}", err=True)

    def as_json(self, server: Server | None) -> str:
        """The same, and what the server offers, as one JSON object; of a server that cannot be loaded, the problem."""
        from mcpd.approval import offerings

        said: dict[str, Any] = {"target": self.target, "server": None}
        for kind, is_error in (("problems", True), ("warnings", False)):
            found = (problem for problem in self.problems if problem.is_error is is_error)
            said[kind] = [{"where": problem.where, "text": problem.text} for problem in found]
        if self.changes is not None:
            said["changes"] = [
                {"where": change.where, "text": change.text, "isBreaking": change.is_breaking}
                for change in self.changes
            ]
        if server is not None:
            said |= offerings(server)
        return format(encode(said), indent=2).decode()


def _in_words(problem: Problem) -> str:
    return str(problem) if problem.where else problem.text


def _namesakes() -> list[str]:
    """The other distributions that have files in our package's folder."""
    from importlib.metadata import packages_distributions

    return sorted(set(packages_distributions().get("mcpd", ())) - {"mcpd-server"})


class _Complaints(logging.Handler):
    """What is logged while the target loads, such as a file that cannot be read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: dict[str, int] = {}
        self._logger = logger = logging.getLogger("mcpd")
        self._before = logger.propagate, logger.level
        logger.addHandler(self)
        logger.propagate = False
        if not logger.isEnabledFor(logging.WARNING):
            logger.setLevel(logging.WARNING)

    def close(self) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._before[0]
        self._logger.setLevel(self._before[1])
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts[record.getMessage()] = record.levelno


_Details = list[tuple[str, Any]]


def _offers(server: Server) -> Iterator[tuple[str, list[tuple[str, str, _Details]]]]:
    """Each kind of offer with (name, a few words, what else there is to show)."""
    from mcpd.server.registry.entries import metadata_of

    catalog = server.catalog
    yield (
        "tools",
        [(entry.key, _first_line(metadata_of(entry).description), _schemas(entry)) for entry in catalog.tools],
    )
    for title, listing in (("resources", catalog.resources), ("resource templates", catalog.templates)):
        yield title, [(entry.key, entry.listed(frozenset()).mime_type or "", []) for entry in listing]
    yield (
        "prompts",
        [
            (prompt.name, _first_line(prompt.description), [("arguments", prompt.arguments)])
            for prompt in (entry.listed(frozenset()) for entry in catalog.prompts)
        ],
    )


def _schemas(entry: ToolEntry) -> _Details:
    try:
        tool = entry.listed(frozenset())
    except Exception:  # one that cannot be made is among the problems
        return []
    found: _Details = [("input", tool.input_schema)]
    return found if tool.output_schema is None else [*found, ("output", tool.output_schema)]


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
