"""`mcpd watch`: what a server tells, until Ctrl-C."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from mcpd.cli.client_options import client_command, json_option, reach_of
from mcpd.cli.talk.questions import LOG_LEVELS
from mcpd.cli.talk.reach import Reach, opened, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.errors import RemoteError
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client import Callbacks, Client
    from mcpd.client.callbacks import ListKind
    from mcpd.protocol.types.base import LogMessageParams

_HELP = """Print what a server tells, each with its time, until Ctrl-C.

That is: changes of its lists of tools, resources and prompts, changes of the resources whose URIs are named here, what
it logs, and how far a call is. A server that is started for this talks to nobody else: --call gives it something to do.

\b
  mcpd watch server.py bed://south
  mcpd watch --call 'count_slowly steps=3'
"""


@client_command(
    "watch",
    _HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] [URI]..."),
    click.Option(
        ["--call", "calls"], multiple=True, metavar="'TOOL ARGUMENT…'", help="Call this tool. Can be repeated."
    ),
    click.Option(
        ["--log-level"],
        type=click.Choice(LOG_LEVELS),
        default="info",
        show_default=True,
        metavar="LEVEL",
        help="Show what the server logs from this level on: debug, info, notice, warning, error, …",
    ),
    json_option("Print each as a line of JSON."),
)
def command(
    words: tuple[str, ...],
    calls: tuple[str, ...],
    log_level: str,
    as_json: bool,
    command: tuple[str, ...],
    **shared: Any,
) -> int:
    uris = list(words)
    target = None if command or not uris or _is_resource(uris[0]) else uris.pop(0)
    reach = reach_of(target, command, shared)
    try:
        wanted = [shlex.split(call) for call in calls]
    except ValueError as error:
        raise WrongUse(f"--call: {error}; write --call 'TOOL name=value'") from None

    def work(terminal: Terminal) -> Any:
        return _Watch(terminal, log_level, as_json=as_json).run(reach, uris, wanted)

    return run(work, reach)


def _is_resource(word: str) -> bool:
    from mcpd.client.targets.entries import SCHEMES

    return "://" in word and word.partition("://")[0] not in SCHEMES


class _Watch:
    """Writes down what is told."""

    def __init__(self, terminal: Terminal, log_level: str, *, as_json: bool) -> None:
        self._terminal = terminal
        self._least = LOG_LEVELS.index(log_level)
        self._level: Any = log_level
        self._as_json = as_json

    async def run(self, reach: Reach, uris: list[str], calls: list[list[str]]) -> int:
        """Watch until the user ends it, or the connection does."""
        async with opened(reach, self._callbacks) as client:
            if client.server_capabilities.logging is not None:
                await self._hear_the_log(client)
            for uri in uris:
                await client.subscribe(uri)
            prepared = [await self._prepare(client, words) for words in calls]
            about = f"; {len(uris)} resources" if uris else ""
            self._terminal.note(f"mcpd: watching (protocol {client.version}{about}); Ctrl-C ends it", "dim")

            work = [self._until_lost(client), *(self._call(client, *each) for each in prepared)]
            await asyncio.gather(*work)
        return 0

    async def _hear_the_log(self, client: Client) -> None:
        """Ask for the log; a server that refuses may tell of changes all the same."""
        try:
            await client.set_log_level(self._level)
        except RemoteError as error:
            self._terminal.note(f"mcpd: the level of the log was refused: {printable(error, 300)}", "yellow")

    def _callbacks(self) -> Callbacks:
        from mcpd.client import Callbacks

        return Callbacks(log=self._log, list_changed=self._list_changed, resource_updated=self._updated)

    async def _until_lost(self, client: Client) -> None:
        """A server that is gone says nothing: ask from time to time."""
        while True:
            await asyncio.sleep(_ASK_SECONDS)
            await client.ping()

    async def _prepare(self, client: Client, words: list[str]) -> tuple[str, dict[str, Any]]:
        """The tool and the arguments that are meant. Raises WrongUse."""
        from mcpd.cli.talk.arguments import arguments_of, read_words
        from mcpd.cli.talk.calling import find_tool
        from mcpd.cli.talk.kinds import read_schema

        name = words[0] if words else ""
        try:
            tool = find_tool(await client.list_tools(), name)
            schema = read_schema(None if tool is None else tool.input_schema)
            return name, arguments_of(read_words(words[1:]), schema)
        except WrongUse as error:
            raise WrongUse(f"--call: {error}") from None

    async def _call(self, client: Client, name: str, arguments: dict[str, Any]) -> None:
        result = await client.call_tool(name, arguments, on_progress=self._progress(name), timeout=None)
        said = "failed" if result.is_error else "done"
        self._tell("result", f"{name} is {said}", {"tool": name, "isError": result.is_error})

    # ------------------------------------------------------------------------------- what is told

    def _progress(self, name: str) -> Callable[[float, float | None, str | None], None]:
        def told(done: float, total: float | None, message: str | None) -> None:
            part = f"{done:g}" if total is None else f"{done:g} of {total:g}"
            text = f"{name}: {part}{f', {message}' if message else ''}"
            self._tell("progress", text, {"tool": name, "progress": done, "total": total, "message": message})

        return told

    def _list_changed(self, kind: ListKind) -> None:
        self._tell("changed", f"the list of {kind} has changed", {"list": kind})

    def _updated(self, uri: str) -> None:
        self._tell("updated", uri, {"uri": uri})

    def _log(self, told: LogMessageParams) -> None:
        if LOG_LEVELS.index(told.level) < self._least:
            return
        from msgspec import UNSET

        from mcpd.cli.talk.questions import log_line

        data = None if told.data is UNSET else told.data
        self._tell("log", log_line(told), {"level": told.level, "logger": told.logger, "data": data})

    def _tell(self, event: str, text: str, members: dict[str, Any]) -> None:
        now = datetime.now().astimezone()
        if self._as_json:
            from mcpd.cli.talk.content import one_line

            said = {name: value for name, value in members.items() if value is not None}
            self._terminal.out_json(one_line({"time": now.isoformat(timespec="milliseconds"), "event": event, **said}))
            return
        at = self._terminal.styled(now.strftime("%H:%M:%S.") + f"{now.microsecond // 1000:03}", "dim")
        self._terminal.out_safe(f"{at}  {self._terminal.styled(f'{event:8}', 'cyan')}  {printable(text, 4000)}")


_ASK_SECONDS = 15.0
