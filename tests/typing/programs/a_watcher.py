"""Middleware and observers, as authors write them."""

from __future__ import annotations

from mcpd import (
    CallNext,
    CallToolResult,
    MiddlewareRequest,
    ObservedCall,
    Observer,
    Outcome,
    Result,
    Server,
    TextContent,
)  # fmt: skip


class Metrics(Observer):
    def __init__(self) -> None:
        self.seconds = 0.0

    def call_ended(self, call: ObservedCall, outcome: Outcome) -> None:
        self.seconds += outcome.seconds
        print(call.method, outcome.code)


server = Server("garden", observers=[Metrics()])


@server.middleware
async def cache(request: MiddlewareRequest, call_next: CallNext) -> Result:
    if request.method == "tools/call" and request.context.client_info is not None:
        return CallToolResult(content=[TextContent("known")])
    return await call_next(request)


class Limiter:
    async def __call__(self, request: MiddlewareRequest, call_next: CallNext) -> Result:
        return await call_next(request)


server.middleware(Limiter())
