"""A limit on how often one caller calls one tool: a token bucket for each pair."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Collection
from typing import ClassVar

from mcpd.errors import RateLimited, RegistrationError
from mcpd.handlers.middleware import CallNext, MiddlewareRequest, Piece
from mcpd.protocol.types.base import Result

MOST_BUCKETS = 16_384
"""How many pairs of a caller and a tool are told apart; beyond them the caller who called longest ago is forgotten."""

MOST_TOOLS = 1024
"""How many tools of one caller are, whether there are such or not; all others share one bucket."""


class RateLimit(Piece):
    """A middleware: each caller may call each tool `calls` times in `per` seconds: `server.middleware(RateLimit(60))`.

    `burst` is how many calls may come at once, by default `calls`; `tools` names those that are limited, None is all.
    A caller is a principal, without one an address, without that a connection. What is too much gets the error 429,
    whose data has `retryAfter` in seconds. Each round of a request in 2026-07-28 is a call. Raises RegistrationError
    for numbers that are none.
    """

    methods: ClassVar[tuple[str, ...]] = ("tools/call",)

    def __init__(
        self, calls: float, *, per: float = 60.0, burst: int | None = None, tools: Collection[str] | None = None
    ) -> None:
        most = calls if burst is None else burst
        if not (0 < calls < math.inf and 0 < per < math.inf and 1 <= most < math.inf):
            raise RegistrationError(
                "RateLimit: calls and per are more than 0, and burst, or without it calls, is at least 1"
            )
        if isinstance(tools, str):
            raise RegistrationError(f"RateLimit: tools are several names; write tools=[{tools!r}]")
        self._most = float(most)
        self._per_second = calls / per
        self._tools = None if tools is None else frozenset(tools)
        self._callers: OrderedDict[str, dict[str, tuple[float, float]]] = OrderedDict()
        """By caller, the one who called last at the end: by tool how many calls are left, and as of when."""
        self._count = 0
        self._swept: dict[str, float] = {}
        """When the full buckets of a caller with too many tools were taken away last."""

    async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Let it through, or raise RateLimited."""
        tool: str = request.params.name
        if self._tools is None or tool in self._tools:
            self._take(request.caller, tool)
        return await call_next(request)

    def _take(self, caller: str, tool: str) -> None:
        now = asyncio.get_running_loop().time()
        buckets = self._callers.pop(caller, {})
        self._callers[caller] = buckets
        before = len(buckets)
        if tool not in buckets and before >= MOST_TOOLS:
            self._sweep(caller, buckets, now)
            # Names that a caller invents are treated as those that there are: nobody learns what is hidden from them.
            if len(buckets) >= MOST_TOOLS:
                tool = ""

        left = self._left(buckets.get(tool, (self._most, now)), now)
        is_over = left < 1
        buckets[tool] = (left if is_over else left - 1, now)
        self._count += len(buckets) - before
        while self._count > MOST_BUCKETS and len(self._callers) > 1:
            forgotten, theirs = self._callers.popitem(last=False)
            self._count -= len(theirs)
            self._swept.pop(forgotten, None)
        if is_over:
            raise RateLimited((1 - left) / self._per_second)

    def _sweep(self, caller: str, buckets: dict[str, tuple[float, float]], now: float) -> None:
        """Take away the buckets that are full again; not at each call of one who invents names, as there are many."""
        if now - self._swept.get(caller, -math.inf) < max(1 / self._per_second, 0.1):
            return
        self._swept[caller] = now
        for name in [name for name, bucket in buckets.items() if self._left(bucket, now) >= self._most]:
            del buckets[name]

    def _left(self, bucket: tuple[float, float], now: float) -> float:
        left, since = bucket
        return min(self._most, left + (now - since) * self._per_second)
