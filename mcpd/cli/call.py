"""`mcpd call`: its options."""

from __future__ import annotations

from typing import Any

import click

from mcpd.cli.client_options import client_command, json_option, reach_of
from mcpd.cli.talk.calling import CallOptions, call
from mcpd.cli.talk.completing import complete_names
from mcpd.cli.talk.questions import LOG_LEVELS
from mcpd.cli.talk.reach import run
from mcpd.cli.talk.words import split_words

_HELP = """Call a tool, which is a function that the server offers, and print what it gives.

\b
Arguments, in quotes where they have spaces:
  name=value       read as the type that the tool asks for; an array takes several: tag=a tag=b
  a.b=1            a member of an object
  name:=JSON       JSON as it stands
  name=@FILE       the text of a file; @- is stdin, and @@ a text that begins with @
  {"name": …}      all arguments as one JSON object; - reads it from stdin, @FILE from a file

What has to be given and was not is asked for on a terminal. Text goes to stdout; images, sounds and other bytes are
shown where the terminal can, or saved as files. What the server asks for meanwhile (a form, a page to visit, a model)
is asked on the terminal, and declined where there is none.

\b
  mcpd call server.py plant bed=south rows=2
  mcpd call server.py plant '{"bed": "south"}'
  mcpd call echo text=hello -- npx -y @modelcontextprotocol/server-everything
"""


@client_command(
    "call",
    _HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] TOOL [ARGUMENT]...", shell_complete=complete_names("tools")),
    json_option("Print the raw result as one line of JSON, failed or not."),
    click.Option(
        ["--output", "-o"], metavar="DIR", help="Save images and other bytes in this folder, or as this one file."
    ),
    click.Option(["--ask"], is_flag=True, help="Ask for all arguments that were not given, not only for those needed."),
    click.Option(
        ["--log-level"],
        type=click.Choice(LOG_LEVELS),
        default="warning",
        show_default=True,
        metavar="LEVEL",
        help="Show what the server logs meanwhile, from this level on: debug, info, notice, warning, error, …",
    ),
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    as_json: bool,
    output: str | None,
    ask: bool,
    log_level: str,
    command: tuple[str, ...],
    **shared: Any,
) -> int:
    target, tool, arguments = split_words(words, command, "tool")
    reach = reach_of(target, command, shared)
    options = CallOptions(
        tool=tool,
        words=tuple(arguments),
        as_json=as_json,
        output=output,
        asks_all=ask,
        log_level=log_level,
        sets_log_level=ctx.get_parameter_source("log_level") is click.core.ParameterSource.COMMANDLINE,
    )
    return run(lambda terminal: call(terminal, reach, options), reach)
