"""Types whose events another system keeps, over polls and streams. Spec: SEP-3415."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import until
from support.http_peer import modern, serving
from support.wires import MODERN, memory_wire

from mcpd import Batch, EventContext, Found, Principal, Server
from mcpd.errors import RegistrationError
from mcpd.protocol.types.events import EventType
from .test_polling import EVENTS, ids, poll
from .test_streams import events, heard, stream


class Mailbox:
    """Another system: mails with numbers, by sender. Its cursor is the number of the last one."""

    def __init__(self, **options: Any) -> None:
        self.server = Server("mails")
        self.mails: list[tuple[int, str]] = []
        self.checks: list[tuple[str | None, str | None]] = []
        self.is_lost = self.is_away = False
        self.cursors = True

        @self.server.event_source("mail", every=1.0, **options)
        async def mail(cursor: str | None, sender: str | None = None, *, ctx: EventContext) -> Batch[dict[str, Any]]:
            """A mail has arrived."""
            self.checks.append((cursor, sender))
            if cursor is None and self.is_away:
                raise OSError("the mailbox is away")
            if cursor is not None and not cursor.isdecimal():
                raise ValueError(cursor)
            last = len(self.mails) if cursor is None else int(cursor)
            found = [
                Found({"n": n}, id=f"m{n}", cursor=str(n) if self.cursors else None)
                for n, who in self.mails
                if n > last and sender in (None, who)
            ]
            return Batch(events=found, cursor=str(len(self.mails)), truncated=self.is_lost)

        self.mail = mail
        mail.every = 0.01  # type: ignore[attr-defined]

    def arrive(self, *senders: str) -> None:
        for sender in senders:
            self.mails.append((len(self.mails) + 1, sender))

    @property
    def watches(self) -> dict[Any, Any]:
        found: dict[Any, Any] = self.server.extensions[EVENTS].hub.watches  # type: ignore[attr-defined]
        return found


@pytest.mark.parametrize("cursors", [True, False])
async def test_a_poll_asks_the_other_system_after_the_clients_cursor(cursors: bool) -> None:
    """EVT-016, EVT-018, EVT-020, EVT-021, EVT-023: also in the middle of a batch that has one cursor only."""
    box = Mailbox()
    box.cursors = cursors
    box.arrive("ada")
    async with memory_wire(box.server) as wire:
        await wire.open(MODERN)
        first = await poll(wire, name="mail")
        assert (first["events"], first["cursor"]) == ([], "1")
        box.arrive("ada", "bob", "ada", "ada")
        seen: list[str] = []
        cursor, has_more = first["cursor"], True
        while has_more:
            found = await poll(wire, cursor, "mail", arguments={"sender": "ada"}, maxEvents=2)
            seen += ids(found)
            cursor, has_more = found["cursor"], found["hasMore"]
        assert seen == ["m2", "m4", "m5"]
        assert not box.watches
        lost = await poll(wire, "nonsense", "mail")
        assert (lost["truncated"], lost["events"], lost["cursor"]) == (True, [], "5")
        assert (await wire.error("events/poll", {"name": "mail", "arguments": {"sender": 5}}))["code"] == -32602


async def test_streams_with_the_same_arguments_share_one_watch() -> None:
    """EVT-023, EVT-028: each from its own cursor, without loss between the replay and what comes."""
    box = Mailbox()
    box.arrive("ada", "bob", "ada")
    async with memory_wire(box.server) as wire:
        await wire.open(MODERN)
        late, active = await stream(wire, "mail", cursor="1")
        assert active["cursor"] == "1"
        assert await events(wire, late, 2) == ["m2", "m3"]
        fresh, active = await stream(wire, "mail")
        assert active["cursor"] == "3"
        of_ada, _ = await stream(wire, "mail", arguments={"sender": "ada"})
        assert len(box.watches) == 2
        box.arrive("bob", "ada")
        got: dict[Any, list[Any]] = {late: [], fresh: [], of_ada: []}
        for _ in range(5):
            params = (await wire.receive())["params"]
            got[next(iter(params["_meta"].values()))].append((params["eventId"], params["cursor"]))
        assert got[late] == got[fresh] == [("m4", "4"), ("m5", "5")]
        assert got[of_ada] == [("m5", "5")]
        box.is_lost = True
        gap = await heard(wire, "active", late)
        assert gap["truncated"]
        box.is_lost = False
        for request_id in (late, fresh, of_ada):
            wire.cancel(request_id)
        await until(lambda: not box.watches)


async def test_what_is_found_for_one_user_is_not_for_another() -> None:
    """EVT-070: a function that sees the user is asked for each user apart, whether or not it says `private`."""
    server = Server("mails", authenticate=lambda headers: Principal(headers["authorization"]))
    boxes: dict[str, list[int]] = {"ada": [], "bob": []}

    @server.event_source("mail", every=1.0)
    async def mail(cursor: str | None, *, ctx: EventContext) -> Batch[dict[str, Any]]:
        """A mail has arrived."""
        found = boxes[ctx.principal.subject]
        last = len(found) if cursor is None else int(cursor)
        events = [Found({"n": n}, id=f"{ctx.principal.subject}{n}") for n in found[last:]]
        return Batch(events=events, cursor=str(len(found)))

    mail.every = 0.01  # type: ignore[attr-defined]
    async with serving(server) as port:
        peers = {}
        for user in boxes:
            peer = peers[user] = await port.connect()
            peer.send(modern("events/stream", {"name": "mail", "cursor": "0"}, {"Authorization": user}))
            await peer.head()
            assert (await peer.message())["method"] == "notifications/events/active"
        for user, peer in peers.items():
            boxes[user].append(1)
            while (message := await peer.message())["method"] != "notifications/events/event":
                pass
            assert message["params"]["eventId"] == f"{user}1"


async def test_a_function_that_fails_is_asked_again() -> None:
    """EVT-071: the stream lives, and what was missed arrives."""
    box = Mailbox()
    async with memory_wire(box.server) as wire:
        await wire.open(MODERN)
        request_id, _ = await stream(wire, "mail")
        box.mails = None  # type: ignore[assignment]  # len() fails
        hub: Any = box.server.extensions[EVENTS].hub  # type: ignore[attr-defined]
        await until(lambda: hub.failures > 0)
        box.mails = []
        box.arrive("ada")
        assert await events(wire, request_id, 1) == ["m1"]


async def test_a_stream_that_returns_misses_nothing_while_its_watch_cannot_begin() -> None:
    """EVT-023, EVT-071."""
    box = Mailbox()
    box.arrive("ada")
    box.is_away = True
    async with memory_wire(box.server) as wire:
        await wire.open(MODERN)
        request_id = wire.ask("events/stream", {"name": "mail", "cursor": "0"})
        hub: Any = box.server.extensions[EVENTS].hub  # type: ignore[attr-defined]
        await until(lambda: hub.failures > 1)
        box.arrive("bob")
        box.is_away = False
        await heard(wire, "active", request_id)
        assert await events(wire, request_id, 2) == ["m1", "m2"]


async def test_a_type_of_another_server_is_passed_on() -> None:
    """EVT-006: its schemas are sent as they are, and each user is asked for apart."""
    server = Server("front")
    box = Mailbox()
    seen: list[Any] = []
    del box.server
    extension: Any = server._events

    async def remote(arguments: Any, cursor: str | None, user: Any, most: int) -> Batch[Any]:
        seen.append((dict(arguments), cursor, most))
        return Batch(events=[Found({"n": 1}, id="one")] if cursor == "0" else [], cursor="1" if cursor else "0")

    schema = {"type": "object", "properties": {"who": {"type": "string"}}, "additionalProperties": False}
    described = EventType(name="up_mail", delivery=["poll"], input_schema=schema, payload_schema={"type": "object"})
    extension.add_remote(described, remote, every=1.0)
    async with memory_wire(server) as wire:
        await wire.open(MODERN)
        (listed,) = (await wire.result("events/list"))["events"]
        assert (listed["inputSchema"], listed["payloadSchema"]) == (schema, {"type": "object"})
        assert listed["delivery"] == ["push", "poll"]
        assert (await poll(wire, name="up_mail", arguments={"who": "ada"}))["cursor"] == "0"
        found = await poll(wire, "0", "up_mail", arguments={"who": "ada"}, maxEvents=5)
        assert (ids(found), found["cursor"]) == (["one"], "1")
        assert seen == [({"who": "ada"}, None, 500), ({"who": "ada"}, "0", 5)]
        request_id, active = await stream(wire, "up_mail", cursor="0")
        assert await events(wire, request_id, 1) == ["one"]
        wire.cancel(request_id)
        await asyncio.sleep(0)


def test_sources_that_cannot_be_are_refused() -> None:
    server = Server("mails")
    with pytest.raises(RegistrationError, match="every"):
        server.event_source("mail", every=0.0)(lambda cursor: Batch())
