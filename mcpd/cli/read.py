"""`mcpd read`: what a resource holds."""

from __future__ import annotations

from typing import Any

import click

from mcpd.apps.tool_metadata import OFFER
from mcpd.cli.client_options import client_command, json_option, reach_of
from mcpd.cli.talk.completing import complete_names
from mcpd.cli.talk.reach import Reach, opened, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, looks_like_target, nearest
from mcpd.errors import RemoteError
from mcpd.protocol.printable import printable

_NOT_FOUND = (-32002, -32602)
_MOST_NAMED = 500

_HELP = """Print what a resource holds: a text, a picture or a file that the server offers under a URI.

Text goes to stdout, and so do bytes if stdout is a pipe or a file; on a terminal an image is shown where that can be,
and other bytes are saved as a file.

\b
  mcpd read server.py bed://south
  mcpd read mcpd://dot.png > dot.png
"""


@client_command(
    "read",
    _HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] URI", shell_complete=complete_names("resources")),
    json_option("Print the raw result as one line of JSON."),
    click.Option(["--output", "-o"], metavar="DIR", help="Save bytes in this folder, or as this one file."),
)
def command(words: tuple[str, ...], as_json: bool, output: str | None, command: tuple[str, ...], **shared: Any) -> int:
    target, uri = _split(list(words), command)
    reach = reach_of(target, command, shared)
    return run(lambda terminal: _read(terminal, reach, uri, as_json=as_json, output=output), reach)


def _split(words: list[str], command: tuple[str, ...]) -> tuple[str | None, str]:
    most = 1 if command else 2
    if len(words) > most:
        raise WrongUse(f"{words[most]!r} is one word too many; one resource is read at a time")
    uri = words.pop() if words and (len(words) == 2 or command or ":" in words[0]) else ""
    if not uri or (not words and not command and looks_like_target(uri) and "://" not in uri):
        named = words[0] if words else uri
        raise WrongUse(f"which resource? mcpd list{f' {named}' if named else ''} resources names their URIs")
    return words[0] if words else None, uri


async def _read(terminal: Terminal, reach: Reach, uri: str, *, as_json: bool, output: str | None) -> int:
    async with opened(reach, extensions=OFFER) as client:  # as `mcpd list`: what it shows can be read
        try:
            if as_json:
                from mcpd.cli.talk.content import one_line

                terminal.out_json(one_line(await client.request("resources/read", {"uri": uri})))
                return 0
            found = await client.read_resource(uri)
        except RemoteError as error:
            if error.code in _NOT_FOUND:
                known = [resource.uri for resource in await client.list_resources()]
                known += [template.uri_template for template in await client.list_resource_templates()]
                scheme = uri.partition(":")[0]
                near = nearest(uri, known) or next((one for one in known if one.partition(":")[0] == scheme), "")
                if near and near != uri:
                    raise WrongUse(f"{printable(error.message)}; did you mean {printable(near)}?") from None
                hint = f"there are {', '.join(known)}" if known else "the server has none"
                raise RemoteError(error.code, f"{error.message}; {printable(hint, _MOST_NAMED)}", error.data) from None
            raise

    from mcpd.cli.talk.content import Saver, show_contents

    show_contents(terminal, found.contents, Saver(terminal, output, uri.rstrip("/").rpartition("/")[2]))
    if not found.contents:
        terminal.note("mcpd: the resource holds nothing")
    return 0
