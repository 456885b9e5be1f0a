"""Which era answers a request over HTTP, over real sockets; and that no message is decoded twice on its way there."""

from __future__ import annotations

from types import CodeType, FrameType
from typing import Any

import pytest
from support.http_peer import META, MODERN, Headers, call, envelope, post, request, serving
from support.http_stage import Stage
from support.profiled import profiled

from mcpd.protocol import jsonrpc, session

LISTED = call("tools/list")
ENVELOPED = call("tools/list", {"_meta": envelope()})
VERSION = {"MCP-Protocol-Version": MODERN}
OLD = {"MCP-Protocol-Version": "2025-06-18"}
NO_SESSION = {"Mcp-Session-Id": "nobody-s"}


@pytest.mark.parametrize(
    ("message", "headers", "status", "code"),
    [
        # The header decides, even if the body has no envelope.
        (LISTED, VERSION, 400, -32602),
        # Without it the envelope does, whatever else the headers say: they do not match then.
        (ENVELOPED, {}, 400, -32020),
        (ENVELOPED, OLD, 400, -32020),
        (ENVELOPED, NO_SESSION, 400, -32020),
        # Then a method that only one era has, but not in a session.
        (call("server/discover"), {}, 400, -32602),
        (call("server/discover"), NO_SESSION, 404, -32600),
        # All else is legacy: alone, or of a session that is not there.
        (LISTED, {}, 200, None),
        (LISTED, OLD, 400, -32600),
        (LISTED, NO_SESSION, 404, -32600),
        ([LISTED], {}, 200, None),
        ([LISTED, {**ENVELOPED, "id": 2}], {}, 400, -32600),
        ([LISTED], VERSION, 400, -32600),
    ],
)  # fmt: skip
async def test_the_era_of_a_request(message: Any, headers: Headers, status: int, code: int | None) -> None:
    """S26-018, S26-029, S26-060: by its header, its `_meta`, its method."""
    async with serving(Stage().server) as port:
        answer = await port.ask(post(message, headers))
        assert answer.status == status
        assert (None if code is None else answer.code) == code


@pytest.mark.parametrize("is_enveloped", [False, True])
async def test_the_era_of_a_notification(is_enveloped: bool) -> None:
    """A modern one belongs to no session, and is taken; a legacy one names a session that is not there."""
    params = {"_meta": {f"{META}protocolVersion": MODERN}} if is_enveloped else {}
    message = {"jsonrpc": "2.0", "method": "notifications/no/such", "params": params}
    async with serving(Stage().server) as port:
        answer = await port.ask(post(message, NO_SESSION))
        assert answer.status == (202 if is_enveloped else 404)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_the_era_of_what_is_no_post(method: str) -> None:
    async with serving(Stage().server) as port:
        for headers, text in ((VERSION, "has only POST"), (NO_SESSION, "Session not found")):
            lines = [*headers.items(), ("Accept", "text/event-stream")]
            answer = await port.ask(request(method, "/mcp", lines))
            assert text in answer.text


async def test_a_message_is_decoded_once() -> None:
    """Its envelope by `jsonrpc.decode`, and the params of what is no request by the session, when it is received."""
    stage = Stage()
    decoded: list[CodeType] = []

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code in (jsonrpc.decode.__code__, session.Session.receive_notification.__code__):
            decoded.append(frame.f_code)

    message = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    answer = {"jsonrpc": "2.0", "id": 77, "result": {}}
    async with serving(stage.server) as port:
        client = await port.open()
        for posted, functions in ((message, 2), (answer, 1)):
            decoded.clear()
            with profiled(watch):
                assert (await client.post(posted)).status == 202
            assert len(decoded) == functions, decoded
