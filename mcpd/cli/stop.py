"""`mcpd stop`: ends servers of this user, as SIGTERM does."""

from __future__ import annotations

import sys

import click

from mcpd.cli.options import parameter
from mcpd.cli.status import no_answer
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.serve_options import Option
from mcpd.server.observe.control import stop, those_that_run

_HELP = """Stop a server that this user runs: PID, or the only one there is. mcpd status names them.

Calls that run get the time that the server gives them (--grace there); then it ends.

Exit codes: 0 stopped, 1 none runs, or it has not ended in time, 2 wrong use.
"""


@click.command(
    "stop",
    help=_HELP,
    params=[
        click.Argument(["pid"], type=int, required=False),
        parameter("everything", Option("--all", "Other", "Stop all of them."), bool, False),
        parameter("timeout", Option("--timeout", "Other", "How long to wait for the end.", "SECONDS"), float, 15.0),
    ],
)
def command(pid: int | None, everything: bool, timeout: float) -> int:
    found, silent = those_that_run()
    chosen = {each: found[each] for each in found if pid in (None, each)}
    hanging = [each for each in silent if pid == each or (pid is None and (everything or not found))]
    for each in hanging:
        print(no_answer(each), file=sys.stderr)
    if hanging and not chosen:
        return 1
    if not chosen:
        what = "no server of yours runs" if pid is None else f"no server of yours has the process id {pid}"
        print(f"mcpd: {what}; mcpd status names those that can be stopped", file=sys.stderr)
        return 1
    if len(chosen) > 1 and not everything:
        raise click.UsageError(f"{len(chosen)} servers run: name one of {', '.join(map(str, chosen))}, or write --all")
    code = 1 if hanging else 0
    for number, (path, status) in chosen.items():
        name = f"{printable(status.name)} (pid {number})"
        try:
            has_ended = stop(path, number, timeout)
        except OSError as error:
            raise ConfigurationError(f"{name} does not answer: {error}; kill {number} ends it too") from None
        if has_ended:
            print(f"stopped {name}")
        else:
            print(f"mcpd: {name} still runs after {timeout:g} s: kill -9 {number} ends it at once", file=sys.stderr)
            code = 1
    return code
