"""Write the reference pages that follow from the code: `python docs/generate.py`. A test compares both."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from textwrap import fill

import click

import mcpd
from mcpd import auth, errors
from mcpd.auth.settings import PROVIDERS
from mcpd.cli.group import cli
from mcpd.protocol.versions import table, v2026
from mcpd.server.settings import Option, command_options

FOLDER = Path(__file__).resolve().parent / "reference"
HEAD = "<!-- Written by docs/generate.py. -->\n"


def command_line() -> str:
    """Return the page about all commands with their arguments and options."""
    lines = ["# Command line", "", "Every command and option of `mcpd`.", ""]
    for path, command in _commands(cli, "mcpd"):
        if isinstance(command, click.Group):
            continue
        lines += [f"## `{path}`", "", fill(_sentence(command.help or command.short_help or ""), 120), ""]
        context = click.Context(command, info_name=path)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += ["```text", f"{path} {usage}", "```", ""]
        rows = [param.get_help_record(context) for param in command.get_params(context)]
        found = [row for row in rows if row is not None and row[1] and row[0] != "--help"]
        if found:
            lines += ["| Option | Meaning |", "| --- | --- |"]
            lines += [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in found]
            lines.append("")
    return "\n".join(lines)


def environment() -> str:
    """Return the page about environment variables."""
    lines = [
        "# Environment variables",
        "",
        "Each option of `mcpd serve` has a variable. The command line has priority, then the environment, then",
        "`mcpd.toml`.",
        "",
        "| Variable | Option | Meaning |",
        "| --- | --- | --- |",
    ]
    for option in sorted(_options(), key=lambda option: option.environment):
        lines.append(f"| `{option.environment}` | `{option.flag}` | {_cell(option.help)} |")
    return "\n".join([*lines, ""])


def error_codes() -> str:
    """Return the page about JSON-RPC error codes and exceptions."""
    lines = [
        "# Error codes",
        "",
        "The JSON-RPC errors that mcpd sends, with the exception that a handler raises for each. The other exceptions",
        "of `mcpd.errors` are raised in programs and are never sent.",
        "",
        "| Code | Exception | Meaning |",
        "| ---: | --- | --- |",
    ]
    classes = [
        value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__
    ]
    sent = [cls for cls in classes if issubclass(cls, errors.ProtocolError)]
    rows = [(cls.code, cls.__name__, _cell(_sentence(cls.__doc__ or ""))) for cls in sent]
    for revision in v2026.REVISIONS:
        for cls, code in revision.error_codes.items():
            rows.append((code, cls.__name__, f"The same as {cls.code}, in versions before {revision.version}."))
    lines += [f"| {code} | `{name}` | {meaning} |" for code, name, meaning in sorted(rows)]
    lines += ["", "## Exceptions in programs", "", "| Exception | Meaning |", "| --- | --- |"]
    for cls in classes:
        if cls not in sent:
            lines.append(f"| `{cls.__name__}` | {_cell(_sentence(cls.__doc__ or ''))} |")
    return "\n".join([*lines, ""])


def versions() -> str:
    """Return the page about protocol versions and the methods of each."""
    names = table.SUPPORTED[::-1]
    lines = [
        "# Protocol versions",
        "",
        "mcpd serves these versions and connects to servers of all of them. The newest that both sides know is used.",
        "",
        f"| Method | {' | '.join(names)} |",
        f"| --- | {' | '.join(':---:' for _ in names)} |",
    ]
    for kind, title in (("requests", "Requests of clients"), ("server_requests", "Requests of servers")):
        lines.append(f"| **{title}** | {' | '.join('' for _ in names)} |")
        methods = sorted({method for name in names for method in getattr(table.get(name), kind)})
        for method in methods:
            cells = ["✓" if method in getattr(table.get(name), kind) else "" for name in names]
            lines.append(f"| `{method}` | {' | '.join(cells)} |")
    lines += [
        "",
        "In 2026-07-28, servers ask the client inside results (multi round-trip requests) instead of sending requests.",
        "The official conformance suite passes in every version that it covers; `make conformance` runs it.",
        "",
    ]
    return "\n".join(lines)


def _options() -> list[Option]:
    return [option for option, _ in command_options().values()]


def _commands(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in sorted(command.list_commands(context)):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                found += _commands(child, f"{path} {name}")
    return found


def _sentence(text: str) -> str:
    return re.sub(r"\s+", " ", text.strip().partition("\n\n")[0])


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def authorization_servers() -> str:
    """Return the page about the settings of providers of authorization."""
    lines = [
        "# Authorization servers",
        "",
        "How to set up well-known [authorization servers](../authorization.md#an-authorization-server). The steps",
        "follow the documentation of the providers; they were not tested with accounts.",
        "",
        "```toml",
        "[auth]",
        'public-url = "https://tools.example.com/mcp"',
        'provider = "auth0"',
        'tenant = "example.eu.auth0.com"',
        "```",
        "",
    ]
    texts = tomllib.loads((FOLDER.parent / "providers.toml").read_text(encoding="utf-8"))
    for name, provider in PROVIDERS.items():
        text = texts[name]
        lines += [f"## {text['title']} (`{name}`)", ""]
        values = {"tenant": provider.tenant_is, "audience": text.get("audience")}
        settings = [f"- `{key}`: {value}." for key, value in values.items() if value]
        steps = [
            f"{number}. {step[0].upper()}{step[1:]}." for number, step in enumerate(text.get("steps", ()), start=1)
        ]
        for block in (settings, steps, [f"Note: {text['note']}."]):
            lines += [*block, ""] if block else []
    return "\n".join(lines)


def python() -> str:
    """The public names of the package; mkdocstrings fills in their signatures when the site is built."""
    lines = [
        "# Python API",
        "",
        "The public names of `mcpd`, with their signatures. Modules that neither this page nor another one names are",
        "internal.",
        "",
        "## `mcpd`",
    ]
    for name in mcpd.__all__:
        if name != "__version__":
            lines += ["", f"::: mcpd.{name}", "    options:", "      heading_level: 3"]
    for module in ("sync", "testing", "types"):
        lines += ["", f"::: mcpd.{module}"]
    lines += ["", "## `mcpd.auth`"]
    for name in auth.__all__:
        lines += ["", f"::: mcpd.auth.{name}", "    options:", "      heading_level: 3"]
    return "\n".join([*lines, ""])


PAGES = {
    "authorization-servers.md": authorization_servers,
    "command-line.md": command_line,
    "environment.md": environment,
    "errors.md": error_codes,
    "python.md": python,
    "versions.md": versions,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
