"""Webhooks of a server as clients subscribe to them over HTTP, and as a receiver gets them over TLS."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Struct
from support.clock import until
from support.http_peer import Port, modern, serving
from support.webhook_receiver import Receiver, certificate, receiving, reply
from support.webhook_stage import secret_of

from mcpd import Batch, EventContext, Events, Found, Principal, Refusal, Server
from mcpd.server.extensions.events.webhook.send import Sender
from mcpd.server.observe.watching import events_of


class Incident(Struct):
    number: int
    severity: Literal["P1", "P2"] = "P1"


def authenticate(headers: Mapping[str, str]) -> Principal | Refusal:
    token = headers.get("authorization", "").removeprefix("Bearer ")
    user, *scopes = token.split("+")
    return Principal(user, scopes=scopes) if token else Refusal(401, "who?")


class Stage:
    """A server of one event type behind HTTP, whose callers are named by their tokens, and a receiver."""

    def __init__(self, server: Server, port: Port, receiver: Receiver) -> None:
        self.server, self.port, self.receiver = server, port, receiver
        self.hooked: list[str] = []

    async def ask(self, method: str, params: dict[str, Any], by: str = "ada") -> Any:
        answer = await self.port.ask(modern(method, params, {"Authorization": f"Bearer {by}"}))
        return answer.json

    def params(self, path: str = "/in", **more: Any) -> dict[str, Any]:
        delivery = {"mode": "webhook", "url": self.receiver.origin + path, "secret": secret_of()}
        return {"name": "incident", "delivery": {**delivery, **more.pop("delivery", {})}, **more}

    async def subscribe(self, by: str = "ada", **more: Any) -> Any:
        return (await self.ask("events/subscribe", self.params(**more), by))["result"]

    async def refused(self, by: str = "ada", **more: Any) -> Any:
        return (await self.ask("events/subscribe", self.params(**more), by))["error"]


@asynccontextmanager
async def staged(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[Stage]:
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate()}.crt")
    monkeypatch.setattr(Sender, "connect_seconds", 600.0)
    monkeypatch.setattr(Sender, "seconds", 600.0)
    async with receiving() as receiver:
        receiver.host = "localhost"
        server = Server(
            "hooks",
            events=Events(allow_private=(receiver.origin,), **settings),
            authenticate=authenticate,
            state_key=b"the state key of this server",
        )

        @server.event("incident", payload=Incident)
        def incident(event: Incident, severity: Literal["P1", "P2"] | None = None) -> bool:
            return severity in (None, event.severity)

        async with serving(server) as port:
            stage = Stage(server, port, receiver)

            @incident.subscribed
            def subscribed(ctx: Any, arguments: Any) -> None:
                stage.hooked.append("subscribed")

            @incident.unsubscribed
            def unsubscribed(ctx: Any, arguments: Any) -> None:
                stage.hooked.append("unsubscribed")

            yield stage


async def test_two_users_from_consent_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """EVT-035, EVT-038, EVT-039, EVT-040, EVT-046, EVT-047, EVT-049, EVT-054, EVT-070: each gets its own."""
    async with staged(monkeypatch) as stage:
        ada = await stage.subscribe()
        bob = await stage.subscribe("bob", arguments={"severity": "P2"})
        assert ada["id"] != bob["id"]
        assert re.fullmatch("sub_[0-9a-f]{32}", ada["id"])
        assert (await stage.ask("events/unsubscribe", {"id": ada["id"]}))["error"]["code"] == -32602
        assert ada["resultType"] == "complete"
        assert ada["truncated"] is False
        assert ada["cursor"] is not None
        assert ada["refreshBefore"].endswith("Z")
        assert stage.hooked == ["subscribed", "subscribed"]
        stage.server.emit("incident", Incident(1), id="E1")
        stage.server.emit("incident", {"number": 2, "severity": "P2"}, id="E2")
        stage.server.emit("incident", Incident(3, "P2"), id="E3", to="ada")
        await stage.server.flush()
        received = [(each.headers["x-mcp-subscription-id"], each.id) for each in stage.receiver.events]
        assert sorted(received) == sorted([(ada["id"], "E1"), (ada["id"], "E2"), (ada["id"], "E3"), (bob["id"], "E2")])
        assert events_of(stage.server) == {"emitted": 3, "delivered": 4, "failed": 0, "subscriptions": 2}
        again = await stage.subscribe()
        assert again["id"] == ada["id"]
        assert again["deliveryStatus"]["active"] is True
        answer = await stage.ask("events/unsubscribe", stage.params(), "bob")
        assert answer["error"]["data"] == {"kind": "subscription"}  # not with these arguments
        assert (await stage.ask("events/unsubscribe", stage.params()))["result"]["resultType"] == "complete"
        assert stage.hooked[2:] == ["unsubscribed"]
        stage.server.emit("incident", Incident(4, "P2"), id="E4")
        await stage.server.flush()
        assert [each.headers["x-mcp-subscription-id"] for each in stage.receiver.events[4:]] == [bob["id"]]
        await stage.server.revoke("bob")  # no function decides about this type, so this ends it
        stage.server.emit("incident", Incident(5, "P2"), id="E5")
        await stage.server.flush()
        assert len(stage.receiver.events) == 5
        await stage.receiver.until(lambda: stage.receiver.controls("terminated"))


async def test_what_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """EVT-008, EVT-009, EVT-010, EVT-013, EVT-036, EVT-037, EVT-042."""
    async with staged(monkeypatch) as stage:
        for code, more in (
            (-32602, {"delivery": {"url": "http://localhost/in"}}),
            (-32602, {"delivery": {"url": f"{stage.receiver.origin}/#x"}}),
            (-32602, {"delivery": {"secret": "whsec_short"}}),
            (-32602, {"ttlMs": -1}),
            (-32602, {"arguments": {"severity": "P9"}}),
            (-32023, {"name": "nothing"}),
            (-32026, {"delivery": {"mode": "pigeon"}}),
        ):
            error = await stage.refused(**more)  # type: ignore[arg-type]
            assert error["code"] == code, error
            assert secret_of()[6:] not in json.dumps(error)
        assert stage.receiver.requests == []
        stage.receiver.answer = lambda _: reply(500)
        error = await stage.refused()
        assert (error["code"], error["data"]) == (-32027, {"reason": "challenge_failed"})
        assert stage.hooked == []


async def test_a_type_that_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """EVT-069, EVT-065."""
    async with staged(monkeypatch) as stage:
        await stage.subscribe()
        stage.server.remove_event("incident")
        await stage.receiver.until(lambda: stage.receiver.controls("terminated"))
        error = stage.receiver.controls("terminated")[0].json["error"]
        assert (error["code"], error["data"]) == (-32023, {"kind": "event"})


async def test_a_cursor_brings_what_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """EVT-045, EVT-021: a foreign cursor is a gap."""
    async with staged(monkeypatch) as stage:
        first = await stage.subscribe()
        await stage.ask("events/unsubscribe", stage.params())
        for number in range(1, 4):
            stage.server.emit("incident", Incident(number), id=f"E{number}")
        await stage.server.flush()
        again = await stage.subscribe(cursor=first["cursor"])
        assert again["truncated"] is False
        await stage.server.flush()
        assert sorted(each.id for each in stage.receiver.events) == ["E1", "E2", "E3"]
        assert (await stage.subscribe("bob", cursor="foreign"))["truncated"] is True


async def test_a_file_keeps_all_over_a_restart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """EVT-016, EVT-044, EVT-073: another process goes on; a cursor from before is good after."""
    store = f"sqlite://{tmp_path}/events.db"
    async with staged(monkeypatch, store=store) as stage:
        first = await stage.subscribe()
        receiver = stage.receiver
        stage.server.emit("incident", Incident(1), id="E1")
        await stage.server.flush()
        await receiver.until(lambda: receiver.events)
        poll = {"name": "incident", "cursor": None}
        cursor = (await stage.ask("events/poll", poll))["result"]["cursor"]
        stage.server.emit("incident", Incident(2), id="E2")
        await stage.server.flush()
    async with staged(monkeypatch, store=store) as stage:
        found = await stage.ask("events/poll", {"name": "incident", "cursor": cursor})
        assert [each["eventId"] for each in found["result"]["events"]] == ["E2"]
        assert found["result"]["truncated"] is False
        assert [each["id"] for each in stage.server.extensions["io.modelcontextprotocol/events"].webhooks.status()] == [
            first["id"]
        ]


async def test_emit_from_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5: from any thread; each event arrives once."""
    async with staged(monkeypatch) as stage:
        await stage.subscribe()

        def emit(start: int) -> None:
            for number in range(start, start + 25):
                stage.server.emit("incident", Incident(number), id=f"E{number}")

        await asyncio.gather(*(asyncio.to_thread(emit, start) for start in (0, 100, 200)))
        await stage.receiver.until(lambda: len(stage.receiver.events) == 75)
        await stage.server.flush()
        assert len({each.id for each in stage.receiver.events}) == 75


async def test_a_refresh_that_is_forbidden_ends_the_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    """EVT-067, EVT-068: it is told, and nothing follows."""
    async with staged(monkeypatch) as stage:
        is_allowed = True

        @stage.server._events.hub.kinds["incident"].authorize
        def may(ctx: Any, arguments: Any) -> bool:
            return is_allowed

        await stage.subscribe()
        is_allowed = False
        assert (await stage.refused())["code"] == -32024
        await until(lambda: any(b'"terminated"' in each.body for each in stage.receiver.requests))
        stage.server.emit("incident", Incident(1), id="E1")
        await stage.server.flush()
        assert not stage.receiver.events


async def test_events_of_another_system_reach_the_webhooks_with_their_arguments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """EVT-016, EVT-054: one watch for all subscribers with the same arguments, which ends with the last."""
    async with staged(monkeypatch) as stage:
        mails = [(1, "eve")]

        @stage.server.event_source("mail", every=1.0)
        def mail(cursor: str | None, sender: str) -> Batch[dict[str, Any]]:
            """A mail has arrived."""
            last = len(mails) if cursor is None else int(cursor)
            found = [Found({"n": n}, id=f"m{n}") for n, who in mails if n > last and who == sender]
            return Batch(events=found, cursor=str(len(mails)))

        mail.every = 0.01  # type: ignore[attr-defined]
        watches = stage.server._events.hub.watches
        for by, path in (("ada", "/ada"), ("bob", "/bob"), ("ada", "/eve")):
            arguments = {"sender": "eve" if path == "/eve" else "dan"}
            params = {**stage.params(path), "name": "mail", "arguments": arguments}
            answer = await stage.ask("events/subscribe", params, by)
            assert "result" in answer, answer
        assert len(watches) == 2
        for watch in watches.values():
            await watch.has_begun.wait()
        mails.extend([(2, "dan"), (3, "eve")])
        await until(lambda: len(stage.receiver.events) == 3)
        seen = sorted((each.path, each.id, each.json["data"]["n"]) for each in stage.receiver.events)
        assert seen == [("/ada", "m2", 2), ("/bob", "m2", 2), ("/eve", "m3", 3)]
        for by, path in (("ada", "/ada"), ("bob", "/bob"), ("ada", "/eve")):
            arguments = {"sender": "eve" if path == "/eve" else "dan"}
            params = {**stage.params(path), "name": "mail", "arguments": arguments}
            assert "result" in await stage.ask("events/unsubscribe", params, by)
        assert not watches


async def test_a_refresh_brings_the_rights_of_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """EVT-070: a function sees the scopes of the last refresh, not those of the first request."""
    async with staged(monkeypatch) as stage:

        @stage.server.event("mail")
        def mail(event: dict[str, Any], *, ctx: EventContext) -> dict[str, Any]:
            """A mail has arrived."""
            return event if "read" in ctx.scopes else {"n": 0}

        params = {**stage.params(), "name": "mail"}
        for by in ("ada+read", "ada", "ada+read"):
            assert "result" in await stage.ask("events/subscribe", params, by)
            stage.server.emit("mail", {"n": 1})
            await stage.server.flush()
        assert [each.json["data"]["n"] for each in stage.receiver.events] == [1, 0, 1]


async def test_events_of_two_types_may_have_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """EVT-070: each is judged by its own payload."""
    async with staged(monkeypatch) as stage:

        @stage.server.event("closed", payload=Incident, on="severity")
        def closed(event: Incident, severity: Literal["P1", "P2"]) -> bool:
            """An incident was closed."""
            return event.severity == severity

        await stage.subscribe(arguments={"severity": "P1"})
        await stage.subscribe("bob", name="closed", arguments={"severity": "P2"})
        stage.server.emit("incident", Incident(1, "P1"), id="E1")
        stage.server.emit("closed", Incident(1, "P2"), id="E1")
        stage.server.emit("incident", Incident(2, "P2"), id="E2")
        stage.server.emit("closed", Incident(2, "P1"), id="E2")
        await stage.server.flush()
        assert sorted((each.json["name"], each.id) for each in stage.receiver.events) == [
            ("closed", "E1"), ("incident", "E1"),
        ]  # fmt: skip


async def test_a_source_serves_streams_and_webhooks_without_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """EVT-023: an event for a webhook does not move the streams of its type."""
    async with staged(monkeypatch) as stage:
        mails = [1]

        @stage.server.event_source("mail", every=1.0)
        def mail(cursor: str | None) -> Batch[dict[str, Any]]:
            """A mail has arrived."""
            last = len(mails) if cursor is None else int(cursor)
            return Batch(events=[Found({"n": n}, id=f"m{n}") for n in mails[last:]], cursor=str(len(mails)))

        mail.every = 0.01  # type: ignore[attr-defined]
        for path in ("/a", "/b"):
            await stage.subscribe(path=path, name="mail")
        headers = {"Authorization": "Bearer ada"}
        peer = await stage.port.connect()
        peer.send(modern("events/stream", {"name": "mail", "cursor": "1"}, headers))
        await peer.head()
        assert (await peer.message())["method"] == "notifications/events/active"
        for number in range(2, 5):
            mails.append(number)
            while (message := await peer.message())["method"] != "notifications/events/event":
                pass
            assert message["params"]["eventId"] == f"m{number}"
