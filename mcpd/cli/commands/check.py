"""`mcpd init` and `mcpd completion` write files to start from; `mcpd check` reports the problems of a server."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from contextlib import closing, nullcontext, redirect_stdout
from importlib.metadata import packages_distributions
from traceback import walk_stack
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class
from msgspec.json import encode, format

from mcpd.cli.listening import settings_of_table
from mcpd.cli.options import demo_option, flag_option, json_option, or_demo, parameter, target_argument, value_option
from mcpd.cli.programs import list_offers
from mcpd.cli.talk.terminal import first_line
from mcpd.cli.talk.words import note
from mcpd.cli.target import Found, find, load_caught, prepare_scripts, split
from mcpd.cli.target_errors import is_own
from mcpd.errors import NAMESAKE, ConfigurationError, collecting
from mcpd.protocol.defaults import DEMO
from mcpd.protocol.printable import printable
from mcpd.server.checks import token_problems
from mcpd.server.extensions.serving import configure
from mcpd.server.registry.entries import Problem
from mcpd.server.settings import command_options
from mcpd.sources.configuration import serve_keys
from mcpd.sources.scaffold import write_folder
from mcpd.testing.approval import KINDS, Change, check_lock, offerings, write_lock

if TYPE_CHECKING:
    from mcpd.protocol.principal import Principal
    from mcpd.server import Server


_INIT_HELP = """Write a small server into DIR to start from: tools, an app, a resource, a prompt and mcpd.toml.

Existing files are not changed. Exit codes: 0 written, 1 not written, 2 wrong use.
"""

_COMPLETION_HELP = """Print a script that lets a shell complete commands, options and names of tools.

\b
  bash: mcpd completion bash > ~/.local/share/bash-completion/completions/mcpd
  zsh:  mcpd completion zsh > ~/.zfunc/_mcpd       with fpath+=~/.zfunc before compinit in ~/.zshrc
  fish: mcpd completion fish > ~/.config/fish/completions/mcpd.fish

For the current shell only: eval "$(mcpd completion bash)"
"""


@click.command("init", help=_INIT_HELP)
@click.argument("folder", metavar="DIR")
def init_command(folder: str) -> None:
    for path in write_folder(folder):
        click.echo(path)
    shown = shlex.quote(folder)
    note("next, list what the server offers, try it in a page, and serve it:")
    click.echo(f"  mcpd check {shown}", err=True)
    click.echo(f"  mcpd preview {shown}", err=True)
    click.echo(f"  mcpd serve --http :8080 {shown}", err=True)


@click.command(
    "completion",
    params=[click.Argument(["shell"], type=click.Choice(("bash", "zsh", "fish")))],
    help=_COMPLETION_HELP,
)
def completion_command(shell: str) -> int:
    from mcpd.cli.group import cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "mcpd", "_MCPD_COMPLETE")
    click.echo(script.source_template % script.source_vars())
    return 0


_HELP = """Load TARGET, list what it offers, and report every problem that a client would have with it.

TARGET is a folder, file.py, file.py:object or package.module:object; by default the current folder or the demo server.
The list goes to stdout, problems and warnings to stderr. A warning is about something that works, but not everywhere or
not as well as it could.

With --lock FILE, mcpd compares the server with an approval file, which --write writes, and says which changes break
callers. Exit codes: 0 no problem (with --strict, no warning either) and no change, 1 a problem, a change or nothing to
load, 2 wrong use.
"""

_PARAMETERS: list[click.Parameter] = [
    target_argument(),
    flag_option("--verbose", help="Print the schemas of tools and the arguments of prompts."),
    flag_option("--strict", help="Count warnings as problems."),
    json_option("Print everything as one JSON object."),
    value_option("--lock", metavar="FILE", help="Fail if the server differs from this approval file."),
    flag_option("--write", help="Write the approval file that --lock names."),
    demo_option(),
    parameter("tokens_file", *command_options()["tokens_file"], None),
    parameter("log_level", *command_options()["log_level"], "error"),
    parameter("no_compat", *command_options()["no_compat"], False),
    parameter("base", *command_options()["base"], None),
    parameter("operations", *command_options()["operations"], ()),
    parameter("library", *command_options()["library"], "auto"),
    click.Argument(["arguments"], nargs=-1),
]


@click.command("check", params=_PARAMETERS, help=_HELP)
def check_command(
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
    base: str | None,
    operations: tuple[str, ...],
    library: str,
    arguments: tuple[str, ...],
) -> int:
    target = or_demo(target, demo)
    if write and lock is None:
        raise click.UsageError("--write requires --lock FILE")

    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    report = _Report(target)
    refused: list[Problem] = []

    try:
        # With --json, stdout must not contain what the author's code prints while it is loaded.
        with redirect_stdout(sys.stderr) if as_json else nullcontext(), closing(_LogCollector()) as collector:
            with collecting(lambda error: refused.append(_refusal(target, error))):
                found = find(target, {"base": base, "allow": operations})
                server = _load(found, no_compat, library, arguments)
            report.problems = [*refused, *_problems(server, collector, _principals(target, tokens_file, server))]
        if lock is not None and not (write and refused):
            _compare(server, lock, write, report)
        elif lock is not None:
            report.note = f"{lock} was not written: entries that could not be registered would be missing"
    except ConfigurationError as error:
        report.problems = refused
        if not as_json:
            report.print()
            raise
        report.problems.append(Problem(target or "the demo server", str(error)))
        click.echo(report.as_json(None))
        return 1

    if find(target).name == DEMO and not demo:
        note("no server was named, so this is the demo server of mcpd")
    if as_json:
        click.echo(report.as_json(server))
    else:
        _list(server, verbose)
        report.print()
    has_failed = any(problem.is_error or strict for problem in report.problems)
    return 1 if has_failed or not report.is_approved else 0


def _load(found: Found, no_compat: bool, library: str, arguments: tuple[str, ...]) -> Server:
    left_out = prepare_scripts([found])
    server, _ = load_caught(found, arguments, is_compatible=not no_compat, left_out=left_out, library=library)
    list_offers(server)
    if found.configuration is not None:
        _configure(server, found.configuration.serve)
    return server


def _configure(server: Server, values: Mapping[str, Any]) -> None:
    # Set the options of extensions in the [serve] table of mcpd.toml.
    options: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        id, name, _, _ = serve_keys()[key]
        if id:
            options.setdefault(id, {})[name] = value
    configure(server.extensions, options)


def _refusal(target: str | None, error: Exception) -> Problem:
    # Called where the error is raised: the frames below are the only trace of the line that used the decorator.
    place = split(target or "")[0]
    folder = os.path.dirname(os.path.abspath(place)) if os.path.isfile(place) else os.getcwd()
    text = printable(error, 2000) or type(error).__name__
    for frame, line in walk_stack(None):
        path = frame.f_code.co_filename
        if is_own(path, folder):
            return Problem(f"{printable(os.path.relpath(path))}, line {line}", text)
    return Problem(target or "", text)


def _list(server: Server, verbose: bool) -> None:
    click.echo(f"{server.name} {server.identity.version}")
    found = offerings(server)
    for kind, member in KINDS.items():
        if found[kind]:
            click.echo(f"{kind.replace('T', ' t')} ({len(found[kind])})")
        for entry in found[kind]:
            text = first_line(entry.get("description")) if member == "name" else entry.get("mimeType", "")
            click.echo(f"  {entry[member]}{'  ' + text if text else ''}")
            for name in ("inputSchema", "outputSchema", "arguments") if verbose else ():
                if name in entry:
                    shown = format(encode(entry[name]), indent=2).decode().replace("\n", "\n      ")
                    click.echo(f"    {name.removesuffix('Schema')}\n      {shown}")


def _principals(target: str | None, tokens_file: str | None, server: Server) -> Iterable[Principal]:
    found = find(target)
    if tokens_file is None and found.place is not None and found.configuration is not None and found.configuration.auth:
        tokens_file = settings_of_table(found.configuration.auth, found.place)["tokens_file"]
    if tokens_file is None:
        return getattr(server.authenticate, "principals", ())
    from mcpd.auth.settings import read_tokens

    return read_tokens(tokens_file).values()


def _problems(server: Server, collector: _LogCollector, principals: Iterable[Principal]) -> list[Problem]:
    logged = [Problem("", text, level >= logging.ERROR) for text, level in collector.texts.items()]
    found = {
        _text_of(problem): problem
        for problem in (*logged, *server.problems(), *token_problems(server.catalog, principals))
    }
    # Other distributions that have files in the folder of our package.
    for name in sorted(set(packages_distributions().get("mcpd", ())) - {"mcpd-server"}):
        found[name] = Problem("", f"the distribution {name} is installed too. {NAMESAKE}")
    return sorted(found.values(), key=lambda problem: not problem.is_error)


def _compare(server: Server, lock: str, write: bool, report: _Report) -> None:
    if write:
        report.changes = write_lock(server, lock)
        report.note = f"wrote {lock}"
        return
    changes = check_lock(server, lock)
    if changes is None:
        report.problems.append(Problem("", f"there is no approval file {lock} yet; to write it, add --write"))
        return
    report.changes = changes
    report.is_approved = not changes
    if changes:
        count = sum(change.is_breaking for change in changes)
        report.note = (
            f"the server differs from {lock}: {count} breaking and {len(changes) - count} harmless changes; "
            "to approve them, add --write"
        )


class _Report:
    """The problems of a server, and its changes since the approval file was written."""

    def __init__(self, target: str | None) -> None:
        self.target = target
        self.problems: list[Problem] = []
        self.changes: list[Change] | None = None
        self.is_approved = True
        self.note = ""

    def print(self) -> None:
        for problem in self.problems:
            note(f"{'problem' if problem.is_error else 'warning'}: {_text_of(problem)}")
        for change in self.changes or ():
            note(f"{'breaking' if change.is_breaking else 'harmless'}: {printable(change, 1000)}")
        if self.note:
            note(self.note)

    def as_json(self, server: Server | None) -> str:
        members: dict[str, Any] = {"target": self.target, "server": None}
        for kind, is_error in (("problems", True), ("warnings", False)):
            found = (problem for problem in self.problems if problem.is_error is is_error)
            members[kind] = [{"where": problem.where, "text": problem.text} for problem in found]
        if self.changes is not None:
            members["changes"] = [
                {"where": change.where, "text": change.text, "isBreaking": change.is_breaking}
                for change in self.changes
            ]
        if server is not None:
            members |= offerings(server)
        return format(encode(members), indent=2).decode()


def _text_of(problem: Problem) -> str:
    return str(problem) if problem.where else problem.text


class _LogCollector(logging.Handler):
    """Collects warnings that are logged while the target loads, such as a file that cannot be read."""

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
