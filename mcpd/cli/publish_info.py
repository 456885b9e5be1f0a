"""`mcpd publish-info`."""

from __future__ import annotations

import hashlib
import os

import click
from msgspec.structs import replace

from mcpd.bundle.pack import Gathered, Said, gather
from mcpd.bundle.project import Project
from mcpd.bundle.server_json import (
    SCHEMA,
    Package,
    ServerJson,
    bundle_package,
    checked,
    pypi_package,
    remote,
    repository,
    shortened,
    variables,
)
from mcpd.cli.bundle import files_of, tried
from mcpd.errors import ConfigurationError
from mcpd.install.launch import Offers
from mcpd.protocol.printable import printable

_HELP = """Write server.json, by which the registry of servers knows one, held to its schema and rules.

\b
  mcpd publish-info server.py --name io.github.you/garden --pypi garden-mcp
  mcpd publish-info server.py --name io.github.you/garden --bundle garden-1.2.0.mcpb --bundle-url URL
  mcpd publish-info server.py --name com.example/garden --remote https://example.com/mcp

What is not said is taken from pyproject.toml, and from what the server says of itself: TARGET is started once. Without
--pypi, --bundle-url and --remote the package of pyproject.toml is named. mcp-publisher publishes what is written.

Exit codes: 0 written, 1 not written, 2 wrong use.
"""

_README = ("README.md", "README.rst", "README.txt", "README")


@click.command(
    "publish-info",
    help=_HELP,
    params=[
        click.Argument(["target"], required=False),
        click.Option(["--name"], required=True, metavar="NAMESPACE/NAME", help="As io.github.YOU/garden."),
        click.Option(["-o", "--output"], default="server.json", show_default=True, metavar="FILE",
                     help="Where to write; - is stdout."),
        click.Option(["--pypi"], metavar="PACKAGE", help="The package that has it: NAME, or NAME==VERSION."),
        click.Option(["--bundle"], metavar="FILE", help="The bundle that is behind --bundle-url."),
        click.Option(["--bundle-url"], metavar="URL", help="Where the bundle was released."),
        click.Option(["--remote", "remotes"], multiple=True, metavar="URL", help="Where it runs. Can be repeated."),
        click.Option(["--env"], multiple=True, metavar="NAME[=VALUE]", help="A variable that it reads."),
        click.Option(["--version", "version"], default="", help="One exact version."),
        click.Option(["--description"], default="", metavar="TEXT", help="What it does, in up to 100 characters."),
    ],
)  # fmt: skip
def command(
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
        raise click.UsageError("--bundle FILE and --bundle-url URL belong together")
    gathered = gather(files_of(target))
    verdict = tried(gathered, Said(env=env))
    for line in verdict.lines:
        click.echo(f"mcpd: {line}", err=True)
    if not verdict.works:
        return 1

    found = _described(name, gathered.project, verdict.offers, version, description)
    if bundle is not None and bundle_url is not None:
        found = _with(found, bundle_package(bundle_url, _digest(bundle)), env)
    if pypi is None and bundle is None and not remotes and gathered.project.name:
        pypi = gathered.project.name
    if pypi is not None:
        found = _with(found, pypi_package(pypi, found.version), env)
    text = checked(replace(found, remotes=tuple(map(remote, remotes))))

    if output == "-":
        click.echo(text.decode(), nl=False)
    else:
        _write(output, text)
        click.echo(f"wrote {output}: {found.name} {found.version}")
    if pypi is not None:
        _warn_of_package(pypi, name, gathered)
    return 0


def _described(name: str, project: Project, offers: Offers, version: str, description: str) -> ServerJson:
    """All but where it is to be had."""
    said = project.description or offers.instructions or offers.title or offers.name
    urls = project.urls
    source = next((urls[label] for label in ("repository", "source", "source code", "github") if label in urls), "")
    return ServerJson(
        schema=SCHEMA,
        name=name,
        title=shortened(offers.title),
        description=description or shortened(said),
        version=version or project.version or offers.version,
        website_url=next((urls[label] for label in ("homepage", "documentation") if "://" in urls.get(label, "")), ""),
        repository=repository(source),
    )


def _with(found: ServerJson, package: Package, env: tuple[str, ...]) -> ServerJson:
    whole = replace(package, environment_variables=variables(env))
    return replace(found, packages=(*found.packages, whole))


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigurationError(f"--bundle {path}: {error.strerror}") from None


def _write(path: str, text: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(text)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def _warn_of_package(package: str, name: str, gathered: Gathered) -> None:
    """What the registry looks for in a package, and what those who run it do."""
    bare = package.partition("==")[0]
    if bare == gathered.project.name and bare not in gathered.project.scripts:
        text = f"uvx runs the command that is called like its package, and [project.scripts] has no {bare}"
        click.echo(f"mcpd: warning: {printable(text)}", err=True)
    for readme in _README:
        path = os.path.join(gathered.root, readme)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                if f"mcp-name: {name}" in file.read():
                    return
            break
    text = f"the registry looks for `mcp-name: {name}` in the README of the package: add it, in a comment if you like"
    click.echo(f"mcpd: warning: {printable(text)}", err=True)
