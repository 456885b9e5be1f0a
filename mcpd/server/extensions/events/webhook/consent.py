"""Consent of a receiver before the first delivery: allow-list, challenge, or the well-known document of its origin.

Spec: SEP-3415, endpoint verification. EVT-049 to 053.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from secrets import token_hex, token_urlsafe
from time import time
from typing import TypeVar
from weakref import WeakValueDictionary

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import decode, encode

from .send import Category, Sender, Target, Unreached, is_below, read_url, sign

K = TypeVar("K")
V = TypeVar("V")

_LIFE = 24 * 3600.0
_MOST_KEPT = 10_000
CHALLENGES = 5
_WINDOW = 60.0
_WELL_KNOWN = "/.well-known/mcp-webhook-receiver.json"
_DOCUMENT_BYTES = 16 * 1024
_DOCUMENT_SECONDS = 3600.0
_max_age = re.compile(r"(?:^|[,\s])max-age\s*=\s*\"?(\d{1,9})").search


class Refused(Exception):
    """A receiver has not given its consent."""

    def __init__(self, category: Category) -> None:
        self.category: Category = category
        super().__init__(category)


class TooManyChallenges(Exception):
    """A host has had its share of challenges; they could be used to flood it."""


class _Echo(Struct):
    challenge: str


class _Document(Struct):
    receivers: list[str]


def message_headers(
    subscription: str, message_id: str, keys: Sequence[bytes], now: float, body: bytes
) -> tuple[tuple[str, str], ...]:
    """Return the headers of one attempt; each attempt has its own time and signature (EVT-055)."""
    seconds = int(now)
    return (
        ("webhook-id", message_id),
        ("webhook-timestamp", str(seconds)),
        ("webhook-signature", sign(keys, message_id, seconds, body)),
        ("X-MCP-Subscription-Id", subscription),
    )


class Consent:
    """Asks receivers, and remembers which principals they answered for. `allow` are URLs that operators vouch for."""

    clock: Callable[[], float] = staticmethod(time)

    def __init__(self, sender: Sender, allow: Collection[str] = ()) -> None:
        self._sender = sender
        self._allowed: dict[str, list[str]] = {}
        for url in allow:
            target = read_url(url)
            self._allowed.setdefault(target.origin, []).append(target.path)
        self._given: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._asking: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._asked: OrderedDict[str, deque[float]] = OrderedDict()
        self._documents: OrderedDict[str, tuple[float, list[str]]] = OrderedDict()

    def is_given(self, principal: str, url: str) -> bool:
        """Whether this principal may use this URL without asking again."""
        target = read_url(url)
        if is_below(target, self._allowed.get(target.origin, ())):
            return True
        return self._given.get((principal, url), 0.0) > self.clock()

    def remember(self, principal: str, url: str) -> None:
        """The receiver has accepted this principal's deliveries."""
        _put(self._given, (principal, url), self.clock() + _LIFE)

    async def ask(self, principal: str, url: str, subscription: str, key: bytes) -> None:
        """Return once the receiver has agreed. Raises Refused, and TooManyChallenges before any request."""
        if self.is_given(principal, url):
            return
        lock = self._asking.setdefault((principal, url), asyncio.Lock())
        async with lock:  # one at a time: a second subscription of the same URL has the answer of the first
            if self.is_given(principal, url):
                return
            target = read_url(url)
            if not self._is_listed(target):
                self._count(target.name)
                await self._challenge(target, subscription, key)
            self.remember(principal, url)

    def _count(self, host: str) -> None:
        # The limit is for a host, because a URL can be varied without end.
        asked, now = self._asked.get(host) or deque(), self.clock()
        while asked and asked[0] <= now - _WINDOW:
            asked.popleft()
        if len(asked) >= CHALLENGES:
            raise TooManyChallenges
        asked.append(now)
        _put(self._asked, host, asked)

    async def _challenge(self, target: Target, subscription: str, key: bytes) -> None:
        challenge = token_urlsafe(32)
        body = encode({"type": "verification", "challenge": challenge})
        headers = message_headers(subscription, f"msg_verification_{token_hex(12)}", [key], self.clock(), body)
        echo = ""
        try:
            answer = await self._sender.post(target, headers, body, wants_body=True)
            if answer.is_accepted:
                echo = decode(answer.body, type=_Echo).challenge
        except Unreached as error:
            if error.category != "http_5xx":  # otherwise it answered, but not as it should
                raise Refused(error.category) from None
        except (DecodeError, ValidationError, UnicodeDecodeError):
            pass

        if hmac.compare_digest(echo.encode("utf-8", "replace"), challenge.encode()):
            return
        if not await self._fetch_listed(target):
            raise Refused("challenge_failed")

    # -- the well-known document -------------------------------------------------------------

    def _is_listed(self, target: Target) -> bool:
        until, prefixes = self._documents.get(target.origin, (0.0, []))
        return until > self.clock() and is_below(target, prefixes)

    async def _fetch_listed(self, target: Target) -> bool:
        # Whether the origin names the path of this receiver. A document is kept as long as its headers say.
        document = Target(target.name, target.port, target.authority, _WELL_KNOWN)
        try:
            answer = await self._sender.get(document, _DOCUMENT_BYTES)
            prefixes = decode(answer.body, type=_Document).receivers if answer.status == 200 else []
        except (Unreached, DecodeError, ValidationError, UnicodeDecodeError):
            return False
        control = answer.cache_control.lower()
        age = _max_age(control)
        if prefixes and age is not None and "no-store" not in control and "no-cache" not in control:
            _put(self._documents, target.origin, (self.clock() + min(float(age[1]), _DOCUMENT_SECONDS), prefixes))
        return is_below(target, prefixes)


def _put(kept: OrderedDict[K, V], key: K, value: V) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _MOST_KEPT:
        kept.popitem(last=False)
