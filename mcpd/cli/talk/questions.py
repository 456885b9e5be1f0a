"""What a server asks for while it is asked: a form, a page to visit, what a model would say.

On a terminal the user is asked, with the name of the server; where nobody can be asked it is declined, and said.
Spec: 2026-07-28 client/{elicitation,sampling}: the user sees who asks, may decline, and opens no page unasked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import convert

from mcpd.cli.talk.terminal import Terminal
from mcpd.client import Callbacks
from mcpd.errors import ProtocolError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable, printable_lines
from mcpd.protocol.types.interaction import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
)

if TYPE_CHECKING:
    from mcpd.protocol.types.base import LogMessageParams

_MOST_OF_A_TEXT = 4000
_MOST_DECLINED = 100
LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class _Refused(ProtocolError):
    """The user, or nobody, did not let a model be asked. Spec: 2025-11-25 client/sampling, error handling."""

    code = -1
    default_message = "User rejected sampling request"


class _AskedAgain(ProtocolError):
    """Nobody was there to be asked, and the server asks the same again: it may for ever."""

    default_message = "it asks again what was declined, and there is no terminal on which you could be asked"


class Questions:
    """The callbacks of a command's client. `log_level` is the least severe level of the server's log that is shown."""

    def __init__(self, terminal: Terminal, log_level: str = "warning") -> None:
        self._terminal = terminal
        self._least = LOG_LEVELS.index(log_level)
        self.server_name: Callable[[], str] = lambda: "the server"
        self._declined: set[str] = set()
        """What was declined unasked."""

    def callbacks(self, **others: Any) -> Callbacks:
        """What is offered to the server; `others` are callbacks of the command itself."""
        return Callbacks(elicit_form=self.form, elicit_url=self.url, sample=self.sample, log=self.log, **others)

    def log(self, told: LogMessageParams) -> None:
        """A message of the server's log, in a line."""
        if LOG_LEVELS.index(told.level) >= self._least:
            self._terminal.note(log_line(told), "dim")

    async def form(self, params: ElicitFormParams) -> ElicitResult:
        """Ask for the values of a form."""
        message = printable(params.message, _MOST_OF_A_TEXT)
        if not self._can_ask(f"asks: {message}"):
            return ElicitResult(action="decline")
        from mcpd.cli.talk.forms import GivenUp, ask_members
        from mcpd.cli.talk.kinds import read_schema

        terminal = self._terminal
        schema = read_schema(params.requested_schema)
        async with terminal.asking:
            self._say(f"asks: {_told(params.message)}", "Ctrl-D declines.")
            try:
                if not schema.properties:
                    return ElicitResult(action="accept", content={}) if await self._agrees() else _DECLINED
                content = await ask_members(terminal, schema, list(schema.properties))
            except GivenUp:
                terminal.note("mcpd: declined")
                return _DECLINED
        return ElicitResult(action="accept", content=content)

    async def url(self, params: ElicitUrlParams) -> ElicitResult:
        """Ask whether a page may be opened, and open it."""
        message, url = printable(params.message, _MOST_OF_A_TEXT), printable(params.url, _MOST_OF_A_TEXT)
        if not self._can_ask(f"asks you to visit {url}: {message}"):
            return ElicitResult(action="decline")
        why = _unfit(params.url)
        if why:
            self._terminal.note(f"mcpd: {self.server_name()} asks you to visit {url}, which {why}; declined")
            return _DECLINED
        async with self._terminal.asking:
            self._say(
                f"asks you to visit a page: {_told(params.message)}", f"  {url}", f"  of the host {_host(params.url)}"
            )
            if not await self._agrees("Open it"):
                return _DECLINED
        if not _open(params.url):
            self._terminal.note(f"mcpd: no browser could be started; open it yourself: {url}")
        return ElicitResult(action="accept")

    async def visit(self, data: Any) -> bool:
        """Pages that a server wants visited before it does what was asked: whether they were.

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
        return bool(pages) and await self._terminal.ask("Press Enter when that is done: ") is not None

    async def sample(self, params: CreateMessageParams) -> CreateMessageResult:
        """Let the user say what a model would."""
        if not self._can_ask("wants to ask a model"):
            raise _Refused
        terminal = self._terminal
        async with terminal.asking:
            said = [f"  {message.role}: {_told(_text_of(message.content))}" for message in params.messages]
            if params.system_prompt:
                said.insert(0, f"  system: {_told(params.system_prompt)}")
            self._say("wants to ask a model; there is none here, and you may answer in its place.", *said)
            terminal.note("Your answer, ended by an empty line; Ctrl-D declines.")
            lines: list[str] = []
            while line := await terminal.ask("> "):
                lines.append(line)
            if line is None or not lines:
                terminal.note("mcpd: declined")
                raise _Refused

        from mcpd.protocol.types.content import TextContent

        text = TextContent("\n".join(lines))
        return CreateMessageResult(
            role="assistant", content=text, model="a person at the terminal", stop_reason="endTurn"
        )

    # ------------------------------------------------------------------------------------ inside

    def _can_ask(self, what: str) -> bool:
        if not self._terminal.can_ask:
            if what in self._declined:
                raise _AskedAgain
            if len(self._declined) < _MOST_DECLINED:
                self._declined.add(what)

            self._terminal.note(
                f"mcpd: {self.server_name()} {what}; declined, as there is no terminal on which you could be asked"
            )
        return self._terminal.can_ask

    def _say(self, first: str, *rest: str) -> None:
        self._terminal.note(f"{self.server_name()} {first}", "bold")
        for line in rest:
            self._terminal.note(line)

    async def _agrees(self, what: str = "Accept") -> bool:
        answer = await self._terminal.ask(f"{what}? (yes or no) [no]: ")
        return answer is not None and answer.lower() in ("y", "yes")


_DECLINED = ElicitResult(action="decline")


def log_line(told: LogMessageParams) -> str:
    """A message of a server's log as one line."""
    from msgspec import UNSET
    from msgspec.json import encode

    data = "" if told.data is UNSET else told.data if isinstance(told.data, str) else encode(told.data).decode()
    logger = f" {printable(told.logger)}" if told.logger else ""
    return f"{told.level}{logger}: {printable(data, _MOST_OF_A_TEXT)}"


def _told(text: str) -> str:
    """A text of the server's for the terminal: its lines are indented, so that none passes for one of ours."""
    return printable_lines(text[:_MOST_OF_A_TEXT]).replace("\n", "\n  ")


def _unfit(url: str) -> str:
    """Why a page is not opened: what is shown of it has to be all of it, and its host the one that a browser visits."""
    from urllib.parse import urlsplit

    if not url.startswith(("https://", "http://")):
        return "is no web page"
    if len(url) > _MOST_OF_A_TEXT:
        return f"is too long to be looked at ({len(url)} characters)"
    # Browsers read `\\` as `/`, leave some controls out, and find a host behind any number of slashes.
    if "\\" in url or " " in url or not url.isprintable():
        return "has characters that no URL has"
    try:
        return "" if urlsplit(url).hostname else "has no host"
    except ValueError:
        return "is no URL"


def _host(url: str) -> str:
    """The host of a page, in the letters that are looked up: one that looks like another shows."""
    from urllib.parse import urlsplit

    try:
        host = urlsplit(url).hostname or ""
        return printable(host.encode("idna").decode() if not host.isascii() else host)
    except (ValueError, UnicodeError):
        return "(none that can be read)"


def _open(url: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False


def _text_of(content: Any) -> str:
    blocks = content if isinstance(content, list) else [content]
    return " ".join(getattr(block, "text", None) or f"[{getattr(block, 'type', 'content')}]" for block in blocks)
