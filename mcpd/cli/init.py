"""`mcpd init`."""

from __future__ import annotations

import shlex

import click

from mcpd.sources.scaffold import write_folder

_HELP = """Write a small server into DIR, to begin with: tools, a page for one, a resource, a prompt, mcpd.toml.

Nothing that is there already is changed. Exit codes: 0 written, 1 not written, 2 wrong use.
"""


@click.command("init", help=_HELP)
@click.argument("folder", metavar="DIR")
def command(folder: str) -> None:
    written = write_folder(folder)
    for path in written:
        click.echo(path)
    shown = shlex.quote(folder)
    click.echo("mcpd: next, to see what it offers, to try it in a page, and to serve it:", err=True)
    click.echo(f"  mcpd check {shown}", err=True)
    click.echo(f"  mcpd preview {shown}", err=True)
    click.echo(f"  mcpd serve --http :8080 {shown}", err=True)
