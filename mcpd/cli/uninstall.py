"""`mcpd uninstall`."""

from __future__ import annotations

from typing import Any

import click

from mcpd.cli import install
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_HELP = """Take a server out of a host's file: the entry that `mcpd install` has written, and nothing else.

If nothing else has changed since, the file is byte for byte what it was before. NAME or TARGET says which server; it
is needed only if `mcpd install` has written several into the file.

\b
  mcpd uninstall cursor
  mcpd uninstall cursor garden           by the name in the file, as mcpd install --list shows it
  mcpd uninstall claude-desktop server.py
  mcpd uninstall --all --name garden
"""

_EPILOG = "Exit codes: 0 done, or nothing to do; 1 not done, and the file is as it was; 2 wrong use; 130 Ctrl-C."


@click.command(
    "uninstall",
    cls=install.ClientCommand,
    help=_HELP,
    epilog=_EPILOG,
    params=[
        *install.SHARED,
        click.Option(
            ["--force"],
            is_flag=True,
            help="Take out an entry that is not of mcpd install, too; write though the host runs.",
        ),
    ],
)
def command(words: tuple[str, ...], command: tuple[str, ...], **said: Any) -> int:
    from mcpd.install import operations
    from mcpd.install.entry import make_entry
    from mcpd.install.files import Journal

    wishes = install.wishes_of(said)
    hosts, rest = install.hosts_of(words, everywhere=said["everywhere"], is_one_file=wishes.is_one_file)
    word, made, wrong = rest[0] if rest else None, None, None
    try:
        made = make_entry(word, command) if rest or command else None
    except ConfigurationError as error:
        if word is None:
            raise
        wrong = error  # unless it is a name
    journal, code, shown = Journal(), 0, []
    for host in hosts:
        try:
            name = operations.name_to_remove(host, word, made, wishes, journal)
            if name is None and wrong is not None:
                raise ConfigurationError(f"{_nothing(host, word, wishes)}; and as a target: {wrong}")
            outcome = None if name is None else operations.uninstall(host, name, wishes, journal)
        except ConfigurationError as error:
            if len(hosts) == 1:
                raise
            code = 1
            shown.append({"host": host.id, "error": str(error)})
            if not said["as_json"]:
                click.echo(f"{host.name}: {printable(error, 2000)}")
            continue
        shown.append({"host": host.id, "change": "none"} if outcome is None else outcome.as_json())
        if said["as_json"]:
            continue
        if outcome is None:
            click.echo(f"{host.name}: {_nothing(host, word, wishes)}")
        else:
            install.show(outcome, is_dry=wishes.dry_run)
    if said["as_json"]:
        install.echo_json(shown[0] if len(hosts) == 1 else shown)
    return code


def _nothing(host: Any, word: str | None, wishes: Any) -> str:
    """What is said where the file does not have the server: what it has."""
    from mcpd.install.operations import names_in

    what = "no server that mcpd install has written" if word is None else f"no server {printable(word)}"
    return f"{what} in {printable(wishes.path_of(host), 1000)}; in it: {names_in(host, wishes.path_of(host))}"
