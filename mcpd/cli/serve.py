"""`mcpd serve`: its options."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from mcpd.cli.launch import launch
from mcpd.cli.options import ServeCommand, extension_parameters, parameter, split_extensions, target
from mcpd.serve_options import Options, command_options
from mcpd.server.extensions.builtin import BUILT_IN
from mcpd.server.extensions.serving import serve_options

_HELP = """Serve TARGET to MCP clients until it is stopped; several TARGETs as one server.

TARGET is a folder, file.py, package.module:object, or the command or package of a server that was installed with pip.
Without one it is the folder of the next mcpd.toml, here or above, or this one if it has tools, resources or the like
in it; else the built-in starter. A file with several servers needs the name of one: file.py:object. An object may
also be a function that makes the server. Of several TARGETs, the names of tools and prompts have the name of their
server in front, as garden_water.

With none of --stdio, --ws and --http it serves on stdio if a program started it, and on --http :8080 in a terminal
(on --ws :8080 where the extra http is not installed).

\b
  mcpd serve --stdio server.py           what Claude Desktop and other hosts start
  mcpd serve --stdio ./garden            a folder: its functions are tools, its files resources
  mcpd serve --http :8080 server.py      http://127.0.0.1:8080/mcp, for this machine only; WebSocket too
  MCPD_TOKEN=… mcpd serve --http 0.0.0.0:8080 server.py    for others, who need the token
"""

_EPILOG = """\b
Also from the environment:
  MCPD_TOKEN              the bearer token itself; --token-file goes before it
  MCPD_STATE_KEY          a secret of 16 bytes or more that seals what clients carry: the state between the rounds
                          of one request, and the ids of sessions; the same for all processes that serve the same
                          clients. Several with commas between them: the first seals, all open
{extensions}
An option that can be repeated takes its values from the environment with spaces between them.

\b
Log messages and everything for people go to stderr. The first Ctrl-C or SIGTERM lets running calls end within
--grace; the second does not wait. Exit codes: 0 stopped, 1 cannot serve, 2 wrong use.
""".replace("{extensions}", "\n".join(f"  {name:22}  {help}" for row in BUILT_IN for name, help in row.environment))

_DEFAULTS = Options()
_PARAMETERS: list[click.Parameter] = [
    target(),
    *(parameter(name, option, kind, getattr(_DEFAULTS, name)) for name, (option, kind) in command_options().items()),
    *extension_parameters(serve_options()),
]


@click.command("serve", cls=ServeCommand, params=_PARAMETERS, help=_HELP, epilog=_EPILOG)
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> int:
    return launch(options_of(ctx))


def options_of(ctx: click.Context) -> Options:
    """What was said, on the command line and in the environment."""
    ours, extensions = split_extensions(ctx, serve_options())
    given = frozenset(name for name in ours if ctx.get_parameter_source(name) not in (None, ParameterSource.DEFAULT))
    return Options(**ours, extensions=extensions, given=given - {"target", "more_targets", "words", "arguments"})
