"""`mcpd call`, from what was read of the command line to the exit code. No click here: it may be read without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from mcpd.cli.talk.arguments import arguments_of, missing, read_words
from mcpd.cli.talk.reach import Reach, opened
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, nearest
from mcpd.errors import RemoteError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.cli.talk.kinds import Schema
    from mcpd.cli.talk.questions import Questions
    from mcpd.client import Callbacks, Client
    from mcpd.protocol.types.tools import Tool

_MOST_NAMED = 500


class CallOptions(Struct, kw_only=True):
    """What is called, and how its result is shown."""

    tool: str
    words: tuple[str, ...] = ()
    as_json: bool = False
    output: str | None = None
    asks_all: bool = False
    log_level: str = "warning"
    sets_log_level: bool = False


async def call(terminal: Terminal, reach: Reach, options: CallOptions) -> int:
    """Call the tool and show its result: 0, or 1 if it failed. Raises WrongUse for what cannot be called so."""
    given = read_words(options.words)
    asker: list[Questions] = []

    def callbacks() -> Callbacks:
        from mcpd.cli.talk.questions import Questions

        asker.append(Questions(terminal, options.log_level))
        return asker[0].callbacks()

    async with opened(reach, callbacks) as client:
        asker[0].server_name = lambda: server_name(client)
        if options.sets_log_level and client.server_capabilities.logging is not None:
            await client.set_log_level(options.log_level)  # type: ignore[arg-type]

        tool = find_tool(await client.list_tools(), options.tool)
        arguments = await _complete(terminal, given, tool, options)
        try:
            raw = await _request(terminal, client, asker[0], options.tool, arguments)
        except RemoteError as error:
            if not options.as_json:
                raise
            terminal.out_json(_error_json(error))
            return 1
        return _show(terminal, raw, options)


def server_name(client: Client) -> str:
    """What the server calls itself."""
    info = client.server_info
    return printable(info.title or info.name) if info is not None else "the server"


def find_tool(tools: Sequence[Tool], name: str) -> Tool | None:
    """The tool of that name; None if the server lists nothing at all. Raises WrongUse."""
    names = [tool.name for tool in tools]
    found = next((tool for tool in tools if tool.name == name), None)
    if found is not None or (not tools and name):
        return found
    there = f"there are {', '.join(names)}" if names else "the server has none"
    if not name:
        raise WrongUse(f"which tool? {printable(there, _MOST_NAMED)}")
    near = nearest(name, names)
    raise WrongUse(f"no tool {printable(name)}; {f'did you mean {near}?' if near else printable(there, _MOST_NAMED)}")


async def _complete(terminal: Terminal, given: Any, tool: Tool | None, options: CallOptions) -> dict[str, Any]:
    """The arguments; those that are missing are asked for. Raises WrongUse."""
    from mcpd.cli.talk.kinds import read_schema

    schema = read_schema(None if tool is None else tool.input_schema)
    arguments = arguments_of(given, schema)
    names = missing(arguments, schema)
    if options.asks_all:
        names = [name for name in schema.properties if name not in arguments]
    if not names:
        return arguments
    if not terminal.can_ask:
        raise WrongUse(_what_is_missing(names, schema, options.tool))

    from mcpd.cli.talk.forms import GivenUp, ask_members

    try:
        async with terminal.asking:
            return arguments | await ask_members(terminal, schema, names)
    except GivenUp:
        raise WrongUse(_what_is_missing(names, schema, options.tool)) from None


def _what_is_missing(names: Sequence[str], schema: Schema, tool: str) -> str:
    from mcpd.cli.talk.kinds import Schema, in_words

    said = []
    for name in names:
        kind = schema.properties.get(name) or Schema({}, schema.root)
        about = f": {kind.description}" if kind.description else ""
        said.append(f"{name}=… ({in_words(kind)}{about})")
    return f"{tool} needs {', '.join(said)}"


async def _request(terminal: Terminal, client: Client, asker: Questions, tool: str, arguments: dict[str, Any]) -> Raw:
    """The raw result. Where the server wants pages visited first, the call is made again after that."""
    params = {"name": tool, "arguments": arguments}
    try:
        return await client.request("tools/call", params, on_progress=terminal.progress)
    except RemoteError as error:
        if error.code != _VISIT_FIRST or not await asker.visit(error.data):
            raise
    finally:
        terminal.end_bar()
    return await client.request("tools/call", params, on_progress=terminal.progress)


_VISIT_FIRST = -32042


def _show(terminal: Terminal, raw: Raw, options: CallOptions) -> int:
    from msgspec.json import decode

    from mcpd.cli.talk.content import Saver, one_line, show_blocks, structured_text
    from mcpd.errors import ProtocolError
    from mcpd.protocol.jsonrpc import explain
    from mcpd.protocol.types.tools import CallToolResult

    try:
        result = decode(raw, type=CallToolResult, strict=False)  # reads "false" for false, as `Client` does
    except MALFORMED as error:
        raise ProtocolError(f"The server's answer to tools/call cannot be read: {explain(error)}") from None
    if options.as_json:
        terminal.out_json(one_line(raw))
        return 1 if result.is_error else 0
    if result.is_error:
        from mcpd.protocol.types.content import TextContent

        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        for text in texts or [f"{options.tool} failed, and does not say why"]:
            terminal.note(text, "red")
        return 1

    show_blocks(terminal, result.content, Saver(terminal, options.output, options.tool))
    structured = structured_text(result.structured_content, result.content)
    if structured is not None:
        terminal.out(structured)
    elif not result.content:
        terminal.note(f"mcpd: {options.tool} is done; it gave nothing back")
    return 0


def _error_json(error: RemoteError) -> str:
    from mcpd.cli.talk.content import one_line

    said = {"code": error.code, "message": error.message, "data": error.data}
    return one_line({"error": {name: value for name, value in said.items() if value is not None}})
