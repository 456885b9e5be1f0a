"""`mcpd check`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec.json import encode, format

from ..errors import NAMESAKE, ConfigurationError
from ..serve_options import Option, command_options
from .options import parameter, target

if TYPE_CHECKING:
    from ..registry.entries import ToolEntry
    from ..server import Server

__all__ = ["command"]

_HELP = """Load TARGET, list what it offers, and name every problem that a client would run into.

TARGET is file.py, file.py:object or package.module:object; without one it is the built-in starter. The list goes to
stdout, problems to stderr; a warning is about what works, but not everywhere or not as well as it could. Exit codes:
0 no problem (with --strict no warning either), 1 a problem or nothing to load, 2 wrong use.
"""


_PARAMETERS: list[click.Parameter] = [
    target(),
    parameter(
        "verbose",
        Option("--verbose", "Other", "Show the schemas of each tool, and the arguments of prompts."),
        bool,
        False,
    ),
    parameter("strict", Option("--strict", "Other", "Count warnings as problems."), bool, False),
    parameter("log_level", *command_options()["log_level"], "error"),
    parameter("no_compat", *command_options()["no_compat"], False),
    click.Argument(["arguments"], nargs=-1),
]


@click.command("check", params=_PARAMETERS, help=_HELP)
def command(
    target: str | None, verbose: bool, strict: bool, log_level: str, no_compat: bool, arguments: tuple[str, ...]
) -> int:
    from .programs import Looker, look_into
    from .target import load

    logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    heard = _Complaints()
    looker = Looker()
    server = load(target, None if no_compat else looker, arguments) or looker.found
    if server is None:
        raise ConfigurationError(f"{target}: the program ended without serving anything")

    look_into(server)
    click.echo(f"{server.name} {server.identity.version}")
    for title, offers in _offers(server):
        if offers:
            click.echo(f"{title} ({len(offers)})")
        for name, text, details in offers:
            click.echo(f"  {name}{'  ' + text if text else ''}")
            for what, schema in details if verbose else ():
                shown = format(encode(schema), indent=2).decode().replace("\n", "\n      ")
                click.echo(f"    {what}\n      {shown}")

    problems = {str(problem): problem.is_error for problem in server.problems()}
    problems = {**{text: level >= logging.ERROR for text, level in heard.texts.items()}, **problems}
    for text, is_error in sorted(problems.items(), key=lambda problem: not problem[1]):
        click.echo(f"mcpd: {'problem' if is_error else 'warning'}: {text}", err=True)
    for name in _namesakes():
        click.echo(f"mcpd: problem: the distribution {name} is installed too. {NAMESAKE}", err=True)
        problems[name] = True

    return 1 if any(problems.values()) or (strict and problems) else 0


def _namesakes() -> list[str]:
    """The other distributions that have files in our package's folder."""
    from importlib.metadata import packages_distributions

    return sorted(set(packages_distributions().get("mcpd", ())) - {"mcpd-server"})


class _Complaints(logging.Handler):
    """What is logged while the target loads, such as a file that cannot be read."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: dict[str, int] = {}
        logger = logging.getLogger("mcpd")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.texts[record.getMessage()] = record.levelno


_Details = list[tuple[str, Any]]


def _offers(server: Server) -> Iterator[tuple[str, list[tuple[str, str, _Details]]]]:
    """Each kind of offer with (name, a few words, what else there is to show)."""
    from ..registry.entries import metadata_of

    catalog = server.catalog
    yield (
        "tools",
        [(entry.key, _first_line(metadata_of(entry).description), _schemas(entry)) for entry in catalog.tools],
    )
    for title, listing in (("resources", catalog.resources), ("resource templates", catalog.templates)):
        yield title, [(entry.key, entry.listed(frozenset()).mime_type or "", []) for entry in listing]
    yield (
        "prompts",
        [
            (prompt.name, _first_line(prompt.description), [("arguments", prompt.arguments)])
            for prompt in (entry.listed(frozenset()) for entry in catalog.prompts)
        ],
    )


def _schemas(entry: ToolEntry) -> _Details:
    try:
        tool = entry.listed(frozenset())
    except Exception:  # one that cannot be made is among the problems
        return []
    found: _Details = [("input", tool.input_schema)]
    return found if tool.output_schema is None else [*found, ("output", tool.output_schema)]


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]
