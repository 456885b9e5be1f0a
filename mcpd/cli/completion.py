"""`mcpd completion`: what a shell needs to complete the words of mcpd."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_HELP = """Print the script by which a shell completes commands, options, and names of tools.

\b
  bash: mcpd completion bash > ~/.local/share/bash-completion/completions/mcpd
  zsh:  mcpd completion zsh > ~/.zfunc/_mcpd       with fpath+=~/.zfunc before compinit in ~/.zshrc
  fish: mcpd completion fish > ~/.config/fish/completions/mcpd.fish

For this shell only: eval "$(mcpd completion bash)"
"""


@click.command("completion", params=[click.Argument(["shell"], type=click.Choice(("bash", "zsh", "fish")))], help=_HELP)
def command(shell: str) -> int:
    from mcpd.cli.commands import cli

    found = get_completion_class(shell)
    assert found is not None
    click.echo(
        found(cli, {}, "mcpd", "_MCPD_COMPLETE").source_template
        % found(cli, {}, "mcpd", "_MCPD_COMPLETE").source_vars()
    )
    return 0
