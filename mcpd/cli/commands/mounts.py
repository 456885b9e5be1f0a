"""`mcpd connect` serves a server that is elsewhere on stdio; `mcpd mounts` shows the mounted servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click
from msgspec.json import encode

from mcpd.cli.launch import launch
from mcpd.cli.options import client_command, json_option, server_options, target_argument
from mcpd.cli.talk.connecting import resolve_target
from mcpd.cli.talk.words import note
from mcpd.cli.target import Found
from mcpd.protocol.printable import printable
from mcpd.server.observe.control import running_servers
from mcpd.server.observe.report import MountStatus
from mcpd.server.settings import Options

_CONNECT_HELP = """Serve one server on stdio, for hosts that start programs: a URL, a server of a configuration file or
host, or the name of a mount in mcpd.toml. Its names and results stay as they are.

\b
  mcpd connect https://example.com/mcp
  mcpd connect .mcp.json:github
  mcpd connect db                        [mounts.db] in the nearest mcpd.toml

"""

_MOUNTS_HELP = """Show the mounted servers of this user's running servers: state, protocol, instances, calls and errors.

With `accept NAME`, accept the tools of a pinned mount that have changed (`pin = true`), in mcpd.lock of this folder.

Exit codes: 0 a mounted server was found or accepted, 1 none was found, 2 wrong use.
"""


@client_command(
    "connect", _CONNECT_HELP, target_argument(), epilog="Exit codes: 0 stopped, 1 cannot serve, 2 wrong use."
)
def connect_command(target: str | None, command: tuple[str, ...], **shared: Any) -> int:
    from mcpd.sources.mounts.targets import Wanted, named_here

    server = server_options(target, command, shared)
    wanted = None if target is None or os.path.exists(target) else named_here(target)
    if wanted is None:
        wanted = Wanted("server", resolve_target(server))
    return launch(Options(stdio=True), Found(target, is_mount=True, wanted=wanted))


@click.command(
    "mounts",
    help=_MOUNTS_HELP,
    params=[
        click.Argument(["words"], nargs=-1, metavar="[accept NAME]"),
        json_option("Print everything as JSON."),
    ],
)
def mounts_command(words: tuple[str, ...], as_json: bool) -> int:
    if words:
        return _accept(words)
    servers, _ = running_servers()
    found = {pid: status for pid, (_, status) in servers.items() if status.mounts}
    if as_json:
        print(encode([{"pid": pid, "name": each.name, "mounts": each.mounts} for pid, each in found.items()]).decode())
    else:
        for pid, status in found.items():
            print(f"{printable(status.name)}  pid {pid}")
            for mount in status.mounts:
                for line in lines_of(mount):
                    print(line)
    if not found:
        note("no running server of yours has mounts; a server on stdio only is found with --control always")
    return 0 if found else 1


def _accept(words: tuple[str, ...]) -> int:
    if len(words) != 2 or words[0] != "accept":
        raise click.UsageError(f"{' '.join(words)}: write mcpd mounts accept NAME, or mcpd mounts")
    from mcpd.sources.mounts.manifest import LOCK, accept

    names = accept(words[1])
    if not names:
        note(f"no tool of {words[1]} is withheld")
        return 0
    for name in names:
        print(printable(name))
    note(f"accepted in {LOCK}; servers that run offer them after they are started again")
    return 0


def lines_of(mount: MountStatus) -> Iterator[str]:
    """Yield the lines that show a mounted server."""
    counts = f"{mount.instances} running, {mount.calls} calls, {mount.failures} failures"
    era = f", {mount.era}" if mount.era else ""
    yield f"  mount {printable(mount.name)}: {mount.state}{era}, {counts}  {printable(mount.target, 200)}".rstrip()
    if mount.last_error:
        yield f"    {printable(mount.last_error, 500)}"
