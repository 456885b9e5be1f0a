"""The receiver of events as webhooks: what it believes, and when it says that an event was handled.

Spec: SEP-3415, webhook delivery (EVT-082, EVT-083); https://www.standardwebhooks.com.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from support.clock import turns
from support.http_peer import request, serving
from support.webhooks import post, sign

from mcpd import Server
from mcpd.client.receiver import MOST_BYTES, MOST_IDS, TOLERANCE, Hook, Receiver
from mcpd.errors import ConfigurationError

EVENT = {"eventId": "e-1", "name": "incident.created", "timestamp": "2026-11-28T10:00:00Z", "data": {"id": 7}}


class Heard:
    """What a hook is given. `release` lets the program have handled it, and `fails` makes it fail."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False

    async def __call__(self, kind: str, body: Any) -> None:
        self.messages.append((kind, json.loads(bytes(body))))
        await self.gate.wait()
        if self.fails:
            raise ValueError("the program failed")


def bound(heard: Heard, **options: Any) -> tuple[Receiver, Hook]:
    receiver = Receiver("https://me.example/hooks", **options)
    hook = receiver.hook(heard)
    hook.bind("sub_1")
    return receiver, hook


async def event(
    receiver: Receiver, hook: Hook, message_id: str = "e-1", *, sub: str = "sub_1", content: Any = EVENT, **changed: str
) -> int:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers = {**sign(hook.secret, message_id, body), "x-mcp-subscription-id": sub, **changed}
    return (await post(receiver, headers, body))[0]


async def test_a_signed_event_is_given_to_its_subscription() -> None:
    """EVT-082: the signature is that of the subscription's secret, over the bytes."""
    heard = Heard()
    receiver, hook = bound(heard)
    assert await event(receiver, hook) == 200
    assert heard.messages == [("event", EVENT)]


async def test_what_is_not_signed_with_the_secret_is_not_read() -> None:
    """EVT-082: another key, changed bytes, no signature, another version's signature."""
    heard = Heard()
    receiver, hook = bound(heard)
    other = Receiver("https://me.example/hooks").hook(heard)
    body = json.dumps(EVENT).encode()
    named = {"x-mcp-subscription-id": "sub_1"}
    right = sign(hook.secret, "e-1", body)

    assert (await post(receiver, {**sign(other.secret, "e-1", body), **named}, body))[0] == 401
    assert (await post(receiver, {**right, **named}, body + b" "))[0] == 401
    assert (await post(receiver, {**right, **named, "webhook-id": "e-2"}, body))[0] == 401
    assert (await post(receiver, {**right, **named, "webhook-signature": ""}, body))[0] == 400
    assert (await post(receiver, {**right, **named, "webhook-signature": "v2," + right["webhook-signature"]}, body))[
        0
    ] == 401
    assert (await post(receiver, named, body))[0] == 400
    assert (await post(receiver, {**right, **named, "webhook-signature": "v1,\u00e9"}, body))[0] == 401
    assert heard.messages == []


async def test_one_of_several_signatures_is_enough() -> None:
    """EVT-056: after a rotation the server signs with both secrets; `v1a` is passed over."""
    heard = Heard()
    receiver, hook = bound(heard)
    body = json.dumps(EVENT).encode()
    headers = {**sign(hook.secret, "e-1", body), "x-mcp-subscription-id": "sub_1"}
    headers["webhook-signature"] = f"v1a,AAAA v1,AAAA {headers['webhook-signature']}"
    assert (await post(receiver, headers, body))[0] == 200


@pytest.mark.parametrize("seconds", [-TOLERANCE - 10, TOLERANCE + 10])
async def test_an_old_or_future_time_is_refused(seconds: float) -> None:
    """EVT-082: the time is within five minutes, so that a recorded request cannot be sent again later."""
    heard = Heard()
    receiver, hook = bound(heard)
    body = json.dumps(EVENT).encode()
    headers = {**sign(hook.secret, "e-1", body, time.time() + seconds), "x-mcp-subscription-id": "sub_1"}
    assert (await post(receiver, headers, body))[0] == 401
    for stamp in ("", "now", "1e9", "-5", "9" * 400, "\u0661\u0662"):
        assert (await post(receiver, {**headers, "webhook-timestamp": stamp}, body))[0] == 400
    assert heard.messages == []


async def test_a_message_is_handled_once_for_each_subscription() -> None:
    """EVT-082: the same webhook-id again is accepted, and not given to the program."""
    heard = Heard()
    receiver, hook = bound(heard)
    second = receiver.hook(heard)
    second.bind("sub_2")
    assert [await event(receiver, hook) for _ in range(3)] == [200, 200, 200]
    assert len(heard.messages) == 1
    assert await event(receiver, second, sub="sub_2") == 200
    assert len(heard.messages) == 2


async def test_the_ids_that_are_remembered_are_limited() -> None:
    heard = Heard()
    receiver, hook = bound(heard)
    for number in range(MOST_IDS + 1):
        assert await hook.handle(f"e-{number}", "event", b"{}", 60)
    assert await hook.handle("e-1", "event", b"{}", 60)
    assert len(heard.messages) == MOST_IDS + 1
    assert await hook.handle("e-0", "event", b"{}", 60)
    assert len(heard.messages) == MOST_IDS + 2


async def test_a_2xx_comes_only_after_the_event_was_handled() -> None:
    """EVT-083: the program is still busy, and the server is not told yet that it has the event."""
    heard = Heard()
    heard.gate.clear()
    receiver, hook = bound(heard)
    answers = [asyncio.create_task(event(receiver, hook)) for _ in range(2)]
    await turns()
    assert not any(answer.done() for answer in answers)
    heard.gate.set()
    assert [await answer for answer in answers] == [200, 200]
    assert len(heard.messages) == 1


async def test_a_program_that_takes_long_gets_the_event_once() -> None:
    """EVT-083: 503 after a while; the repeated message waits for the same event."""
    heard = Heard()
    heard.gate.clear()
    receiver, hook = bound(heard, seconds=0.0)
    assert await event(receiver, hook) == 503
    assert await event(receiver, hook) == 503
    heard.gate.set()
    await turns()
    assert await event(receiver, hook) == 200
    assert len(heard.messages) == 1


async def test_a_failed_event_is_handled_again() -> None:
    """EVT-083: 503 if the program failed, and the next attempt is a new one."""
    heard = Heard()
    heard.fails = True
    receiver, hook = bound(heard)
    assert await event(receiver, hook) == 503
    heard.fails = False
    assert await event(receiver, hook) == 200
    assert len(heard.messages) == 2


async def test_an_unknown_subscription_is_answered_with_503() -> None:
    """EVT-083: an event that comes before the answer of events/subscribe is sent again; so is that of an old one."""
    heard = Heard()
    receiver = Receiver("https://me.example/hooks")
    hook = receiver.hook(heard)
    assert await event(receiver, hook) == 503
    hook.bind("sub_1")
    assert await event(receiver, hook) == 200
    assert not hook.close()
    assert await event(receiver, hook) == 503
    assert len(heard.messages) == 1


async def test_a_challenge_is_answered_before_the_subscription_has_an_id() -> None:
    """EVT-083: a verification is answered if a secret without an id verifies it, and no other."""
    heard = Heard()
    receiver = Receiver("https://me.example/hooks")
    hook = receiver.hook(heard)
    body = json.dumps({"type": "verification", "challenge": "c" * 43}).encode()
    for named in ({}, {"x-mcp-subscription-id": "sub_1"}):
        headers = {**sign(hook.secret, "msg_verification_1", body), **named}
        assert await post(receiver, headers, body) == (200, {"challenge": "c" * 43})

    hook.bind("sub_1")
    headers = {**sign(hook.secret, "msg_verification_2", body), "x-mcp-subscription-id": "sub_1"}
    assert await post(receiver, headers, body) == (200, {"challenge": "c" * 43})
    assert (await post(receiver, sign(hook.secret, "msg_verification_3", body), body))[0] == 503
    stranger = sign(Receiver("https://me.example/hooks").hook(heard).secret, "msg_verification_4", body)
    status, answer = await post(receiver, {**stranger, "x-mcp-subscription-id": "sub_1"}, body)
    assert status == 401
    assert "challenge" not in answer
    assert heard.messages == []


async def test_control_messages_are_given_with_their_type() -> None:
    heard = Heard()
    receiver, hook = bound(heard)
    gap = {"type": "gap", "cursor": "c-9"}
    assert await event(receiver, hook, "msg_gap_1", content=gap) == 200
    assert heard.messages == [("gap", gap)]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"event"', b"\xff\xfe", b'{"type": 7}'])
async def test_a_signed_body_that_is_no_object_is_refused(body: bytes) -> None:
    heard = Heard()
    receiver, hook = bound(heard)
    assert await event(receiver, hook, content=body) == 400
    assert heard.messages == []


async def test_two_subscriptions_with_one_id_both_receive() -> None:
    """The server keeps only the newer secret of the same subscription."""
    first, second = Heard(), Heard()
    receiver, hook = bound(first)
    again = receiver.hook(second)
    again.bind("sub_1")
    assert await event(receiver, again) == 200
    assert first.messages == second.messages == [("event", EVENT)]
    assert again.close()
    assert not hook.close()


async def test_asgi_reads_a_body_in_parts_and_refuses_others() -> None:
    heard = Heard()
    receiver, hook = bound(heard)
    body = json.dumps(EVENT).encode()
    headers = {**sign(hook.secret, "e-1", body), "X-MCP-Subscription-Id": "sub_1"}
    assert (await post(receiver, headers, body, size=7))[0] == 200
    assert (await post(receiver, headers, body, method="GET"))[0] == 405
    assert (await post(receiver, headers, b" " * (MOST_BYTES + 1), size=1 << 16))[0] == 413
    assert len(heard.messages) == 1


async def test_a_route_of_a_server_receives() -> None:
    """The receiver beside the endpoint of a server of mcpd, over HTTP."""
    heard = Heard()
    receiver, hook = bound(heard)
    server = Server("receives")
    server.route("/hooks", methods=["POST"], public=True)(receiver.route)
    body = json.dumps(EVENT).encode()
    headers = {**sign(hook.secret, "e-1", body), "X-MCP-Subscription-Id": "sub_1", "Content-Type": "application/json"}
    async with serving(server) as port:
        assert (await port.ask(request("POST", "/hooks", headers.items(), body))).status == 200
        forged = {**headers, "webhook-signature": "v1,AA"}
        assert (await port.ask(request("POST", "/hooks", forged.items(), body))).status == 401
    assert heard.messages == [("event", EVENT)]


@pytest.mark.parametrize("library", ["standardwebhooks", "svix.webhooks"])
async def test_other_libraries_sign_for_it(library: str) -> None:
    """EVT-082: standard senders are believed, and only with the secret of the subscription."""
    module = pytest.importorskip(library)
    heard = Heard()
    receiver, hook = bound(heard)
    text, now = json.dumps(EVENT, indent=1), datetime.now(UTC)
    for number, (secret, status) in enumerate(
        [(hook.secret, 200), (Receiver("https://me.example/x").hook(heard).secret, 401)]
    ):
        message_id = f"e-{number}"
        signature = module.Webhook(secret).sign(message_id, now, text)
        headers = {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": signature,
            "x-mcp-subscription-id": "sub_1",
        }
        assert (await post(receiver, headers, text.encode()))[0] == status
    assert len(heard.messages) == 1


@pytest.mark.parametrize(
    "url", ["http://me.example/", "me.example", "https://", "https://u@me.example/", "https://me.example/#a", ""]
)
def test_a_url_that_no_server_would_take_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="https URL"):
        Receiver(url)
