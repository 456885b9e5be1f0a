"""A server with `mcp-webhook-events`, in an environment of its own. Its webhooks go to a port of the loopback."""

from __future__ import annotations

import http.client
import sys

from mcp.server import MCPServer
from mcp_webhook_events import EventDefinition, McpEvents, SafeHttp

STORE, PORT = sys.argv[1], int(sys.argv[2])
TICKET = {"type": "object", "properties": {"ticket_id": {"type": "string"}}}


class Proxied(SafeHttp):
    """Sends to the receiver as a proxy with a certificate would."""

    def post(self, url: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        self.check_url(url)
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
        connection.request("POST", "/hooks", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


server = MCPServer("tickets")
kind = EventDefinition(
    name="ticket.updated", description="A ticket was updated.", input_schema=TICKET, payload_schema=TICKET
)
events = McpEvents(server, STORE, [kind], http=Proxied(), principal=lambda context: "ann")
events.install()


@server.tool()
def publish(ticket_id: str, event_id: str) -> int:
    """Publish an event, and send what waits."""
    events.publish("ticket.updated", {"ticket_id": ticket_id}, event_id=event_id)
    return int(events.deliver_pending().get("delivered", 0))


@server.tool()
def subscriptions() -> int:
    """Count the subscriptions."""
    return len(events.active_subscriptions())


server.run("stdio")
