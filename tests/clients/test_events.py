"""Events between this library and others: the AI SDK as a client, `mcp-webhook-events` as a server.

Run by `make clients`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY
from support.http_peer import serving
from support.webhook_receiver import certificate

from mcpd import Client, Events, Server
from mcpd.client import Receiver
from mcpd.errors import RemoteError
from mcpd.transports.guards import Access

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

NODE = REPOSITORY / ".tools" / "bin" / "node"
SCRIPT = Path(__file__).with_name("js") / "ai_sdk_events.mjs"
TOKEN = "open-sesame"

INTERPRETER = REPOSITORY / ".tools" / "clients" / "webhook-events" / "bin" / "python"
TICKETS = Path(__file__).with_name("serve_webhook_events.py")


class Program:
    """The program of the AI SDK, in lines of JSON."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def said(self, member: str) -> Any:
        """The next line, which has this member."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        found = json.loads(line or b"{}")
        assert member in found, (found, line)
        return found[member]

    def tell(self, line: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())


def pager(origin: str) -> Server:
    server = Server("pager", events=Events(allow_private=(origin,)))

    @server.event("incident.created")
    def incident_created(event: dict[str, Any], severity: str | None = None) -> bool:
        """A new incident was opened."""
        return severity in (None, event["severity"])

    return server


async def test_ai_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """EVT-038, EVT-040, EVT-041, EVT-046, EVT-050, EVT-054, EVT-055, as another library reads them."""
    if not (NODE.exists() and (SCRIPT.parent / "node_modules").is_dir()):
        pytest.skip("needs the AI SDK: make clients installs it")
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate()}.crt")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(NODE, SCRIPT, certificate(), TOKEN, stdin=pipe, stdout=pipe)
    program = Program(process)
    try:
        server = pager(await program.said("origin"))
        async with serving(server, access=Access(token=TOKEN)) as port:
            program.tell(port.listener.url)
            (kind,) = await program.said("listed")
            assert (kind["name"], sorted(kind["delivery"])) == ("incident.created", ["poll", "push", "webhook"])
            subscribed = await program.said("subscribed")
            assert subscribed["id"].startswith("sub_")

            server.emit("incident.created", {"severity": "P2"}, id="PD-1")
            server.emit("incident.created", {"severity": "P1"}, id="PD-2")
            event = await program.said("event")
            assert (event["eventId"], event["data"]) == ("PD-2", {"severity": "P1"})

            program.tell("refresh")
            refreshed = await program.said("refreshed")
            assert refreshed["id"] == subscribed["id"]
            server.emit("incident.created", {"severity": "P1"}, id="PD-3")
            assert (await program.said("event"))["eventId"] == "PD-3"

            program.tell("unsubscribe")
            assert await program.said("left") == 0
            assert process.stdin is not None
            process.stdin.close()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_mcp_webhook_events(tmp_path: Path) -> None:
    """EVT-082, EVT-083: our client subscribes to a server of another library, in the profile of ChatGPT."""
    if not INTERPRETER.exists():
        pytest.skip("needs mcp-webhook-events: make clients installs it")
    receiver, front = Receiver("https://me.example/hooks", seconds=60), Server("front")
    front.route("/hooks", methods=["POST"], public=True)(receiver.route)
    async with serving(front) as port:
        command = [str(INTERPRETER), str(TICKETS), str(tmp_path / "events.db"), str(port.number)]
        async with Client(command, webhook=receiver) as client:
            (kind,) = await client.list_events()
            assert (kind.name, kind.delivery) == ("ticket.updated", ["webhook"])
            async with client.events("ticket.updated", {"ticket_id": "T-1"}) as events:
                assert events.mode == "webhook"
                await client.call("publish", ticket_id="T-2", event_id="a")
                sent = asyncio.create_task(client.call("publish", ticket_id="T-1", event_id="b"))
                event = await anext(events)
                assert (event.id, event.data, event.cursor) == ("b", {"ticket_id": "T-1"}, None)
                following = asyncio.create_task(anext(events))
                await sent
                sent = asyncio.create_task(client.call("publish", ticket_id="T-1", event_id="c"))
                assert (await following).id == "c"
            await sent
            assert await client.call("subscriptions") == {"result": 0}

            with pytest.raises(RemoteError) as caught:
                await client.events("ticket.updated", {"ticket_id": 7}).__aenter__()
            assert caught.value.code == -32602
