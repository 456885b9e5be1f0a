"""`mcpd call`: calls a tool and prints its result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import Raw
from msgspec.json import decode

from mcpd.cli.options import client_command, complete_names, flag_option, json_option, server_options, value_option
from mcpd.cli.talk.arguments import Schema, arguments_of, read_schema, read_words, type_text
from mcpd.cli.talk.connecting import open_client, run
from mcpd.cli.talk.content import Saver, show_blocks, structured_text
from mcpd.cli.talk.questions import LOG_LEVELS, InputCancelled, Questions, ask_members
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, no_such, split_words
from mcpd.errors import ProtocolError, RemoteError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import CallToolResult, TextContent, Tool

if TYPE_CHECKING:
    from mcpd.client import Client

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

_URL_ELICITATION_REQUIRED = -32042


@client_command(
    "call",
    _HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] TOOL [ARGUMENT]...", shell_complete=complete_names("tools")),
    json_option("Print the raw result as one line of JSON, also if the call fails."),
    value_option("--output", "-o", metavar="DIR", help="Save images and other data in this folder or as this file."),
    flag_option("--ask", help="Ask for all arguments that were not given, not only required ones."),
    value_option(
        "--log-level",
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
    target, name, arguments = split_words(words, command, "tool")
    server = server_options(target, command, shared)
    sets_log_level = ctx.get_parameter_source("log_level") is click.core.ParameterSource.COMMANDLINE

    async def call(terminal: Terminal) -> int:
        given = read_words(arguments)
        questions = Questions(terminal, log_level)
        async with open_client(server, questions.callbacks) as client:
            info = client.server_info
            questions.server_name = printable(info.title or info.name) if info is not None else "the server"
            if sets_log_level and client.server_capabilities.logging is not None:
                await client.set_log_level(log_level)  # type: ignore[arg-type]

            tool = find_tool(await client.list_tools(), name)
            params = {"name": name, "arguments": await _arguments(terminal, given, tool, name, asks_all=ask)}
            try:
                raw = await _request(terminal, client, questions, params)
            except RemoteError as error:
                if not as_json:
                    raise
                members = {"code": error.code, "message": error.message, "data": error.data}
                terminal.print_json({"error": {key: value for key, value in members.items() if value is not None}})
                return 1
            return _show(terminal, raw, name, as_json=as_json, output=output)

    return run(call, server)


def find_tool(tools: Sequence[Tool], name: str) -> Tool | None:
    """The tool of that name; None if the server lists no tools. Raises WrongUse if others are listed."""
    found = next((tool for tool in tools if tool.name == name), None)
    if found is None and (tools or not name):
        raise no_such("tool", name, [tool.name for tool in tools])
    return found


async def _arguments(terminal: Terminal, given: Any, tool: Tool | None, name: str, *, asks_all: bool) -> dict[str, Any]:
    """The arguments of the call; asks the user for missing ones. Raises WrongUse."""
    schema = read_schema(None if tool is None else tool.input_schema)
    arguments = arguments_of(given, schema)
    names = [key for key in (schema.properties if asks_all else schema.required) if key not in arguments]
    if not names:
        return arguments
    try:
        async with terminal.asking:
            if terminal.can_ask:
                return arguments | await ask_members(terminal, schema, names)
    except InputCancelled:
        pass

    texts = []
    for key in names:
        member = schema.properties.get(key) or Schema({}, schema.root)
        about = f": {member.description}" if member.description else ""
        texts.append(f"{key}=… ({type_text(member)}{about})")
    raise WrongUse(f"{name} needs {', '.join(texts)}")


async def _request(terminal: Terminal, client: Client, questions: Questions, params: dict[str, Any]) -> Raw:
    """The raw result. If the server requires a visit to a page first, the call is sent again after the visit."""
    try:
        return await client.request("tools/call", params, on_progress=terminal.progress)
    except RemoteError as error:
        if error.code != _URL_ELICITATION_REQUIRED or not await questions.visit(error.data):
            raise
    finally:
        terminal.end_bar()
    return await client.request("tools/call", params, on_progress=terminal.progress)


def _show(terminal: Terminal, raw: Raw, tool: str, *, as_json: bool, output: str | None) -> int:
    try:
        result = decode(raw, type=CallToolResult, strict=False)  # accepts "false" for false, as `Client` does
    except MALFORMED as error:
        raise ProtocolError(f"The server's answer to tools/call cannot be read: {explain(error)}") from None
    if as_json:
        terminal.print_json(raw)
        return 1 if result.is_error else 0
    if result.is_error:
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        for text in texts or [f"{tool} failed without a message"]:
            terminal.note(text, "red")
        return 1

    show_blocks(terminal, result.content, Saver(terminal, output, tool))
    structured = structured_text(result.structured_content, result.content)
    if structured is not None:
        terminal.out(structured)
    elif not result.content:
        terminal.note(f"mcpd: {tool} is done; it returned nothing")
    return 0
