"""`mcpd list`: prints what a server offers, in columns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from textwrap import indent, wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec.json import encode, format

from mcpd.apps.tool_metadata import KIND, OFFER, resource_uri
from mcpd.cli.options import client_command, complete_kinds, flag_option, json_option, server_options
from mcpd.cli.talk.arguments import Schema, read_schema, type_text
from mcpd.cli.talk.connecting import open_client, run
from mcpd.cli.talk.questions import Questions
from mcpd.cli.talk.terminal import Terminal, first_line
from mcpd.cli.talk.words import WrongUse, nearest
from mcpd.errors import MethodNotFound, RemoteError
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client import Client
    from mcpd.protocol.types.features import Prompt, Resource, ResourceTemplate, Tool

_KINDS = ("tools", "resources", "prompts", KIND)
_KINDS_TEXT = f"{', '.join(_KINDS[:-1])} or {_KINDS[-1]}"

_HELP = f"""List what a server offers: tools with their arguments, resources, prompts, {KIND}.

Tools are functions to call, resources are texts and files to read, prompts are templates for conversations, and {KIND}
are tools with a page that hosts show. Among the arguments of a tool, `rows: integer = 1` has a default, `note?` may be
left out, and all others are required.

\b
  mcpd list server.py                      everything
  mcpd list server.py tools --verbose      the tools, with all schemas
  mcpd list -- npx -y some-server          the offers of any program
"""

_NARROWEST = 20
_WIDEST_NAME = 32
_WIDEST_ARGUMENTS = 56
_MOST_CHARACTERS = 400


@client_command(
    "list",
    _HELP,
    click.Argument(
        ["words"], nargs=-1, metavar=f"[TARGET] [{'|'.join(_KINDS)}]", shell_complete=complete_kinds(_KINDS)
    ),
    flag_option("--verbose", "-v", help="Print whole descriptions, and the schemas of tools."),
    json_option("Print everything as one line of JSON."),
)
def list_command(words: tuple[str, ...], verbose: bool, as_json: bool, command: tuple[str, ...], **shared: Any) -> int:
    target, kind = _split(list(words), command)
    server = server_options(target, command, shared)

    async def show_lists(terminal: Terminal) -> int:
        # Servers list their offers by the client's capabilities: declare the same ones as for a call.
        async with open_client(server, Questions(terminal).callbacks, extensions=OFFER) as client:
            found = await _request_lists(terminal, client, kind)
            if as_json:
                members = {"server": client.server_info, "protocolVersion": client.version, **found}
                if KIND in found:
                    members[KIND] = [{"tool": tool.name, "resourceUri": resource_uri(tool)} for tool in found[KIND]]
                terminal.print_json(members)
                return 0

            info = client.server_info
            if not kind and info is not None:
                title = f"{printable(info.name)} {printable(info.version)}"
                terminal.out_safe(f"{terminal.styled(title, 'bold')} (protocol {client.version})")
            _print(terminal, found, verbose=verbose, is_whole=not kind)
            return 0

    return run(show_lists, server)


def _split(words: list[str], command: tuple[str, ...]) -> tuple[str | None, str]:
    kind = words.pop() if words and (words[-1] in _KINDS or len(words) > 1 or command) else ""
    if kind and kind not in _KINDS:
        near = nearest(kind, _KINDS)
        raise WrongUse(f"cannot list {kind!r}; " + (f"did you mean {near}?" if near else f"write {_KINDS_TEXT}"))
    if len(words) > 1 or (words and command):
        raise WrongUse(f"leave out {words[0]!r}: write one TARGET, or a command after --")
    return words[0] if words else None, kind


async def _request_lists(terminal: Terminal, client: Client, kind: str) -> dict[str, list[Any]]:
    """The requested lists, by their names in JSON."""

    async def listed(name: str, answer: Awaitable[list[Any]]) -> list[Any]:
        try:
            return await answer
        except RemoteError as error:
            if error.code != MethodNotFound.code or kind == name:
                raise
            terminal.note(f"mcpd: the server declares {name}, but has no method to list them", "yellow")
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


# --------------------------------------------------------------------------------------- tables


class _Row(NamedTuple):
    """One line of a table. `details` are printed below it with --verbose: a heading, and a text or JSON."""

    name: str
    arguments: str
    text: str
    details: Sequence[tuple[str, Any]] = ()


def _tool_row(tool: Tool) -> _Row:
    schema = read_schema(tool.input_schema)
    details = [("", tool.description or ""), ("arguments", schema.root)]
    if tool.output_schema is not None:
        details.append(("result", read_schema(tool.output_schema).root))
    return _Row(tool.name, _arguments_text(schema), first_line(tool.description or tool.title), details)


def _arguments_text(schema: Schema) -> str:
    """The arguments of a tool, such as `bed: string, rows: integer = 1, note?: string`."""
    required, texts = set(schema.required), []
    for name, member in schema.properties.items():
        default = f" = {encode(member.default).decode()}" if member.default is not None else ""
        mark = "" if name in required or default else "?"
        texts.append(f"{name}{mark}: {type_text(member)}{default}")
    return ", ".join(texts)


def _prompt_row(prompt: Prompt) -> _Row:
    arguments = prompt.arguments or []
    names = ", ".join(f"{each.name}{'' if each.required else '?'}" for each in arguments)
    details = [("", prompt.description or "")]
    details += [(each.name, each.description) for each in arguments if each.description]
    return _Row(prompt.name, names, first_line(prompt.description or prompt.title), details)


def _resource_row(uri: str, entry: Resource | ResourceTemplate) -> _Row:
    text = first_line(entry.description or entry.title)
    return _Row(uri, entry.mime_type or "", text, [("", entry.description or "")])


_ROWS: dict[str, Callable[[Any], _Row]] = {
    "tools": _tool_row,
    "resources": lambda resource: _resource_row(resource.uri, resource),
    "resourceTemplates": lambda template: _resource_row(template.uri_template, template),
    "prompts": _prompt_row,
    KIND: lambda tool: _Row(tool.name, resource_uri(tool) or "", first_line(tool.description)),
}


def _print(terminal: Terminal, found: dict[str, list[Any]], *, verbose: bool, is_whole: bool) -> None:
    titles = {"resourceTemplates": "resource templates"}
    for name, entries in found.items():
        rows = [_ROWS[name](entry) for entry in entries]
        if rows and (is_whole or name == "resourceTemplates"):
            terminal.out_safe(f"{terminal.styled(titles.get(name, name), 'cyan')} ({len(rows)})")
        _print_table(terminal, rows, verbose=verbose)
    if not any(found.values()):
        terminal.note("mcpd: the server offers nothing" + ("" if is_whole else " of this kind"))


def _print_table(terminal: Terminal, rows: Sequence[_Row], *, verbose: bool) -> None:
    """Print rows in columns that are as wide as needed; a row that does not fit the terminal gets several lines."""
    names = [printable(row.name, _MOST_CHARACTERS) for row in rows]
    arguments = [printable(row.arguments, _MOST_CHARACTERS) for row in rows]
    first = max((len(name) for name in names if len(name) <= _WIDEST_NAME), default=0)
    second = max((len(text) for text in arguments if len(text) <= _WIDEST_ARGUMENTS), default=0)
    for row, name, argument_text in zip(rows, names, arguments, strict=True):
        text = printable(row.text, _MOST_CHARACTERS)
        for line in _row_lines(terminal, name, argument_text, text, (first, second)):
            terminal.out_safe(line.rstrip())
        if verbose:
            _print_details(terminal, row)


def _row_lines(terminal: Terminal, name: str, arguments: str, text: str, widths: tuple[int, int]) -> list[str]:
    first, second = widths
    shown = terminal.styled(name, "bold") + " " * max(first - len(name), 0)
    start = 4 + max(len(name), first) + (second + 2 if second else 0)
    room = terminal.width - start if terminal.width else len(text)
    if len(arguments) <= second and len(name) <= first and room >= min(len(text), _NARROWEST):
        middle = f"  {arguments:{second}}" if second else ""
        return [f"  {shown}{middle}  {text[:room]}" if len(text) <= room else f"  {shown}{middle}  {text[: room - 1]}…"]
    if not terminal.width:
        return [f"  {shown}  {arguments}  {text}"]

    margin = " " * 6
    rest = [
        line
        for part in (arguments, text)
        for line in wrap(part, max(terminal.width, 40), initial_indent=margin, subsequent_indent=margin)
    ]
    return [f"  {shown}", *rest]


def _print_details(terminal: Terminal, row: _Row) -> None:
    for heading, value in row.details:
        is_text = isinstance(value, str)
        shown = value.strip() if is_text else format(encode(value), indent=2).decode()
        if heading and is_text:
            shown = f"{heading}: {shown}"
        elif heading:
            terminal.out(f"    {heading}")
        if shown:
            terminal.out(indent(shown, "    " if is_text else "      "))
