"""`mcpd bundle`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from typing import Any

import click
from msgspec import structs

from mcpd.bundle.files import write_archive
from mcpd.bundle.pack import Bundle, Gathered, Said, gather, make_bundle, unpack
from mcpd.cli.client_options import json_option
from mcpd.client.targets.named import CommandTarget, FileTarget
from mcpd.errors import ConfigurationError
from mcpd.install.launch import Verdict, verify_target
from mcpd.protocol.printable import printable

_HELP = """Write a server into one file, which Claude Desktop and others install by a double click.

\b
  mcpd bundle server.py
  mcpd bundle garden -o garden.mcpb     a folder
  mcpd bundle --env API_KEY server.py   users are asked for API_KEY when they install it

TARGET is a folder or a Python file. A file takes the data files of its folder and the modules that it imports. Without
TARGET it is the folder of the next mcpd.toml, here or above. Hidden files, virtual environments, what may be a secret
and what .mcpbignore names are left out; --include and --exclude change that. Packages are not in the bundle: the host
installs them by uv. They are named by pyproject.toml, requirements.txt or the head of the script, otherwise by what the
files import and is installed here. The server is started once, from the files of the bundle.

Exit codes: 0 written, 1 not written, 2 wrong use.
"""

_MOST_SHOWN = 40


@click.command(
    "bundle",
    help=_HELP,
    params=[
        click.Argument(["target"], required=False),
        click.Option(["-o", "--output"], metavar="FILE", help="Where to write; by default NAME-VERSION.mcpb, here."),
        click.Option(
            ["--env"], multiple=True, metavar="NAME[=VALUE]",
            help="A variable that users are asked for; VALUE stands until they change it. Can be repeated.",
        ),
        click.Option(
            ["--include"], multiple=True, metavar="PATTERN",
            help="Take these files too: names or paths, as data/*.csv or .config. Can be repeated.",
        ),
        click.Option(["--exclude"], multiple=True, metavar="PATTERN", help="Leave these files out. Can be repeated."),
        click.Option(["--name"], default="", help="What it is called, in letters, digits, '-' and '_'."),
        click.Option(["--version", "version"], default="", metavar="VERSION", help="Three numbers, as 1.2.0."),
        click.Option(["--description"], default="", metavar="TEXT", help="What it does, in a sentence."),
        click.Option(["--author"], default="", metavar="NAME", help="Who made it."),
        click.Option(["--icon"], default="", metavar="FILE", help="A PNG; by default icon.png, or the server's own."),
        click.Option(
            ["--requirement", "requirements"], multiple=True, metavar="PACKAGE",
            help="A package that it needs, as package>=1.2. Can be repeated.",
        ),
        json_option("Print what was written as one JSON object."),
    ],
)  # fmt: skip
def command(
    target: str | None,
    output: str | None,
    as_json: bool,
    requirements: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    **said: Any,
) -> int:
    named = Said(requirements=requirements, **said)
    gathered = gather(files_of(target), include, exclude)
    verdict = tried(gathered, named)
    if not as_json:
        for line in verdict.lines:
            click.echo(f"mcpd: {line}", err=True)
    if not verdict.works:
        if as_json:
            _print_json({"written": None, "error": verdict.error, "stderr": verdict.stderr_tail})
        else:
            _blame_left_out(gathered)

        return 1

    bundle = make_bundle(gathered, verdict.offers, named)
    path = output or f"{bundle.manifest.name}-{bundle.manifest.version}.mcpb"
    size = write_archive(path, bundle.files)
    if as_json:
        _print_json(_facts(path, size, gathered, bundle))
    else:
        _tell(path, size, gathered, bundle)

    return 0


def files_of(target: str | None) -> FileTarget | object:
    """What was named; without a name the folder that is meant here. Raises ConfigurationError."""
    from mcpd.client.targets.grammar import parse
    from mcpd.sources.lookup import folder_here

    if target is not None:
        return parse(target)
    place = folder_here(has_demo=False)
    if place is None or not place.is_trusted:
        raise ConfigurationError(
            "there is no server here; name a Python file or a folder with one: mcpd bundle server.py"
        )

    return FileTarget(place.root)


def tried(gathered: Gathered, said: Said) -> Verdict:
    """Start it from the files that are to be in the bundle, in a folder where nothing else is."""
    env = {}
    for word in said.env:
        name, has_value, value = word.partition("=")
        if has_value or name in os.environ:
            env[name] = value if has_value else os.environ[name]
    with tempfile.TemporaryDirectory(prefix="mcpd-bundle-") as folder:
        program = unpack(gathered, folder)
        words = (sys.executable, program)
        verdict = asyncio.run(verify_target(CommandTarget(words, env), with_texts=True))
        return _where_it_is(verdict, os.path.join(folder, *gathered.inside.split("/")), gathered.root)


def _where_it_is(verdict: Verdict, unpacked: str, root: str) -> Verdict:
    """What is said of files that were unpacked for the try is said of those that their author has."""
    # The server runs at the top of the system, and may write paths from there.
    places = {unpacked, os.path.realpath(unpacked), os.path.relpath(unpacked, os.path.abspath(os.sep))}

    def mended(text: str) -> str:
        for place in sorted(places, key=len, reverse=True):
            text = text.replace(place, root)

        return text

    return structs.replace(
        verdict,
        error=mended(verdict.error),
        advice=mended(verdict.advice),
        stderr_tail=tuple(map(mended, verdict.stderr_tail)),
        warnings=tuple(map(mended, verdict.warnings)),
    )


def _blame_left_out(gathered: Gathered) -> None:
    if gathered.left_out:
        click.echo(f"mcpd: these are not in the bundle: {_some(list(gathered.left_out))}", err=True)
    click.echo("mcpd: nothing was written; mcpd doctor TARGET says more of the server where it is", err=True)


def _tell(path: str, size: int, gathered: Gathered, bundle: Bundle) -> None:
    click.echo("in it:")
    shown = sorted(bundle.files)
    for name in shown[:_MOST_SHOWN]:
        click.echo(f"  {printable(name, 500)}  {_bytes_of(bundle.files[name]):,}")
    if len(shown) > _MOST_SHOWN:
        click.echo(f"  and {len(shown) - _MOST_SHOWN} more")
    if gathered.left_out:
        click.echo("left out:")
        for name, why in sorted(gathered.left_out.items())[:_MOST_SHOWN]:
            click.echo(f"  {printable(name, 500)}  {why}")
        if len(gathered.left_out) > _MOST_SHOWN:
            click.echo(f"  and {len(gathered.left_out) - _MOST_SHOWN} more")
    click.echo(f"needs: {printable(', '.join(bundle.requirements), 2000)}")
    if bundle.manifest.user_config:
        click.echo(f"asks for: {', '.join(bundle.manifest.user_config)}")
    click.echo(f"{path}: {size:,} bytes, {len(bundle.files)} files")
    for warning in bundle.warnings:
        click.echo(f"mcpd: warning: {printable(warning, 1000)}", err=True)
    click.echo("mcpd: next: open it with Claude Desktop (a double click, or Settings > Extensions)", err=True)


def _facts(path: str, size: int, gathered: Gathered, bundle: Bundle) -> dict[str, Any]:
    return {
        "written": path,
        "bytes": size,
        "files": {name: _bytes_of(source) for name, source in sorted(bundle.files.items())},
        "leftOut": gathered.left_out,
        "requirements": bundle.requirements,
        "warnings": bundle.warnings,
        "manifest": bundle.manifest,
    }


def _print_json(facts: dict[str, Any]) -> None:
    from msgspec.json import encode, format

    from mcpd.cli.talk.terminal import as_json_text

    click.echo(as_json_text(format(encode(facts), indent=2).decode()))


def _bytes_of(source: bytes | str) -> int:
    return len(source) if isinstance(source, bytes) else os.path.getsize(source)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return printable(", ".join(names[:5]), 500) + more
