"""What a server offers, in columns: names, arguments with their types, the first line of what is said of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.json import encode, format

from mcpd.cli.talk.kinds import Schema, in_words, read_schema
from mcpd.cli.talk.terminal import Terminal
from mcpd.protocol.printable import printable
from mcpd.protocol.types.prompts import Prompt
from mcpd.protocol.types.resources import Resource, ResourceTemplate
from mcpd.protocol.types.tools import Tool

_NARROWEST = 20
_WIDEST_NAME = 32
_WIDEST_ARGUMENTS = 56
_MOST = 400


class Row(NamedTuple):
    """One line of a table. `details` are shown below it with --verbose: what each is, and its text or JSON."""

    name: str
    arguments: str
    text: str
    details: Sequence[tuple[str, Any]] = ()


def tool_row(tool: Tool) -> Row:
    """A tool, with its arguments."""
    schema = read_schema(tool.input_schema)
    details = [("", tool.description or ""), ("arguments", schema.root)]
    if tool.output_schema is not None:
        details.append(("result", read_schema(tool.output_schema).root))
    return Row(tool.name, argument_words(schema), _first_line(tool.description or tool.title), details)


def argument_words(schema: Schema) -> str:
    """`bed: string, rows: integer = 1, note?: string`: with ? is what may be left out."""
    required, said = set(schema.required), []
    for name, kind in schema.properties.items():
        default = f" = {encode(kind.default).decode()}" if kind.default is not None else ""
        mark = "" if name in required or default else "?"
        said.append(f"{name}{mark}: {in_words(kind)}{default}")
    return ", ".join(said)


def prompt_row(prompt: Prompt) -> Row:
    """A prompt; its arguments are all texts."""
    arguments = prompt.arguments or []
    words = ", ".join(f"{each.name}{'' if each.required else '?'}" for each in arguments)
    details = [("", prompt.description or "")]
    details += [(each.name, each.description) for each in arguments if each.description]
    return Row(prompt.name, words, _first_line(prompt.description or prompt.title), details)


def resource_row(resource: Resource) -> Row:
    """A resource, with its type."""
    details = [("", resource.description or "")]
    return Row(resource.uri, resource.mime_type or "", _first_line(resource.description or resource.title), details)


def template_row(template: ResourceTemplate) -> Row:
    """A family of resources."""
    text = _first_line(template.description or template.title)
    return Row(template.uri_template, template.mime_type or "", text, [("", template.description or "")])


def show_table(terminal: Terminal, rows: Sequence[Row], *, verbose: bool) -> None:
    """Rows in columns that are as wide as they need; what does not fit on a terminal stands on lines of its own."""
    names = [printable(row.name, _MOST) for row in rows]
    arguments = [printable(row.arguments, _MOST) for row in rows]
    first = max((len(name) for name in names if len(name) <= _WIDEST_NAME), default=0)
    second = max((len(words) for words in arguments if len(words) <= _WIDEST_ARGUMENTS), default=0)
    for row, name, words in zip(rows, names, arguments, strict=True):
        text = printable(row.text, _MOST)
        for line in _lines(terminal, name, words, text, (first, second)):
            terminal.out_safe(line.rstrip())
        if verbose:
            _show_details(terminal, row)


def _lines(terminal: Terminal, name: str, words: str, text: str, widths: tuple[int, int]) -> list[str]:
    first, second = widths
    shown = terminal.styled(name, "bold") + " " * max(first - len(name), 0)
    start = 4 + max(len(name), first) + (second + 2 if second else 0)
    room = terminal.width - start if terminal.width else len(text)
    if len(words) <= second and len(name) <= first and room >= min(len(text), _NARROWEST):
        middle = f"  {words:{second}}" if second else ""
        return [f"  {shown}{middle}  {text[:room]}" if len(text) <= room else f"  {shown}{middle}  {text[: room - 1]}…"]
    if not terminal.width:
        return [f"  {shown}  {words}  {text}"]
    from textwrap import wrap

    indent = " " * 6
    rest = [
        line
        for part in (words, text)
        for line in wrap(part, max(terminal.width, 40), initial_indent=indent, subsequent_indent=indent)
    ]
    return [f"  {shown}", *rest]


def _show_details(terminal: Terminal, row: Row) -> None:
    from textwrap import indent

    for what, value in row.details:
        is_text = isinstance(value, str)
        shown = value.strip() if is_text else format(encode(value), indent=2).decode()
        if what and is_text:
            shown = f"{what}: {shown}"
        elif what:
            terminal.out(f"    {what}")
        if shown:
            terminal.out(indent(shown, "    " if is_text else "      "))


def _first_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[0].strip() if lines else ""
