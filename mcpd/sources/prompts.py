"""Prompts in Markdown files: arguments in the front matter or as `{{name}}`, and messages separated by comments.

A line `<!-- assistant -->` or `<!-- user -->` starts a message of that role. The text before the first such line is a
user message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct

from mcpd.errors import InvalidParams
from mcpd.protocol.printable import printable
from mcpd.protocol.types.features import GetPromptResult, Prompt, PromptArgument, PromptMessage, TextContent
from mcpd.server.context.exchange import Exchange
from mcpd.server.folder_files import read_within
from mcpd.server.registry.entries import ActiveExtensions, PromptEntry
from .files import MAX_PER_KIND, File, Report, Stamped, files_of
from .front_matter import FrontMatterError, decoded, read_front_matter

if TYPE_CHECKING:
    from mcpd.protocol.types.interaction import Completion

MAX_BYTES = 1024 * 1024

_ROLE = r"[ \t]*<!--[ \t]*(user|assistant)[ \t]*-->[ \t]*"
_GAP = r"\{\{\s*([A-Za-z_][A-Za-z0-9_-]*)\s*\}\}"
_NAME = r"[A-Za-z0-9_.-]{1,128}\Z"

_Role = Literal["user", "assistant"]


class _Argument(Struct, forbid_unknown_fields=True, frozen=True):
    name: str | None = None
    title: str | None = None
    description: str | None = None
    required: bool | None = None
    default: str | int | float | bool | None = None
    choices: Annotated[tuple[str | int | float | bool, ...], Meta(max_length=1000)] = ()


class _Head(Struct, frozen=True):
    """The front matter that mcpd reads. Keys of other hosts, such as `allowed-tools`, are ignored."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    arguments: dict[str, _Argument | str | None] | list[_Argument | str] | None = None


class FilePrompt(Stamped, PromptEntry):
    """One file. Two prompts are equal if their contents are equal."""

    def __init__(
        self, head: Prompt, arguments: Mapping[str, _Argument], messages: tuple[tuple[_Role, str], ...]
    ) -> None:
        self.key = head.name
        self.stamp = head, arguments, messages
        self._prompt = head
        self._arguments = arguments
        self._messages = messages

    @property
    def arguments(self) -> Collection[str]:
        return tuple(self._arguments)

    def listed(self, active: ActiveExtensions) -> Prompt:
        return self._prompt

    async def complete(self, argument: str, value: str, others: Mapping[str, str], exchange: Exchange) -> Completion:
        from mcpd.server.registry.prompts import rank

        return rank([_as_text(choice) for choice in self._arguments[argument].choices], value)

    def run(self, arguments: dict[str, str | None], exchange: Exchange) -> GetPromptResult:
        """Return the messages with the values filled in. Raises InvalidParams for an invalid argument."""
        values: dict[str, str] = {}
        for name, argument in self._arguments.items():
            given = arguments.get(name)
            if given is None and argument.required:
                raise InvalidParams(f"{name}: is required")
            values[name] = _as_text(argument.default) if given is None else given
            known = [_as_text(choice) for choice in argument.choices]
            if known and given is not None and given not in known:
                raise InvalidParams(f"{name}: expected one of {', '.join(known)}, not {printable(given, 60)}")

        for name in arguments:
            if name not in values:
                there = ", ".join(values) or "none"
                raise InvalidParams(f"{printable(name, 60)}: unknown argument; known arguments: {there}")

        messages = [
            PromptMessage(role, TextContent(re.sub(_GAP, lambda gap: values.get(gap[1], gap[0]), text)))
            for role, text in self._messages
        ]
        return GetPromptResult(messages=messages, description=self._prompt.description)


def prompts_of(folder: str, report: Report, before: Mapping[str, FilePrompt]) -> dict[str, FilePrompt]:
    """Return the prompts in a folder by path. Of `before`, a prompt stays if its file now has a mistake."""
    found: dict[str, FilePrompt] = {}
    places: dict[str, str] = {}
    files = files_of(folder, report, limit=MAX_PER_KIND, is_wanted=lambda path: path.lower().endswith(".md"))
    for file in files:
        prompt = before.get(file.path)
        instead = "it is left out" if prompt is None else "its previous version is served"
        try:
            prompt = _prompt(file, folder, report)
        except FrontMatterError as error:
            report.error(file.path, f"{error}; {instead}", error.line)
        except OSError as error:
            report.error(file.path, f"cannot be read ({error.strerror}); {instead}")
        if prompt is None:
            continue
        if prompt.key in places:
            report.error(file.path, f"{places[prompt.key]} already has the prompt name {prompt.key}; it is left out")
            continue
        found[file.path], places[prompt.key] = prompt, "/".join(file.parts)

    return found


def _prompt(file: File, folder: str, report: Report) -> FilePrompt:
    # Read one prompt. Raises FrontMatterError or OSError.
    text = decoded(read_within(file.path, folder, MAX_BYTES + 1), MAX_BYTES).removeprefix("\ufeff")
    members, body, first_line = read_front_matter(text)
    head = _head(members, text)
    for key, known in _misspelled(members):
        report.warning(file.path, f"its front matter has the unknown key {printable(key, 60)}; did you mean {known}?")
    name = head.name or "_".join((*file.parts[:-1], file.stem))
    if not re.match(_NAME, name):
        text = f"{name[:80]!r} is not a valid prompt name: use 1 to 128 letters, digits, '_', '-' and '.'"
        raise FrontMatterError(1, text)

    messages = _messages(body)
    if not messages:
        raise FrontMatterError(first_line, "has no text; write the prompt below its front matter")

    used = list(dict.fromkeys(re.findall(_GAP, "\n".join(text for _, text in messages))))
    arguments = _arguments(head, used)
    for gap in re.finditer(_GAP, body):
        if gap[1] not in arguments:
            line = first_line + body.count("\n", 0, gap.start())
            there = ", ".join(arguments) or "no arguments"
            raise FrontMatterError(line, f"{{{{{gap[1]}}}}} is not an argument; its front matter has {there}")

    for one in arguments:
        if one not in used:
            advice = f"write {{{{{one}}}}} where its value belongs"
            report.warning(file.path, f"its argument {one} is not used in its text; {advice}")

    listed = Prompt(
        name=name,
        title=head.title,
        description=head.description,
        arguments=[
            PromptArgument(name=one, title=said.title, description=said.description, required=bool(said.required))
            for one, said in arguments.items()
        ],
    )
    return FilePrompt(listed, arguments, messages)


_EXPECTED = {
    "arguments": "a list of names, a list of `name: …` with `description: …`, or a table of names with descriptions",
    "arguments.required": "true or false",
    "arguments.choices": "a list of strings or numbers",
    "arguments.default": "a string, a number, true or false",
}
_KNOWN = "title, description, required, default and choices"


def _head(members: dict[str, Any], text: str) -> _Head:
    try:
        return msgspec.convert(members, _Head)
    except msgspec.ValidationError as error:
        unknown = re.search(r"unknown field `(.*?)`", str(error))
        path = re.findall(r"\.(\w+)", (re.search(r"at `(.*?)`", str(error)) or [""])[0])
        keys = path[:1] + [key for key in path[1:] if f"{path[0]}.{key}" in _EXPECTED]
        key = unknown[1] if unknown else keys[-1]
        lines = text.split("\n")
        line = next((at for at, one in enumerate(lines, 1) if one.strip().lstrip("- \"'").startswith(key)), 1)
        if unknown:
            text = f"unknown key {printable(key, 60)} of an argument; known keys: {_KNOWN}"
            raise FrontMatterError(line, text) from None
        expected = _EXPECTED.get(".".join(keys), "a string (put numbers, true and false in quotes)")
        raise FrontMatterError(line, f"{key}: expected {expected}") from None


def _misspelled(members: dict[str, Any]) -> list[tuple[str, str]]:
    # Return unknown keys that look like a known key, each with that key.
    known = _Head.__struct_fields__
    unknown = [key for key in members if key not in known]
    if not unknown:
        return []
    from difflib import get_close_matches

    return [(key, near[0]) for key in unknown if (near := get_close_matches(key, known, 1, 0.8))]


def _arguments(head: _Head, used: list[str]) -> dict[str, _Argument]:
    # Return the arguments from the front matter, or one required argument for each placeholder in the text.
    pairs: list[tuple[str, _Argument | None]]
    said = head.arguments
    if said is None:
        return {name: _Argument(required=True) for name in used}
    if isinstance(said, list):
        pairs = [(one, None) if isinstance(one, str) else (one.name or "", one) for one in said]
    else:
        pairs = [(name, _Argument(description=one) if isinstance(one, str) else one) for name, one in said.items()]
    found: dict[str, _Argument] = {}
    for name, one in pairs:
        argument = one or _Argument()
        if not name or name in found:
            text = f"has the argument {name} twice" if name else "has an argument without a name; write - name: season"
            raise FrontMatterError(1, f"its front matter {text}")
        if argument.required is None:
            argument = msgspec.structs.replace(argument, required=argument.default is None)
        found[name] = argument

    return found


def _messages(body: str) -> tuple[tuple[_Role, str], ...]:
    # Return the role and text of each message that is not empty.
    found: list[tuple[_Role, list[str]]] = [("user", [])]
    for line in body.split("\n"):
        role = re.fullmatch(_ROLE, line) if "<!--" in line else None
        if role is None:
            found[-1][1].append(line)
        else:
            found.append((cast("_Role", role[1]), []))
    texts = ((role, "\n".join(lines).strip("\n")) for role, lines in found)
    return tuple((role, text) for role, text in texts if text.strip())


def _as_text(value: object) -> str:
    if value is None:
        return ""

    return str(value).lower() if isinstance(value, bool) else str(value)
