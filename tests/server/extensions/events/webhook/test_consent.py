"""Consent before the first delivery: challenges, allow-lists and well-known documents, and how each may be abused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.webhook_receiver import Receiver, Request, patient, receiving, reply, trusting

from mcpd.server.extensions.events.webhook.consent import CHALLENGES, Consent, Refused, TooManyChallenges
from mcpd.server.extensions.events.webhook.send import Sender, sign

KEY = bytes(range(32))
WELL_KNOWN = "/.well-known/mcp-webhook-receiver.json"


class Stage:
    """A receiver, and the consent that it is asked for; `now` is the time of the clock."""

    def __init__(self, receiver: Receiver, sender: Sender, *allow: str) -> None:
        self.receiver, self.sender, self.now = receiver, sender, 1_700_000_000.0
        self.consent = Consent(sender, [receiver.origin + path for path in allow])
        self.consent.clock = lambda: self.now

    async def ask(self, principal: str = "ada", path: str = "/in") -> None:
        await self.consent.ask(principal, self.receiver.origin + path, "sub_1", KEY)


@asynccontextmanager
async def stage(*allow: str) -> AsyncIterator[Stage]:
    async with receiving() as receiver:
        sender = patient(Sender([receiver.origin], trusting(), receiver.resolve))
        yield Stage(receiver, sender, *allow)
        await sender.aclose()


async def test_the_challenge_is_signed_and_headed_as_a_delivery() -> None:
    """EVT-050."""
    async with stage() as each:
        await each.ask()
        request = each.receiver.requests[0]
        assert set(request.json) == {"type", "challenge"}
        assert len(request.json["challenge"]) >= 43  # 32 bytes
        assert request.id.startswith("msg_verification_")
        assert request.headers["x-mcp-subscription-id"] == "sub_1"
        stamp = int(request.headers["webhook-timestamp"])
        assert request.headers["webhook-signature"] == sign([KEY], request.id, stamp, request.body)
        await each.ask()
        assert len(each.receiver.requests) == 1


async def test_consent_is_for_one_principal_and_one_url() -> None:
    """EVT-049: and it ends after a day."""
    async with stage() as each:
        await each.ask()
        assert each.consent.is_given("ada", each.receiver.origin + "/in")
        assert not each.consent.is_given("bob", each.receiver.origin + "/in")
        assert not each.consent.is_given("ada", each.receiver.origin + "/in?x")
        await each.ask("bob")
        assert len({request.json["challenge"] for request in each.receiver.requests}) == 2
        each.now += 24 * 3600
        assert not each.consent.is_given("ada", each.receiver.origin + "/in")


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"null", b'{"challenge":"x"}', b'{"challenge":null}', b'{"challenge":"\\ud800"}', b"[]", b"\xff",
     b"{" * 5000],
)  # fmt: skip
async def test_another_echo_is_no_consent(body: bytes) -> None:
    """EVT-051."""
    async with stage() as each:
        each.receiver.answer = lambda request: reply(404) if request.method == "GET" else reply(200, body)
        with pytest.raises(Refused, match="challenge_failed"):
            await each.ask()
        assert not each.consent.is_given("ada", each.receiver.origin + "/in")


@pytest.mark.parametrize("status", [302, 400, 401, 500, 503])
async def test_an_echo_needs_a_status_of_success(status: int) -> None:
    """EVT-051: a reachable receiver that does not echo has failed the challenge, whatever its status."""
    async with stage() as each:

        def answer(request: Request) -> bytes:
            if request.method == "GET":
                return reply(404)
            return reply(status, json.dumps({"challenge": request.json["challenge"]}).encode())

        each.receiver.answer = answer
        with pytest.raises(Refused, match="challenge_failed"):
            await each.ask()


async def test_a_receiver_that_cannot_be_reached_is_told_by_its_category() -> None:
    """EVT-051, EVT-064."""
    async with stage() as each:
        each.receiver.host = "nowhere.example.net"
        each.sender.connect_seconds = 0.05
        each.receiver.resolve = None  # type: ignore[method-assign, assignment]
        with pytest.raises(Refused, match="connection_refused"):
            await each.ask()

        async def mute(request: Request, writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

    async with stage() as each:
        each.receiver.answer = lambda request: mute
        each.sender.seconds = 0.2
        with pytest.raises(Refused, match="timeout"):
            await each.ask()


async def test_two_that_ask_at_once_are_one_challenge() -> None:
    """EVT-052: one in flight for each principal and URL."""
    async with stage() as each:
        gate = asyncio.Event()

        async def late(request: Request, writer: asyncio.StreamWriter) -> None:
            await gate.wait()
            writer.write(each.receiver.usual(request))

        each.receiver.answer = lambda request: late
        asking = [asyncio.ensure_future(each.ask()) for _ in range(3)]
        await each.receiver.until(lambda: each.receiver.requests)
        gate.set()
        await asyncio.gather(*asking)
        assert len(each.receiver.requests) == 1


async def test_a_host_is_not_flooded_with_challenges() -> None:
    """EVT-052: five a minute, whatever the path and whoever asks."""
    async with stage() as each:
        each.receiver.answer = lambda request: reply(404)
        for number in range(CHALLENGES):
            with pytest.raises(Refused):
                await each.ask(f"principal {number}", f"/in?{number}")
        count = len(each.receiver.requests)
        with pytest.raises(TooManyChallenges):
            await each.ask("one more")
        assert len(each.receiver.requests) == count
        each.now += 60
        with pytest.raises(Refused):
            await each.ask("one more")


async def test_an_operator_vouches_for_a_prefix() -> None:
    """EVT-049: no request is sent; what is beside the prefix is challenged."""
    async with stage("/hooks/") as each:
        await each.ask(path="/hooks/a?b")
        assert each.receiver.requests == []
        await each.ask(path="/hooksome")
        await each.ask(path="/hooks/../admin")
        await each.ask(path="/hooks/..;/admin")  # some servers drop what is behind the semicolon
        assert len(each.receiver.controls("verification")) == 3


def documented(prefixes: Any, *headers: str) -> Any:
    def answer(request: Request) -> bytes:
        if request.path == WELL_KNOWN:
            return reply(200, json.dumps({"receivers": prefixes}).encode(), *headers)
        return reply(404)

    return answer


async def test_the_document_of_the_origin_is_consent() -> None:
    """EVT-053: for whole segments, and for as long as its headers say, an hour at most."""
    async with stage() as each:
        each.receiver.answer = documented(["/in/"], "Cache-Control: max-age=7200")
        await each.ask(path="/in/a")
        assert [request.path for request in each.receiver.requests] == ["/in/a", WELL_KNOWN]
        await each.ask("bob", "/in/b")  # the document is kept
        assert len(each.receiver.requests) == 2
        with pytest.raises(Refused):
            await each.ask("bob", "/inside")
        each.now += 3601
        await each.ask("cleo", "/in/c")
        assert len(each.receiver.requests) == 6
        each.receiver.answer = documented(["/in/"], "Cache-Control: no-store, max-age=60")
        each.now += 3601
        for principal in ("dan", "eve"):
            await each.ask(principal, "/in/d")
        assert len(each.receiver.requests) == 10


@pytest.mark.parametrize(
    ("document", "status"),
    [
        (b'{"receivers":["/"]}', 302), (b'{"receivers":["/"]}', 404), (b'{"receivers":"/"}', 200), (b"[]", 200),
        (b'{"receivers":["in"]}', 200), (b'{"receivers":["https://hooks.example.com/"]}', 200), (b"x" * 40_000, 200),
        (b'{"receivers":["/"],"x":"' + b"y" * 16_384 + b'"}', 200),
    ],
)  # fmt: skip
async def test_another_document_is_no_consent(document: bytes, status: int) -> None:
    """EVT-053."""
    async with stage() as each:
        each.receiver.answer = lambda request: reply(status if request.path == WELL_KNOWN else 404, document)
        with pytest.raises(Refused, match="challenge_failed"):
            await each.ask()
