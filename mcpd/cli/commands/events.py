"""`mcpd events` prints the events of a server, and controls the events of running servers of this user."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from msgspec.json import decode, encode

from mcpd.cli.options import client_command, json_option, server_options, value_option
from mcpd.cli.talk.arguments import arguments_of, read_schema, read_words
from mcpd.cli.talk.connecting import open_client, run
from mcpd.cli.talk.terminal import Terminal
from mcpd.cli.talk.words import WrongUse, no_such, note, split_words
from mcpd.errors import ConfigurationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.protocol.printable import printable

if TYPE_CHECKING:
    from mcpd.client import Event, EventGap, EventSubscription, Receiver
    from mcpd.server.observe.report import Status

_MOST_CHARACTERS = 4000

_WATCH_HELP = """Print the events of a server until Ctrl-C.

NAME is a type of event; mcpd list TARGET events shows the types. Arguments select events: name=value, as for mcpd call.
At the end, the position is printed with which --cursor continues.

\b
  mcpd events watch https://host/mcp incident.created severity=P1
"""

_RECEIVE_HELP = """Receive the events of a server as webhooks, and print them until Ctrl-C.

ADDR is where mcpd listens, such as :8090. Servers send webhooks only to https URLs, so a proxy with a certificate must
pass requests for --url on to ADDR.

\b
  mcpd events receive :8090 --url https://me.example/hooks https://host/mcp incident.created
"""


@click.group("events", no_args_is_help=True)
def events_command() -> None:
    """Print the events of a server, emit events, and look after webhooks."""


def _subscription_options() -> list[click.Parameter]:
    return [
        value_option("--cursor", metavar="CURSOR", help="Continue after this position, which an earlier run printed."),
        value_option(
            "--count", type=click.IntRange(min=1), default=None, metavar="NUMBER", help="End after this many events."
        ),
        json_option("Print each event as one line of JSON."),
    ]


@client_command(
    "watch",
    _WATCH_HELP,
    click.Argument(["words"], nargs=-1, metavar="[TARGET] NAME [ARGUMENT]..."),
    value_option(
        "--delivery",
        type=click.Choice(["auto", "push", "poll"]),
        default="auto",
        metavar="MODE",
        help="How events arrive: push, poll, or auto for the first that the server offers. Default: auto.",
    ),
    *_subscription_options(),
)
def _watch_command(words: tuple[str, ...], delivery: Any, command: tuple[str, ...], **shared: Any) -> int:
    return _print_events(words, command, shared, delivery, None)


@client_command(
    "receive",
    _RECEIVE_HELP,
    click.Argument(["words"], nargs=-1, metavar="ADDR [TARGET] NAME [ARGUMENT]..."),
    value_option("--url", metavar="URL", help="The https URL under which the server reaches ADDR. Required."),
    *_subscription_options(),
)
def _receive_command(words: tuple[str, ...], url: str | None, command: tuple[str, ...], **shared: Any) -> int:
    from mcpd.transports.address import parse

    if not words or not url:
        raise WrongUse("write where to listen and how servers get there: mcpd events receive :8090 --url https://…")
    from mcpd.client.receiver import Receiver

    receiver = Receiver(url)
    address = parse(words[0])
    shared["listening"] = lambda: _listening(str(address), receiver)
    return _print_events(words[1:], command, shared, "webhook", receiver)


@asynccontextmanager
async def _listening(address: str, receiver: Receiver) -> AsyncIterator[str]:
    from mcpd.server.http.listener import HttpListener
    from mcpd.server.http.pages import PageAnswer, PageApp
    from mcpd.server.http.request import HttpRequest

    path = urlsplit(receiver.url).path or "/"

    async def answer(request: HttpRequest) -> PageAnswer:
        if request.path != path or request.method != "POST":
            return PageAnswer(body=b"Nothing is here.\n", content_type="text/plain", status=404)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
        found = await receiver.receive(headers, await request.read(_MOST_BODY, _BODY_SECONDS))
        return PageAnswer(body=encode(found.body), content_type="application/json", status=found.status)

    # The signature decides who may send, not the address of the sender.
    listener = HttpListener(PageApp(answer), address)
    await listener.start(_no_receiver)
    try:
        yield f" at {listener.url}"
    finally:
        await listener.aclose()


def _no_receiver(channel: Any) -> Any:
    raise AssertionError("there is no WebSocket here")


_MOST_BODY = 1024 * 1024
_BODY_SECONDS = 10.0


@asynccontextmanager
async def _nothing() -> AsyncIterator[str]:
    yield ""


def _print_events(
    words: Sequence[str], command: tuple[str, ...], shared: dict[str, Any], delivery: Any, receiver: Receiver | None
) -> int:
    cursor, count, as_json = shared.pop("cursor"), shared.pop("count"), shared.pop("as_json")
    listening: Callable[[], Any] = shared.pop("listening", _nothing)
    target, name, arguments = split_words(words, command, "event")
    server = server_options(target, command, shared)
    if not name:
        raise WrongUse("which events? Write the name of a type; mcpd list TARGET events shows the types")

    async def show(terminal: Terminal) -> int:
        given = read_words(arguments)
        async with open_client(server) as client, listening() as place:
            client.webhook = receiver
            found = {each.name: each for each in await client.list_events()}
            if name not in found:
                raise no_such("event", name, found)
            values = arguments_of(given, read_schema(found[name].input_schema))
            async with client.events(name, values, delivery=delivery, cursor=cursor, gaps=True) as events:
                terminal.note(f"mcpd: waiting for events by {events.mode}{place}; press Ctrl-C to stop", "dim")
                await _print_until(terminal, events, count, as_json=as_json)
        return 0

    return run(show, server)


async def _print_until(terminal: Terminal, events: EventSubscription, count: int | None, *, as_json: bool) -> None:
    from mcpd.client import Event

    left = -1 if count is None else count
    try:
        while left:
            event = await anext(events)
            if isinstance(event, Event):
                left -= 1
            _print(terminal, event, as_json=as_json)
    finally:
        if events.cursor is not None:
            terminal.note(f"mcpd: to continue from here, use --cursor {printable(events.cursor)}", "dim")


def _print(terminal: Terminal, event: Event | EventGap, *, as_json: bool) -> None:
    from mcpd.client import EventGap

    if isinstance(event, EventGap):
        terminal.note("mcpd: some events were lost here: the server no longer has them", "yellow")
    elif as_json:
        members = {"eventId": event.id, "name": event.name, "timestamp": event.timestamp, "data": event.data}
        terminal.print_json({**members, "cursor": event.cursor})
    else:
        # The text of an event is escaped, so that it cannot control the terminal.
        at = terminal.styled(printable(event.timestamp, 40), "dim")
        text = printable(encode(event.data).decode(), _MOST_CHARACTERS)
        terminal.out_safe(f"{at}  {terminal.styled(printable(event.id, 256), 'cyan')}  {text}")


# ---------------------------------------------------------------------------- running servers of this user

_EMIT_HELP = """Emit an event on a running server of this user, and print its id.

NAME is one of the server's types, DATA its payload as JSON. PID selects the server, as shown by mcpd status.

\b
  mcpd events emit incident.created '{"incident_id": "PD-17", "severity": "P1"}'
"""

_STATUS_HELP = """Show the webhook subscriptions of running servers: id, type, URL, waiting events, last error.

Only servers of this user are shown; PID selects one of them.
"""

_FAILED_HELP = """List the events of a webhook subscription that its server gave up to send."""

_RETRY_HELP = """Send the events of a webhook subscription again that its server gave up to send."""

_DROP_HELP = """End a webhook subscription. Its client is notified, and may subscribe again."""


def _ask(pid: int | None, what: str, given: object = None) -> Any:
    # Ask the running server with this process id, or the only one. Raises ConfigurationError.
    from mcpd.server.observe.control import NoStatus, ask_events

    found = _servers(pid)
    if len(found) > 1:
        pids = ", ".join(map(str, found))
        raise click.UsageError(f"{len(found)} servers are running; write the process id of one at the end: {pids}")
    ((number, (path, status)),) = found.items()
    try:
        return ask_events(path, what, given)
    except (NoStatus, OSError) as error:
        raise ConfigurationError(f"{printable(status.name)} (pid {number}): {error}") from None


def _servers(pid: int | None) -> dict[int, tuple[str, Status]]:
    from mcpd.server.observe.control import running_servers

    servers = running_servers().servers
    found = {number: each for number, each in servers.items() if pid in (None, number)}
    if not found:
        which = "no server of yours is running" if pid is None else f"no running server of yours has the pid {pid}"
        raise ConfigurationError(f"{which}; mcpd status lists the servers")
    return found


_PID = click.Argument(["pid"], type=int, required=False)


@click.command(
    "emit",
    help=_EMIT_HELP,
    params=[
        click.Argument(["name"]),
        click.Argument(["data"]),
        _PID,
        value_option("--id", "event_id", metavar="ID", help="The id of the event. Default: a random one."),
    ],
)
def _emit_command(name: str, data: str, pid: int | None, event_id: str | None) -> int:
    try:
        payload = decode(data)
    except MALFORMED as error:
        raise click.UsageError(f"{printable(data, 60)} is not JSON: {error}") from None
    print(printable(_ask(pid, "emit", {"name": name, "data": payload, "id": event_id})))
    return 0


@click.command("status", help=_STATUS_HELP, params=[_PID, json_option("Print one line of JSON.")])
def _status_command(pid: int | None, as_json: bool) -> int:
    from mcpd.server.observe.control import NoStatus, ask_events

    found: list[Any] = []
    for number, (path, _) in _servers(pid).items():
        with suppress(NoStatus, OSError):  # a server without events
            found += [{"pid": number, **each} for each in ask_events(path, "status")]
    if as_json:
        print(encode(found).decode())
        return 0
    for each in found:
        state = "active" if each["active"] else "suspended"
        problem = f", last error: {each['lastError']}" if each["lastError"] else ""
        arguments = encode(each["arguments"]).decode()
        print(f"{printable(each['id'])}  {printable(each['name'])} {printable(arguments, 200)}  pid {each['pid']}")
        print(f"  {printable(each['url'])}  {state}, {each['waiting']} events wait{printable(problem)}")
    if not found:
        note("no running server of yours has webhook subscriptions")
    return 0


_SUBSCRIPTION = click.Argument(["subscription"])


@click.command("failed", help=_FAILED_HELP, params=[_SUBSCRIPTION, _PID, json_option("Print one line of JSON.")])
def _failed_command(subscription: str, pid: int | None, as_json: bool) -> int:
    found = _ask(pid, "failed", {"subscription": subscription})
    if as_json:
        print(encode(found).decode())
        return 0
    for each in found:
        print(f"{printable(each['at'])}  {printable(each['eventId'])}  {printable(each['error'])}")
    return 0


@click.command("retry", help=_RETRY_HELP, params=[_SUBSCRIPTION, _PID])
def _retry_command(subscription: str, pid: int | None) -> int:
    count = _ask(pid, "retry", {"subscription": subscription})
    print("1 event is sent again" if count == 1 else f"{count} events are sent again")
    return 0


@click.command("drop", help=_DROP_HELP, params=[_SUBSCRIPTION, _PID])
def _drop_command(subscription: str, pid: int | None) -> int:
    _ask(pid, "drop", {"subscription": subscription})
    print(f"ended {printable(subscription)}")
    return 0


for _command in (
    _watch_command,
    _receive_command,
    _emit_command,
    _status_command,
    _failed_command,
    _retry_command,
    _drop_command,
):
    events_command.add_command(_command)
