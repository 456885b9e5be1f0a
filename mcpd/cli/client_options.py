"""What all commands that ask a server have in common: TARGET, a command behind `--`, how the server is spoken to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from mcpd.cli.talk.reach import EXIT_CODES, Reach
from mcpd.cli.talk.words import WrongUse
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.serve_defaults import DEMO

TARGET_HELP = """\b
TARGET is the MCP server:
  server.py                   a file with a server, started for this; server.py:object names one of several
  garden                      a folder that is a server, as mcpd init writes one
  package.module:object       a server in a module
  https://host/mcp            a server that runs already; ws://host/mcp and unix:/path/to/socket too
  mcp.json:github             the server github of a configuration file, which has "mcpServers" in it
  claude-code:github          the server github of a host that is installed here: Claude Code, Cursor, …
  (left out)                  the folder of the next mcpd.toml, here or above; otherwise the demo server (--demo)
  … -- COMMAND ARGUMENTS      instead of TARGET: a program that talks MCP on stdin and stdout, at the end
"""

_SHARED = ("headers", "token_file", "timeout", "version", "env", "demo")


def _options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--timeout"],
            type=float,
            default=60.0,
            show_default=True,
            metavar="SECONDS",
            help="Give up when nothing was heard of the server for so long; 0 waits for ever.",
        ),
        click.Option(
            ["--protocol", "version"],
            type=click.Choice(SUPPORTED),
            metavar="VERSION",
            help=f"Speak this version of the protocol ({SUPPORTED[-1]} to {SUPPORTED[0]}), not the newest in common.",
        ),
        click.Option(
            ["--env"],
            multiple=True,
            metavar="NAME=VALUE",
            help="A variable in the environment of a server that is started. Can be repeated.",
        ),
        click.Option(
            ["-H", "--header", "headers"],
            multiple=True,
            metavar="NAME:VALUE",
            help="A header of each request to a server behind a URL. Can be repeated.",
        ),
        click.Option(
            ["--token-file"],
            metavar="FILE",
            help="Read the token that a server behind a URL wants (Authorization: Bearer …) from this file.",
        ),
        demo_option(),
    ]


def demo_option() -> click.Option:
    """`--demo`, which `or_demo` reads."""
    return click.Option(["--demo"], is_flag=True, help="Take the demo server of mcpd in place of TARGET.")


def or_demo(target: str | None, demo: bool, command: Sequence[str] = ()) -> str | None:
    """The target, or the demo server if `--demo` was given. Raises WrongUse for both."""
    if demo and (target is not None or command):
        raise WrongUse(f"--demo is the demo server of mcpd, so {target or 'the command behind --'} is one too many")
    return DEMO if demo else target


def json_option(help: str) -> click.Option:
    """`--json`, with what it prints."""
    return click.Option(["--json", "as_json"], is_flag=True, help=help)


class ClientCommand(click.Command):
    """A command whose words behind `--` are a command of their own, and whose options may stand anywhere before."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        behind: list[str] = []
        if "--" in words:
            at = words.index("--")
            words, behind = words[:at], words[at + 1 :]
            if not behind:
                raise click.UsageError("behind -- stands the command of a server, as -- npx -y some-server", ctx)
        left = super().parse_args(ctx, words)
        ctx.params["command"] = tuple(behind)
        return left


def client_command(
    name: str, help: str, *parameters: click.Parameter, epilog: str = EXIT_CODES
) -> Callable[[Callable[..., int]], click.Command]:
    """A decorator: a command with these parameters, and those that all have."""
    params = [*parameters, *_options()]
    return click.command(name, cls=ClientCommand, params=params, help=f"{help}\n{TARGET_HELP}", epilog=epilog)


def called() -> str:
    """The command that runs, as `mcpd list`."""
    ctx = click.get_current_context(silent=True)
    return "mcpd" if ctx is None else ctx.command_path


def reach_of(target: str | None, command: Sequence[str], shared: dict[str, Any]) -> Reach:
    """Which server, from what click read. Takes the shared options out of `shared`. Raises WrongUse."""
    said = {name: shared.pop(name) for name in _SHARED}
    if not said["timeout"] >= 0:
        raise WrongUse("--timeout is a number of seconds; 0 waits for as long as it takes")
    return Reach(
        target=or_demo(target, said["demo"], command),
        command=tuple(command),
        called=called(),
        headers=_pairs(said["headers"], ":", "-H", "NAME:VALUE"),
        token_file=said["token_file"],
        env=_pairs(said["env"], "=", "--env", "NAME=VALUE"),
        timeout=said["timeout"] or None,
        version=said["version"],
    )


def _pairs(words: Sequence[str], sign: str, option: str, form: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, there, value = word.partition(sign)
        if not there or not name.strip():
            raise WrongUse(f"{option} {word}: write {option} {form}")
        found[name.strip()] = value.strip() if sign == ":" else value
    return found
