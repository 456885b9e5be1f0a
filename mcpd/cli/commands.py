"""The group of all commands, by click; each command's module is loaded when it is called.

Mistakes are one line that says what to do.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module

import click
from click.core import ParameterSource

from mcpd import __version__
from mcpd.cli.talk.words import WrongUse
from mcpd.protocol.printable import printable

_COMMANDS = {
    "apps": "Try the apps of a server in a browser: a verdict for CI.",
    "auth": "Say who may log in at a server of yours.",
    "bundle": "Write a server into one file that Claude Desktop installs by a double click.",
    "call": "Call a tool of any MCP server.",
    "check": "Load a server, list what it offers, name every problem.",
    "complete": "Print what a server suggests for an argument.",
    "completion": "Print the script by which a shell completes commands and tools.",
    "init": "Write a small server into a folder, to begin with.",
    "install": "Tell a host of a server: its file, edited with care.",
    "login": "Log in to a server that wants to know who asks.",
    "logout": "End a login.",
    "list": "List what any MCP server offers.",
    "ping": "Ask a server whether it is there, and how fast.",
    "preview": "Open a page that shows what a server offers, its apps too, as a strict host would.",
    "prompt": "Fill in a prompt, and print its messages.",
    "publish-info": "Write server.json, for the registry of servers.",
    "read": "Print what a resource holds.",
    "doctor": "Try a server step by step: what works, what does not, what to do.",
    "serve": "Serve a server of yours over stdio, WebSocket or HTTP.",
    "status": "Say what your servers that run do now.",
    "stop": "Stop a server of yours that runs.",
    "uninstall": "Take a server out of a host's file again.",
    "trace": "Write down what a host and a server say to each other.",
    "whoami": "Show where you are logged in.",
    "watch": "Print what a server tells, until Ctrl-C.",
}

_TRANSPORTS = ("--stdio", "--ws", "--http")

# What people type who know other servers, and how it is said here.
_FOREIGN = {
    "--host": "--http HOST:PORT",
    "--port": "--http :PORT",
    "-p": "--http :PORT",
    "--transport": "--stdio, --ws ADDR or --http ADDR",
    "-t": "--stdio, --ws ADDR or --http ADDR",
    "--sse": "--http ADDR",
}

# What other servers call their commands, and what of ours does that; with the file, if one was given.
_ELSEWHERE = {
    "run": "to serve a file on stdio: mcpd serve --stdio {file}",
    "start": "to serve a file: mcpd serve --http :8080 {file}",
    "server": "to serve a file: mcpd serve --http :8080 {file}",
    "dev": "to try a file in a page: mcpd preview {file}",
    "inspect": "for what a server offers, with all schemas: mcpd list --verbose {file}",
    "ui": "to try a file in a page: mcpd preview {file}",
    "inspector": "to try a file in the Inspector: mcpd serve --http :8080 {file} prints the line that starts it",
    "ls": "for what a server offers: mcpd list {file}",
    "tools": "for the tools of a server: mcpd list {file} tools",
    "resources": "for the resources of a server: mcpd list {file} resources",
    "prompts": "for the prompts of a server: mcpd list {file} prompts",
    "validate": "for what is wrong with a file: mcpd check {file}",
    "lint": "for what is wrong with a file: mcpd check {file}",
    "test": "for what is wrong with a file: mcpd check {file}",
    "add": "to tell a host of a file: mcpd install HOST {file}",
    "remove": "to take a server out of a host: mcpd uninstall HOST",
    "new": "for a folder to begin with: mcpd init DIR",
    "create": "for a folder to begin with: mcpd init DIR",
    "invoke": "to call a tool: mcpd call {file} TOOL name=value",
    "exec": "to call a tool: mcpd call {file} TOOL name=value",
    "get": "to read a resource: mcpd read {file} URI; for a prompt: mcpd prompt {file} NAME",
    "connect": "each command connects by itself: mcpd list {file}, or mcpd list URL",
    "client": "each command is a client: mcpd list {file}, mcpd call {file} TOOL name=value",
    "debug": "to see what is wrong with a server: mcpd doctor {file}",
    "diagnose": "to see what is wrong with a server: mcpd doctor {file}",
    "record": "to write down what host and server say: mcpd trace -- COMMAND",
    "ps": "for your servers that run: mcpd status",
    "kill": "for a server of yours that runs: mcpd stop",
    "restart": "to stop one: mcpd stop; then start it again: mcpd serve {file}",
    "subscribe": "to hear of changes: mcpd watch {file} URI",
    "logs": "for what a server logs: mcpd watch {file}",
    "proxy": "it serves files only; in Python there is mcpd.Client for other servers",
    "pack": "for one file that hosts install: mcpd bundle {file}",
    "package": "for one file that hosts install: mcpd bundle {file}",
    "publish": "for the registry of servers: mcpd publish-info {file}",
    "auth": "to log in to a server: mcpd login URL",
    "version": "write mcpd --version",
    "help": "write mcpd --help",
}

# What people write as options there, who know other clients.
_WITH_ARGUMENTS = {"call": "tool", "prompt": "prompt"}

_EPILOG = """\b
  mcpd serve --http :8080      a server to try a host with, and how to point hosts at it
  mcpd init garden             a folder that is a server, to begin with
  mcpd check server.py         what is in your own, and what is wrong with it
  mcpd call server.py TOOL     call one of its tools; mcpd list server.py names them
  mcpd COMMAND --help          options, environment variables, exit codes
"""


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f".{cmd_name.replace('-', '_')}", __package__).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in _COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        if name.endswith(".py") or ":" in name:
            raise click.UsageError(f"{name} is no command; to serve it: mcpd serve --stdio {name}", ctx)
        if name in _ELSEWHERE:
            file = next((word for word in args[1:] if not word.startswith("-")), "server.py")
            raise click.UsageError(f"no command {name!r}; {_ELSEWHERE[name].format(file=file)}", ctx)
        hint = _nearest(name, _COMMANDS) or f"there are {', '.join(sorted(_COMMANDS))}"
        raise click.UsageError(f"no command {name!r}; {hint}", ctx)


@click.group(
    cls=_Group,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    invoke_without_command=True,
)
@click.version_option(__version__, "-V", "--version", message="mcpd %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Make MCP servers, and use any: programs that give tools, texts and prompts to AI hosts such as Claude Code."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(words: Sequence[str]) -> int:
    """Do what a command line says, and give the exit code. Raises ConfigurationError."""
    try:
        code = cli.main(args=list(words), prog_name="mcpd", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except WrongUse as error:
        print(f"mcpd: {printable(error, 2000)}", file=sys.stderr)
        return 2
    except click.UsageError as error:
        name = words[0] if words and words[0] in _COMMANDS else ""
        text = _explain(error, name)
        print(text if text.startswith("Usage: ") else f"mcpd: {text}", file=sys.stderr)
        return error.exit_code
    return code if isinstance(code, int) else 0


def _explain(error: click.UsageError, command: str) -> str:
    """One line: what is wrong, and what to do. `command` is the one that was named, or ""."""
    see = f"see mcpd {command} --help" if command else "see mcpd --help"
    text = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        text = f"no option {name}"
        if name in _FOREIGN:
            see = f"write mcpd serve {_FOREIGN[name]}"
        elif not command and name in _TRANSPORTS:
            see = f"it comes after the command: mcpd serve {name}"
        else:
            parameters = error.ctx.command.params if error.ctx is not None else []
            see = _nearest(name, [word for parameter in parameters for word in parameter.opts]) or see
            if command in _WITH_ARGUMENTS and name.startswith("--"):
                see = f"an argument of the {_WITH_ARGUMENTS[command]} is written {name.lstrip('-')}=…; {see}"
    elif text.startswith("Usage: "):
        return text
    elif error.ctx is not None and isinstance(error.ctx.command, click.Group) and error.ctx.parent is not None:
        text, see = _no_command_in(error.ctx, text) or (text, see)
    elif isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        text = _wrong_value(error)
    elif isinstance(error, click.BadOptionUsage) and error.option_name in ("--ws", "--http"):
        see = f"for example {error.option_name} :8080"
    text = " ".join(text.split())
    if ";" in text:
        return text

    return f"{text}; {see}"


def _no_command_in(ctx: click.Context, text: str) -> tuple[str, str] | None:
    """What is said of a command that a group of commands does not have; None for other mistakes."""
    found = re.match("No such command '(.*?)'", text)
    if found is None or not isinstance(ctx.command, click.Group):
        return None
    names = ctx.command.list_commands(ctx)
    only = f"write {ctx.command_path} {names[0]} …" if len(names) == 1 else f"there are {', '.join(names)}"
    return f"{ctx.command_path} has no command {found[1]!r}", _nearest(found[1], names) or only


def _wrong_value(error: click.BadParameter) -> str:
    """The option or variable, the value, and what is expected."""
    parameter, ctx = error.param, error.ctx
    if parameter is None:
        return error.format_message().rstrip(".")
    name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.human_readable_name
    if ctx is not None and ctx.get_parameter_source(parameter.name) is ParameterSource.ENVIRONMENT:
        name = str(parameter.envvar)
    kind, value = parameter.type, re.match(r"('.*?'|\S+) is not ", error.message)
    if value is None:
        return f"{name}: {error.message.rstrip('.')}"
    expected = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    if isinstance(kind, click.Choice):
        expected = f"one of {', '.join(map(str, kind.choices))}"
    elif isinstance(kind, click.IntRange | click.FloatRange):
        expected += f" of {kind.min:g} or more" if kind.max is None else f" from {kind.min:g} to {kind.max:g}"
    return f"{name}: {value[1]} is not {expected}"


def _nearest(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else ""
