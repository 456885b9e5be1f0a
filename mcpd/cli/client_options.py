"""The arguments and options that all client commands share: TARGET, a command after `--`, and how to connect."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal

import click
from click.shell_completion import CompletionItem

from mcpd.cli.talk.connecting import EXIT_CODES, ServerOptions, open_client
from mcpd.cli.talk.words import WrongUse, pairs
from mcpd.errors import McpdError
from mcpd.protocol.defaults import DEMO
from mcpd.protocol.versions.table import SUPPORTED

TARGET_HELP = """\b
TARGET is the MCP server:
  server.py                   a Python file, which mcpd starts; server.py:object names one of several servers
  garden                      a server folder, as mcpd init writes one
  package.module:object       a server in a module
  https://host/mcp            a running server; also ws://host/mcp and unix:/path/to/socket
  mcp.json:github             the server github of a configuration file with "mcpServers"
  claude-code:github          the server github of an installed host: Claude Code, Cursor, …
  (left out)                  the nearest folder, from here upwards, with an mcpd.toml; otherwise the demo server
  … -- COMMAND ARGUMENTS      instead of TARGET, at the end: a program that speaks MCP on stdin and stdout
"""

_SHARED = ("headers", "token_file", "timeout", "version", "env", "demo")
_COMPLETION_SECONDS = 4.0


def connection_options() -> list[click.Parameter]:
    """`--env`, `-H`, `--token-file` and `--demo`."""
    return [
        click.Option(
            ["--env"],
            multiple=True,
            metavar="NAME=VALUE",
            help="Set an environment variable of the program that is started. Can be repeated.",
        ),
        click.Option(
            ["-H", "--header", "headers"],
            multiple=True,
            metavar="NAME:VALUE",
            help="Send this header with each request to a URL. Can be repeated.",
        ),
        click.Option(
            ["--token-file"],
            metavar="FILE",
            help="Send the bearer token in this file with each request to a URL.",
        ),
        demo_option(),
    ]


def demo_option() -> click.Option:
    """`--demo`, which `or_demo` reads."""
    return click.Option(["--demo"], is_flag=True, help="Use the demo server of mcpd instead of a TARGET.")


def or_demo(target: str | None, demo: bool, command: Sequence[str] = ()) -> str | None:
    """The target, or the demo server if `--demo` was given. Raises WrongUse for both."""
    if demo and (target is not None or command):
        raise WrongUse(f"--demo is the demo server of mcpd, so leave out {target or 'the command after --'}")
    return DEMO if demo else target


def json_option(help: str) -> click.Option:
    """`--json`; `help` says what it prints."""
    return click.Option(["--json", "as_json"], is_flag=True, help=help)


class ClientCommand(click.Command):
    """A command that accepts options anywhere before `--`, and the command of a server after it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        command: list[str] = []
        if "--" in words:
            at = words.index("--")
            words, command = words[:at], words[at + 1 :]
            if not command:
                raise click.UsageError("write the command of a server after --, for example -- npx -y some-server", ctx)
        left = super().parse_args(ctx, words)
        ctx.params["command"] = tuple(command)
        return left


def client_command(
    name: str, help: str, *parameters: click.Parameter, epilog: str = EXIT_CODES
) -> Callable[[Callable[..., int]], click.Command]:
    """A decorator that makes a command with these parameters and those that all client commands have."""
    shared = [
        click.Option(
            ["--timeout"],
            type=float,
            default=60.0,
            metavar="SECONDS",
            help="Give up after this many seconds without a message from the server; 0 waits forever. Default: 1 min.",
        ),
        click.Option(
            ["--protocol", "version"],
            type=click.Choice(SUPPORTED),
            metavar="VERSION",
            help=f"Use this protocol version, from {SUPPORTED[-1]} to {SUPPORTED[0]}. Default: the newest one that "
            "the server supports.",
        ),
        *connection_options(),
    ]
    params = [*parameters, *shared]
    return click.command(name, cls=ClientCommand, params=params, help=f"{help}\n{TARGET_HELP}", epilog=epilog)


def server_options(target: str | None, command: Sequence[str], shared: dict[str, Any]) -> ServerOptions:
    """The server that the parsed options name. Takes the shared options out of `shared`. Raises WrongUse."""
    given = {name: shared.pop(name) for name in _SHARED}
    if not given["timeout"] >= 0:
        raise WrongUse("--timeout is a number of seconds; 0 waits forever")
    ctx = click.get_current_context(silent=True)
    return ServerOptions(
        target=or_demo(target, given["demo"], command),
        command=tuple(command),
        called="mcpd" if ctx is None else ctx.command_path,
        headers=pairs(given["headers"], ":", "-H", "NAME:VALUE"),
        token_file=given["token_file"],
        env=pairs(given["env"], "=", "--env", "NAME=VALUE"),
        timeout=given["timeout"] or None,
        version=given["version"],
    )


# ----------------------------------------------------------------------------- shell completion

Listing = Literal["tools", "prompts", "resources"]
_Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_names(listing: Listing) -> _Completer:
    """Completes TARGET with files, and the next word with names from the server.

    Only files and the demo server are asked: pressing Tab must not start other programs or use the network.
    """

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        typed = list(ctx.params.get("words") or ())
        if len(typed) > 1:
            return []
        found = [CompletionItem(name) for name in _names(listing, typed) if name.startswith(incomplete)]
        return found if typed else [*found, CompletionItem(incomplete, type="file")]

    return complete


def complete_kinds(kinds: tuple[str, ...]) -> _Completer:
    """Completes with one of these words, and the first word with files too."""

    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(kind) for kind in kinds if kind.startswith(incomplete)]
        return found if ctx.params.get("words") else [*found, CompletionItem(incomplete, type="file")]

    return complete


def _names(listing: Listing, typed: list[str]) -> list[str]:
    target = typed[0] if typed else None
    if target is not None and not os.path.exists(target.partition(".py:")[0].removesuffix(".py") + ".py"):
        return []
    # Output of the server would appear in the line that the user types.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        return asyncio.run(asyncio.wait_for(_list_names(listing, target), _COMPLETION_SECONDS))
    except (McpdError, TimeoutError, OSError):
        return []


async def _list_names(listing: Listing, target: str | None) -> list[str]:
    async with open_client(ServerOptions(target=target, timeout=_COMPLETION_SECONDS)) as client:
        if listing == "tools":
            return [tool.name for tool in await client.list_tools()]
        if listing == "prompts":
            return [prompt.name for prompt in await client.list_prompts()]
        return [resource.uri for resource in await client.list_resources()]
