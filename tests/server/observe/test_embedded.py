"""Metrics of a server that is an ASGI application in somebody else's server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.json import decode
from prometheus_client.parser import text_string_to_metric_families
from support.http_peer import initialize, modern, post, request

from mcpd import Server
from mcpd.errors import ConfigurationError
from mcpd.server.http.app import HttpApp


async def asked(app: HttpApp, data: bytes) -> tuple[int, bytes]:
    """One request as an ASGI server hands it over: its status and its body."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = [(name.lower().encode(), value.encode()) for name, _, value in (line.partition(": ") for line in lines)]
    method, path, _ = first.split(" ")
    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "headers": headers, "client": ("1", 1)}
    sent: list[Any] = []
    received: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if received:
            await asyncio.Event().wait()
        received.append(body)
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


TOKEN = ("Authorization", "Bearer open")


async def test_metrics_in_another_server() -> None:
    """OBS-04: `/metrics` and `/statusz` beside the endpoint, with the token alone."""
    server = Server("embedded", version="3")
    server.tool(name="echo")(lambda: "x")
    app = server.asgi_app(token="open", metrics=True)
    try:
        assert (await asked(app, modern("tools/call", {"name": "echo"}, dict([TOKEN]))))[0] == 200
        assert (await asked(app, post(initialize(), dict([TOKEN]))))[0] == 200
        for path in ("/metrics", "/statusz"):
            status, body = await asked(app, request("GET", path))
            assert status == 401
            assert b"embedded" not in body
        status, body = await asked(app, request("GET", "/metrics", [TOKEN]))
        assert status == 200
        found = {
            (sample.name, sample.labels.get("gen_ai_tool_name", "")): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }
        assert found["mcp_server_operation_duration_seconds_count", "echo"] == 1
        assert found["mcpd_refused_total", ""] == 2
        assert found["mcpd_sessions", ""] == 1
        assert ("mcpd_loop_lag_seconds", "") in found
        status, body = await asked(app, request("GET", "/statusz", [TOKEN]))
        assert (status, b'"state":"ready"' in body, b'"name":"embedded"' in body) == (200, True, True)
    finally:
        await app.aclose()
    assert app.on_stop is not None
    app.on_stop()  # twice does no harm


async def test_events_are_counted() -> None:
    """On `/metrics` and `/statusz`: what was emitted, delivered and has failed, and the subscriptions."""
    server = Server("events")

    @server.event("made")
    def made(event: dict[str, Any], number: int = 0) -> bool:
        return bool(number / event["number"] == 1)

    app = server.asgi_app(token="open", metrics=True)
    try:

        async def poll(cursor: str | None) -> Any:
            params = {"name": "made", "arguments": {"number": 1}, "cursor": cursor}
            status, body = await asked(app, modern("events/poll", params, dict([TOKEN])))
            assert status == 200
            return decode(body)["result"]

        cursor = (await poll(None))["cursor"]
        for number in (0, 1, 2):
            made.emit({"number": number})
        assert [each["data"] for each in (await poll(cursor))["events"]] == [{"number": 1}]
        counts = {"emitted": 3, "delivered": 1, "failed": 1, "subscriptions": 0}
        assert decode((await asked(app, request("GET", "/statusz", [TOKEN])))[1])["events"] == counts
        told = (await asked(app, request("GET", "/metrics", [TOKEN])))[1].decode()
        for line in ("emitted_total 3", "delivered_total 1", "failed_total 1", "subscriptions 0"):
            assert f"\nmcpd_events_{line}\n" in told
    finally:
        await app.aclose()


@pytest.mark.parametrize("more", [{}, {"authenticate": lambda headers: None}])
def test_never_open(more: Any) -> None:
    """OBS-04: nothing is known of where it listens, so that a token is needed."""
    with pytest.raises(ConfigurationError, match="token="):
        Server("open").asgi_app(metrics=True, **more)


def test_without_it_nothing_is_counted() -> None:
    server = Server("plain")
    assert server.asgi_app().on_stop is None
    assert not server.observers
