"""A limit on how often one caller calls one tool: a token bucket for each pair."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Collection
from typing import ClassVar

from ..errors import RateLimited, RegistrationError
from ..types.base import Result
from .middleware import CallNext, MiddlewareRequest, Piece

__all__ = ["MOST_BUCKETS", "RateLimit"]

MOST_BUCKETS = 16_384
"""How many pairs of a caller and a tool are told apart; of those that are more, the one that called longest ago is
forgotten."""


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
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        """Let it through, or raise RateLimited."""
        tool: str = request.params.name
        if self._tools is None or tool in self._tools:
            self._take(request.caller, tool)
        return await call_next(request)

    def _take(self, caller: str, tool: str) -> None:
        # Names that a caller invents share one bucket: they must not push out those of others.
        known = self.catalog is not None and self.catalog.tools.find(tool) is not None
        key = (caller, tool if known else "")
        now = asyncio.get_running_loop().time()
        left, since = self._buckets.pop(key, (self._most, now))
        left = min(self._most, left + (now - since) * self._per_second)
        is_over = left < 1
        self._buckets[key] = (left if is_over else left - 1, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        if is_over:
            raise RateLimited((1 - left) / self._per_second)
