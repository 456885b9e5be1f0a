"""From what the command line says of a server to an open `Client`; from what goes wrong to a line and an exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct

from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, with_help
from mcpd.cli.telling import tell
from mcpd.client.targets.named import DEMO_NAME, CommandTarget, FileTarget, UrlTarget, command_of
from mcpd.errors import (
    AuthorizationRequired,
    ConfigurationError,
    McpdError,
    RemoteError,
    RequestTimeout,
    TransportError,
    UnsupportedVersion,
)
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client import Callbacks, Client

EXIT_CODES = "Exit codes: 0 done, 1 the server or its answer failed, 2 wrong use, 3 a login is wanted, 130 Ctrl-C."

_MOST_OF_AN_ERROR = 2000
_MOST_OF_DATA = 500
_LOGIN_WANTED = 3
_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM


class Reach(Struct, kw_only=True):
    """Which server, and how it is spoken to. `timeout` in seconds, None for ever; `version` None for the newest."""

    target: str | None = None
    command: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    token_file: str | None = None
    env: dict[str, str] = {}
    timeout: float | None = 60.0
    version: str | None = None
    called: str = "mcpd call"
    """The command of ours that asks."""


@asynccontextmanager
async def opened(
    reach: Reach,
    callbacks: Callable[[], Callbacks] | None = None,
    extensions: Mapping[str, Any] | None = None,
) -> AsyncIterator[Client]:
    """An open client. Raises as `Client.open` does."""
    target = named_target(reach)
    if str(target) == DEMO_NAME and reach.target is None:
        tell(f"mcpd: no server was named, so this is {DEMO_NAME}")
    from mcpd.client import Callbacks, Client

    client = Client(
        target,
        Callbacks() if callbacks is None else callbacks(),
        extensions=extensions,
        version=reach.version,
        timeout=reach.timeout,
    )
    gc.enable()
    gc.freeze()  # the collector need never look at what was loaded, not at the end either
    async with client:
        yield client


def named_target(reach: Reach) -> CommandTarget | UrlTarget:
    """What the command line names, with the headers and variables that it says. Raises ConfigurationError, WrongUse."""
    if reach.command or reach.target is not None:
        from mcpd.client.targets.grammar import from_words

        found = from_words(reach.target, reach.command)
        target = command_of(found) if isinstance(found, FileTarget) else found
    else:
        target = _meant_here()
    if not (reach.env or reach.headers or reach.token_file):
        return target

    from msgspec.structs import replace

    if isinstance(target, CommandTarget):
        if reach.headers or reach.token_file:
            option = "-H" if reach.headers else "--token-file"
            raise WrongUse(f"{option} is for servers behind a URL; a program is given variables by --env")
        return replace(target, env={**(target.env or {}), **reach.env})
    if reach.env:
        raise WrongUse("--env is for servers that are started; one behind a URL is given headers by -H")
    token = {} if reach.token_file is None else {"Authorization": f"Bearer {_token(reach.token_file)}"}
    return replace(target, headers={**target.headers, **token, **reach.headers})


def _meant_here() -> CommandTarget:
    """The folder that is meant where no server was named, or the demo server. Raises ConfigurationError."""
    from msgspec.structs import replace

    from mcpd.sources.lookup import folder_here

    place = folder_here()
    if place is None:
        return command_of(None)
    return command_of(FileTarget(place.root)) if place.is_trusted else replace(command_of(None), name="this folder")


def _token(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"--token-file {path}: {why}; name a file that holds the token") from None
    if not token.isascii() or not token.isprintable() or not token:
        raise ConfigurationError(f"--token-file {path}: there is no token in it, which is one line of ASCII")
    return token


def run(work: Callable[[Terminal], Awaitable[int]], reach: Reach) -> int:
    """Do a command's work in an event loop, and give the exit code. What goes wrong is one line on stderr."""
    terminal = Terminal()
    logger, warnings = logging.getLogger("mcpd"), _Warnings(terminal)
    logger.addHandler(warnings)
    stopped: list[int] = []

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            stopped.append(_TERMINATED)
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        try:
            return await work(terminal)
        finally:
            terminal.end_bar()

    try:
        return asyncio.run(main())
    except WrongUse as error:
        terminal.note(f"mcpd: {printable(error, _MOST_OF_AN_ERROR)}", "red")
        return 2
    except McpdError as error:
        terminal.note(f"mcpd: {in_words(error, reach)}", "red")
        return _LOGIN_WANTED if isinstance(error, AuthorizationRequired) else 1
    except KeyboardInterrupt:
        if terminal.err_is_terminal:
            terminal.note("")  # behind the ^C
        return _INTERRUPTED
    except asyncio.CancelledError:
        if not stopped:
            raise
        return stopped[0]
    except BrokenPipeError:
        raise  # nobody reads what we print
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        terminal.note(f"mcpd: {where}{error.strerror or error}", "red")
        return 1
    except Exception as error:
        terminal.note(f"mcpd: {_of_a_mistake(error)}", "red")
        return 1
    finally:
        logger.removeHandler(warnings)


class _Warnings(logging.Handler):
    """What the client has to say of a server that breaks the rules: each kind of it once."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg not in self._said:
            self._said.add(record.msg)
            self._terminal.note(f"mcpd: {printable(record.getMessage(), _MOST_OF_AN_ERROR)}", "yellow")


def _of_a_mistake(error: Exception) -> str:
    """A mistake of ours, in one line by which it can be found."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno}"
    said = f"{type(error).__name__}: {printable(error, _MOST_OF_AN_ERROR)}"
    return f"this should not happen: {said}{where}; please report it, with the command line"


def in_words(error: McpdError, reach: Reach) -> str:
    """One line: what went wrong, and what to do."""
    text = printable(error, _MOST_OF_AN_ERROR)
    if isinstance(error, RemoteError):
        message = printable(error.message, _MOST_OF_AN_ERROR) or "an error without a text"
        return f"the server answered with an error: {message} (code {error.code}){_data_of(error)}"
    if isinstance(error, RequestTimeout):
        longer = "to wait longer: --timeout 300, or 0 for as long as it takes"
        return f"{text[:1].lower()}{text[1:]}; {longer}; to see why: mcpd doctor {_said_again(reach)}".rstrip()
    if isinstance(error, UnsupportedVersion):
        return f"{text}; mcpd and this server have no protocol version in common"
    if isinstance(error, ConfigurationError):
        return printable(with_help(error, reach.called), _MOST_OF_AN_ERROR)
    if isinstance(error, AuthorizationRequired):
        return text
    if isinstance(error, TransportError):
        text = text.partition("; stderr: ")[0]  # it stands above: what a server writes there is passed on
        return f"{text[:1].lower()}{text[1:]}; to see why: mcpd doctor {_said_again(reach)}".rstrip()
    return f"{text[:1].lower()}{text[1:]}"


def _data_of(error: RemoteError) -> str:
    """The data of an error, which often say more than its message."""
    from mcpd.protocol.jsonrpc import encode
    from mcpd.protocol.printable import mask_text

    if error.data is UNSET or error.data is None:
        return ""
    try:
        text = error.data if isinstance(error.data, str) else encode(error.data).decode()
    except (TypeError, ValueError):
        return ""
    return f"; {printable(mask_text(text), _MOST_OF_DATA)}" if text else ""


def _said_again(reach: Reach) -> str:
    """What the command line says of the server, without secrets: what we print may be kept, or sent to others."""
    import shlex

    if reach.command:
        from mcpd.protocol.printable import mask_command

        return f"-- {shlex.join(mask_command(reach.command))}"
    return shlex.quote(without_secrets(reach.target)) if reach.target else ""


def without_secrets(target: str) -> str:
    """A target as it was typed, but for a URL's user, password and query."""
    scheme, is_url, rest = target.partition("://")
    if not is_url:
        return target
    place, query, _ = rest.partition("?")
    authority, slash, path = place.partition("/")
    user, at, host = authority.rpartition("@")
    return f"{scheme}://{'…@' if user or at else ''}{host}{slash}{path}{'?…' if query else ''}"
