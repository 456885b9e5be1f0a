"""All commands of `mcpd`, by audience. A wrong command line gets one line that says what to write.

The module of a command is loaded when the command runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib import import_module

import click
from click.core import ParameterSource

from mcpd import __version__
from mcpd.cli.talk.words import WrongUse, did_you_mean, note
from mcpd.protocol.printable import printable

_SECTIONS = {
    "Write a server": {
        "init": ("check", "Write a small server folder to start from."),
        "check": ("check", "Load a server, list what it offers and report every problem."),
        "bundle": ("bundle", "Pack a server into one file that Claude Desktop installs on a double click."),
        "publish-info": ("bundle", "Write server.json for the MCP registry."),
    },
    "Try a server": {
        "preview": ("apps", "Open a page in the browser that shows a server and its apps."),
        "list": ("read", "List the tools, resources and prompts of a server."),
        "call": ("call", "Call a tool."),
        "read": ("read", "Print a resource."),
        "prompt": ("read", "Fill in a prompt and print its messages."),
        "complete": ("read", "Print the values that a server suggests for an argument."),
        "tasks": ("tasks", "List, show and cancel calls that continue at a server."),
        "events": ("events", "Print the events of a server, emit events, and look after webhooks."),
        "ping": ("call", "Measure how fast a server answers."),
        "watch": ("call", "Print the notifications of a server until Ctrl-C."),
        "doctor": ("doctor", "Test a server step by step, as a host would, and say what to fix."),
        "apps": ("apps", "Test the apps of a server in a browser; for CI."),
    },
    "Connect a host": {
        "install": ("install", "Add a server to a host's configuration."),
        "uninstall": ("install", "Remove a server from a host's configuration."),
        "trace": ("trace", "Record the messages between a host and a server."),
        "completion": ("check", "Print a script that completes mcpd commands in your shell."),
    },
    "Run a server": {
        "serve": ("serve", "Serve over stdio, HTTP or WebSocket."),
        "connect": ("mounts", "Serve one server that is elsewhere on stdio."),
        "mounts": ("mounts", "Show the servers that running servers have mounted."),
        "status": ("status", "Show the status of running servers."),
        "stop": ("status", "Stop a running server."),
    },
    "Log in": {
        "login": ("login", "Log in to a server."),
        "logout": ("login", "Log out of a server."),
        "whoami": ("login", "Show where you are logged in."),
        "auth": ("login", "Manage the users who may log in at your own server."),
    },
}
# By the name of a command: its module in `commands/`, and its line in the help.
_COMMANDS = {name: row for rows in _SECTIONS.values() for name, row in rows.items()}

_TRANSPORTS = ("--stdio", "--ws", "--http")

# Options of other servers, and ours for the same purpose.
_FOREIGN = {
    "--host": "--http HOST:PORT",
    "--port": "--http :PORT",
    "-p": "--http :PORT",
    "--transport": "--stdio, --ws ADDR or --http ADDR",
    "-t": "--stdio, --ws ADDR or --http ADDR",
    "--sse": "--http ADDR",
}

# Commands of other programs, and ours for the same purpose; {file} is the first word that is not an option.
_OTHER_NAMES = {
    "run": "to serve a file on stdio: mcpd serve --stdio {file}",
    "start": "to serve a file: mcpd serve --http :8080 {file}",
    "dev": "to try a file in a page: mcpd preview {file}",
    "inspect": "to list everything with all schemas: mcpd list --verbose {file}",
    "ls": "to list everything that a server offers: mcpd list {file}",
    "tools": "to list the tools of a server: mcpd list {file} tools",
    "resources": "to list the resources of a server: mcpd list {file} resources",
    "prompts": "to list the prompts of a server: mcpd list {file} prompts",
    "validate": "to find the problems of a file: mcpd check {file}",
    "test": "to find the problems of a file: mcpd check {file}",
    "add": "to add a file to a host: mcpd install HOST {file}",
    "remove": "to remove a server from a host: mcpd uninstall HOST",
    "new": "to write a folder to start from: mcpd init DIR",
    "exec": "to call a tool: mcpd call {file} TOOL name=value",
    "get": "to read a resource: mcpd read {file} URI; for a prompt: mcpd prompt {file} NAME",
    "debug": "to find out why a server does not work: mcpd doctor {file}",
    "record": "to record the messages between host and server: mcpd trace -- COMMAND",
    "ps": "to list your running servers: mcpd status",
    "kill": "to stop a running server: mcpd stop",
    "subscribe": "to print changes: mcpd watch {file} URI",
    "logs": "to print the log of a server: mcpd watch {file}",
    "pack": "to make one file that hosts install: mcpd bundle {file}",
    "publish": "to describe a server for the registry: mcpd publish-info {file}",
    "version": "write mcpd --version",
    "help": "write mcpd --help",
}

# Commands whose arguments are name=value; users of other clients write them as options.
_WITH_ARGUMENTS = {"call": "tool", "prompt": "prompt"}

_EPILOG = """\b
Examples:
  mcpd serve --http :8080      serve the demo server, and print how to connect a host
  mcpd init garden             write a server folder to start from
  mcpd check server.py         list what your server offers, and its problems
  mcpd call server.py TOOL     call one of its tools
  mcpd COMMAND --help          options, environment variables, exit codes
"""


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f".commands.{_COMMANDS[cmd_name][0]}", __package__)
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _COMMANDS))
        for title, rows in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{width}}", help) for name, (_, help) in rows.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in _COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        if name.endswith(".py") or ":" in name:
            raise click.UsageError(f"{name} is not a command; to serve it: mcpd serve --stdio {name}", ctx)
        if name in _OTHER_NAMES:
            file = next((word for word in args[1:] if not word.startswith("-")), "server.py")
            raise click.UsageError(f"no command {name!r}; {_OTHER_NAMES[name].format(file=file)}", ctx)
        hint = did_you_mean(name, _COMMANDS) or f"the commands are {', '.join(sorted(_COMMANDS))}"
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
    """Write MCP servers, and use any MCP server: programs that offer tools, data and prompts to AI hosts such as
    Claude Code.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(words: Sequence[str]) -> int:
    """Run a command line and return the exit code. Raises ConfigurationError."""
    try:
        code = cli.main(args=list(words), prog_name="mcpd", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except WrongUse as error:
        note(printable(error, 2000))
        return 2
    except click.UsageError as error:
        name = words[0] if words and words[0] in _COMMANDS else ""
        text = _explain(error, name)
        print(text if text.startswith("Usage: ") else f"mcpd: {text}", file=sys.stderr)
        return error.exit_code

    return code if isinstance(code, int) else 0


def _explain(error: click.UsageError, command: str) -> str:
    see = f"see mcpd {command} --help" if command else "see mcpd --help"
    text = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        text = f"no option {name}"
        if name in _FOREIGN:
            see = f"write mcpd serve {_FOREIGN[name]}"
        elif not command and name in _TRANSPORTS:
            see = f"write it after the command: mcpd serve {name}"
        else:
            parameters = error.ctx.command.params if error.ctx is not None else []
            see = did_you_mean(name, [word for parameter in parameters for word in parameter.opts]) or see
            if command in _WITH_ARGUMENTS and name.startswith("--"):
                see = f"write an argument of the {_WITH_ARGUMENTS[command]} as {name.lstrip('-')}=…; {see}"
    elif text.startswith("Usage: "):
        return text
    elif error.ctx is not None and isinstance(error.ctx.command, click.Group) and error.ctx.parent is not None:
        text, see = _no_command_in(error.ctx, text) or (text, see)
    elif isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter):
        text = _wrong_value(error)
    elif isinstance(error, click.BadOptionUsage) and error.option_name in ("--ws", "--http"):
        see = f"for example {error.option_name} :8080"

    text = " ".join(text.split())
    return text if ";" in text else f"{text}; {see}"


def _no_command_in(ctx: click.Context, text: str) -> tuple[str, str] | None:
    found = re.match("No such command '(.*?)'", text)
    if found is None or not isinstance(ctx.command, click.Group):
        return None
    names = ctx.command.list_commands(ctx)
    only = f"write {ctx.command_path} {names[0]} …" if len(names) == 1 else f"the commands are {', '.join(names)}"
    return f"{ctx.command_path} has no command {found[1]!r}", did_you_mean(found[1], names) or only


def _wrong_value(error: click.BadParameter) -> str:
    parameter, ctx = error.param, error.ctx
    if parameter is None:
        return error.format_message().rstrip(".")
    name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.human_readable_name
    if ctx is not None and ctx.get_parameter_source(parameter.name) is ParameterSource.ENVIRONMENT:
        name = str(parameter.envvar)
    kind, value = parameter.type, re.match(r"('.*?'|\S+) is not (?:a valid|in the range|one of)", error.message)
    if value is None:
        return f"{name}: {error.message.rstrip('.')}"
    expected = "a whole number" if isinstance(kind, click.types.IntParamType) else "a number"
    if isinstance(kind, click.Choice):
        expected = f"one of {', '.join(map(str, kind.choices))}"
    elif isinstance(kind, click.IntRange | click.FloatRange):
        expected += f" of {kind.min:g} or more" if kind.max is None else f" from {kind.min:g} to {kind.max:g}"
    return f"{name}: {value[1]} is not {expected}"
