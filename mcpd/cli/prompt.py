"""`mcpd prompt`: a prompt, filled in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mcpd.cli.client_options import client_command, json_option, reach_of
from mcpd.cli.talk.arguments import Given, read_words, texts_of
from mcpd.cli.talk.completing import complete_names
from mcpd.cli.talk.reach import Reach, opened, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, nearest, split_words
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.protocol.types.prompts import GetPromptResult, Prompt

_HELP = """Fill in a prompt, and print its messages: texts to begin a conversation with, which the server makes.

All arguments are texts: name=value, or name=@FILE for that of a file. What has to be given and was not is asked for
on a terminal. With several messages each has its role above it.

\b
  mcpd prompt server.py plan season=spring
"""


@client_command(
    "prompt",
    _HELP,
    click.Argument(
        ["words"], nargs=-1, metavar="[TARGET] NAME [ARGUMENT]...", shell_complete=complete_names("prompts")
    ),
    json_option("Print the raw result as one line of JSON."),
    click.Option(["--output", "-o"], metavar="DIR", help="Save images and other bytes in this folder."),
)
def command(words: tuple[str, ...], as_json: bool, output: str | None, command: tuple[str, ...], **shared: Any) -> int:
    target, name, arguments = split_words(words, command, "prompt")
    reach = reach_of(target, command, shared)
    given = read_words(arguments)
    return run(lambda terminal: _prompt(terminal, reach, name, given, as_json=as_json, output=output), reach)


async def _prompt(
    terminal: Terminal, reach: Reach, name: str, given: Sequence[Given], *, as_json: bool, output: str | None
) -> int:
    async with opened(reach) as client:
        prompt = _find(await client.list_prompts(), name)
        arguments = await _complete(terminal, prompt, given)
        if as_json:
            from mcpd.cli.talk.content import one_line

            params = {"name": name, "arguments": arguments}
            terminal.out_json(one_line(await client.request("prompts/get", params)))
            return 0
        result = await client.get_prompt(name, arguments)
    _show(terminal, result, output, name)
    return 0


def _find(prompts: Sequence[Prompt], name: str) -> Prompt:
    names = [prompt.name for prompt in prompts]
    for prompt in prompts:
        if prompt.name == name:
            return prompt
    there = f"there are {', '.join(names)}" if names else "the server has none"
    if not name:
        raise WrongUse(f"which prompt? {printable(there, 500)}")
    near = nearest(name, names)
    raise WrongUse(f"no prompt {printable(name)}; {f'did you mean {near}?' if near else printable(there, 500)}")


async def _complete(terminal: Terminal, prompt: Prompt, given: Sequence[Given]) -> dict[str, str]:
    known = {each.name: each for each in prompt.arguments or []}
    arguments = texts_of(given, list(known))
    wanted = [name for name, each in known.items() if each.required and name not in arguments]
    if not wanted:
        return arguments
    needed = f"{prompt.name} needs {', '.join(f'{name}=…' for name in wanted)}"
    if not terminal.can_ask:
        raise WrongUse(needed)

    async with terminal.asking:
        for name in wanted:
            about = known[name].description
            if about:
                terminal.note(printable(about, 500))
            text = await terminal.ask(f"{terminal.styled_note(printable(name), 'bold')}: ")
            if text is None:
                raise WrongUse(needed)
            arguments[name] = text
    return arguments


def _show(terminal: Terminal, result: GetPromptResult, output: str | None, name: str) -> None:
    from mcpd.cli.talk.content import Saver, show_blocks

    saver = Saver(terminal, output, name)
    for message in result.messages:
        if len(result.messages) > 1:
            terminal.out_safe(terminal.styled(f"[{message.role}]", "cyan"))
        show_blocks(terminal, [message.content], saver)
