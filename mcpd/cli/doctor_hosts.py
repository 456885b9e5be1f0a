"""`mcpd doctor --hosts`: what `install.health` finds, as lines or as JSON."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import click

from mcpd.cli.talk.terminal import as_json_text
from mcpd.install.checks import Finding
from mcpd.install.health import CheckedFile, CheckedServer, State, check_hosts
from mcpd.protocol.printable import printable

_SIGNS: dict[State, str] = {"works": "✓", "broken": "✗", "off": "–", "not started": "–"}
_WORDS: dict[State, str] = {"works": "ok", "broken": "PROBLEM", "off": "off", "not started": "not started"}
_NAME_WIDTH = 24


def run(timeout: float, *, as_json: bool) -> int:
    """All hosts; 0 if every server works, 1 if something does not."""
    tell = _ignore if as_json else _print_file
    found = asyncio.run(check_hosts(tell, timeout=timeout, folder=os.getcwd()))
    is_well = all(checked.is_well for checked in found)
    if as_json:
        from msgspec.json import encode, format

        said = {"works": is_well, "hosts": [_facts(checked) for checked in found]}
        click.echo(as_json_text(format(encode(said), indent=2).decode()))
    else:
        click.echo(_summary(found))
    return 0 if is_well else 1


def _ignore(checked: CheckedFile) -> None:
    """Nothing is said before all is known."""


def _print_file(checked: CheckedFile) -> None:
    click.echo(f"{checked.host.name}{' (this project)' if checked.is_project else ''}: {printable(checked.path, 1000)}")
    for finding in checked.findings:
        _print_finding(finding, "  ")
    if not checked.servers and not checked.findings:
        click.echo("  no servers")
    for server in checked.servers:
        sign = _SIGNS[server.state] if _can_print("✓✗–→") else _WORDS[server.state]
        click.echo(f"  {sign} {printable(server.name, 100):<{_NAME_WIDTH}} {_state(server)}")
        for finding in server.findings:
            _print_finding(finding, "      ")
        for line in server.stderr_tail:
            click.echo(f"        stderr: {printable(line, 500)}")


def _state(server: CheckedServer) -> str:
    if server.state == "works":
        tools = f"{server.tools} tool{'' if server.tools == 1 else 's'}"
        return f"{tools}, first answer after {server.seconds:.2f} s"
    said = {"broken": "does not work", "off": "switched off", "not started": "not started: a project's file"}
    return said[server.state]


def _print_finding(finding: Finding, margin: str) -> None:
    click.echo(f"{margin}{'' if finding.is_problem else 'warning: '}{printable(finding.text, 1000)}")
    if finding.advice:
        click.echo(f"{margin}  {'→' if _can_print('→') else '->'} {printable(finding.advice, 1000)}")


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _summary(found: list[CheckedFile]) -> str:
    if not found:
        return "No host was found here that keeps servers in a file."
    servers = [server for checked in found for server in checked.servers]
    broken = sum(server.state == "broken" for server in servers)
    works = sum(server.state == "works" for server in servers)
    bad_files = sum(any(finding.is_problem for finding in checked.findings) for checked in found)
    more = f", {bad_files} file{'s' if bad_files > 1 else ''} to mend" if bad_files else ""
    return f"{works} of {len(servers)} servers work, {broken} {'does' if broken == 1 else 'do'} not{more}."


def _facts(checked: CheckedFile) -> dict[str, Any]:
    return {
        "host": checked.host.id,
        "name": checked.host.name,
        "file": checked.path,
        "isProject": checked.is_project,
        "findings": [_finding(finding) for finding in checked.findings],
        "servers": [
            {
                "name": server.name,
                "state": server.state,
                "tools": server.tools,
                "seconds": round(server.seconds, 4),
                "findings": [_finding(finding) for finding in server.findings],
                "stderr": server.stderr_tail,
            }
            for server in checked.servers
        ],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {"text": finding.text, "advice": finding.advice, "isProblem": finding.is_problem}
