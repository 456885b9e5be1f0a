"""Values asked for on the terminal, one after the other, by the schema of an object: a tool's arguments, a form.

What does not fit is said, and asked again. Ctrl-D gives up.
"""

from __future__ import annotations

from typing import Any

from msgspec.json import encode

from mcpd.cli.talk.arguments import read_text
from mcpd.cli.talk.kinds import Choice, Schema, in_words, limits_in_words
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse
from mcpd.protocol.printable import printable

_MOST_LISTED = 30
_MOST_OF_A_TEXT = 1000


class GivenUp(Exception):
    """The user ended the input instead of answering."""


async def ask_members(terminal: Terminal, schema: Schema, names: list[str], prefix: str = "") -> dict[str, Any]:
    """Ask for these members of an object; those that are not required may be left out. Raises GivenUp."""
    found: dict[str, Any] = {}
    known = schema.properties
    for name in names:
        kind = known.get(name) or Schema({}, schema.root)
        value = await _ask(terminal, f"{prefix}{name}", kind, is_required=name in schema.required)
        if value is not _NOTHING:
            found[name] = value
    return found


_NOTHING = object()


async def _ask(terminal: Terminal, name: str, kind: Schema, *, is_required: bool) -> Any:
    """A value, or _NOTHING if it is left out."""
    if kind.types == ["object"] and kind.properties and is_required:
        return await ask_members(terminal, kind, kind.required or list(kind.properties), f"{name}.")
    choices = kind.choices or _item_choices(kind)
    prompt = _introduce(terminal, name, kind, choices, is_required=is_required)
    while True:
        line = await terminal.ask(prompt)
        if line is None:
            raise GivenUp
        if not line:
            if kind.default is not None:
                return kind.default
            if not is_required:
                return _NOTHING
            if kind.types != ["string"] or kind.node.get("minLength", 0):
                terminal.note("  it has to be given; Ctrl-D gives up")
                continue
        try:
            return _read(line, kind, choices, name)
        except WrongUse as error:
            terminal.note(f"  {printable(error, 1000)}")


def _introduce(terminal: Terminal, name: str, kind: Schema, choices: list[Choice], *, is_required: bool) -> str:
    """Say what is asked for, in lines of its own; gives the prompt."""
    if kind.description:
        terminal.note(printable(kind.description, _MOST_OF_A_TEXT))
    if choices:
        for number, choice in enumerate(choices[:_MOST_LISTED], 1):
            value = printable(_plain(choice.value))
            terminal.note(f"  {number}) {value}{f'  {printable(choice.title)}' if choice.title != value else ''}")
        if len(choices) > _MOST_LISTED:
            terminal.note(f"  … {len(choices) - _MOST_LISTED} more")

    said = [] if choices else [in_words(kind)]
    if kind.types == ["array"]:
        said = ["several, with commas between"] if choices else [f"{in_words(kind)} as JSON"]
    if kind.types == ["boolean"]:
        said = ["yes or no"]
    said += [word for word in (limits_in_words(kind), "" if is_required else "optional") if word]
    default = f" [{printable(_default(kind.default))}]" if kind.default is not None else ""
    about = f" ({printable(', '.join(said))})" if said else ""
    shown = terminal.styled_note(printable(name), "bold")
    return f"{shown}{about}{default}: "


def _read(line: str, kind: Schema, choices: list[Choice], name: str) -> Any:
    """A line as the value it stands for. Raises WrongUse."""
    if kind.types == ["boolean"] and line.lower() in _YES | _NO:
        return line.lower() in _YES
    if choices and kind.types == ["array"]:
        return [_choose(part.strip(), choices, name) for part in line.split(",") if part.strip()]
    if choices:
        return _choose(line, choices, name)
    return read_text(line, kind, name)


_YES = {"y", "yes", "true"}
_NO = {"n", "no", "false"}


def _choose(word: str, choices: list[Choice], name: str) -> Any:
    for choice in choices:
        if word in (choice.title, _plain(choice.value)):
            return choice.value
    if word.isdigit() and 1 <= int(word) <= len(choices):
        return choices[int(word) - 1].value
    raise WrongUse(f"{name}: {word!r} is none of these; write a value or its number")


def _item_choices(kind: Schema) -> list[Choice]:
    return kind.items.choices if kind.types == ["array"] else []


def _default(value: Any) -> str:
    """What Enter alone takes, as it would be typed."""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else _plain(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()
