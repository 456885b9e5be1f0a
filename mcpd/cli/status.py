"""`mcpd status`: what the servers of this user do now."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import click
from msgspec.json import encode

from mcpd.cli.launch import read_token
from mcpd.cli.options import parameter
from mcpd.protocol.printable import printable
from mcpd.serve_options import Option
from mcpd.server.observe.control import NoStatus, ask_address, those_that_run
from mcpd.server.observe.report import Status

_HELP = """Say what the servers do that this user runs: since when, for whom, which calls run, what failed.

TARGET names one of them by its process id. Asked are those that serve HTTP or WebSocket, and others if they were
started with --control always. They answer even while a tool holds up their event loop.

Or it is the address of any server's metrics, here or elsewhere: :9464, HOST:PORT or http(s)://HOST:PORT. A token that
is asked for there is given with --token-file, or in MCPD_TOKEN.

Exit codes: 0 one runs and answers, 1 none does, 2 wrong use.
"""


@click.command(
    "status",
    help=_HELP,
    params=[
        click.Argument(["target"], required=False),
        parameter("token_file", Option("--token-file", "Access", "The token for the address.", "FILE"), str, None),
        parameter("as_json", Option("--json", "Other", "Print everything as JSON, for programs."), bool, False),
    ],
)
def command(target: str | None, token_file: str | None, as_json: bool) -> int:
    nobody = ""
    if target is not None and not target.isdecimal():
        try:
            found = [ask_address(target, read_token(token_file))]
        except NoStatus as error:
            found, nobody = [], str(error)
    else:
        servers, silent = those_that_run()
        found = [status for each, (_, status) in servers.items() if target in (None, str(each))]
        what = "no server of yours runs" if target is None else f"no server of yours has the process id {target}"
        nobody = f"{what} that can be asked; on stdio alone that takes --control always"
        for each in silent:
            if target in (None, str(each)):
                nobody = ""
                print(no_answer(each), file=sys.stderr)
    if as_json:
        print(encode(found).decode())
    else:
        for number, status in enumerate(found):
            if number:
                print()
            for line in lines_of(status):
                print(line)
    if not found and nobody:
        print(f"mcpd: {nobody}", file=sys.stderr)
    return 0 if found else 1


def no_answer(pid: int) -> str:
    """A server that is there and does not say what it does."""
    return f"mcpd: the server with pid {pid} does not answer: it hangs, or is stopped; kill -9 {pid} ends it"


def lines_of(status: Status) -> Iterator[str]:
    """A server in a few lines. What came from elsewhere is printed so that it cannot command a terminal."""
    name = printable(f"{status.name} {status.version}")
    target = f" ({printable(status.target)})" if status.target else ""
    yield f"{name}{target}  pid {status.pid}, mcpd {status.mcpd}, {status.state}, up {_span(status.uptime_seconds)}"
    for url in status.urls:
        yield f"  {printable(url)}"
    versions = ", ".join(f"{count} in {version or 'no version yet'}" for version, count in status.clients.items())
    yield f"  clients: {versions or 'none'}; sessions: {status.sessions}, event streams: {status.streams}"
    yield f"  calls that run: {status.in_flight}"
    for call in status.calls:
        seconds = "" if call.seconds is None else f"  {call.seconds:.1f} s"
        yield f"    {printable(call.method)} {printable(call.name)}{seconds}".rstrip()
    if len(status.calls) < status.in_flight:
        yield f"    and {status.in_flight - len(status.calls)} more"
    if status.backplane is not None:
        yield f"  backplane: {printable(status.backplane) or 'there'}"
    for worker in status.workers:
        died = f", {worker.deaths} before it died" if worker.deaths else ""
        up = f"up {_span(worker.uptime_seconds)}"
        yield f"  worker {worker.number}: pid {worker.pid}, {worker.state}, {up}, {worker.in_flight} calls run{died}"
    yield f"  event loop: {status.loop_lag_seconds * 1000:.1f} ms late at most, in the last minute"
    for error in status.errors:
        when = time.strftime("%H:%M:%S", time.localtime(error.at))
        yield f"  error at {when}: {printable(error.message, 300)}{f' ({error.error})' if error.error else ''}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{count} {unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if count]
    return " ".join(parts[:2]) or f"{rest} s"
