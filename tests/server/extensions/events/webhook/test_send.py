"""The guarded sender and its signatures, judged by others, and attacked by receivers and name services."""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from support.clock import Clock, turns
from support.webhook_receiver import HOST, Receiver, Request, patient, receiving, reply, trusting

from mcpd.server.extensions.events.webhook.consent import message_headers
from mcpd.server.extensions.events.webhook.send import Sender, Unreached, is_below, read_secret, read_url, sign

KEY = bytes(range(32))
SECRET = "whsec_" + b64encode(KEY).decode()


@asynccontextmanager
async def sending(receiver: Receiver, **options: Any) -> AsyncIterator[Sender]:
    given = {"allow_private": [receiver.origin], "tls": trusting(), "resolve": receiver.resolve, **options}
    sender = patient(Sender(**given))
    try:
        yield sender
    finally:
        await sender.aclose()


async def post(sender: Sender, url: str, body: bytes = b"{}", *, wants_body: bool = False) -> Any:
    return await sender.post(read_url(url), (("webhook-id", "a"),), body, wants_body=wants_body)


# -- signatures --------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(text=st.text(max_size=300), message=st.text("abcXYZ0129_-.", min_size=1, max_size=40))
def test_other_verifiers_accept_what_is_signed(text: str, message: str) -> None:
    """EVT-055, EVT-056: by the new key and by the old one, over the very bytes."""
    standard, svix = pytest.importorskip("standardwebhooks"), pytest.importorskip("svix.webhooks")
    body = json.dumps({"data": text}).encode()
    other, now = bytes(reversed(KEY)), time()
    headers = dict(message_headers("sub_1", message, [KEY, other], now, body))
    old = dict(message_headers("sub_1", message, [KEY, other], now - 301, body))
    for key in (KEY, other):
        for made in (standard.Webhook, svix.Webhook):
            verifier = made("whsec_" + b64encode(key).decode())
            verifier.verify(body, headers)
            for changed, sent in ((body + b" ", headers), (body, {**headers, "webhook-id": "else"}), (body, old)):
                with pytest.raises((standard.WebhookVerificationError, svix.WebhookVerificationError)):
                    verifier.verify(changed, sent)
    stamp = datetime.fromtimestamp(int(now), UTC)
    assert standard.Webhook(SECRET).sign(message, stamp, body.decode()) == sign([KEY], message, int(now), body)


@pytest.mark.parametrize("size", [24, 32, 33, 64])
def test_a_secret_is_read(size: int) -> None:
    """EVT-037."""
    key = bytes(range(size))
    assert read_secret("whsec_" + b64encode(key).decode()) == key


@pytest.mark.parametrize(
    "secret",
    [
        "", "whsec_", SECRET[6:], "whsec_" + b64encode(KEY[:23]).decode(), "whsec_" + b64encode(KEY * 3).decode(),
        SECRET + "\n", SECRET.rstrip("="), "whsec_" + SECRET, "whsec_" + "é" * 44, SECRET[:-2] + "9=",
    ],
)  # fmt: skip
def test_a_bad_secret_is_refused_and_not_repeated(secret: str) -> None:
    """EVT-037."""
    with pytest.raises(ValueError, match="whsec_") as raised:
        read_secret(secret)
    assert not secret[7:] or secret[7:] not in str(raised.value)


# -- URLs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "", "hooks.example.com/x", "http://hooks.example.com/x", "https:/hooks.example.com", "https:///x", "https://",
        "https://me@hooks.example.com/", "https://me:you@hooks.example.com/", "https://hooks.example.com/#x",
        "https://hooks.example.com:0/", "https://hooks.example.com:65536/", "https://hooks.example.com:x/",
        "https://hooks.example.com\\@inside/", "https://hooks.example.com /", "https://hooks.example.com/a\r\nX: y",
        "https://bücher.example/", "https://./", "https://hooks.example.com/" + "a" * 2048, "https://[::1", "ftp://a/",
        "https://hooks.example.com?x#y", "https://a%2eb/", "https://hooks.example.com/é",
    ],
)  # fmt: skip
def test_a_url_is_refused(url: str) -> None:
    """EVT-036."""
    with pytest.raises(ValueError, match=r"delivery\.url"):
        read_url(url)


def test_a_url_is_read() -> None:
    """EVT-036."""
    for url, name, port, authority, path in (
        ("https://Hooks.Example.com", "hooks.example.com", 443, "hooks.example.com", "/"),
        ("https://a.example:8443/x?y=1", "a.example", 8443, "a.example:8443", "/x?y=1"),
        ("https://a.example.:443?q", "a.example", 443, "a.example.", "/?q"),
        ("https://[2001:db8::1]:444/", "2001:db8::1", 444, "[2001:db8::1]:444", "/"),
    ):
        found = read_url(url)
        assert (found.name, found.port, found.authority, found.path) == (name, port, authority, path)


def test_prefixes_end_at_segments() -> None:
    """EVT-053: and nothing that another parser may rewrite is below one."""
    for path, is_in in (
        ("/in", True), ("/in/", True), ("/in/x?y", True), ("/inside", False), ("/", False), ("/in/../out", False),
        ("/in/%2e%2e/out", False), ("/in/%2E./out", False), ("/in//x", False), ("/in/%5c..", False),
        ("/out?/in/", False),
    ):  # fmt: skip
        assert is_below(read_url(f"https://a.example{path}"), ["/in/"]) is is_in, path
    assert is_below(read_url("https://a.example/x"), ["/"])
    assert not is_below(read_url("https://a.example/x"), ["", "x", "https://a.example/"])


# -- requests ----------------------------------------------------------------------------------


async def test_a_delivery_as_it_is_on_the_wire() -> None:
    """EVT-054, EVT-060: POST, JSON, the four headers, Host as in the URL."""
    async with receiving() as receiver, sending(receiver) as sender:
        body = b'{"eventId":"PD-17"}'
        url = read_url(f"{receiver.origin}/in?a=1")
        answer = await sender.post(url, message_headers("sub_7", "PD-17", [KEY], 1_700_000_000.9, body), body)
        assert answer.is_accepted
        assert answer.body == b"{}"
    request = receiver.requests[0]
    assert (request.method, request.path, request.body) == ("POST", "/in?a=1", body)
    assert {name: request.headers[name] for name in ("host", "content-type", "content-length")} == {
        "host": f"{HOST}:{receiver.port}", "content-type": "application/json", "content-length": "19",
    }  # fmt: skip
    assert request.id == "PD-17"
    assert request.headers["webhook-timestamp"] == "1700000000"
    assert request.headers["webhook-signature"] == sign([KEY], "PD-17", 1_700_000_000, body)
    assert request.headers["x-mcp-subscription-id"] == "sub_7"
    assert not request.headers.keys() & {"authorization", "cookie"}


@pytest.mark.parametrize("status", [200, 202, 204, 299, 302, 307, 400, 404, 410, 413, 425, 429, 500, 503])
async def test_statuses(status: int) -> None:
    """EVT-059, EVT-064: a redirect is not followed; it counts as the receiver's mistake."""
    async with receiving() as receiver, sending(receiver) as sender:
        receiver.answer = lambda request: reply(status, b"", f"Location: {receiver.origin}/else", "Retry-After: 7")
        answer = await post(sender, f"{receiver.origin}/in")
    assert (answer.status, answer.retry_after, len(receiver.requests)) == (status, 7.0, 1)
    assert answer.is_accepted is (status < 300)
    if not answer.is_accepted:
        assert answer.category == ("http_5xx" if status >= 500 else "http_4xx")


async def test_a_connection_is_used_again_and_not_when_it_was_closed() -> None:
    """Section 6: kept alive; a connection that ended meanwhile is replaced without a failure."""
    async with receiving() as receiver, sending(receiver) as sender:
        for _ in range(3):
            await post(sender, receiver.origin)
        assert receiver.connections == 1

        async def close(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.close()

        # The peer closes without an answer: once on the kept connection, then an answer on the new one.
        receiver.answer = lambda request: close if request.connection == 1 else None
        assert (await post(sender, receiver.origin)).status == 200
        assert receiver.connections == 2
        receiver.answer = lambda request: reply(200, b"{}", "Connection: close")
        await post(sender, receiver.origin)
        receiver.answer = lambda request: None
        await post(sender, receiver.origin)
        assert receiver.connections == 3


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
async def test_answers_in_pieces(step: int) -> None:
    """Interim answers, chunks with extensions and trailers, wherever they are split."""
    whole = (
        b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nX: y\r\n\r\n"
    )

    async def slowly(request: Request, writer: asyncio.StreamWriter) -> None:
        for start in range(0, len(whole), step):
            writer.write(whole[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)

    async with receiving() as receiver, sending(receiver) as sender:
        receiver.answer = lambda request: slowly
        for _ in range(2):
            answer = await post(sender, receiver.origin, wants_body=True)
            assert (answer.status, answer.body) == (201, b"hello!")
        assert receiver.connections == 1


async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"400\r\n" + b"x" * 1024 + b"\r\n")
        await writer.drain()


async def endless_head(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: " + b"y" * 1024 + b"\r\n")
        await writer.drain()


async def mute(request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def test_an_answer_without_end_is_cut() -> None:
    """Section 6: 8 KiB are read; the status counts, where no body is needed."""
    async with receiving() as receiver, sending(receiver) as sender:
        receiver.answer = lambda request: endless
        assert (await post(sender, receiver.origin)).status == 200
        with pytest.raises(Unreached, match="http_5xx"):
            await post(sender, receiver.origin, wants_body=True)
        receiver.answer = lambda request: endless_head
        with pytest.raises(Unreached, match="http_5xx"):
            await post(sender, receiver.origin)
        receiver.answer = lambda request: b"HTTP/1.1 100 Continue\r\n\r\n" * 400  # and no final answer
        with pytest.raises(Unreached, match="http_5xx"):
            await post(sender, receiver.origin)
        receiver.answer = lambda request: b"SSH-2.0-OpenSSH_9.9\r\n"
        with pytest.raises(Unreached, match="http_5xx"):
            await post(sender, receiver.origin)
        assert receiver.connections == 5


async def test_a_receiver_that_says_nothing_is_left() -> None:
    """EVT-064: `timeout`; a status that has arrived counts all the same."""
    async with receiving() as receiver, sending(receiver) as sender:
        clock = Clock()

        async def half(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            await mute(request, writer)

        for answer, wants_body in ((mute, False), (half, False), (half, True)):
            receiver.answer = lambda request, answer=answer: answer  # type: ignore[misc]
            sent = asyncio.ensure_future(post(sender, receiver.origin, wants_body=wants_body))
            count = len(receiver.requests) + 1
            await receiver.until(lambda count=count: len(receiver.requests) == count)  # type: ignore[misc]
            await turns(100)
            await clock.advance(sender.seconds + 1)
            if answer is half and not wants_body:
                assert (await sent).status == 200
                continue
            with pytest.raises(Unreached, match="timeout"):
                await sent
        assert receiver.connections == 3


async def test_a_delivery_that_is_given_up_leaves_no_connection() -> None:
    """EVT-063: an attempt is aborted with its subscription."""
    async with receiving() as receiver, sending(receiver) as sender:
        receiver.answer = lambda request: mute
        sent = asyncio.ensure_future(post(sender, receiver.origin))
        await receiver.until(lambda: receiver.requests)
        sent.cancel()
        await asyncio.wait([sent])
        receiver.answer = lambda request: None
        await post(sender, receiver.origin)
        assert receiver.connections == 2


# -- the guard ---------------------------------------------------------------------------------

INSIDE = (
    "127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
    "::1", "::", "fe80::1", "fc00::1", "ff02::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::10.0.0.1",
    "::127.0.0.1", "2001:0:7f00:1::1",
)  # fmt: skip


class Refusing:
    """Addresses of a name service, and whether anything was dialled."""

    def __init__(self, *found: str) -> None:
        self.found = found
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return list(self.found)


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The addresses that the running loop was told to connect to."""
    found: list[Any] = []
    original = asyncio.BaseEventLoop.create_connection

    async def create(self: Any, protocol: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        found.append((host, options.get("server_hostname")))
        return await original(self, protocol, host, port, **options)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", create)
    return found


@pytest.mark.parametrize("address", INSIDE)
async def test_an_address_inside_is_never_dialled(address: str, dialled: list[Any]) -> None:
    """EVT-060: also if another address of the host is global; and it looks like a name that does not exist."""
    async with receiving() as receiver:
        for found in ([address], ["93.184.215.14", address]):
            async with sending(receiver, resolve=Refusing(*found), allow_private=()) as sender:
                sender.connect_seconds = 0.02
                with pytest.raises(Unreached, match="connection_refused"):
                    await post(sender, "https://inside.example.net/")
        url = f"https://[{address}]/" if ":" in address else f"https://{address}/"
        async with sending(receiver, resolve=None, allow_private=()) as sender:
            sender.connect_seconds = 0.02
            with pytest.raises(Unreached, match="connection_refused"):
                await post(sender, url)
    assert dialled == []


async def test_a_name_that_changes_its_mind_is_judged_at_each_connect(dialled: list[Any]) -> None:
    """EVT-060: one lookup for each connect, and the judged address is dialled, by the name of the URL."""
    async with receiving() as receiver, receiving() as inside:
        service = Refusing("127.0.0.1")
        async with sending(receiver, resolve=service) as sender:
            receiver.answer = lambda request: reply(200, b"{}", "Connection: close")
            await post(sender, receiver.origin)
            assert dialled == [("127.0.0.1", HOST)]
            assert service.asked == 1
            # The same name leads elsewhere now, and to a port that nobody vouched for.
            sender.connect_seconds = 0.02
            with pytest.raises(Unreached, match="connection_refused"):
                await post(sender, f"https://{HOST}:{inside.port}/")
            service.found = ("127.0.0.1", "169.254.169.254")
            with pytest.raises(Unreached, match="connection_refused"):
                await post(sender, receiver.origin)
            assert service.asked == 3
        assert len(dialled) == 1
        assert inside.connections == 0


async def test_a_name_without_address_and_an_address_inside_take_the_same_time() -> None:
    """Section 7: nobody learns which names exist in this network."""
    async with receiving() as receiver:
        loop = asyncio.get_running_loop()
        for service in (Refusing("10.0.0.1"), receiver.resolve):
            async with sending(receiver, resolve=service, allow_private=()) as sender:
                sender.connect_seconds = 0.2
                began = loop.time()
                with pytest.raises(Unreached, match="connection_refused"):
                    await post(sender, "https://unknown.example.net/")
                assert loop.time() - began >= 0.2


async def test_a_certificate_is_checked_by_the_name() -> None:
    """EVT-064: `tls_error`."""
    async with receiving() as receiver:
        receiver.host = "other.example.net"
        async with sending(receiver) as sender:
            with pytest.raises(Unreached, match="tls_error"):
                await post(sender, receiver.origin)
        receiver.host = HOST
        async with sending(receiver, tls=None) as sender:
            with pytest.raises(Unreached, match="tls_error"):
                await post(sender, receiver.origin)
        assert receiver.requests == []


async def test_nobody_listens() -> None:
    """EVT-064: `connection_refused`, and the second address is tried."""
    async with receiving() as receiver:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"https://{HOST}:{unused.getsockname()[1]}/"
        async with sending(receiver, allow_private=[url]) as sender:
            with pytest.raises(Unreached, match="connection_refused"):
                await post(sender, url)
        async with sending(receiver, resolve=Refusing("127.0.0.2", "127.0.0.1")) as sender:
            assert (await post(sender, receiver.origin)).status == 200


async def test_names_are_looked_up_by_the_system() -> None:
    """The real name service of this machine, for a name that it has."""
    async with receiving() as receiver:
        receiver.host = "localhost"
        async with sending(receiver, resolve=None, allow_private=[receiver.origin]) as sender:
            assert (await post(sender, receiver.origin)).status == 200


async def test_an_idle_connection_is_closed() -> None:
    """Section 6: 30 s after its last use."""
    clock = Clock()
    async with receiving() as receiver, sending(receiver) as sender:
        await post(sender, receiver.origin)
        assert receiver.ended == 0
        await clock.advance(31)
        await receiver.until(lambda: receiver.ended)
        await post(sender, receiver.origin)
        assert receiver.connections == 2
