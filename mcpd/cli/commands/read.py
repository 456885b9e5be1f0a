"""`mcpd list`, `read`, `prompt` and `complete` print what a server offers, and the values that it suggests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from textwrap import indent, wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from msgspec.json import encode, format

from mcpd.apps.tool_metadata import KIND, OFFER, resource_uri
from mcpd.cli.options import (
    client_command,
    complete_kinds,
    complete_names,
    flag_option,
    json_option,
    repeated_option,
    server_options,
    value_option,
)
from mcpd.cli.talk.arguments import Given, Schema, read_schema, read_words, texts_of, type_text
from mcpd.cli.talk.connecting import open_client, run
from mcpd.cli.talk.questions import Questions
from mcpd.cli.talk.terminal import Saver, Terminal, first_line, show_blocks
from mcpd.cli.talk.words import WrongUse, did_you_mean, looks_like_target, nearest, no_such, pairs, split_words
from mcpd.errors import MethodNotFound, RemoteError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.events import EVENTS
from mcpd.protocol.types.features import EmbeddedResource
from mcpd.protocol.types.interaction import PromptReference, ResourceTemplateReference

if TYPE_CHECKING:
    from mcpd.client import Client
    from mcpd.protocol.types.events import EventType
    from mcpd.protocol.types.features import Prompt, Resource, ResourceTemplate, Tool


_KINDS = ("tools", "resources", "prompts", "events", KIND)

_HELP = f"""List what a server offers: tools with their arguments, resources, prompts, events, {KIND}.

Tools are functions to call, resources are texts and files to read, prompts are templates for conversations, events are
what mcpd events watch prints, and {KIND} are tools with a page that hosts show. Among the arguments of a tool,
`rows: integer = 1` has a default, `note?` may be left out, and all others are required.

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
        kinds = f"write {', '.join(_KINDS[:-1])} or {_KINDS[-1]}"
        raise WrongUse(f"cannot list {kind!r}; {did_you_mean(kind, _KINDS) or kinds}")
    if len(words) > 1 or (words and command):
        raise WrongUse(f"leave out {words[0]!r}: write one TARGET, or a command after --")
    return words[0] if words else None, kind


async def _request_lists(terminal: Terminal, client: Client, kind: str) -> dict[str, list[Any]]:
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
    if kind == "events" or (not kind and EVENTS in (client.server_capabilities.extensions or {})):
        found["events"] = await client.list_events()
    return found


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


def _event_row(event: EventType) -> _Row:
    schema = read_schema(event.input_schema)
    details = [("", event.description or ""), ("delivery", ", ".join(event.delivery)), ("arguments", schema.root)]
    details.append(("data", read_schema(event.payload_schema).root))
    return _Row(event.name, _arguments_text(schema), first_line(event.description), details)


def _resource_row(uri: str, entry: Resource | ResourceTemplate) -> _Row:
    text = first_line(entry.description or entry.title)
    return _Row(uri, entry.mime_type or "", text, [("", entry.description or "")])


_ROWS: dict[str, Callable[[Any], _Row]] = {
    "tools": _tool_row,
    "resources": lambda resource: _resource_row(resource.uri, resource),
    "resourceTemplates": lambda template: _resource_row(template.uri_template, template),
    "prompts": _prompt_row,
    "events": _event_row,
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


_NOT_FOUND = (-32002, -32602)
_MOST_NAMED = 500
_REFERENCES = ("prompt", "resource")

_READ_HELP = """Print a resource: a text, an image or other data that the server offers under a URI.

Text goes to stdout. Other data goes to stdout if that is a pipe or a file. On a terminal, images are shown if the
terminal supports that, and other data is saved as a file.

\b
  mcpd read server.py bed://south
  mcpd read mcpd://dot.png > dot.png
"""

_PROMPT_HELP = """Fill in a prompt, a template for the start of a conversation, and print its messages.

All arguments are texts: name=value, or name=@FILE for the text of a file. On a terminal, mcpd asks for required
arguments that are missing. If there are several messages, the role of each is printed above it.

\b
  mcpd prompt server.py plan season=spring
"""

_COMPLETE_HELP = """Print the values that a server suggests for an argument of a prompt or a variable in a URI, one
on each line.

NAME is the name of the prompt, or the URI template as `mcpd list` shows it. ARGUMENT is the argument or variable, and
VALUE the beginning of its value.

\b
  mcpd complete server.py prompt plan season sp
  mcpd complete server.py resource 'bed://{name}' name s
"""


@client_command(
    "read",
    _READ_HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] URI", shell_complete=complete_names("resources")),
    json_option("Print the raw result as one line of JSON."),
    value_option("--output", "-o", metavar="DIR", help="Save data in this folder, or as this one file."),
)
def read_command(
    words: tuple[str, ...], as_json: bool, output: str | None, command: tuple[str, ...], **shared: Any
) -> int:
    target, uri = _split_uri(list(words), command)
    server = server_options(target, command, shared)

    async def read(terminal: Terminal) -> int:
        # With all extensions, everything that `mcpd list` shows can be read.
        async with open_client(server, extensions=OFFER) as client:
            try:
                if as_json:
                    terminal.print_json(await client.request("resources/read", {"uri": uri}))
                    return 0
                found = await client.read_resource(uri)
            except RemoteError as error:
                if error.code in _NOT_FOUND:
                    known = [resource.uri for resource in await client.list_resources()]
                    known += [template.uri_template for template in await client.list_resource_templates()]
                    raise _with_hint(error, uri, known) from None
                raise

        saver = Saver(terminal, output, uri.rstrip("/").rpartition("/")[2])
        show_blocks(terminal, [EmbeddedResource(content) for content in found.contents], saver)
        if not found.contents:
            terminal.note("mcpd: the resource is empty")
        return 0

    return run(read, server)


def _split_uri(words: list[str], command: tuple[str, ...]) -> tuple[str | None, str]:
    most = 1 if command else 2
    if len(words) > most:
        raise WrongUse(f"leave out {words[most]!r}: mcpd reads one resource at a time")
    uri = words.pop() if words and (len(words) == 2 or command or ":" in words[0]) else ""
    if not uri or (not words and not command and looks_like_target(uri) and "://" not in uri):
        named = words[0] if words else uri
        raise WrongUse(f"which resource? mcpd list{f' {named}' if named else ''} resources lists their URIs")
    return words[0] if words else None, uri


def _with_hint(error: RemoteError, uri: str, known: list[str]) -> Exception:
    scheme = uri.partition(":")[0]
    near = nearest(uri, known) or next((each for each in known if each.partition(":")[0] == scheme), "")
    if near and near != uri:
        return WrongUse(f"{printable(error.message)}; did you mean {printable(near)}?")
    hint = f"the resources are {', '.join(known)}" if known else "the server has no resources"
    return RemoteError(error.code, f"{error.message}; {printable(hint, _MOST_NAMED)}", error.data)


@client_command(
    "prompt",
    _PROMPT_HELP,
    click.Argument(
        ["words"], nargs=-1, metavar="[TARGET] NAME [ARGUMENT]...", shell_complete=complete_names("prompts")
    ),
    json_option("Print the raw result as one line of JSON."),
    value_option("--output", "-o", metavar="DIR", help="Save images and other data in this folder."),
)
def prompt_command(
    words: tuple[str, ...], as_json: bool, output: str | None, command: tuple[str, ...], **shared: Any
) -> int:
    target, name, arguments = split_words(words, command, "prompt")
    server = server_options(target, command, shared)
    given = read_words(arguments)

    async def show_prompt(terminal: Terminal) -> int:
        async with open_client(server) as client:
            prompts = {prompt.name: prompt for prompt in await client.list_prompts()}
            if name not in prompts:
                raise no_such("prompt", name, prompts)
            arguments = await _arguments(terminal, prompts[name], given)
            if as_json:
                terminal.print_json(await client.request("prompts/get", {"name": name, "arguments": arguments}))
                return 0
            result = await client.get_prompt(name, arguments)

        saver = Saver(terminal, output, name)
        for message in result.messages:
            if len(result.messages) > 1:
                terminal.out_safe(terminal.styled(f"[{message.role}]", "cyan"))
            show_blocks(terminal, [message.content], saver)
        return 0

    return run(show_prompt, server)


async def _arguments(terminal: Terminal, prompt: Prompt, given: Sequence[Given]) -> dict[str, str]:
    known = {each.name: each for each in prompt.arguments or []}
    arguments = texts_of(given, list(known))
    missing = [name for name, each in known.items() if each.required and name not in arguments]
    if not missing:
        return arguments
    error_text = f"{prompt.name} needs {', '.join(f'{name}=…' for name in missing)}"
    if not terminal.can_ask:
        raise WrongUse(error_text)

    async with terminal.asking:
        for name in missing:
            about = known[name].description
            if about:
                terminal.note(printable(about, 500))
            text = await terminal.ask(f"{terminal.styled_note(printable(name), 'bold')}: ")
            if text is None:
                raise WrongUse(error_text)
            arguments[name] = text
    return arguments


@client_command(
    "complete",
    _COMPLETE_HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] prompt|resource NAME ARGUMENT [VALUE]"),
    repeated_option("--known", metavar="NAME=VALUE", help="Send the value of another argument along."),
    json_option("Print the raw result as one line of JSON."),
)
def complete_command(
    words: tuple[str, ...], known: tuple[str, ...], as_json: bool, command: tuple[str, ...], **shared: Any
) -> int:
    target, rest = _split_kind(list(words), command)
    others = pairs(known, "=", "--known", "NAME=VALUE")
    server = server_options(target, command, shared)

    async def complete(terminal: Terminal) -> int:
        async with open_client(server) as client:
            kind, name, argument, value = [*rest, ""][:4]
            if client.server_capabilities.completions is None:
                terminal.note("mcpd: the server does not support completion")
                return 1
            ref = PromptReference(name=name) if kind == "prompt" else ResourceTemplateReference(uri=name)
            result = await client.complete(ref, argument, value, others or None)

        found = result.completion
        if as_json:
            terminal.print_json(result)
            return 0

        for suggestion in found.values:
            terminal.out_safe(printable(suggestion, 2000))
        if found.has_more or (found.total or 0) > len(found.values):
            terminal.note(f"mcpd: there are more{f', {found.total} in all' if found.total else ''}")
        return 0

    return run(complete, server)


def _split_kind(words: list[str], command: tuple[str, ...]) -> tuple[str | None, list[str]]:
    target = None if command or (words and words[0] in _REFERENCES) else (words.pop(0) if words else None)
    if words and words[0] not in _REFERENCES:
        advice = did_you_mean(words[0], _REFERENCES) or "write prompt or resource before it"
        raise WrongUse(f"{words[0]!r}: {advice}")
    if not 3 <= len(words) <= 4:
        raise WrongUse("write mcpd complete TARGET prompt NAME ARGUMENT VALUE, or resource instead of prompt")
    return target, words
