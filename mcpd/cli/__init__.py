"""The command line: click commands that print and never decide. Each command is loaded when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from .. import __version__
from ..errors import ConfigurationError

__all__ = ["cli", "main"]

_COMMANDS = {
    "check": "Load a server, list what it offers, name every problem.",
    "serve": "Serve over stdio or WebSocket.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f".{cmd_name}", __name__).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="mcpd %(version)s")
def cli() -> None:
    """An MCP daemon: give tools, resources and apps to any MCP host."""


def main(argv: list[str] | None = None) -> None:
    """The `mcpd` command. Exit codes: 0 done, 1 the thing asked for failed, 2 wrong use."""
    try:
        code: Any = cli.main(args=argv, prog_name="mcpd", standalone_mode=False)
    except click.exceptions.Abort:
        code = 130
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except ConfigurationError as error:
        print(f"mcpd: {error}", file=sys.stderr)
        code = 1
    sys.exit(code if isinstance(code, int) else 0)
