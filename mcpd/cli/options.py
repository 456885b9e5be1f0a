"""The options of the commands for click.

Those of `mcpd serve` come from the table in `server.settings`, and can also be set in the environment. Client commands
share TARGET, a command after `--`, and the options of a connection.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args, get_origin

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from mcpd.cli.talk.connecting import EXIT_CODES, ServerOptions, open_client
from mcpd.cli.talk.words import WrongUse, pairs
from mcpd.errors import ConfigurationError, McpdError
from mcpd.protocol.defaults import DEMO
from mcpd.protocol.versions.table import SUPPORTED
from mcpd.server.extensions.serving import ServeOption, serve_options
from mcpd.server.settings import Option, command_options, parse_size


def target_argument() -> click.Argument:
    """The argument TARGET; without it a command uses the current folder or the demo server."""
    return click.Argument(["target"], required=False)


def parameter(name: str, option: Option, kind: Any, default: Any) -> click.Option:
    """The click option for `option`. Its value has the type `kind`, and the command receives it as `name`."""
    kinds = (kind, *get_args(kind))
    how: dict[str, Any] = {"metavar": option.metavar or None}
    if kind is bool:
        how = {"is_flag": True}
    elif option.choices:
        how["type"] = click.Choice(option.choices, case_sensitive=False)
    elif option.is_size:
        how["type"] = Size()
    elif float in kinds:
        how["type"] = Seconds()
    elif int in kinds:
        how["type"] = click.IntRange(min=1)
    elif get_origin(kind) is tuple:
        how["multiple"] = True

    help = option.help
    if default:
        how["default"] = default
        help = f"{help} Default: {_shown(default, option)}."
    return _Option([option.flag, name], help=help, envvar=option.environment, show_envvar=True, **how)


def _shown(default: Any, option: Option) -> str:
    if option.is_size:
        for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if default >= 1 << power:
                return f"{default / (1 << power):g} {unit}"
    if isinstance(default, float):
        return f"{default:g} s" if default < 60 else f"{default / 60:g} min"
    return str(default)


class _Option(click.Option):
    """An option whose environment variable may hold several values, separated by commas or spaces."""

    def value_from_envvar(self, ctx: click.Context) -> Any:
        text = self.resolve_envvar_value(ctx)
        return text.replace(",", " ").split() if self.multiple and text is not None else super().value_from_envvar(ctx)


class Seconds(click.FloatRange):
    """A number of seconds, 0 or more."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        seconds = super().convert(value, param, ctx)
        if seconds != seconds:
            self.fail(f"{value!r} is not a number of seconds", param, ctx)
        return seconds


class Size(click.ParamType):  # type: ignore[type-arg,unused-ignore] # generic in newer versions only
    """A number of bytes; K, M or G after it multiplies by 1,024 once, twice or three times."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return parse_size(str(value))
        except ValueError:
            self.fail(f"{value!r} is not a size; write bytes, or for example 512M or 2G", param, ctx)


def extension_parameters(found: Iterable[ServeOption]) -> list[click.Parameter]:
    """The click options of extensions. They have no defaults here, so that an extension only sees given values."""
    return [parameter(each.name, each.option, each.kind, None) for each in found]


def split_extensions(
    ctx: click.Context, found: Iterable[ServeOption]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The parameters of a command and, separately, the options of extensions that were given, by extension id."""
    params = dict(ctx.params)
    given: dict[str, dict[str, Any]] = {}
    for each in found:
        value = params.pop(each.name)
        if ctx.get_parameter_source(each.name) is not ParameterSource.DEFAULT:
            given.setdefault(each.id, {})[each.name] = value
    return params, given


def read_own_options(found: Sequence[ServeOption], words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read the options of the target's own extensions from `words` and the environment, by extension id.

    `mcpd serve --help` cannot show these options, because it does not load the target. Raises click.UsageError for
    unknown options, ConfigurationError if two extensions have the same option.
    """
    ours = [option.flag for option, _ in command_options().values()]
    ours += [each.option.flag for each in serve_options()]
    taken = {"--help", "--help-all", *ours}
    for each in found:
        if each.option.flag in taken:
            raise ConfigurationError(
                f"extension {each.id}: the option {each.option.flag} exists already; give it another name"
            )
        taken.add(each.option.flag)

    command = click.Command("serve", params=extension_parameters(found), add_help_option=False)
    try:
        with command.make_context("serve", list(words)) as ctx:
            return split_extensions(ctx, found)[1]
    except click.NoSuchOption as error:
        # Suggest options of mcpd too: a mistyped one was taken for an option of the target.
        command.params += [click.Option([flag]) for flag in ours]
        raise click.NoSuchOption(error.option_name, ctx=click.Context(command)) from None


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
        repeated_option(
            "--env", metavar="NAME=VALUE", help="Set an environment variable of the program that is started."
        ),
        repeated_option(
            "-H", "--header", "headers", metavar="NAME:VALUE", help="Send this header with each request to a URL."
        ),
        value_option(
            "--token-file", metavar="FILE", help="Send the bearer token in this file with each request to a URL."
        ),
        demo_option(),
    ]


def demo_option() -> click.Option:
    """`--demo`, which `or_demo` reads."""
    return flag_option("--demo", help="Use the demo server of mcpd instead of a TARGET.")


def or_demo(target: str | None, demo: bool, command: Sequence[str] = ()) -> str | None:
    """The target, or the demo server if `--demo` was given. Raises WrongUse for both."""
    if demo and (target is not None or command):
        raise WrongUse(f"--demo is the demo server of mcpd, so leave out {target or 'the command after --'}")
    return DEMO if demo else target


def value_option(*names: str, help: str, metavar: str | None = None, **how: Any) -> click.Option:
    """An option with a value; `how` are further arguments of click."""
    return click.Option(list(names), help=help, metavar=metavar, **how)


def repeated_option(*names: str, help: str, metavar: str) -> click.Option:
    """An option that can be repeated."""
    return click.Option(list(names), help=f"{help} Can be repeated.", metavar=metavar, multiple=True)


def flag_option(*names: str, help: str) -> click.Option:
    """An option without a value."""
    return click.Option(list(names), help=help, is_flag=True)


def json_option(help: str) -> click.Option:
    """`--json`; `help` says what it prints."""
    return flag_option("--json", "as_json", help=help)


class ClientCommand(click.Command):
    """A command that accepts its options anywhere before `--`, and a server's command after it."""

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
        value_option(
            "--timeout",
            type=float,
            default=60.0,
            metavar="SECONDS",
            help="Give up after this many seconds without a message from the server; 0 waits forever. Default: 1 min.",
        ),
        value_option(
            "--protocol",
            "version",
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


Listing = Literal["tools", "prompts", "resources"]
_Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_names(listing: Listing) -> _Completer:
    """Completes TARGET with files, and the next word with names from the server."""
    # Only files and the demo server are asked: pressing Tab must not start other programs or use the network.
    return _complete_with(lambda typed: _names(listing, typed) if len(typed) < 2 else [])


def complete_kinds(kinds: tuple[str, ...]) -> _Completer:
    """Completes with one of these words, and the first word with files too."""
    return _complete_with(lambda typed: kinds)


def _complete_with(names: Callable[[list[str]], Iterable[str]]) -> _Completer:
    def complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        typed = list(ctx.params.get("words") or ())
        found = [CompletionItem(name) for name in names(typed) if name.startswith(incomplete)]
        return found if typed else [*found, CompletionItem(incomplete, type="file")]

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
        if listing == "resources":
            return [resource.uri for resource in await client.list_resources()]
        entries = await (client.list_tools() if listing == "tools" else client.list_prompts())
        return [entry.name for entry in entries]
