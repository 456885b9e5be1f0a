"""docs/events.md: its servers emit, and its programs receive, on a stream and as webhooks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from docs.test_routes import ask
from support.clock import until
from support.documentation import page_modules
from support.http_peer import serving
from support.webhook_receiver import Request, certificate, receiving, reply

from mcpd import Client
from mcpd.client import UrlTarget
from mcpd.errors import RemoteError
from mcpd.server.extensions.events.settings import Events
from mcpd.transports.guards import Access

__all__ = ["page_modules"]

Pages = Callable[..., list[ModuleType]]
FIRST, SECOND = {"incident_id": "PD-1", "severity": "P2"}, {"incident_id": "PD-2", "severity": "P1"}


async def test_a_loop_receives_what_fits(page_modules: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    page, program = page_modules("events", "server", "client")
    async with Client(page.server) as client, client.events("incident.created") as everything:
        running = asyncio.create_task(program.main(page.server))
        for incident in (FIRST, SECOND):
            body = json.dumps(incident).encode()
            status, answer = await ask(page.server, "POST", "/hooks/pagerduty", body)
            assert (status, answer.decode()) == (200, incident["incident_id"])
        assert [(await anext(everything)).data for _ in range(2)] == [FIRST, SECOND]
        await until(lambda: (page.server.emit("incident.created", SECOND), running.done())[1])
        cursor = await running
        assert cursor
        page.server.emit("incident.created", {**SECOND, "incident_id": "PD-3"}, id="PD-3")
        assert await program.main(page.server, everything.cursor)
    assert capsys.readouterr().out.splitlines()[-1].split()[1] in ("PD-2", "PD-3")


async def test_who_receives_what(page_modules: Pages) -> None:
    """Without the scope, the mail is not sent; without the right, there is no subscription."""
    (page,) = page_modules("events", "private")
    async with Client(page.server) as client:
        async with client.events("mail.received", {"folder": "inbox"}) as events:
            page.mail_received.emit({"folder": "spam", "subject": "x"})
            page.mail_received.emit({"folder": "inbox", "subject": "Hello"}, id="m-1")
            event = await anext(events)
            assert (event.id, event.data) == ("m-1", {"folder": "inbox", "subject": "***"})
        with pytest.raises(RemoteError) as caught:
            await client.events("mail.received", {"folder": "board"}).__aenter__()
        assert caught.value.code == -32024


async def test_settings(page_modules: Pages) -> None:
    page_modules("events", "durable")


async def test_webhooks_are_received(page_modules: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """From consent to unsubscribe over TLS: our receiver judges our sender."""
    page, program = page_modules("events", "server", "receiving")
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate()}.crt")
    async with receiving() as front:
        front.host = "localhost"
        program.receiver.url = f"{front.origin}/hooks"

        async def pass_on(request: Request, writer: asyncio.StreamWriter) -> None:
            answer = await program.receiver.receive(request.headers, request.body)
            writer.write(reply(answer.status, json.dumps(answer.body).encode()))

        front.answer = lambda request: pass_on
        extension: Any = next(each for each in page.server.extensions.values() if hasattr(each, "webhooks"))
        extension.hub.settings = Events(allow_private=(front.origin,))
        async with serving(page.server, access=Access(token="open-sesame")) as port:
            target = UrlTarget(port.listener.url, headers={"Authorization": "Bearer open-sesame"})
            running = asyncio.create_task(program.main(target))
            await until(lambda: running.done() or (extension.webhooks and extension.webhooks.status()))
            page.server.emit("incident.created", SECOND, id="PD-2")
            event = await running
            assert (event.id, event.data) == ("PD-2", SECOND)
            assert not extension.webhooks.status()
        assert [request.json["type"] for request in front.requests if "type" in request.json] == ["verification"]
        assert {request.id for request in front.events} == {"PD-2"}
