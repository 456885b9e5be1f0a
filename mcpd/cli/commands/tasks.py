"""`mcpd tasks` lists, shows and cancels tasks: calls of tools that continue after they were started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec import Raw
from msgspec.structs import replace

from mcpd.cli.options import client_command, flag_option, json_option, server_options, target_argument
from mcpd.cli.talk.connecting import open_client, run
from mcpd.cli.talk.questions import Questions
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, looks_like_target
from mcpd.errors import ConfigurationError, LocalProtocolError, RemoteError
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.printable import printable
from mcpd.protocol.types.tasks import FINAL
from .call import show_result

if TYPE_CHECKING:
    from mcpd.protocol.types.tasks import DetailedTask

# The only protocol version in which servers list tasks.
_LISTS_TASKS = "2025-11-25"
_MOST_CHARACTERS = 300

_LIST_HELP = f"""List your tasks at a server: id, status, time of the last change, and message.

Servers list tasks in protocol version {_LISTS_TASKS} only, and only to users that they know.

\b
  mcpd tasks list https://host/mcp
"""

_GET_HELP = """Show a task. If it has ended, print its result as `mcpd call` does.

ID is the id of the task. --wait waits for the end of the task, and asks you its questions on the terminal.

\b
  mcpd tasks get https://host/mcp 786512e2-9e0d-44bd-8f29-789f820fe840
"""

_CANCEL_HELP = """Ask a server to cancel a task, and print the status of the task after that.

\b
  mcpd tasks cancel https://host/mcp 786512e2-9e0d-44bd-8f29-789f820fe840
"""


@click.group("tasks", no_args_is_help=True)
def tasks_command() -> None:
    """List, show and cancel tasks: calls of tools that continue after they were started."""


@client_command("list", _LIST_HELP, target_argument(), json_option("Print the tasks as one line of JSON."))
def _list_command(target: str | None, command: tuple[str, ...], as_json: bool, **shared: Any) -> int:
    if target is not None and command:
        raise WrongUse(f"leave out {target!r}: the command after -- is the server")
    server = server_options(target, command, shared)

    async def list_tasks(terminal: Terminal) -> int:
        try:
            async with open_client(replace(server, version=server.version or _LISTS_TASKS)) as client:
                tasks = await client.tasks.list()
        except (ConfigurationError, LocalProtocolError, RemoteError) as error:
            is_about_target = isinstance(error, ConfigurationError) and _LISTS_TASKS not in str(error)
            if server.version is not None or is_about_target:
                raise
            only = f"only servers of protocol version {_LISTS_TASKS} list tasks, and only to users that have logged in"
            raise ConfigurationError(f"{only}; use mcpd tasks get with the id, which mcpd call prints") from None

        if as_json:
            terminal.print_json(Raw(encode(tasks)))
            return 0
        for task in tasks:
            terminal.out_safe(f"{terminal.styled(printable(task.task_id), 'bold')}  {_status(task)}")
        if not tasks:
            terminal.note("mcpd: you have no tasks at this server")
        return 0

    return run(list_tasks, server)


def _status(task: DetailedTask) -> str:
    message = printable(task.status_message or "", _MOST_CHARACTERS)
    return f"{task.status:14}  {printable(task.last_updated_at, 40)}  {message}".rstrip()


@client_command(
    "get",
    _GET_HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] ID"),
    flag_option("--wait", help="Wait until the task has ended."),
    json_option("Print the task as one line of JSON; with --wait, its raw result."),
)
def _get_command(words: tuple[str, ...], wait: bool, as_json: bool, command: tuple[str, ...], **shared: Any) -> int:
    target, task_id = _split(list(words), command)
    server = server_options(target, command, shared)

    async def show(terminal: Terminal) -> int:
        async with open_client(server, Questions(terminal).callbacks) as client:
            handle = client.resume_task(task_id)
            task = await handle.status()
            if wait or (task.status in FINAL and not as_json):
                return show_result(terminal, await handle.outcome(), "task", as_json=as_json, output=None)
            if as_json:
                terminal.print_json(Raw(encode(task)))
                return 0

            for line in _lines(task):
                terminal.out_safe(line)
        return 0

    return run(show, server)


def _lines(task: DetailedTask) -> Iterator[str]:
    yield _status(task)
    for asked in (task.input_requests or {}).values():
        message = asked.params.get("message") if isinstance(asked.params, dict) else None
        yield f"  asks: {printable(message or asked.method, _MOST_CHARACTERS)}"
    if task.input_requests:
        yield "  to answer, use --wait"


@client_command("cancel", _CANCEL_HELP, click.Argument(["words"], nargs=-1, metavar="[TARGET] ID"))
def _cancel_command(words: tuple[str, ...], command: tuple[str, ...], **shared: Any) -> int:
    target, task_id = _split(list(words), command)
    server = server_options(target, command, shared)

    async def cancel(terminal: Terminal) -> int:
        async with open_client(server) as client:
            await client.tasks.cancel(task_id)
            task = await client.tasks.get(task_id)
        terminal.out_safe(_status(task))
        return 0

    return run(cancel, server)


def _split(words: list[str], command: tuple[str, ...]) -> tuple[str | None, str]:
    most = 1 if command else 2
    if len(words) > most:
        raise WrongUse(f"leave out {words[most]!r}: write one TARGET and one ID")
    if not words or (len(words) == 1 and not command and looks_like_target(words[0])):
        raise WrongUse("which task? Write its id; mcpd tasks list shows the ids of your tasks")
    task_id = words.pop()
    return words[0] if words else None, task_id


for _command in (_list_command, _get_command, _cancel_command):
    tasks_command.add_command(_command)
    # The id of a task may begin with a hyphen.
    _command.context_settings["ignore_unknown_options"] = _command is not _list_command
