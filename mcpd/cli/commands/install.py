"""`mcpd install` adds a server to a host's configuration; `mcpd uninstall` removes it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from mcpd.cli.install import operations
from mcpd.cli.install.entry import SWITCHES, NamedEntry, link_to, make_entry
from mcpd.cli.install.files import Journal
from mcpd.cli.install.hosts import find_host, with_other_versions
from mcpd.cli.install.operations import InstallOptions, Listed, Outcome, rendered
from mcpd.cli.options import (
    ClientCommand,
    demo_option,
    flag_option,
    json_option,
    or_demo,
    repeated_option,
    value_option,
)
from mcpd.cli.talk.terminal import counted, json_text
from mcpd.cli.talk.words import WrongUse, note, pairs
from mcpd.client.targets.hosts import HOSTS, Host
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_INSTALL_HELP = """Add a server to a host: Claude Desktop, Claude Code, Cursor, VS Code or another MCP client.

mcpd starts the server once, exactly as the host will start it. If it works, mcpd adds it to the configuration file of
the host. Nothing else in that file changes, and mcpd keeps a backup.

\b
  mcpd install claude-desktop server.py
  mcpd install cursor server.py --env API_KEY=…
  mcpd install vscode --project            the folder here, for this project only
  mcpd install codex --http http://127.0.0.1:8080/mcp
  mcpd install zed -- npx -y some-server   any program
  mcpd install --all server.py             all installed hosts
  mcpd install --list                      show the installed hosts and their servers
  mcpd install --undo cursor               restore the file as it was before

TARGET is a file, a folder, package.module:object, a URL, or HOST:NAME for a server of another host. By default it is
the nearest folder, from here upwards, with an mcpd.toml; otherwise the demo server of mcpd.
"""

_UNINSTALL_HELP = """Remove a server that `mcpd install` has added from a host's configuration file.

If nothing else has changed since, the file is byte for byte as it was before. NAME or TARGET is needed only if
`mcpd install` has added several servers to the file.

\b
  mcpd uninstall cursor
  mcpd uninstall cursor garden           by name, as mcpd install --list shows it
  mcpd uninstall claude-desktop server.py
  mcpd uninstall --all --name garden
"""

_EPILOG = "Exit codes: 0 done or nothing to do, 1 failed and the file is unchanged, 2 wrong use, 130 Ctrl-C."

_SHARED: list[click.Parameter] = [
    click.Argument(["words"], nargs=-1, metavar="HOST [TARGET]"),
    flag_option("--all", "everywhere", help="Use all installed hosts instead of HOST."),
    value_option("--name", metavar="NAME",
        help="Set the name of the server in the host. Default: the name that the server reports; for a URL or a "
        "command, and with --no-start, a name made from TARGET."),
    value_option("--project", is_flag=False, flag_value=".", metavar="[DIR]",
        help="Use the configuration file of one project: DIR, or the current folder."),
    value_option("--file", metavar="FILE", help="Use this configuration file, if the host has several."),
    flag_option("--dry-run", help="Show what would change, and change nothing."),
    json_option("Print the result as one JSON object."),
]  # fmt: skip


@click.command(
    "install",
    cls=ClientCommand,
    help=_INSTALL_HELP,
    epilog=_EPILOG,
    params=[
        *_SHARED,
        demo_option(),
        value_option("--http", metavar="URL", help="Add the running server at this URL instead of a TARGET."),
        repeated_option("--env", metavar="NAME=VALUE", help="Set an environment variable of the server."),
        repeated_option("-H", "--header", "headers", metavar="NAME:VALUE",
            help="Send this header to a server at a URL."),
        *(click.Option([flag], is_flag=True, help=help) for flag, (_, help) in SWITCHES.items()),
        flag_option("--force",
            help="Replace a different server of this name, or later changes; write even if the host is running."),
        flag_option("--no-start", help="Do not test the server first."),
        flag_option("--print", "prints", help="Print what would be added, and write nothing."),
        flag_option("--link", "links", help="Print a link that adds the server when it is opened."),
        flag_option("--list", "lists", help="List the installed hosts and their servers."),
        flag_option("--undo", "undoes", help="Undo the last change mcpd made to a host's file."),
    ],
)  # fmt: skip
def install_command(words: tuple[str, ...], command: tuple[str, ...], **given: Any) -> int:
    journal = Journal()
    if given["lists"]:
        _check_count("--list", words, 0)
        return _list(operations.listed(journal), as_json=given["as_json"])
    options = _options_of(given)
    if given["undoes"]:
        _check_count("--undo", words, 1)
        record = operations.undo(_host(words), options, journal)
        done = "added" if record.action == "install" else "removed"
        click.echo(f"{printable(record.path, 1000)} is as it was before {printable(record.name)} was {done}")
        return 0

    is_one_file = options.is_one_file or given["prints"] or given["links"]
    hosts, rest = _hosts_of(words, everywhere=given["everywhere"], is_one_file=is_one_file)
    target = or_demo(rest[0] if rest else None, given["demo"], command)
    variables = pairs(given["env"], "=", "--env", "NAME=VALUE")
    for flag, (value, _) in SWITCHES.items():
        variables.update(value if given[flag.lstrip("-").replace("-", "_")] else {})
    headers = pairs(given["headers"], ":", "--header", "NAME:VALUE")
    made = make_entry(target, command, url=given["http"], env=variables, headers=headers)
    if given["prints"] or given["links"]:
        return _print(hosts, options.name or made.name, made, links=given["links"])

    def tell(text: str) -> None:
        if sys.stderr.isatty():
            note(text)

    def install(host: Host) -> Outcome:
        return asyncio.run(operations.install(host, made, options, journal, tell))

    return _change(hosts, install, as_json=given["as_json"], is_dry=options.dry_run)


@click.command(
    "uninstall",
    cls=ClientCommand,
    help=_UNINSTALL_HELP,
    epilog=_EPILOG,
    params=[
        *_SHARED,
        flag_option(
            "--force",
            help="Remove the server even if mcpd install has not added it; write even if the host is running.",
        ),
    ],
)
def uninstall_command(words: tuple[str, ...], command: tuple[str, ...], **given: Any) -> int:
    options = _options_of(given)
    hosts, rest = _hosts_of(words, everywhere=given["everywhere"], is_one_file=options.is_one_file)
    word, made, target_error = rest[0] if rest else None, None, None
    try:
        made = make_entry(word, command) if rest or command else None
    except ConfigurationError as error:
        if word is None:
            raise
        target_error = error  # the word may be a name
    journal = Journal()

    def uninstall(host: Host) -> Outcome | str:
        name = operations.name_to_remove(host, word, made, options, journal)
        if name is not None:
            return operations.uninstall(host, name, options, journal)
        what = "no server that mcpd install has added" if word is None else f"no server {printable(word)}"
        path = options.path_of(host)
        text = f"{what} in {printable(path, 1000)}; its servers: {operations.names_in(host, path)}"
        if target_error is not None:
            raise ConfigurationError(f"{text}; as a target: {target_error}")
        return text

    return _change(hosts, uninstall, as_json=given["as_json"], is_dry=options.dry_run)


def _change(hosts: Sequence[Host], work: Callable[[Host], Outcome | str], *, as_json: bool, is_dry: bool) -> int:
    code, shown = 0, []
    for host in hosts:
        try:
            outcome = work(host)
            members = {"host": host.id, "change": "none"} if isinstance(outcome, str) else outcome.as_json()
        except ConfigurationError as error:
            if len(hosts) == 1:
                raise
            code, outcome = 1, printable(error, 2000)
            members = {"host": host.id, "error": str(error)}
        shown.append(members)
        if not isinstance(outcome, str):
            code = code if outcome.works else 1
            if not as_json:
                _print_outcome(outcome, is_dry=is_dry)
        elif not as_json:
            click.echo(f"{host.name}: {outcome}")

    if as_json:
        click.echo(json_text(shown[0] if len(hosts) == 1 else shown))
    return code


def _options_of(given: dict[str, Any]) -> InstallOptions:
    project = given["project"]
    if project is not None and not os.path.isdir(project):
        raise WrongUse(f"--project {project}: no such folder; for the current folder write --project=.")
    if given["everywhere"] and given["file"] is not None:
        raise WrongUse("--file is the file of one host; leave out --all")
    return InstallOptions(
        name=given["name"],
        project=None if project is None else os.path.abspath(project),
        file=given["file"],
        force=given["force"],
        dry_run=given["dry_run"],
        starts=not given.get("no_start", False),
    )


def _hosts_of(words: Sequence[str], *, everywhere: bool, is_one_file: bool) -> tuple[list[Host], list[str]]:
    if everywhere:
        _check_count("--all", words, 1)
        found = operations.hosts_for_all()
        if not found:
            raise ConfigurationError("no known host is installed on this machine; name a host to write its file")
        return found, list(words)

    if len(words) > 2:
        raise WrongUse(f"leave out {words[2]!r}: write HOST and TARGET, or a command after --")
    try:
        host = _host(words[:1])
        return ([host] if is_one_file else with_other_versions(host)), list(words[1:])
    except ConfigurationError:
        if words and os.path.exists(words[0]):
            raise WrongUse(f"write the host first: HOST {words[0]}; --list shows the installed hosts") from None
        raise


def _host(words: Sequence[str]) -> Host:
    if not words:
        raise WrongUse(f"name a host: {', '.join(HOSTS)}; --list shows the installed ones, --all uses all of those")
    return find_host(words[0])


def _check_count(option: str, words: Sequence[str], most: int) -> None:
    if len(words) > most:
        raise WrongUse(f"leave out {words[most]!r}: {option} does not use it")


def _print_outcome(outcome: Outcome, *, is_dry: bool) -> None:
    plan, verdict = outcome.plan, outcome.verdict
    name, path = printable(plan.name), printable(plan.before.path, 1000)
    if verdict is not None:
        for line in verdict.lines:
            click.echo(line, err=not verdict.works)
        if not verdict.works:
            note(f"{path} is unchanged; --no-start adds the server without testing it")
            return
    for warning in outcome.warnings:
        if verdict is None or warning not in verdict.warnings:
            click.echo(f"warning: {printable(warning, 1000)}")
    if is_dry and plan.change != "none":
        click.echo(plan.difference or f"{path} would be restored as it was before")
        return

    if plan.change == "none":
        servers = operations.names_in(plan.host, plan.before.path)
        state = f"has {name}" if plan.entry else f"does not have {name}; its servers: {servers}"
        click.echo(f"{plan.host.name}: nothing to change, {path} {state}")
    elif outcome.done is not None:
        by = f" by {outcome.done.by}" if outcome.done.by else ""
        where = "from" if plan.change == "removed" else "in"
        click.echo(f"{plan.host.name}: {name} {plan.change} {where} {path}{by}")
        if outcome.done.backup:
            backup = printable(outcome.done.backup, 1000)
            click.echo(f"the previous file is kept as {backup}; to restore it: {printable(outcome.undo_command, 1000)}")
    for line in outcome.notes:
        click.echo(line)


def _print(hosts: Sequence[Host], name: str, made: NamedEntry, *, links: bool) -> int:
    for host in hosts:
        click.echo(link_to(host, name, made.entry) if links else rendered(host, name, made.entry).rstrip())
    for warning in made.warnings:
        note(warning)
    return 0


def _list(rows: Sequence[Listed], *, as_json: bool) -> int:
    if as_json:
        click.echo(json_text(rows))
        return 0
    if not rows:
        click.echo("no known host was found on this machine", err=True)
    for row in rows:
        others = [counted(row.others, "other")] if row.others else []
        inside = ", ".join([*row.ours, *others]) or ("no servers" if row.has_file else "no file yet")
        click.echo(f"{row.host:<18} {printable(row.file, 1000)}\n{'':<18} {printable(row.error or inside, 1000)}")
        for name in row.gone:
            text = f"{printable(name)} was installed here and has been removed by {row.name} or by hand"
            click.echo(f"{'':<18} {text}")
    return 0
