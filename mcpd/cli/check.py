"""`mcpd check`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from .launch import LOG_HELP, LOG_LEVELS
from .options import choice

if TYPE_CHECKING:
    from ..server import Server

__all__ = ["command"]

_HELP = """Load TARGET, list what it offers, and name every problem that a client would run into.

TARGET is file.py, file.py:object or package.module:object; without one it is the built-in starter. The list goes to
stdout, problems to stderr; a warning is about what works, but not everywhere. Exit codes: 0 no problem, 1 a problem
or nothing to load, 2 wrong use.
"""


@click.command("check", help=_HELP)
@click.argument("target", required=False)
@choice("--log-level", "LEVEL", LOG_LEVELS, LOG_HELP, default="error")
def command(target: str | None, log_level: str) -> int:
    from .target import load

    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    heard = _Complaints()
    server = load(target)
    click.echo(f"{server.name} {server.identity.version}")
    for title, offers in _offers(server):
        if offers:
            click.echo(f"{title} ({len(offers)})")
        for name, text in offers:
            click.echo(f"  {name}{'  ' + text if text else ''}")
    problems = {str(problem): problem.is_error for problem in server.problems()}
    problems = {**{text: level >= logging.ERROR for text, level in heard.texts.items()}, **problems}
    for text, is_error in sorted(problems.items(), key=lambda problem: not problem[1]):
        click.echo(f"mcpd: {'problem' if is_error else 'warning'}: {text}", err=True)
    return 1 if any(problems.values()) else 0


class _Complaints(logging.Handler):
    """What is logged while the target loads, such as an app that cannot be read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: dict[str, int] = {}
        logger = logging.getLogger("mcpd")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.texts[record.getMessage()] = record.levelno


def _offers(server: Server) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    catalog = server.catalog
    yield "tools", [(entry.key, _first_line(entry.tool.description)) for entry in catalog.tools]
    yield "resources", [(entry.key, entry.resource.mime_type or "") for entry in catalog.resources]
    yield "resource templates", [(entry.key, entry.template.mime_type or "") for entry in catalog.templates]
    yield "prompts", [(entry.key, _first_line(entry.prompt.description)) for entry in catalog.prompts]


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
