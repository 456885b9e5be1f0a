"""`mcpd bundle` packs a server into one file; `mcpd publish-info` describes it for the MCP registry."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from mcpd.cli.bundle.manifest import split_variables
from mcpd.cli.bundle.pack import Bundle, BundleOptions, BundleSources, gather, make_bundle, unpack
from mcpd.cli.bundle.project import write_archive
from mcpd.cli.bundle.server_json import (
    SCHEMA,
    ServerJson,
    bundle_package,
    checked,
    pypi_package,
    remote,
    repository,
    shortened,
    variables,
)
from mcpd.cli.install.files import explained
from mcpd.cli.install.launch import Verdict, first_of, verify_target
from mcpd.cli.options import json_option, repeated_option, target_argument, value_option
from mcpd.cli.talk.terminal import json_text
from mcpd.cli.talk.words import note
from mcpd.client.targets.named import CommandTarget, FileTarget
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable

_BUNDLE_HELP = """Pack a server into one file, which Claude Desktop and other hosts install on a double click.

\b
  mcpd bundle server.py
  mcpd bundle garden -o garden.mcpb     a folder
  mcpd bundle --env API_KEY server.py   hosts ask their users for API_KEY

TARGET is a folder or a Python file; by default the nearest folder, from here upwards, with an mcpd.toml. A file is
packed with the data files of its folder and the modules that it imports. Hidden files, virtual environments, files that
may contain secrets and the patterns in .mcpbignore are left out; --include and --exclude change this.

A bundle contains no packages: the host installs them with uv. Their names come from pyproject.toml, requirements.txt or
the header of the script; otherwise from the imports. mcpd starts the packed server once to test it.

Exit codes: 0 written, 1 not written, 2 wrong use.
"""

_PUBLISH_HELP = """Write server.json, which describes a server for the MCP registry, and check it against its schema.

\b
  mcpd publish-info server.py --name io.github.you/garden --pypi garden-mcp
  mcpd publish-info server.py --name io.github.you/garden --bundle garden-1.2.0.mcpb --bundle-url URL
  mcpd publish-info server.py --name com.example/garden --remote https://example.com/mcp

The defaults come from pyproject.toml and from the server, which is started once. Without --pypi, --bundle-url and
--remote, server.json names the package of pyproject.toml. To publish the file, use mcp-publisher.

Exit codes: 0 written, 1 not written, 2 wrong use.
"""

_MOST_SHOWN = 40
_READMES = ("README.md", "README.rst", "README.txt", "README")


@click.command(
    "bundle",
    help=_BUNDLE_HELP,
    params=[
        target_argument(),
        value_option("-o", "--output", metavar="FILE", help="Write to FILE. Default: NAME-VERSION.mcpb."),
        repeated_option("--env", metavar="NAME[=VALUE]",
            help="Let hosts ask their users for this variable; VALUE is its default."),
        repeated_option("--include", metavar="PATTERN",
            help="Pack these files too, for example data/*.csv or .config."),
        repeated_option("--exclude", metavar="PATTERN", help="Leave these files out."),
        value_option("--name", default="", metavar="NAME", help="Set the name: letters, digits, '-' and '_'."),
        value_option("--version", "version", default="", metavar="VERSION", help="Set the version, such as 1.2.0."),
        value_option("--description", default="", metavar="TEXT", help="Describe the server in a sentence."),
        value_option("--author", default="", metavar="NAME", help="Name the author."),
        value_option("--icon", default="", metavar="FILE",
            help="Use this PNG. Default: icon.png, or the server's own icon."),
        repeated_option("--requirement", "requirements", metavar="PACKAGE",
            help="Require this package, for example package>=1.2."),
        json_option("Print the result as one JSON object."),
    ],
)  # fmt: skip
def bundle_command(
    target: str | None,
    output: str | None,
    as_json: bool,
    requirements: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    **metadata: Any,
) -> int:
    given = BundleOptions(requirements=requirements, **metadata)
    gathered = gather(_files_of(target), include, exclude)
    verdict = _try(gathered, given.env)
    if not as_json:
        _print_verdict(verdict)
    if not verdict.works:
        if as_json:
            click.echo(json_text({"written": None, "error": verdict.error, "stderr": verdict.stderr_tail}))
            return 1
        if gathered.left_out:
            note(f"these files are not in the bundle: {first_of(list(gathered.left_out), 5)}")
        note("no bundle was written; mcpd doctor TARGET tests the server where it is")
        return 1

    bundle = make_bundle(gathered, verdict.offers, given)
    path = output or f"{bundle.manifest.name}-{bundle.manifest.version}.mcpb"
    size = write_archive(path, bundle.files)
    if as_json:
        click.echo(json_text(_members(path, size, gathered, bundle)))
    else:
        _print_bundle(path, size, gathered, bundle)

    return 0


def _files_of(target: str | None) -> FileTarget | object:
    from mcpd.client.targets.grammar import parse
    from mcpd.sources.lookup import folder_here

    if target is not None:
        return parse(target)
    place = folder_here(has_demo=False)
    if place is None or not place.is_trusted:
        raise ConfigurationError("there is no server here; name a Python file or a folder: mcpd bundle server.py")

    return FileTarget(place.root)


def _try(gathered: BundleSources, words: tuple[str, ...]) -> Verdict:
    # The folder is otherwise empty, so that a file missing from the bundle is missing here too.
    env = {name: os.environ.get(name) if value is None else value for name, value in split_variables(words).items()}
    with tempfile.TemporaryDirectory(prefix="mcpd-bundle-") as folder:
        program = unpack(gathered, folder)
        target = CommandTarget(
            (sys.executable, program), {name: text for name, text in env.items() if text is not None}
        )
        verdict = asyncio.run(verify_target(target, with_texts=True))
        unpacked = os.path.join(folder, *gathered.inside.split("/"))

    # Errors name the author's paths instead of paths in the temporary folder. The server runs in the root folder of the
    # system, and may print paths relative to that.
    places = {unpacked, os.path.realpath(unpacked), os.path.relpath(unpacked, os.path.abspath(os.sep))}

    def replaced(text: str) -> str:
        for place in sorted(places, key=len, reverse=True):
            text = text.replace(place, gathered.root)

        return text

    return replace(
        verdict,
        error=replaced(verdict.error),
        advice=replaced(verdict.advice),
        stderr_tail=tuple(map(replaced, verdict.stderr_tail)),
        warnings=tuple(map(replaced, verdict.warnings)),
    )


def _print_verdict(verdict: Verdict) -> None:
    for line in verdict.lines:
        note(line)


def _print_bundle(path: str, size: int, gathered: BundleSources, bundle: Bundle) -> None:
    _print_files("files", {name: f"{_size_of(source):,}" for name, source in bundle.files.items()})
    _print_files("left out", gathered.left_out)
    click.echo(f"requirements: {printable(', '.join(bundle.requirements), 2000)}")
    if bundle.manifest.user_config:
        click.echo(f"asks users for: {', '.join(bundle.manifest.user_config)}")
    click.echo(f"{path}: {size:,} bytes, {len(bundle.files)} files")
    for warning in bundle.warnings:
        note(f"warning: {printable(warning, 1000)}")
    note("next: open it with Claude Desktop (a double click, or Settings > Extensions)")


def _print_files(title: str, about: dict[str, str]) -> None:
    if about:
        click.echo(f"{title}:")
    for name, text in sorted(about.items())[:_MOST_SHOWN]:
        click.echo(f"  {printable(name, 500)}  {text}")
    if len(about) > _MOST_SHOWN:
        click.echo(f"  and {len(about) - _MOST_SHOWN} more")


def _members(path: str, size: int, gathered: BundleSources, bundle: Bundle) -> dict[str, Any]:
    return {
        "written": path,
        "bytes": size,
        "files": {name: _size_of(source) for name, source in sorted(bundle.files.items())},
        "leftOut": gathered.left_out,
        "requirements": bundle.requirements,
        "warnings": bundle.warnings,
        "manifest": bundle.manifest,
    }


def _size_of(source: bytes | str) -> int:
    return len(source) if isinstance(source, bytes) else os.path.getsize(source)


@click.command(
    "publish-info",
    help=_PUBLISH_HELP,
    params=[
        target_argument(),
        value_option("--name", required=True, metavar="NAMESPACE/NAME", help="For example io.github.YOU/garden."),
        value_option("-o", "--output", default="server.json", metavar="FILE",
            help="Write to FILE; - is stdout. Default: server.json."),
        value_option("--pypi", metavar="PACKAGE", help="Name the package on PyPI: NAME or NAME==VERSION."),
        value_option("--bundle", metavar="FILE", help="Name the bundle that --bundle-url serves."),
        value_option("--bundle-url", metavar="URL", help="Name the URL of the released bundle."),
        repeated_option("--remote", "remotes", metavar="URL", help="Name the URL of a running server."),
        repeated_option("--env", metavar="NAME[=VALUE]", help="Declare an environment variable of the server."),
        value_option("--version", "version", default="", metavar="VERSION", help="Set the exact version."),
        value_option("--description", default="", metavar="TEXT",
            help="Describe the server in at most 100 characters."),
    ],
)  # fmt: skip
def publish_info_command(
    target: str | None,
    name: str,
    output: str,
    pypi: str | None,
    bundle: str | None,
    bundle_url: str | None,
    remotes: tuple[str, ...],
    env: tuple[str, ...],
    version: str,
    description: str,
) -> int:
    if (bundle is None) != (bundle_url is None):
        raise click.UsageError("--bundle FILE and --bundle-url URL require each other")
    gathered = gather(_files_of(target))
    verdict = _try(gathered, env)
    _print_verdict(verdict)
    if not verdict.works:
        return 1

    project, offers, urls = gathered.project, verdict.offers, gathered.project.urls
    source = next((urls[label] for label in ("repository", "source", "source code", "github") if label in urls), "")
    found = ServerJson(
        schema=SCHEMA,
        name=name,
        title=shortened(offers.title),
        description=description or shortened(project.description or offers.instructions or offers.title or offers.name),
        version=version or project.version or offers.version,
        website_url=next((urls[label] for label in ("homepage", "documentation") if "://" in urls.get(label, "")), ""),
        repository=repository(source),
    )
    packages = []
    if bundle is not None and bundle_url is not None:
        packages.append(bundle_package(bundle_url, _digest(bundle)))
    if pypi is None and bundle is None and not remotes and gathered.project.name:
        pypi = gathered.project.name
    if pypi is not None:
        packages.append(pypi_package(pypi, found.version))
    found = replace(
        found,
        packages=tuple(replace(package, environment_variables=variables(env)) for package in packages),
        remotes=tuple(map(remote, remotes)),
    )
    text = checked(found)

    if output == "-":
        click.echo(text.decode(), nl=False)
    else:
        with explained(f"{output} cannot be written"):
            Path(output).write_bytes(text)
        click.echo(f"wrote {output}: {found.name} {found.version}")
    if pypi is not None:
        _check_package(pypi, name, gathered)
    return 0


def _digest(path: str) -> str:
    with explained(f"--bundle {path}"), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_package(package: str, name: str, gathered: BundleSources) -> None:
    # The registry and uvx would refuse the package only after it was published.
    bare = package.partition("==")[0]
    if bare == gathered.project.name and bare not in gathered.project.scripts:
        text = f"uvx runs the command with the name of its package, but [project.scripts] has no {bare}"
        note(f"warning: {printable(text)}")
    for readme in _READMES:
        path = os.path.join(gathered.root, readme)
        if os.path.isfile(path):
            if f"mcp-name: {name}" in Path(path).read_text("utf-8", "replace"):
                return
            break
    text = f"the registry requires `mcp-name: {name}` in the README of the package; add it, for example in a comment"
    note(f"warning: {printable(text)}")
