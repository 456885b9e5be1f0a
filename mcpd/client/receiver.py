"""Receives events as webhooks: `Client(target, webhook=Receiver("https://me.example/hooks"))`.

Servers reach the receiver under its URL, as the ASGI application `asgi` or as `route` of a server of mcpd. Each
subscription has a secret. A request is believed only if its signature was made with the secret of the subscription that
it names, over the bytes of the body, within the last five minutes. It is answered with a 2xx status only after the
event was handled; otherwise the server sends it again.

Spec: SEP-3415, webhook delivery; https://www.standardwebhooks.com.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from msgspec import Raw, Struct
from msgspec.json import Decoder, encode

from mcpd.errors import ConfigurationError
from mcpd.protocol.jsonrpc import MALFORMED
from mcpd.transports.routes import RouteRequest, RouteResponse

TOLERANCE = 300
"""Seconds that the time of a request may differ from the time here."""
MOST_BYTES = 1024 * 1024
MOST_IDS = 10_000
"""Ids of messages that a subscription remembers, so that a repeated one is not handled again."""
_PREFIX = "whsec_"


class _Message(Struct):
    type: str | None = None
    challenge: str | None = None


_read_message = Decoder(_Message).decode


class Answer(NamedTuple):
    """The response to a request: its status, and its body, which becomes JSON."""

    status: int
    body: Any = None


def _problem(status: int, text: str) -> Answer:
    return Answer(status, {"error": text})


class Hook:
    """The part of a receiver that belongs to one subscription.

    `deliver` is called with the type of a message ("event", "gap" or "terminated") and its body. It returns after the
    message was handled, and raises an exception if it was not.
    """

    def __init__(self, receiver: Receiver, deliver: Callable[[str, Raw], Awaitable[None]]) -> None:
        key = secrets.token_bytes(32)
        self.secret = _PREFIX + base64.b64encode(key).decode()
        self.id = ""
        """The id of the subscription; "" until the server has named it."""
        self._key = key
        self._receiver = receiver
        self._deliver = deliver
        self._running: dict[str, asyncio.Task[None]] = {}
        self._handled: dict[str, None] = {}

    def bind(self, subscription_id: str) -> None:
        """Set the id that the server has given to the subscription."""
        if subscription_id != self.id:
            self._receiver.leave(self)
            self.id = subscription_id
            self._receiver.enter(self)

    def close(self) -> bool:
        """Receive nothing more. Return whether another hook of this receiver has the same subscription."""
        self._receiver.leave(self)
        for task in self._running.values():
            task.cancel()
        return self._receiver.has(self.id)

    def verifies(self, signed: bytes, signatures: str) -> bool:
        """Return whether one of the signatures of a request was made with the secret."""
        expected = base64.b64encode(hmac.digest(self._key, signed, "sha256"))
        given = [each[3:].encode() for each in signatures.split(" ") if each.startswith("v1,")]
        return any(hmac.compare_digest(expected, each) for each in given)

    async def handle(self, message_id: str, kind: str, body: bytes, seconds: float) -> bool:
        """Handle a message, once for each id. Return whether it was handled within this time."""
        if message_id in self._handled:
            return True
        # A server that does not wait for the answer sends the message again while it is being handled.
        task = self._running.get(message_id)
        if task is None:
            task = self._running[message_id] = asyncio.ensure_future(self._run(message_id, kind, Raw(body)))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.wait([task])
        return message_id in self._handled

    async def _run(self, message_id: str, kind: str, body: Raw) -> None:
        try:
            # The server sends the message again after an error; the subscription reports the error.
            with suppress(Exception):
                await self._deliver(kind, body)
                self._handled[message_id] = None
                if len(self._handled) > MOST_IDS:
                    del self._handled[next(iter(self._handled))]
        finally:
            del self._running[message_id]


class Receiver:
    """Receives events as webhooks. `url` is the https URL under which servers reach `asgi` or `route`.

    `seconds` is how long a request waits until the program has handled its event. After that it is answered with status
    503, and the server repeats it.
    """

    def __init__(self, url: str, *, seconds: float = 8.0) -> None:
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.username or parts.fragment or len(url) > 2048:
            raise ConfigurationError(
                f"Receiver({url!r}): use the https URL under which servers reach it, without a user or a fragment"
            )
        self.url = url
        self._seconds = seconds
        self._hooks: dict[str, list[Hook]] = {}

    def hook(self, deliver: Callable[[str, Raw], Awaitable[None]]) -> Hook:
        """Return a new hook, for a subscription that will be requested with its secret."""
        hook = Hook(self, deliver)
        self.enter(hook)
        return hook

    def enter(self, hook: Hook) -> None:
        self._hooks.setdefault(hook.id, []).append(hook)

    def leave(self, hook: Hook) -> None:
        hooks = self._hooks.get(hook.id, [])
        if hook in hooks:
            hooks.remove(hook)
        if not hooks:
            self._hooks.pop(hook.id, None)

    def has(self, subscription_id: str) -> bool:
        return subscription_id in self._hooks

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Process a request with these headers, whose names are in lower case, and this body."""
        message_id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        signatures = headers.get("webhook-signature", "")
        if not message_id or not signatures or not stamp.isascii() or not stamp.isdecimal() or len(stamp) > 15:
            return _problem(400, "the headers webhook-id, webhook-timestamp and webhook-signature are required")
        if abs(time.time() - int(stamp)) > TOLERANCE:
            return _problem(401, "webhook-timestamp is more than five minutes away")

        # Until the server has answered the subscription, its id is unknown here.
        named = self._hooks.get(headers.get("x-mcp-subscription-id") or "", ())
        pending = self._hooks.get("", ())
        signed = b"%b.%b.%b" % (message_id.encode(), stamp.encode(), body)
        hooks = [hook for hook in named if hook.verifies(signed, signatures)]
        is_pending = not hooks and any(hook.verifies(signed, signatures) for hook in pending)
        if not hooks and not is_pending:
            if named:
                return _problem(401, "the signature was not made with the secret of the subscription")
            return _problem(503, "there is no such subscription here yet")

        try:
            message = _read_message(body)
        except MALFORMED:
            return _problem(400, "the body is not an event")

        if message.type == "verification":
            return Answer(200, {"challenge": message.challenge})
        if is_pending:
            return _problem(503, "there is no such subscription here yet")
        if len(hooks) > 1 or len(named) > 1:
            # The same subscription twice: the server has only the secret of the last one, and both get the event.
            hooks = list(named)
        kind = message.type or "event"
        done = await asyncio.gather(*(hook.handle(message_id, kind, body, self._seconds) for hook in hooks))
        return Answer(200, {}) if all(done) else _problem(503, "the event was not handled yet")

    async def route(self, request: RouteRequest) -> RouteResponse:
        """Answer a request to a route: `server.route("/hooks", methods=["POST"], public=True)(receiver.route)`."""
        headers = {name.lower(): value for name, value in request.headers.items()}
        answer = await self.receive(headers, request.body)
        return RouteResponse(answer.body, answer.status)

    async def asgi(self, scope: Mapping[str, Any], receive: Callable[[], Any], send: Callable[[Any], Any]) -> None:
        """The ASGI application, which may be mounted at any path. It answers POST requests."""
        if scope["type"] == "lifespan":
            while (await receive())["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            answer = _problem(405, "send events with POST")
            if scope["method"] == "POST":
                body, more = bytearray(), True
                while more and len(body) <= MOST_BYTES:
                    part = await receive()
                    if part["type"] == "http.disconnect":
                        return
                    body += part.get("body", b"")
                    more = part.get("more_body", False)
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
                is_large = len(body) > MOST_BYTES
                answer = (
                    _problem(413, "the body is too large") if is_large else await self.receive(headers, bytes(body))
                )
            content = encode(answer.body)
            fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
            await send({"type": "http.response.start", "status": answer.status, "headers": fields})
            await send({"type": "http.response.body", "body": content})
