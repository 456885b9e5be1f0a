"""`mcpd call`: calls a tool and prints its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import Raw, Struct

from mcpd.cli.options import client_command, complete_names, json_option, server_options
from mcpd.cli.talk.arguments import Schema, arguments_of, missing, read_schema, read_words, type_text
from mcpd.cli.talk.connecting import ServerOptions, open_client, run
from mcpd.cli.talk.questions import LOG_LEVELS, InputCancelled, Questions, ask_members
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, nearest, split_words
from mcpd.errors import ProtocolError, RemoteError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client import Callbacks, Client
    from mcpd.protocol.types.features import Tool

_HELP = """Call a tool, which is a function that the server offers, and print its result.

\b
Arguments, in quotes if they contain spaces:
  name=value       converted to the type in the tool's schema; repeat it for an array: tag=a tag=b
  a.b=1            a member of an object
  name:=JSON       a value in JSON
  name=@FILE       the text of a file; @- is stdin, and @@ begins a text with @
  {"name": …}      all arguments as one JSON object; - reads it from stdin, @FILE from a file

On a terminal, mcpd asks for required arguments that are missing. Text is printed on stdout; images, sounds and other
data are shown if the terminal supports that, otherwise saved as files. If the server asks for something meanwhile (a
form, a page to visit, the answer of a model), mcpd asks you on the terminal; without a terminal it declines.

\b
  mcpd call server.py plant bed=south rows=2
  mcpd call server.py plant '{"bed": "south"}'
  mcpd call echo text=hello -- npx -y @modelcontextprotocol/server-everything
"""

_MOST_NAMED = 500
_URL_ELICITATION_REQUIRED = -32042


class _CallOptions(Struct, kw_only=True):
    """The tool to call, and how to show its result."""

    tool: str
    words: tuple[str, ...]
    as_json: bool
    output: str | None
    asks_all: bool
    log_level: str
    sets_log_level: bool


@client_command(
    "call",
    _HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] TOOL [ARGUMENT]...", shell_complete=complete_names("tools")),
    json_option("Print the raw result as one line of JSON, also if the call fails."),
    click.Option(["--output", "-o"], metavar="DIR", help="Save images and other data in this folder or as this file."),
    click.Option(["--ask"], is_flag=True, help="Ask for all arguments that were not given, not only required ones."),
    click.Option(
        ["--log-level"],
        type=click.Choice(LOG_LEVELS),
        default="warning",
        metavar="LEVEL",
        help=f"Show log messages of the server of this level and above: {', '.join(LOG_LEVELS)}. Default: warning.",
    ),
)
@click.pass_context
def call_command(
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
    server = server_options(target, command, shared)
    options = _CallOptions(
        tool=tool,
        words=tuple(arguments),
        as_json=as_json,
        output=output,
        asks_all=ask,
        log_level=log_level,
        sets_log_level=ctx.get_parameter_source("log_level") is click.core.ParameterSource.COMMANDLINE,
    )
    return run(lambda terminal: _call(terminal, server, options), server)


async def _call(terminal: Terminal, server: ServerOptions, options: _CallOptions) -> int:
    """Call the tool and show its result; 0, or 1 if it failed. Raises WrongUse."""
    given = read_words(options.words)
    questions = Questions(terminal, options.log_level)

    def callbacks() -> Callbacks:
        return questions.callbacks()

    async with open_client(server, callbacks) as client:
        questions.server_name = lambda: _server_name(client)
        if options.sets_log_level and client.server_capabilities.logging is not None:
            await client.set_log_level(options.log_level)  # type: ignore[arg-type]

        tool = find_tool(await client.list_tools(), options.tool)
        arguments = await _arguments(terminal, given, tool, options)
        try:
            raw = await _request(terminal, client, questions, options.tool, arguments)
        except RemoteError as error:
            if not options.as_json:
                raise
            terminal.out_json(_error_json(error))
            return 1
        return _show(terminal, raw, options)


def _server_name(client: Client) -> str:
    info = client.server_info
    return printable(info.title or info.name) if info is not None else "the server"


def find_tool(tools: Sequence[Tool], name: str) -> Tool | None:
    """The tool of that name; None if the server lists no tools. Raises WrongUse if others are listed."""
    names = [tool.name for tool in tools]
    found = next((tool for tool in tools if tool.name == name), None)
    if found is not None or (not tools and name):
        return found
    known = f"the tools are {', '.join(names)}" if names else "the server has no tools"
    if not name:
        raise WrongUse(f"which tool? {printable(known, _MOST_NAMED)}")
    near = nearest(name, names)
    raise WrongUse(f"no tool {printable(name)}; {f'did you mean {near}?' if near else printable(known, _MOST_NAMED)}")


async def _arguments(terminal: Terminal, given: Any, tool: Tool | None, options: _CallOptions) -> dict[str, Any]:
    """The arguments of the call; asks the user for missing ones. Raises WrongUse."""
    schema = read_schema(None if tool is None else tool.input_schema)
    arguments = arguments_of(given, schema)
    names = missing(arguments, schema)
    if options.asks_all:
        names = [name for name in schema.properties if name not in arguments]
    if not names:
        return arguments
    if not terminal.can_ask:
        raise WrongUse(_needs(names, schema, options.tool))

    try:
        async with terminal.asking:
            return arguments | await ask_members(terminal, schema, names)
    except InputCancelled:
        raise WrongUse(_needs(names, schema, options.tool)) from None


def _needs(names: Sequence[str], schema: Schema, tool: str) -> str:
    texts = []
    for name in names:
        member = schema.properties.get(name) or Schema({}, schema.root)
        about = f": {member.description}" if member.description else ""
        texts.append(f"{name}=… ({type_text(member)}{about})")
    return f"{tool} needs {', '.join(texts)}"


async def _request(
    terminal: Terminal, client: Client, questions: Questions, tool: str, arguments: dict[str, Any]
) -> Raw:
    """The raw result. If the server requires a visit to a page first, the call is sent again after the visit."""
    params = {"name": tool, "arguments": arguments}
    try:
        return await client.request("tools/call", params, on_progress=terminal.progress)
    except RemoteError as error:
        if error.code != _URL_ELICITATION_REQUIRED or not await questions.visit(error.data):
            raise
    finally:
        terminal.end_bar()
    return await client.request("tools/call", params, on_progress=terminal.progress)


def _show(terminal: Terminal, raw: Raw, options: _CallOptions) -> int:
    from msgspec.json import decode

    from mcpd.cli.talk.content import Saver, one_line, show_blocks, structured_text
    from mcpd.protocol.types.features import CallToolResult, TextContent

    try:
        result = decode(raw, type=CallToolResult, strict=False)  # accepts "false" for false, as `Client` does
    except MALFORMED as error:
        raise ProtocolError(f"The server's answer to tools/call cannot be read: {explain(error)}") from None
    if options.as_json:
        terminal.out_json(one_line(raw))
        return 1 if result.is_error else 0
    if result.is_error:
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        for text in texts or [f"{options.tool} failed without a message"]:
            terminal.note(text, "red")
        return 1

    show_blocks(terminal, result.content, Saver(terminal, options.output, options.tool))
    structured = structured_text(result.structured_content, result.content)
    if structured is not None:
        terminal.out(structured)
    elif not result.content:
        terminal.note(f"mcpd: {options.tool} is done; it returned nothing")
    return 0


def _error_json(error: RemoteError) -> str:
    from mcpd.cli.talk.content import one_line

    members = {"code": error.code, "message": error.message, "data": error.data}
    return one_line({"error": {name: value for name, value in members.items() if value is not None}})
