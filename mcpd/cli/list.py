"""`mcpd list`: what a server offers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from mcpd.apps.tool_metadata import KIND, OFFER, resource_uri
from mcpd.cli.client_options import client_command, json_option, reach_of
from mcpd.cli.talk.completing import complete_kinds
from mcpd.cli.talk.reach import Reach, opened, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, nearest
from mcpd.errors import MethodNotFound, RemoteError

if TYPE_CHECKING:
    from mcpd.client import Callbacks, Client

KINDS = ("tools", "resources", "prompts", KIND)
_OR = f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"

_HELP = f"""List what a server offers: tools with their arguments, resources, prompts, {KIND}.

Tools are functions to call, resources are texts and files to read, prompts are texts to begin a conversation with,
and {KIND} are tools with a page that hosts show. Of the arguments of a tool `rows: integer = 1` has a default, what is
marked as `note?` may be left out, and all else has to be given.

\b
  mcpd list server.py                      everything
  mcpd list server.py tools --verbose      the tools, with all schemas
  mcpd list -- npx -y some-server          what a program offers
"""


@client_command(
    "list",
    _HELP,
    click.Argument(["words"], nargs=-1, metavar=f"[TARGET] [{'|'.join(KINDS)}]", shell_complete=complete_kinds(KINDS)),
    click.Option(["--verbose", "-v"], is_flag=True, help="Whole descriptions, and the schemas of tools."),
    json_option("Print everything as one line of JSON."),
)
def command(words: tuple[str, ...], verbose: bool, as_json: bool, command: tuple[str, ...], **shared: Any) -> int:
    target, kind = _split(list(words), command)
    reach = reach_of(target, command, shared)
    return run(lambda terminal: _list(terminal, reach, kind, verbose=verbose, as_json=as_json), reach)


def _split(words: list[str], command: tuple[str, ...]) -> tuple[str | None, str]:
    kind = words.pop() if words and (words[-1] in KINDS or len(words) > 1 or command) else ""
    if kind and kind not in KINDS:
        near = nearest(kind, KINDS)
        raise WrongUse(f"{kind!r} is nothing to list; " + (f"did you mean {near}?" if near else f"write {_OR}"))
    if len(words) > 1 or (words and command):
        raise WrongUse(f"{words[0]!r} is one word too many; there is one TARGET, or a command behind --")
    return words[0] if words else None, kind


async def _list(terminal: Terminal, reach: Reach, kind: str, *, verbose: bool, as_json: bool) -> int:
    def callbacks() -> Callbacks:
        # What is offered to the server decides what it lists: the same as for a call.
        from mcpd.cli.talk.questions import Questions

        return Questions(terminal).callbacks()

    async with opened(reach, callbacks, extensions=OFFER) as client:
        found = await _ask(terminal, client, kind)
        if as_json:
            _print_json(terminal, client, found)
            return 0

        info = client.server_info
        if not kind and info is not None:
            from mcpd.protocol.printable import printable

            title = f"{printable(info.name)} {printable(info.version)}"
            terminal.out_safe(f"{terminal.styled(title, 'bold')} (protocol {client.version})")
        _print(terminal, found, verbose=verbose, is_whole=not kind)
        return 0


async def _ask(terminal: Terminal, client: Client, kind: str) -> dict[str, list[Any]]:
    """The lists that are wanted, by what they are called in JSON."""

    async def listed(name: str, answer: Awaitable[list[Any]]) -> list[Any]:
        try:
            return await answer
        except RemoteError as error:
            if error.code != MethodNotFound.code or kind == name:
                raise
            terminal.note(f"mcpd: the server offers {name}, but its method to list them does not exist", "yellow")
            return []

    found: dict[str, list[Any]] = {}
    if kind in ("", "tools", KIND):
        tools = await listed("tools", client.list_tools())
        if kind != KIND:
            found["tools"] = tools
        if kind in ("", KIND):
            found[KIND] = [tool for tool in tools if resource_uri(tool)]
    if kind in ("", "resources"):
        found["resources"] = await listed("resources", client.list_resources())
        found["resourceTemplates"] = await listed("resource templates", client.list_resource_templates())
    if kind in ("", "prompts"):
        found["prompts"] = await listed("prompts", client.list_prompts())
    return found


def _print(terminal: Terminal, found: dict[str, list[Any]], *, verbose: bool, is_whole: bool) -> None:
    from mcpd.cli.talk.tables import Row, prompt_row, resource_row, show_table, template_row, tool_row

    made: dict[str, Callable[[Any], Row]] = {
        "tools": tool_row,
        "resources": resource_row,
        "resourceTemplates": template_row,
        "prompts": prompt_row,
    }
    titles = {"resourceTemplates": "resource templates"}
    for name, entries in found.items():
        if name == KIND:
            rows = [
                Row(tool.name, resource_uri(tool) or "", (tool.description or "").partition("\n")[0])
                for tool in entries
            ]
        else:
            rows = [made[name](entry) for entry in entries]
        if rows and (is_whole or name == "resourceTemplates"):
            terminal.out_safe(f"{terminal.styled(titles.get(name, name), 'cyan')} ({len(rows)})")
        show_table(terminal, rows, verbose=verbose)
    if not any(found.values()):
        terminal.note("mcpd: the server offers nothing" + ("" if is_whole else " of this kind"))


def _print_json(terminal: Terminal, client: Client, found: dict[str, list[Any]]) -> None:
    from mcpd.cli.talk.content import one_line

    said: dict[str, Any] = {"server": client.server_info, "protocolVersion": client.version, **found}
    if KIND in said:
        said[KIND] = [{"tool": tool.name, "resourceUri": resource_uri(tool)} for tool in said[KIND]]
    terminal.out_json(one_line(said))
