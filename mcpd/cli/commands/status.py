"""`mcpd status` shows the running servers of this user; `mcpd stop` stops them, as SIGTERM does."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
from msgspec.json import encode

from mcpd.cli.launch import read_token
from mcpd.cli.options import Seconds, flag_option, json_option, parameter, value_option
from mcpd.cli.talk.words import note
from mcpd.errors import ConfigurationError
from mcpd.protocol.printable import printable
from mcpd.server.observe.control import NoStatus, running_servers, status_at, stop
from mcpd.server.observe.report import RunningCall, Status
from mcpd.server.settings import Option
from .mounts import lines_of

_STATUS_HELP = """Show the status of this user's running servers: uptime, clients, running calls and errors.

TARGET is the process id of one server. Servers are found if they serve HTTP or WebSocket, or were started with
--control always. They answer even while a tool blocks their event loop.

TARGET may also be the metrics address of any server, here or elsewhere: :9464, HOST:PORT or http(s)://HOST:PORT. If
that address requires a token, use --token-file or MCPD_TOKEN.

Exit codes: 0 a server answered, 1 no server answered, 2 wrong use.
"""

_STOP_HELP = """Stop a running server of this user: the one with this PID, or the only one. `mcpd status` lists them.

Running calls get the time that the server's --grace option gives them; then the server ends.

Exit codes: 0 stopped, 1 no server is running or it has not ended in time, 2 wrong use.
"""


@click.command(
    "status",
    help=_STATUS_HELP,
    params=[
        click.Argument(["target"], required=False),
        parameter("token_file", Option("--token-file", "Access", "Send the token in this file.", "FILE"), str, None),
        json_option("Print everything as JSON."),
    ],
)
def status_command(target: str | None, token_file: str | None, as_json: bool) -> int:
    error_text = ""
    if target is not None and not target.isdecimal():
        try:
            found = [status_at(target, read_token(token_file))]
        except NoStatus as error:
            found, error_text = [], str(error)
    else:
        servers, silent = running_servers()
        found = [status for each, (_, status) in servers.items() if target in (None, str(each))]
        error_text = f"{_none_runs(target)}; a server on stdio only is found if it was started with --control always"
        for each in silent:
            if target in (None, str(each)):
                error_text = ""
                note(_no_answer(each))

    if as_json:
        print(encode(found).decode())
    else:
        for number, status in enumerate(found):
            if number:
                print()
            for line in _lines_of(status):
                print(line)
    if not found and error_text:
        note(error_text)
    return 0 if found else 1


@click.command(
    "stop",
    help=_STOP_HELP,
    params=[
        click.Argument(["pid"], type=int, required=False),
        flag_option("--all", "everything", help="Stop all servers of this user."),
        value_option(
            "--timeout",
            type=Seconds(),
            default=15.0,
            metavar="SECONDS",
            help="Wait this many seconds for the server to end. Default: 15 s.",
        ),
    ],
)
def stop_command(pid: int | None, everything: bool, timeout: float) -> int:
    found, silent = running_servers()
    chosen = {each: found[each] for each in found if pid in (None, each)}
    hanging = [each for each in silent if pid == each or (pid is None and (everything or not found))]
    for each in hanging:
        note(_no_answer(each))
    if hanging and not chosen:
        return 1
    if not chosen:
        note(f"{_none_runs(pid)}; mcpd status lists the servers that can be stopped")
        return 1
    if len(chosen) > 1 and not everything:
        pids = ", ".join(map(str, chosen))
        raise click.UsageError(f"{len(chosen)} servers are running: name one of {pids}, or write --all")

    code = 1 if hanging else 0
    for number, (path, status) in chosen.items():
        name = f"{printable(status.name)} (pid {number})"
        try:
            has_ended = stop(path, number, timeout)
        except OSError as error:
            raise ConfigurationError(f"{name} does not answer: {error}; to end it, run kill {number}") from None
        if has_ended:
            print(f"stopped {name}")
        else:
            note(f"{name} is still running after {timeout:g} s; to end it at once, run kill -9 {number}")
            code = 1
    return code


def _none_runs(pid: object) -> str:
    return "no server of yours is running" if pid is None else f"no running server of yours has the process id {pid}"


def _no_answer(pid: int) -> str:
    return f"the server with pid {pid} does not answer: it hangs or is suspended; to end it, run kill -9 {pid}"


def _line_of(call: RunningCall) -> str:
    seconds = "" if call.seconds is None else f"  {call.seconds:.1f} s"
    return f"    {printable(call.method)} {printable(call.name)}{seconds}".rstrip()


def _lines_of(status: Status) -> Iterator[str]:
    # Text from elsewhere is escaped, so that it cannot control the terminal.
    name = printable(f"{status.name} {status.version}")
    target = f" ({printable(status.target)})" if status.target else ""
    yield f"{name}{target}  pid {status.pid}, mcpd {status.mcpd}, {status.state}, up {_span(status.uptime_seconds)}"
    for url in status.urls:
        yield f"  {printable(url)}"
    versions = ", ".join(f"{count} in {version or 'no version yet'}" for version, count in status.clients.items())
    yield f"  clients: {versions or 'none'}; sessions: {status.sessions}, event streams: {status.streams}"
    yield f"  running calls: {status.in_flight}"
    yield from map(_line_of, status.calls)
    if len(status.calls) < status.in_flight:
        yield f"    and {status.in_flight - len(status.calls)} more"
    if status.cancelled:
        yield "  cancelled calls whose functions still run:"
        yield from map(_line_of, status.cancelled)
    if status.backplane is not None:
        yield f"  backplane: {printable(status.backplane) or 'connected'}"
    for mount in status.mounts:
        yield from lines_of(mount)
    for worker in status.workers:
        died = f", restarted {worker.deaths} times" if worker.deaths else ""
        up = f"up {_span(worker.uptime_seconds)}"
        calls = f"{worker.in_flight} running calls"
        yield f"  worker {worker.number}: pid {worker.pid}, {worker.state}, {up}, {calls}{died}"

    yield f"  event loop: at most {status.loop_lag_seconds * 1000:.1f} ms late in the last minute"
    for error in status.errors:
        when = time.strftime("%H:%M:%S", time.localtime(error.at))
        yield f"  error at {when}: {printable(error.message, 300)}{f' ({error.error})' if error.error else ''}"


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{count} {unit}" for count, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if count]
    return " ".join(parts[:2]) or f"{rest} s"
