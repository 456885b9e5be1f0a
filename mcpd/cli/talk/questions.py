"""Asks the user for values: missing arguments of a tool, and what the server asks for during a call.

The server may ask for a form, for a visit to a page, or for the answer of a model. The user sees who asks and may
decline; no page is opened without consent. If there is no terminal, the request is declined with a message.
Spec: 2026-07-28 client/{elicitation,sampling}.
"""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import UNSET, convert
from msgspec.json import encode

from mcpd.client import Callbacks
from mcpd.errors import ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable, printable_lines
from mcpd.protocol.types.features import TextContent
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
)
from .arguments import Choice, Schema, limits_text, plain, read_schema, read_text, type_text
from .terminal import Terminal
from .words import WrongUse

if TYPE_CHECKING:
    from mcpd.protocol.types.base import LogMessageParams

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_MOST_CHARACTERS = 4000
_MOST_DECLINED = 100
_MOST_LISTED = 30
_MOST_OF_A_DESCRIPTION = 1000
_YES = {"y", "yes", "true"}
_NO = {"n", "no", "false"}
_DECLINED = ElicitResult(action="decline")


class _SamplingRejected(ProtocolError):
    """Spec: 2025-11-25 client/sampling, error handling."""

    code = -1
    default_message = "User rejected sampling request"


class _DeclinedBefore(ProtocolError):
    """The server repeats a request that was declined because there is no terminal, and might repeat it forever."""

    default_message = "this request was declined before, and there is no terminal on which the user could be asked"


class Questions:
    """The callbacks of a command's client. `log_level` is the least severe level of log messages to show."""

    def __init__(self, terminal: Terminal, log_level: str = "warning") -> None:
        self._terminal = terminal
        self._least = LOG_LEVELS.index(log_level)
        self.server_name = "the server"
        # The requests that were declined without asking.
        self._declined: set[str] = set()

    def callbacks(self) -> Callbacks:
        return Callbacks(elicit_form=self.form, elicit_url=self.url, sample=self.sample, log=self.log)

    def log(self, params: LogMessageParams) -> None:
        if LOG_LEVELS.index(params.level) >= self._least:
            self._terminal.note(log_line(params), "dim")

    async def form(self, params: ElicitFormParams) -> ElicitResult:
        """Ask for the values of a form."""
        message = printable(params.message, _MOST_CHARACTERS)
        if not self._can_ask(f"asks: {message}"):
            return _DECLINED
        terminal = self._terminal
        schema = read_schema(params.requested_schema)
        async with terminal.asking:
            self._print(f"asks: {_indented(params.message)}", "Press Ctrl-D to decline.")
            try:
                if not schema.properties:
                    return ElicitResult(action="accept", content={}) if await self._confirm() else _DECLINED
                content = await ask_members(terminal, schema, list(schema.properties))
            except InputCancelled:
                terminal.note("mcpd: declined")
                return _DECLINED

        return ElicitResult(action="accept", content=content)

    async def url(self, params: ElicitUrlParams) -> ElicitResult:
        """Ask whether to open a page, and open it."""
        message, url = printable(params.message, _MOST_CHARACTERS), printable(params.url, _MOST_CHARACTERS)
        if not self._can_ask(f"asks you to visit {url}: {message}"):
            return _DECLINED
        problem = _url_problem(params.url)
        if problem:
            self._terminal.note(f"mcpd: {self.server_name} asks you to visit {url}, which {problem}; declined")
            return _DECLINED
        async with self._terminal.asking:
            first = f"asks you to visit a page: {_indented(params.message)}"
            self._print(first, f"  {url}", f"  on the host {_host_of(params.url)}")
            if not await self._confirm("Open it"):
                return _DECLINED

        with suppress(webbrowser.Error, OSError):
            if webbrowser.open(params.url):
                return ElicitResult(action="accept")
        self._terminal.note(f"mcpd: no browser could be started; open the page yourself: {url}")
        return ElicitResult(action="accept")

    async def visit(self, data: Any) -> bool:
        """Ask for visits to the pages that an error names; True if the user has visited all of them.

        Spec: 2025-11-25 client/elicitation, URL elicitation required.
        """
        found = data.get("elicitations") if isinstance(data, dict) else None
        try:
            pages = convert(found, type=list[ElicitUrlParams])
        except MALFORMED:
            return False
        for page in pages:
            if (await self.url(page)).action != "accept":
                return False
        return bool(pages) and await self._terminal.ask("Press Enter when you are done: ") is not None

    async def sample(self, params: CreateMessageParams) -> CreateMessageResult:
        """Let the user answer instead of a model."""
        if not self._can_ask("asks for the answer of a model"):
            raise _SamplingRejected
        terminal = self._terminal
        async with terminal.asking:
            shown = [f"  {message.role}: {_indented(_text_of(message.content))}" for message in params.messages]
            if params.system_prompt:
                shown.insert(0, f"  system: {_indented(params.system_prompt)}")
            self._print("asks for the answer of a model; there is no model here, but you may answer.", *shown)
            terminal.note("Type your answer, then an empty line; press Ctrl-D to decline.")
            lines: list[str] = []
            while line := await terminal.ask("> "):
                lines.append(line)
            if line is None or not lines:
                terminal.note("mcpd: declined")
                raise _SamplingRejected

        text = TextContent("\n".join(lines))
        return CreateMessageResult(
            role="assistant", content=text, model="a person at the terminal", stop_reason="endTurn"
        )

    def _can_ask(self, request: str) -> bool:
        if not self._terminal.can_ask:
            if request in self._declined:
                raise _DeclinedBefore
            if len(self._declined) < _MOST_DECLINED:
                self._declined.add(request)

            text = f"{self.server_name} {request}; declined, because there is no terminal to ask you on"
            self._terminal.note(f"mcpd: {text}")
        return self._terminal.can_ask

    def _print(self, first: str, *lines: str) -> None:
        self._terminal.note(f"{self.server_name} {first}", "bold")
        for line in lines:
            self._terminal.note(line)

    async def _confirm(self, what: str = "Accept") -> bool:
        answer = await self._terminal.ask(f"{what}? (yes or no) [no]: ")
        return answer is not None and answer.lower() in ("y", "yes")


def log_line(params: LogMessageParams) -> str:
    """A log message of a server as one line."""
    data = "" if params.data is UNSET else params.data if isinstance(params.data, str) else encode(params.data).decode()
    logger = f" {printable(params.logger)}" if params.logger else ""
    return f"{params.level}{logger}: {printable(data, _MOST_CHARACTERS)}"


def _indented(text: str) -> str:
    # A line of the server must not look like a line of mcpd.
    return printable_lines(text[:_MOST_CHARACTERS]).replace("\n", "\n  ")


def _url_problem(url: str) -> str:
    # The user must see the whole URL, and the host that the browser would visit.
    if not url.startswith(("https://", "http://")):
        return "is not a web page"
    if len(url) > _MOST_CHARACTERS:
        return f"is too long to check ({len(url)} characters)"
    # Browsers read `\\` as `/`, skip some control characters, and find a host after any number of slashes.
    if "\\" in url or " " in url or not url.isprintable():
        return "has characters that are not allowed in URLs"
    try:
        return "" if urlsplit(url).hostname else "has no host"
    except ValueError:
        return "is not a URL"


def _host_of(url: str) -> str:
    # The host as it is looked up: letters that only look like others become visible.
    try:
        host = urlsplit(url).hostname or ""
        return printable(host.encode("idna").decode() if not host.isascii() else host)
    except (ValueError, UnicodeError):
        return "(unreadable)"


def _text_of(content: Any) -> str:
    blocks = content if isinstance(content, list) else [content]
    return " ".join(getattr(block, "text", None) or f"[{getattr(block, 'type', 'content')}]" for block in blocks)


class InputCancelled(Exception):
    """The user ended the input (Ctrl-D) instead of answering."""


async def ask_members(terminal: Terminal, schema: Schema, names: list[str], prefix: str = "") -> dict[str, Any]:
    """Ask for these members of an object, one after the other, until each value fits. Raises InputCancelled."""
    found: dict[str, Any] = {}
    known = schema.properties
    for name in names:
        member = known.get(name) or Schema({}, schema.root)
        value = await _ask(terminal, f"{prefix}{name}", member, is_required=name in schema.required)
        if value is not _NOTHING:
            found[name] = value
    return found


_NOTHING = object()


async def _ask(terminal: Terminal, name: str, schema: Schema, *, is_required: bool) -> Any:
    if schema.types == ["object"] and schema.properties and is_required:
        return await ask_members(terminal, schema, schema.required or list(schema.properties), f"{name}.")
    choices = schema.items.choices if schema.types == ["array"] else schema.choices
    prompt = _introduce(terminal, name, schema, choices, is_required=is_required)
    while True:
        line = await terminal.ask(prompt)
        if line is None:
            raise InputCancelled
        if not line:
            if schema.default is not None:
                return schema.default
            if not is_required:
                return _NOTHING
            if schema.types != ["string"] or schema.node.get("minLength", 0):
                terminal.note("  this value is required; press Ctrl-D to cancel")
                continue
        try:
            return _read(line, schema, choices, name)
        except WrongUse as error:
            terminal.note(f"  {printable(error, 1000)}")


def _introduce(terminal: Terminal, name: str, schema: Schema, choices: list[Choice], *, is_required: bool) -> str:
    if schema.description:
        terminal.note(printable(schema.description, _MOST_OF_A_DESCRIPTION))
    if choices:
        for number, choice in enumerate(choices[:_MOST_LISTED], 1):
            value = printable(plain(choice.value))
            terminal.note(f"  {number}) {value}{f'  {printable(choice.title)}' if choice.title != value else ''}")
        if len(choices) > _MOST_LISTED:
            terminal.note(f"  … {len(choices) - _MOST_LISTED} more")

    hints = [] if choices else [type_text(schema)]
    if schema.types == ["array"]:
        hints = ["several, separated by commas"] if choices else [f"{type_text(schema)} as JSON"]
    if schema.types == ["boolean"]:
        hints = ["yes or no"]
    hints += [hint for hint in (limits_text(schema), "" if is_required else "optional") if hint]
    default = f" [{printable(_default(schema.default))}]" if schema.default is not None else ""
    about = f" ({printable(', '.join(hints))})" if hints else ""
    shown = terminal.styled_note(printable(name), "bold")
    return f"{shown}{about}{default}: "


def _read(line: str, schema: Schema, choices: list[Choice], name: str) -> Any:
    if schema.types == ["boolean"] and line.lower() in _YES | _NO:
        return line.lower() in _YES
    if choices and schema.types == ["array"]:
        return [_choose(part.strip(), choices, name) for part in line.split(",") if part.strip()]
    if choices:
        return _choose(line, choices, name)
    return read_text(line, schema, name)


def _choose(word: str, choices: list[Choice], name: str) -> Any:
    for choice in choices:
        if word in (choice.title, plain(choice.value)):
            return choice.value
    if word.isdigit() and 1 <= int(word) <= len(choices):
        return choices[int(word) - 1].value
    raise WrongUse(f"{name}: {word!r} is not one of these; write a value or its number")


def _default(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(plain, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else plain(value)
