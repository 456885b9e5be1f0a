"""Do streams stream: a proxy that keeps what it gets until it is enough makes a server look as if it hung."""

from __future__ import annotations

import time

from mcpd.doctor.dialogue import WITH_HANDSHAKE, WITHOUT_HANDSHAKE, NoAnswer, modern_params
from mcpd.doctor.endpoint import Endpoint, modern_headers
from mcpd.doctor.report import Report
from mcpd.doctor.web import Reply
from mcpd.protocol.printable import printable

_SECONDS = 5.0
"""How long a stream may take to begin."""

_SLOW_SECONDS = 1.0


async def try_streams(endpoint: Endpoint, report: Report) -> None:
    """Open the stream on which a server tells what changes, and see when it begins."""
    web, patience = endpoint.web, endpoint.web.timeout
    web.timeout = min(patience, _SECONDS)
    began = time.monotonic()
    try:
        if endpoint.wants_handshake:
            version = WITH_HANDSHAKE
            fields = {"Accept": "text/event-stream", "MCP-Protocol-Version": version}
            if endpoint.session is not None:
                fields["Mcp-Session-Id"] = endpoint.session
            reply = await web.ask("GET", fields, until=lambda data: True)
        else:
            version = WITHOUT_HANDSHAKE
            params = modern_params(version, {"notifications": {"toolsListChanged": True}})
            message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
            reply = await web.post(message, modern_headers(version, "subscriptions/listen"))
    except NoAnswer:
        text = f"a stream did not begin within {web.timeout:g} s"
        report.warn("streams", text, _HOW, seconds=time.monotonic() - began)
        return
    finally:
        web.timeout = patience
    _judge(reply, report)


_HOW = (
    "a proxy in front of it keeps back what it gets: switch its buffering off (nginx: proxy_buffering off, or let the "
    "server send X-Accel-Buffering: no), and its compression of event streams"
)


def _judge(reply: Reply, report: Report) -> None:
    through = reply.headers.get("via") or reply.headers.get("server") or ""
    named = f", through {printable(through)}" if through else ""
    if reply.kind != "text/event-stream":
        report.ok(
            "streams", f"it has none to listen on (status {reply.status}): changes are not told", status=reply.status
        )
    elif reply.headers.get("content-encoding", "identity") != "identity":
        text = f"the stream is compressed ({printable(reply.headers['content-encoding'])}){named}"
        report.warn("streams", text, _HOW)
    elif reply.head_seconds > _SLOW_SECONDS:
        report.warn("streams", f"one began after {reply.head_seconds:.1f} s{named}", _HOW, seconds=reply.head_seconds)
    else:
        report.ok("streams", f"one began at once{named}", seconds=reply.head_seconds)
