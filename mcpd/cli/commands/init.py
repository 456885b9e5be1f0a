"""`mcpd init` and `mcpd completion`, which write files to start from."""

from __future__ import annotations

import shlex

import click
from click.shell_completion import get_completion_class

from mcpd.sources.scaffold import write_folder

_INIT_HELP = """Write a small server into DIR to start from: tools, an app, a resource, a prompt and mcpd.toml.

Existing files are not changed. Exit codes: 0 written, 1 not written, 2 wrong use.
"""

_COMPLETION_HELP = """Print a script that lets a shell complete commands, options and names of tools.

\b
  bash: mcpd completion bash > ~/.local/share/bash-completion/completions/mcpd
  zsh:  mcpd completion zsh > ~/.zfunc/_mcpd       with fpath+=~/.zfunc before compinit in ~/.zshrc
  fish: mcpd completion fish > ~/.config/fish/completions/mcpd.fish

For the current shell only: eval "$(mcpd completion bash)"
"""


@click.command("init", help=_INIT_HELP)
@click.argument("folder", metavar="DIR")
def init_command(folder: str) -> None:
    for path in write_folder(folder):
        click.echo(path)
    shown = shlex.quote(folder)
    click.echo("mcpd: next, list what the server offers, try it in a page, and serve it:", err=True)
    click.echo(f"  mcpd check {shown}", err=True)
    click.echo(f"  mcpd preview {shown}", err=True)
    click.echo(f"  mcpd serve --http :8080 {shown}", err=True)


@click.command(
    "completion",
    params=[click.Argument(["shell"], type=click.Choice(("bash", "zsh", "fish")))],
    help=_COMPLETION_HELP,
)
def completion_command(shell: str) -> int:
    from mcpd.cli.group import cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "mcpd", "_MCPD_COMPLETE")
    click.echo(script.source_template % script.source_vars())
    return 0
