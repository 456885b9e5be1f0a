"""`mcpd complete`: what a server suggests for an argument."""

from __future__ import annotations

from typing import Any

import click

from mcpd.cli.client_options import client_command, json_option, reach_of
from mcpd.cli.talk.reach import Reach, opened, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, nearest

_KINDS = ("prompt", "resource")

_HELP = """Print what a server suggests for an argument of a prompt, or for a variable in the URI of a resource.

NAME is that of the prompt, or the template of the URI as `mcpd list` shows it; ARGUMENT is the argument or variable,
and VALUE what is typed of it so far. One suggestion stands on each line.

\b
  mcpd complete server.py prompt plan season sp
  mcpd complete server.py resource 'bed://{name}' name s
"""


@client_command(
    "complete",
    _HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] prompt|resource NAME ARGUMENT [VALUE]"),
    click.Option(
        ["--known"], multiple=True, metavar="NAME=VALUE", help="The value of another argument. Can be repeated."
    ),
    json_option("Print the raw result as one line of JSON."),
)
def command(
    words: tuple[str, ...], known: tuple[str, ...], as_json: bool, command: tuple[str, ...], **shared: Any
) -> int:
    target, rest = _split(list(words), command)
    others = dict(_pair(word) for word in known)
    reach = reach_of(target, command, shared)
    return run(lambda terminal: _complete(terminal, reach, rest, others, as_json=as_json), reach)


def _split(words: list[str], command: tuple[str, ...]) -> tuple[str | None, list[str]]:
    target = None if command or (words and words[0] in _KINDS) else (words.pop(0) if words else None)
    if words and words[0] not in _KINDS:
        near = nearest(words[0], _KINDS)
        raise WrongUse(f"{words[0]!r}: " + (f"did you mean {near}?" if near else "write prompt or resource before it"))
    if not 3 <= len(words) <= 4:
        raise WrongUse("write mcpd complete TARGET prompt NAME ARGUMENT VALUE, or resource in place of prompt")
    return target, words


def _pair(word: str) -> tuple[str, str]:
    name, there, value = word.partition("=")
    if not there:
        raise WrongUse(f"--known {word}: write --known NAME=VALUE")
    return name, value


async def _complete(terminal: Terminal, reach: Reach, words: list[str], known: dict[str, str], *, as_json: bool) -> int:
    async with opened(reach) as client:
        from mcpd.protocol.types.interaction import PromptReference, ResourceTemplateReference

        kind, name, argument, value = [*words, ""][:4]
        if client.server_capabilities.completions is None:
            terminal.note("mcpd: the server offers no suggestions")
            return 1
        ref = PromptReference(name=name) if kind == "prompt" else ResourceTemplateReference(uri=name)
        result = await client.complete(ref, argument, value, known or None)

    found = result.completion
    if as_json:
        from mcpd.cli.talk.content import one_line

        terminal.out_json(one_line(result))
        return 0
    from mcpd.protocol.printable import printable

    for suggestion in found.values:
        terminal.out_safe(printable(suggestion, 2000))
    if found.has_more or (found.total or 0) > len(found.values):
        terminal.note(f"mcpd: there are more{f', {found.total} in all' if found.total else ''}")
    return 0
