"""Opens a `Client` to the server that a command line names, and turns errors into one line and an exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

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
from mcpd.protocol.jsonrpc import encode
from mcpd.protocol.printable import mask_command, mask_text, printable
from .terminal import Terminal
from .words import WrongUse, with_help

if TYPE_CHECKING:
    from mcpd.client import Callbacks, Client

EXIT_CODES = "Exit codes: 0 done, 1 the server or the call failed, 2 wrong use, 3 login required, 130 Ctrl-C."

_MOST_OF_AN_ERROR = 2000
_MOST_OF_DATA = 500
_LOGIN_REQUIRED = 3
_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM


class ServerOptions(Struct, kw_only=True):
    """The server that a command line names, and how to connect to it.

    `timeout` is in seconds, None for no limit; `version` is None for the newest protocol version.
    """

    target: str | None = None
    command: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    token_file: str | None = None
    env: dict[str, str] = {}
    timeout: float | None = 60.0
    version: str | None = None
    # The mcpd command that runs, for error messages.
    called: str = "mcpd call"


@asynccontextmanager
async def open_client(
    server: ServerOptions,
    callbacks: Callable[[], Callbacks] | None = None,
    extensions: Mapping[str, Any] | None = None,
) -> AsyncIterator[Client]:
    """Connect a client to the server. Raises the errors of `Client.open`."""
    target = resolve_target(server)
    if str(target) == DEMO_NAME and server.target is None:
        print(f"mcpd: no server was named, so this is {DEMO_NAME}", file=sys.stderr, flush=True)
    from mcpd.client import Callbacks, Client

    client = Client(
        target,
        Callbacks() if callbacks is None else callbacks(),
        extensions=extensions,
        version=server.version,
        timeout=server.timeout,
    )

    gc.enable()
    gc.freeze()  # the modules live until the end: do not scan them for garbage
    async with client:
        yield client


def resolve_target(server: ServerOptions) -> CommandTarget | UrlTarget:
    """The command or URL of the server, with its headers and variables. Raises ConfigurationError, WrongUse."""
    if server.command or server.target is not None:
        from mcpd.client.targets.grammar import from_words

        found = from_words(server.target, server.command)
        target = command_of(found) if isinstance(found, FileTarget) else found
    else:
        target = _target_here()
    if not (server.env or server.headers or server.token_file):
        return target

    if isinstance(target, CommandTarget):
        if server.headers or server.token_file:
            option = "-H" if server.headers else "--token-file"
            raise WrongUse(f"{option} is for servers at a URL; to set variables of a program, use --env")
        return replace(target, env={**(target.env or {}), **server.env})
    if server.env:
        raise WrongUse("--env is for programs; to send headers to a server at a URL, use -H")
    headers = dict(target.headers)
    if server.token_file is not None:
        from mcpd.auth.settings import secret_in

        token = secret_in(server.token_file, "--token-file")
        # A line end would begin another header.
        if not token.isascii() or not token.isprintable():
            raise ConfigurationError(f"--token-file {server.token_file}: write one line of ASCII, the token, into it")
        headers["Authorization"] = f"Bearer {token}"
    return replace(target, headers=headers | server.headers)


def _target_here() -> CommandTarget:
    from mcpd.sources.lookup import folder_here

    place = folder_here()
    if place is None:
        return command_of(None)
    return command_of(FileTarget(place.root)) if place.is_trusted else replace(command_of(None), name="this folder")


def run(work: Callable[[Terminal], Awaitable[int]], server: ServerOptions) -> int:
    """Run a command's work in an event loop and return the exit code. An error prints one line on stderr."""
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
    except McpdError as error:
        terminal.note(f"mcpd: {describe_error(error, server)}", "red")
        codes = {AuthorizationRequired: _LOGIN_REQUIRED, WrongUse: 2}
        return next((code for kind, code in codes.items() if isinstance(error, kind)), 1)
    except KeyboardInterrupt:
        if terminal.err_is_terminal:
            terminal.note("")  # ends the line with ^C
        return _INTERRUPTED
    except asyncio.CancelledError:
        if not stopped:
            raise
        return stopped[0]
    except BrokenPipeError:
        raise  # stdout is closed
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        terminal.note(f"mcpd: {where}{error.strerror or error}", "red")
        return 1
    except Exception as error:
        terminal.note(f"mcpd: {_describe_bug(error)}", "red")
        return 1
    finally:
        logger.removeHandler(warnings)


class _Warnings(logging.Handler):
    """Prints the client's warnings about a server that breaks the protocol, each kind once."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg not in self._seen:
            self._seen.add(record.msg)
            self._terminal.note(f"mcpd: {printable(record.getMessage(), _MOST_OF_AN_ERROR)}", "yellow")


def _describe_bug(error: Exception) -> str:
    # One line with the place in the code, so that a bug of mcpd can be found.
    place = extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(place.filename)}:{place.lineno}"
    text = f"{type(error).__name__}: {printable(error, _MOST_OF_AN_ERROR)}"
    return f"this is a bug in mcpd: {text} at {where}; please report it with the command line"


def describe_error(error: McpdError, server: ServerOptions) -> str:
    """One line that says what went wrong and what to do."""
    text = printable(error, _MOST_OF_AN_ERROR)
    if isinstance(error, RemoteError):
        message = printable(error.message, _MOST_OF_AN_ERROR) or "an error without a message"
        return f"the server answered with an error: {message} (code {error.code}){_data_of(error)}"
    if isinstance(error, UnsupportedVersion):
        return f"{text}; mcpd and this server have no protocol version in common"
    if isinstance(error, ConfigurationError):
        return printable(with_help(error, server.called), _MOST_OF_AN_ERROR)
    if isinstance(error, AuthorizationRequired):
        return text

    text = f"{text[:1].lower()}{text[1:]}"
    advice = f"to find out why, run mcpd doctor {_target_again(server)}".rstrip()
    if isinstance(error, RequestTimeout):
        return f"{text}; to wait longer, use --timeout 300, or 0 for no limit; {advice}"
    if isinstance(error, TransportError):
        text = text.partition("; stderr: ")[0]  # the user has seen it: stderr is passed on
        return f"{text}; {advice}"
    return text


def _data_of(error: RemoteError) -> str:
    if error.data is UNSET or error.data is None:
        return ""
    try:
        text = error.data if isinstance(error.data, str) else encode(error.data).decode()
    except (TypeError, ValueError):
        return ""
    return f"; {printable(mask_text(text), _MOST_OF_DATA)}" if text else ""


def _target_again(server: ServerOptions) -> str:
    if server.command:
        return f"-- {shlex.join(mask_command(server.command))}"
    return shlex.quote(without_secrets(server.target)) if server.target else ""


def without_secrets(target: str) -> str:
    """A target as it was typed, without the user, password and query of a URL."""
    scheme, is_url, rest = target.partition("://")
    if not is_url:
        return target
    place, query, _ = rest.partition("?")
    authority, slash, path = place.partition("/")
    user, at, host = authority.rpartition("@")
    return f"{scheme}://{'…@' if user or at else ''}{host}{slash}{path}{'?…' if query else ''}"
