"""`mcpd install`, and what `mcpd uninstall` shares with it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mcpd.cli.client_options import ClientCommand, demo_option, json_option, or_demo
from mcpd.cli.talk.terminal import as_json_text
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import ConfigurationError
from mcpd.install.entry import SWITCHES, make_entry
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.install.entry import Made
    from mcpd.install.operations import Listed, Outcome, Wishes

__all__ = ["SHARED", "ClientCommand", "command", "echo_json", "hosts_of", "pairs", "show", "wishes_of"]

_HELP = """Add a server to a host: to Claude Desktop, Claude Code, Cursor, VS Code or another program that uses servers.

The server is started once, exactly as the host will start it. If it works, it is written into the file in which the
host keeps its servers; nothing else in that file changes, and a copy of it is kept.

\b
  mcpd install claude-desktop server.py
  mcpd install cursor server.py --env API_KEY=…
  mcpd install vscode --project            the folder here, for this project only
  mcpd install codex --http http://127.0.0.1:8080/mcp
  mcpd install zed -- npx -y some-server   a program of somebody else's
  mcpd install --all server.py             every host that is here
  mcpd install --list                      which are here, and what is in them
  mcpd install --undo cursor               the file as it was before

TARGET is a file, a folder, package.module:object, a URL, or HOST:NAME for a server that another host has. Without it
the folder of the next mcpd.toml is meant, here or above, otherwise the demo server of mcpd (--demo).
"""

_EPILOG = "Exit codes: 0 done, or nothing to do; 1 not done, and the file is as it was; 2 wrong use; 130 Ctrl-C."

SHARED: list[click.Parameter] = [
    click.Argument(["words"], nargs=-1, metavar="HOST [TARGET]"),
    click.Option(["--all", "everywhere"], is_flag=True, help="All hosts on this machine, in place of HOST."),
    click.Option(
        ["--name"], metavar="NAME",
        help="What the host calls the server. Default: the name of the server itself; for a URL or a command, and "
        "where the server is not started, a name made of TARGET.",
    ),
    click.Option(
        ["--project"], is_flag=False, flag_value=".", metavar="[DIR]",
        help="For one project only, DIR or the folder here: written into the project's own file.",
    ),
    click.Option(["--file"], metavar="FILE", help="Write into this file, where the host has several."),
    click.Option(["--dry-run"], is_flag=True, help="Show what would change, and change nothing."),
    json_option("Print what was done as one JSON object, for programs."),
]  # fmt: skip


@click.command(
    "install",
    cls=ClientCommand,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        *SHARED,
        demo_option(),
        click.Option(["--http"], metavar="URL", help="A server that runs already, in place of TARGET."),
        click.Option(
            ["--env"], multiple=True, metavar="NAME=VALUE",
            help="An environment variable for the server. Can be repeated.",
        ),
        click.Option(
            ["-H", "--header", "headers"], multiple=True, metavar="NAME:VALUE",
            help="A header for a server behind a URL. Can be repeated.",
        ),
        *(click.Option([flag], is_flag=True, help=help) for flag, (_, help) in SWITCHES.items()),
        click.Option(
            ["--force"], is_flag=True,
            help="Replace another server of this name, or later changes; write though the host runs.",
        ),
        click.Option(["--no-start"], is_flag=True, help="Write without trying the server first."),
        click.Option(["--print", "prints"], is_flag=True, help="Print what would be added, and write nothing."),
        click.Option(["--link", "links"], is_flag=True, help="Print a link that adds it when it is opened."),
        click.Option(["--list", "lists"], is_flag=True, help="List the hosts on this machine, and their servers."),
        click.Option(["--undo", "undoes"], is_flag=True, help="Bring back the host's file of before our last change."),
    ],
)  # fmt: skip
def command(words: tuple[str, ...], command: tuple[str, ...], **said: Any) -> int:
    from mcpd.install import operations
    from mcpd.install.files import Journal

    journal = Journal()
    if said["lists"]:
        _no_more("--list", words, 0)
        return _list(operations.listed(journal), as_json=said["as_json"])
    wishes = wishes_of(said)
    if said["undoes"]:
        _no_more("--undo", words, 1)
        record = operations.undo(_host(words), wishes, journal)
        click.echo(f"{printable(record.path, 1000)} is as it was before {printable(record.name)} was {record.action}ed")
        return 0

    is_one_file = wishes.is_one_file or said["prints"] or said["links"]
    hosts, rest = hosts_of(words, everywhere=said["everywhere"], is_one_file=is_one_file)
    target = or_demo(rest[0] if rest else None, said["demo"], command)
    variables = pairs(said["env"], "=", "--env", "NAME=VALUE")
    for flag, (value, _) in SWITCHES.items():
        variables.update(value if said[flag.lstrip("-").replace("-", "_")] else {})
    headers = pairs(said["headers"], ":", "--header", "NAME:VALUE")
    made = make_entry(target, command, url=said["http"], env=variables, headers=headers)
    if said["prints"] or said["links"]:
        return _print(hosts, wishes.name or made.name, made, links=said["links"])
    return asyncio.run(_install(hosts, made, wishes, as_json=said["as_json"]))


async def _install(hosts: Sequence[Any], made: Made, wishes: Wishes, *, as_json: bool) -> int:
    from mcpd.install import operations
    from mcpd.install.files import Journal

    journal, code, shown = Journal(), 0, []
    for host in hosts:

        def tell(text: str) -> None:
            if sys.stderr.isatty():
                print(f"mcpd: {text}", file=sys.stderr)

        try:
            outcome = await operations.install(host, made, wishes, journal, tell)
        except ConfigurationError as error:
            if len(hosts) == 1:
                raise
            code = 1
            shown.append({"host": host.id, "error": str(error)})
            if not as_json:
                click.echo(f"{host.name}: {printable(error, 2000)}")
            continue
        code = max(code, 0 if outcome.works else 1)
        shown.append(outcome.as_json())
        if not as_json:
            show(outcome, is_dry=wishes.dry_run)
    if as_json:
        echo_json(shown[0] if len(hosts) == 1 else shown)
    return code


def show(outcome: Outcome, *, is_dry: bool) -> None:
    """What came of it, for people."""
    from mcpd.install.operations import names_in

    plan, verdict = outcome.plan, outcome.verdict
    name, path = printable(plan.name), printable(plan.before.path, 1000)
    if verdict is not None:
        for line in verdict.lines if verdict.works else ():
            click.echo(line)
        if not verdict.works:
            for line in verdict.lines:
                click.echo(line, err=True)
            click.echo(f"mcpd: {path} is as it was; --no-start writes it without trying the server", err=True)
            return
    for warning in outcome.warnings:
        if verdict is None or warning not in verdict.warnings:
            click.echo(f"warning: {printable(warning, 1000)}")
    if is_dry and plan.change != "none":
        click.echo(plan.difference or f"{path} would be brought back as it was before")
        return

    if plan.change == "none":
        there = f"has {name}" if plan.entry else f"does not have {name}; in it: {names_in(plan.host, plan.before.path)}"
        click.echo(f"{plan.host.name}: nothing to change, {path} {there}")
    elif outcome.done is not None:
        by = f" by {outcome.done.by}" if outcome.done.by else ""
        where = "from" if plan.change == "removed" else "in"
        click.echo(f"{plan.host.name}: {name} {plan.change} {where} {path}{by}")
        if outcome.done.backup:
            copy = printable(outcome.done.backup, 1000)
            click.echo(f"the file of before is kept as {copy}; back to it: {printable(outcome.way_back, 1000)}")
    for note in outcome.notes:
        click.echo(note)


def wishes_of(said: dict[str, Any]) -> Wishes:
    """What was said beside host and server. Raises WrongUse."""
    from mcpd.install.operations import Wishes

    project = said["project"]
    if project is not None and not os.path.isdir(project):
        raise WrongUse(f"--project {project}: there is no such folder; for the one here write --project=.")
    if said["everywhere"] and said["file"] is not None:
        raise WrongUse("--file is the file of one host; leave --all out")
    return Wishes(
        name=said["name"],
        project=None if project is None else os.path.abspath(project),
        file=said["file"],
        force=said["force"],
        dry_run=said["dry_run"],
        starts=not said.get("no_start", False),
    )


def pairs(words: Sequence[str], sign: str, option: str, form: str) -> dict[str, str]:
    """Names and values. Raises WrongUse, which shows no value."""
    found: dict[str, str] = {}
    for word in words:
        name, there, value = word.partition(sign)
        if not there or not name.strip() or any(c.isspace() for c in name.strip()):
            raise WrongUse(f"{option} …: write {option} {form}")
        found[name.strip()] = value.strip() if sign == ":" else value
    return found


def hosts_of(words: Sequence[str], *, everywhere: bool, is_one_file: bool) -> tuple[list[Any], list[str]]:
    """The hosts that are meant, and the words behind them. `is_one_file`: the file is named, or its project."""
    from mcpd.install.hosts import with_twin
    from mcpd.install.operations import hosts_for_all

    if everywhere:
        _no_more("--all", words, 1)
        found = hosts_for_all()
        if not found:
            raise ConfigurationError("there is no host on this machine that is known; name one, to write its file")
        return found, list(words)
    if len(words) > 2:
        raise WrongUse(f"{words[2]!r} is one word too many; there are HOST and TARGET, or a command behind --")
    try:
        host = _host(words[:1])
        return ([host] if is_one_file else with_twin(host)), list(words[1:])
    except ConfigurationError:
        if words and os.path.exists(words[0]):
            raise WrongUse(f"the host comes first: HOST {words[0]}; --list shows which hosts are here") from None
        raise


def _host(words: Sequence[str]) -> Any:
    from mcpd.client.targets.hosts import HOSTS
    from mcpd.install.hosts import find_host

    if not words:
        raise WrongUse(f"name a host: {', '.join(HOSTS)}; --list shows which are here, --all takes all of these")
    return find_host(words[0])


def _no_more(option: str, words: Sequence[str], most: int) -> None:
    if len(words) > most:
        raise WrongUse(f"{words[most]!r} is one word too many for {option}")


def _print(hosts: Sequence[Any], name: str, made: Made, *, links: bool) -> int:
    from mcpd.install.plan import rendered
    from mcpd.install.shapes import link_to

    for host in hosts:
        click.echo(link_to(host, name, made.entry) if links else rendered(host, name, made.entry).rstrip())
    for warning in made.warnings:
        click.echo(f"mcpd: {warning}", err=True)
    return 0


def _list(rows: Sequence[Listed], *, as_json: bool) -> int:
    if as_json:
        from msgspec import to_builtins

        echo_json(to_builtins(rows))
        return 0
    if not rows:
        click.echo("no host that is known was found on this machine", err=True)
    for row in rows:
        others = f"{row.others} other{'s' if row.others != 1 else ''}" if row.others else ""
        inside = ", ".join([*row.ours, *([others] if others else [])]) or (
            "no servers" if row.has_file else "no file yet"
        )
        click.echo(f"{row.host:<18} {printable(row.file, 1000)}\n{'':<18} {printable(row.error or inside, 1000)}")
        for name in row.gone:
            click.echo(
                f"{'':<18} {printable(name)} was installed here, and is gone: {row.name} or somebody took it out"
            )
    return 0


def echo_json(value: Any) -> None:
    """A value as JSON that is safe to show."""
    from msgspec.json import encode, format

    click.echo(as_json_text(format(encode(value), indent=2).decode()))
