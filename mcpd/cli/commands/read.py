"""`mcpd read` prints a resource, `mcpd prompt` a prompt, and `mcpd complete` the values that a server suggests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from mcpd.apps.tool_metadata import OFFER
from mcpd.cli.options import client_command, complete_names, json_option, repeated_option, server_options, value_option
from mcpd.cli.talk.arguments import Given, read_words, texts_of
from mcpd.cli.talk.connecting import open_client, run
from mcpd.cli.talk.content import Saver, show_blocks
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, looks_like_target, nearest, no_such, pairs, split_words
from mcpd.errors import RemoteError
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import EmbeddedResource, Prompt
from mcpd.protocol.types.interaction import PromptReference, ResourceTemplateReference

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
        async with open_client(
            server, extensions=OFFER
        ) as client:  # so that everything that mcpd list shows can be read
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
    """The error for an unknown URI, with the URIs that exist."""
    scheme = uri.partition(":")[0]
    near = nearest(uri, known) or next((each for each in known if each.partition(":")[0] == scheme), "")
    if near and near != uri:
        return WrongUse(f"{printable(error.message)}; did you mean {printable(near)}?")
    hint = f"the resources are {', '.join(known)}" if known else "the server has no resources"
    return RemoteError(error.code, f"{error.message}; {printable(hint, _MOST_NAMED)}", error.data)


# --------------------------------------------------------------------------------------- prompt


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
    """The arguments of a prompt; asks the user for required ones that are missing. Raises WrongUse."""
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


# ------------------------------------------------------------------------------------- complete


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
        near = nearest(words[0], _REFERENCES)
        raise WrongUse(f"{words[0]!r}: " + (f"did you mean {near}?" if near else "write prompt or resource before it"))
    if not 3 <= len(words) <= 4:
        raise WrongUse("write mcpd complete TARGET prompt NAME ARGUMENT VALUE, or resource instead of prompt")
    return target, words
