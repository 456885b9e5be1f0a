"""`mcpd watch` prints the notifications of a server; `mcpd ping` measures how fast it answers."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
from msgspec import UNSET

from mcpd.cli.commands.call import find_tool
from mcpd.cli.options import client_command, json_option, repeated_option, server_options, target_argument, value_option
from mcpd.cli.talk.arguments import arguments_of, read_schema, read_words
from mcpd.cli.talk.connecting import ServerOptions, describe_error, open_client, run
from mcpd.cli.talk.questions import LOG_LEVELS, log_line
from mcpd.cli.talk.terminal import Terminal, counted
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import McpdError, RemoteError
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client import Callbacks, Client
    from mcpd.protocol.types.base import LogMessageParams

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
    value_option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        default="info",
        metavar="LEVEL",
        help=f"Print log messages of this level and above: {', '.join(LOG_LEVELS)}. Default: info.",
    ),
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
    from mcpd.client.targets.configurations import SCHEMES

    return "://" in word and word.partition("://")[0] not in SCHEMES


class _Watcher:
    """Prints the notifications of one server."""

    def __init__(self, terminal: Terminal, log_level: str, as_json: bool) -> None:
        self._terminal = terminal
        self._least = LOG_LEVELS.index(log_level)
        self._level: Any = log_level
        self._as_json = as_json

    async def run(self, server: ServerOptions, uris: list[str], calls: list[list[str]]) -> int:
        """Watch until the user stops it or the connection ends."""
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

            work = [self._until_lost(client), *(self._call(client, *each) for each in prepared)]
            await asyncio.gather(*work)
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
        """The tool and the arguments of one --call. Raises WrongUse."""
        name = words[0] if words else ""
        try:
            tool = find_tool(await client.list_tools(), name)
            schema = read_schema(None if tool is None else tool.input_schema)
            return name, arguments_of(read_words(words[1:]), schema)
        except WrongUse as error:
            raise WrongUse(f"--call: {error}") from None

    async def _call(self, client: Client, name: str, arguments: dict[str, Any]) -> None:
        result = await client.call_tool(name, arguments, on_progress=self._progress(name), timeout=None)
        outcome = "failed" if result.is_error else "is done"
        self._print("result", f"{name} {outcome}", {"tool": name, "isError": result.is_error})

    # ------------------------------------------------------------------------------- notifications

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


# --------------------------------------------------------------------------------------- ping


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
