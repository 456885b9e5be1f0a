"""`mcpd check`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ..server import Server

__all__ = ["command"]


@click.command("check")
@click.argument("target", required=False)
def command(target: str | None) -> None:
    """Load TARGET, list what it offers, name every problem; exit 1 if there is one."""
    from .target import load

    server = load(target)
    click.echo(f"{server.name} {server.identity.version}")
    for title, names in _offers(server):
        click.echo(f"{title} ({len(names)})")
        for name, text in names:
            click.echo(f"  {name}{'  ' + text if text else ''}")
    problems = server.problems()
    for problem in problems:
        click.echo(f"problem: {problem}", err=True)
    if problems:
        sys.exit(1)


def _offers(server: Server) -> list[tuple[str, list[tuple[str, str]]]]:
    catalog = server.catalog
    return [
        ("tools", [(entry.key, _first_line(entry.tool.description)) for entry in catalog.tools]),
        ("resources", [(entry.key, entry.resource.mime_type or "") for entry in catalog.resources]),
        ("resource templates", [(entry.key, entry.template.mime_type or "") for entry in catalog.templates]),
    ]


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
