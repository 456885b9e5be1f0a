"""`mcpd call` calls a tool, `mcpd watch` prints notifications, and `mcpd ping` measures how fast a server answers."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET, Raw
from msgspec.json import decode

from mcpd.cli.options import (
    client_command,
    complete_names,
    flag_option,
    json_option,
    repeated_option,
    server_options,
    target_argument,
    value_option,
)
from mcpd.cli.talk.arguments import Schema, arguments_of, read_schema, read_words, type_text
from mcpd.cli.talk.connecting import ServerOptions, describe_error, open_client, run
from mcpd.cli.talk.questions import LOG_LEVELS, InputCancelled, Questions, ask_members, log_line
from mcpd.cli.talk.terminal import Saver, Terminal, counted, show_blocks, structured_text
from mcpd.cli.talk.words import WrongUse, no_such, split_words
from mcpd.errors import McpdError, ProtocolError, RemoteError
from mcpd.protocol.jsonrpc import MALFORMED, explain
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import CallToolResult, TextContent, Tool

if TYPE_CHECKING:
    from mcpd.client import Callbacks, Client
    from mcpd.protocol.types.base import LogMessageParams
    from mcpd.protocol.types.tasks import DetailedTask


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

# Spec: 2025-11-25 client/elicitation, URL elicitation required.
_URL_ELICITATION_REQUIRED = -32042


def _log_level_option(shows: str, default: str) -> click.Option:
    help = f"{shows} of this level and above: {', '.join(LOG_LEVELS)}. Default: {default}."
    return value_option("--log-level", type=click.Choice(LOG_LEVELS), default=default, metavar="LEVEL", help=help)


@client_command(
    "call",
    _HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] TOOL [ARGUMENT]...", shell_complete=complete_names("tools")),
    json_option("Print the raw result as one line of JSON, also if the call fails."),
    value_option("--output", "-o", metavar="DIR", help="Save images and other data in this folder or as this file."),
    flag_option("--ask", help="Ask for all arguments that were not given, not only required ones."),
    _log_level_option("Show log messages of the server", "warning"),
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
            client.tasks.on_change = partial(_note_task, terminal, set())
            params = {"name": name, "arguments": await _arguments(terminal, given, tool, name, asks_all=ask)}
            try:
                raw = await _request(terminal, client, questions, params)
            except RemoteError as error:
                if not as_json:
                    raise
                members = {"code": error.code, "message": error.message, "data": error.data}
                terminal.print_json({"error": {key: value for key, value in members.items() if value is not None}})
                return 1
            return show_result(terminal, raw, name, as_json=as_json, output=output)

    return run(call, server)


def _note_task(terminal: Terminal, known: set[str], task: DetailedTask) -> None:
    if task.task_id not in known:
        known.add(task.task_id)
        terminal.note(f"mcpd: this call is a task now: {printable(task.task_id)}", "dim")


def find_tool(tools: Sequence[Tool], name: str) -> Tool | None:
    """Return the tool of that name, or None if the server lists no tools. Raises WrongUse if it lists only others."""
    found = next((tool for tool in tools if tool.name == name), None)
    if found is None and (tools or not name):
        raise no_such("tool", name, [tool.name for tool in tools])
    return found


def _read_arguments(given: Any, schema: Schema, tool: Tool | None) -> dict[str, Any]:
    # A file for a parameter that takes one stays a path, for the client to send in the best way.
    from mcpd.client.files import file_parameters  # few tools take files

    names = file_parameters(tool)
    files = [each for each in given if each.file not in ("", "-") and not each.is_json and each.name in names]
    arguments = arguments_of([each for each in given if each not in files], schema)
    for each in files:
        path = Path(each.file)
        if "array" in schema.properties[each.name].types:
            arguments.setdefault(each.name, []).append(path)
        else:
            arguments[each.name] = path
    return arguments


async def _arguments(terminal: Terminal, given: Any, tool: Tool | None, name: str, *, asks_all: bool) -> dict[str, Any]:
    schema = read_schema(None if tool is None else tool.input_schema)
    arguments = _read_arguments(given, schema, tool)
    names = [key for key in (schema.properties if asks_all else schema.required) if key not in arguments]
    if not names:
        return arguments
    with suppress(InputCancelled):
        async with terminal.asking:
            if terminal.can_ask:
                return arguments | await ask_members(terminal, schema, names)

    texts = []
    for key in names:
        member = schema.properties.get(key) or Schema({}, schema.root)
        about = f": {member.description}" if member.description else ""
        texts.append(f"{key}=… ({type_text(member)}{about})")
    raise WrongUse(f"{name} needs {', '.join(texts)}")


async def _request(terminal: Terminal, client: Client, questions: Questions, params: dict[str, Any]) -> Raw:
    from mcpd.client.files import has_paths

    send = partial(client.request, "tools/call", params)
    if has_paths(params["arguments"]):
        send = partial(client.call_with_files, params["name"], params["arguments"])
    # Servers may answer that a page must be visited first; after the visit the same call is sent again.
    try:
        return await send(on_progress=terminal.progress)
    except RemoteError as error:
        if error.code != _URL_ELICITATION_REQUIRED or not await questions.visit(error.data):
            raise
    finally:
        terminal.end_bar()
    return await send(on_progress=terminal.progress)


def show_result(terminal: Terminal, raw: Raw, tool: str, *, as_json: bool, output: str | None) -> int:
    """Print the result of a tool, and return the exit code."""
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


_PING_SECONDS = 15.0

_WATCH_HELP = """Print each notification of a server with its time, until Ctrl-C.

These are changes of the lists of tools, resources and prompts, changes of the resources whose URIs are named here, log
messages, and the progress of calls. A server that mcpd starts for this has no other client; --call makes it do
something.

\b
  mcpd watch server.py bed://south
  mcpd watch --call 'count_slowly steps=3'
"""

_PING_HELP = """Send several pings to a server and print how long each answer took.

\b
  mcpd ping server.py
  mcpd ping --count 100 --interval 0 server.py
"""


@client_command(
    "watch",
    _WATCH_HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] [URI]..."),
    repeated_option("--call", "calls", metavar="'TOOL ARGUMENT…'", help="Call this tool while watching."),
    _log_level_option("Print log messages", "info"),
    json_option("Print each notification as one line of JSON."),
)
def watch_command(
    words: tuple[str, ...],
    calls: tuple[str, ...],
    log_level: str,
    as_json: bool,
    command: tuple[str, ...],
    **shared: Any,
) -> int:
    uris = list(words)
    target = None if command or not uris or _is_resource(uris[0]) else uris.pop(0)
    server = server_options(target, command, shared)
    try:
        split_calls = [shlex.split(call) for call in calls]
    except ValueError as error:
        raise WrongUse(f"--call: {error}; write --call 'TOOL name=value'") from None

    return run(lambda terminal: _Watcher(terminal, log_level, as_json).run(server, uris, split_calls), server)


def _is_resource(word: str) -> bool:
    from mcpd.client.targets.named import SCHEMES

    return "://" in word and word.partition("://")[0] not in SCHEMES


class _Watcher:
    def __init__(self, terminal: Terminal, log_level: str, as_json: bool) -> None:
        self._terminal = terminal
        self._least = LOG_LEVELS.index(log_level)
        self._level: Any = log_level
        self._as_json = as_json

    async def run(self, server: ServerOptions, uris: list[str], calls: list[list[str]]) -> int:
        async with open_client(server, self._callbacks) as client:
            if client.server_capabilities.logging is not None:
                try:
                    await client.set_log_level(self._level)
                except RemoteError as error:  # other notifications may still arrive
                    text = f"mcpd: the server refused the log level: {printable(error, 300)}"
                    self._terminal.note(text, "yellow")
            for uri in uris:
                await client.subscribe(uri)
            prepared = [await self._prepare(client, words) for words in calls]
            about = f"; {counted(len(uris), 'resource')}" if uris else ""
            self._terminal.note(f"mcpd: watching (protocol {client.version}{about}); press Ctrl-C to stop", "dim")

            await asyncio.gather(self._until_lost(client), *(self._call(client, *each) for each in prepared))
        return 0

    def _callbacks(self) -> Callbacks:
        from mcpd.client import Callbacks

        return Callbacks(
            log=self._log,
            list_changed=lambda kind: self._print("changed", f"the list of {kind} has changed", {"list": kind}),
            resource_updated=lambda uri: self._print("updated", uri, {"uri": uri}),
        )

    async def _until_lost(self, client: Client) -> None:
        # Ping from time to time: without traffic a lost connection would not be noticed.
        while True:
            await asyncio.sleep(_PING_SECONDS)
            await client.ping()

    async def _prepare(self, client: Client, words: list[str]) -> tuple[str, dict[str, Any]]:
        name = words[0] if words else ""
        try:
            tool = find_tool(await client.list_tools(), name)
            schema = read_schema(None if tool is None else tool.input_schema)
            return name, _read_arguments(read_words(words[1:]), schema, tool)
        except WrongUse as error:
            raise WrongUse(f"--call: {error}") from None

    async def _call(self, client: Client, name: str, arguments: dict[str, Any]) -> None:
        result = await client.call_tool(name, arguments, on_progress=self._progress(name), timeout=None)
        outcome = "failed" if result.is_error else "is done"
        self._print("result", f"{name} {outcome}", {"tool": name, "isError": result.is_error})

    def _progress(self, name: str) -> Callable[[float, float | None, str | None], None]:
        def report(done: float, total: float | None, message: str | None) -> None:
            part = f"{done:g}" if total is None else f"{done:g} of {total:g}"
            text = f"{name}: {part}{f', {message}' if message else ''}"
            self._print("progress", text, {"tool": name, "progress": done, "total": total, "message": message})

        return report

    def _log(self, params: LogMessageParams) -> None:
        if LOG_LEVELS.index(params.level) < self._least:
            return
        data = None if params.data is UNSET else params.data
        self._print("log", log_line(params), {"level": params.level, "logger": params.logger, "data": data})

    def _print(self, event: str, text: str, members: dict[str, Any]) -> None:
        now = datetime.now().astimezone()
        if self._as_json:
            given = {name: value for name, value in members.items() if value is not None}
            self._terminal.print_json({"time": now.isoformat(timespec="milliseconds"), "event": event, **given})
            return
        at = self._terminal.styled(now.strftime("%H:%M:%S.") + f"{now.microsecond // 1000:03}", "dim")
        self._terminal.out_safe(f"{at}  {self._terminal.styled(f'{event:8}', 'cyan')}  {printable(text, 4000)}")


@client_command(
    "ping",
    _PING_HELP,
    target_argument(),
    value_option(
        "--count",
        "-c",
        type=click.IntRange(min=1),
        default=4,
        metavar="NUMBER",
        help="Send this many pings. Default: 4.",
    ),
    value_option(
        "--interval",
        "-i",
        type=click.FloatRange(min=0),
        default=1.0,
        metavar="SECONDS",
        help="Wait this long between two pings. Default: 1 s.",
    ),
    json_option("Print the result as one line of JSON, with times in seconds."),
)
def ping_command(
    target: str | None, count: int, interval: float, as_json: bool, command: tuple[str, ...], **shared: Any
) -> int:
    if target is not None and command:
        raise WrongUse(f"leave out {target!r}: the command after -- is the server")
    server = server_options(target, command, shared)

    async def ping(terminal: Terminal) -> int:
        began = time.perf_counter()
        async with open_client(server) as client:
            opening = time.perf_counter() - began
            info = client.server_info
            name = f"{printable(info.name)} {printable(info.version)}" if info is not None else "the server"
            if not as_json:
                terminal.out_safe(f"{name} (protocol {client.version}), ready after {_ms(opening)}")

            times: list[float] = []
            failed = 0
            for number in range(count):
                if number:
                    await asyncio.sleep(interval)
                at = time.perf_counter()
                try:
                    await client.ping()
                except McpdError as error:
                    failed += 1
                    terminal.note(f"mcpd: {number + 1}: {describe_error(error, server)}", "red")
                    continue
                times.append(time.perf_counter() - at)
                if not as_json:
                    terminal.out_safe(f"{number + 1}: {_ms(times[-1])}")

        if as_json:
            found = {
                "server": info,
                "protocolVersion": client.version,
                "ready": opening,
                "times": times,
                "failed": failed,
            }
            terminal.print_json(found)
        elif times:
            average = sum(times) / len(times)
            shown = " / ".join(map(_ms, (min(times), average, max(times))))
            terminal.out_safe(f"{len(times)} of {count} answered; shortest / mean / longest: {shown}")
        return 1 if failed else 0

    return run(ping, server)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
